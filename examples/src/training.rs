//! Training GPT-2 on a text: each byte is a token.

use crate::adamw::{AdamW, Places, add_step};
use crate::gpt2::{Config, loss};
use rc::{Executable, Target};
use rc_ir::{Diagnostic, Module, Severity};
use rc_runtime::safetensors::{self, SafetensorsFile};
use rc_runtime::tensor::Distribution;
use rc_runtime::{DType, Resident, Tensor};
use std::path::Path;

/// What is trained, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub config: Config,
    /// Sequences of a step.
    pub batch: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Of the weights that no file gives.
    pub seed: u64,
    pub rate: f64,
    /// Steps in which the rate grows to what it is.
    pub warmup: usize,
    pub rule: AdamW,
}

impl Plan {
    /// The module with the function `@step`, and where its arguments are.
    ///
    /// # Errors
    /// Sizes that make no model.
    pub fn module(&self) -> Result<(Module, Places), String> {
        let mut module = loss(&self.config, self.batch as i64, self.length as i64)?;
        let places = add_step(&mut module, 2, &self.rule).map_err(|d| d.render())?;
        Ok((module, places))
    }

    /// The rate of a step, counted from 1.
    pub fn rate_of(&self, step: usize) -> f64 {
        self.rate * (step as f64 / self.warmup.max(1) as f64).min(1.0)
    }
}

/// Compiles a step for a machine.
///
/// # Errors
/// The compiler's, as text.
pub fn compile(module: &Module, target: &Target) -> Result<Executable, String> {
    let rendered = |all: &[Diagnostic]| all.iter().map(Diagnostic::render).collect::<String>();
    let compiled = rc::compile_cached(module, target);
    if !compiled.report.succeeded() {
        return Err(rendered(&compiled.report.errors));
    }
    compiled
        .report
        .diagnostics
        .iter()
        .filter(|d| d.severity == Severity::Warning)
        .for_each(|d| eprint!("{}", d.render()));
    Executable::load(&compiled.module, Some("step"), target.machine).map_err(|d| d.render())
}

/// A text as tokens.
pub struct Text {
    tokens: Vec<i64>,
}

impl Text {
    /// # Errors
    /// A text that is too short, or that has tokens which the model does not.
    pub fn new(bytes: &[u8], plan: &Plan) -> Result<Text, String> {
        let vocab = plan.config.vocab;
        if let Some(byte) = bytes.iter().find(|&&byte| i64::from(byte) >= vocab) {
            return Err(format!(
                "the text has the byte {byte}, and the model {vocab} tokens: one for each byte is needed"
            ));
        }
        if bytes.len() < plan.length + 2 {
            let (has, length) = (bytes.len(), plan.length);
            return Err(format!(
                "the text has {has} bytes, too few for sequences of {length}: give at least {}",
                length + 2
            ));
        }
        Ok(Text { tokens: bytes.iter().map(|&byte| i64::from(byte)).collect() })
    }

    /// Tokens of a step, counted from 1, and what follows each. Sequences lie one after another, and begin again where the text ends.
    fn batch(&self, step: usize, plan: &Plan) -> rc_runtime::Result<[Tensor; 2]> {
        let starts = self.tokens.len() - plan.length;
        let first = (step - 1) * plan.batch;
        let rows = |shift: usize| {
            let start = |k: usize| (first + k) * plan.length % starts;
            let row = |k: usize| &self.tokens[start(k) + shift..][..plan.length];
            Tensor::from_slice(&[plan.batch, plan.length], &(0..plan.batch).map(row).collect::<Vec<_>>().concat())
        };
        Ok([rows(0)?, rows(1)?])
    }
}

/// Weights, means, mean squares and the number of steps, as a file has them: the weights under their names, `NAME.mean`, `NAME.square` and `count`.
pub struct State {
    count: Tensor,
    /// Of each weight: its value, its mean, its mean square.
    weights: [Vec<Tensor>; 3],
}

const SUFFIXES: [&str; 3] = ["", ".mean", ".square"];

impl State {
    /// Weights from the plan's seed, as GPT-2 starts: normal with a deviation of 0.02, smaller where a layer adds to the stream; norms 1, biases 0.
    ///
    /// # Errors
    /// Sizes too large for memory.
    pub fn new(plan: &Plan) -> rc_runtime::Result<State> {
        let mut weights: [Vec<Tensor>; 3] = Default::default();
        for (i, (name, shape)) in plan.config.weights().iter().enumerate() {
            let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
            let narrow = if name.ends_with("c_proj.weight") { (2.0 * plan.config.layers as f64).sqrt() } else { 1.0 };
            weights[0].push(match shape.len() {
                1 if name.ends_with(".bias") => Tensor::zeros(DType::F32, &shape)?,
                1 => Tensor::from_slice(&shape, &vec![1.0f32; shape[0]])?,
                _ => Tensor::random(DType::F32, &shape, plan.seed, i as u32, Distribution::Normal(0.0, 0.02 / narrow))?,
            });
            weights[1].push(Tensor::zeros(DType::F32, &shape)?);
            weights[2].push(Tensor::zeros(DType::F32, &shape)?);
        }
        Ok(State { count: Tensor::zeros(DType::F32, &[])?, weights })
    }

    /// What a file has, and for the rest what training starts with: weights alone are the start of training.
    ///
    /// # Errors
    /// A file without the model's weights, or with others of their names.
    pub fn read(path: &Path, plan: &Plan) -> rc_runtime::Result<State> {
        let file = SafetensorsFile::open(path)?;
        let mut state = State::new(plan)?;
        let goes_on = file.contains("count");
        if goes_on {
            state.count = file.tensor_expecting("count", DType::F32, &[])?;
        }
        for (suffix, tensors) in SUFFIXES.iter().zip(&mut state.weights).take(if goes_on { 3 } else { 1 }) {
            for (tensor, (name, shape)) in tensors.iter_mut().zip(plan.config.weights()) {
                let shape: Vec<Option<usize>> = shape.iter().map(|&n| Some(n as usize)).collect();
                *tensor = file.tensor_expecting(&format!("{name}{suffix}"), DType::F32, &shape)?;
            }
        }
        Ok(state)
    }

    /// # Errors
    /// The file system's.
    pub fn write(&self, path: &Path, plan: &Plan) -> rc_runtime::Result<()> {
        let names: Vec<String> = plan.config.weights().into_keys().collect();
        let mut all = vec![("count".to_string(), &self.count)];
        for (suffix, tensors) in SUFFIXES.iter().zip(&self.weights) {
            all.extend(names.iter().map(|name| format!("{name}{suffix}")).zip(tensors));
        }
        let all: Vec<(&str, &Tensor)> = all.iter().map(|(name, tensor)| (name.as_str(), *tensor)).collect();
        safetensors::write(path, &all)
    }

    /// Steps so far.
    pub fn count(&self) -> usize {
        self.count.to_f64()[0] as usize
    }
}

/// A training that runs. Weights stay on the machine between steps.
pub struct Training<'a> {
    plan: &'a Plan,
    text: &'a Text,
    places: Places,
    resident: Resident<'a>,
    count: usize,
}

/// What a step says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Said {
    pub step: usize,
    pub loss: f64,
    /// Of all gradients together, before it is bounded.
    pub norm: f64,
}

impl<'a> Training<'a> {
    /// # Errors
    /// As [`Executable::run`].
    pub fn new(
        plan: &'a Plan,
        text: &'a Text,
        executable: &'a Executable,
        places: Places,
        state: State,
    ) -> rc_runtime::Result<Training<'a>> {
        let count = state.count();
        let [ids, labels] = text.batch(count + 1, plan)?;
        let inputs = [vec![ids, labels, rate(plan.rate)?, state.count], state.weights.into_iter().flatten().collect()];
        Ok(Training { plan, text, places, resident: executable.resident(inputs.concat())?, count })
    }

    /// # Errors
    /// A gradient that is infinite or no number: the weights are then those of the step before.
    pub fn step(&mut self) -> Result<Said, String> {
        let said = self.run().map_err(|e| e.to_string())?;
        if !said.norm.is_finite() {
            let Said { step, loss, norm } = said;
            return Err(format!(
                "step {step}: the gradients' norm is {norm} (the loss is {loss}), and the weights stay what they are"
            ));
        }
        self.count = said.step;
        Ok(said)
    }

    fn run(&mut self) -> rc_runtime::Result<Said> {
        let step = self.count + 1;
        let batch = self.text.batch(step, self.plan)?;
        for (i, tensor) in batch.iter().enumerate() {
            self.resident.set(i, tensor)?;
        }
        self.resident.set(self.places.rate(), &rate(self.plan.rate_of(step))?)?;
        let results = self.resident.run()?;
        let number = |i: usize| results[i].as_ref().map_or(f64::NAN, |x| x.to_f64()[0]);
        Ok(Said { step, loss: number(0), norm: number(1) })
    }

    /// Steps so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What the training goes on from.
    ///
    /// # Errors
    /// The driver's.
    pub fn state(&self) -> rc_runtime::Result<State> {
        let places = self.places;
        let all = |first: usize| (first..first + places.parameters).map(|i| self.resident.get(i)).collect();
        let weights: [rc_runtime::Result<_>; 3] = [places.parameter(0), places.mean(0), places.square(0)].map(all);
        let [values, means, squares] = weights;
        Ok(State { count: self.resident.get(places.count())?, weights: [values?, means?, squares?] })
    }
}

fn rate(rate: f64) -> rc_runtime::Result<Tensor> {
    Tensor::from_slice(&[], &[rate as f32])
}
