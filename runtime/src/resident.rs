//! Runs on arguments that stay where the function runs.

use crate::executable::Code;
use crate::on_device::{Given, Kept};
use crate::program::CudaInputs;
use crate::{Error, Executable, Result, Tensor};
use std::sync::Arc;

/// A function with arguments of its own. What a run leaves in those that the function updates (`rc.updates`) is what the next run starts from:
/// nothing is copied in between.
///
/// ```no_run
/// # fn main() -> rc_runtime::Result<()> {
/// # let step: rc_runtime::Executable = unimplemented!();
/// # let (weights, batch): (Vec<rc_runtime::Tensor>, rc_runtime::Tensor) = unimplemented!();
/// let mut training = step.resident(weights)?;
/// training.set(0, &batch)?;
/// let results = training.run()?;
/// let weight = training.get(1)?;
/// # Ok(()) }
/// ```
pub struct Resident<'a> {
    executable: &'a Executable,
    /// How many arguments the caller gave.
    given: usize,
    inputs: Inputs,
}

enum Inputs {
    Cpu(Vec<Tensor>),
    /// With what is the same at every run, which the inputs point to.
    Cuda {
        inputs: CudaInputs,
        _kept: Arc<Kept>,
    },
}

impl Executable {
    /// The function with these arguments, which it holds from now on.
    ///
    /// # Errors
    /// Arguments that do not fit the signature.
    pub fn resident(&self, inputs: Vec<Tensor>) -> Result<Resident<'_>> {
        let given = inputs.len();
        let inputs = match self.code() {
            Code::Cpu(_) => {
                let all = self.all_inputs(&inputs)?;
                // Who has them alone need not copy them.
                drop(inputs);
                self.signature().bind(&all)?;
                Inputs::Cpu(all)
            }
            Code::Cuda(program) => {
                let given: Vec<Given> = inputs.iter().map(Given::Host).collect();
                let (bindings, kept) = (self.bind(&given)?, self.kept(program, &given)?);
                let inputs = program.keep(bindings, &kept.sources(&inputs))?;
                Inputs::Cuda { inputs, _kept: kept }
            }
        };
        Ok(Resident { executable: self, given, inputs })
    }
}

impl Resident<'_> {
    /// Runs the function: its results, `None` for one that is left in an argument.
    ///
    /// # Errors
    /// A kernel's failure.
    pub fn run(&mut self) -> Result<Vec<Option<Tensor>>> {
        match (self.executable.code(), &mut self.inputs) {
            (Code::Cpu(program), Inputs::Cpu(inputs)) => program.run_on(inputs),
            (Code::Cuda(program), Inputs::Cuda { inputs, .. }) => program.run_on(inputs),
            _ => unreachable!("the inputs are where the code is"),
        }
    }

    /// Gives an argument another value, of the same sizes.
    ///
    /// # Errors
    /// No such argument; a tensor of another type.
    pub fn set(&mut self, argument: usize, value: &Tensor) -> Result<()> {
        let before = self.like(argument)?;
        if (value.dtype(), value.shape()) != (before.0, &before.1) {
            let what = format!("argument {argument} of shape {:?} and dtype {}", before.1, before.0);
            return Err(Error::Invalid(format!("{what} was given {:?} of {}", value.shape(), value.dtype())));
        }
        match (self.executable.code(), &mut self.inputs) {
            (Code::Cuda(program), Inputs::Cuda { inputs, .. }) => program.put(inputs, argument, value),
            (_, Inputs::Cpu(inputs)) => value.kept().map(|value| inputs[argument] = value),
            _ => unreachable!("the inputs are where the code is"),
        }
    }

    /// What an argument holds now.
    ///
    /// # Errors
    /// No such argument; the driver's.
    pub fn get(&self, argument: usize) -> Result<Tensor> {
        let (dtype, shape) = self.like(argument)?;
        match (self.executable.code(), &self.inputs) {
            (Code::Cuda(program), Inputs::Cuda { inputs, .. }) => {
                let mut tensor = Tensor::zeros(dtype, &shape)?;
                program.get(inputs, argument, &mut tensor)?;
                Ok(tensor)
            }
            (_, Inputs::Cpu(inputs)) => Ok(inputs[argument].clone()),
            _ => unreachable!("the inputs are where the code is"),
        }
    }

    /// The dtype and the shape of an argument.
    fn like(&self, argument: usize) -> Result<(crate::DType, Vec<usize>)> {
        if argument >= self.given {
            let what = format!("the function has {} arguments, and no number {argument}", self.given);
            return Err(Error::Invalid(what));
        }
        match &self.inputs {
            Inputs::Cpu(inputs) => Ok((inputs[argument].dtype(), inputs[argument].shape().to_vec())),
            Inputs::Cuda { inputs, .. } => {
                let spec = &self.executable.signature().inputs[argument];
                Ok((spec.dtype, spec.sizes(inputs.bindings())?))
            }
        }
    }
}
