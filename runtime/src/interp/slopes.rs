//! Derivatives against differences of the function itself, in float64.

use super::{Interpreter, Mode};
use crate::tensor::{DType, Distribution, Tensor};
use rc_ir::{Diagnostic, Loc, Module, Result};

/// A derivative of a weighted sum of a function's results, along a random direction of one argument.
#[derive(Clone, Copy, Debug)]
pub struct Slope {
    pub argument: usize,
    /// By the joint function.
    pub found: f64,
    /// By differences; of several step lengths, the one that is nearest.
    pub expected: f64,
    /// How far apart they may be: what differences of such numbers can tell.
    pub tolerance: f64,
}

impl Slope {
    pub fn agrees(&self) -> bool {
        (self.found - self.expected).abs() <= self.tolerance
    }
    /// Whether both are numbers: at a pole, or outside of a function's domain, there is nothing to compare.
    pub fn is_finite(&self) -> bool {
        self.found.is_finite() && self.expected.is_finite()
    }
}

impl std::fmt::Display for Slope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Slope { argument, found, expected, .. } = self;
        let word = if self.agrees() { "agrees with" } else { "differs from" };
        write!(f, "argument {argument}: slope {found:.9e} {word} that by differences, {expected:.9e}")
    }
}

/// A function and its joint function, of `mode = vjp`.
pub struct Slopes<'m> {
    pub function: &'m str,
    pub primal: &'m Module,
    pub joint: &'m Module,
    /// The arguments that it was differentiated for, and the results that it was differentiated of.
    pub arguments: &'m [usize],
    pub results: &'m [usize],
}

/// Lengths of steps: a kink may be within a long one, and a short one loses digits.
const STEPS: [f64; 4] = [1e-2, 1e-3, 1e-4, 1e-5];

impl Slopes<'_> {
    /// A slope for each argument, at a point, for weights and directions from a seed.
    ///
    /// # Errors
    /// Those of running either function.
    pub fn check(&self, point: &[Tensor], seed: u64) -> Result<Vec<Slope>> {
        let point: Vec<Tensor> = point.iter().map(to_f64).collect::<Result<_>>()?;
        let run = |module: &Module, args: &[Tensor]| Interpreter::new(module, Mode::Float64).run(self.function, args);
        let values = run(self.primal, &point)?;
        let weights = self.weights(&values, seed)?;
        let all = run(self.joint, &[&point[..], &weights].concat())?;
        let gradients = &all[values.len()..];
        let size = self.weighted(&values, &weights, f64::abs);
        let mut slopes = Vec::new();
        for (k, (&argument, gradient)) in self.arguments.iter().zip(gradients).enumerate() {
            let at = &point[argument];
            let direction = random(at.shape(), seed, 100 + k)?;
            let products: Vec<f64> = gradient.to_f64().iter().zip(direction.to_f64()).map(|(g, t)| g * t).collect();
            let found: f64 = products.iter().sum();
            let along = |step: f64| -> Result<f64> {
                let mut moved = point.clone();
                let values: Vec<f64> = at.to_f64().iter().zip(direction.to_f64()).map(|(x, t)| x + step * t).collect();
                moved[argument] = Tensor::from_f64(DType::F64, at.shape(), &values).map_err(error)?;
                Ok(self.weighted(&run(self.primal, &moved)?, &weights, |x| x))
            };
            let mut expected = f64::NAN;
            for step in STEPS {
                let central = |h: f64| -> Result<f64> { Ok((along(h)? - along(-h)?) / (2.0 * h)) };
                // The errors of second order cancel.
                let slope = (4.0 * central(step / 2.0)? - central(step)?) / 3.0;
                if expected.is_nan() || (slope - found).abs() < (expected - found).abs() {
                    expected = slope;
                }
            }
            let tolerance = 1e-6 * products.iter().map(|p| p.abs()).sum::<f64>() + 1e-8 * (size + 1e-3);
            slopes.push(Slope { argument, found, expected, tolerance });
        }
        Ok(slopes)
    }

    fn weights(&self, values: &[Tensor], seed: u64) -> Result<Vec<Tensor>> {
        self.results.iter().map(|&i| random(values[i].shape(), seed, i)).collect()
    }

    fn weighted(&self, values: &[Tensor], weights: &[Tensor], term: fn(f64) -> f64) -> f64 {
        let sum = |(&i, w): (&usize, &Tensor)| -> f64 {
            values[i].to_f64().iter().zip(w.to_f64()).map(|(x, w)| term(x * w)).sum()
        };
        self.results.iter().zip(weights).map(sum).sum()
    }
}

fn random(shape: &[usize], seed: u64, number: usize) -> Result<Tensor> {
    Tensor::random(DType::F64, shape, seed, number as u32, Distribution::Normal(0.0, 1.0)).map_err(error)
}

fn to_f64(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_float() { x.cast(DType::F64).map_err(error) } else { Ok(x.clone()) }
}

fn error(e: crate::Error) -> Box<Diagnostic> {
    Diagnostic::error(Loc::UNKNOWN, e.to_string())
}
