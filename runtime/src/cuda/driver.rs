//! Calls of the driver and their errors.

use std::ffi::CStr;
use std::os::raw::c_char;
use std::sync::OnceLock;

use cudarc::driver::sys;
pub(super) use sys::CUresult;

use crate::{Error, Result};

/// The oldest driver that has every function used here, as `cuDriverGetVersion` counts.
const OLDEST: i32 = 12040;

/// The newest functions used, as a check that the driver is what it says. `cudarc` panics on a missing one.
const NEEDED: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuTensorMapEncodeTiled",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddDependencies_v2",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphAddNode_v2",
    "cuGraphConditionalHandleCreate",
    "cuFuncGetParamInfo",
    "cuLibraryLoadData",
    "cuLibraryGetModule",
    "cuLibraryUnload",
];

/// Finds and initializes the driver, once; fails with [`Error::NoGpu`].
pub(super) fn init() -> Result<()> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(try_init).clone().map_err(Error::NoGpu)
}

fn try_init() -> Result<(), String> {
    // SAFETY: opening the library runs its own initializers only.
    if !unsafe { sys::is_culib_present() } {
        return Err("the driver (libcuda.so) is not installed".into());
    }
    for name in NEEDED {
        // SAFETY: the symbol is looked up, not called.
        if unsafe { sys::culib().get::<*const ()>(name.as_bytes()) }.is_err() {
            return Err(format!("the driver lacks {name}; install one for CUDA 12.4 or later"));
        }
    }
    // SAFETY: the first call of the driver, with the only flags there are.
    let status = unsafe { sys::cuInit(0) };
    if status != CUresult::CUDA_SUCCESS {
        let (name, message) = describe(status);
        return Err(format!("cuInit: {name}: {message}"));
    }
    let mut version = 0;
    // SAFETY: writes one integer.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    if status != CUresult::CUDA_SUCCESS || version < OLDEST {
        let found = format!("{}.{}", version / 1000, version % 1000 / 10);
        return Err(format!("the driver is for CUDA {found}, and 12.4 or later is needed"));
    }
    Ok(())
}

/// The CUDA version that the driver supports, such as 13000 for 13.0.
pub(super) fn version() -> Result<i32> {
    init()?;
    let mut version = 0;
    // SAFETY: writes one integer.
    check(unsafe { sys::cuDriverGetVersion(&mut version) }, "cuDriverGetVersion")?;
    Ok(version)
}

/// Turns a status into a result; `call` is the function's name.
pub(super) fn check(status: CUresult, call: &str) -> Result<()> {
    check_with(status, || call.to_string())
}

/// As [`check`], with a description of the call that is made only where it failed.
pub(super) fn check_with(status: CUresult, call: impl FnOnce() -> String) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (name, message) = describe(status);
    Err(Error::Cuda { call: call(), name, message })
}

/// The driver's name and description of a status.
fn describe(status: CUresult) -> (String, String) {
    let text = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a constant string, or leaves null.
        unsafe {
            let known = get(status, &mut text) == CUresult::CUDA_SUCCESS && !text.is_null();
            known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", status as u32));
    (name, text(sys::cuGetErrorString).unwrap_or_else(|| "no description".into()))
}
