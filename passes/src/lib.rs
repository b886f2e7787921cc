
//! The passes of rc, a file or folder each. None links LLVM.

pub mod fuse;
pub mod lower_loops;
pub mod plan_buffers;
