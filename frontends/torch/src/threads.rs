//! Work without the interpreter's lock.

use crate::errors::plain;
use pyo3::prelude::*;
use rc_runtime::threads;

/// Runs work without the interpreter's lock, on threads that this process has.
pub fn on_team<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| threads::on_team(work)).map_err(|e| plain(py, e))
}

/// Has kernels run on the threads of PyTorch's own loops, where these are OpenMP's.
#[pyfunction]
pub fn share_threads(py: Python<'_>) -> PyResult<bool> {
    Ok(rc_runtime::cpu::share_openmp_of(&crate::direct::library(py)?))
}

/// Lets the threads that compile make ready, while PyTorch traces.
#[pyfunction]
pub fn prepare() {
    // Without threads, compiling says so.
    _ = threads::on_team(rc::prepare);
}
