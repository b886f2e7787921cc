//! Inputs for a function: what `rc-run` and `--check-each-pass` run it on.

use rc_dialects::func::{arg_names, symbols_of};
use rc_ir::{Body, Name, Result};
use rc_runtime::Tensor;
use rc_runtime::program::{Bindings, TensorSpec};

/// Random arguments for a function, from a seed, each of its dtype's default distribution.
/// Symbols not in `bindings` take a small value of their range.
///
/// # Errors
/// Malformed symbols, sizes without a value, element types that host tensors do not have.
pub fn random_inputs(body: &Body, seed: u64, bindings: &Bindings) -> Result<Vec<Tensor>> {
    let root = body.op_ref(body.root());
    let mut bindings = bindings.clone();
    for symbol in symbols_of(root)? {
        let small = symbol.max.min(symbol.min.max(7)) / symbol.divisor * symbol.divisor;
        bindings.entry(symbol.name).or_insert(if symbol.allows(small) { small } else { symbol.max });
    }
    let names: Vec<Name> = arg_names(body);
    let entry = body.entry().ok_or_else(|| root.error("has no body to run"))?;
    let mut inputs = Vec::new();
    for (i, arg) in body.block_args(entry).enumerate() {
        let fail = |e: rc_runtime::Error| root.error(format!("argument {i}: {e}"));
        let spec = TensorSpec::new(names.get(i).copied().unwrap_or_default(), body.ty(arg)).map_err(fail)?;
        let shape = spec.sizes(&bindings).map_err(fail)?;
        inputs.push(Tensor::random_input(spec.dtype, &shape, seed, i as u32).map_err(fail)?);
    }
    Ok(inputs)
}
