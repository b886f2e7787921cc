//! A kernel over a grid.

use std::cell::Cell;

use super::abi::{ENTRIES, FailureCell, KernelCtx, KernelFn};
use super::pool::Pool;
use crate::tensor::AlignedBuffer;
use crate::{Error, Result};

#[cfg(test)]
mod tests;

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Programs in x, y, z.
    pub grid: [u64; 3],
    /// Programs that one call covers at least, for kernels whose programs are too small to hand out singly.
    pub grain: u64,
    /// Bytes of scratch memory for each thread.
    pub scratch: usize,
}

impl Launch {
    /// A grid, without scratch, in calls of any length.
    pub fn grid(grid: [u64; 3]) -> Launch {
        Launch { grid, grain: 1, scratch: 0 }
    }
}

thread_local! {
    /// This thread's scratch memory, kept from launch to launch at its largest size.
    static SCRATCH: Cell<Option<AlignedBuffer>> = const { Cell::new(None) };
}

impl Pool {
    /// Runs a kernel over a grid and returns when all of it is done. `args` are the kernel's slots, as
    /// [`abi`](super::abi) says. Fails where the grid has no linear numbering in 64 bits, where scratch memory cannot
    /// be had, or with what the kernel reports.
    ///
    /// # Safety
    ///
    /// `kernel` has the ABI of [`abi`](super::abi), its code stays in memory, and its arguments are right for it:
    /// pointers valid for all that it reads and writes.
    pub unsafe fn launch(&self, kernel: KernelFn, args: &[u64], launch: Launch) -> Result<()> {
        let [x, y, z] = launch.grid;
        let count = x.checked_mul(y).and_then(|xy| xy.checked_mul(z)).filter(|&count| count < 1 << 63);
        let count = count.ok_or_else(|| Error::Invalid(format!("a grid of {x} × {y} × {z} programs")))?;
        let failure = FailureCell::default();
        let memory = std::sync::OnceLock::new();
        let threads = self.threads() as u64;
        self.for_each(count, launch.grain, &|thread, range| {
            // After a failure the launch's results are void, so what remains is left out.
            if failure.failed() {
                return;
            }
            let scratch = match take_scratch(launch.scratch) {
                Ok(scratch) => scratch,
                Err(error) => return drop(memory.set(error)),
            };
            let ctx = KernelCtx {
                begin: range.start,
                end: range.end,
                grid: launch.grid,
                thread: thread as u64,
                threads,
                scratch: scratch.as_ref().map_or(std::ptr::null_mut(), AlignedBuffer::start),
                scratch_size: scratch.as_ref().map_or(0, |buffer| buffer.bytes().len() as u64),
                entries: &ENTRIES,
                failure: &failure,
            };
            // SAFETY: the caller vouches for kernel and arguments; the context lives through the call.
            unsafe { kernel(args.as_ptr(), &ctx) };
            if scratch.is_some() {
                SCRATCH.set(scratch);
            }
        });
        memory.into_inner().map_or(Ok(()), Err)?;
        failure.check()
    }
}

/// This thread's scratch memory, of at least `size` bytes; nothing where no scratch is wanted.
fn take_scratch(size: usize) -> Result<Option<AlignedBuffer>> {
    if size == 0 {
        return Ok(None);
    }
    match SCRATCH.take() {
        Some(buffer) if buffer.bytes().len() >= size => Ok(Some(buffer)),
        _ => AlignedBuffer::zeroed(size).map(Some),
    }
}
