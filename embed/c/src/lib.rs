//! rc's runtime for C: `include/rc.h` says what each function does. A panic never leaves a function: it is `RC_INTERNAL`.

mod allocator;
mod signature;
mod tensor;

use allocator::{Callers, RcAllocator};
use runtime::{Error, LoadOptions, Model, Place};
use signature::{RcSignature, Texts};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor::{OnHost, RcTensor, device_inputs, device_results};

/// `rc_status`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RcStatus {
    Ok = 0,
    Invalid = 1,
    Io = 2,
    Format = 3,
    Misfit = 4,
    Device = 5,
    OutOfMemory = 6,
    Kernel = 7,
    Unsupported = 8,
    Internal = 9,
    Foreign = 10,
}

/// `rc_options`.
#[repr(C)]
pub struct RcOptions {
    entry: *const c_char,
    device: i32,
    allocator: *const RcAllocator,
}

const DEVICE_ANY: i32 = -2;
const DEVICE_CPU: i32 = -1;

/// `rc_model`.
pub struct RcModel {
    model: Model,
    texts: Texts,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a call failed, without a zero byte in it.
fn note(message: &str) {
    let text = CString::new(message.replace('\0', "?")).unwrap_or_default();
    MESSAGE.with(|last| *last.borrow_mut() = text);
}

pub(crate) fn invalid(what: impl Into<String>) -> Error {
    Error::Invalid(what.into())
}

fn status(error: &Error) -> RcStatus {
    match error {
        Error::Io { .. } => RcStatus::Io,
        Error::Format { .. } | Error::Object(_) => RcStatus::Format,
        Error::Misfit { .. } => RcStatus::Misfit,
        Error::Invalid(_) => RcStatus::Invalid,
        Error::OutOfMemory(_) => RcStatus::OutOfMemory,
        Error::Kernel { .. } => RcStatus::Kernel,
        Error::NoGpu(_) | Error::Cuda { .. } => RcStatus::Device,
        Error::Unsupported(_) => RcStatus::Unsupported,
        Error::NotRegistered(_) | Error::Foreign { .. } => RcStatus::Foreign,
    }
}

/// Runs a call, and keeps the message of what went wrong.
fn call(work: impl FnOnce() -> Result<(), Error>) -> RcStatus {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => RcStatus::Ok,
        Ok(Err(error)) => {
            note(&error.to_string());
            status(&error)
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            note(&format!("a mistake in rc: {text}"));
            RcStatus::Internal
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rc_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn rc_error() -> *const c_char {
    MESSAGE.with(|last| last.borrow().as_ptr())
}

/// # Safety
/// `path` is null or a text; `options` is null or valid; `model` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_load(path: *const c_char, options: *const RcOptions, model: *mut *mut RcModel) -> RcStatus {
    call(|| {
        // SAFETY: the caller's, where they are not null.
        let (path, options) = unsafe { (text(path, "path")?, options.as_ref()) };
        let path = path.ok_or_else(|| invalid("path is null"))?;
        if model.is_null() {
            return Err(invalid("model is null"));
        }
        // SAFETY: as above.
        let entry = options.map(|o| unsafe { text(o.entry, "entry") }).transpose()?.flatten();
        let place = match options.map_or(DEVICE_ANY, |o| o.device) {
            DEVICE_ANY => None,
            DEVICE_CPU => Some(Place::Cpu),
            number => {
                Some(Place::Cuda(usize::try_from(number).map_err(|_| invalid(format!("there is no device {number}")))?))
            }
        };
        // SAFETY: as above.
        let allocator = match options.and_then(|o| unsafe { o.allocator.as_ref() }) {
            Some(given) => Some(Arc::new(Callers::new(given)?)),
            None => None,
        };
        let mut loaded = Model::load_with(path, &LoadOptions { entry: entry.map(str::to_string), place })?;
        if let Some(allocator) = allocator {
            loaded = loaded.with_allocator(allocator);
        }
        let texts = Texts::of(loaded.signature());
        // SAFETY: not null, and the caller's to be written to.
        unsafe { *model = Box::into_raw(Box::new(RcModel { model: loaded, texts })) };
        Ok(())
    })
}

/// # Safety
/// `model` is null or from `rc_load`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_free(model: *mut RcModel) {
    if !model.is_null() {
        call(|| {
            // SAFETY: made by `rc_load`, and freed once.
            drop(unsafe { Box::from_raw(model) });
            Ok(())
        });
    }
}

/// # Safety
/// `model` is null or from `rc_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_signature_of(model: *const RcModel) -> *const RcSignature {
    // SAFETY: the caller's, where it is not null.
    unsafe { model.as_ref() }.map_or(std::ptr::null(), |model| model.texts.signature())
}

/// # Safety
/// `model` is null or from `rc_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_device_of(model: *const RcModel) -> i32 {
    // SAFETY: the caller's, where it is not null.
    match unsafe { model.as_ref() }.map(|model| model.model.place()) {
        None => DEVICE_ANY,
        Some(Place::Cpu) => DEVICE_CPU,
        Some(Place::Cuda(number)) => number as i32,
    }
}

/// # Safety
/// `model` is null or from `rc_load`; `inputs` is null or has `input_count` tensors, whose shapes and strides have as many sizes as their rank;
/// `shape` is null or takes as many sizes as the result's rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_result_shape(
    model: *const RcModel,
    inputs: *const RcTensor,
    input_count: usize,
    result: usize,
    shape: *mut i64,
) -> RcStatus {
    call(|| {
        // SAFETY: as this function's.
        let model = unsafe { given(model)? };
        model.check_inputs(input_count)?;
        // SAFETY: as above.
        let inputs = unsafe { OnHost::inputs(inputs, input_count)? };
        let sizes = model.model.result_shape(result, &inputs)?;
        if shape.is_null() && !sizes.is_empty() {
            return Err(invalid("shape is null"));
        }
        for (i, size) in sizes.into_iter().enumerate() {
            // SAFETY: not null, and the caller's for the result's rank.
            unsafe { shape.add(i).write(size as i64) };
        }
        Ok(())
    })
}

/// # Safety
/// `model` is null or from `rc_load`; `inputs` and `results` are null or have as many tensors as their counts say, whose shapes and strides have as
/// many sizes as their rank, and whose data is null or valid for their elements, for writing where they are results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_run(
    model: *const RcModel,
    inputs: *const RcTensor,
    input_count: usize,
    results: *const RcTensor,
    result_count: usize,
) -> RcStatus {
    call(|| {
        // SAFETY: as this function's.
        let model = unsafe { given(model)? };
        model.check_counts(input_count, result_count)?;
        // SAFETY: as above; the tensors are gone when it returns.
        let (inputs, results) =
            unsafe { (OnHost::inputs(inputs, input_count)?, OnHost::results(results, result_count)?) };
        // SAFETY: as above; the runtime checks addresses and shapes.
        unsafe { model.model.run_in(&inputs, &results) }
    })
}

/// # Safety
/// `model` is null or from `rc_load`; `inputs` and `results` are null or have as many tensors as their counts say, whose shapes and strides have as
/// many sizes as their rank, and whose data is valid, until the stream has done the work, for writing where they are results; `stream` is one of the
/// model's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_run_on(
    model: *const RcModel,
    inputs: *const RcTensor,
    input_count: usize,
    results: *const RcTensor,
    result_count: usize,
    stream: *mut c_void,
) -> RcStatus {
    call(|| {
        // SAFETY: as this function's.
        let model = unsafe { given(model)? };
        model.check_counts(input_count, result_count)?;
        // SAFETY: as above.
        let (inputs, results) =
            unsafe { (device_inputs(inputs, input_count)?, device_results(results, result_count)?) };
        // SAFETY: as above; the runtime checks addresses and shapes.
        unsafe { model.model.run_on(&inputs, &results, stream) }
    })
}

impl RcModel {
    /// That there are as many arguments as the function takes, before any is read: a caller that is wrong about that may have fewer than it says.
    fn check_inputs(&self, count: usize) -> Result<(), Error> {
        match self.model.signature().inputs.len() {
            takes if takes == count => Ok(()),
            takes => Err(invalid(format!("the function takes {takes} arguments, {count} were given"))),
        }
    }

    /// As [`RcModel::check_inputs`], for results too.
    fn check_counts(&self, inputs: usize, results: usize) -> Result<(), Error> {
        self.check_inputs(inputs)?;
        match self.model.signature().outputs.len() {
            has if has == results => Ok(()),
            has => Err(invalid(format!("the function has {has} results, {results} were given"))),
        }
    }
}

/// # Safety
/// `model` is null or from `rc_load`.
unsafe fn given<'a>(model: *const RcModel) -> Result<&'a RcModel, Error> {
    // SAFETY: the caller's, where it is not null.
    unsafe { model.as_ref() }.ok_or_else(|| invalid("model is null"))
}

/// # Safety
/// `text` is null or a text that ends with zero.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and a text.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| invalid(format!("{what} is not UTF-8")))
}
