//! Memory on the device, and memory of the host that the device reaches.

use std::sync::Arc;

use cudarc::driver::sys;

use super::device::Device;
use super::driver::{CUresult, check, check_with};
use super::stream::Stream;
use crate::{Allocator, Error, Result};
use std::ffi::c_void;

/// Bytes of device memory, 256-byte aligned; freed when dropped, after the work that was queued before. A program's
/// arena is one buffer, and its tensors are offsets into it.
#[derive(Debug)]
pub struct Buffer {
    device: Arc<Device>,
    address: u64,
    size: usize,
    owner: Owner,
}

/// Whom memory goes back to.
enum Owner {
    Driver,
    /// The driver's pool, for what the stream does later.
    Pool(sys::CUstream),
    Caller(Arc<dyn Allocator>, *mut c_void),
}

// SAFETY: a stream's handle may be used on any thread, and the caller's allocator says that it may be.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Owner::Driver => "the driver",
            Owner::Pool(_) => "the driver's pool",
            Owner::Caller(..) => "the caller",
        })
    }
}

/// What addresses of a program's memory are multiples of.
const ALIGNMENT: usize = 256;

impl Buffer {
    /// Memory that what is queued on the stream may use while the buffer lives: the caller's, where an allocator is given, else the driver's. The next
    /// to get it may be what is queued on that stream after the buffer is dropped.
    pub fn on_stream(stream: &Stream, size: usize, allocator: Option<&Arc<dyn Allocator>>) -> Result<Buffer> {
        let device = stream.device();
        if let Some(allocator) = allocator {
            return Buffer::of_caller(device, size, allocator, stream.raw());
        }
        device.bind()?;
        device.keep_pooled();
        let mut address = 0;
        // SAFETY: writes one address.
        let status = unsafe { sys::cuMemAllocAsync(&mut address, size.max(1), stream.handle()) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory(format!("{size} bytes on {}", device.info().name)));
        }
        check_with(status, || format!("cuMemAllocAsync({size})"))?;
        Ok(Buffer { device: device.clone(), address, size, owner: Owner::Pool(stream.handle()) })
    }

    /// Memory to be kept, of the caller where an allocator is given.
    pub fn kept(device: &Arc<Device>, size: usize, allocator: Option<&Arc<dyn Allocator>>) -> Result<Buffer> {
        match allocator {
            Some(allocator) => Buffer::of_caller(device, size, allocator, std::ptr::null_mut()),
            None => Buffer::new(device, size),
        }
    }

    fn of_caller(
        device: &Arc<Device>,
        size: usize,
        allocator: &Arc<dyn Allocator>,
        stream: *mut c_void,
    ) -> Result<Buffer> {
        let address = allocator.allocate(size.max(1), ALIGNMENT, stream) as u64;
        if address == 0 {
            return Err(Error::OutOfMemory(format!("the caller's allocator has not {size} bytes")));
        }
        let owner = Owner::Caller(allocator.clone(), stream);
        let buffer = Buffer { device: device.clone(), address, size, owner };
        if !address.is_multiple_of(ALIGNMENT as u64) {
            let what = format!("the caller's allocator gave {address:#x}, which is no multiple of {ALIGNMENT}");
            return Err(Error::Invalid(what));
        }
        Ok(buffer)
    }

    /// Allocates `size` bytes, uninitialized. Fails with [`Error::OutOfMemory`] where the device has not as much.
    pub fn new(device: &Arc<Device>, size: usize) -> Result<Buffer> {
        device.bind()?;
        let mut address = 0;
        // The driver refuses to allocate nothing.
        // SAFETY: writes one address.
        let status = unsafe { sys::cuMemAlloc_v2(&mut address, size.max(1)) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = device.memory()?;
            let message = format!("{size} bytes on {}; {free} of {total} are free", device.info().name);
            return Err(Error::OutOfMemory(message));
        }
        check_with(status, || format!("cuMemAlloc({size})"))?;
        Ok(Buffer { device: device.clone(), address, size, owner: Owner::Driver })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The device address of a part, which must lie inside.
    pub fn slice(&self, offset: usize, size: usize) -> Result<u64> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok(self.address + offset as u64),
            _ => Err(Error::Invalid(format!("{size} bytes at {offset} of a buffer of {}", self.size))),
        }
    }

    /// Copies from the host and waits until that is done.
    pub fn upload(&self, stream: &Stream, offset: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the bytes are borrowed until the copy is over.
        unsafe { self.upload_async(stream, offset, bytes)? };
        stream.synchronize()
    }

    /// Copies to the host and waits until that is done.
    pub fn download(&self, stream: &Stream, offset: usize, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.download_async(stream, offset, bytes)? };
        stream.synchronize()
    }

    /// Queues a copy from the host. It overlaps with other work only from a [`PinnedBuffer`].
    ///
    /// # Safety
    ///
    /// The bytes stay valid and unchanged until the stream has done the copy.
    pub unsafe fn upload_async(&self, stream: &Stream, offset: usize, bytes: &[u8]) -> Result<()> {
        let target = self.slice(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: `slice` checked the target, and the caller vouches for the bytes.
        check(
            unsafe { sys::cuMemcpyHtoDAsync_v2(target, bytes.as_ptr().cast(), bytes.len(), stream.handle()) },
            "cuMemcpyHtoDAsync",
        )
    }

    /// Queues a copy to the host. It overlaps with other work only to a [`PinnedBuffer`].
    ///
    /// # Safety
    ///
    /// The bytes stay valid and untouched until the stream has done the copy.
    pub unsafe fn download_async(&self, stream: &Stream, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let source = self.slice(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: `slice` checked the source, and the caller vouches for the bytes.
        check(
            unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), source, bytes.len(), stream.handle()) },
            "cuMemcpyDtoHAsync",
        )
    }

    /// Queues a copy from another buffer, or from another place in this one that does not overlap.
    pub fn copy_from(&self, stream: &Stream, offset: usize, from: &Buffer, start: usize, size: usize) -> Result<()> {
        let (target, source) = (self.slice(offset, size)?, from.slice(start, size)?);
        if size == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: both ranges were checked.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, size, stream.handle()) }, "cuMemcpyDtoDAsync")
    }

    /// Queues filling a part with a byte.
    pub fn fill(&self, stream: &Stream, offset: usize, size: usize, byte: u8) -> Result<()> {
        let target = self.slice(offset, size)?;
        if size == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range was checked.
        check(unsafe { sys::cuMemsetD8Async(target, byte, size, stream.handle()) }, "cuMemsetD8Async")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Caller(allocator, stream) = &self.owner {
            return allocator.release(self.address as *mut u8, self.size.max(1), *stream);
        }
        let Some(_relaxed) = self.device.releasing() else { return };
        // SAFETY: allocated in `new`, freed once. The driver waits for work that uses it; a stream of its own is kept by its owner while the buffer lives.
        _ = match &self.owner {
            Owner::Pool(stream) => unsafe { sys::cuMemFreeAsync(self.address, *stream) },
            _ => unsafe { sys::cuMemFree_v2(self.address) },
        };
    }
}

/// Page-locked host memory, which copies to and from the device reach without the processor.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Arc<Device>,
    start: *mut u8,
    size: usize,
}

// SAFETY: the buffer owns its memory, and mutation needs `&mut`.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `size` bytes of zeros.
    pub fn new(device: &Arc<Device>, size: usize) -> Result<PinnedBuffer> {
        device.bind()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: writes one address.
        let status = unsafe { sys::cuMemHostAlloc(&mut start, size.max(1), 0) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory(format!("{size} bytes of page-locked memory")));
        }
        check_with(status, || format!("cuMemHostAlloc({size})"))?;
        // SAFETY: allocated with this size just now.
        unsafe { start.cast::<u8>().write_bytes(0, size) };
        Ok(PinnedBuffer { device: device.clone(), start: start.cast(), size })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: valid and initialized for `size` bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.size) }
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        if let Some(_relaxed) = self.device.releasing() {
            unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}
