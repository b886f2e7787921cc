//! Functions that programs call and rc does not have: registered by name, for the whole process.
//!
//! ```
//! use rc_runtime::foreign::{self, Call};
//! foreign::register("mine.double", |call: &Call| {
//!     // SAFETY: the program gives one f32 argument and one result of its shape, on the CPU.
//!     let (x, y) = unsafe { (call.args[0].elements::<f32>(), call.results[0].elements_mut::<f32>()) };
//!     x.iter().zip(y).for_each(|(x, y)| *y = 2.0 * x);
//!     Ok(())
//! });
//! ```

use crate::tensor::{DType, Element};
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, RwLock};

/// Why a function failed: its own error, which the call of the program ends with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A registered function.
pub type Function = Arc<dyn Fn(&Call) -> Result<(), Failure> + Send + Sync>;

/// A call of a function. The memory is the program's, and the function's for the time of the call; on a GPU, until the work is done that it queued on
/// the stream.
#[derive(Debug)]
pub struct Call<'a> {
    /// The name that the program calls it by.
    pub function: &'a str,
    pub config: &'a str,
    pub sizes: &'a [i64],
    pub args: &'a [Buffer],
    pub results: &'a [Buffer],
    pub on: On,
}

/// Where a call's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Cpu,
    /// The GPU of this number; work is queued on the stream, a `CUstream`.
    Cuda {
        device: usize,
        stream: *mut c_void,
    },
}

/// Row-major memory on the program's device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buffer {
    pub address: *mut u8,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl Buffer {
    fn count<T: Element>(&self) -> usize {
        assert!(self.dtype == T::DTYPE, "elements of type {} are not {}", self.dtype, T::DTYPE);
        self.shape.iter().product()
    }

    /// The elements of an argument.
    ///
    /// # Panics
    /// If they are of another type.
    ///
    /// # Safety
    /// The memory is the CPU's, and nobody writes to it while the elements are used.
    pub unsafe fn elements<T: Element>(&self) -> &[T] {
        match self.count::<T>() {
            0 => &[],
            // SAFETY: a buffer has the elements of its shape, aligned; the caller vouches for the rest.
            count => unsafe { std::slice::from_raw_parts(self.address.cast(), count) },
        }
    }

    /// The elements of a result.
    ///
    /// # Panics
    /// As [`Buffer::elements`].
    ///
    /// # Safety
    /// The memory is the CPU's, and nobody else uses it meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn elements_mut<T: Element>(&self) -> &mut [T] {
        match self.count::<T>() {
            0 => &mut [],
            // SAFETY: as above.
            count => unsafe { std::slice::from_raw_parts_mut(self.address.cast(), count) },
        }
    }
}

static FUNCTIONS: LazyLock<RwLock<FxHashMap<String, Function>>> = LazyLock::new(RwLock::default);

/// Registers a function; gives the one that had the name before. Programs that are loaded already keep that. A name that ends before a `:` stands for all that
/// begin with it and the `:`.
pub fn register(
    name: impl Into<String>,
    function: impl Fn(&Call) -> Result<(), Failure> + Send + Sync + 'static,
) -> Option<Function> {
    let mut functions = FUNCTIONS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    functions.insert(name.into(), Arc::new(function))
}

/// The function of a name, or the one for all names that begin alike.
///
/// # Errors
/// [`Error::NotRegistered`].
pub fn find(name: &str) -> Result<Function> {
    let functions = FUNCTIONS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let family = || functions.get(name.split_once(':')?.0);
    functions.get(name).or_else(family).cloned().ok_or_else(|| Error::NotRegistered(name.to_string()))
}

/// Calls a function. One that panics has failed.
pub(crate) fn call(function: &Function, call: &Call) -> Result<()> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| function(call)));
    let done = done.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", why.unwrap_or("without a message")).into())
    });
    done.map_err(|why| Error::Foreign { function: call.function.to_string(), why })
}
