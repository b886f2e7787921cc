//! Modules are built with the builder or written as text; expected values come from formulas written out here.

mod bind;
mod core;
mod dot;
mod elementwise;
mod examples;
mod host;
mod loops;
mod threads;
mod tiles;
mod units;

use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::{Builder, Loc, Module, Type, Value};

use super::{Interpreter, Mode};
use crate::tensor::{DType, Tensor};

pub fn tensor(shape: &[i64], elem: Type) -> Type {
    Type::tensor_of(shape, elem)
}

/// A module with the function `@f` that `build` fills; it returns what `build` gives.
pub fn module_of(inputs: &[Type], build: impl FnOnce(&mut Builder, &[Value]) -> Vec<Value>) -> Module {
    rc_dialects::register();
    let mut func = new_function(op::func::FUNC, "f", inputs, &[], Loc::UNKNOWN);
    let mut b = Builder::at_end(&mut func.body, func.entry);
    let results = build(&mut b, &func.args);
    b.op(op::func::RETURN).operands(&results).build();
    let types: Vec<Type> = results.iter().map(|&v| func.body.ty(v)).collect();
    func.body.set_attr(func.body.root(), "function_type", rc_ir::Attr::ty(Type::function(inputs, &types)));
    let mut module = Module::default();
    module.push(func.body);
    module
}

pub fn run(module: &Module, mode: Mode, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    Interpreter::new(module, mode).run("f", args).map_err(|d| d.message)
}

/// The one result of a function of one op, as typed.
pub fn run_op(
    inputs: &[Type],
    args: &[Tensor],
    build: impl FnOnce(&mut Builder, &[Value]) -> Value,
) -> Result<Tensor, String> {
    let module = module_of(inputs, |b, args| vec![build(b, args)]);
    run(&module, Mode::Typed, args).map(|mut r| r.remove(0))
}

pub fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}
pub fn i64s(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    Tensor::random_input(dtype, shape, seed, 0).unwrap()
}

/// A module from its text.
pub fn parse(text: &str) -> Module {
    rc_dialects::register();
    let (module, errors) = rc_parser::parse_module("test.ir", text);
    module.unwrap_or_else(|| panic!("{}", errors.iter().map(|d| d.render()).collect::<String>()))
}

/// The results of `@f` as typed, in f64.
pub fn values(text: &str, args: &[Tensor]) -> Result<Vec<Vec<f64>>, String> {
    Ok(run(&parse(text), Mode::Typed, args)?.iter().map(Tensor::to_f64).collect())
}

/// Whether two arrays agree within `relative` of the greatest magnitude.
pub fn assert_close(got: &[f64], want: &[f64], relative: f64) {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= relative * scale || g.is_nan() && w.is_nan(), "element {i}: {g} instead of {w}");
    }
}

/// A kernel `@k` and a function `@f` that launches it: `inputs` and `output` are parts of types, as `2x3xf32`.
pub fn launched(attributes: &str, inputs: &[&str], output: &str, body: &str) -> String {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("%x{i}")).collect();
    let list = |kind: &str| names.iter().zip(inputs).map(|(n, t)| format!("{n}: {kind}<{t}>")).collect::<Vec<_>>();
    let mut memrefs = list("memref");
    memrefs.push(format!("%y: memref<{output}>"));
    format!(
        "kernel.func @k({}) attributes {{target = cuda, {attributes}}} {{\n{body}\n  kernel.return\n}}\n\
         func.func @f({}) -> tensor<{output}> {{\n  %r = host.launch {} {{callee = \"k\"}} : tensor<{output}>\n  func.return %r\n}}\n",
        memrefs.join(", "),
        list("tensor").join(", "),
        names.join(", "),
    )
}

/// The result of a launch, or the error's message, in ascending order and in two shuffled ones: all must agree.
pub fn launch(text: &str, args: &[Tensor]) -> Result<Vec<f64>, String> {
    let module = parse(text);
    let go = |interpreter: Interpreter| interpreter.run("f", args).map(|r| r[0].to_f64()).map_err(|d| d.message);
    let first = go(Interpreter::new(&module, Mode::Typed));
    for seed in [1, 2] {
        let other = go(Interpreter::new(&module, Mode::Typed).shuffled(seed));
        match (&first, &other) {
            (Ok(a), Ok(b)) => assert!(a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())),
            (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "{a:?} {b:?}"),
        }
    }
    first
}
