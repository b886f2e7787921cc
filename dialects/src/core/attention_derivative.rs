//! The derivative of `core.attention`, with the probabilities computed again from the logarithms of their sums.

use super::attention::{ATTENTION, shared_heads};
use super::attention_backward::ATTENTION_BACKWARD;
use super::attention_scores::Scores;
use crate::builder::CoreBuilder;
use crate::derivative::{Residuals, Vjp, wide, zeros_like};
use rc_ir::{Attr, Builder, Dim, Op, Result, Value};

/// What the derivative needs besides: the logarithms of the sums.
pub static SUMS: Residuals = Residuals(with_sums);

fn with_sums(b: &mut Builder, op: Op) -> Option<Op> {
    let at = b.body.op_ref(op);
    if at.bool("sums") {
        return None;
    }
    let (groups, attrs) = ([0, 1, 2].map(|i| at.operand(i)), at.body.attrs(op));
    let mask = at.group("mask").to_vec();
    let new = b.op(&ATTENTION).operands(&[&groups[..], &mask].concat()).attrs(attrs).attr("sums", Attr::bool(true));
    Some(new.build())
}

/// `core.attention_backward` for q, k and v, whose scores are not stored. Where the mask's gradient is wanted and has an element for each of the
/// scores, these are stored once: what the mask's gradient is made of gives the others.
pub fn attention_vjp(v: &mut Vjp) -> Result {
    let (q, y, sums) = (v.operand(0), v.result(0), v.result(1));
    let group = shared_heads(v.ty(q), v.ty(v.operand(1))).expect("verified");
    let [k, value] = [1, 2].map(|i| {
        let x = v.operand(i);
        repeat_heads(v, x, group)
    });
    let grad = v.gradient(0).unwrap_or_else(|| zeros_like(v, y));
    let mut delta = row_sums(v, grad, y);
    if let Some(of_sums) = v.gradient(1) {
        delta = v.binary("sub", delta, of_sums);
    }
    let mask = v.at().group("mask").first().copied();
    let operands = [q, k, value, grad, sums, delta];
    if let Some(mask) = mask.filter(|&mask| v.wants(3) && is_of_scores(v, mask, [q, k])) {
        let scores = Scores::of(v.at(), operands, Some(mask))?;
        let (p, ds) = scores.gradients(v);
        let found = scores.products(v, p, ds);
        v.give_with(0, |_| found[0]);
        v.give_with(1, |v| sum_heads(v, found[1], group));
        v.give_with(2, |v| sum_heads(v, found[2], group));
        v.give_with(3, |v| sum_to_mask(v, ds));
        return Ok(());
    }
    if [0, 1, 2].iter().any(|&i| v.wants(i)) {
        let (causal, scale) = (v.at().attr("causal"), v.at().attr("scale"));
        let mut op = v.op(&ATTENTION_BACKWARD).operands(&[&operands[..], mask.as_slice()].concat());
        for (name, attr) in [("causal", causal), ("scale", scale)] {
            op = attr.into_iter().fold(op, |op, attr| op.attr(name, attr));
        }
        let op = op.build();
        let found = [0, 1, 2].map(|i| v.body.result(op, i));
        v.give_with(0, |_| found[0]);
        v.give_with(1, |v| sum_heads(v, found[1], group));
        v.give_with(2, |v| sum_heads(v, found[2], group));
    }
    if v.wants(3) {
        let scores = Scores::of(v.at(), operands, mask)?;
        let (_, ds) = scores.gradients(v);
        v.give_with(3, |v| sum_to_mask(v, ds));
    }
    Ok(())
}

/// Whether what is added has an element for each of the scores.
fn is_of_scores(v: &Vjp, mask: Value, [q, k]: [Value; 2]) -> bool {
    let (mut shape, keys) = (v.ty(q).shape(), v.ty(k).shape());
    let last = shape.len() - 1;
    shape[last] = keys[last - 1];
    v.ty(mask).shape() == shape
}

/// The gradient of what is added to the scores, from theirs.
fn sum_to_mask(v: &mut Vjp, ds: Value) -> Value {
    let (mask, scores) = (v.ty(v.operand(3)), v.ty(ds).shape());
    let repeated = |d: &i64| mask.shape()[*d as usize] != scores[*d as usize];
    let dims: Vec<i64> = (0..scores.len() as i64).filter(repeated).collect();
    let sum = v.reduce("add", ds, &dims);
    let sum = v.convert(sum, mask.elem());
    v.reshape(sum, &mask.shape())
}

/// For each query the sum of gradient times result.
fn row_sums(b: &mut Builder, grad: Value, y: Value) -> Value {
    let wide = wide(b.ty(y));
    let (grad, y) = (b.convert(grad, wide), b.convert(y, wide));
    let product = b.binary("mul", grad, y);
    let last = b.ty(product).rank() as i64 - 1;
    b.reduce("add", product, &[last])
}

/// Keys or values with a head for each of the queries' heads.
fn repeat_heads(b: &mut Builder, x: Value, group: i64) -> Value {
    if group == 1 {
        return x;
    }
    let shape = b.ty(x).shape();
    let apart = heads_apart(&shape, group);
    let heads = shape.len() - 3;
    let dims: Vec<i64> = (0..apart.len() as i64).filter(|&d| d != heads as i64 + 1).collect();
    let wide = b.broadcast(x, &apart, &dims);
    b.reshape(wide, &[&shape[..heads], &[shape[heads] * Dim::Static(group)], &shape[heads + 1..]].concat())
}

/// The sum of what heads give that share one.
fn sum_heads(b: &mut Builder, x: Value, group: i64) -> Value {
    if group == 1 {
        return x;
    }
    let ty = b.ty(x);
    let (mut shape, heads) = (ty.shape(), ty.rank() - 3);
    shape[heads] = shape[heads].floordiv(Dim::Static(group));
    let apart = b.reshape(x, &heads_apart(&shape, group));
    let apart = b.convert(apart, wide(ty));
    let sum = b.reduce("add", apart, &[heads as i64 + 1]);
    b.convert(sum, ty.elem())
}

fn heads_apart(shape: &[Dim], group: i64) -> Vec<Dim> {
    let heads = shape.len() - 3;
    [&shape[..=heads], &[Dim::Static(group)], &shape[heads + 1..]].concat()
}
