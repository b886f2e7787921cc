//! The tensors of a call: their memory, checked against what was compiled.
//!
//! A call whose tensors have the shapes and strides of the last one is known to be right, and only addresses are read.

use super::returns::Copied;
use super::sizes::Sizes;
use super::{Call, PyProgram};
use crate::dlpack::{CUDA, DlTensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rc_ir::Dim;
use rc_runtime::DType;
use std::sync::Arc;

/// Bytes that a GPU's widest load has.
const GPU_ALIGNMENT: usize = 16;

/// An argument's place, its dimensions from the slowest to the fastest in memory, and its sizes in that order.
pub struct Input {
    pub arg: usize,
    pub order: Vec<usize>,
    pub sizes: Vec<Dim>,
    /// The elements, where machine code reads them: those of the parts of complex numbers.
    pub dtype: Option<DType>,
    /// Whether the elements are complex numbers, which machine code reads as one dimension more, of two parts.
    pub complex: bool,
}

/// Where a call's inputs lie.
pub struct Inputs<'py> {
    pub addresses: Vec<*mut u8>,
    pub sizes: Arc<Sizes>,
    /// What stands for arguments that are laid out otherwise than was compiled for.
    pub copies: Vec<Copied<'py>>,
}

impl PyProgram {
    /// Reads the arguments of a call; `more` are the program's own, which come after them.
    pub(super) fn inputs<'py>(
        &self,
        call: &Call,
        args: &Bound<'py, PyTuple>,
        more: &[Bound<'py, PyAny>],
    ) -> PyResult<Inputs<'py>> {
        let last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let known = last.map(|sizes| Ok::<_, PyErr>((self.known(call, args, more, &sizes)?, sizes))).transpose()?;
        let mut inputs = match known {
            Some((Some(addresses), sizes)) => Inputs { addresses, sizes, copies: Vec::new() },
            _ => self.read(call, args, more)?,
        };
        if !self.are_apart(&inputs) {
            self.copy_updated(call, args, &mut inputs)?;
        }
        Ok(inputs)
    }

    /// Whether inputs that the program updates share no memory with others: what was read of one would depend on when the other is written.
    fn are_apart(&self, inputs: &Inputs<'_>) -> bool {
        let updated = self.updated_inputs();
        if updated.is_empty() {
            return true;
        }
        let mut last = self.apart.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let starts = inputs.addresses.iter().map(|&address| address as usize);
        if inputs.copies.is_empty() && starts.clone().eq(last.iter().copied()) {
            return true;
        }
        let mut places: Vec<(usize, usize, bool)> = starts
            .clone()
            .zip(&inputs.sizes.bytes)
            .enumerate()
            .filter(|(_, (_, bytes))| **bytes > 0)
            .map(|(i, (start, bytes))| (start, start + bytes, updated.contains(&i)))
            .collect();
        places.sort_unstable();
        // Where those before end: all, and those that are updated.
        let (mut all, mut written) = (0, 0);
        for (start, end, is_updated) in places {
            if start < written || is_updated && start < all {
                return false;
            }
            all = all.max(end);
            written = if is_updated { written.max(end) } else { written };
        }
        if inputs.copies.is_empty() {
            *last = starts.collect();
        }
        true
    }

    /// Has copies stand for the inputs that the program updates.
    fn copy_updated<'py>(&self, call: &Call, args: &Bound<'py, PyTuple>, inputs: &mut Inputs<'py>) -> PyResult<()> {
        for &i in self.updated_inputs() {
            let input = &call.inputs[i];
            if inputs.copies.iter().all(|(arg, _)| *arg != input.arg) {
                let copy = copy_of(&args.get_item(input.arg)?, &input.order)?;
                inputs.addresses[i] = call.exchange.tensor(&copy)?.address();
                inputs.copies.push((input.arg, copy));
            }
        }
        Ok(())
    }

    /// The addresses, where all shapes, strides and integers are those of the last call.
    fn known(
        &self,
        call: &Call,
        args: &Bound<'_, PyTuple>,
        more: &[Bound<'_, PyAny>],
        sizes: &Sizes,
    ) -> PyResult<Option<Vec<*mut u8>>> {
        let mut addresses = Vec::with_capacity(call.inputs.len());
        let mut key = sizes.key.as_slice();
        for input in &call.inputs {
            let tensor = match args.get_borrowed_item(input.arg) {
                Ok(object) => call.exchange.tensor(&object)?,
                Err(_) => call.exchange.tensor(extra(args, more, input.arg)?)?,
            };
            let rank = tensor.shape().len();
            let Some((expected, rest)) = key.split_at_checked(2 * rank) else { return Ok(None) };
            // A few numbers each: quicker one by one than as memory.
            if !tensor.shape().iter().chain(tensor.strides()).eq(expected) {
                return Ok(None);
            }
            key = rest;
            if let Some(dtype) = input.dtype {
                let address = tensor.address();
                let is_read = self.reads(input, dtype, &tensor) && self.aligned(address, dtype);
                if rank != input.order.len() || address.is_null() || !is_read {
                    return Ok(None);
                }
                addresses.push(address);
            }
        }
        let integers = integers(call, args)?;
        Ok((integers == key).then_some(addresses))
    }

    /// The addresses and sizes, every argument checked.
    fn read<'py>(&self, call: &Call, args: &Bound<'py, PyTuple>, more: &[Bound<'py, PyAny>]) -> PyResult<Inputs<'py>> {
        let (mut addresses, mut copies) = (Vec::with_capacity(call.inputs.len()), Vec::new());
        let (mut key, mut extents, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for input in &call.inputs {
            let object = match args.get_item(input.arg) {
                Ok(object) => object,
                Err(_) => extra(args, more, input.arg)?.clone(),
            };
            let mut tensor = call.exchange.tensor(&object)?;
            check_rank(input, &tensor)?;
            key.extend(tensor.shape().iter().chain(tensor.strides()));
            extents.extend(input.order.iter().map(|&d| tensor.shape()[d]));
            // A program without machine code looks at sizes only.
            let Some(dtype) = input.dtype else { continue };
            self.check_kind(input, dtype, &tensor)?;
            if !dense(&tensor, &input.order) || !self.aligned(tensor.address(), dtype) {
                let copy = copy_of(&object, &input.order)?;
                tensor = call.exchange.tensor(&copy)?;
                copies.push((input.arg, copy));
            }
            let count = tensor.shape().iter().product::<i64>() as usize;
            if count > 0 && tensor.address().is_null() {
                return Err(PyTypeError::new_err(format!("argument {}: a tensor without memory", input.arg)));
            }
            bytes.push(count * dtype.size() * (1 + usize::from(input.complex)));
            addresses.push(tensor.address());
        }
        let integers = integers(call, args)?;
        key.extend(&integers);
        let sizes = Sizes { bytes, ..Sizes::new(args.py(), call, self.signature(), key, &extents, &integers)? };
        let sizes = Arc::new(sizes);
        if copies.is_empty() {
            *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sizes.clone());
        }
        Ok(Inputs { addresses, sizes, copies })
    }

    fn check_kind(&self, input: &Input, dtype: DType, tensor: &DlTensor) -> PyResult<()> {
        if !tensor.is_on(self.device) {
            let message = format!("argument {} is on another device than the compiled program", input.arg);
            return Err(PyTypeError::new_err(message));
        }
        if !self.reads(input, dtype, tensor) {
            let what = if input.complex { "complex elements with parts" } else { "elements" };
            return Err(PyTypeError::new_err(format!("argument {}: expected {what} of type {dtype}", input.arg)));
        }
        Ok(())
    }

    /// Whether memory starts where machine code may read it: a GPU's loads have up to 16 bytes, as its tensor maps ask for.
    fn aligned(&self, address: *mut u8, dtype: DType) -> bool {
        let bytes = if self.device.0 == CUDA { GPU_ALIGNMENT.max(dtype.size()) } else { dtype.size() };
        (address as usize).is_multiple_of(bytes)
    }

    fn reads(&self, input: &Input, dtype: DType, tensor: &DlTensor) -> bool {
        let is = if input.complex { tensor.is_complex(dtype) } else { tensor.is(dtype) };
        tensor.is_on(self.device) && is
    }
}

/// One of the program's own tensors.
fn extra<'a, 'py>(
    args: &Bound<'py, PyTuple>,
    more: &'a [Bound<'py, PyAny>],
    place: usize,
) -> PyResult<&'a Bound<'py, PyAny>> {
    let found = place.checked_sub(args.len()).and_then(|i| more.get(i));
    found.ok_or_else(|| PyTypeError::new_err(format!("argument {place} is missing: {} were given", args.len())))
}

fn integers(call: &Call, args: &Bound<'_, PyTuple>) -> PyResult<Vec<i64>> {
    call.integers.iter().map(|&(arg, _)| args.get_item(arg)?.extract()).collect()
}

fn check_rank(input: &Input, tensor: &DlTensor) -> PyResult<()> {
    let (rank, found) = (input.order.len(), tensor.shape());
    if found.len() == rank {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("argument {}: expected rank {rank}, found the shape {found:?}", input.arg)))
}

/// Whether the elements lie one after another, the dimensions in this order.
fn dense(tensor: &DlTensor, order: &[usize]) -> bool {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let mut expected = 1;
    for &d in order.iter().rev() {
        if shape[d] != 1 && strides.get(d).is_some_and(|&s| s != expected) {
            return shape.contains(&0);
        }
        expected *= shape[d];
    }
    true
}

/// A copy whose elements lie in this order.
fn copy_of<'py>(tensor: &Bound<'py, PyAny>, order: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = PyDict::new(tensor.py());
    kwargs.set_item("memory_format", tensor.py().import("torch")?.getattr("contiguous_format")?)?;
    let physical = tensor.call_method1("permute", (order.to_vec(),))?.call_method("clone", (), Some(&kwargs))?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    physical.call_method1("permute", (back,))
}
