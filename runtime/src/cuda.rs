//! CUDA devices, by way of the driver alone: no toolkit, no runtime library.
//!
//! The driver is found when the first function here is called. Where there is none, or no GPU, that is
//! [`Error::NoGpu`](crate::Error::NoGpu).
//!
//! ```no_run
//! use rc_runtime::cuda::{Arg, Buffer, Device, KernelArgs, LaunchConfig, Module, Stream};
//! # fn main() -> rc_runtime::Result<()> {
//! # let ptx = "";
//! let device = Device::open(0)?;
//! let stream = Stream::new(&device)?;
//! let scale = Module::from_ptx(&device, ptx, &Default::default(), None)?.function("scale")?;
//! let x = Buffer::new(&device, 4096)?;
//! x.upload(&stream, 0, &[0; 4096])?;
//! let mut args = KernelArgs::new(&[Arg::Pointer(x.address()), Arg::I64(1024)]);
//! let config = LaunchConfig::new([4, 1, 1], [256, 1, 1]);
//! // SAFETY: `scale` takes a pointer to as many floats as its second argument says.
//! unsafe { stream.launch(&scale, &config, &mut args)? };
//! let mut bytes = [0; 4096];
//! x.download(&stream, 0, &mut bytes)?;
//! # Ok(()) }
//! ```
//!
//! Everything works at the driver's own level: `cudarc`'s streams record events that a capture cannot hold.
//! A device's context is made current on whatever thread calls, so all types here may move between threads.

mod args;
mod assemble;
mod cache;
mod conditions;
mod device;
mod driver;
mod gate;
mod graph;
mod launch;
mod memory;
mod module;
mod stream;
mod tensor_map;

pub use args::{Arg, KernelArgs};
pub use assemble::{AssembleOptions, Cubin, assemble, load_all};
pub use cache::CubinCache;
pub use conditions::{Conditions, Decides};
pub use device::{Device, DeviceInfo};
pub use gate::{Closed, Gate};
pub use graph::{Conditional, Dependency, Graph, GraphExec, Handle, Node};
pub use launch::LaunchConfig;
pub use memory::{Buffer, PinnedBuffer};
pub use module::{Function, FunctionInfo, Module};
pub use stream::{Event, Stream};
pub use tensor_map::{Swizzle, TensorMap, TensorMapLayout};
