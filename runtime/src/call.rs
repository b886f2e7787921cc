//! A call's tensors in the host's memory, read where they are: no call makes descriptions of its own.

use crate::program::Exact;
use crate::tensor::byte_size;
use crate::{DType, Error, Result, Tensor};
use std::sync::atomic::AtomicU64;

/// A tensor in the host's memory, row-major: an argument is read, a result is written to.
#[derive(Clone, Copy, Debug)]
pub struct HostTensor<'a> {
    dtype: DType,
    shape: &'a [usize],
    data: *mut u8,
}

impl<'a> From<&'a Tensor> for HostTensor<'a> {
    fn from(tensor: &'a Tensor) -> HostTensor<'a> {
        HostTensor { dtype: tensor.dtype(), shape: tensor.shape(), data: tensor.as_ptr().cast_mut() }
    }
}

impl<'a> HostTensor<'a> {
    /// The caller's memory.
    ///
    /// # Safety
    /// `data` is null, which a call finds, or valid for the shape's elements while the value or a copy of it is in use.
    pub unsafe fn new(dtype: DType, shape: &'a [usize], data: *mut u8) -> HostTensor<'a> {
        HostTensor { dtype, shape, data }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    pub(crate) fn kind(&self) -> (DType, &'a [usize]) {
        (self.dtype, self.shape)
    }

    /// Where its memory of so many bytes begins and ends; nothing lies between them where it has no elements.
    fn extent(&self, bytes: usize, what: impl Fn() -> String) -> Result<(u64, u64)> {
        if bytes == 0 {
            return Ok((0, 0));
        }
        if self.data.is_null() {
            return Err(Error::Invalid(format!("{} has no data: it is null", what())));
        }
        // Sizes of dtypes are powers of two.
        if (self.data as usize) & (self.dtype.size() - 1) != 0 {
            let (at, dtype) = (self.data, self.dtype);
            return Err(Error::Invalid(format!("{} lies at {at:p}, which is not aligned to {dtype}", what())));
        }
        Ok((self.data as u64, self.data as u64 + bytes as u64))
    }
}

/// The arguments or the results of a call, one after the other.
pub trait Tensors {
    fn count(&self) -> usize;

    fn tensor(&self, i: usize) -> HostTensor<'_>;

    /// Its number, as the caller counts.
    fn number(&self, i: usize) -> usize {
        i
    }

    /// The same memory as a tensor, which is in use no longer than the call.
    ///
    /// # Errors
    /// A shape without a size in 63 bits; a null pointer.
    fn shared(&self, i: usize) -> Result<Tensor> {
        let given = self.tensor(i);
        let bytes = byte_size(given.dtype, given.shape)?;
        let (from, to) = given.extent(bytes, || format!("argument {}", self.number(i)))?;
        match from == to {
            true => Tensor::zeros(given.dtype, given.shape),
            // SAFETY: neither null nor unaligned, and whoever made it vouches for the elements.
            false => unsafe { Tensor::borrowed(given.dtype, given.shape, given.data) },
        }
    }
}

impl Tensors for [Tensor] {
    fn count(&self) -> usize {
        self.len()
    }
    fn tensor(&self, i: usize) -> HostTensor<'_> {
        (&self[i]).into()
    }
    fn shared(&self, i: usize) -> Result<Tensor> {
        Ok(self[i].clone())
    }
}

impl Tensors for [HostTensor<'_>] {
    fn count(&self) -> usize {
        self.len()
    }
    fn tensor(&self, i: usize) -> HostTensor<'_> {
        self[i]
    }
}

/// Tensors of which some are the same at every call, and the others the caller's.
pub(crate) struct Merged<'a, G: ?Sized> {
    /// For each its fixed value; those that are given follow one another where it has `places`, else each is at its own number.
    pub fixed: &'a [Option<Tensor>],
    pub places: Option<&'a [usize]>,
    pub given: &'a G,
}

impl<G: Tensors + ?Sized> Tensors for Merged<'_, G> {
    fn count(&self) -> usize {
        self.fixed.len()
    }
    fn tensor(&self, i: usize) -> HostTensor<'_> {
        match &self.fixed[i] {
            Some(tensor) => tensor.into(),
            None => self.given.tensor(self.places.map_or(i, |places| places[i])),
        }
    }
    fn number(&self, i: usize) -> usize {
        match &self.fixed[i] {
            Some(_) => i,
            None => self.given.number(self.places.map_or(i, |places| places[i])),
        }
    }
    fn shared(&self, i: usize) -> Result<Tensor> {
        match &self.fixed[i] {
            Some(tensor) => Ok(tensor.clone()),
            None => self.given.shared(self.places.map_or(i, |places| places[i])),
        }
    }
}

/// Some of a call's tensors.
pub(crate) struct Picked<'a, G: ?Sized>(pub &'a [usize], pub &'a G);

impl<G: Tensors + ?Sized> Tensors for Picked<'_, G> {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn tensor(&self, i: usize) -> HostTensor<'_> {
        self.1.tensor(self.0[i])
    }
    fn number(&self, i: usize) -> usize {
        self.1.number(self.0[i])
    }
    fn shared(&self, i: usize) -> Result<Tensor> {
        self.1.shared(self.0[i])
    }
}

/// A call's addresses, in memory that calls use one after the other.
#[derive(Default)]
pub(crate) struct Frame {
    pub inputs: Vec<*const u8>,
    pub outputs: Vec<AtomicU64>,
    /// Where the memory of arguments and results begins and ends.
    given: Vec<(u64, u64)>,
    taken: Vec<(u64, u64, usize)>,
}

// SAFETY: the addresses are used during a call alone, by the thread that makes it.
unsafe impl Send for Frame {}

impl Frame {
    /// Takes the addresses of arguments; `false` where these have other dtypes or sizes than those expected.
    ///
    /// # Errors
    /// Null pointers, and such that are not aligned.
    pub fn read(&mut self, inputs: &(impl Tensors + ?Sized), expected: &Exact) -> Result<bool> {
        self.inputs.clear();
        self.outputs.clear();
        self.given.clear();
        if inputs.count() != expected.count() {
            return Ok(false);
        }
        for i in 0..inputs.count() {
            let tensor = inputs.tensor(i);
            let Some(bytes) = expected.bytes(i, tensor.dtype, tensor.shape) else { return Ok(false) };
            self.given.push(tensor.extent(bytes, || format!("argument {}", inputs.number(i)))?);
            self.inputs.push(tensor.data);
        }
        Ok(true)
    }

    /// Takes the addresses of results that are to be of these dtypes and shapes, and overlap nothing.
    ///
    /// # Errors
    /// Results that are of others, null, not aligned, or overlap an argument or one another.
    pub fn write(
        &mut self,
        expected: &[(DType, Vec<usize>)],
        inputs: &(impl Tensors + ?Sized),
        results: &(impl Tensors + ?Sized),
    ) -> Result<()> {
        if results.count() != expected.len() {
            let (has, given) = (expected.len(), results.count());
            return Err(Error::Invalid(format!("the function has {has} results, {given} were given")));
        }
        self.taken.clear();
        for (i, (dtype, shape)) in expected.iter().enumerate() {
            let tensor = results.tensor(i);
            if (tensor.dtype, tensor.shape) != (*dtype, shape.as_slice()) {
                let (is, of) = (tensor.dtype, tensor.shape);
                let what = format!("result {i} is given as {is} of shape {of:?}, and is {dtype} of shape {shape:?}");
                return Err(Error::Invalid(what));
            }
            let (from, to) = tensor.extent(byte_size(*dtype, shape)?, || format!("result {i}"))?;
            self.taken.push((from, to, i));
            self.outputs.push(AtomicU64::new(tensor.data as u64));
        }
        apart(&mut self.taken, self.given.iter().copied(), |i| inputs.number(i))
    }
}

/// Checks that results, as (begin, end, number), overlap neither one another nor arguments; `number` is an argument's, as its caller counts.
///
/// # Errors
/// If they do, which.
pub(crate) fn apart(
    results: &mut Vec<(u64, u64, usize)>,
    arguments: impl Iterator<Item = (u64, u64)>,
    number: impl Fn(usize) -> usize,
) -> Result<()> {
    let Some((result, other)) = overlap(results, arguments) else { return Ok(()) };
    let other = match other {
        Other::Result(i) => format!("result {i}"),
        Other::Argument(i) => format!("argument {}", number(i)),
    };
    Err(Error::Invalid(format!("result {result} and {other} share memory")))
}

/// What a result overlaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Argument(usize),
    Result(usize),
}

/// A result that overlaps another one or an argument, and which; the results are (begin, end, number), and are sorted here.
fn overlap(
    results: &mut Vec<(u64, u64, usize)>,
    arguments: impl Iterator<Item = (u64, u64)>,
) -> Option<(usize, Other)> {
    results.retain(|(from, to, _)| from < to);
    results.sort_unstable();
    if let Some(pair) = results.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Some((pair[1].2, Other::Result(pair[0].2)));
    }
    let (first, last) = (results.first()?.0, results.last()?.1);
    for (i, (from, to)) in arguments.enumerate() {
        if from < to && from < last && first < to {
            // They are apart, so their ends are in order too.
            let next = results.partition_point(|result| result.1 <= from);
            if let Some(result) = results.get(next).filter(|result| result.0 < to) {
                return Some((result.2, Other::Argument(i)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_overlap_nothing() {
        let found = |results: &[(u64, u64)], arguments: &[(u64, u64)]| {
            let mut results: Vec<_> = results.iter().enumerate().map(|(i, &(from, to))| (from, to, i)).collect();
            overlap(&mut results, arguments.iter().copied())
        };
        assert_eq!(found(&[(48, 64), (16, 32)], &[(32, 48), (0, 16), (64, 80)]), None);
        assert_eq!(found(&[(48, 64), (16, 33)], &[(32, 48)]), Some((1, Other::Argument(0))));
        assert_eq!(found(&[(48, 64), (16, 32)], &[(0, 8), (63, 99)]), Some((0, Other::Argument(1))));
        assert_eq!(found(&[(48, 64), (16, 32)], &[(0, 100)]), Some((1, Other::Argument(0))));
        assert_eq!(found(&[(48, 64), (50, 51)], &[]), Some((1, Other::Result(0))));
        // What has no elements is nowhere, and arguments may be the same.
        assert_eq!(found(&[(48, 48), (16, 32)], &[(40, 60), (40, 60), (20, 20)]), None);
        assert_eq!(found(&[], &[(40, 60)]), None);
    }
}
