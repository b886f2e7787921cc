//! The kernels that tell a graph's conditional nodes how to go on.

use std::sync::Arc;

use super::args::{Arg, KernelArgs};
use super::assemble::AssembleOptions;
use super::device::Device;
use super::graph::{Dependency, Graph, GraphExec, Handle, Node};
use super::launch::LaunchConfig;
use super::module::{Function, Module};
use crate::Result;

/// For the driver's own assembler: no other one has the function that these call.
const PTX: &str = include_str!("conditions.ptx");

/// Loaded on a device.
#[derive(Debug)]
pub struct Conditions {
    while_true: Function,
    choose: Function,
}

/// What a byte of memory decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// Whether a loop goes on.
    While(Handle),
    /// Which of two branches is taken: that where the byte is not 0, and the other.
    Choice([Handle; 2]),
}

const ONE_THREAD: LaunchConfig = LaunchConfig::new([1, 1, 1], [1, 1, 1]);

impl Conditions {
    /// Loads the kernels.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(device: &Arc<Device>) -> Result<Conditions> {
        let module = Module::whole(device, PTX, &AssembleOptions::default())?;
        Ok(Conditions { while_true: module.function("while_true")?, choose: module.function("choose")? })
    }

    /// Adds a node that reads the byte and decides.
    ///
    /// # Safety
    /// The address is of a byte of the device's memory whenever the graph runs.
    pub unsafe fn add(&self, graph: &mut Graph, flag: u64, decides: Decides, after: &[Dependency]) -> Result<Node> {
        let (function, mut args) = self.launch(flag, decides);
        // SAFETY: the kernels read a byte there, for which the caller vouches.
        unsafe { graph.add_kernel(function, &ONE_THREAD, &mut args, after) }
    }

    /// Has a node read another byte, before the next run.
    ///
    /// # Safety
    /// As for [`Conditions::add`]; `node` was added by it to the graph that this was made from, for the same decision.
    pub unsafe fn set(&self, exec: &mut GraphExec, node: Node, flag: u64, decides: Decides) -> Result<()> {
        let (function, mut args) = self.launch(flag, decides);
        // SAFETY: as above.
        unsafe { exec.set_kernel(node, function, &ONE_THREAD, &mut args) }
    }

    fn launch(&self, flag: u64, decides: Decides) -> (&Function, KernelArgs) {
        let handle = |handle: Handle| Arg::I64(handle.0 as i64);
        match decides {
            Decides::While(goes_on) => (&self.while_true, KernelArgs::new(&[Arg::Pointer(flag), handle(goes_on)])),
            Decides::Choice([holds, otherwise]) => {
                (&self.choose, KernelArgs::new(&[Arg::Pointer(flag), handle(holds), handle(otherwise)]))
            }
        }
    }
}
