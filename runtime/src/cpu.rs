//! CPU code: object files mapped into memory, and the threads that run their kernels.
//!
//! ```text
//! LoadedObject::load(bytes)   an ELF x86-64 object becomes executable memory (object.rs, memory.rs, relocate.rs)
//!   .kernel(name)             a function with the ABI of abi.rs
//! Pool::global()?.launch(…)   the kernel over a grid, on every thread (pool.rs, openmp.rs, launch.rs)
//!                .copy(…)     memory, on every thread (copy.rs)
//! ```

pub mod abi;
mod copy;
mod launch;
mod memory;
mod object;
mod openmp;
mod pool;
mod relocate;

pub use launch::Launch;
pub use object::{Kernel, LoadedObject};
pub use openmp::share_openmp_of;
pub use pool::{Pool, PoolOptions};
