//! Queues of work, and marks in them.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::sys;

use super::device::Device;
use super::driver::check;
use crate::Result;

/// A queue of work on a device. It does not wait for the process's default stream.
#[derive(Debug)]
pub struct Stream {
    device: Arc<Device>,
    handle: sys::CUstream,
}

// SAFETY: the driver's handles may be used on any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver locks what threads share.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new queue.
    pub fn new(device: &Arc<Device>) -> Result<Stream> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle.
        check(unsafe { sys::cuStreamCreate(&mut handle, flags) }, "cuStreamCreate")?;
        Ok(Stream { device: device.clone(), handle })
    }

    /// Another library's queue (a `CUstream`), which is not destroyed with this.
    ///
    /// # Safety
    /// The handle is a stream of the device, or null for its default stream, and lives as long as this.
    pub unsafe fn borrow(device: &Arc<Device>, handle: *mut std::ffi::c_void) -> ManuallyDrop<Stream> {
        ManuallyDrop::new(Stream { device: device.clone(), handle: handle.cast() })
    }

    /// Queues a copy between two places of the device that do not overlap.
    ///
    /// # Safety
    /// Both are valid for `size` bytes until the stream has done the copy.
    pub unsafe fn copy(&self, to: u64, from: u64, size: usize) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the caller vouches for both places.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, self.handle) }, "cuMemcpyDtoDAsync")
    }

    /// The byte at a place of the device, when all work queued so far is done.
    ///
    /// # Safety
    /// The place is valid for one byte.
    pub unsafe fn read_byte(&self, from: u64) -> Result<u8> {
        self.device.bind()?;
        let mut byte = 0u8;
        let to = std::ptr::from_mut(&mut byte).cast();
        // SAFETY: the caller vouches for the place; the byte lives until the stream is idle.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, 1, self.handle) }, "cuMemcpyDtoHAsync")?;
        self.synchronize()?;
        Ok(byte)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The driver's handle (`CUstream`), for libraries that queue work of their own.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.handle.cast()
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// Whether what is queued goes into a graph that somebody records.
    pub fn is_capturing(&self) -> Result<bool> {
        self.device.bind()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: writes one number.
        check(unsafe { sys::cuStreamIsCapturing(self.handle, &mut status) }, "cuStreamIsCapturing")?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Waits for all work queued so far. Errors of earlier launches appear here.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is valid while `self` lives.
        check(unsafe { sys::cuStreamSynchronize(self.handle) }, "cuStreamSynchronize")
    }

    /// Lets work queued from here on wait for `event`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are valid.
        check(unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) }, "cuStreamWaitEvent")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once; queued work still completes.
        if let Some(_relaxed) = self.device.releasing() {
            unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

/// A mark in a queue, with the time at which it was reached.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    handle: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as for streams.
unsafe impl Sync for Event {}

impl Event {
    /// A mark not yet placed.
    pub fn new(device: &Arc<Device>) -> Result<Event> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check(
            unsafe { sys::cuEventCreate(&mut handle, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) },
            "cuEventCreate",
        )?;
        Ok(Event { device: device.clone(), handle })
    }

    /// Places the mark after all that is queued on `stream`.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are valid.
        check(unsafe { sys::cuEventRecord(self.handle, stream.handle) }, "cuEventRecord")
    }

    /// Waits until the mark is reached.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is valid.
        check(unsafe { sys::cuEventSynchronize(self.handle) }, "cuEventSynchronize")
    }

    /// Microseconds from `start` to this mark, both reached.
    pub fn microseconds_since(&self, start: &Event) -> Result<f64> {
        self.device.bind()?;
        let mut milliseconds = 0.0f32;
        // SAFETY: both handles are valid; writes one float.
        check(unsafe { sys::cuEventElapsedTime(&mut milliseconds, start.handle, self.handle) }, "cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        if let Some(_relaxed) = self.device.releasing() {
            unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
