//! One description of the machine that is compiled for, read by every pass and emitter.
//!
//! A description is a text file (`targets/*.toml`), or is found out from the machine at hand ([`Target::host`]); a module carries it in full
//! as `rc.target = #rc.target<…>`. Nothing here links LLVM.

mod attr;
mod cpus;
mod file;
mod find;
mod fit;
mod host;
mod target;

pub use fit::Needs;
pub use target::{Align, Attention, Gpu, Machine, Matrix, Products, Target, Unit, Warpgroups};
