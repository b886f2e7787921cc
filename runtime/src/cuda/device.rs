//! Devices and what they have.

use std::ffi::CStr;
use std::sync::{Arc, Once};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::driver::{CUresult, check, check_with, init};
use crate::{Error, Result};

/// What a device has. Sizes are in bytes, rates in kHz.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The product's name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Most threads of a block.
    pub max_threads_per_block: u32,
    /// Most threads resident on a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Registers of 32 bits on a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Most shared memory of a block, when it opts in.
    pub shared_memory_per_block: u32,
    /// Shared memory of a multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// Shared memory that the system takes of each block.
    pub reserved_shared_memory_per_block: u32,
    /// Second-level cache.
    pub l2_cache: u32,
    /// Device memory.
    pub memory: u64,
    /// Width of the memory bus in bits.
    pub memory_bus_width: u32,
    /// Rate of the memory clock.
    pub memory_clock: u32,
    /// Rate of the multiprocessors' clock.
    pub clock: u32,
}

impl DeviceInfo {
    /// The architecture's name for PTX, such as `sm_90`; code for `sm_90a` runs where this is `sm_90`.
    pub fn arch(&self) -> String {
        let (major, minor) = self.compute_capability;
        // From Hopper on, the matrix units have instructions of that architecture alone.
        let specific = if major >= 9 { "a" } else { "" };
        format!("sm_{major}{minor}{specific}")
    }
}

/// A device with its primary context, which is shared by every user of the process and released when dropped.
#[derive(Debug)]
pub struct Device {
    ordinal: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    info: DeviceInfo,
    /// Done when the driver's pool has been told what to keep.
    pool: Once,
}

/// Bytes that the driver's pool keeps when a stream is waited for. By itself it gives all back, and the next run pays for new memory.
const POOLED: u64 = 256 << 20;

// SAFETY: the driver's handles may be used on any thread once the context is current there, which `bind` ensures.
unsafe impl Send for Device {}
// SAFETY: the driver locks what threads share.
unsafe impl Sync for Device {}

impl Device {
    /// Lets this thread allocate and load while another one captures a stream, until the value is dropped: it takes no part in the capture.
    pub fn relaxed(&self) -> Relaxed {
        Relaxed::default()
    }

    /// Lets this thread give something back, as long as the value lives; `None` where there is no context any more. What holds it may be dropped at any time, in the
    /// middle of a capture too (Python collects garbage then), which is not to fail for it.
    pub(super) fn releasing(&self) -> Option<Relaxed> {
        self.bind().is_ok().then(Relaxed::default)
    }

    /// The number of devices; fails with [`Error::NoGpu`] where there is no driver.
    pub fn count() -> Result<usize> {
        init()?;
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { sys::cuDeviceGetCount(&mut count) }, "cuDeviceGetCount")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens a device by its number. Fails with [`Error::NoGpu`] where there is no driver or no such device.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        let count = Device::count()?;
        if ordinal >= count {
            return Err(Error::NoGpu(format!("device {ordinal} was asked for, and there are {count}")));
        }
        let (mut handle, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the ordinal is one of the devices; each call writes one handle.
        unsafe {
            check(sys::cuDeviceGet(&mut handle, ordinal as i32), "cuDeviceGet")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, handle), "cuDevicePrimaryCtxRetain")?;
        }
        // Held by the device from here on, so that an error below releases the context.
        let mut device = Device { ordinal, handle, context, info: DeviceInfo::default(), pool: Once::new() };
        device.info = device.query()?;
        device.bind()?;
        Ok(Arc::new(device))
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// What the device has.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, "cuMemGetInfo")?;
        Ok((free, total))
    }

    /// Waits for all work on the device. Errors of earlier launches appear here.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: no preconditions.
        check(unsafe { sys::cuCtxSynchronize() }, "cuCtxSynchronize")
    }

    /// Makes the context current on this thread; what needs that here does it itself. For foreign libraries.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained while `self` lives.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
    }

    /// Whether an address is of this device's memory, or of memory that every device reaches.
    pub fn reaches(&self, address: u64) -> Result<bool> {
        self.bind()?;
        let mut ordinal = -1i32;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: writes one integer; an address that the driver does not know is an error, not an access.
        let status = unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address) };
        Ok(status == sys::CUresult::CUDA_SUCCESS && usize::try_from(ordinal) == Ok(self.ordinal))
    }

    /// Has the driver's pool keep some memory between runs, unless somebody told it what to keep.
    pub(super) fn keep_pooled(&self) {
        self.pool.call_once(|| {
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let (mut pool, mut kept, mut wanted) = (std::ptr::null_mut(), 0u64, POOLED);
            // SAFETY: each call reads or writes one handle or one number. Where one fails, memory comes as before.
            unsafe {
                let found = sys::cuDeviceGetDefaultMemPool(&mut pool, self.handle) == CUresult::CUDA_SUCCESS
                    && sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut kept).cast()) == CUresult::CUDA_SUCCESS;
                if found && kept == 0 {
                    sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut wanted).cast());
                }
            }
        });
    }

    pub(super) fn context(&self) -> sys::CUcontext {
        self.context
    }

    fn query(&self) -> Result<DeviceInfo> {
        let mut name = [0; 256];
        let mut memory = 0;
        // SAFETY: the buffer's length is passed; the second call writes one integer.
        unsafe {
            check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, self.handle), "cuDeviceGetName")?;
            check(sys::cuDeviceTotalMem_v2(&mut memory, self.handle), "cuDeviceTotalMem")?;
        }
        use Attribute::*;
        Ok(DeviceInfo {
            // SAFETY: the last byte is zero whatever the driver wrote.
            name: unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
            compute_capability: (
                self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: self.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            warp_size: self.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            max_threads_per_block: self.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_threads_per_multiprocessor: self.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            registers_per_multiprocessor: self.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            shared_memory_per_block: self.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_memory_per_multiprocessor: self
                .attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            reserved_shared_memory_per_block: self.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
            l2_cache: self.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            memory: memory as u64,
            memory_bus_width: self.attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            memory_clock: self.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            clock: self.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        })
    }

    fn attribute(&self, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer.
        let status = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.handle) };
        check_with(status, || format!("cuDeviceGetAttribute({attribute:?})"))?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained in `open`. An error could only be reported to no one.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

/// A thread that takes no part in captures of other threads.
pub struct Relaxed(sys::CUstreamCaptureMode);

impl Default for Relaxed {
    fn default() -> Relaxed {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: exchanges the mode of this thread. Without it, what is not allowed is an error of the call that does it.
        _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        Relaxed(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above: the mode that it had.
        _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds with a GPU and without: a device that is not there is an error of one kind, and no panic.
    #[test]
    fn absent_devices_are_errors() {
        let error = Device::open(10_000).unwrap_err();
        assert!(matches!(error, Error::NoGpu(_)), "{error}");
        assert!(error.to_string().starts_with("no CUDA GPU: "), "{error}");
        if let Err(error) = Device::count() {
            assert!(matches!(error, Error::NoGpu(_)), "{error}");
        }
    }
}
