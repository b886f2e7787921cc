//! What follows from the weights alone, such as packed matrices: computed at the first call, and again at a call whose weights are others.
//!
//! Weights are the same tensors as before if they are the same objects at the same addresses, of which PyTorch counts the same number of writes
//! (`_version`: optimizers and `load_state_dict` write so), and if a few of their elements are what they were. The last is for writes that
//! PyTorch does not count, such as those to `weight.data`.

use super::{Addresses, Call, Inputs};
use crate::errors::plain;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use rc_dialects::func::Initializer;
use rc_runtime::Tensor;
use rc_runtime::program::{Bindings, CpuProgram, TensorSpec};
use rc_runtime::tensor::byte_size;
use std::sync::{Arc, Mutex, MutexGuard};

/// The function that computes it, and what it computed last.
pub struct Kept {
    pub init: Initializer,
    pub program: CpuProgram,
    last: Last,
}

type Last = Arc<Mutex<Option<Arc<Values>>>>;

/// What follows from these weights.
pub struct Values {
    weights: Vec<Weight>,
    results: Vec<Tensor>,
}

/// A weight as it was read.
struct Weight {
    object: Py<PyWeakrefReference>,
    address: *mut u8,
    bytes: usize,
    version: i64,
    sample: u64,
}

// SAFETY: the address is compared, not read.
unsafe impl Send for Weight {}
// SAFETY: as above.
unsafe impl Sync for Weight {}

/// Words of a weight that are looked at: from its first to its last, evenly.
const SAMPLES: usize = 16;

impl Kept {
    pub fn new(init: Initializer, program: CpuProgram) -> Kept {
        Kept { init, program, last: Last::default() }
    }

    /// Bytes that are kept at the moment.
    pub fn bytes(&self) -> usize {
        locked(&self.last).as_ref().map_or(0, |values| values.results.iter().map(|tensor| tensor.bytes().len()).sum())
    }

    /// Gives the memory back; the next call computes anew.
    pub fn forget(&self) {
        *locked(&self.last) = None;
    }

    /// The values for a call's weights. Whoever runs with them holds them, so that a call meanwhile with other weights does not write to them.
    pub(super) fn values(&self, call: &Call, args: &Bound<'_, PyTuple>, inputs: &Inputs<'_>) -> PyResult<Arc<Values>> {
        let py = args.py();
        let last = locked(&self.last).clone();
        if let Some(values) = last.filter(|values| self.are_same(call, args, inputs, values)) {
            return Ok(values);
        }
        // Counted before the elements are read: a write meanwhile is then seen at the next call.
        let weights = self.weights(call, args, inputs);
        let old = locked(&self.last).take();
        let results = self.compute(py, inputs, old).map_err(|e| plain(py, e))?;
        let values = Arc::new(Values { weights: weights.unwrap_or_default(), results });
        *locked(&self.last) = Some(values.clone());
        Ok(values)
    }

    fn are_same(&self, call: &Call, args: &Bound<'_, PyTuple>, inputs: &Inputs<'_>, values: &Values) -> bool {
        let py = args.py();
        values.weights.len() == self.init.args.len()
            && self.init.args.iter().zip(&values.weights).all(|(&i, weight)| {
                let Ok(object) = args.get_borrowed_item(call.inputs[i].arg) else { return false };
                let same = weight.object.bind(py).upgrade().is_some_and(|known| known.is(&*object));
                // A tensor that is copied for every call has another address at each.
                same && inputs.addresses[i] == weight.address
                    && version(&object) == Some(weight.version)
                    && sample(inputs.addresses[i], weight.bytes) == weight.sample
            })
    }

    /// The weights as they are now; none where PyTorch counts no writes, as for tensors made in inference mode.
    fn weights(&self, call: &Call, args: &Bound<'_, PyTuple>, inputs: &Inputs<'_>) -> Option<Vec<Weight>> {
        let forget = self.forgetting(args.py()).ok()?;
        let weight = |(&i, spec): (&usize, &TensorSpec)| {
            let object = args.get_item(call.inputs[i].arg).ok()?;
            let sizes = spec.sizes(&Bindings::default()).ok()?;
            let (address, bytes) = (inputs.addresses[i], byte_size(spec.dtype, &sizes).ok()?);
            Some(Weight {
                version: version(&object)?,
                object: PyWeakrefReference::new_with(&object, &forget).ok()?.unbind(),
                address,
                bytes,
                sample: sample(address, bytes),
            })
        };
        self.init.args.iter().zip(&self.program.program().signature.inputs).map(weight).collect()
    }

    /// What a weight that goes away calls: values of weights that are no more are given back.
    fn forgetting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCFunction>> {
        let last = Arc::downgrade(&self.last);
        PyCFunction::new_closure(py, None, None, move |_, _| {
            // Whoever has the lock is about to look at the weights.
            if let Some(last) = last.upgrade()
                && let Ok(mut last) = last.try_lock()
            {
                *last = None;
            }
        })
    }

    /// Runs the initializer, into the memory of `old` values where nobody runs with these.
    fn compute(
        &self,
        py: Python<'_>,
        inputs: &Inputs<'_>,
        old: Option<Arc<Values>>,
    ) -> rc_runtime::Result<Vec<Tensor>> {
        let bindings = Bindings::default();
        let mut results = match old.and_then(Arc::into_inner) {
            Some(values) => values.results,
            None => {
                let new = |spec: &TensorSpec| Tensor::zeros(spec.dtype, &spec.sizes(&Bindings::default())?);
                self.program.program().signature.outputs.iter().map(new).collect::<rc_runtime::Result<_>>()?
            }
        };
        let from: Vec<*mut u8> = self.init.args.iter().map(|&i| inputs.addresses[i]).collect();
        let to = results.iter_mut().map(Tensor::as_mut_ptr).collect::<rc_runtime::Result<Vec<*mut u8>>>()?;
        let (from, to) = (Addresses(&from), Addresses(&to));
        // SAFETY: the initializer's arguments are inputs, which were checked; its results are nobody else's.
        py.detach(|| unsafe { self.program.run_at(&bindings, from.constant(), to.all()) })?;
        self.program.release();
        Ok(results)
    }
}

impl Values {
    /// Where they lie, in the order of the function's last inputs.
    pub fn addresses(&self) -> impl Iterator<Item = *mut u8> {
        self.results.iter().map(|tensor| tensor.as_ptr().cast_mut())
    }
}

fn locked(last: &Last) -> MutexGuard<'_, Option<Arc<Values>>> {
    last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How often PyTorch saw the tensor written to.
fn version(tensor: &Bound<'_, PyAny>) -> Option<i64> {
    tensor.getattr(intern!(tensor.py(), "_version")).ok()?.extract().ok()
}

/// A hash of some words of a tensor.
fn sample(address: *mut u8, bytes: usize) -> u64 {
    let words = bytes / 4;
    let read = |i: usize| {
        let word = i * (words - 1) / (SAMPLES - 1);
        // SAFETY: the caller holds a tensor of that many bytes.
        u64::from(unsafe { address.cast_const().cast::<u32>().add(word).read_unaligned() })
    };
    let samples = if words == 0 { 0 } else { SAMPLES };
    (0..samples).fold(0, |hash: u64, i| (hash ^ read(i)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}
