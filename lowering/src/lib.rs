//! From rc's `kernel` dialect to machine code.
//!
//! Only this crate links MLIR and LLVM. [`kernel`] lowers a `kernel.func` in its *thread* phase; [`emit`] builds modules
//! in MLIR's `llvm` and `nvvm` dialects; [`backend`] takes them to object code or PTX; [`ptxas`] checks PTX in tests.

pub mod backend;
pub mod emit;
pub mod kernel;
pub mod pass;
pub mod ptxas;
