//! The derivative of `core.attention`, with the probabilities computed again from the logarithms of their sums.

use super::attention::{ATTENTION, shared_heads};
use crate::builder::CoreBuilder;
use crate::derivative::{Residuals, Vjp, splat_like, where_or_zero, wide, zeros_like};
use rc_ir::{Attr, Builder, Dim, Op, Result, Type, Value};

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

/// Queries whose heads are apart, `[batch.., heads of k, heads that share one, s, d]`, the fourth only where some do: the first `batch` dimensions are
/// those of keys and values too, and the ones before the last are `rows`.
struct Heads {
    batch: Vec<i64>,
    rows: Vec<i64>,
    /// The shape of q before its last dimension.
    shape: Vec<Dim>,
}

impl Heads {
    fn of(q: Type, k: Type) -> Heads {
        let (shape, rank) = (q.shape(), q.rank());
        let batch: Vec<i64> = (0..rank as i64 - 2).collect();
        let group = shared_heads(q, k).expect("verified");
        let lead = &shape[..rank - 1];
        let apart = match group {
            1 => lead.to_vec(),
            _ => [&lead[..rank - 3], &[k.shape()[rank - 3], Dim::Static(group), lead[rank - 2]]].concat(),
        };
        let rows = (batch.len() as i64..apart.len() as i64).collect();
        Heads { batch, rows, shape: apart }
    }
    /// Of a value with the queries' shape, or with 1 where it has that.
    fn apart(&self, b: &mut Builder, x: Value) -> Value {
        let shape = b.ty(x).shape().to_vec();
        let added = self.shape.len() + 1 - shape.len();
        if added == 0 {
            return x;
        }
        let heads = shape.len() - 3;
        let own = if shape[heads] == Dim::Static(1) {
            [Dim::Static(1); 2].to_vec()
        } else {
            self.shape[heads..heads + 2].to_vec()
        };
        b.reshape(x, &[&shape[..heads], &own, &shape[heads + 1..]].concat())
    }
    fn last(&self) -> i64 {
        self.shape.len() as i64
    }
}

/// With p = exp(scores - sums) and ds = p (g vᵀ - sum g y + the sums' gradient): dv = pᵀ g, dq = ds k scale, dk = dsᵀ q scale, and ds for the mask.
pub fn attention_vjp(v: &mut Vjp) -> Result {
    let [q, k, value] = [0, 1, 2].map(|i| v.operand(i));
    let (elem, wide) = (v.ty(q).elem(), wide(v.ty(q)));
    let q_shape = v.ty(q).shape();
    let scale = v.at().attr("scale").and_then(|a| a.as_float());
    let scale = match (scale, q_shape.last().and_then(|d| d.as_static())) {
        (Some(scale), _) => scale,
        (None, Some(size)) => 1.0 / (size as f64).sqrt(),
        (None, None) => return Err(v.at().unsupported("the derivative of attention over rows of symbolic size")),
    };
    let heads = Heads::of(v.ty(q), v.ty(k));
    let (batch, rows, last) = (&heads.batch, &heads.rows, heads.last());
    let y = v.result(0);
    let g = v.gradient(0).unwrap_or_else(|| zeros_like(v, y));
    let [q, g, y] = [q, g, y].map(|x| heads.apart(v, x));
    let keys = batch.len() as i64;
    let p = probabilities(v, &heads, q, scale, wide);
    v.give_with(2, |v| {
        let p = v.convert(p, elem);
        v.contract(p, g, [batch, batch], [rows, rows], elem)
    });
    if ![0, 1, 3].iter().any(|&i| v.wants(i)) {
        return Ok(());
    }
    let dp = v.contract(g, value, [batch, batch], [&[last], &[keys + 1]], wide);
    let (wide_g, wide_y) = (v.convert(g, wide), v.convert(y, wide));
    let product = v.binary("mul", wide_g, wide_y);
    let mut sum = v.reduce("add", product, &[last]);
    if let Some(of_sums) = v.gradient(1) {
        let of_sums = v.reshape(of_sums, &heads.shape);
        sum = v.binary("sub", sum, of_sums);
    }
    let shape = v.ty(dp).shape();
    let sum = v.broadcast(sum, &shape, &(0..last).collect::<Vec<_>>());
    let centered = v.binary("sub", dp, sum);
    let ds = v.binary("mul", p, centered);
    v.give_with(3, |v| {
        let mask = v.ty(v.operand(3));
        let scores = [&q_shape[..q_shape.len() - 1], &shape[shape.len() - 1..]].concat();
        let ds = v.reshape(ds, &scores);
        let repeated = |d: &i64| mask.shape()[*d as usize] != scores[*d as usize];
        let dims: Vec<i64> = (0..scores.len() as i64).filter(repeated).collect();
        let sum = v.reduce("add", ds, &dims);
        let sum = v.convert(sum, mask.elem());
        v.reshape(sum, &mask.shape())
    });
    let ds = v.binary_scalar("mul", ds, scale);
    let ds = v.convert(ds, elem);
    v.give_with(0, |v| {
        let dq = v.contract(ds, k, [batch, batch], [&[last], &[keys]], elem);
        v.reshape(dq, &q_shape)
    });
    v.give_with(1, |v| v.contract(ds, q, [batch, batch], [rows, rows], elem));
    Ok(())
}

/// exp(q kᵀ scale + mask - sums), with rows of zeros where no key is seen.
fn probabilities(v: &mut Vjp, heads: &Heads, q: Value, scale: f64, wide: Type) -> Value {
    let (k, last, keys) = (v.operand(1), heads.last(), heads.batch.len() as i64);
    let scores = v.contract(q, k, [&heads.batch, &heads.batch], [&[last], &[keys + 1]], wide);
    let mut scores = v.binary_scalar("mul", scores, scale);
    let shape = v.ty(scores).shape();
    let hidden = splat_like(v, f64::NEG_INFINITY, scores);
    let mask = v.at().group("mask").first().copied();
    if let Some(mask) = mask {
        let mask = heads.apart(v, mask);
        if v.ty(mask).elem() == Type::i1() {
            let mask = v.broadcast_to(mask, &shape);
            scores = v.select(mask, scores, hidden);
        } else {
            let mask = v.convert(mask, wide);
            let mask = v.broadcast_to(mask, &shape);
            scores = v.binary("add", scores, mask);
        }
    }
    if v.at().bool("causal") {
        let (row, column) = (index(v, &shape, last - 1), index(v, &shape, last));
        let seen = v.compare("le", column, row);
        scores = v.select(seen, scores, hidden);
    }
    let sums = v.result(1);
    let sums = v.reshape(sums, &heads.shape);
    let sums = v.broadcast(sums, &shape, &(0..last).collect::<Vec<_>>());
    let shifted = v.binary("sub", scores, sums);
    let exp = v.unary("exp", shifted);
    let some = v.compare("ne", sums, hidden);
    where_or_zero(v, some, exp)
}

fn index(v: &mut Vjp, shape: &[Dim], dim: i64) -> Value {
    v.op("rc.core.iota").attr("dim", Attr::i64(dim)).result(Type::tensor(shape, Type::i64())).value()
}
