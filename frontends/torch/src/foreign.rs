//! PyTorch's operations in the middle of compiled programs: those that rc leaves to PyTorch, custom ones and collectives.

use crate::dlpack::{CPU, CUDA, Exchange};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rc_runtime::foreign::{Buffer, Call, Failure, On, register};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Has `run(operation, config, sizes, args, results)` do what programs call by the names `torch:…`: it reads the tensors `args` and writes to the tensors
/// `results`, whose memory is the program's.
#[pyfunction]
pub fn serve(py: Python<'_>, run: Py<PyAny>) -> PyResult<()> {
    let exchange = Exchange::of_torch(py)?;
    register("torch", move |call: &Call| {
        Python::attach(|py| called(py, &exchange, &run, call)).map_err(|error| Box::new(error) as Failure)
    });
    Ok(())
}

fn called(py: Python<'_>, exchange: &Exchange, run: &Py<PyAny>, call: &Call) -> PyResult<()> {
    let name = call.function.strip_prefix("torch:").unwrap_or(call.function);
    let device = match call.on {
        On::Cpu => (CPU, 0),
        On::Cuda { device, .. } => (CUDA, device as i32),
    };
    let held = Arc::new(AtomicUsize::new(0));
    {
        let tensor = |buffer: &Buffer| {
            let shape = buffer.shape.iter().map(|&n| n as i64).collect();
            // SAFETY: the memory is there for the time of the call, after which nobody holds the tensor, or it is an error.
            unsafe { exchange.view(py, buffer.address, device, buffer.dtype, shape, &held) }
        };
        let tensors = |buffers: &[Buffer]| PyList::new(py, buffers.iter().map(tensor).collect::<PyResult<Vec<_>>>()?);
        let (args, results) = (tensors(call.args)?, tensors(call.results)?);
        run.bind(py).call1((name, call.config, call.sizes.to_vec(), args, results))?;
    }
    match held.load(Ordering::Acquire) {
        0 => Ok(()),
        _ => Err(PyRuntimeError::new_err(format!(
            "{name} keeps a view of a tensor that it was given, whose memory is the compiled program's own: it should keep a clone"
        ))),
    }
}
