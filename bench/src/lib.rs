//! What a kernel computes, its float64 reference, and how it is run and timed.

pub mod case;
pub mod check;
pub mod cpu;
pub mod cuda;
pub mod load;
