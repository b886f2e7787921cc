//! Attention and embedding.

use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, INT_TENSOR, Inferred, MASK_TENSOR, TENSOR, one};
use crate::core::attention::infer_attention;
use crate::interfaces::Decompose;
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Type, Value};

pub static SDPA: OpDef = OpDef {
    summary: "Scaled dot-product attention: softmax(q kᵀ scale + mask) v.",
    doc: "As core.attention, which defines it. A mask of i1 hides a key where it is false; one of floats is added to the scaled scores. \
          Where q has more heads (dimension -3) than k and v, by a whole factor, so many heads of q one after the other share a head of these.",
    example: "func.func @sdpa(%q: tensor<1x4x7x8xf32>, %k: tensor<1x2x7x8xf32>, %v: tensor<1x2x7x8xf32>) -> tensor<1x4x7x8xf32> {
  %y = tensor.sdpa %q, %k, %v {causal = true} : tensor<1x4x7x8xf32>
  func.return %y
}
",
    operands: &[operand("q", FLOAT_TENSOR), operand("k", FLOAT_TENSOR), operand("v", FLOAT_TENSOR), optional("mask", MASK_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[
        attr("causal", AttrKind::Bool, "Hides keys after the query.").default(AttrDefault::Bool(false)),
        attr("scale", AttrKind::F64, "Multiplies the scores; absent: 1/sqrt(size).").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_sdpa),
    interfaces: &[&Decompose(define_sdpa)],
    ..OpDef::new("rc.tensor.sdpa")
};

pub static EMBEDDING: OpDef = OpDef {
    summary: "Rows of a table, at the places that ids name.",
    doc: "As core.gather along dimension 0, which defines it.",
    example: "func.func @embedding(%table: tensor<10x4xf32>, %ids: tensor<2x3xi64>) -> tensor<2x3x4xf32> {
  %y = tensor.embedding %table, %ids : tensor<2x3x4xf32>
  func.return %y
}
",
    operands: &[operand("table", TENSOR), operand("ids", INT_TENSOR)],
    results: &[result("result", TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_embedding),
    interfaces: &[&Decompose(|b, op| {
        let (table, ids) = (b.body.operand(op, 0), b.body.operand(op, 1));
        Ok(vec![b.gather(table, ids, 0)])
    })],
    ..OpDef::new("rc.tensor.embedding")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&SDPA, &EMBEDDING];

fn infer_embedding(args: &InferArgs) -> Inferred {
    let (table, ids) = (args.operand(0)?, args.operand(1)?);
    let Some((_, row)) = table.shape().split_first().map(|(n, row)| (*n, row.to_vec())) else {
        return Err("needs a table with at least one dimension".into());
    };
    let shape: Vec<_> = ids.shape().into_iter().chain(row).collect();
    one(table.with_shape(&shape))
}

/// How many heads of q share one of k: 1 where they have as many, or are not dimension -3 of at least three.
fn shared_heads(q: Type, k: Type) -> std::result::Result<i64, String> {
    let heads = |t: Type| t.rank().checked_sub(3).and_then(|d| t.shape()[d].as_static());
    match (heads(q), heads(k)) {
        (Some(q), Some(k)) if k > 0 && q > k && q % k == 0 => Ok(q / k),
        (Some(q), Some(k)) if q != k => Err(format!("has {q} heads in q, no multiple of the {k} in k")),
        _ => Ok(1),
    }
}

fn infer_sdpa(args: &InferArgs) -> Inferred {
    let shared = shared_heads(args.operand(0)?, args.operand(1)?)?;
    let mut types = args.operands.to_vec();
    for ty in types.iter_mut().skip(1).take(2).filter(|t| shared > 1 && t.rank() >= 3) {
        let mut shape = ty.shape();
        let heads = shape.len() - 3;
        shape[heads] = shape[heads] * Dim::Static(shared);
        *ty = ty.with_shape(&shape);
    }
    infer_attention(&InferArgs { operands: &types, ..*args })
}

fn define_sdpa(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let mut operands: Vec<Value> = b.body.operands(op).collect();
    let attrs = b.body.attrs(op);
    let elem = b.ty(operands[0]).elem();
    let shared = shared_heads(b.ty(operands[0]), b.ty(operands[1])).expect("verified");
    for value in operands.iter_mut().skip(1).take(2).filter(|_| shared > 1) {
        *value = repeat_heads(b, *value, shared);
    }
    if let Some(mask) = operands.get_mut(3).filter(|m| b.ty(**m).elem() == Type::i1()) {
        let ty = b.ty(*mask).with_elem(elem);
        let (seen, hidden) = (b.splat(0.0, ty), b.splat(f64::NEG_INFINITY, ty));
        *mask = b.select(*mask, seen, hidden);
    }
    let shape = b.ty(b.body.result(op, 0)).shape().to_vec();
    if !(3..=4).contains(&shape.len()) {
        operands = with_one_batch(b, &operands);
    }
    let y = b.op("rc.core.attention").operands(&operands).attrs(attrs).value();
    Ok(vec![b.reshape(y, &shape)])
}

/// All dimensions before the last two as one: kernels know a batch and heads, or one of them.
fn with_one_batch(b: &mut Builder, operands: &[Value]) -> Vec<Value> {
    let (q, k) = (b.ty(operands[0]).shape().to_vec(), b.ty(operands[1]).shape().to_vec());
    let lead = q.len() - 2;
    let batch = super::spatial::product(&q[..lead]);
    let merged = |b: &mut Builder, x: Value| {
        let shape = b.ty(x).shape().to_vec();
        b.reshape(x, &[&[batch], &shape[lead..]].concat())
    };
    let mut out: Vec<Value> = operands[..3].iter().map(|&x| merged(b, x)).collect();
    if let Some(&mask) = operands.get(3) {
        let full = b.broadcast_to(mask, &[&q[..=lead], &[k[lead]]].concat());
        out.push(merged(b, full));
    }
    out
}

/// Every head (dimension -3) `times` times, one after the other.
fn repeat_heads(b: &mut Builder, x: Value, times: i64) -> Value {
    let mut shape = b.ty(x).shape().to_vec();
    let heads = shape.len() - 3;
    let apart = [&shape[..=heads], &[Dim::Static(times)], &shape[heads + 1..]].concat();
    let kept: Vec<i64> = (0..apart.len()).filter(|&d| d != heads + 1).map(|d| d as i64).collect();
    let repeated = b.broadcast(x, &apart, &kept);
    shape[heads] = shape[heads] * Dim::Static(times);
    b.reshape(repeated, &shape)
}
