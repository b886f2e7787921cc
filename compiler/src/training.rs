//! A function and its derivative as two modules, which a frontend compiles each by itself: what `--autodiff` and `--partition` give.

use rc_ir::pass::{PassContext, PassManager};
use rc_ir::{Attr, Body, Diagnostic, Module, Name};
use rc_machine::Target;
use rc_parser::pipeline::parse_pipeline;
use rc_passes::autodiff::{AUTODIFF, Mode, Request, autodiff};
use rc_passes::partition;

/// The two functions of a training step.
pub struct Divided {
    /// Gives the function's results, and what is kept for the backward one.
    pub forward: Module,
    /// Takes what is kept and the gradients of the chosen results, and gives those of the chosen arguments.
    pub backward: Module,
    /// What the backward function takes first: with n arguments of the forward one, its argument k for a number k < n, its result k for n + k.
    pub saved: Vec<usize>,
    pub remarks: Vec<Diagnostic>,
}

/// Differentiates the first function of a module for `arguments`, by the gradients of `results`; no more is kept than `budget` allows, as
/// `--partition=memory-budget` says it.
///
/// # Errors
/// What has no derivative, at the operation; a budget that cannot be met.
pub fn divide(
    module: &Module,
    arguments: Vec<usize>,
    results: Vec<usize>,
    budget: f64,
    target: &Target,
) -> Result<Divided, Vec<Diagnostic>> {
    let mut joint = module.clone();
    target.set_on(&mut joint);
    let function = joint.bodies.iter().find(|body| !body.is_private()).and_then(Body::symbol).unwrap_or_default();
    let request = Request { function, mode: Mode::Vjp, arguments, results };
    let options = rc_ir::pass::Options::defaults(&AUTODIFF);
    autodiff(&mut joint, &request, &mut PassContext::new(&options)).map_err(|d| vec![*d])?;
    let passes = format!("decompose,canonicalize,cse,dce,layout,cse,dce,partition{{memory-budget={budget}}}");
    let report = PassManager::new(parse_pipeline("training", &passes)?).run(&mut joint);
    if !report.succeeded() {
        return Err(report.errors);
    }
    let part = |suffix: &str| part(&joint, &format!("{function}_{suffix}"));
    let (forward, backward) = (part("forward"), part("backward"));
    let saved = backward.bodies.first().and_then(|body| body.attr(body.root(), "rc.saved")).and_then(Attr::as_ints);
    let saved = saved.unwrap_or_default().iter().map(|&k| k as usize).collect();
    Ok(Divided { forward, backward, saved, remarks: report.diagnostics })
}

/// A backward function's module without the gradients of results of these numbers, which are zero.
pub fn without(backward: &Module, absent: &[usize]) -> Module {
    let mut module = backward.clone();
    if let Some(body) = module.bodies.iter_mut().find(|body| !body.is_private()) {
        partition::without(body, absent);
    }
    module
}

/// A backward function's module that gives a value once where several results of one kind are that value, and which of its results each is.
pub fn give_once(backward: &Module, kinds: &[usize]) -> (Module, Vec<usize>) {
    let mut module = backward.clone();
    let body = module.bodies.iter_mut().find(|body| !body.is_private());
    let numbers = body.map(|body| partition::give_once(body, kinds)).unwrap_or_default();
    (module, numbers)
}

/// A module of one of the joint module's public functions, with the private ones.
fn part(joint: &Module, name: &str) -> Module {
    let mut module = Module { attrs: joint.attrs, ..Module::default() };
    let name = Name::new(name);
    for body in joint.bodies.iter().filter(|b| b.symbol() == Some(name) || b.is_private()) {
        module.push(body.clone());
    }
    module
}
