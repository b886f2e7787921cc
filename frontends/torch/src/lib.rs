//! The native half of the Python package `rc`: building a module, compiling it, running it on PyTorch's tensors.
//!
//! ```text
//! Graph(symbols, args)      a function under construction; one call, `op`, makes any operation
//!   .finish(results)        the module
//! Module.compile(target)    machine code
//! Program(…)(tensors)       runs on PyTorch's tensors' own memory, read by its C functions or DLPack's
//! Model, Array              the same for every other library: packages and modules, run on arrays of NumPy's protocol or DLPack
//! ```

mod array;
mod attrs;
mod dim;
mod direct;
mod dlpack;
mod errors;
mod foreign;
mod graph;
mod model;
mod module;
mod ops;
mod program;
mod threads;
mod view;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::array::{PyArray, array};
    #[pymodule_export]
    use super::dim::{PyDim, shape};
    #[pymodule_export]
    use super::errors::RcError;
    #[pymodule_export]
    use super::foreign::serve;
    #[pymodule_export]
    use super::graph::{PyGraph, PyValue};
    #[pymodule_export]
    use super::model::PyModel;
    #[pymodule_export]
    use super::module::{PyCompiling, PyModule, cached_graph, pipeline, versions};
    #[pymodule_export]
    use super::ops::operations;
    #[pymodule_export]
    use super::program::PyProgram;
    #[pymodule_export]
    use super::threads::prepare;
    #[pymodule_export]
    use super::threads::share_threads;
    use super::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, pyo3::types::PyModule>) -> PyResult<()> {
        rc::register();
        Ok(())
    }
}
