//! Runs compiled modules: host tensors and their files, CPU code and threads, CUDA devices.
//!
//! Nothing here needs the passes, MLIR or LLVM: a module that `rc-lowering` has compiled carries object code for
//! [`cpu`] or PTX for [`cuda`], and this crate maps it, launches it and moves its data.
//!
//! | module | what it holds |
//! |---|---|
//! | [`tensor`] | [`Tensor`], a dtype, a shape and 64-byte-aligned or memory-mapped bytes; conversions, comparison with a reference, random data |
//! | [`npy`], [`safetensors`] | tensors in files |
//! | [`Model`], [`package`] | compiled models in one file: load, signature, run |
//! | [`Executable`], [`program`] | a compiled module that runs |
//! | [`HostTensor`], [`DeviceTensor`], [`Allocator`] | the caller's memory on the host, on a GPU, and for what a run needs |
//! | [`Resident`] | one with arguments that stay on the machine between runs |
//! | [`cache`] | where what was compiled is kept on disk |
//! | [`foreign`] | functions of the process, which programs call |
//! | [`philox`] | the counter-based generator of every random number |
//! | [`random`] | random arguments for a function |
//! | [`cpu`] | ELF objects mapped into memory, the kernel ABI, the thread pool |
//! | [`interp`] | the reference interpreter, for modules at any stage |
//! | [`cuda`] | device, modules, buffers, launches, graphs and tensor maps, through the driver alone |

mod allocator;
pub mod cache;
mod call;
pub mod cpu;
pub mod cuda;
pub mod error;
mod executable;
mod files;
pub mod foreign;
pub mod interp;
mod model;
pub mod npy;
mod on_device;
pub mod package;
pub mod philox;
pub mod program;
pub mod random;
mod resident;
pub mod safetensors;
pub mod tensor;
pub mod threads;

pub use allocator::Allocator;
pub use call::{HostTensor, Tensors};
pub use error::{Error, Result};
pub use executable::{Executable, KernelTime, gpu_arch};
pub use model::{LoadOptions, Model, Place};
pub use on_device::DeviceTensor;
pub use rc_machine::{Machine, Needs};
pub use resident::Resident;
pub use tensor::{DType, Tensor};
