//! A function's derivatives against differences in float64: what `rc-run --check-gradients` reports.

use rc_ir::pass::{Options, PassContext};
use rc_ir::{Body, Module, Name, Result, Type};
use rc_passes::autodiff::{AUTODIFF, Mode, Request, autodiff};
use rc_runtime::Tensor;
use rc_runtime::interp::slopes::{Slope, Slopes};

/// For each argument of floats, the slope of a randomly weighted sum of all results of floats along a random direction.
///
/// # Errors
/// What has no derivative, at the operation; those of running the function in the interpreter.
pub fn check_gradients(module: &Module, function: &str, inputs: &[Tensor], seed: u64) -> Result<Vec<Slope>> {
    let name = Name::new(function);
    let body = module.symbol(name).expect("the caller has found the function");
    let (arguments, results) = floats(body);
    let request = Request { function: name, mode: Mode::Vjp, arguments, results };
    let mut joint = module.clone();
    let options = Options::defaults(&AUTODIFF);
    autodiff(&mut joint, &request, &mut PassContext::new(&options))?;
    let slopes =
        Slopes { function, primal: module, joint: &joint, arguments: &request.arguments, results: &request.results };
    slopes.check(inputs, seed)
}

/// The numbers of a function's arguments and results of floats.
fn floats(body: &Body) -> (Vec<usize>, Vec<usize>) {
    let ty = body.attr(body.root(), "function_type").and_then(|t| t.as_type());
    let (inputs, results) = ty.and_then(Type::as_function).unwrap_or_default();
    let of = |types: &[Type]| (0..types.len()).filter(|&i| types[i].elem().is_float()).collect();
    (of(inputs), of(results))
}
