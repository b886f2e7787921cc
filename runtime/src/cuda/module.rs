//! Machine code on the device.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};

use super::assemble::{AssembleOptions, Settings, assemble, terminated};
use super::cache::CubinCache;
use super::device::Device;
use super::driver::{CUresult, check, check_with};
use crate::{Error, Result};

/// A loaded module; unloaded when its last function is gone.
#[derive(Debug)]
pub struct Module {
    device: Arc<Device>,
    handle: sys::CUmodule,
    /// What it is a part of, which unloads it.
    library: Option<sys::CUlibrary>,
}

// SAFETY: the driver's handles may be used on any thread.
unsafe impl Send for Module {}
// SAFETY: the driver locks what threads share.
unsafe impl Sync for Module {}

impl Module {
    /// Loads machine code made by [`assemble`].
    pub fn load(device: &Arc<Device>, cubin: &[u8]) -> Result<Arc<Module>> {
        // The driver takes an address alone and reads on by what the file says; this much can be checked.
        if cubin.len() < 64 || !cubin.starts_with(b"\x7fELF") {
            return Err(Error::Invalid(format!("{} bytes that are no cubin (an ELF file)", cubin.len())));
        }
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the bytes are an ELF file and outlive the call, which copies them.
        check(unsafe { sys::cuModuleLoadData(&mut handle, cubin.as_ptr().cast()) }, "cuModuleLoadData")?;
        Ok(Arc::new(Module { device: device.clone(), handle, library: None }))
    }

    /// Assembles PTX as a library, which does not wait for others that are being assembled, and loads it. The assembler's log is not kept.
    pub fn library(device: &Arc<Device>, ptx: &str) -> Result<Arc<Module>> {
        let text = terminated(ptx)?;
        device.bind()?;
        let (mut library, mut handle, none) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the text is terminated and is read in the call; there are no options.
        let status = unsafe {
            sys::cuLibraryLoadData(
                &mut library,
                text.as_ptr().cast(),
                none,
                none.cast(),
                0,
                none.cast(),
                none.cast(),
                0,
            )
        };
        check(status, "cuLibraryLoadData(PTX)")?;
        // SAFETY: writes one handle, of a library that is loaded.
        let status = unsafe { sys::cuLibraryGetModule(&mut handle, library) };
        let module = Module { device: device.clone(), handle, library: Some(library) };
        check(status, "cuLibraryGetModule")?;
        Ok(Arc::new(module))
    }

    /// Assembles PTX as a whole program, or takes its code from the driver's cache, and loads it.
    ///
    /// # Errors
    /// The assembler's, with its log.
    pub fn whole(device: &Arc<Device>, ptx: &str, options: &AssembleOptions) -> Result<Arc<Module>> {
        let (text, mut settings) = (terminated(ptx)?, Settings::new(options));
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        let Settings { keys, values, .. } = &mut settings;
        // SAFETY: the text is terminated; keys and values have the length that is passed, and live with the logs until the call has returned.
        let status = unsafe {
            let (keys, values, count) = (keys.as_mut_ptr(), values.as_mut_ptr(), keys.len() as u32);
            sys::cuModuleLoadDataEx(&mut handle, text.as_ptr().cast(), count, keys, values)
        };
        settings.check(status, "cuModuleLoadDataEx(PTX)")?;
        Ok(Arc::new(Module { device: device.clone(), handle, library: None }))
    }

    /// Assembles PTX, or takes its code from `cache`, and loads it.
    pub fn from_ptx(
        device: &Arc<Device>,
        ptx: &str,
        options: &AssembleOptions,
        cache: Option<&CubinCache>,
    ) -> Result<Arc<Module>> {
        Module::load(device, &assemble(device, ptx, options, cache)?.bytes)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A kernel by its entry's name.
    pub fn function(self: &Arc<Module>, name: &str) -> Result<Function> {
        let c_name =
            CString::new(name).map_err(|_| Error::Invalid(format!("a kernel's name with a zero byte: {name:?}")))?;
        self.device.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the name is terminated; writes one handle.
        let status = unsafe { sys::cuModuleGetFunction(&mut handle, self.handle, c_name.as_ptr()) };
        check_with(status, || format!("cuModuleGetFunction(`{name}`)"))?;
        Ok(Function(Arc::new(Loaded {
            info: FunctionInfo::query(handle)?,
            params: parameter_sizes(handle)?,
            module: self.clone(),
            handle,
            name: name.to_string(),
            dynamic_shared: AtomicU32::new(48 << 10),
            large_cluster: AtomicU32::new(0),
        })))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by one of the functions above, unloaded once, with no function left.
        if let Some(_relaxed) = self.device.releasing() {
            unsafe {
                match self.library {
                    Some(library) => sys::cuLibraryUnload(library),
                    None => sys::cuModuleUnload(self.handle),
                }
            };
        }
    }
}

/// What a kernel takes. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread: arrays that are indexed, and spilled registers.
    pub local_memory: u32,
    /// Shared memory that the code declares with a size.
    pub static_shared_memory: u32,
    /// Most threads of a block.
    pub max_threads_per_block: u32,
}

impl FunctionInfo {
    /// Also makes a driver that loads lazily load the code now, rather than in the middle of a capture.
    fn query(function: sys::CUfunction) -> Result<FunctionInfo> {
        let get = |attribute| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let status = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) };
            check_with(status, || format!("cuFuncGetAttribute({attribute:?})"))?;
            Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
        };
        Ok(FunctionInfo {
            registers: get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_memory: get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared_memory: get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads_per_block: get(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }
}

/// The size of each parameter in bytes. The driver counts them from CUDA 13.2 on; before, one asks until the index is
/// invalid, an expected error that `compute-sanitizer` reports unless told `--report-api-errors no`.
fn parameter_sizes(function: sys::CUfunction) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: writes two integers. An index past the last is an invalid value.
        match unsafe { sys::cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) } {
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            status => check(status, "cuFuncGetParamInfo")?,
        }
        sizes.push(size);
    }
}

/// A kernel; clones are the same one.
#[derive(Clone, Debug)]
pub struct Function(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    module: Arc<Module>,
    handle: sys::CUfunction,
    name: String,
    info: FunctionInfo,
    params: Vec<usize>,
    /// The dynamic shared memory that launches may ask for so far; 48 KiB need no attribute.
    dynamic_shared: AtomicU32,
    /// 1 once clusters of more than 8 blocks are allowed.
    large_cluster: AtomicU32,
}

// SAFETY: the driver's handles may be used on any thread.
unsafe impl Send for Loaded {}
// SAFETY: the driver locks what threads share.
unsafe impl Sync for Loaded {}

impl Function {
    /// The entry's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.0.module
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.module.device
    }

    /// What the kernel takes.
    pub fn info(&self) -> FunctionInfo {
        self.0.info
    }

    /// The size of each parameter in bytes.
    pub fn parameter_sizes(&self) -> &[usize] {
        &self.0.params
    }

    pub(super) fn handle(&self) -> sys::CUfunction {
        self.0.handle
    }

    /// Leaves the first-level cache to the blocks, of `threads` threads with `dynamic_shared` bytes of shared memory: no more of it becomes shared memory than
    /// as many of them take as a multiprocessor holds. Else it stays as small as the kernel before left it, when the blocks come while that one's still run.
    pub fn prefer_l1(&self, threads: u32, dynamic_shared: u32) -> Result<()> {
        self.device().bind()?;
        let mut blocks = 0;
        // SAFETY: writes one integer; the handle is valid.
        let status = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.0.handle,
                threads as i32,
                dynamic_shared as usize,
            )
        };
        check(status, "cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        let device = self.device().info();
        let block = self.0.info.static_shared_memory + dynamic_shared + device.reserved_shared_memory_per_block;
        let all = u64::from(block) * blocks.max(1) as u64;
        let percent = (100 * all).div_ceil(u64::from(device.shared_memory_per_multiprocessor).max(1)).min(100);
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the handle is valid; the driver checks the value.
        let status = unsafe { sys::cuFuncSetAttribute(self.0.handle, attribute, percent as i32) };
        check_with(status, || format!("cuFuncSetAttribute(`{}`, {attribute:?}, {percent})", self.0.name))
    }

    /// Allows launches with `dynamic_shared` bytes of shared memory and clusters of `cluster` blocks.
    pub(super) fn allow(&self, dynamic_shared: u32, cluster: u32) -> Result<()> {
        let set = |allowed: &AtomicU32, attribute, value: u32| {
            if allowed.load(Ordering::Relaxed) >= value {
                return Ok(());
            }
            // SAFETY: the handle is valid; the driver checks the value.
            let status = unsafe { sys::cuFuncSetAttribute(self.0.handle, attribute, value as i32) };
            check_with(status, || format!("cuFuncSetAttribute(`{}`, {attribute:?}, {value})", self.0.name))?;
            allowed.fetch_max(value, Ordering::Relaxed);
            Ok(())
        };
        set(&self.0.dynamic_shared, Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared)?;
        let large = u32::from(cluster > 8);
        set(&self.0.large_cluster, Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, large)
    }
}
