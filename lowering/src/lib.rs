//! From rc's `kernel` dialect to machine code.
//!
//! Only this crate links MLIR and LLVM. [`emit`] builds modules in MLIR's `llvm` and `nvvm` dialects; [`backend`] takes
//! them to object code or PTX; [`ptxas`] checks PTX in tests.

pub mod backend;
pub mod emit;
pub mod ptxas;
