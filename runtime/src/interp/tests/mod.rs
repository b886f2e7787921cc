//! Modules are built with the builder; expected values come from formulas written out here.

mod bind;
mod core;
mod dot;
mod elementwise;

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
    let mut func = new_function("func.func", "f", inputs, &[], Loc::UNKNOWN);
    let mut b = Builder::at_end(&mut func.body, func.entry);
    let results = build(&mut b, &func.args);
    b.op("func.return").operands(&results).build();
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
pub fn run_op(inputs: &[Type], args: &[Tensor], build: impl FnOnce(&mut Builder, &[Value]) -> Value) -> Result<Tensor, String> {
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
