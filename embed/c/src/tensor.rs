//! The caller's tensors, checked.

use crate::invalid;
use runtime::{DType, DeviceTensor, Error, HostTensor, Tensors};
use std::ffi::c_void;

/// `rc_tensor`. The dtype is a number, since a caller may give any.
#[repr(C)]
pub struct RcTensor {
    data: *mut c_void,
    shape: *const i64,
    strides: *const i64,
    rank: i32,
    dtype: i32,
}

/// The dtypes, in the order of `rc_dtype`.
pub const DTYPES: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::Bool,
    DType::F8E4M3FN,
    DType::F8E5M2,
];

/// More dimensions than any function has: a rank beyond it is a mistake.
const MOST_DIMENSIONS: i32 = 64;

/// A tensor of a call, as messages name it.
#[derive(Clone, Copy)]
enum What {
    Argument(usize),
    Result(usize),
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Argument(i) => write!(f, "argument {i}"),
            What::Result(i) => write!(f, "result {i}"),
        }
    }
}

// A shape's sizes are read where they are.
const _: () = assert!(size_of::<usize>() == size_of::<i64>());

impl RcTensor {
    /// # Errors
    /// A dtype, rank, shape or strides that no tensor of rc's has.
    ///
    /// # Safety
    /// Shape and strides are null or have `rank` sizes.
    unsafe fn check(&self, what: What) -> Result<(), Error> {
        let dtype = usize::try_from(self.dtype).ok().and_then(|i| DTYPES.get(i));
        dtype.ok_or_else(|| invalid(format!("{what} has the dtype {}, which there is not", self.dtype)))?;
        if !(0..=MOST_DIMENSIONS).contains(&self.rank) {
            return Err(invalid(format!("{what} has the rank {}", self.rank)));
        }
        if self.rank > 0 && self.shape.is_null() {
            return Err(invalid(format!("{what} has no shape: it is null")));
        }
        // SAFETY: not null where they are read, and of `rank` sizes.
        let sizes = |start: *const i64| -> &[i64] {
            if self.rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, self.rank as usize) } }
        };
        let shape = sizes(self.shape);
        if shape.iter().any(|&n| n < 0) {
            return Err(invalid(format!("{what} has the shape {shape:?}")));
        }
        if !self.strides.is_null() && !is_dense(shape, sizes(self.strides)) {
            let strides = sizes(self.strides);
            return Err(invalid(format!("{what} has the strides {strides:?}, and rc takes dense rows: copy it first")));
        }
        Ok(())
    }

    fn dtype(&self) -> DType {
        DTYPES[self.dtype as usize]
    }

    /// The shape of a tensor that was checked.
    fn shape(&self) -> &[usize] {
        match self.rank {
            0 => &[],
            // SAFETY: not null, of `rank` sizes, none of which is negative.
            rank => unsafe { std::slice::from_raw_parts(self.shape.cast(), rank as usize) },
        }
    }
}

fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 && stride != expected {
            return shape.contains(&0);
        }
        expected = expected.saturating_mul(size);
    }
    true
}

/// # Safety
/// `start` is null or has `count` tensors.
unsafe fn all<'a>(start: *const RcTensor, count: usize, what: &str) -> Result<&'a [RcTensor], Error> {
    match (start.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid(format!("{what} is null, and its count is {count}"))),
        // SAFETY: not null, and the caller's.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(start, count) }),
    }
}

/// A call's tensors in the host's memory, checked but for what the function asks of them.
pub struct OnHost<'a>(&'a [RcTensor]);

impl OnHost<'_> {
    /// Arguments.
    ///
    /// # Safety
    /// `start` is null or has `count` tensors, whose shapes and strides have as many sizes as their rank, and whose data is null or valid for their
    /// elements, all as long as the value is used.
    pub unsafe fn inputs(start: *const RcTensor, count: usize) -> Result<Self, Error> {
        // SAFETY: the caller's.
        Ok(OnHost(unsafe { checked(start, count, "inputs", What::Argument) }?))
    }

    /// Results.
    ///
    /// # Safety
    /// As [`OnHost::inputs`].
    pub unsafe fn results(start: *const RcTensor, count: usize) -> Result<Self, Error> {
        // SAFETY: the caller's.
        Ok(OnHost(unsafe { checked(start, count, "results", What::Result) }?))
    }
}

impl Tensors for OnHost<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn tensor(&self, i: usize) -> HostTensor<'_> {
        let tensor = &self.0[i];
        // SAFETY: the caller's, who made this value.
        unsafe { HostTensor::new(tensor.dtype(), tensor.shape(), tensor.data.cast()) }
    }
}

/// # Safety
/// `start` is null or has `count` tensors, whose shapes and strides have as many sizes as their rank.
unsafe fn checked<'a>(
    start: *const RcTensor,
    count: usize,
    list: &str,
    what: fn(usize) -> What,
) -> Result<&'a [RcTensor], Error> {
    // SAFETY: the caller's.
    let tensors = unsafe { all(start, count, list) }?;
    // SAFETY: as above.
    tensors.iter().enumerate().try_for_each(|(i, tensor)| unsafe { tensor.check(what(i)) })?;
    Ok(tensors)
}

/// Tensors in a GPU's memory.
///
/// # Safety
/// As [`checked`].
unsafe fn on_device<'a>(
    start: *const RcTensor,
    count: usize,
    list: &str,
    what: fn(usize) -> What,
) -> Result<Vec<DeviceTensor<'a>>, Error> {
    // SAFETY: the caller's.
    let tensors = unsafe { checked(start, count, list, what) }?;
    let shown = |t: &'a RcTensor| DeviceTensor { dtype: t.dtype(), shape: t.shape(), address: t.data as u64 };
    Ok(tensors.iter().map(shown).collect())
}

/// Arguments in a GPU's memory.
///
/// # Safety
/// `start` is null or has `count` tensors, whose shapes and strides have as many sizes as their rank, as long as the values are used.
pub unsafe fn device_inputs<'a>(start: *const RcTensor, count: usize) -> Result<Vec<DeviceTensor<'a>>, Error> {
    // SAFETY: the caller's.
    unsafe { on_device(start, count, "inputs", What::Argument) }
}

/// Memory of a GPU for results.
///
/// # Safety
/// As [`device_inputs`].
pub unsafe fn device_results<'a>(start: *const RcTensor, count: usize) -> Result<Vec<DeviceTensor<'a>>, Error> {
    // SAFETY: the caller's.
    unsafe { on_device(start, count, "results", What::Result) }
}
