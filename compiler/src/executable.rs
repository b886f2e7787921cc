//! Compiled modules, ready to run.

use crate::Machine;
use rc_ir::{Diagnostic, Module, Result};
use rc_runtime::Tensor;
use rc_runtime::cuda::Device;
use rc_runtime::program::{CpuProgram, CudaProgram, Program, Signature};
use std::time::Instant;

/// A compiled function on the machine that it was compiled for.
pub enum Executable {
    Cpu(CpuProgram),
    Cuda(CudaProgram),
}

/// The architecture of the first GPU, for [`crate::Target::cuda`].
///
/// # Errors
/// If there is no driver or no GPU.
pub fn gpu_arch() -> rc_runtime::Result<String> {
    Ok(Device::open(0)?.info().arch())
}

impl Executable {
    /// Loads the function `entry` of a compiled module (the first, where none is named).
    ///
    /// # Errors
    /// If the module is not compiled, or its code cannot be loaded here.
    pub fn load(module: &Module, entry: Option<&str>, machine: Machine) -> Result<Executable> {
        let program = Program::load(module, entry)?;
        let fail = |e: rc_runtime::Error| Diagnostic::error(module.loc, e.to_string());
        Ok(match machine {
            Machine::Cpu => Executable::Cpu(CpuProgram::new(program).map_err(fail)?),
            Machine::Cuda => {
                Executable::Cuda(CudaProgram::new(program, &Device::open(0).map_err(fail)?).map_err(fail)?)
            }
        })
    }

    pub fn signature(&self) -> &Signature {
        match self {
            Executable::Cpu(program) => &program.program().signature,
            Executable::Cuda(program) => &program.program().signature,
        }
    }

    /// Runs the function: inputs in order, results in order.
    ///
    /// # Errors
    /// Inputs that do not fit the signature; a kernel's failure.
    pub fn run(&self, inputs: &[Tensor]) -> rc_runtime::Result<Vec<Tensor>> {
        match self {
            Executable::Cpu(program) => program.run(inputs),
            Executable::Cuda(program) => program.run(inputs),
        }
    }

    /// The median time of `runs` runs, in milliseconds, after three that do not count. On a GPU inputs and results stay there, and the
    /// time is that between events around the kernels.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn median_ms(&self, inputs: &[Tensor], runs: usize) -> rc_runtime::Result<f64> {
        let mut times = match self {
            Executable::Cuda(program) => program.times_ms(inputs, runs)?,
            Executable::Cpu(program) => {
                let mut times = Vec::with_capacity(runs);
                for i in 0..runs + 3 {
                    let start = Instant::now();
                    program.run(inputs)?;
                    if i >= 3 {
                        times.push(1e3 * start.elapsed().as_secs_f64());
                    }
                }
                times
            }
        };
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
