//! `--check-each-pass`: executes the module before and after every pass on random inputs.

use crate::{Executable, Machine, Target, gpu_arch, random_inputs};
use rc_dialects::op;
use rc_ir::pass::{PassInstance, PassInstrumentation, PassManager};
use rc_ir::rewrite::limit::{Rewrites, with_limit};
use rc_ir::{Body, Diagnostic, Loc, Module, Name, Result};
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::program::{Bindings, TensorSpec};
use rc_runtime::tensor::{Tolerance, compare};

/// Names the first pass after which a function gives other results than before all passes, beyond the error of its types.
///
/// Every function is run: by the interpreter, and once kernels are machine code by the machine that the code is for. What could not be run
/// after a pass, and why, is a warning. The reference is the module as it was first seen, run as its types say. Results are compared with a
/// tolerance that follows from the narrowest float type in the module: passes may reassociate sums, so 64 units of its rounding, relative to
/// the largest magnitude. Of a pass that is made of rewrites, the first that changes a result is named, too.
pub struct CheckEachPass {
    seed: u64,
    references: Option<Vec<Reference>>,
    /// The rounding unit of the narrowest floats in the module: what is computed of such is no better in a wider type.
    epsilon: f64,
    /// What was not run, and why.
    skipped: Vec<Diagnostic>,
    /// Passes after which everything was run.
    checked: usize,
    /// The module before the pass that runs.
    before: Option<Module>,
}

#[derive(Clone)]
struct Reference {
    function: Name,
    inputs: Vec<Tensor>,
    results: Vec<Tensor>,
}

impl CheckEachPass {
    pub fn new(seed: u64) -> CheckEachPass {
        CheckEachPass { seed, references: None, epsilon: 0.0, skipped: Vec::new(), checked: 0, before: None }
    }

    fn references(&mut self, module: &Module) -> Result<Vec<Reference>> {
        // Private functions run as public ones call them.
        let runnable =
            |b: &&Body| !b.is_private() && [op::func::FUNC, op::host::FUNC].contains(&b.name(b.root()).as_str());
        let mut out = Vec::new();
        for body in module.bodies.iter().filter(runnable) {
            let function = body.symbol().unwrap_or_default();
            if body.entry().is_none() {
                self.skip(body.loc(body.root()), format!("@{function} is not run: it has no body"));
                continue;
            }
            let inputs = random_inputs(body, self.seed, &Bindings::default())?;
            let Some(results) =
                run(module, function, &inputs).map_err(|d| d.note(Loc::UNKNOWN, "running it before all passes"))?
            else {
                self.skip(
                    body.loc(body.root()),
                    format!("@{function} is not run: it is code for another machine than this"),
                );
                continue;
            };
            out.push(Reference { function, inputs, results });
        }
        if out.is_empty() {
            self.skip(module.loc, "no pass is checked: the module has no function that can be run here".into());
        }
        Ok(out)
    }

    fn skip(&mut self, loc: Loc, message: String) {
        self.skipped.push(*Diagnostic::warning(loc, message));
    }

    fn check(&mut self, pass: &'static str, module: &Module) -> Result {
        let references = self.references.take().unwrap_or_default();
        let mut skipped = references.is_empty();
        for reference in &references {
            let function = reference.function;
            if module.symbol(function).is_none() {
                self.skip(
                    module.loc,
                    format!("@{function} is not run after '{pass}': there is no function of this name any more"),
                );
                skipped = true;
                continue;
            }
            let note =
                |d: Box<Diagnostic>| d.note(Loc::UNKNOWN, format!("running @{function} after the pass '{pass}'"));
            let Some(results) = run(module, function, &reference.inputs).map_err(note)? else {
                self.skip(
                    module.loc,
                    format!("@{function} is not run after '{pass}': it is code for another machine than this"),
                );
                skipped = true;
                continue;
            };
            for (i, (actual, expected)) in results.iter().zip(&reference.results).enumerate() {
                check(pass, function, i, actual, expected, self.epsilon)?;
            }
        }
        self.references = Some(references);
        self.checked += usize::from(!skipped);
        Ok(())
    }
}

impl PassInstrumentation for CheckEachPass {
    fn before_pass(&mut self, _: &PassInstance, module: &Module) -> std::result::Result<(), Vec<Diagnostic>> {
        if self.references.is_none() {
            self.epsilon = coarsest(module);
            self.references = Some(self.references(module).map_err(|d| vec![*d])?);
        }
        self.before = Some(module.clone());
        Ok(())
    }

    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> std::result::Result<(), Vec<Diagnostic>> {
        let before = self.before.take();
        let Some(references) = self.references.clone() else { return Ok(()) };
        self.check(pass.def.name, module).map_err(|error| {
            let narrowed = before.and_then(|before| {
                let wrong = |module: &Module| {
                    let mut again = CheckEachPass {
                        references: Some(references.clone()),
                        epsilon: self.epsilon,
                        ..CheckEachPass::new(0)
                    };
                    again.check(pass.def.name, module).is_err()
                };
                first_wrong_rewrite(pass, &before, &wrong)
            });
            vec![match narrowed {
                Some((rewrites, all)) => *name_rewrite(error, rewrites, all),
                None => *error,
            }]
        })
    }

    fn finish(&mut self) -> Vec<Diagnostic> {
        let checked =
            Diagnostic::remark(Loc::UNKNOWN, format!("the results are the same after each of {} passes", self.checked));
        self.skipped.drain(..).chain([*checked]).collect()
    }
}

/// The first rewrite of a pass after which the module is `wrong`, and how many the pass makes. `None` for a pass that is not made of rewrites.
fn first_wrong_rewrite(
    pass: &PassInstance,
    before: &Module,
    wrong: &dyn Fn(&Module) -> bool,
) -> Option<(Rewrites, usize)> {
    let run = |most: usize| {
        let mut module = before.clone();
        let (done, made) = with_limit(most, || {
            let mut again = PassInstance::with_options(pass.def, pass.options.clone()).ok()?;
            again.anchor = pass.anchor;
            PassManager::new(vec![again]).run(&mut module).succeeded().then_some(())
        });
        done.map(|()| (made, module))
    };
    let all = run(usize::MAX).filter(|(made, module)| made.count > 0 && wrong(module))?.0.count;
    // Results are right after `right` rewrites and wrong after `bad`.
    let (mut right, mut bad) = (0, all);
    if wrong(&run(0)?.1) {
        return None;
    }
    while bad - right > 1 {
        let middle = right + (bad - right) / 2;
        // What half a pass leaves may not run at all: then it is not the result that tells.
        match run(middle) {
            Some((_, module)) if !wrong(&module) => right = middle,
            _ => bad = middle,
        }
    }
    Some((run(bad)?.0, all))
}

fn name_rewrite(error: Box<Diagnostic>, rewrite: Rewrites, all: usize) -> Box<Diagnostic> {
    let Rewrites { count, kind, loc, op } = rewrite;
    error.note(loc, format!("the first rewrite that changes it, {count} of {all}: {kind} on '{op}'"))
}

/// The function's results; `None` where its kernels are machine code that does not run on this machine.
fn run(module: &Module, function: Name, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
    let Some(machine) = machine_of(module) else {
        return Interpreter::new(module, Mode::Typed).run(function.as_str(), inputs).map(Some);
    };
    let Some(machine) = machine.filter(|&machine| is_here(module, machine)) else { return Ok(None) };
    let executable = Executable::load(module, Some(function.as_str()), machine)?;
    executable.run(inputs).map(Some).map_err(|e| Diagnostic::error(module.loc, e.to_string()))
}

fn binaries(module: &Module) -> impl Iterator<Item = &Body> {
    module.bodies.iter().filter(|b| b.name(b.root()) == op::host::BINARY)
}

/// The machine that the module's machine code is for: `None` without any, `Some(None)` where there is code for several.
fn machine_of(module: &Module) -> Option<Option<Machine>> {
    let mut all = binaries(module)
        .map(|b| if b.op_ref(b.root()).str("format") == Some("ptx") { Machine::Cuda } else { Machine::Cpu });
    let first = all.next()?;
    Some(all.all(|machine| machine == first).then_some(first))
}

/// Whether this machine runs the module's code: it is for this very processor.
fn is_here(module: &Module, machine: Machine) -> bool {
    let here = match machine {
        Machine::Cpu => Some(Target::host().arch),
        Machine::Cuda => gpu_arch().ok(),
    };
    let runs = |arch: &str, here: &str| match machine {
        Machine::Cpu => arch == here,
        Machine::Cuda => arch == here || !arch.ends_with('a'),
    };
    here.is_some_and(|here| {
        binaries(module).all(|b| b.op_ref(b.root()).str("arch").is_some_and(|arch| runs(arch, &here)))
    })
}

/// The largest rounding unit of the module's float types.
fn coarsest(module: &Module) -> f64 {
    let mut largest = 0.0f64;
    for body in &module.bodies {
        for op in body.walk() {
            for ty in body.op_ref(op).result_types() {
                let dtype = TensorSpec::new(Name::default(), ty).ok().map(|spec| spec.dtype);
                largest = largest.max(dtype.filter(|d| d.is_float()).map_or(0.0, |d| d.epsilon()));
            }
        }
    }
    largest
}

fn check(pass: &str, function: Name, i: usize, actual: &Tensor, expected: &Tensor, epsilon: f64) -> Result {
    let tolerance = match expected.dtype().is_float() {
        true => Tolerance::of_max(64.0 * expected.dtype().epsilon().max(epsilon)).equal_nan(),
        false => Tolerance::EXACT,
    };
    let fail = |what: String| {
        Err(Diagnostic::error(Loc::UNKNOWN, format!("the pass '{pass}' changed result {i} of @{function}: {what}")))
    };
    match compare(actual, expected, tolerance) {
        Err(error) => fail(error.to_string()),
        Ok(c) if !c.passed() => fail(c.to_string()),
        Ok(_) => Ok(()),
    }
}
