//! Proves rewrite rules by execution: both sides of a rule run on random programs and inputs, and give the same.
//!
//! In float64 a rule has to hold as arithmetic, and as its types say it must not round otherwise than what it replaces. Sizes are 0, 1 and primes
//! among others; numbers are ordinary ones, then such as 0.0, -0.0, infinities and NaN, then small integers.

mod compare;
mod inputs;

use compare::{Difference, difference};
use inputs::{Numbers, draw};
use rc_ir::{Body, Diagnostic, Loc, Module};
use rc_passes::rules::{Instance, Random, Rule, RuleSet, arguments};
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};
use std::fmt;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Programs that each rule is run on.
    pub programs: usize,
    /// Draws to come to them.
    pub draws: usize,
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { programs: 100, draws: 50_000, seed: 1 }
    }
}

/// What a rule was run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    pub rule: &'static str,
    pub programs: usize,
    /// Inputs on which both sides ran.
    pub runs: usize,
    /// Sizes of what was matched.
    pub sizes: std::collections::BTreeSet<i64>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(i64::to_string).collect();
        write!(f, "{}: equal on {} programs, {} runs; sizes {}", self.rule, self.programs, self.runs, sizes.join(", "))
    }
}

/// Runs both sides of every rule.
pub fn prove_all(rules: &RuleSet, effort: Effort) -> Vec<Result<Proof, Box<Diagnostic>>> {
    rules.rules.iter().map(|rule| prove(rule, effort)).collect()
}

/// Runs both sides of a rule.
///
/// # Errors
/// The smallest program and inputs on which they differ; no program was found, or none ran.
pub fn prove(rule: &Rule, effort: Effort) -> Result<Proof, Box<Diagnostic>> {
    let mut random = Random(effort.seed);
    let mut proof = Proof { rule: rule.name, ..Proof::default() };
    let mut wrong: Option<Counterexample> = None;
    for _ in 0..effort.draws {
        if proof.programs == effort.programs {
            break;
        }
        let Some(instance) = rule.draw(&mut random) else { continue };
        let replaced = rule.replaced(&instance)?;
        proof.programs += 1;
        note_sizes(&instance.body, &mut proof.sizes);
        let case = Case { rule, before: module(&instance.body), after: module(&replaced) };
        for numbers in [Numbers::Ordinary, Numbers::Special, Numbers::Small] {
            let Some(inputs) = draw(&instance.body, numbers, rule.assuming.finite, &mut random) else { continue };
            match case.run(&inputs) {
                Outcome::NotRun => {}
                Outcome::Equal => proof.runs += 1,
                Outcome::Differs(difference) => {
                    let found = Counterexample::new(&instance, &case, inputs, difference);
                    if wrong.as_ref().is_none_or(|w| found.size < w.size) {
                        wrong = Some(found);
                    }
                }
            }
        }
    }
    match wrong {
        Some(wrong) => Err(wrong.smaller().error(rule)),
        None if proof.runs == 0 => Err(unproved(rule, &proof, effort)),
        None => Ok(proof),
    }
}

fn unproved(rule: &Rule, proof: &Proof, effort: Effort) -> Box<Diagnostic> {
    let what = match proof.programs {
        0 => format!(
            "the rule '{}' is not proved: none of {} random programs meets its pattern and conditions",
            rule.name, effort.draws
        ),
        n => format!("the rule '{}' is not proved: none of the {n} programs that it matches runs", rule.name),
    };
    let error = Diagnostic::error(rule.loc, what).with_len(rule.name.len());
    error.help("say more of the types of its holes, so that more programs fit: %x: tensor<$m x $n x f32>")
}

fn note_sizes(body: &Body, sizes: &mut std::collections::BTreeSet<i64>) {
    for op in body.walk() {
        for ty in body.op_ref(op).operand_types() {
            sizes.extend(ty.static_shape().unwrap_or_default());
        }
    }
}

fn module(body: &Body) -> Module {
    let mut module = Module::new();
    module.push(body.clone());
    module
}

/// Both sides of a rule for one program.
#[derive(Clone)]
struct Case<'r> {
    rule: &'r Rule,
    before: Module,
    after: Module,
}

enum Outcome {
    Equal,
    Differs(Difference),
    /// The program that is replaced is an error on these inputs, as of an index outside of a table.
    NotRun,
}

impl Case<'_> {
    fn run(&self, inputs: &[Tensor]) -> Outcome {
        let modes: &[Mode] = if self.rule.assuming.rounding { &[Mode::Float64] } else { &[Mode::Float64, Mode::Typed] };
        let mut ran = false;
        for &mode in modes {
            let Ok(expected) = Interpreter::new(&self.before, mode).run("pattern", inputs) else { continue };
            ran = true;
            let found = match Interpreter::new(&self.after, mode).run("pattern", inputs) {
                Ok(actual) => difference(&expected, &actual, mode, self.rule.assuming),
                Err(error) => Some(Difference::fails(mode, &error.message)),
            };
            if let Some(found) = found {
                return Outcome::Differs(found);
            }
        }
        if ran { Outcome::Equal } else { Outcome::NotRun }
    }
}

/// A program and inputs for which a rule is wrong.
struct Counterexample<'r> {
    case: Case<'r>,
    arguments: String,
    names: Vec<String>,
    inputs: Vec<Tensor>,
    difference: Difference,
    size: usize,
}

impl<'r> Counterexample<'r> {
    fn new(instance: &Instance, case: &Case<'r>, inputs: Vec<Tensor>, difference: Difference) -> Counterexample<'r> {
        let body = &instance.body;
        let entry = body.entry().expect("a body");
        let names = body.block_args(entry).map(|v| format!("%{}", body.value_name(v))).collect();
        let elements = body.walk().into_iter().flat_map(|op| body.op_ref(op).operand_types());
        let size = elements.map(|t| 1 + t.rank() + t.num_elements().as_static().unwrap_or(0) as usize).sum();
        Counterexample { case: case.clone(), arguments: arguments(body), names, inputs, difference, size }
    }

    /// The same with simpler numbers, as far as the sides still differ.
    fn smaller(mut self) -> Self {
        for at in 0..self.inputs.len() {
            for element in 0..self.inputs[at].len().min(64) {
                for simple in [0.0, 1.0, 2.0] {
                    if self.inputs[at].get_f64(element) == simple {
                        break;
                    }
                    let mut inputs = self.inputs.clone();
                    if inputs[at].write_f64(element, &[simple]).is_err() {
                        break;
                    }
                    if let Outcome::Differs(difference) = self.case.run(&inputs) {
                        (self.inputs, self.difference) = (inputs, difference);
                        break;
                    }
                }
            }
        }
        self
    }

    fn error(self, rule: &Rule) -> Box<Diagnostic> {
        let what = format!("the rule '{}' is wrong: {}", rule.name, self.difference);
        let mut error = Diagnostic::error(rule.loc, what).with_len(rule.name.len());
        error = error.note(Loc::UNKNOWN, format!("with {}", self.arguments));
        for (name, input) in self.names.iter().zip(&self.inputs) {
            error = error.note(Loc::UNKNOWN, format!("{name} = {}", shown(input)));
        }
        error = error.note(Loc::UNKNOWN, format!("before:\n{}", self.case.before));
        error = error.note(Loc::UNKNOWN, format!("after:\n{}", self.case.after));
        error.help("add a condition that excludes it, or say with 'assuming' what is taken for granted: finite, unsigned-zeros, rounding")
    }
}

/// A tensor's first elements.
fn shown(tensor: &Tensor) -> String {
    const MOST: usize = 16;
    let values: Vec<String> = tensor.to_f64().iter().take(MOST).map(|x| format!("{x:?}")).collect();
    let more = if tensor.len() > MOST { ", …" } else { "" };
    format!("[{}{more}] of shape {:?}", values.join(", "), tensor.shape())
}
