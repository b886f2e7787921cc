//! `--check-each-pass`: executes the module before and after every pass on random inputs.

use crate::random_inputs;
use rc_ir::pass::{PassInstance, PassInstrumentation};
use rc_ir::{Diagnostic, Loc, Module, Name};
use rc_runtime::Tensor;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::program::Bindings;
use rc_runtime::tensor::{Tolerance, compare};

/// Names the first pass after which a function gives other results than before all passes, beyond the error of its types.
///
/// The reference is the module as it was first seen, run as its types say. Results are compared with a tolerance that follows from
/// the result's type: passes may reassociate sums, so 64 units of its rounding, relative to the largest magnitude.
pub struct CheckEachPass {
    seed: u64,
    reference: Option<Vec<Reference>>,
}

struct Reference {
    function: Name,
    inputs: Vec<Tensor>,
    results: Vec<Tensor>,
}

impl CheckEachPass {
    pub fn new(seed: u64) -> CheckEachPass {
        CheckEachPass { seed, reference: None }
    }

    fn references(&self, module: &Module) -> Result<Vec<Reference>, Vec<Diagnostic>> {
        let mut out = Vec::new();
        for body in module.bodies.iter().filter(|b| b.name(b.root()) == "func.func" && b.entry().is_some()) {
            let function = body.symbol().unwrap_or_default();
            let inputs = random_inputs(body, self.seed, &Bindings::default()).map_err(|d| vec![*d])?;
            let results = Interpreter::new(module, Mode::Typed).run(function.as_str(), &inputs).map_err(|d| vec![*d])?;
            out.push(Reference { function, inputs, results });
        }
        Ok(out)
    }
}

impl PassInstrumentation for CheckEachPass {
    fn before_pass(&mut self, _: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if self.reference.is_none() {
            self.reference = Some(self.references(module)?);
        }
        Ok(())
    }

    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        for reference in self.reference.iter().flatten() {
            if module.symbol(reference.function).is_none() {
                continue;
            }
            let name = pass.def.name;
            let run = Interpreter::new(module, Mode::Typed).run(reference.function.as_str(), &reference.inputs);
            let results = run.map_err(|d| vec![*d.note(Loc::UNKNOWN, format!("running @{} after the pass '{name}'", reference.function))])?;
            for (i, (actual, expected)) in results.iter().zip(&reference.results).enumerate() {
                check(name, reference.function, i, actual, expected).map_err(|d| vec![*d])?;
            }
        }
        Ok(())
    }
}

fn check(pass: &str, function: Name, i: usize, actual: &Tensor, expected: &Tensor) -> rc_ir::Result {
    let tolerance = match expected.dtype().is_float() {
        true => Tolerance::of_max(64.0 * expected.dtype().epsilon()).equal_nan(),
        false => Tolerance::EXACT,
    };
    let fail = |what: String| Err(Diagnostic::error(Loc::UNKNOWN, format!("the pass '{pass}' changed result {i} of @{function}: {what}")));
    match compare(actual, expected, tolerance) {
        Err(error) => fail(error.to_string()),
        Ok(c) if !c.passed() => fail(c.to_string()),
        Ok(_) => Ok(()),
    }
}
