//! Softmax and normalizations.

use super::reduce::log_sum_exp;
use super::{compute_type, norm_derivative};
use crate::builder::CoreBuilder;
use crate::constraints::FLOAT_TENSOR;
use crate::derivative::Derivative;
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDefault, AttrKind, OperandDef, ResultDef, attr, infer_same, operand, optional, result};
use rc_ir::{Builder, Effects, Op, OpDef, OpRef, Result, Value};

const DIM: rc_ir::op_def::AttrDef = attr("dim", AttrKind::I64, "The dimension; negative ones count from the end.");

pub static SOFTMAX: OpDef = OpDef {
    summary: "exp(x - max) / sum exp(x - max) along a dimension.",
    doc: "Computed in f32 for narrower types and rounded once.",
    example: "func.func @softmax(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.softmax %x {dim = -1} : tensor<3x5xf32>
  func.return %y
}
",
    attrs: &[DIM],
    verify: Some(verify_dim),
    interfaces: &[&Decompose(define_softmax), &Derivative::Vjp(norm_derivative::softmax_vjp)],
    ..function(op::tensor::SOFTMAX)
};

pub static LOG_SOFTMAX: OpDef = OpDef {
    summary: "x - max - log sum exp(x - max) along a dimension.",
    doc: "Computed in f32 for narrower types and rounded once.",
    example: "func.func @log_softmax(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.log_softmax %x {dim = 1} : tensor<3x5xf32>
  func.return %y
}
",
    attrs: &[DIM],
    verify: Some(verify_dim),
    interfaces: &[&Decompose(define_log_softmax), &Derivative::Vjp(norm_derivative::log_softmax_vjp)],
    ..function(op::tensor::LOG_SOFTMAX)
};

pub static LAYER_NORM: OpDef = OpDef {
    summary: "(x - mean) / sqrt(variance + eps) over the last dimension, scaled and shifted.",
    doc: "Mean and variance (of the whole population) of each row. Weight and bias have the row's shape. \
          Computed in f32 for narrower types, weight and bias included, and rounded once. (Ba, Kiros and Hinton, 2016.)",
    example: "func.func @layer_norm(%x: tensor<3x5xf32>, %w: tensor<5xf32>, %b: tensor<5xf32>) -> tensor<3x5xf32> {
  %y = tensor.layer_norm %x weight(%w) bias(%b) {eps = 1.0e-05} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", FLOAT_TENSOR), optional("weight", FLOAT_TENSOR), optional("bias", FLOAT_TENSOR)],
    attrs: &[attr("eps", AttrKind::F64, "Added to the variance.").default(AttrDefault::Float(1e-5))],
    verify: Some(verify_norm),
    interfaces: &[&Decompose(define_layer_norm), &Derivative::Vjp(norm_derivative::layer_norm_vjp)],
    ..function(op::tensor::LAYER_NORM)
};

pub static RMS_NORM: OpDef = OpDef {
    summary: "x / sqrt(mean(x²) + eps) over the last dimension, scaled.",
    doc: "The normalized row is computed in f32 for narrower types, weight included, and rounded once. (Zhang and Sennrich, 2019.)",
    example: "func.func @rms_norm(%x: tensor<3x5xf32>, %w: tensor<5xf32>) -> tensor<3x5xf32> {
  %y = tensor.rms_norm %x weight(%w) {eps = 1.0e-06} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", FLOAT_TENSOR), optional("weight", FLOAT_TENSOR)],
    attrs: &[attr("eps", AttrKind::F64, "Added to the mean square.").default(AttrDefault::Float(1e-6))],
    verify: Some(verify_norm),
    interfaces: &[&Decompose(define_rms_norm), &Derivative::Vjp(norm_derivative::rms_norm_vjp)],
    ..function(op::tensor::RMS_NORM)
};

const X: &[OperandDef] = &[operand("x", FLOAT_TENSOR)];
const RESULT: &[ResultDef] = &[result("result", FLOAT_TENSOR)];

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&SOFTMAX, &LOG_SOFTMAX, &LAYER_NORM, &RMS_NORM];

const fn function(name: &'static str) -> OpDef {
    OpDef { operands: X, results: RESULT, effects: Effects::Pure, infer: Some(infer_same), ..OpDef::new(name) }
}

/// The dimension that `dim` names, from 0.
pub(super) fn dim_of(op: OpRef) -> Option<i64> {
    let rank = op.body.ty(op.operand(0)).rank() as i64;
    let dim = op.int("dim")?;
    let dim = if dim < 0 { dim + rank } else { dim };
    (0..rank).contains(&dim).then_some(dim)
}

fn verify_dim(op: OpRef) -> Result {
    match dim_of(op) {
        Some(_) => Ok(()),
        None => {
            Err(op.error(format!("has no dimension {} in {}", op.int("dim").unwrap_or(0), op.body.ty(op.operand(0)))))
        }
    }
}

fn verify_norm(op: OpRef) -> Result {
    let x = op.body.ty(op.operand(0));
    let Some(&last) = x.shape().last() else { return Err(op.error("needs a tensor with at least one dimension")) };
    for name in ["weight", "bias"] {
        for value in op.group(name) {
            let ty = op.body.ty(value);
            if ty != x.with_shape(&[last]) {
                return Err(op.error(format!("needs a {name} of type {}, and has {ty}", x.with_shape(&[last]))));
            }
        }
    }
    Ok(())
}

/// x - max in the type for computing, and the dimension.
fn shifted(b: &mut Builder, op: Op) -> (Value, i64) {
    let x = b.body.operand(op, 0);
    let dim = dim_of(b.body.op_ref(op)).expect("verified");
    let wide = b.convert(x, compute_type(b.ty(x).elem()));
    let max = b.reduce_and_broadcast("max", wide, &[dim]);
    let shifted = b.binary("sub", wide, max);
    (shifted, dim)
}

fn define_softmax(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let elem = b.ty(b.body.operand(op, 0)).elem();
    let (shifted, dim) = shifted(b, op);
    let exp = b.unary("exp", shifted);
    let sum = b.reduce_and_broadcast("add", exp, &[dim]);
    // One division for each row: the sum lies between 1 and the row's length.
    let one = b.splat(1.0, b.ty(sum));
    let inverse = b.binary("div", one, sum);
    let y = b.binary("mul", exp, inverse);
    Ok(vec![b.convert(y, elem)])
}

fn define_log_softmax(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let elem = b.ty(b.body.operand(op, 0)).elem();
    let (shifted, dim) = shifted(b, op);
    let shape = b.ty(shifted).shape();
    let log = log_sum_exp(b, shifted, &[dim]);
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|&d| d != dim).collect();
    let log = b.broadcast(log, &shape, &kept);
    let y = b.binary("sub", shifted, log);
    Ok(vec![b.convert(y, elem)])
}

/// The mean over the last dimension, broadcast back.
pub(super) fn mean(b: &mut Builder, x: Value) -> Value {
    let mean = mean_of_rows(b, x);
    along_rows(b, mean, x)
}

/// The mean over the last dimension.
fn mean_of_rows(b: &mut Builder, x: Value) -> Value {
    let shape = b.ty(x).shape();
    let last = shape.len() - 1;
    let sum = b.reduce("add", x, &[last as i64]);
    match shape[last].as_static() {
        Some(n) => b.binary_scalar("mul", sum, 1.0 / n as f64),
        None => {
            let rows = b.ty(sum).shape();
            let count = b.size(shape[last], b.ty(x).elem(), &rows);
            b.binary("div", sum, count)
        }
    }
}

/// A value for each row of `x`, broadcast to it.
fn along_rows(b: &mut Builder, value: Value, x: Value) -> Value {
    let shape = b.ty(x).shape();
    let kept: Vec<i64> = (0..shape.len() as i64 - 1).collect();
    b.broadcast(value, &shape, &kept)
}

/// 1/sqrt(mean(x²) + eps) of each row, broadcast to it.
pub(super) fn inverse_root_mean_square(b: &mut Builder, x: Value, eps: f64) -> Value {
    let square = b.binary("mul", x, x);
    let mean = mean_of_rows(b, square);
    let shifted = b.binary_scalar("add", mean, eps);
    let inverse = b.unary("rsqrt", shifted);
    along_rows(b, inverse, x)
}

/// Multiplies by 1/sqrt(mean(x²) + eps).
fn by_root_mean_square(b: &mut Builder, x: Value, eps: f64) -> Value {
    let inverse = inverse_root_mean_square(b, x, eps);
    b.binary("mul", x, inverse)
}

/// Applies an operation with a row, widened and broadcast.
fn with_row(b: &mut Builder, op: Op, group: &str, core: &str, y: Value) -> Value {
    let Some(&row) = b.body.op_ref(op).group(group).first() else { return y };
    let (shape, elem) = (b.ty(y).shape(), b.ty(y).elem());
    let wide = b.convert(row, elem);
    let wide = b.broadcast_to(wide, &shape);
    b.binary(core, y, wide)
}

pub(super) fn eps_of(b: &Builder, op: Op) -> f64 {
    b.body.op_ref(op).attr("eps").and_then(|a| a.as_float()).expect("verified")
}

fn define_layer_norm(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let elem = b.ty(x).elem();
    let eps = eps_of(b, op);
    let wide = b.convert(x, compute_type(elem));
    let mean = mean(b, wide);
    let centered = b.binary("sub", wide, mean);
    let normal = by_root_mean_square(b, centered, eps);
    let scaled = with_row(b, op, "weight", "mul", normal);
    let y = with_row(b, op, "bias", "add", scaled);
    Ok(vec![b.convert(y, elem)])
}

fn define_rms_norm(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let elem = b.ty(x).elem();
    let eps = eps_of(b, op);
    let wide = b.convert(x, compute_type(elem));
    let normal = by_root_mean_square(b, wide, eps);
    let y = with_row(b, op, "weight", "mul", normal);
    Ok(vec![b.convert(y, elem)])
}
