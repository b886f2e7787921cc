//! Memory of large results: a call writes to what the results of earlier calls had, once nobody else has it. The system's own memory would cost a fault for
//! each of its pages, which takes longer than many a kernel.

use pyo3::intern;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a result from which on its memory is kept. Smaller ones come from memory that the allocator has.
const LEAST: usize = 256 << 10;
/// Bytes of the largest result whose memory is kept.
const MOST: usize = 256 << 20;
/// How many memories a result has: a caller may hold the last result while it calls for the next.
const EACH: usize = 2;

/// For each result of a program, what its memory was at the last calls.
pub struct Spares {
    of: Vec<Mutex<Vec<Memory>>>,
    /// PyTorch's function that says how many hold a storage.
    holders: Py<PyAny>,
}

/// A storage of PyTorch's, as it was made.
struct Memory {
    storage: Py<PyAny>,
    /// What PyTorch's functions know it by.
    handle: Py<PyAny>,
    address: usize,
    bytes: usize,
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
        let holders = py.import("torch._C")?.getattr("_storage_Use_Count")?.unbind();
        Ok(Spares { of: (0..results).map(|_| Mutex::default()).collect(), holders })
    }

    fn used(&self, py: Python<'_>, memory: &Memory) -> PyResult<Use> {
        let place = memory.storage.bind(py).call_method0(intern!(py, "data_ptr"))?;
        if place.extract::<usize>()? != memory.address {
            return Ok(Use::Moved);
        }
        // Tensors hold the storage; whoever asked for it in Python has the same object as this.
        // SAFETY: the object is held, and so is the interpreter.
        let alone = unsafe { pyo3::ffi::Py_REFCNT(memory.storage.as_ptr()) } == 1;
        let holders: usize = self.holders.bind(py).call1((&memory.handle,))?.extract()?;
        Ok(if alone && holders == 1 { Use::Free } else { Use::Taken })
    }

    pub fn wants(bytes: usize) -> bool {
        (LEAST..=MOST).contains(&bytes)
    }

    /// A storage of so many bytes that nobody else has. Others that nobody has are given back.
    pub fn take<'py>(&self, py: Python<'py>, result: usize, bytes: usize) -> Option<Bound<'py, PyAny>> {
        let mut found = None;
        self.of(result).retain(|memory| match self.used(py, memory) {
            Ok(Use::Taken) => true,
            Ok(Use::Free) if memory.bytes == bytes && found.is_none() => {
                found = Some(memory.storage.bind(py).clone());
                true
            }
            _ => false,
        });
        found
    }

    /// Keeps the memory of a new result.
    pub fn keep(&self, result: usize, tensor: &Bound<'_, PyAny>, address: usize, bytes: usize) -> PyResult<()> {
        let storage = tensor.call_method0(intern!(tensor.py(), "untyped_storage"))?;
        let handle = storage.getattr(intern!(tensor.py(), "_cdata"))?.unbind();
        let mut kept = self.of(result);
        if kept.len() == EACH {
            kept.remove(0);
        }
        kept.push(Memory { storage: storage.unbind(), handle, address, bytes });
        Ok(())
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
