//! A gate in a queue of work.

use std::sync::Arc;

use cudarc::driver::sys;

use super::device::Device;
use super::driver::check;
use super::memory::PinnedBuffer;
use super::stream::Stream;
use crate::Result;

/// What is queued behind it waits until it is opened: work that is queued slowly then runs as if it had been queued at once.
pub struct Gate {
    device: Arc<Device>,
    /// A word, 1 where the gate is open.
    word: PinnedBuffer,
}

impl Gate {
    /// An open gate.
    pub fn new(device: &Arc<Device>) -> Result<Gate> {
        let word = PinnedBuffer::new(device, size_of::<u32>())?;
        let gate = Gate { device: device.clone(), word };
        gate.write(1);
        Ok(gate)
    }

    /// Closes it in front of what is queued on the stream next, until what this gives is dropped. The driver's queue has room for some hundred
    /// launches; one too many waits for ever.
    ///
    /// # Errors
    /// The driver's.
    pub fn close(&self, stream: &Stream) -> Result<Closed<'_>> {
        self.device.bind()?;
        self.write(0);
        let closed = Closed(self);
        let at = self.word.bytes().as_ptr() as sys::CUdeviceptr;
        let least = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: page-locked memory has one address on the host and on the device, and this outlives the wait, which ends when `closed` is dropped.
        check(unsafe { sys::cuStreamWaitValue32_v2(stream.raw().cast(), at, 1, least) }, "cuStreamWaitValue32")?;
        Ok(closed)
    }

    fn write(&self, value: u32) {
        // SAFETY: the word is aligned and its own allocation; the device only reads it.
        unsafe { self.word.bytes().as_ptr().cast_mut().cast::<u32>().write_volatile(value) };
    }
}

/// A gate that is closed; dropped, it is open.
pub struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.write(1);
    }
}
