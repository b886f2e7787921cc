//! Everything that `rc-lowering` promises, in one binary.

mod backend;
mod cpu;
mod cuda;
mod kernel;
