//! Products of matrices: `core.dot` and the contractions of nests, in f64 by a blocked, parallel kernel.

use std::borrow::Cow;

use rayon::prelude::*;
use rc_dialects::core::dot;
use rc_ir::{OpRef, Result, Type};

use super::exec::Frame;
use super::shape::{strides, transpose};
use super::value::{Array, Format, Value};

/// Sizes of a batched product [b, m, k] x [b, k, n].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub b: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Products of fewer terms are summed directly: packing them would take longer.
const SMALL: usize = 1024;

/// Elements between neighbours along (batch, row or column, contracted).
type Steps = [isize; 3];

impl Frame<'_> {
    pub fn dot(&mut self, op: OpRef) -> Result<Value> {
        let roles = dot::roles(op).map_err(|why| op.error(why))?;
        let (lhs, rhs) = (self.array(op, 0)?, self.array(op, 1)?);
        let (format, acc) = (self.format(op, op.body.ty(op.result(0)))?, self.format(op, roles.acc)?);
        let extents = |x: &Array, dims: &[usize]| dims.iter().map(|&d| x.shape[d]).collect::<Vec<_>>();
        let batch = extents(&lhs, &roles.lhs_batch);
        let contract = extents(&lhs, &roles.lhs_contract);
        if batch != extents(&rhs, &roles.rhs_batch) || contract != extents(&rhs, &roles.rhs_contract) {
            return Err(
                op.error(format!("has operands of shapes {:?} and {:?}, which do not fit", lhs.shape, rhs.shape))
            );
        }
        let (left, right) = (extents(&lhs, &roles.lhs_free), extents(&rhs, &roles.rhs_free));
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let sizes = Sizes { b: product(&batch), m: product(&left), n: product(&right), k: product(&contract) };
        let shape = [batch, left, right].concat();
        let (lhs, l) = arranged(lhs, [&roles.lhs_batch, &roles.lhs_free, &roles.lhs_contract]);
        let (rhs, r) = arranged(rhs, [&roles.rhs_batch, &roles.rhs_free, &roles.rhs_contract]);
        Ok(Value::Array(if format.is_float() {
            let round = |x: f64| format.round(acc.round(x));
            Array::floats(shape, product_of_floats(sizes, &lhs.as_floats(), l, &rhs.as_floats(), r, round))
        } else {
            Array::ints(
                shape,
                product_of_ints(sizes, &lhs.as_ints(), l, &rhs.as_ints(), r, |x| narrowed(x, acc, format)),
            )
        }))
    }
}

/// An integer sum as the accumulation type holds it, in the result's type.
fn narrowed(sum: i64, acc: Format, out: Format) -> i64 {
    out.wrap(acc.wide(acc.wrap(i128::from(sum))))
}

/// The array with a step for each of the three groups of dimensions, transposed where a group has no common step.
fn arranged(x: Array, groups: [&[usize]; 3]) -> (Array, Steps) {
    let collapse = |x: &Array, dims: &[usize]| -> Option<isize> {
        let all = strides(&x.shape);
        let dims: Vec<usize> = dims.iter().copied().filter(|&d| x.shape[d] != 1).collect();
        let dense = dims.windows(2).all(|w| all[w[0]] == all[w[1]] * x.shape[w[1]]);
        dense.then(|| dims.last().map_or(0, |&d| all[d] as isize))
    };
    if let [Some(b), Some(f), Some(c)] = groups.map(|g| collapse(&x, g)) {
        return (x, [b, f, c]);
    }
    let order = groups.concat();
    let size = |dims: &[usize]| dims.iter().map(|&d| x.shape[d]).product::<usize>() as isize;
    let steps = [size(groups[1]) * size(groups[2]), size(groups[2]), 1];
    (transpose(&x, &order), steps)
}

/// [b, m, n] products in f64, each element rounded by `round`.
pub(crate) fn product_of_floats(
    sizes: Sizes,
    lhs: &[f64],
    l: Steps,
    rhs: &[f64],
    r: Steps,
    round: impl Fn(f64) -> f64 + Sync,
) -> Vec<f64> {
    let Sizes { b, m, n, k } = sizes;
    let mut out = vec![0.0; b * m * n];
    if out.is_empty() || k == 0 {
        return out;
    }
    assert!(reach(l, b, m, k) < lhs.len() && reach(r, b, n, k) < rhs.len(), "operands hold every element that is read");
    if b == 1 && m * n * k < SMALL {
        for (i, x) in out.iter_mut().enumerate() {
            let (row, col) = ((i / n) as isize * l[1], (i % n) as isize * r[1]);
            let term = |j: isize| lhs[(row + j * l[2]) as usize] * rhs[(col + j * r[2]) as usize];
            *x = round((0..k as isize).map(term).sum());
        }
        return out;
    }
    // A piece is some rows of one product: enough of them for each thread, few enough to pack `rhs` rarely.
    let rows =
        if b >= rayon::current_num_threads() { m } else { m.div_ceil(rayon::current_num_threads()).max(8).min(m) };
    let one = |product: usize, first: usize, out: &mut [f64]| {
        let (product, first) = (product as isize, first as isize);
        // SAFETY: `reach` held the operands' last elements; `out` has whole rows of n elements.
        unsafe {
            matrixmultiply::dgemm(
                out.len() / n,
                k,
                n,
                1.0,
                lhs.as_ptr().offset(product * l[0] + first * l[1]),
                l[1],
                l[2],
                rhs.as_ptr().offset(product * r[0]),
                r[2],
                r[1],
                0.0,
                out.as_mut_ptr(),
                n as isize,
                1,
            );
        }
        out.iter_mut().for_each(|x| *x = round(*x));
    };
    if b * m * n * k < 1 << 16 {
        out.chunks_mut(m * n).enumerate().for_each(|(i, out)| one(i, 0, out));
        return out;
    }
    out.par_chunks_mut(m * n)
        .enumerate()
        .for_each(|(i, out)| out.par_chunks_mut(rows * n).enumerate().for_each(|(j, out)| one(i, j * rows, out)));
    out
}

/// The position of the last element that a product reads.
fn reach(steps: Steps, b: usize, free: usize, k: usize) -> usize {
    [(b, steps[0]), (free, steps[1]), (k, steps[2])].iter().map(|&(n, s)| (n - 1) * s as usize).sum()
}

/// [b, m, n] products in wrapping i64, each element passed through `round`.
pub(crate) fn product_of_ints(
    sizes: Sizes,
    lhs: &[i64],
    l: Steps,
    rhs: &[i64],
    r: Steps,
    round: impl Fn(i64) -> i64,
) -> Vec<i64> {
    let mut out = Vec::with_capacity(sizes.b * sizes.m * sizes.n);
    for b in 0..sizes.b as isize {
        for m in 0..sizes.m as isize {
            for n in 0..sizes.n as isize {
                let term = |k: isize| {
                    let (i, j) = (b * l[0] + m * l[1] + k * l[2], b * r[0] + n * r[1] + k * r[2]);
                    lhs[i as usize].wrapping_mul(rhs[j as usize])
                };
                out.push(round((0..sizes.k as isize).map(term).fold(0i64, i64::wrapping_add)));
            }
        }
    }
    out
}

/// `core.attention` on dense [b, s, d], [b, t, d], [b, t, e] operands; see [`attend`] for the result.
pub(crate) struct Attention<'a> {
    pub q: Cow<'a, [f64]>,
    pub k: Cow<'a, [f64]>,
    pub v: Cow<'a, [f64]>,
    /// (b, s, t, d, e)
    pub sizes: (usize, usize, usize, usize, usize),
    pub scale: f64,
    pub causal: bool,
}

/// What a mask adds to the scores: floats, or minus infinity where one of booleans is false.
pub(crate) fn bias_of(mask: Type, values: &mut [f64]) {
    if mask.elem() == Type::i1() {
        values.iter_mut().for_each(|x| *x = if *x == 0.0 { f64::NEG_INFINITY } else { 0.0 });
    }
}

/// [b, s, e]: softmax of the scores, with `bias` (at b, s, t) added, times v. A weight passes through `weight`, an
/// element of the result through `round`. Rows that see nothing give 0. Beside it [b, s]: the logarithms of the sums.
pub(crate) fn attend(
    a: &Attention,
    bias: impl Fn(usize, usize, usize) -> f64 + Sync,
    weight: impl Fn(f64) -> f64 + Sync,
    round: impl Fn(f64) -> f64 + Sync,
) -> (Vec<f64>, Vec<f64>) {
    let (b, s, t, d, e) = a.sizes;
    let steps = |rows: usize, cols: usize| [(rows * cols) as isize, cols as isize, 1];
    let mut scores =
        product_of_floats(Sizes { b, m: s, n: t, k: d }, &a.q, steps(s, d), &a.k, steps(t, d), |x| x * a.scale);
    let (mut sums, mut logs) = (vec![1.0; b * s], vec![f64::NEG_INFINITY; b * s]);
    let rows = scores.par_chunks_mut(t.max(1)).zip(sums.par_iter_mut().zip(&mut logs)).enumerate();
    rows.for_each(|(row, (scores, (sum, log)))| {
        let (batch, i) = (row / s, row % s);
        for (j, x) in scores.iter_mut().enumerate() {
            *x = if a.causal && j > i { f64::NEG_INFINITY } else { *x + bias(batch, i, j) };
        }
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, rc_dialects::core::binary::maximum);
        if max == f64::NEG_INFINITY {
            scores.fill(0.0);
            return;
        }
        scores.iter_mut().for_each(|x| *x = (*x - max).exp());
        *sum = scores.iter().sum();
        *log = sum.ln() + max;
        scores.iter_mut().for_each(|x| *x = weight(*x));
    });
    let by_column = [(t * e) as isize, 1, e as isize];
    let mut out = product_of_floats(Sizes { b, m: s, n: e, k: t }, &scores, steps(s, t), &a.v, by_column, |x| x);
    out.chunks_mut(e.max(1)).zip(&sums).for_each(|(row, sum)| row.iter_mut().for_each(|x| *x = round(*x / sum)));
    (out, logs)
}

impl Frame<'_> {
    pub fn attention(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let (q, k, v) = (self.array(op, 0)?, self.array(op, 1)?, self.array(op, 2)?);
        let format = self.format(op, op.body.ty(op.result(0)))?;
        let rank = q.shape.len();
        let (s, d) = (q.shape[rank - 2], q.shape[rank - 1]);
        let (t, e) = (v.shape[rank - 2], v.shape[rank - 1]);
        let batch: usize = q.shape[..rank - 2].iter().product();
        let shared: usize = k.shape[..rank - 2].iter().product();
        let group = batch.checked_div(shared).unwrap_or(1);
        let fits = k.shape[rank - 2..] == [t, d] && k.shape[..rank - 2] == v.shape[..rank - 2];
        if !fits || shared * group != batch {
            return Err(op.error(format!("has q {:?}, k {:?} and v {:?}, which do not fit", q.shape, k.shape, v.shape)));
        }
        let mut shape = q.shape.clone();
        shape[rank - 1] = e;
        let scale = op.attr("scale").and_then(|a| a.as_float()).unwrap_or(1.0 / (d as f64).sqrt());
        let operands = Attention {
            q: q.as_floats(),
            k: repeated(k.as_floats(), t * d, group),
            v: repeated(v.as_floats(), t * e, group),
            sizes: (batch, s, t, d, e),
            scale,
            causal: op.bool("causal"),
        };
        let mut scores = shape.clone();
        scores[rank - 1] = t;
        let mask = match op.group("mask").first() {
            Some(_) => {
                let dims: Vec<usize> = (0..scores.len()).collect();
                let mut mask = super::shape::broadcast(&self.array(op, 3)?, scores, &dims).as_floats().into_owned();
                bias_of(op.body.ty(op.operand(3)), &mut mask);
                Some(mask)
            }
            None => None,
        };
        let bias = |b: usize, i: usize, j: usize| mask.as_ref().map_or(0.0, |m| m[(b * s + i) * t + j]);
        let (values, sums) = attend(&operands, bias, |w| w, |x| format.round(x));
        let mut rows = shape.clone();
        rows.pop();
        let mut results = vec![Value::Array(Array::floats(shape, values))];
        if let Some(logs) = op.results().nth(1) {
            let format = self.format(op, op.body.ty(logs))?;
            let sums = sums.into_iter().map(|x| format.round(x)).collect();
            results.push(Value::Array(Array::floats(rows, sums)));
        }
        Ok(results)
    }
}

/// Every block of so many elements `times` times, one after the other.
fn repeated(values: Cow<[f64]>, block: usize, times: usize) -> Cow<[f64]> {
    if times == 1 || block == 0 {
        return values;
    }
    values.chunks(block).flat_map(|b| std::iter::repeat_n(b, times).flatten().copied()).collect()
}
