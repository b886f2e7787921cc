//! What follows from the sizes of the arguments: the symbols' values, and the results' sizes.

use super::Call;
use crate::errors::plain;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rc_ir::Dim;
use rc_runtime::program::{Bindings, Signature, TensorSpec, evaluate};
use rc_runtime::tensor::byte_size;

/// Everything that follows from the sizes of the arguments.
pub struct Sizes {
    /// Shape and strides of each input, one after another, and the integers: the arguments that need no second look.
    pub key: Vec<i64>,
    pub bindings: Bindings,
    /// Sizes and strides of each result.
    pub results: Vec<(Py<PyTuple>, Py<PyTuple>)>,
    /// Bytes of each result.
    pub result_bytes: Vec<usize>,
    /// Bytes of each input that machine code reads.
    pub bytes: Vec<usize>,
}

impl Sizes {
    /// `extents`: the sizes of the inputs in the order of their memory, and the integers.
    pub(super) fn new(
        py: Python<'_>,
        call: &Call,
        signature: &Signature,
        key: Vec<i64>,
        extents: &[i64],
        integers: &[i64],
    ) -> PyResult<Sizes> {
        let bindings = bind(py, call, signature, extents, integers)?;
        let tuple = |dims: &[Dim]| PyTuple::new(py, numbers(py, dims, &bindings)?).map(Bound::unbind);
        let results =
            call.results.iter().map(|l| Ok((tuple(&l.sizes)?, tuple(&l.strides)?))).collect::<PyResult<_>>()?;
        let bytes = |spec: &TensorSpec| byte_size(spec.dtype, &spec.sizes(&bindings)?);
        let result_bytes = signature.outputs.iter().map(bytes).collect::<Result<_, _>>().map_err(|e| plain(py, e))?;
        Ok(Sizes { key, bindings, results, result_bytes, bytes: Vec::new() })
    }
}

/// The symbols' values, from all sizes of the inputs and the integers, checked against the signature.
fn bind(py: Python<'_>, call: &Call, signature: &Signature, extents: &[i64], integers: &[i64]) -> PyResult<Bindings> {
    let shape = || call.inputs.iter().flat_map(|input| &input.sizes);
    let mut bindings = Bindings::default();
    for (&(_, name), &value) in call.integers.iter().zip(integers) {
        bindings.insert(name, value);
    }
    for (dim, &size) in shape().zip(extents) {
        if let Some(symbol) = dim.as_symbol() {
            bindings.entry(symbol).or_insert(size);
        }
    }
    for (i, (dim, &size)) in shape().zip(extents).enumerate() {
        let expected = evaluate(*dim, &bindings).map_err(|e| plain(py, e))?;
        if expected != size {
            return Err(plain(
                py,
                format!("size number {i} of the arguments is {size}, where {dim} = {expected} was compiled"),
            ));
        }
    }
    signature.check_symbols(&bindings).map_err(|e| plain(py, e))?;
    Ok(bindings)
}

pub fn numbers(py: Python<'_>, dims: &[Dim], bindings: &Bindings) -> PyResult<Vec<i64>> {
    dims.iter().map(|&d| evaluate(d, bindings).map_err(|e| plain(py, e))).collect()
}
