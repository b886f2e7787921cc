//! Memory of large results: a call writes to what the results of earlier calls had, once nobody else has it. The system's own memory would cost a fault for
//! each of its pages, which takes longer than many a kernel.

use crate::dlpack::DlTensor;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a result from which on its memory is kept. Smaller ones come from memory that the allocator has.
const LEAST: usize = 1 << 20;
/// Bytes of the largest result whose memory is kept.
const MOST: usize = 256 << 20;
/// How many memories a result has: a caller may hold the last result while it calls for the next.
const EACH: usize = 2;

/// For each result of a program, what its memory was at the last calls.
pub struct Spares {
    of: Vec<Mutex<Vec<Memory>>>,
    functions: Functions,
}

/// PyTorch's.
struct Functions {
    /// How many hold a storage.
    holders: Py<PyAny>,
    /// Another tensor, no view of the first, on its storage.
    reinterpret: Py<PyAny>,
    /// Whether tensors are made for inference alone.
    in_inference: Py<PyAny>,
}

/// A tensor that nobody sees, whose storage is that of a result.
struct Memory {
    tensor: Py<PyAny>,
    /// The storage as Python has it, and what PyTorch's functions know it by.
    storage: Py<PyAny>,
    handle: Py<PyAny>,
    /// What [`Spares::holders`] says where nobody else has it.
    alone: [usize; 2],
    address: usize,
    bytes: usize,
    inference: bool,
}

#[derive(PartialEq)]
enum Use {
    Free,
    Taken,
    /// It lies elsewhere: it was resized, or is shared with other processes.
    Moved,
}

impl Spares {
    pub fn new(py: Python<'_>, results: usize) -> PyResult<Spares> {
        let guards = py.import("torch._C._dynamo.guards")?;
        let functions = Functions {
            holders: py.import("torch._C")?.getattr("_storage_Use_Count")?.unbind(),
            reinterpret: guards.getattr("_reinterpret_tensor")?.unbind(),
            in_inference: py.import("torch")?.getattr("is_inference_mode_enabled")?.unbind(),
        };
        Ok(Spares { of: (0..results).map(|_| Mutex::default()).collect(), functions })
    }

    pub fn wants(bytes: usize) -> bool {
        (LEAST..=MOST).contains(&bytes)
    }

    fn used(&self, py: Python<'_>, memory: &Memory) -> PyResult<Use> {
        let place = memory.tensor.bind(py).call_method0(intern!(py, "data_ptr"))?;
        if place.extract::<usize>()? != memory.address {
            return Ok(Use::Moved);
        }
        let holders = self.holders(memory.storage.bind(py), memory.handle.bind(py))?;
        Ok(if holders == memory.alone { Use::Free } else { Use::Taken })
    }

    /// How many hold a storage: in PyTorch, and in Python, where all that ask a tensor for its storage have the same object.
    fn holders(&self, storage: &Bound<'_, PyAny>, handle: &Bound<'_, PyAny>) -> PyResult<[usize; 2]> {
        let count = self.functions.holders.bind(storage.py()).call1((handle,))?.extract()?;
        // SAFETY: the object is held, and so is the interpreter.
        Ok([count, unsafe { pyo3::ffi::Py_REFCNT(storage.as_ptr()) } as usize])
    }

    fn in_inference(&self, py: Python<'_>) -> PyResult<bool> {
        self.functions.in_inference.bind(py).call0()?.extract()
    }

    /// A tensor on memory of so many bytes that nobody else has. Others that nobody has are given back.
    pub fn take<'py>(
        &self,
        result: usize,
        bytes: usize,
        sizes: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = sizes.py();
        let inference = self.in_inference(py)?;
        let mut found = None;
        self.of(result).retain(|memory| match self.used(py, memory) {
            Ok(Use::Taken) => true,
            Ok(Use::Free) if (memory.bytes, memory.inference) == (bytes, inference) && found.is_none() => {
                found = Some(memory.tensor.clone_ref(py));
                true
            }
            _ => false,
        });
        found.map(|tensor| self.on(tensor.bind(py), sizes, strides)).transpose()
    }

    /// Keeps the memory of a new tensor, and gives the result on it.
    pub fn keep<'py>(
        &self,
        result: usize,
        bytes: usize,
        (tensor, memory): (Bound<'py, PyAny>, DlTensor),
        sizes: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = sizes.py();
        let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
        let handle = storage.getattr(intern!(py, "_cdata"))?;
        let (address, inference, alone) =
            (memory.address() as usize, self.in_inference(py)?, self.holders(&storage, &handle)?);
        let given = self.on(&tensor, sizes, strides)?;
        let (storage, handle) = (storage.unbind(), handle.unbind());
        let mut kept = self.of(result);
        if kept.len() == EACH {
            kept.remove(0);
        }
        kept.push(Memory { tensor: tensor.unbind(), storage, handle, alone, address, bytes, inference });
        Ok(given)
    }

    fn on<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        sizes: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.functions.reinterpret.bind(tensor.py()).call1((tensor, sizes, strides, 0))
    }

    /// Bytes that nobody else has.
    pub fn bytes(&self, py: Python<'_>) -> usize {
        let free = |memory: &Memory| self.used(py, memory).is_ok_and(|used| used == Use::Free);
        let of = |i: usize| self.of(i).iter().filter(|memory| free(memory)).map(|memory| memory.bytes).sum::<usize>();
        (0..self.of.len()).map(of).sum()
    }

    pub fn forget(&self) {
        (0..self.of.len()).for_each(|i| self.of(i).clear());
    }

    fn of(&self, result: usize) -> MutexGuard<'_, Vec<Memory>> {
        self.of[result].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
