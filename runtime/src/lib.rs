//! Runs compiled modules: host tensors and their files, CPU code and threads, CUDA devices.
//!
//! Nothing here needs the passes, MLIR or LLVM: a module that `rc-lowering` has compiled carries object code for
//! [`cpu`] or PTX for [`cuda`], and this crate maps it, launches it and moves its data.
//!
//! | module | what it holds |
//! |---|---|
//! | [`tensor`] | [`Tensor`], a dtype, a shape and 64-byte-aligned or memory-mapped bytes; conversions, comparison with a reference, random data |
//! | [`npy`], [`safetensors`] | tensors in files |
//! | [`philox`] | the counter-based generator of every random number |
//! | [`cpu`] | ELF objects mapped into memory, the kernel ABI, the thread pool |
//! | [`interp`] | the reference interpreter, for modules at any stage |
//! | [`cuda`] | device, modules, buffers, launches, graphs and tensor maps, through the driver alone |

pub mod cpu;
pub mod cuda;
pub mod error;
mod files;
pub mod interp;
pub mod npy;
pub mod philox;
pub mod program;
pub mod safetensors;
pub mod tensor;

pub use error::{Error, Result};
pub use tensor::{DType, Tensor};
