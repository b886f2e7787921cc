//! The tensors of a call, there while they are used: a result is made before the first step that writes to it, an argument that the caller
//! does not hold is let go after the last that reads it. Of a backward pass, gradients then lie where activations were.

use super::Call;
use super::inputs::Inputs;
use super::returns::Return;
use super::sizes::Sizes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rc_runtime::program::Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens before a step.
#[derive(Default)]
pub struct Turn {
    /// Results that are made.
    makes: Vec<usize>,
    /// Arguments that are let go.
    leaves: Vec<usize>,
}

/// What happens before each step, and after the last. `args`: the argument of each input.
pub fn turns(program: Option<&Program>, args: &[usize], returns: &[Return]) -> Vec<Turn> {
    let Some(program) = program else { return Vec::new() };
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
    turns
}

/// Arguments and results of a call.
pub struct Tensors<'a> {
    call: &'a Call,
    turns: &'a [Turn],
    device: (i32, i32),
    sizes: Arc<Sizes>,
    args: Vec<Option<Py<PyAny>>>,
    results: Vec<Option<Py<PyAny>>>,
    /// Of the results, once they are made.
    pub addresses: Arc<[AtomicU64]>,
}

impl<'a> Tensors<'a> {
    pub fn new(
        call: &'a Call,
        turns: &'a [Turn],
        device: (i32, i32),
        inputs: &Inputs<'_>,
        args: Bound<'_, PyTuple>,
    ) -> Tensors<'a> {
        let count = call.results.len();
        Tensors {
            call,
            turns,
            device,
            sizes: inputs.sizes.clone(),
            args: args.iter().map(|arg| Some(arg.unbind())).collect(),
            results: (0..count).map(|_| None).collect(),
            addresses: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
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
        if turn.makes.is_empty() && turn.leaves.is_empty() {
            return Ok(());
        }
        let done = Python::attach(|py| {
            for &arg in &turn.leaves {
                // The program's own tensors come after the arguments.
                self.args.get_mut(arg).map(Option::take);
            }
            turn.makes.iter().try_for_each(|&result| self.make(py, result))
        });
        done.map_err(|error| {
            *failed = Some(error);
            rc_runtime::Error::Invalid("a result cannot be made".into())
        })
    }

    /// Makes all results.
    pub fn take_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let turns = self.turns;
        turns.iter().flat_map(|turn| &turn.makes).try_for_each(|&result| self.make(py, result))
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
