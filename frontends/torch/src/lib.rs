//! The native half of the Python package `rc`: building a module, compiling it, running it on PyTorch's tensors.
//!
//! ```text
//! Graph(symbols, args)      a function under construction; one call, `op`, makes any operation
//!   .finish(results)        the module
//! Module.compile(target)    machine code
//! Program(…)(tensors)       runs on the tensors' own memory, exchanged by DLPack's C functions
//! ```

mod attrs;
mod dim;
mod dlpack;
mod errors;
mod graph;
mod module;
mod program;
mod threads;
mod view;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::dim::PyDim;
    #[pymodule_export]
    use super::errors::RcError;
    #[pymodule_export]
    use super::graph::{PyGraph, PyValue};
    #[pymodule_export]
    use super::module::{PyModule, cached_graph};
    #[pymodule_export]
    use super::program::PyProgram;
    #[pymodule_export]
    use super::threads::prepare;
    use super::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, pyo3::types::PyModule>) -> PyResult<()> {
        rc::register();
        Ok(())
    }
}
