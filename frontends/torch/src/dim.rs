//! Sizes: integers and expressions over symbols.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rc_ir::Dim;

/// A symbolic size. Arithmetic with integers and other sizes gives sizes; equal expressions are equal.
#[pyclass(name = "Dim", frozen, eq, hash, from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyDim(pub Dim);

#[pymethods]
impl PyDim {
    /// The size named by a symbol.
    #[staticmethod]
    fn symbol(name: &str) -> PyDim {
        PyDim(Dim::symbol(name))
    }
    /// An integer as a size.
    #[staticmethod]
    fn of(value: i64) -> PyDim {
        PyDim(Dim::Static(value))
    }
    /// The integer, where the expression is one.
    fn value(&self) -> Option<i64> {
        self.0.as_static()
    }
    fn __add__(&self, other: AnyDim) -> PyDim {
        PyDim(self.0 + other.0)
    }
    fn __radd__(&self, other: AnyDim) -> PyDim {
        PyDim(other.0 + self.0)
    }
    fn __sub__(&self, other: AnyDim) -> PyDim {
        PyDim(self.0 - other.0)
    }
    fn __rsub__(&self, other: AnyDim) -> PyDim {
        PyDim(other.0 - self.0)
    }
    fn __mul__(&self, other: AnyDim) -> PyDim {
        PyDim(self.0 * other.0)
    }
    fn __rmul__(&self, other: AnyDim) -> PyDim {
        PyDim(other.0 * self.0)
    }
    fn __floordiv__(&self, other: AnyDim) -> PyDim {
        PyDim(self.0.floordiv(other.0))
    }
    fn __mod__(&self, other: AnyDim) -> PyDim {
        PyDim(self.0.modulo(other.0))
    }
    fn maximum(&self, other: AnyDim) -> PyDim {
        PyDim(self.0.max(other.0))
    }
    fn minimum(&self, other: AnyDim) -> PyDim {
        PyDim(self.0.min(other.0))
    }
    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// An argument that is an integer or a [`PyDim`].
#[derive(Clone, Copy)]
pub struct AnyDim(pub Dim);

impl<'a, 'py> FromPyObject<'a, 'py> for AnyDim {
    type Error = PyErr;
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<AnyDim> {
        if let Ok(dim) = object.cast::<PyDim>() {
            return Ok(AnyDim(dim.get().0));
        }
        match object.extract::<i64>() {
            Ok(n) => Ok(AnyDim(Dim::Static(n))),
            Err(_) => {
                Err(PyTypeError::new_err(format!("a size is an integer or a Dim, not {}", object.get_type().name()?)))
            }
        }
    }
}

/// Sizes of a shape.
pub fn dims(shape: &[AnyDim]) -> Vec<Dim> {
    shape.iter().map(|d| d.0).collect()
}

/// A size for Python: an `int` where it is one.
pub fn to_python(py: Python<'_>, dim: Dim) -> PyResult<Py<PyAny>> {
    match dim.as_static() {
        Some(n) => Ok(n.into_pyobject(py)?.into_any().unbind()),
        None => Ok(PyDim(dim).into_pyobject(py)?.into_any().unbind()),
    }
}

/// The sizes that a text says: `n, 2 * n, 768`.
#[pyfunction]
pub fn shape(py: Python<'_>, text: &str) -> PyResult<Vec<Py<PyAny>>> {
    let attr = rc_parser::parse_attr(&format!("#rc.shape<[{text}]>"));
    let unknown = || {
        crate::errors::plain(
            py,
            format!("'{text}' is no shape: it is sizes with commas between, as in \"n, 2 * n, 768\""),
        )
    };
    let attr = attr.map_err(|_| unknown())?;
    attr.as_shape().ok_or_else(unknown)?.iter().map(|&dim| to_python(py, dim)).collect()
}
