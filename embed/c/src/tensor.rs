//! The caller's tensors, checked.

use crate::{Tensors, invalid};
use runtime::tensor::byte_size;
use runtime::{DType, DeviceTensor, Error, Tensor};
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
pub const DTYPES: [DType; 10] = [
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
];

/// More dimensions than any function has: a rank beyond it is a mistake.
const MOST_DIMENSIONS: i32 = 64;

/// A tensor's dtype and shape.
type Kind = (DType, Vec<usize>);

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

impl RcTensor {
    /// # Safety
    /// Shape and strides are null or have `rank` sizes.
    unsafe fn kind(&self, what: What) -> Result<Kind, Error> {
        let dtype = usize::try_from(self.dtype).ok().and_then(|i| DTYPES.get(i).copied());
        let dtype = dtype.ok_or_else(|| invalid(format!("{what} has the dtype {}, which there is not", self.dtype)))?;
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
        let extents = sizes(self.shape);
        let shape: Option<Vec<usize>> = extents.iter().map(|&n| usize::try_from(n).ok()).collect();
        let shape = shape.ok_or_else(|| invalid(format!("{what} has the shape {extents:?}")))?;
        if !self.strides.is_null() && !is_dense(&shape, sizes(self.strides)) {
            let strides = sizes(self.strides);
            return Err(invalid(format!("{what} has the strides {strides:?}, and rc takes dense rows: copy it first")));
        }
        Ok((dtype, shape))
    }

    /// Its memory; `None` where it has no elements.
    fn memory(&self, what: What, (dtype, shape): &Kind) -> Result<Option<(*mut u8, usize)>, Error> {
        let bytes = byte_size(*dtype, shape)?;
        if bytes == 0 {
            return Ok(None);
        }
        if self.data.is_null() {
            return Err(invalid(format!("{what} has no data: it is null")));
        }
        if !(self.data as usize).is_multiple_of(dtype.size()) {
            return Err(invalid(format!("{what} lies at {:p}, which is not aligned to {dtype}", self.data)));
        }
        Ok(Some((self.data.cast(), bytes)))
    }
}

fn is_dense(shape: &[usize], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 && stride != expected {
            return shape.contains(&0);
        }
        expected = expected.saturating_mul(size as i64);
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

/// Dtypes and shapes of arguments.
///
/// # Safety
/// As `rc_result_shape`'s.
pub unsafe fn shapes(start: *const RcTensor, count: usize) -> Result<Vec<Kind>, Error> {
    // SAFETY: the caller's.
    let tensors = unsafe { all(start, count, "inputs") }?;
    // SAFETY: as above.
    tensors.iter().enumerate().map(|(i, t)| unsafe { t.kind(What::Argument(i)) }).collect()
}

/// Arguments as tensors of the caller's memory.
///
/// # Safety
/// As `rc_run`'s; the memory lives and is not written to while they are used.
pub unsafe fn inputs(start: *const RcTensor, count: usize) -> Result<Tensors, Error> {
    // SAFETY: the caller's.
    let tensors = unsafe { all(start, count, "inputs") }?;
    let tensor = |(i, tensor): (usize, &RcTensor)| {
        let what = What::Argument(i);
        // SAFETY: as above.
        let kind = unsafe { tensor.kind(what)? };
        match tensor.memory(what, &kind)? {
            None => Tensor::zeros(kind.0, &kind.1),
            // SAFETY: not null, aligned, and the caller's for that many elements.
            Some((start, _)) => unsafe { Tensor::borrowed(kind.0, &kind.1, start) },
        }
    };
    tensors.iter().enumerate().map(tensor).collect()
}

/// The memory of results, which overlaps nothing.
///
/// # Safety
/// As `rc_run`'s.
pub unsafe fn results<'a>(
    start: *const RcTensor,
    count: usize,
    expected: &[Kind],
    inputs: &[Tensor],
) -> Result<Vec<&'a mut [u8]>, Error> {
    // SAFETY: the caller's.
    let tensors = unsafe { all(start, count, "results") }?;
    if tensors.len() != expected.len() {
        return Err(invalid(format!("the function has {} results, {count} were given", expected.len())));
    }
    let mut taken: Vec<(usize, usize, What)> = Vec::with_capacity(inputs.len() + count);
    for (i, input) in inputs.iter().enumerate() {
        let from = input.as_ptr() as usize;
        taken.push((from, from + input.bytes().len(), What::Argument(i)));
    }
    let mut memory = Vec::with_capacity(count);
    for (i, (tensor, expected)) in tensors.iter().zip(expected).enumerate() {
        let what = What::Result(i);
        // SAFETY: as above.
        let kind = unsafe { tensor.kind(what)? };
        if kind != *expected {
            let ((dtype, shape), (is, of)) = (expected, &kind);
            return Err(invalid(format!("{what} is given as {is} of shape {of:?}, and is {dtype} of shape {shape:?}")));
        }
        let Some((start, bytes)) = tensor.memory(what, &kind)? else {
            memory.push(&mut [][..]);
            continue;
        };
        let (from, to) = (start as usize, start as usize + bytes);
        if let Some((.., other)) = taken.iter().find(|(a, b, _)| from < *b && *a < to) {
            return Err(invalid(format!("{what} and {other} share memory")));
        }
        taken.push((from, to, what));
        // SAFETY: the caller's to be written to, and it overlaps no other result and no argument.
        memory.push(unsafe { std::slice::from_raw_parts_mut(start, bytes) });
    }
    Ok(memory)
}

/// Tensors in a GPU's memory, with the shapes that they point to.
pub struct OnDevice {
    kinds: Vec<Kind>,
    addresses: Vec<u64>,
}

impl OnDevice {
    /// Arguments, or results.
    ///
    /// # Safety
    /// `start` is null or has `count` tensors, whose shapes and strides have as many sizes as their rank.
    unsafe fn new(
        start: *const RcTensor,
        count: usize,
        list: &str,
        what: fn(usize) -> What,
    ) -> Result<OnDevice, Error> {
        // SAFETY: the caller's.
        let tensors = unsafe { all(start, count, list) }?;
        // SAFETY: as above.
        let kinds = tensors.iter().enumerate().map(|(i, tensor)| unsafe { tensor.kind(what(i)) });
        let addresses = tensors.iter().map(|tensor| tensor.data as u64).collect();
        Ok(OnDevice { kinds: kinds.collect::<Result<_, _>>()?, addresses })
    }

    /// # Safety
    /// As [`OnDevice::new`].
    pub unsafe fn inputs(start: *const RcTensor, count: usize) -> Result<OnDevice, Error> {
        // SAFETY: the caller's.
        unsafe { OnDevice::new(start, count, "inputs", What::Argument) }
    }

    /// # Safety
    /// As [`OnDevice::new`].
    pub unsafe fn results(start: *const RcTensor, count: usize) -> Result<OnDevice, Error> {
        // SAFETY: the caller's.
        unsafe { OnDevice::new(start, count, "results", What::Result) }
    }

    pub fn tensors(&self) -> Vec<DeviceTensor<'_>> {
        let all = self.kinds.iter().zip(&self.addresses);
        all.map(|((dtype, shape), &address)| DeviceTensor { dtype: *dtype, shape, address }).collect()
    }
}
