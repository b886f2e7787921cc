//! Random inputs for a function.

use crate::program::{Bindings, TensorSpec};
use crate::tensor::Distribution;
use crate::{DType, Tensor};
use rc_dialects::func::{SymbolDecl, arg_names, given_inputs, symbols_of};
use rc_ir::{Body, Name, Result};

/// Random arguments for a function, from a seed, as [`random_input`] draws them.
/// Symbols not in `bindings` take a small value of their range.
///
/// # Errors
/// Malformed symbols, sizes without a value, element types that host tensors do not have.
pub fn random_inputs(body: &Body, seed: u64, bindings: &Bindings) -> Result<Vec<Tensor>> {
    let root = body.op_ref(body.root());
    let mut bindings = bindings.clone();
    for symbol in symbols_of(root)? {
        bindings.entry(symbol.name).or_insert_with(|| small_value(&symbol));
    }
    let names: Vec<Name> = arg_names(body);
    let entry = body.entry().ok_or_else(|| root.error("has no body to run"))?;
    let mut inputs = Vec::new();
    for (i, arg) in body.block_args(entry).enumerate().take(given_inputs(root)) {
        let fail = |e: crate::Error| root.error(format!("argument {i}: {e}"));
        let spec = TensorSpec::new(names.get(i).copied().unwrap_or_default(), body.ty(arg)).map_err(fail)?;
        let shape = spec.sizes(&bindings).map_err(fail)?;
        inputs.push(random_input(spec.dtype, &shape, seed, i).map_err(fail)?);
    }
    Ok(inputs)
}

/// Random elements for argument number `argument`: of the dtype's default distribution, but floats of rank 2 or more have the variance
/// 1 / (last size), so that products keep the magnitude of their operands, as trained weights do.
///
/// # Errors
/// A shape too large for memory.
pub fn random_input(dtype: DType, shape: &[usize], seed: u64, argument: usize) -> crate::Result<Tensor> {
    let distribution = match shape {
        [_, .., last] if dtype.is_float() => Distribution::Normal(0.0, 1.0 / (*last.max(&1) as f64).sqrt()),
        _ => Distribution::default_for(dtype),
    };
    Tensor::random(dtype, shape, seed, argument as u32, distribution)
}

/// A value of a symbol's range for which running is quick: 7, or what is allowed near it.
pub fn small_value(symbol: &SymbolDecl) -> i64 {
    let near = symbol.max.min(symbol.min.max(7));
    let multiple = near.div_euclid(symbol.divisor) * symbol.divisor;
    if symbol.allows(multiple) { multiple } else { multiple + symbol.divisor }
}
