//! Compiled modules, ready to run.

use rc_ir::{Diagnostic, Module, Result};
use rc_runtime::program::{CpuProgram, Program, Signature};
use rc_runtime::Tensor;

/// A compiled function on the machine that it was compiled for.
pub struct Executable {
    program: CpuProgram,
}

impl Executable {
    /// Loads the function `entry` of a compiled module (the first, where none is named).
    ///
    /// # Errors
    /// If the module is not compiled, or its code cannot be loaded here.
    pub fn load(module: &Module, entry: Option<&str>) -> Result<Executable> {
        let program = Program::load(module, entry)?;
        let program = CpuProgram::new(program).map_err(|e| Diagnostic::error(module.loc, e.to_string()))?;
        Ok(Executable { program })
    }
    pub fn signature(&self) -> &Signature {
        &self.program.program().signature
    }
    /// Runs the function: inputs in order, results in order.
    ///
    /// # Errors
    /// Inputs that do not fit the signature; a kernel's failure.
    pub fn run(&self, inputs: &[Tensor]) -> rc_runtime::Result<Vec<Tensor>> {
        self.program.run(inputs)
    }
}
