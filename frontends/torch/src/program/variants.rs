//! Programs for ranges of a graph's symbolic sizes, compiled when calls come back to them.

use super::tensors::{Turn, turns};
use super::{Call, PyProgram};
use crate::threads::on_team;
use pyo3::prelude::*;
use rc::Target;
use rc::variants::{Found, Variants, narrowed};
use rc_dialects::func::SymbolDecl;
use rc_ir::{Diagnostic, Loc, Module};
use rc_runtime::cuda::Device;
use rc_runtime::program::{Bindings, CudaProgram, Program};
use std::sync::Arc;
use std::time::Instant;

/// What programs for ranges of sizes are compiled from.
pub struct Fits {
    variants: Variants<Fitted>,
    module: Module,
    target: Target,
    gpu: Arc<Device>,
}

/// A program for a range of sizes, and what happens between its steps.
pub struct Fitted {
    pub code: CudaProgram,
    pub turns: Vec<Turn>,
}

impl Fits {
    /// Of a module whose first function has these symbols: at most `limit` programs.
    pub fn new(module: &Module, symbols: &[SymbolDecl], target: Target, gpu: Arc<Device>, limit: usize) -> Fits {
        let same = module.attr("rc.deterministic").is_some();
        Fits { variants: Variants::new(symbols.to_vec(), limit, same), module: module.clone(), target, gpu }
    }

    fn compile(&self, ranges: &[SymbolDecl]) -> Result<CudaProgram, Diagnostic> {
        let rc::Compiled { module, report, .. } = rc::compile_cached(&narrowed(&self.module, ranges), &self.target);
        if let Some(error) = report.errors.into_iter().next() {
            return Err(error);
        }
        let fail = |e: rc_runtime::Error| *Diagnostic::error(Loc::UNKNOWN, e.to_string());
        CudaProgram::new(Program::load(&module, None).map_err(|e| *e)?, &self.gpu).map_err(fail)
    }
}

impl PyProgram {
    /// The program for these sizes, where there is one beside that for all. One that cannot be compiled is a warning.
    pub(super) fn fitted(&self, py: Python<'_>, call: &Call, sizes: &Bindings) -> PyResult<Option<Arc<Fitted>>> {
        let Some(fits) = self.fits.get() else { return Ok(None) };
        let make = |ranges: &[SymbolDecl]| -> Result<Fitted, PyErr> {
            let start = Instant::now();
            let code = on_team(py, || fits.compile(ranges))?.map_err(|e| crate::errors::error(py, &[e]))?;
            let args: Vec<usize> = call.inputs.iter().map(|input| input.arg).collect();
            let turns = turns(Some(code.program()), &args, &call.returns);
            say(
                py,
                "say",
                ("time", format!("compiled for {} in {:.3} s", shown(ranges), start.elapsed().as_secs_f64())),
            )?;
            Ok(Fitted { code, turns })
        };
        match fits.variants.find(sizes, make) {
            Ok(Found::Variant(fitted)) => Ok(Some(fitted)),
            Ok(Found::General) => Ok(None),
            Ok(Found::Full) => {
                let ranges: Vec<String> = fits.variants.ranges().iter().map(|ranges| shown(ranges)).collect();
                let why = format!(
                    "calls of further sizes run what was compiled for all: there are programs for {} already; the option \
                     'variants' says how many there may be",
                    ranges.join("; ")
                );
                say(py, "warn", (why,)).map(|()| None)
            }
            Err(error) => say(py, "warn", (format!("nothing was compiled for these sizes: {error}"),)).map(|()| None),
        }
    }

    /// The ranges of sizes that there are programs for, beside the one for all.
    pub(super) fn ranges(&self) -> Vec<String> {
        self.fits.get().map_or(Vec::new(), |fits| fits.variants.ranges().iter().map(|r| shown(r)).collect())
    }
}

fn say<'py>(py: Python<'py>, how: &str, what: impl pyo3::call::PyCallArgs<'py>) -> PyResult<()> {
    py.import("rc.torch.logs")?.call_method1(how, what).map(drop)
}

/// `b = 4, s = 65 to 128`.
fn shown(ranges: &[SymbolDecl]) -> String {
    let one = |r: &SymbolDecl| match r.min == r.max {
        true => format!("{} = {}", r.name, r.min),
        false => format!("{} = {} to {}", r.name, r.min, r.max),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}
