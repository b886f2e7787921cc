//! The tensors of a call, there while they are used: a result is made before the first step that writes to it, an argument that the caller
//! does not hold is let go after the last that reads it, and on a GPU the slabs of the arena are made and let go in the same way. Of a backward pass,
//! gradients then lie where activations were.

use super::Call;
use super::inputs::Inputs;
use super::returns::Return;
use super::sizes::Sizes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rc_runtime::program::Program;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What happens before a step.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Turn {
    /// Results that are made.
    makes: Vec<usize>,
    /// Arguments that are let go.
    leaves: Vec<usize>,
    /// Slabs of the arena that are made, and that are let go.
    begins: Vec<usize>,
    ends: Vec<usize>,
}

impl Turn {
    fn is_empty(&self) -> bool {
        [&self.makes, &self.leaves, &self.begins, &self.ends].iter().all(|list| list.is_empty())
    }
}

/// What happens before each step of a program, and after the last.
#[derive(Default)]
pub struct Turns {
    each: Vec<Turn>,
    /// On a GPU: for calls that hold arguments alone, and for those that do not.
    alone: OnceLock<Joined>,
    shared: OnceLock<Joined>,
}

/// Turns that come together before few steps, so that launches between them are one CUDA graph.
pub struct Joined {
    pub turns: Vec<Turn>,
    /// These steps.
    pub stops: Vec<usize>,
}

/// Of all memory that a call lets go of, one in so many parts may be held until the next stop.
const PARTS: usize = 16;

/// Memory that is worth a stop, in bytes.
const WORTH: usize = 1 << 20;

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
}

/// Joins turns; `freed` says how many bytes it frees to let go of an argument, `slabs` those of slabs of the arena.
fn join(turns: &[Turn], freed: impl Fn(usize) -> usize, slabs: &[usize]) -> Joined {
    let ended = |slab: usize| slabs.get(slab).copied().unwrap_or(0);
    let bytes = |turn: &Turn| {
        turn.leaves.iter().map(|&arg| freed(arg)).sum::<usize>()
            + turn.ends.iter().map(|&slab| ended(slab)).sum::<usize>()
    };
    let least = (turns.iter().map(bytes).sum::<usize>() / PARTS).max(WORTH);
    let (mut stops, mut waiting) = (vec![0], 0);
    for (step, turn) in turns.iter().enumerate().skip(1) {
        waiting += bytes(turn);
        // What is made here may lie where something was that is let go.
        if waiting >= least && !(turn.makes.is_empty() && turn.begins.is_empty()) {
            stops.push(step);
            waiting = 0;
        }
    }
    let mut joined = vec![Turn::default(); turns.len()];
    for (step, turn) in turns.iter().enumerate() {
        let before = stops.partition_point(|&stop| stop <= step) - 1;
        joined[stops[before]].makes.extend(&turn.makes);
        joined[stops[before]].begins.extend(&turn.begins);
        let after = if stops[before] == step { Some(&step) } else { stops.get(before + 1) };
        let after = after.copied().unwrap_or(turns.len() - 1);
        joined[after].leaves.extend(&turn.leaves);
        joined[after].ends.extend(&turn.ends);
    }
    Joined { turns: joined, stops }
}

/// Arguments and results of a call.
pub struct Tensors<'a> {
    call: &'a Call,
    all: &'a Turns,
    turns: &'a [Turn],
    device: (i32, i32),
    sizes: Arc<Sizes>,
    args: Vec<Option<Py<PyAny>>>,
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
    pub fn new(
        call: &'a Call,
        all: &'a Turns,
        device: (i32, i32),
        inputs: &Inputs<'_>,
        args: Bound<'_, PyTuple>,
    ) -> Tensors<'a> {
        let count = call.results.len();
        Tensors {
            call,
            all,
            turns: &all.each,
            device,
            sizes: inputs.sizes.clone(),
            args: args.iter().map(|arg| Some(arg.unbind())).collect(),
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
        let arg = self.args.get(i).and_then(Option::as_ref).map(|arg| arg.bind(py).clone());
        arg.ok_or_else(|| PyTypeError::new_err(format!("argument {i} is missing: {} were given", self.args.len())))
    }

    /// A result that was made.
    pub fn result<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyAny>> {
        let result = self.results.get(i).and_then(Option::as_ref).map(|result| result.bind(py).clone());
        result.ok_or_else(|| PyTypeError::new_err(format!("there is no result {i}")))
    }

    /// Makes and lets go what a step asks for; an error of PyTorch's is put aside.
    pub fn between(&mut self, step: usize, failed: &mut Option<PyErr>) -> rc_runtime::Result<()> {
        let turn = &self.turns[step];
        if turn.is_empty() {
            return Ok(());
        }
        let done = Python::attach(|py| {
            for &arg in &turn.leaves {
                // The program's own tensors come after the arguments.
                self.args.get_mut(arg).map(Option::take);
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

    /// Joins turns for a GPU, and says at which steps they come.
    pub fn join(&mut self, _attached: Python<'_>) -> &'a [usize] {
        // SAFETY: the interpreter is held, and the object is there.
        let held = |arg: &Py<PyAny>| unsafe { pyo3::ffi::Py_REFCNT(arg.as_ptr()) };
        let alone: Vec<bool> = self.args.iter().map(|arg| arg.as_ref().is_some_and(|arg| held(arg) == 1)).collect();
        let (call, sizes, slabs) = (self.call, &self.sizes, &self.slabs.bytes);
        let freed = |arg: usize| {
            let inputs = call.inputs.iter().zip(&sizes.bytes).filter(|(input, _)| input.arg == arg);
            if alone.get(arg) == Some(&true) { inputs.map(|(_, bytes)| bytes).sum() } else { 0 }
        };
        let joined = match alone.contains(&true) {
            true => self.all.alone.get_or_init(|| join(&self.all.each, freed, slabs)),
            false => self.all.shared.get_or_init(|| join(&self.all.each, |_| 0, slabs)),
        };
        self.turns = &joined.turns;
        &joined.stops
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
        let (sizes, strides) = &self.sizes.results[i];
        let (sizes, strides, dtype) = (sizes.bind(py), strides.bind(py), self.call.dtypes[i].bind(py));
        let (result, memory) = self.call.empty(self.device, sizes, strides, dtype)?;
        self.addresses[i].store(memory.address() as u64, Ordering::Relaxed);
        self.results[i] = Some(result.unbind());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(makes: &[usize], leaves: &[usize]) -> Turn {
        Turn { makes: makes.to_vec(), leaves: leaves.to_vec() }
    }

    #[test]
    fn turns_that_free_nothing_are_one_stop() {
        let turns = [turn(&[0], &[]), turn(&[1], &[5]), turn(&[], &[]), turn(&[2], &[6]), turn(&[], &[7])];
        let joined = join(&turns, |_| 0);
        assert_eq!(joined.stops, [0]);
        assert_eq!(joined.turns[0], turn(&[0, 1, 2], &[]));
        assert_eq!(joined.turns[4], turn(&[], &[5, 6, 7]));
        assert!(joined.turns[1..4].iter().all(|turn| *turn == Turn::default()));
    }

    #[test]
    fn results_lie_where_arguments_were() {
        let turns =
            [turn(&[0], &[4]), turn(&[], &[5]), turn(&[1], &[6]), turn(&[2], &[]), turn(&[3], &[7]), turn(&[], &[8])];
        let joined = join(&turns, |arg| if arg == 8 { 0 } else { WORTH });
        assert_eq!(joined.stops, [0, 2, 4], "nothing is let go before step 3");
        assert_eq!(joined.turns[0], turn(&[0], &[4]));
        assert_eq!(joined.turns[2], turn(&[1, 2], &[5, 6]));
        assert_eq!(joined.turns[4], turn(&[3], &[7]));
        assert_eq!(joined.turns[5], turn(&[], &[8]));
        assert_eq!(join(&turns, |_| WORTH / 8).stops, [0], "too little");
    }

    #[test]
    fn there_are_few_stops() {
        let turns: Vec<Turn> = (0..500).map(|i| turn(&[i], &[i])).collect();
        let joined = join(&turns, |_| 4 * WORTH);
        assert!((PARTS - 1..=PARTS + 1).contains(&joined.stops.len()), "{:?}", joined.stops);
        let all = |of: fn(&Turn) -> &Vec<usize>| joined.turns.iter().flat_map(of).copied().collect::<Vec<_>>();
        assert!(all(|turn| &turn.makes).into_iter().eq(0..500) && all(|turn| &turn.leaves).into_iter().eq(0..500));
    }
}
