//! From a module in MLIR's `llvm` and `nvvm` dialects to machine code, in process.
//!
//! ```text
//! MLIR module ─ translate ─ LLVM module ─ passes ─┬─ LLVM IR text
//!                                                 ├─ x86-64 assembly, object code
//!                                                 └─ PTX
//! ```
//!
//! A [`Session`] owns the MLIR context. Sessions share nothing, so kernels are compiled in parallel with one session
//! for each thread.

mod codegen;
mod error;
mod llvm;
mod object;
mod passes;
mod processor;
mod session;

pub use self::{
    codegen::{LlvmModule, Timings},
    error::Error,
    object::ObjectCode,
    passes::{Options, Pipeline},
    processor::{Cpu, Cuda, Processor},
    session::Session,
};

/// LLVM's version: `22.1.0`.
pub fn llvm_version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the function writes three numbers.
    unsafe { llvm_sys::core::LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}
