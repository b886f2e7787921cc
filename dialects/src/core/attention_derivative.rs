//! The derivative of `core.attention`, with the probabilities computed again from the logarithms of their sums.

use super::attention::{ATTENTION, shared_heads};
use super::attention_backward::{ATTENTION_BACKWARD, lowest_sum};
use crate::builder::CoreBuilder;
use crate::derivative::{Residuals, Vjp, splat_like, wide, zeros_like};
use crate::op;
use rc_ir::{Attr, Builder, Dim, Op, OpRef, Result, Type, Value};

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
struct Scores {
    /// q, k, v, the result's gradient, the logarithms of the sums, and for each query the sum of gradient times result.
    operands: [Value; 6],
    mask: Option<Value>,
    causal: bool,
    scale: f64,
}

impl Scores {
    fn of(at: OpRef, operands: [Value; 6], mask: Option<Value>) -> Result<Scores> {
        let depth = at.body.ty(operands[0]).shape().last().and_then(|d| d.as_static());
        let scale = match (at.attr("scale").and_then(|a| a.as_float()), depth) {
            (Some(scale), _) => scale,
            (None, Some(depth)) => 1.0 / (depth as f64).sqrt(),
            (None, None) => return Err(at.unsupported("the derivative of attention over rows of symbolic size")),
        };
        Ok(Scores { operands, mask, causal: at.bool("causal"), scale })
    }

    /// The probabilities, and the gradient of the masked scores.
    fn gradients(&self, b: &mut Builder) -> (Value, Value) {
        let [_, _, value, grad, _, delta] = self.operands;
        let p = self.probabilities(b);
        let dp = self.rows_by_rows(b, grad, value);
        let delta = over_keys(b, delta, dp);
        let centered = b.binary("sub", dp, delta);
        (p, b.binary("mul", p, centered))
    }

    /// The gradients of q, k and v from the probabilities and the gradient of the scores.
    fn products(&self, b: &mut Builder, p: Value, ds: Value) -> [Value; 3] {
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
        let scores = self.rows_by_rows(b, q, k);
        let mut scores = b.binary_scalar("mul", scores, self.scale);
        let (shape, elem) = (b.ty(scores).shape(), b.ty(scores).elem());
        let hidden = splat_like(b, f64::NEG_INFINITY, scores);
        if let Some(mask) = self.mask {
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
        let sums = over_keys(b, sums, scores);
        let shifted = b.binary("sub", scores, sums);
        let exp = b.unary("exp", shifted);
        let lowest = splat_like(b, lowest_sum(b.ty(sums)), sums);
        let none = b.compare("le", sums, lowest);
        let zeros = zeros_like(b, exp);
        b.select(none, zeros, exp)
    }

    /// The products of two tensors' rows, in the type of computation.
    fn rows_by_rows(&self, b: &mut Builder, x: Value, y: Value) -> Value {
        let (wide, last) = (wide(b.ty(x)), b.ty(x).rank() as i64 - 1);
        let batch: Vec<i64> = (0..last - 1).collect();
        b.contract(x, y, [&batch, &batch], [&[last], &[last]], wide)
    }
}

/// A number for each query, at each of its scores.
fn over_keys(b: &mut Builder, x: Value, scores: Value) -> Value {
    let shape = b.ty(scores).shape();
    b.broadcast(x, &shape, &(0..shape.len() as i64 - 1).collect::<Vec<_>>())
}

fn index(b: &mut Builder, shape: &[Dim], dim: i64) -> Value {
    b.op(op::core::IOTA).attr("dim", Attr::i64(dim)).result(Type::tensor(shape, Type::i64())).value()
}
