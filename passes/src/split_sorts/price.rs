//! What sorting rows takes a GPU, by three ways.

use super::counted::TOGETHER;
use crate::schedule::sort::LONGEST;
use rc_machine::Target;

/// How rows are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Each by one program.
    Whole,
    /// In runs of so many elements, which are merged.
    Merged(i64),
    /// By how many elements have each key, and less.
    Counted,
}

/// Rows and the elements of one, the bytes of a key, and the number that keys are known to be less than.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub rows: i64,
    pub length: i64,
    pub key_bytes: i64,
    pub below: Option<i64>,
}

/// Bytes of a place.
const PLACE: i64 = 4;

impl Sizes {
    /// The way that takes the least time, and the microseconds.
    pub fn cheapest(&self, target: &Target) -> (Way, f64) {
        let costs = &target.gpu().sorts;
        let [shortest, longest] = costs.runs.map(|run| run.max(1).ilog2());
        let runs = (shortest..=longest).map(|bits| 1 << bits).filter(|&run| run < self.length).map(Way::Merged);
        let whole = (self.length <= LONGEST).then_some(Way::Whole);
        let counted = self.below.filter(|&keys| keys <= costs.counted).map(|_| Way::Counted);
        let timed = whole.into_iter().chain(runs).chain(counted).map(|way| (way, self.microseconds(way, target)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Way::Whole, 0.0))
    }

    fn microseconds(&self, way: Way, target: &Target) -> f64 {
        let costs = &target.gpu().sorts;
        let all = (self.rows * self.length) as f64;
        match way {
            Way::Whole => self.runs_us(self.length, target),
            Way::Merged(run) => {
                let (merge, lookups) = (costs.merge_us + all * costs.merge_ns / 1e3, 2.0 * target.launch_us);
                self.runs_us(run, target) + doublings(self.runs(run)) * merge + lookups
            }
            Way::Counted => {
                let compared = all * (self.below.unwrap_or(1) + TOGETHER) as f64;
                costs.counted_us + compared * costs.compare_ns / 1e3
            }
        }
    }

    fn runs(&self, run: i64) -> i64 {
        (self.length - 1) / run + 1
    }

    /// The time of programs that sort a run each: the bytes of keys and places, moved in shared memory as often as sorted parts double.
    fn runs_us(&self, run: i64, target: &Target) -> f64 {
        let programs = (self.rows * self.runs(run)) as f64;
        let bytes = (run * (self.key_bytes.max(4) + PLACE)) as f64;
        let each = doublings(run) * bytes * target.gpu().sorts.byte_ns / 1e3;
        target.launch_us + each * (programs / target.cores as f64).max(1.0)
    }
}

/// How often one doubles until there are as many.
fn doublings(count: i64) -> f64 {
    f64::from(count.max(1).unsigned_abs().next_power_of_two().ilog2())
}
