//! What fusion decided is a candidate among others: a product's epilogue may be a kernel of its own.

use super::group::{Class, Group};
use super::{Candidate, Cost, Target, near, plan};
use rc_ir::{Body, Result};

/// How many candidates come before one that divides a group, at most: models of what fusion saves are the least exact, so that it is among
/// those that are measured.
const BEFORE: usize = 7;

/// Adds to the ways to run a group, which are ranked, the one that runs its epilogue as a kernel of its own, where it has one.
///
/// # Errors
/// As [`plan`].
pub fn add(body: &Body, group: &Group, ranked: &mut Vec<Candidate>, target: &Target) -> Result {
    let Some(candidate) = epilogue_apart(body, group, target)? else { return Ok(()) };
    let us = |c: &Candidate| c.cost.map_or(f64::INFINITY, |cost| cost.us);
    let faster = ranked.iter().skip(1).position(|other| us(other) > us(&candidate)).map_or(ranked.len(), |at| at + 1);
    ranked.insert(faster.min(BEFORE).min(ranked.len()), candidate);
    Ok(())
}

fn epilogue_apart(body: &Body, group: &Group, target: &Target) -> Result<Option<Candidate>> {
    if group.class != Class::Contract || group.ops.len() < 2 {
        return Ok(None);
    }
    let part = |class: Class, from: usize, to: usize| Group {
        class,
        ops: group.ops[from..to].to_vec(),
        nests: group.nests[from..to].to_vec(),
    };
    let parts = [part(Class::Contract, 0, 1), part(Class::Pointwise, 1, group.ops.len())];
    let mut all = Candidate { schedules: Vec::new(), what: "its epilogue a kernel of its own".into(), cost: None };
    let mut longest = Cost { us: 0.0, bound: "nothing" };
    let mut total = 0.0;
    for (number, part) in parts.iter().enumerate() {
        let mut plan = plan(body, part, target)?;
        near::complete(body, part, &mut plan, target);
        let best = plan.candidates.swap_remove(0);
        let cost = best.cost.unwrap_or(longest);
        if cost.us > longest.us {
            longest = cost;
        }
        total += cost.us;
        all.what += &format!("; {}", best.what);
        all.schedules.extend(best.schedules.into_iter().map(|mut s| {
            s.group = number as i64;
            s
        }));
    }
    all.cost = Some(Cost { us: total, bound: longest.bound });
    Ok(Some(all))
}
