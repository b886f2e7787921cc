//! Random modules through every phase: each is lowered for CPUs and GPUs, executed by the interpreter after each phase, and compared
//! with what it computed before all of them.
//!
//! A module is made of [`Step`]s, which any numbers are, so that one that fails is reduced by dropping steps. Values carry a bound of
//! their rounding errors: what passes may change stays below it, and everything else is a finding.

mod build;
mod check;
mod family;
mod moves;
pub mod native;
mod numbers;
mod ops;
mod reduce;
mod shapes;
mod whole;

pub use build::{Case, build};
pub use check::{Finding, HERE, Outcome, TARGETS, Target, check};
pub use reduce::reduced;

/// What one operation is made of: which, of what, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub kind: u16,
    pub operands: [u16; 3],
    pub choices: [u16; 4],
}

/// A module to be: the numbers that decide its arguments, then its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    pub start: u64,
    pub steps: Vec<Step>,
}

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }
}

impl Seeds {
    /// The numbers of case `case` under `seed`: one to eight steps.
    pub fn of(seed: u64, case: u64) -> Seeds {
        let mut random = Random(seed ^ case.wrapping_mul(0xd134_2543_de82_ef95));
        let start = random.draw();
        let count = 1 + random.below(8);
        let mut number = || random.draw() as u16;
        let steps = (0..count).map(|_| Step {
            kind: number(),
            operands: [number(), number(), number()],
            choices: [number(), number(), number(), number()],
        });
        Seeds { start, steps: steps.collect() }
    }
}
