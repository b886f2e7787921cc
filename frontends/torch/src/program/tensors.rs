//! The tensors of a call, there while they are used: a result is made before the first step that writes to it, an argument that the caller
//! does not hold is let go after the last that reads it, and on a GPU the slabs of the arena are made and let go in the same way. Of a backward pass,
//! gradients then lie where activations were.

use super::Call;
use super::inputs::Inputs;
use super::returns::Return;
use super::sizes::Sizes;
use super::spares::Spares;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rc_runtime::program::{Joined, Program, Turn, join};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What happens before each step of a program, and after the last.
#[derive(Default)]
pub struct Turns {
    each: Vec<Turn>,
    /// Joined for a GPU, and the bytes that they were joined for: of calls that let go of memory, and of those that do not.
    frees: Mutex<Option<(usize, Arc<Joined>)>>,
    holds: OnceLock<Arc<Joined>>,
}

impl Turns {
    /// `args`: the argument of each input.
    pub fn new(program: Option<&Program>, args: &[usize], returns: &[Return]) -> Turns {
        let Some(program) = program else { return Turns::default() };
        let uses = program.uses();
        let mut turns: Vec<Turn> = (0..=program.steps.len()).map(|_| Turn::default()).collect();
        for (result, first) in uses.first_output.iter().enumerate().filter(|&(i, _)| program.left_in[i].is_none()) {
            turns[first.unwrap_or(0)].makes.push(result);
        }
        for (input, (&arg, last)) in args.iter().zip(&uses.last_input).enumerate() {
            // What is written to may be a copy, which goes to the argument in the end.
            if !program.updated_inputs.contains(&input) && returns.iter().all(|r| r.arg() != Some(arg)) {
                turns[last.map_or(0, |step| step + 1)].leaves.push(arg);
            }
        }
        for (slab, uses) in uses.slabs.iter().enumerate() {
            let Some((first, last)) = *uses else { continue };
            turns[first].begins.push(slab);
            turns[last + 1].ends.push(slab);
        }
        Turns { each: turns, ..Turns::default() }
    }

    /// Joined for a call that lets go of so many bytes of arguments; `results` and `slabs` are the bytes of these.
    fn joined(&self, bytes: usize, freed: impl Fn(usize) -> usize, results: &[usize], slabs: &[usize]) -> Arc<Joined> {
        if bytes == 0 {
            return self.holds.get_or_init(|| Arc::new(join(&self.each, freed, results, slabs))).clone();
        }
        let mut known = self.frees.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((before, joined)) if bytes <= before.saturating_mul(2) => joined.clone(),
            _ => known.insert((bytes, Arc::new(join(&self.each, freed, results, slabs)))).1.clone(),
        }
    }
}

/// The arguments of a call.
pub enum Args {
    /// The caller holds them, so that none can be let go.
    Held(Py<PyTuple>),
    /// Each until it is let go.
    Given(Vec<Option<Py<PyAny>>>),
}

impl Args {
    /// Those of a tuple that the caller holds, or that nobody else does.
    pub fn new(args: Bound<'_, PyTuple>, held: bool) -> Args {
        if held { Args::Held(args.unbind()) } else { Args::Given(args.iter().map(|arg| Some(arg.unbind())).collect()) }
    }

    fn count(&self, py: Python<'_>) -> usize {
        match self {
            Args::Held(args) => args.bind(py).len(),
            Args::Given(args) => args.len(),
        }
    }

    /// One that was not let go.
    fn get<'py>(&self, py: Python<'py>, i: usize) -> Option<Bound<'py, PyAny>> {
        match self {
            Args::Held(args) => args.bind(py).get_item(i).ok(),
            Args::Given(args) => args.get(i)?.as_ref().map(|arg| arg.bind(py).clone()),
        }
    }

    fn let_go(&mut self, i: usize) {
        if let Args::Given(args) = self {
            args.get_mut(i).map(Option::take);
        }
    }

    /// Whether each goes away when it is let go; nothing where none is.
    fn alone(&self, py: Python<'_>) -> Vec<bool> {
        let Args::Given(args) = self else { return Vec::new() };
        // SAFETY: the object is held, and so is the interpreter.
        let count = |arg: &Py<PyAny>| unsafe { pyo3::ffi::Py_REFCNT(arg.bind(py).as_ptr()) };
        args.iter().map(|arg| arg.as_ref().is_some_and(|arg| count(arg) == 1)).collect()
    }
}

/// Arguments and results of a call.
pub struct Tensors<'a> {
    call: &'a Call,
    turns: &'a Turns,
    joined: Option<Arc<Joined>>,
    device: (i32, i32),
    sizes: Arc<Sizes>,
    args: Args,
    results: Vec<Option<Py<PyAny>>>,
    /// Of the results, once they are made.
    pub addresses: Arc<[AtomicU64]>,
    slabs: Slabs,
}

/// The slabs of an arena: their bytes, and the memory of those that are in use.
#[derive(Default)]
struct Slabs {
    bytes: Vec<usize>,
    tensors: Vec<Option<Py<PyAny>>>,
    addresses: Arc<[AtomicU64]>,
}

impl<'a> Tensors<'a> {
    pub fn new(call: &'a Call, turns: &'a Turns, device: (i32, i32), inputs: &Inputs<'_>, args: Args) -> Tensors<'a> {
        let count = call.results.len();
        Tensors {
            call,
            turns,
            joined: None,
            device,
            sizes: inputs.sizes.clone(),
            args,
            results: (0..count).map(|_| None).collect(),
            addresses: (0..count).map(|_| AtomicU64::new(0)).collect(),
            slabs: Slabs::default(),
        }
    }

    /// Has the slabs of a program's arena made and let go between its steps: gives where their addresses are.
    pub fn hold_slabs(&mut self, program: &Program) -> Arc<[AtomicU64]> {
        let bytes: Vec<usize> = program.slabs.iter().map(|(from, to)| to - from).collect();
        let addresses: Arc<[AtomicU64]> = bytes.iter().map(|_| AtomicU64::new(0)).collect();
        self.slabs = Slabs { tensors: bytes.iter().map(|_| None).collect(), bytes, addresses: addresses.clone() };
        addresses
    }

    /// An argument that was not let go.
    pub fn arg<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyAny>> {
        let missing = || format!("argument {i} is missing: {} were given", self.args.count(py));
        self.args.get(py, i).ok_or_else(|| PyTypeError::new_err(missing()))
    }

    /// A result that was made.
    pub fn result<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyAny>> {
        let result = self.results.get(i).and_then(Option::as_ref).map(|result| result.bind(py).clone());
        result.ok_or_else(|| PyTypeError::new_err(format!("there is no result {i}")))
    }

    /// Makes and lets go what a step asks for; an error of PyTorch's is put aside.
    pub fn between(&mut self, step: usize, failed: &mut Option<PyErr>) -> rc_runtime::Result<()> {
        let joined = self.joined.clone();
        let turn = &joined.as_ref().map_or(&self.turns.each, |joined| &joined.turns)[step];
        if turn.is_empty() {
            return Ok(());
        }
        let done = Python::attach(|py| {
            for &arg in &turn.leaves {
                // The program's own tensors come after the arguments.
                self.args.let_go(arg);
            }
            for &slab in &turn.ends {
                self.slabs.tensors.get_mut(slab).map(Option::take);
            }
            turn.begins.iter().try_for_each(|&slab| self.begin(py, slab))?;
            turn.makes.iter().try_for_each(|&result| self.make(py, result))
        });
        done.map_err(|error| {
            *failed = Some(error);
            rc_runtime::Error::Invalid("a result cannot be made".into())
        })
    }

    /// Joins turns for a GPU. A call that lets go of more than twice the memory of those before has them joined anew, at more stops.
    pub fn join(&mut self, py: Python<'_>) -> Arc<Joined> {
        let alone = self.args.alone(py);
        let mut bytes = vec![0; alone.len()];
        for (input, size) in self.call.inputs.iter().zip(&self.sizes.bytes) {
            if alone.get(input.arg) == Some(&true) {
                bytes[input.arg] += size;
            }
        }
        let freed = |arg: usize| bytes.get(arg).copied().unwrap_or(0);
        let joined = self.turns.joined(bytes.iter().sum(), freed, &self.sizes.result_bytes, &self.slabs.bytes);
        self.joined.insert(joined).clone()
    }

    /// Makes a slab, where slabs are held apart.
    fn begin(&mut self, py: Python<'_>, slab: usize) -> PyResult<()> {
        let Some(&bytes) = self.slabs.bytes.get(slab) else { return Ok(()) };
        let (tensor, memory) = self.call.bytes(py, self.device, bytes)?;
        self.slabs.addresses[slab].store(memory.address() as u64, Ordering::Relaxed);
        self.slabs.tensors[slab] = Some(tensor.unbind());
        Ok(())
    }

    fn make(&mut self, py: Python<'_>, i: usize) -> PyResult<()> {
        let bytes = self.sizes.result_bytes[i];
        let spares = self.call.spares.as_ref().filter(|_| Spares::wants(bytes));
        let (sizes, strides) = &self.sizes.results[i];
        let (sizes, strides, dtype) = (sizes.bind(py), strides.bind(py), self.call.dtypes[i].bind(py));
        let spare = spares.map(|spares| spares.take(i, bytes, sizes, strides)).transpose()?.flatten();
        let (result, memory) = match (spare, spares) {
            (Some(spare), _) => {
                let memory = self.call.exchange.tensor(&spare)?;
                (spare, memory)
            }
            (None, Some(spares)) => {
                let new = self.call.empty(self.device, sizes, strides, dtype)?;
                let memory = new.1;
                (spares.keep(i, bytes, new, sizes, strides)?, memory)
            }
            (None, None) => self.call.empty(self.device, sizes, strides, dtype)?,
        };
        self.addresses[i].store(memory.address() as u64, Ordering::Relaxed);
        self.results[i] = Some(result.unbind());
        Ok(())
    }
}
