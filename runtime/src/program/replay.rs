//! Runs on the caller's memory as graphs: a run whose addresses and sizes are those of an earlier one is replayed.
//!
//! A caller whose allocator gives the same memory again, as PyTorch's does when each step frees what it made, comes to runs of one launch.
//! Where addresses keep changing, every run queues its launches one by one, as [`CudaProgram::run_at`] does.

use super::prepare::needs_host;
use super::signature::Bindings;
use super::{CudaProgram, Memory};
use crate::Result;
use crate::cuda::{Graph, GraphExec, Stream};
use std::ffi::c_void;

/// Graphs that a program keeps; the one that was used longest ago goes first.
const KEPT: usize = 8;

/// A run that was seen, and its graph from the second time on.
pub(super) struct Seen {
    bindings: Bindings,
    addresses: Vec<u64>,
    graph: Option<GraphExec>,
}

impl CudaProgram {
    /// As [`CudaProgram::run_at`], by a graph where these very addresses came before. While `stream` is being captured, the launches are queued
    /// one by one, into the caller's own graph.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn replay_at(
        &self,
        bindings: &Bindings,
        inputs: &[u64],
        outputs: &[u64],
        arena: u64,
        stream: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's stream is one of the device.
        let caller = unsafe { Stream::borrow(&self.device, stream) };
        if !caller.is_capturing()? && self.replayed(&caller, bindings, inputs, outputs, arena)? {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.run_at(bindings, inputs, outputs, arena, stream) }
    }

    /// Launches the graph of a run that was seen, and says whether there was one.
    fn replayed(
        &self,
        stream: &Stream,
        bindings: &Bindings,
        inputs: &[u64],
        outputs: &[u64],
        arena: u64,
    ) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let addresses = || inputs.iter().chain(outputs).chain([&arena]).copied();
        let same = |s: &Seen| s.bindings == *bindings && s.addresses.iter().copied().eq(addresses());
        let Some(place) = seen.iter().position(same) else {
            seen.insert(0, Seen { bindings: bindings.clone(), addresses: addresses().collect(), graph: None });
            seen.truncate(KEPT);
            return Ok(false);
        };
        seen[..=place].rotate_right(1);
        let run = &mut seen[0];
        if run.graph.is_none() {
            let steps = self.steps(bindings)?;
            if needs_host(&steps) {
                return Ok(false);
            }
            let address = |memory| match memory {
                Memory::Input(i) => inputs[i],
                Memory::Output(i) => outputs[i],
                Memory::Arena => arena,
                Memory::Constant(i) => self.constants[i].address(),
            };
            // On the program's own stream: the caller's may be the default one, which cannot be captured.
            let graph = Graph::capture(&self.stream, &self.kernels, |own| self.queue_all(own, &steps, &address))?;
            if graph.node_count()? == 0 {
                return Ok(false);
            }
            run.graph = Some(graph.instantiate()?);
        }
        // SAFETY: the graph's launches are those of this run; the caller vouches for its memory.
        run.graph.iter().try_for_each(|graph| unsafe { graph.launch(stream) })?;
        Ok(true)
    }
}
