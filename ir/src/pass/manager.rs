//! Running a pipeline: prerequisites, passes, verification, instrumentation.

use super::context::run_on_symbols;
use super::{PassContext, PassDef, PassInstance, PassInstrumentation, PassKind, Report, Statistic, Timing, find};
use crate::diag::Diagnostic;
use crate::loc::Loc;
use crate::module::Module;
use crate::verify::verify_module;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A pipeline and how to run it.
pub struct PassManager {
    pub passes: Vec<PassInstance>,
    /// Verify the module after each pass.
    pub verify_each: bool,
    pub instrumentations: Vec<Box<dyn PassInstrumentation>>,
}

type Outcome = Result<(), Vec<Diagnostic>>;

impl PassManager {
    /// The pipeline, verified after each pass.
    pub fn new(passes: Vec<PassInstance>) -> PassManager {
        PassManager { passes, verify_each: true, instrumentations: Vec::new() }
    }
    pub fn instrument(&mut self, instrumentation: impl PassInstrumentation + 'static) -> &mut Self {
        self.instrumentations.push(Box::new(instrumentation));
        self
    }
    /// Runs the passes in order, each after the prerequisites that are still pending; stops at the first error.
    pub fn run(&mut self, module: &mut Module) -> Report {
        self.report(module, |run, passes, module, timing| {
            passes.iter().try_for_each(|pass| run.with_prerequisites(pass, module, timing))
        })
    }
    /// The same, but for the last pass itself, whose prerequisites are run.
    pub fn run_before_last(&mut self, module: &mut Module) -> Report {
        self.report(module, |run, passes, module, timing| {
            let Some((last, others)) = passes.split_last() else { return Ok(()) };
            others.iter().try_for_each(|pass| run.with_prerequisites(pass, module, timing))?;
            run.prerequisites(last.def, &mut vec![last.def.name], module, timing)
        })
    }

    fn report(
        &mut self,
        module: &mut Module,
        work: impl FnOnce(&mut Run, &[PassInstance], &mut Module, &mut Timing) -> Outcome,
    ) -> Report {
        let mut report = Report::default();
        let mut timing = Timing::new("pipeline", std::time::Duration::ZERO);
        let mut run = Run { verify_each: self.verify_each, hooks: &mut self.instrumentations, report: &mut report };
        let outcome = work(&mut run, &self.passes, module, &mut timing);
        report.errors = outcome.err().unwrap_or_default();
        report.diagnostics.extend(self.instrumentations.iter_mut().flat_map(|hook| hook.finish()));
        report.timing = timing;
        report
    }
}

struct Run<'a> {
    verify_each: bool,
    hooks: &'a mut Vec<Box<dyn PassInstrumentation>>,
    report: &'a mut Report,
}

impl Run<'_> {
    fn with_prerequisites(&mut self, pass: &PassInstance, module: &mut Module, timing: &mut Timing) -> Outcome {
        let mut own = Timing::new(pass.to_string(), std::time::Duration::ZERO);
        let outcome = self
            .prerequisites(pass.def, &mut vec![pass.def.name], module, &mut own)
            .and_then(|()| self.pass(pass, module, &mut own));
        timing.add(own);
        outcome
    }

    /// Runs what `def` requires and is still pending. `chain` holds the passes that asked.
    fn prerequisites(
        &mut self,
        def: &PassDef,
        chain: &mut Vec<&'static str>,
        module: &mut Module,
        timing: &mut Timing,
    ) -> Outcome {
        for &name in def.requires {
            let required = required(name, chain)?;
            chain.push(name);
            self.prerequisites(required, chain, module, timing)?;
            chain.pop();
            if required.pending.is_some_and(|pending| pending(module)) {
                let instance = PassInstance::new(required).map_err(|e| vec![*e])?;
                let mut own = Timing::new(instance.to_string(), std::time::Duration::ZERO);
                let outcome = self.pass(&instance, module, &mut own);
                timing.add(own);
                outcome?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, pass: &PassInstance, module: &mut Module, timing: &mut Timing) -> Outcome {
        for hook in self.hooks.iter_mut() {
            hook.before_pass(pass, module)?;
        }
        let start = Instant::now();
        let mut cx = PassContext::new(&pass.options);
        let mut outcome = execute(pass, module, &mut cx);
        timing.wall += start.elapsed();
        self.report.diagnostics.append(&mut cx.diagnostics);
        let label = pass.to_string();
        let statistics = cx.statistics.iter().map(|(&name, &value)| Statistic { pass: label.clone(), name, value });
        self.report.statistics.extend(statistics);
        if outcome.is_ok() && self.verify_each {
            let (part, errors) = Timing::of("(V) verifier", || verify_module(module));
            timing.add(part);
            if !errors.is_empty() {
                outcome = Err(invalid(pass, errors));
            }
        }
        if outcome.is_err() {
            self.hooks.iter_mut().for_each(|hook| hook.after_failure(pass, module));
        }
        outcome?;
        self.hooks.iter_mut().try_for_each(|hook| hook.after_pass(pass, module))
    }
}

/// The declaration of a prerequisite. Errors are mistakes in declarations.
fn required(name: &str, chain: &[&'static str]) -> Result<&'static PassDef, Vec<Diagnostic>> {
    let asker = chain.last().copied().unwrap_or_default();
    let problem = match find(name) {
        _ if chain.contains(&name) => {
            format!("the pass '{asker}' requires '{name}', which requires it in turn: {} → {name}", chain.join(" → "))
        }
        None => format!("the pass '{asker}' requires '{name}', which is not registered"),
        Some(def) if def.pending.is_none() => {
            format!("the pass '{asker}' requires '{name}', which does not say when it is pending")
        }
        Some(def) => return Ok(def),
    };
    Err(vec![*Diagnostic::error(Loc::UNKNOWN, problem)])
}

/// Runs the pass itself. A panic is a mistake of the pass, and becomes an error.
fn execute(pass: &PassInstance, module: &mut Module, cx: &mut PassContext) -> Outcome {
    let run = AssertUnwindSafe(|| match &pass.kind {
        PassKind::Module(inner) => inner.run(module, cx).map_err(|e| vec![*e]),
        PassKind::Symbol(inner) => run_on_symbols(module, pass.anchor, cx, &**inner),
    });
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        let error = Diagnostic::error(
            Loc::UNKNOWN,
            format!("the pass '{}' failed on an internal check: {text}", pass.def.name),
        );
        Err(vec![*error.help("this is a bug in the pass; the module before it reproduces it")])
    })
}

fn invalid(pass: &PassInstance, errors: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let n = errors.len();
    let message = format!(
        "the pass '{}' left a module that does not verify ({n} error{})",
        pass.def.name,
        if n == 1 { "" } else { "s" }
    );
    let first = Diagnostic::error(Loc::UNKNOWN, message).help("this is a bug in the pass; the errors follow");
    std::iter::once(*first).chain(errors).collect()
}
