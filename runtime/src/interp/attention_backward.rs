//! `core.attention_backward` and `loop.attention_backward`, with whole scores in f64.

use super::dot::{Sizes, bias_of, product_of_floats};
use super::exec::Frame;
use super::region::{scatter, subspace, whole_space};
use super::space::{Access, Space};
use super::value::{Array, Format, Value};
use rayon::prelude::*;
use rc_dialects::core::attention_backward::lowest_sum;
use rc_dialects::loop_::gradients_of;
use rc_ir::{Dim, OpRef, Result};

/// Dense operands: q [b, s, d], k [b, t, d], v [b, t, e], grad [b, s, e], sums and delta [b, s].
struct Backward<'a> {
    operands: [&'a [f64]; 6],
    /// (b, s, t, d, e)
    sizes: (usize, usize, usize, usize, usize),
    scale: f64,
    causal: bool,
    /// Sums up to here have no exponent of two in their type: what hides all keys of a query.
    lowest: f64,
}

impl Backward<'_> {
    /// The gradients of q, k and v. Probabilities and the scores' gradients pass through `factor` before they are multiplied.
    fn gradients(
        &self,
        bias: impl Fn(usize, usize, usize) -> f64 + Sync,
        factor: impl Fn(f64) -> f64 + Sync,
    ) -> [Vec<f64>; 3] {
        let (b, s, t, d, e) = self.sizes;
        let [q, k, v, grad, sums, delta] = self.operands;
        let rows = |n: usize, cols: usize| [(n * cols) as isize, cols as isize, 1];
        let columns = |n: usize, cols: usize| [(n * cols) as isize, 1, cols as isize];
        let plain = |x: f64| x;
        let mut p = product_of_floats(Sizes { b, m: s, n: t, k: d }, q, rows(s, d), k, rows(t, d), |x| x * self.scale);
        let mut ds = product_of_floats(Sizes { b, m: s, n: t, k: e }, grad, rows(s, e), v, rows(t, e), plain);
        p.par_chunks_mut(t.max(1)).zip(ds.par_chunks_mut(t.max(1))).enumerate().for_each(|(row, (p, ds))| {
            let (batch, i) = (row / s, row % s);
            for (j, (p, ds)) in p.iter_mut().zip(ds).enumerate() {
                let hidden = self.causal && j > i || sums[row] <= self.lowest;
                let exact = if hidden { 0.0 } else { (*p + bias(batch, i, j) - sums[row]).exp() };
                *ds = factor(if exact == 0.0 { 0.0 } else { exact * (*ds - delta[row]) });
                *p = factor(exact);
            }
        });
        let scaled = |x: f64| x * self.scale;
        [
            product_of_floats(Sizes { b, m: s, n: d, k: t }, &ds, rows(s, t), k, columns(t, d), scaled),
            product_of_floats(Sizes { b, m: t, n: d, k: s }, &ds, columns(s, t), q, columns(s, d), scaled),
            product_of_floats(Sizes { b, m: t, n: e, k: s }, &p, columns(s, t), grad, columns(s, e), plain),
        ]
    }
}

impl Frame<'_> {
    pub fn attention_backward(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let arrays: Vec<Array> = (0..6).map(|i| self.array(op, i)).collect::<Result<_>>()?;
        let (q, v) = (&arrays[0].shape, &arrays[2].shape);
        let rank = q.len();
        let (s, d, t, e) = (q[rank - 2], q[rank - 1], v[rank - 2], v[rank - 1]);
        let batch = &q[..rank - 2];
        let want = [&[s, d][..], &[t, d], &[t, e], &[s, e], &[s], &[s]].map(|last| [batch, last].concat());
        if let Some(i) = (0..6).find(|&i| arrays[i].shape != want[i]) {
            return Err(op.error(format!("has operand {i} of shape {:?}, not {:?}", arrays[i].shape, want[i])));
        }
        let scores = [batch, &[s, t]].concat();
        let mask = match op.group("mask").first() {
            Some(_) => {
                let dims: Vec<usize> = (0..scores.len()).collect();
                let mut mask = super::shape::broadcast(&self.array(op, 6)?, scores, &dims).as_floats().into_owned();
                bias_of(op.body.ty(op.operand(6)), &mut mask);
                Some(mask)
            }
            None => None,
        };
        let floats: Vec<_> = arrays.iter().map(|a| a.as_floats()).collect();
        let backward = Backward {
            operands: std::array::from_fn(|i| floats[i].as_ref()),
            sizes: (batch.iter().product(), s, t, d, e),
            scale: op.attr("scale").and_then(|a| a.as_float()).unwrap_or(1.0 / (d as f64).sqrt()),
            causal: op.bool("causal"),
            lowest: lowest_sum(op.body.ty(op.operand(4))),
        };
        let bias = |b: usize, i: usize, j: usize| mask.as_ref().map_or(0.0, |m| m[(b * s + i) * t + j]);
        let gradients = backward.gradients(bias, |x| x);
        let rounded = gradients.into_iter().enumerate().map(|(i, values)| {
            let format = self.format(op, op.body.ty(op.result(i)))?;
            let values = values.into_iter().map(|x| format.round(x)).collect();
            Ok(Value::Array(Array::floats(want[i].clone(), values)))
        });
        rounded.collect()
    }

    pub fn nest_attention_backward(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let words = op.attr("iters").and_then(|a| a.as_array()).unwrap_or_default();
        let names: Vec<rc_ir::Name> = words.iter().filter_map(|a| a.as_str()).map(rc_ir::Name::new).collect();
        let extents = op.attr("extents").and_then(|a| a.as_shape()).unwrap_or_default();
        let shapes = |name: &str| -> Vec<&'static [Dim]> {
            op.attr(name).and_then(|a| a.as_array()).unwrap_or_default().iter().filter_map(|a| a.as_shape()).collect()
        };
        let (maps, out_maps, of) = (shapes("maps"), shapes("out_maps"), gradients_of(op));
        if names.len() != 6 || extents.len() != 6 || maps.len() != op.operands().len() || out_maps.len() != of.len() {
            return Err(op.error("needs the iterators b, h, m, n, d, e, and a map for each operand and each result"));
        }
        let space = whole_space(self, op, &names, extents)?;
        // Bits of b, h, m, n, d, e.
        let [b, h, m, n, d, e] = [1u64, 2, 4, 8, 16, 32];
        let parts: [&[u64]; 7] =
            [&[b, h, m, d], &[b, h, n, d], &[b, h, n, e], &[b, h, m, e], &[b, h, m], &[b, h, m], &[b, h, m, n]];
        let mut dense = Vec::new();
        for (i, part) in parts.iter().take(op.operands().len()).enumerate() {
            dense.push(self.dense_operand(op, i, maps[i], &subspace(&space, part))?);
        }
        if let Some(mask) = dense.get_mut(6) {
            bias_of(op.body.ty(op.operand(6)), mask);
        }
        let size = |i: usize| space.extents[i];
        let (s, t) = (size(2), size(3));
        let backward = Backward {
            operands: std::array::from_fn(|i| dense[i].as_slice()),
            sizes: (size(0) * size(1), s, t, size(4), size(5)),
            scale: op.attr("scale").and_then(|a| a.as_float()).unwrap_or(1.0 / (size(4) as f64).sqrt()),
            causal: op.bool("causal"),
            lowest: lowest_sum(op.body.ty(op.operand(4))),
        };
        let factor: Format = self.format(op, op.body.ty(op.operand(0)))?;
        let bias = |b: usize, i: usize, j: usize| dense.get(6).map_or(0.0, |m| m[(b * s + i) * t + j]);
        let [dq, dk, dv] = backward.gradients(bias, |x| factor.round(x));
        let one = |(i, name): (usize, &&str)| {
            let (values, part) = match *name {
                "q" => (&dq, [b, h, m, d]),
                "k" => (&dk, [b, h, n, d]),
                _ => (&dv, [b, h, n, e]),
            };
            let ty = op.body.ty(op.result(i));
            let (shape, format, space) = (self.shape_of(op, ty)?, self.format(op, ty)?, subspace(&space, &part));
            if space.points() != shape.iter().product::<usize>() {
                return Err(op.error(format!("has {} points for a result of shape {shape:?}", space.points())));
            }
            let mut out = vec![0.0; values.len()];
            let values: Vec<f64> = values.iter().map(|&x| format.round(x)).collect();
            scatter(&mut out, &values, out_maps[i], &shape, &space, &self.symbols).map_err(|why| op.error(why))?;
            Ok(Value::Array(Array::floats(shape, out)))
        };
        of.iter().enumerate().map(one).collect()
    }

    /// The elements of operand `i` at every point of a space.
    fn dense_operand(&mut self, op: OpRef, i: usize, map: &[Dim], space: &Space) -> Result<Vec<f64>> {
        let from = self.array(op, i)?.ready(space.points());
        let access = Access::new(map, &from.shape, space, &self.symbols);
        let mut values = Vec::with_capacity(space.points());
        for start in space.blocks() {
            let block = space.block(start);
            let positions = access.positions(space, &block, &[]).map_err(|why| op.error(why))?;
            values.extend_from_slice(&from.pick(vec![block.len], &positions).as_floats());
        }
        Ok(values)
    }
}
