//! One description of the machine that is compiled for, read by every pass and emitter.
//!
//! A description is a text file (`targets/*.toml`), or is found out from the machine at hand ([`Target::host`]); a module carries it in full
//! as `rc.target = #rc.target<…>`. Nothing here links LLVM.

mod attr;
mod cpu;
mod cpus;
mod file;
mod find;
mod fit;
mod fusion;
mod gpu;
mod host;
mod matrix;
mod range;
mod rewrite;
mod target;

pub use cpu::{Cpu, CpuColumns, CpuPointwise, CpuProducts, CpuWindows};
pub use fit::Needs;
pub use fusion::Fusion;
pub use gpu::{Align, Attention, Columns, Gpu, Products, Rows, Warpgroups};
pub use matrix::{Matrix, Unit};
pub use rewrite::figure;
pub use target::{Machine, Target};
