//! The ways to run a group of nests, the best first.

use super::attr::Schedule;

/// What a model says of a schedule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Microseconds.
    pub us: f64,
    /// What takes most of them.
    pub bound: &'static str,
}

impl Cost {
    /// Of several things that happen beside one another the one that takes longest, in microseconds.
    pub fn longest<const N: usize>(all: [(&'static str, f64); N]) -> Cost {
        let longest = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nothing", 0.0));
        Cost { us: longest.1, bound: longest.0 }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} us, bound by {}", self.us, self.bound)
    }
}

/// A way to run a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// One for each nest of the group.
    pub schedules: Vec<Schedule>,
    /// What it chooses, in words.
    pub what: String,
    /// None, where a rule chose it and no model.
    pub cost: Option<Cost>,
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        self.cost.map_or(Ok(()), |cost| write!(f, ": {cost}"))
    }
}

/// The ways to run a group, and why the first is chosen.
pub struct Plan {
    /// What holds for all candidates.
    pub title: String,
    /// At least one.
    pub candidates: Vec<Candidate>,
    /// What a rule decided against, and why.
    pub other: String,
}

impl Plan {
    /// What a rule chose.
    pub fn of_rule(schedules: Vec<Schedule>, why: String, other: String) -> Plan {
        Plan { title: String::new(), candidates: vec![Candidate { schedules, what: why, cost: None }], other }
    }
    /// What a model chose, the best first; `other` says why there is no second one.
    pub fn of_model(title: String, candidates: Vec<Candidate>, other: &str) -> Plan {
        Plan { title, candidates, other: other.into() }
    }
    /// With other ways, each with what a model says of it.
    pub fn with(mut self, others: Vec<Candidate>) -> Plan {
        self.candidates.extend(others);
        let us = |c: &Candidate| c.cost.map_or(f64::INFINITY, |cost| cost.us);
        self.candidates.sort_by(|a, b| us(a).total_cmp(&us(b)));
        self
    }
    /// The choice, in words.
    pub fn why(&self) -> String {
        format!("{}{}", self.title, self.candidates[0])
    }
    /// What came second, in words.
    pub fn runner_up(&self) -> String {
        match self.candidates.get(1).filter(|c| c.cost.is_some() && self.candidates[0].cost.is_some()) {
            Some(second) if !self.title.is_empty() => second.to_string(),
            _ => self.other.clone(),
        }
    }
}
