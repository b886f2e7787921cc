//! What a call gives back: results, arguments, views of both, integers.

use super::sizes::numbers;
use super::tensors::Tensors;
use crate::dim::{AnyDim, dims};
use crate::errors::plain;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rc_ir::Dim;
use rc_runtime::program::Bindings;

/// Sizes and strides of a tensor.
pub struct Layout {
    pub sizes: Vec<Dim>,
    pub strides: Vec<Dim>,
}

pub enum Base {
    Arg(usize),
    Result(usize),
}

/// What a call gives back.
pub enum Return {
    Whole(Base),
    View { base: Base, layout: Layout, offset: Dim },
    Integer(Dim),
    Constant(Py<PyAny>),
}

/// An argument's place, and the copy that stands for it.
pub type Copied<'py> = (usize, Bound<'py, PyAny>);

/// The tensors of a call, and copies that stand for arguments.
pub struct Objects<'a, 'py> {
    pub tensors: &'a Tensors<'a>,
    pub copies: &'a [Copied<'py>],
}

type PyBase = (String, usize);
pub type PyReturn<'py> = (String, Bound<'py, PyAny>);

impl Layout {
    pub fn new(sizes: &[AnyDim], strides: &[AnyDim]) -> Layout {
        Layout { sizes: dims(sizes), strides: dims(strides) }
    }
}

impl Base {
    fn new((kind, index): &PyBase) -> PyResult<Base> {
        match kind.as_str() {
            "arg" => Ok(Base::Arg(*index)),
            "result" => Ok(Base::Result(*index)),
            _ => Err(PyTypeError::new_err(format!("'{kind}' is no base"))),
        }
    }
    fn get<'py>(&self, py: Python<'py>, objects: &Objects<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Base::Arg(i) => objects.tensors.arg(py, *i),
            Base::Result(i) => objects.tensors.result(py, *i),
        }
    }
    /// The tensor whose memory is laid out as was compiled for: the copy, where the argument is laid out otherwise.
    fn memory<'py>(&self, py: Python<'py>, objects: &Objects<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let copy = objects.copies.iter().find(|(arg, _)| matches!(self, Base::Arg(i) if i == arg));
        copy.map_or_else(|| self.get(py, objects), |(_, copy)| Ok(copy.clone()))
    }
}

impl Return {
    pub fn new((kind, value): PyReturn<'_>) -> PyResult<Return> {
        Ok(match kind.as_str() {
            "view" => {
                let (base, sizes, strides, offset): (PyBase, Vec<AnyDim>, Vec<AnyDim>, AnyDim) = value.extract()?;
                Return::View { base: Base::new(&base)?, layout: Layout::new(&sizes, &strides), offset: offset.0 }
            }
            "int" => Return::Integer(value.extract::<AnyDim>()?.0),
            "constant" => Return::Constant(value.unbind()),
            _ => Return::Whole(Base::new(&(kind, value.extract()?))?),
        })
    }

    /// The argument that is given back, whole or a view of it.
    pub fn arg(&self) -> Option<usize> {
        match self {
            Return::Whole(Base::Arg(i)) | Return::View { base: Base::Arg(i), .. } => Some(*i),
            _ => None,
        }
    }

    pub fn give<'py>(
        &self,
        py: Python<'py>,
        objects: &Objects<'_, 'py>,
        bindings: &Bindings,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Return::Whole(base) => base.get(py, objects),
            Return::View { base, layout, offset } => {
                let numbers = |dims| PyTuple::new(py, numbers(py, dims, bindings)?);
                let offset = offset.evaluate(&|name| bindings.get(&name).copied()).unwrap_or(0);
                let base = base.memory(py, objects)?;
                let start: i64 = base.call_method0("storage_offset")?.extract()?;
                base.call_method1("as_strided", (numbers(&layout.sizes)?, numbers(&layout.strides)?, start + offset))
            }
            Return::Integer(dim) => {
                let value = dim.evaluate(&|name| bindings.get(&name).copied());
                let value = value.ok_or_else(|| plain(py, format!("{dim} has no value for these arguments")))?;
                Ok(value.into_pyobject(py)?.into_any())
            }
            Return::Constant(object) => Ok(object.bind(py).clone()),
        }
    }
}
