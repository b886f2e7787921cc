//! From rc's `kernel` dialect to machine code.
//!
//! Only this crate links MLIR and LLVM. [`backend`] takes a module in MLIR's `llvm` and `nvvm` dialects to object code
//! or PTX; [`emit`] builds such modules.

pub mod backend;
