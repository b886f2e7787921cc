//! Attention with stored scores: what is wide or differentiated again, in products and operations on their elements.

use super::attention::shared_heads;
use super::attention_backward::lowest_sum;
use crate::builder::CoreBuilder;
use crate::derivative::{splat_like, wide, zeros_like};
use crate::op;
use rc_ir::{Attr, Builder, Dim, Op, OpRef, Result, Type, Value};

/// `core.attention` with stored scores: the sums' logarithms behind the result where the operation gives them. Heads that share keys are rows of one product.
pub fn define_attention(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let [q, k, v] = [0, 1, 2].map(|i| at.operand(i));
    let mask = Mask::of(at, at.group("mask").first().copied());
    let (scale, gives_sums, ty) = (scale_of(at)?, at.bool("sums"), at.body.ty(at.result(0)));
    let group = shared_heads(b.ty(q), b.ty(k)).expect("verified");
    let mut shape = b.ty(q).shape();
    let last = shape.len() - 1;
    shape[last] = b.ty(k).shape()[last - 1];

    let rows = join_heads(b, q, group);
    let scores = rows_by_rows(b, rows, k);
    let scores = b.binary_scalar("mul", scores, scale);
    let scores = b.reshape(scores, &shape);
    let scores = mask.apply(b, scores);
    let most = b.reduce("max", scores, &[last as i64]);
    // A query that sees no key has sums of zero.
    let hidden = splat_like(b, f64::NEG_INFINITY, most);
    let none = b.compare("eq", most, hidden);
    let zeros = zeros_like(b, most);
    let most = b.select(none, zeros, most);
    let above = over_keys(b, most, scores);
    let shifted = b.binary("sub", scores, above);
    let exp = b.unary("exp", shifted);
    let sums = b.reduce("add", exp, &[last as i64]);
    let ones = splat_like(b, 1.0, sums);
    let divisors = b.select(none, ones, sums);
    let divisors = over_keys(b, divisors, exp);
    let p = b.binary("div", exp, divisors);
    let p = b.convert(p, ty.elem());

    let p = join_heads(b, p, group);
    let batch: Vec<i64> = (0..last as i64 - 1).collect();
    let y = b.contract(p, v, [&batch, &batch], [&[last as i64], &[last as i64 - 1]], wide(ty));
    let y = b.convert(y, ty.elem());
    let mut results = vec![b.reshape(y, &ty.shape())];
    if gives_sums {
        let log = b.unary("log", sums);
        results.push(b.binary("add", log, most));
    }
    Ok(results)
}

/// The rows of heads that share keys, one head's after another's.
fn join_heads(b: &mut Builder, x: Value, group: i64) -> Value {
    let mut shape = b.ty(x).shape();
    let rank = shape.len();
    if group > 1 {
        shape[rank - 3] = shape[rank - 3].floordiv(Dim::Static(group));
        shape[rank - 2] = shape[rank - 2] * Dim::Static(group);
    }
    b.reshape(x, &shape)
}

/// What hides keys, or is added to their scores.
struct Mask {
    given: Option<Value>,
    causal: bool,
}

impl Mask {
    fn of(at: OpRef, given: Option<Value>) -> Mask {
        Mask { given, causal: at.bool("causal") }
    }

    fn apply(&self, b: &mut Builder, mut scores: Value) -> Value {
        let (shape, elem) = (b.ty(scores).shape(), b.ty(scores).elem());
        let hidden = splat_like(b, f64::NEG_INFINITY, scores);
        if let Some(mask) = self.given {
            let is_choice = b.ty(mask).elem() == Type::i1();
            let mask = if is_choice { mask } else { b.convert(mask, elem) };
            let mask = b.broadcast_to(mask, &shape);
            scores = if is_choice { b.select(mask, scores, hidden) } else { b.binary("add", scores, mask) };
        }
        if self.causal {
            let last = shape.len() as i64 - 1;
            let (row, column) = (index(b, &shape, last - 1), index(b, &shape, last));
            let seen = b.compare("le", column, row);
            scores = b.select(seen, scores, hidden);
        }
        scores
    }
}

/// What scores are multiplied by.
fn scale_of(at: OpRef) -> Result<f64> {
    let depth = at.body.ty(at.operand(0)).shape().last().and_then(|d| d.as_static());
    match (at.attr("scale").and_then(|a| a.as_float()), depth) {
        (Some(scale), _) => Ok(scale),
        (None, Some(depth)) => Ok(1.0 / (depth as f64).sqrt()),
        (None, None) => Err(at.unsupported("stored scores of attention over rows of symbolic size")),
    }
}

/// `core.attention_backward` with stored scores, as it is differentiated: with p = exp(scores - sums) and ds = p (grad vᵀ - delta),
/// dq = ds k scale, dk = dsᵀ q scale, dv = pᵀ grad.
pub fn define_backward(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let operands = [0, 1, 2, 3, 4, 5].map(|i| at.operand(i));
    let scores = Scores::of(at, operands, at.operands().nth(6))?;
    let (p, ds) = scores.gradients(b);
    Ok(scores.products(b, p, ds).to_vec())
}

/// The scores of an attention with as many heads of keys as of queries.
pub(super) struct Scores {
    /// q, k, v, the result's gradient, the logarithms of the sums, and for each query the sum of gradient times result.
    operands: [Value; 6],
    mask: Mask,
    scale: f64,
}

impl Scores {
    pub(super) fn of(at: OpRef, operands: [Value; 6], mask: Option<Value>) -> Result<Scores> {
        Ok(Scores { operands, mask: Mask::of(at, mask), scale: scale_of(at)? })
    }

    /// The probabilities, and the gradient of the masked scores.
    pub(super) fn gradients(&self, b: &mut Builder) -> (Value, Value) {
        let [_, _, value, grad, _, delta] = self.operands;
        let p = self.probabilities(b);
        let dp = rows_by_rows(b, grad, value);
        let delta = over_keys(b, delta, dp);
        let centered = b.binary("sub", dp, delta);
        (p, b.binary("mul", p, centered))
    }

    /// The gradients of q, k and v from the probabilities and the gradient of the scores.
    pub(super) fn products(&self, b: &mut Builder, p: Value, ds: Value) -> [Value; 3] {
        let [q, k, _, grad, ..] = self.operands;
        let (elem, wide) = (b.ty(q).elem(), wide(b.ty(q)));
        let (p, ds) = (b.convert(p, elem), b.convert(ds, elem));
        let batch: Vec<i64> = (0..b.ty(q).rank() as i64 - 2).collect();
        let (row, last) = (batch.len() as i64, batch.len() as i64 + 1);
        let mut product = |x, y, sides: [&[i64]; 2], scale: Option<f64>| {
            let sums = b.contract(x, y, [&batch, &batch], sides, wide);
            let sums = scale.map_or(sums, |scale| b.binary_scalar("mul", sums, scale));
            b.convert(sums, elem)
        };
        let scale = Some(self.scale);
        [
            product(ds, k, [&[last], &[row]], scale),
            product(ds, q, [&[row], &[row]], scale),
            product(p, grad, [&[row], &[row]], None),
        ]
    }

    /// exp(q kᵀ scale + mask - sums), with rows of zeros where no key is seen.
    fn probabilities(&self, b: &mut Builder) -> Value {
        let [q, k, _, _, sums, _] = self.operands;
        let scores = rows_by_rows(b, q, k);
        let scores = b.binary_scalar("mul", scores, self.scale);
        let scores = self.mask.apply(b, scores);
        let sums = over_keys(b, sums, scores);
        let shifted = b.binary("sub", scores, sums);
        let exp = b.unary("exp", shifted);
        let lowest = splat_like(b, lowest_sum(b.ty(sums)), sums);
        let none = b.compare("le", sums, lowest);
        let zeros = zeros_like(b, exp);
        b.select(none, zeros, exp)
    }
}

/// The products of two tensors' rows, in the type of computation.
fn rows_by_rows(b: &mut Builder, x: Value, y: Value) -> Value {
    let (wide, last) = (wide(b.ty(x)), b.ty(x).rank() as i64 - 1);
    let batch: Vec<i64> = (0..last - 1).collect();
    b.contract(x, y, [&batch, &batch], [&[last], &[last]], wide)
}

/// A number for each query, at each of its scores.
fn over_keys(b: &mut Builder, x: Value, scores: Value) -> Value {
    let shape = b.ty(scores).shape();
    b.broadcast(x, &shape, &(0..shape.len() as i64 - 1).collect::<Vec<_>>())
}

fn index(b: &mut Builder, shape: &[Dim], dim: i64) -> Value {
    b.op(op::core::IOTA).attr("dim", Attr::i64(dim)).result(Type::tensor(shape, Type::i64())).value()
}
