//! Matrix products.

use super::arith::broadcast_shapes;
use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, NUMERIC_TENSOR, default_acc, one};
use crate::interfaces::Decompose;
use rc_ir::op_def::{InferArgs, operand, optional, result};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Type, Value};

pub static LINEAR: OpDef = OpDef {
    summary: "x wᵀ + b over the last dimension of x.",
    doc: "x is [.., k], w [n, k], the bias [n], the result [.., n]. The product is accumulated in f32 (f64 for f64), the bias is added \
          there, and the result is rounded once.",
    example: "func.func @linear(%x: tensor<2x3x5xf32>, %w: tensor<7x5xf32>, %b: tensor<7xf32>) -> tensor<2x3x7xf32> {
  %y = tensor.linear %x, %w bias(%b) : tensor<2x3x7xf32>
  func.return %y
}
",
    operands: &[operand("x", NUMERIC_TENSOR), operand("w", NUMERIC_TENSOR), optional("bias", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_linear),
    interfaces: &[&Decompose(define_linear)],
    ..OpDef::new("rc.tensor.linear")
};

pub static MATMUL: OpDef = OpDef {
    summary: "The matrix product of the last two dimensions.",
    doc: "a is [.., m, k], b [.., k, n]; the dimensions before them broadcast by numpy's rules. Accumulated in f32 (f64 for f64), \
          rounded once to the element type.",
    example: "func.func @matmul(%a: tensor<2x3x5xf32>, %b: tensor<5x7xf32>) -> tensor<2x3x7xf32> {
  %y = tensor.matmul %a, %b : tensor<2x3x7xf32>
  func.return %y
}
",
    operands: &[operand("a", NUMERIC_TENSOR), operand("b", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_matmul),
    interfaces: &[&Decompose(define_matmul)],
    ..OpDef::new("rc.tensor.matmul")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&LINEAR, &MATMUL];

fn infer_linear(args: &InferArgs) -> Inferred {
    let (x, w) = (args.operand(0)?, args.operand(1)?);
    let (xs, ws) = (x.shape(), w.shape());
    let (Some(&k), &[n, l]) = (xs.last(), ws.as_slice()) else {
        return Err(format!("needs x of rank 1 or more and w of rank 2, and has {x} and {w}"));
    };
    if k != l || x.elem() != w.elem() {
        return Err(format!("needs the last dimensions and element types of x and w to be equal, and has {x} and {w}"));
    }
    if let Some(&bias) = args.operands.get(2).filter(|b| **b != x.with_shape(&[n])) {
        return Err(format!("needs a bias of type {}, and has {bias}", x.with_shape(&[n])));
    }
    let mut shape = xs.clone();
    shape[xs.len() - 1] = n;
    one(x.with_shape(&shape))
}

fn define_linear(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let operands: Vec<Value> = b.body.operands(op).collect();
    let last = b.ty(operands[0]).rank() as i64 - 1;
    let elem = b.ty(operands[0]).elem();
    let Some(&bias) = operands.get(2) else { return Ok(vec![b.dot(operands[0], operands[1], 0, last, 1)]) };
    let acc = default_acc(elem);
    let product = b.contract(operands[0], operands[1], [&[], &[]], [&[last], &[1]], acc);
    let shape = b.ty(product).shape();
    let bias = b.convert(bias, acc);
    let bias = b.broadcast_to(bias, &shape);
    let sum = b.binary("add", product, bias);
    Ok(vec![b.convert(sum, elem)])
}

/// The batch dimensions of a product, and the operands' types.
fn batch_of(a: Type, b: Type) -> std::result::Result<Vec<Dim>, String> {
    if a.rank() < 2 || b.rank() < 2 {
        return Err(format!("needs operands of rank 2 or more, and has {a} and {b}"));
    }
    broadcast_shapes(&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2])
}

fn infer_matmul(args: &InferArgs) -> Inferred {
    let (a, b) = (args.operand(0)?, args.operand(1)?);
    let mut shape = batch_of(a, b)?;
    let (m, k, l, n) =
        (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1], b.shape()[b.rank() - 2], b.shape()[b.rank() - 1]);
    if k != l || a.elem() != b.elem() {
        return Err(format!("cannot multiply {a} by {b}"));
    }
    shape.extend([m, n]);
    one(a.with_shape(&shape))
}

fn define_matmul(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (lhs, rhs) = (b.body.operand(op, 0), b.body.operand(op, 1));
    let (l, r) = (b.ty(lhs), b.ty(rhs));
    // A plain matrix on the right multiplies every row of the left: no batch to broadcast.
    if r.rank() == 2 {
        return Ok(vec![b.dot(lhs, rhs, 0, l.rank() as i64 - 1, 0)]);
    }
    let batch = batch_of(l, r).expect("verified");
    let full =
        |ty: Type| -> Vec<Dim> { batch.iter().copied().chain(ty.shape()[ty.rank() - 2..].iter().copied()).collect() };
    let lhs = b.broadcast_to(lhs, &full(l));
    let rhs = b.broadcast_to(rhs, &full(r));
    let n = batch.len() as i64;
    Ok(vec![b.dot(lhs, rhs, n, n + 1, n)])
}
