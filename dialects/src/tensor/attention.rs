//! Attention and embedding.

use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, INT_TENSOR, Inferred, MASK_TENSOR, TENSOR, one};
use crate::core::attention::infer_attention;
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, optional, result, variadic_result};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Value};

pub static SDPA: OpDef = OpDef {
    summary: "Scaled dot-product attention: softmax(q kᵀ scale + mask) v.",
    doc: "As core.attention, which defines it, for any number of batch dimensions.",
    example: "func.func @sdpa(%q: tensor<1x4x7x8xf32>, %k: tensor<1x2x7x8xf32>, %v: tensor<1x2x7x8xf32>) -> tensor<1x4x7x8xf32> {
  %y = tensor.sdpa %q, %k, %v {causal = true} : tensor<1x4x7x8xf32>
  func.return %y
}
",
    operands: &[operand("q", FLOAT_TENSOR), operand("k", FLOAT_TENSOR), operand("v", FLOAT_TENSOR), optional("mask", MASK_TENSOR)],
    results: &[variadic_result("results", FLOAT_TENSOR)],
    attrs: &[
        attr("causal", AttrKind::Bool, "Hides keys after the query.").default(AttrDefault::Bool(false)),
        attr("sums", AttrKind::Bool, "Whether the logarithms of the sums are a second result.").default(AttrDefault::Bool(false)),
        attr("scale", AttrKind::F64, "Multiplies the scores; absent: 1/sqrt(size).").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_attention),
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

fn define_sdpa(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let mut operands: Vec<Value> = b.body.operands(op).collect();
    let attrs = b.body.attrs(op);
    let shapes: Vec<Vec<Dim>> = b.body.op_ref(op).result_types().iter().map(|t| t.shape().to_vec()).collect();
    if !(3..=4).contains(&shapes[0].len()) {
        operands = with_one_batch(b, &operands);
    }
    let made = b.op(op::core::ATTENTION).operands(&operands).attrs(attrs).build();
    let results: Vec<Value> = b.body.results(made).collect();
    Ok(results.into_iter().zip(&shapes).map(|(y, shape)| b.reshape(y, shape)).collect())
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
