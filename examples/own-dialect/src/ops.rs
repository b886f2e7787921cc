//! The operations. A declaration is all that parser, printer, verifier, reference pages and generic passes need.

use rc_dialects::CoreBuilder;
use rc_dialects::constraints::FLOAT_TENSOR;
use rc_dialects::interfaces::Decompose;
use rc_ir::op_def::{Effects, InferArgs, OpDef, Types, operand, result};
use rc_ir::{Builder, Dim, Op, OpRef, Result, Type, Value};
use rc_runtime::Tensor;
use rc_runtime::interp::Interpret;

pub static EVAL: OpDef = OpDef {
    summary: "The values of a polynomial.",
    doc: "Element i of the result is the sum of coefficients[k] * x[i]^k. A polynomial without coefficients is 0.",
    example: r#"
func.func @main(%x: tensor<n x f32>, %c: tensor<3xf32>) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [0, 64, 1]>} {
  %y = poly.eval %x, %c : tensor<n x f32>
  func.return %y
}"#,
    operands: &[operand("x", FLOAT_TENSOR), operand("coefficients", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    effects: Effects::Pure,
    infer: Some(|args| {
        coefficients(args, 1)?;
        Ok(Types::from_iter([args.operand(0)?]))
    }),
    interfaces: &[&Interpret(eval), &Decompose(horner)],
    ..OpDef::new("poly.eval")
};

pub static MUL: OpDef = OpDef {
    summary: "The product of two polynomials.",
    doc: "Of n and m coefficients there are n + m - 1, and none where an operand has none.",
    example: r#"
func.func @main(%a: tensor<3xf32>, %b: tensor<2xf32>) -> tensor<4xf32> {
  %c = poly.mul %a, %b : tensor<4xf32>
  func.return %c
}"#,
    operands: &[operand("a", FLOAT_TENSOR), operand("b", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    effects: Effects::Pure,
    infer: Some(|args| {
        let (n, m) = (coefficients(args, 0)?, coefficients(args, 1)?);
        let count = if n == 0 || m == 0 { 0 } else { n + m - 1 };
        Ok(Types::from_iter([Type::tensor_of(&[count], args.operand(0)?.elem())]))
    }),
    interfaces: &[&Interpret(mul), &Decompose(shifted_sum)],
    ..OpDef::new("poly.mul")
};

/// How many coefficients operand `i` has. They are of the type of the first operand's elements.
fn coefficients(args: &InferArgs, i: usize) -> std::result::Result<i64, String> {
    let (ty, elem) = (args.operand(i)?, args.operand(0)?.elem());
    match ty.shape().as_slice() {
        [Dim::Static(n)] if ty.elem() == elem => Ok(*n),
        _ => Err(format!("expects coefficients of a known number and of type {elem}, got {ty}")),
    }
}

/// What `poly.eval` means: in float64, the interpreter rounds the results to their type.
fn eval(op: OpRef, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, c) = (args[0].to_f64(), args[1].to_f64());
    let values: Vec<f64> = x.iter().map(|x| c.iter().rfold(0.0, |sum, c| sum * x + c)).collect();
    Ok(vec![Tensor::from_slice(args[0].shape(), &values).map_err(|e| op.error(e))?])
}

fn mul(op: OpRef, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let (a, b) = (args[0].to_f64(), args[1].to_f64());
    let mut sums = vec![0.0; if a.is_empty() || b.is_empty() { 0 } else { a.len() + b.len() - 1 }];
    for (i, a) in a.iter().enumerate() {
        b.iter().enumerate().for_each(|(j, b)| sums[i + j] += a * b);
    }
    Ok(vec![Tensor::from_slice(&[sums.len()], &sums).map_err(|e| op.error(e))?])
}

/// Coefficient `i` of `%c`, everywhere in a tensor of `shape`.
fn coefficient(b: &mut Builder, c: Value, i: i64, shape: &[Dim]) -> Value {
    let one = b.slice(c, &[Dim::Static(i)], &[Dim::Static(1)]);
    let scalar = b.reshape(one, &[]);
    b.broadcast(scalar, shape, &[])
}

/// ((c[n - 1] * x + c[n - 2]) * x + …) * x + c[0]
fn horner(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (x, c) = (b.body.operand(op, 0), b.body.operand(op, 1));
    let (ty, n) = (b.ty(x), b.ty(c).num_elements().as_static().unwrap_or(0));
    if n == 0 {
        return Ok(vec![b.splat(0.0, ty)]);
    }
    let shape = ty.shape();
    let mut sum = coefficient(b, c, n - 1, &shape);
    for i in (0..n - 1).rev() {
        let product = b.binary("mul", sum, x);
        let next = coefficient(b, c, i, &shape);
        sum = b.binary("add", product, next);
    }
    Ok(vec![sum])
}

/// The sum over i of a[i] * b, moved i places up.
fn shifted_sum(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (x, y, ty) = (b.body.operand(op, 0), b.body.operand(op, 1), b.ty(b.body.result(op, 0)));
    let (n, shape) = (b.ty(x).num_elements().as_static().unwrap_or(0), b.ty(y).shape());
    let mut sum = b.splat(0.0, ty);
    for i in 0..if ty.num_elements() == Dim::Static(0) { 0 } else { n } {
        let factor = coefficient(b, x, i, &shape);
        let product = b.binary("mul", factor, y);
        let moved = b.pad_or_crop(product, 0.0, &[Dim::Static(i)], &[Dim::Static(n - 1 - i)]);
        sum = b.binary("add", sum, moved);
    }
    Ok(vec![sum])
}
