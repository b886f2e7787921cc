//! A module: its text, and compiling it.

use crate::errors::error;
use crate::program::PyProgram;
use crate::threads::on_team;
use pyo3::prelude::*;
use rc::{Machine, Target};
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Diagnostic, Module};
use std::time::Instant;

/// A program, the compiler's remarks, the compiled module's text, and the seconds of compiling and loading.
type Compiled = (PyProgram, Vec<String>, Option<String>, (f64, f64));

/// A module of rc.
#[pyclass(name = "Module")]
pub struct PyModule(pub Module);

#[pymethods]
impl PyModule {
    /// The module as text.
    #[pyo3(signature = (locations=false))]
    fn text(&self, locations: bool) -> String {
        print_module(&self.0, &PrintOptions { debug_info: locations, ..PrintOptions::PRETTY })
    }

    /// From now on sums are formed in the same order at every run, also where another one is faster.
    fn set_deterministic(&mut self) {
        self.0.set_attr("rc.deterministic", rc_ir::Attr::bool(true));
    }

    /// From now on kernels may keep a float's precision between operations on 16 bits.
    fn set_excess_precision(&mut self) {
        self.0.set_attr("rc.excess_precision", rc_ir::Attr::bool(true));
    }

    /// Machine code for this machine's CPU (`cpu`), or for a GPU (`cuda:0`), the compiler's remarks, where it is asked for the compiled
    /// module's text, and the seconds of compiling and of loading the code (on a GPU, of assembling it in the driver too).
    fn compile(&self, py: Python<'_>, device: &str, text: bool) -> PyResult<Compiled> {
        let ordinal = device.strip_prefix("cuda").map(|rest| rest.trim_start_matches(':').parse().unwrap_or(0));
        let mut module = self.0.clone();
        let done = on_team(py, || -> Result<_, Vec<Diagnostic>> {
            let gpu = ordinal.map(rc_runtime::cuda::Device::open).transpose();
            let gpu = gpu.map_err(|e| vec![*Diagnostic::error(module.loc, e.to_string())])?;
            let target = gpu.as_ref().map_or_else(|| Ok(Target::host()), |gpu| Target::cuda(&gpu.info().arch()));
            let target = target.map_err(|why| vec![*Diagnostic::error(module.loc, why)])?;
            let start = Instant::now();
            let report = rc::compile(&mut module, &target);
            let compiled = start.elapsed();
            if !report.succeeded() {
                return Err(report.errors);
            }
            let machine = target.machine;
            let program = match (machine, gpu) {
                (Machine::Cuda, Some(gpu)) => PyProgram::cuda(&module, gpu),
                _ => PyProgram::cpu(&module),
            };
            let loaded = start.elapsed();
            let remarks = report.diagnostics.iter().map(Diagnostic::render).collect();
            let text = text.then(|| print_module(&module, &PrintOptions::PRETTY));
            let load = loaded - compiled;
            Ok((program.map_err(|d| vec![*d])?, remarks, text, (compiled.as_secs_f64(), load.as_secs_f64())))
        })?;
        done.map_err(|errors| error(py, &errors))
    }
}
