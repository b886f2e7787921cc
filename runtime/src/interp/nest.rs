//! `loop.nest` and `loop.attention`.

use rc_dialects::constraints::default_acc;
use rc_dialects::interfaces::Combiner;
use rc_dialects::loop_::{IterKind, Nest};
use rc_ir::{Dim, OpRef, Result, Traits, Value as Name};

use super::dot::{Attention, Sizes, attend, bias_of, product_of_floats};
use super::exec::Frame;
use super::reduce::{better, float_fn, identity, int_fn};
use super::region::{Region, iterators, over, scatter, subspace, whole_space};
use super::space::{Access, Space};
use super::value::{Array, Format, Value};

/// Contractions whose factors fill more elements than this are not made dense first.
const MAX_DENSE: usize = 1 << 28;

impl Frame<'_> {
    pub fn nest(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let nest = Nest::read(op).ok_or_else(|| op.error("has malformed attributes"))?;
        let space = whole_space(self, op, &nest.iters, &nest.extents)?;
        let yielded = yielded(op)?;
        if let [a, b] = yielded[..]
            && nest.combiners == ["contract"]
            && let Some(result) = self.contraction(op, &nest, &space, a, b)?
        {
            return Ok(vec![result]);
        }
        let outs = self.outputs(op, &nest, &space, &yielded)?;
        self.point_by_point(op, &nest, &space, yielded, outs)
    }

    /// How each result is combined.
    fn outputs(&self, op: OpRef, nest: &Nest, space: &Space, yielded: &[Name]) -> Result<Vec<Output>> {
        let mut outs = Vec::new();
        let mut at = 0;
        let scans = nest.kinds.contains(&IterKind::Scan);
        if scans && nest.kinds.contains(&IterKind::Reduce) {
            return Err(op.unsupported("with both scan and reduce iterators"));
        }
        for (i, &combiner) in nest.combiners.iter().enumerate() {
            let ty = op.body.ty(op.result(i));
            let shape = self.shape_of(op, ty)?;
            let from = op.body.ty(yielded[at]).elem();
            let acc = nest.acc.filter(|t| t.is_float() == from.is_float()).unwrap_or_else(|| default_acc(from));
            let acc = self.format(op, if combiner == "none" { from } else { acc })?;
            let covered = |kind: &IterKind| *kind != IterKind::Reduce;
            let points: usize =
                (0..nest.kinds.len()).filter(|&i| covered(&nest.kinds[i])).map(|i| space.extents[i]).product();
            let count: usize = shape.iter().product();
            if points != count {
                return Err(op.error(format!("has {points} points for the {count} elements of result {i}")));
            }
            let access = Access::new(nest.out_maps[i], &shape, space, &self.symbols);
            let kind = match combiner {
                "none" => Kind::Set,
                _ if scans => Kind::Scan(scan_combiner(op, combiner)?),
                "contract" => Kind::Contract,
                word => Kind::Combine(Combiner::from_kind(word).ok_or_else(|| op.error("has an unknown combiner"))?),
            };
            let arg = matches!(kind, Kind::Combine(Combiner::ArgMax | Combiner::ArgMin));
            let start = match kind {
                Kind::Combine(c) if !arg => {
                    identity(c, acc.ty).ok_or_else(|| op.unsupported(format!("with '{combiner}' on {}", acc.ty)))?
                }
                _ if acc.is_float() => Value::Float(0.0),
                _ => Value::Int(0),
            };
            let at_index = if arg { vec![-1; count] } else { Vec::new() };
            let written = if matches!(kind, Kind::Set | Kind::Scan(_)) { vec![false; count] } else { Vec::new() };
            outs.push(Output {
                yielded: at,
                kind,
                acc,
                result: self.format(op, ty)?,
                values: Acc::new(&start, count),
                at_index,
                written,
                access,
                shape,
            });
            at += if combiner == "contract" { 2 } else { 1 };
        }
        Ok(outs)
    }

    fn point_by_point(
        &mut self,
        op: OpRef,
        nest: &Nest,
        space: &Space,
        yielded: Vec<Name>,
        mut outs: Vec<Output>,
    ) -> Result<Vec<Value>> {
        let region = Region::new(self, op, nest, space, yielded)?;
        let reduced = nest.kinds.iter().position(|&k| k == IterKind::Reduce);
        let index = Dim::symbol(reduced.map_or(rc_ir::Name::EMPTY, |i| nest.iters[i]));
        for start in space.blocks() {
            let block = space.block(start);
            let values = region.run(self, op, space, &block)?;
            for out in &mut outs {
                let positions = out.access.positions(space, &block, &[]).map_err(|why| op.error(why))?;
                let indices = if out.at_index.is_empty() {
                    Vec::new()
                } else {
                    super::space::eval(index, space, &block, &[]).map_err(|why| op.error(why))?
                };
                let taken: Vec<Array> = values[out.yielded..].iter().take(2).map(|v| over(v, block.len)).collect();
                out.combine(&taken, &positions, &indices).map_err(|why| op.error(why))?;
            }
        }
        for (axis, _) in nest.kinds.iter().enumerate().filter(|k| *k.1 == IterKind::Scan) {
            for (i, out) in outs.iter_mut().enumerate() {
                out.prefixes(self, nest.out_maps[i], nest, space, axis).map_err(|why| op.error(why))?;
            }
        }
        outs.into_iter().map(|out| out.finish(op)).collect()
    }

    /// A contraction of floats as a batched product of its factors, each made dense over the iterators it depends
    /// on. `None` where that does not apply.
    fn contraction(&mut self, op: OpRef, nest: &Nest, space: &Space, a: Name, b: Name) -> Result<Option<Value>> {
        let float = op.body.ty(a).is_float() && op.body.ty(b).is_float();
        if !float || nest.kinds.contains(&IterKind::Scan) || nest.iters.len() > 60 {
            return Ok(None);
        }
        let bits = |kind| (0..nest.kinds.len()).filter(|&i| nest.kinds[i] == kind).fold(0u64, |m, i| m | 1 << i);
        let (parallel, reduced) = (bits(IterKind::Parallel), bits(IterKind::Reduce));
        let right = iterators(op, nest, b) | reduced;
        let left = iterators(op, nest, a) | reduced | (parallel & !right);
        let (both, m, n) = (parallel & left & right, parallel & left & !right, parallel & right & !left);
        let (lhs, rhs) = (subspace(space, &[both, m, reduced]), subspace(space, &[both, n, reduced]));
        if lhs.points().max(rhs.points()) > MAX_DENSE {
            return Ok(None);
        }
        let count = |bits| subspace(space, &[bits]).points();
        let sizes = Sizes { b: count(both), m: count(m), n: count(n), k: count(reduced) };
        let shape = self.shape_of(op, op.body.ty(op.result(0)))?;
        let out_space = subspace(space, &[both, m, n]);
        if out_space.points() != shape.iter().product::<usize>() {
            return Err(op.error(format!("has {} points for a result of shape {shape:?}", out_space.points())));
        }
        let x = Region::new(self, op, nest, &lhs, vec![a])?.dense(self, op, &lhs)?;
        let y = Region::new(self, op, nest, &rhs, vec![b])?.dense(self, op, &rhs)?;
        let acc = self.format(op, nest.acc.unwrap_or_else(|| default_acc(op.body.ty(a))))?;
        let format = self.format(op, op.body.ty(op.result(0)))?;
        let steps = |rows: usize| [(rows * sizes.k) as isize, sizes.k as isize, 1];
        let values = product_of_floats(sizes, &x, steps(sizes.m), &y, steps(sizes.n), |v| format.round(acc.round(v)));
        let mut out = vec![0.0; values.len()];
        scatter(&mut out, &values, nest.out_maps[0], &shape, &out_space, &self.symbols).map_err(|why| op.error(why))?;
        Ok(Some(Value::Array(Array::floats(shape, out))))
    }

    pub fn nest_attention(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let words = op.attr("iters").and_then(|a| a.as_array()).unwrap_or_default();
        let names: Vec<rc_ir::Name> = words.iter().filter_map(|a| a.as_str()).map(rc_ir::Name::new).collect();
        let extents = op.attr("extents").and_then(|a| a.as_shape()).unwrap_or_default();
        let shapes = |name: &str| -> Vec<&'static [Dim]> {
            op.attr(name).and_then(|a| a.as_array()).unwrap_or_default().iter().filter_map(|a| a.as_shape()).collect()
        };
        let (maps, out_maps) = (shapes("maps"), shapes("out_maps"));
        if names.len() != 6
            || extents.len() != 6
            || maps.len() != op.operands().len()
            || out_maps.len() != op.results().len()
        {
            return Err(op.error("needs the iterators b, h, m, n, d, e, and a map for each operand and each result"));
        }
        let space = whole_space(self, op, &names, extents)?;
        // Bits of b, h, m, n, d, e.
        let [b, h, m, n, d, e] = [1u64, 2, 4, 8, 16, 32];
        let parts = [[b, h, m, d], [b, h, n, d], [b, h, n, e], [b, h, m, n]];
        let mut dense = Vec::new();
        for (i, part) in parts.iter().take(op.operands().len()).enumerate() {
            let sub = subspace(&space, part);
            let from = self.array(op, i)?.ready(sub.points());
            let access = Access::new(maps[i], &from.shape, &sub, &self.symbols);
            let mut values = Vec::with_capacity(sub.points());
            for start in sub.blocks() {
                let block = sub.block(start);
                let positions = access.positions(&sub, &block, &[]).map_err(|why| op.error(why))?;
                values.extend_from_slice(&from.pick(vec![block.len], &positions).as_floats());
            }
            if i == 3 {
                bias_of(op.body.ty(op.operand(3)), &mut values);
            }
            dense.push(values);
        }
        let size = |i: usize| space.extents[i];
        let a = Attention {
            q: dense[0].as_slice().into(),
            k: dense[1].as_slice().into(),
            v: dense[2].as_slice().into(),
            sizes: (size(0) * size(1), size(2), size(3), size(4), size(5)),
            scale: op.attr("scale").and_then(|a| a.as_float()).unwrap_or(1.0 / (size(4) as f64).sqrt()),
            causal: op.bool("causal"),
        };
        let (weight, format) =
            (self.format(op, op.body.ty(op.operand(2)))?, self.format(op, op.body.ty(op.result(0)))?);
        let bias = |b: usize, i: usize, j: usize| dense.get(3).map_or(0.0, |m| m[(b * size(2) + i) * size(3) + j]);
        let (values, sums) = attend(&a, bias, |w| weight.round(w), |x| format.round(x));
        let mut results = Vec::new();
        for (i, (values, part)) in [(values, [b, h, m, e].as_slice()), (sums, &[b, h, m])].into_iter().enumerate() {
            let Some(result) = op.results().nth(i) else { break };
            let format = self.format(op, op.body.ty(result))?;
            let values: Vec<f64> = values.into_iter().map(|x| format.round(x)).collect();
            let shape = self.shape_of(op, op.body.ty(result))?;
            let out_space = subspace(&space, part);
            if out_space.points() != shape.iter().product::<usize>() {
                return Err(op.error(format!("has {} points for a result of shape {shape:?}", out_space.points())));
            }
            let mut out = vec![0.0; values.len()];
            scatter(&mut out, &values, out_maps[i], &shape, &out_space, &self.symbols).map_err(|why| op.error(why))?;
            results.push(Value::Array(Array::floats(shape, out)));
        }
        Ok(results)
    }
}

/// The scalars that the nest's region yields.
fn yielded(op: OpRef) -> Result<Vec<Name>> {
    let end =
        op.entry(0).and_then(|b| op.body.last_op(b)).map(|t| op.body.op_ref(t)).filter(|t| t.has(Traits::TERMINATOR));
    end.map(|t| t.operands().collect()).ok_or_else(|| op.error("needs a loop.yield"))
}

/// What a scan combines by: none of the arg-kinds.
fn scan_combiner(op: OpRef, word: &str) -> Result<Combiner> {
    let combiner = Combiner::from_kind(word).filter(|c| c.core_op().is_some());
    combiner.ok_or_else(|| op.unsupported(format!("with a scan by '{word}'")))
}

enum Kind {
    Set,
    /// Every prefix along the scan iterators.
    Scan(Combiner),
    Combine(Combiner),
    Contract,
}

/// Accumulators of one result, one for each element.
enum Acc {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

impl Acc {
    fn new(start: &Value, count: usize) -> Acc {
        match start {
            Value::Float(x) => Acc::Floats(vec![*x; count]),
            Value::Int(n) => Acc::Ints(vec![*n; count]),
            _ => Acc::Ints(vec![0; count]),
        }
    }
}

struct Output {
    /// The number of its first yielded scalar.
    yielded: usize,
    kind: Kind,
    acc: Format,
    result: Format,
    values: Acc,
    /// Of an arg-kind: the best index so far, or -1.
    at_index: Vec<i64>,
    /// Of a result that is set, not combined: which elements were.
    written: Vec<bool>,
    access: Access,
    shape: Vec<usize>,
}

impl Output {
    fn combine(&mut self, taken: &[Array], positions: &[usize], indices: &[i64]) -> std::result::Result<(), String> {
        let kind = "combines elements of a type that its combiner does not take";
        match (&self.kind, &mut self.values) {
            (Kind::Set | Kind::Scan(_), values) => {
                for &p in positions {
                    if std::mem::replace(&mut self.written[p], true) {
                        return Err(format!("writes element {p} of a result twice"));
                    }
                }
                match values {
                    Acc::Floats(out) => merge(out, positions, &taken[0].as_floats(), |_, new| new),
                    Acc::Ints(out) => merge(out, positions, &taken[0].as_ints(), |_, new| new),
                }
            }
            (Kind::Contract, Acc::Floats(out)) => {
                let (a, b) = (taken[0].as_floats(), taken[1].as_floats());
                positions.iter().enumerate().for_each(|(i, &p)| out[p] += a[i] * b[i]);
            }
            (Kind::Contract, Acc::Ints(out)) => {
                let (a, b) = (taken[0].as_ints(), taken[1].as_ints());
                positions.iter().enumerate().for_each(|(i, &p)| out[p] = out[p].wrapping_add(a[i].wrapping_mul(b[i])));
            }
            (Kind::Combine(c @ (Combiner::ArgMax | Combiner::ArgMin)), values) => {
                let from = taken[0].as_floats();
                let ints = taken[0].as_ints();
                for (i, &p) in positions.iter().enumerate() {
                    let first = self.at_index[p] < 0;
                    let wins = match values {
                        Acc::Floats(best) => first || better(*c, from[i], best[p]),
                        Acc::Ints(best) => {
                            first || if *c == Combiner::ArgMax { ints[i] > best[p] } else { ints[i] < best[p] }
                        }
                    };
                    if wins {
                        self.at_index[p] = indices[i];
                        match values {
                            Acc::Floats(best) => best[p] = from[i],
                            Acc::Ints(best) => best[p] = ints[i],
                        }
                    }
                }
            }
            (Kind::Combine(c), Acc::Floats(out)) => {
                merge(out, positions, &taken[0].as_floats(), float_fn(*c).ok_or(kind)?)
            }
            (Kind::Combine(c), Acc::Ints(out)) => {
                merge(out, positions, &taken[0].as_ints(), int_fn(*c, self.acc).ok_or(kind)?)
            }
        }
        Ok(())
    }

    /// Combines each element with those before it along the iterator numbered `axis`.
    fn prefixes(
        &mut self,
        frame: &Frame,
        map: &[Dim],
        nest: &Nest,
        space: &Space,
        axis: usize,
    ) -> std::result::Result<(), String> {
        // Points in row-major order, so that the one before is complete; the reduced iterators are done.
        let bits = (0..nest.iters.len()).filter(|&i| nest.kinds[i] != IterKind::Reduce).fold(0u64, |m, i| m | 1 << i);
        let space = subspace(space, &[bits]);
        let name = nest.iters[axis];
        let inner: usize = space.extents[space.position(name).unwrap_or(0) + 1..].iter().product();
        let access = Access::new(map, &self.shape, &space, &frame.symbols);
        let mut order = Vec::with_capacity(space.points());
        for start in space.blocks() {
            order.extend(access.positions(&space, &space.block(start), &[])?);
        }
        let extent = space.extents[space.position(name).unwrap_or(0)];
        let Kind::Scan(combiner) = self.kind else { return Ok(()) };
        let kind = "scans elements of a type that its combiner does not take";
        let pairs =
            (0..order.len()).filter(|i| !(i / inner).is_multiple_of(extent)).map(|i| (order[i], order[i - inner]));
        match &mut self.values {
            Acc::Floats(v) => {
                let f = float_fn(combiner).ok_or(kind)?;
                pairs.for_each(|(at, before)| v[at] = f(v[before], v[at]));
            }
            Acc::Ints(v) => {
                let f = int_fn(combiner, self.acc).ok_or(kind)?;
                pairs.for_each(|(at, before)| v[at] = f(v[before], v[at]));
            }
        }
        Ok(())
    }

    fn finish(self, op: OpRef) -> Result<Value> {
        if matches!(self.kind, Kind::Combine(Combiner::ArgMax | Combiner::ArgMin)) {
            if self.at_index.contains(&-1) {
                return Err(op.error("finds the extreme of no elements"));
            }
            return Ok(Value::Array(Array::ints(self.shape, self.at_index)));
        }
        let (acc, result) = (self.acc, self.result);
        Ok(Value::Array(match self.values {
            Acc::Floats(values) => {
                Array::floats(self.shape, values.into_iter().map(|x| result.round(acc.round(x))).collect())
            }
            Acc::Ints(values) => {
                let round = |n: i64| result.wrap(acc.wide(acc.wrap(i128::from(n))));
                Array::ints(self.shape, values.into_iter().map(round).collect())
            }
        }))
    }
}

fn merge<T: Copy>(out: &mut [T], positions: &[usize], from: &[T], f: impl Fn(T, T) -> T) {
    positions.iter().zip(from).for_each(|(&p, &v)| out[p] = f(out[p], v));
}
