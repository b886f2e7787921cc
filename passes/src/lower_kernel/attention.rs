//! Attention in the online form: a block of queries of one head, a loop over blocks of keys.

use super::contract::dot;
use super::program::Program;
use super::run::bind;
use super::scope::{Scope, Tiled};
use crate::schedule::access::{Access, Iter};
use crate::schedule::{Schedule, attention_iters};
use rc_dialects::loop_::IterKind;
use rc_ir::{Attr, Diagnostic, Dim, Name, Op, Result, Type, Value};

pub struct Attention<'s> {
    pub schedule: &'s Schedule,
    /// b, h, m, n, d, e.
    pub iters: [Iter; 6],
    /// q, k, v and perhaps a bias.
    inputs: Vec<(Value, Access)>,
    pub output: Access,
    scale: f64,
    causal: bool,
    /// The type of scores, sums and the accumulator.
    acc: Type,
}

/// Running maximum, sum, and accumulated result.
type State = Vec<Value>;

const M: usize = 2;
const N: usize = 3;
const D: usize = 4;
const E: usize = 5;

impl<'s> Attention<'s> {
    /// # Errors
    /// If an attribute is missing.
    pub fn read(p: &Program, op: Op, schedule: &'s Schedule) -> Result<Attention<'s>> {
        let at = p.src.op_ref(op);
        let bad = || at.error("expects the iterators b, h, m, n, d, e with extents, and a map for each operand and the result");
        let (names, extents) = attention_iters(p.src, op).ok_or_else(bad)?;
        let iters: [Iter; 6] = std::array::from_fn(|i| Iter { name: names[i], extent: extents[i], kind: IterKind::Parallel });
        let mut ranges = p.ranges.clone();
        iters.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
        let access = |v: Value, map: Attr| Some(Access::new(&p.src.ty(v).shape(), map.as_shape()?).normalized(&ranges, &iters));
        let maps = at.attr("maps").and_then(|a| a.as_array()).filter(|m| m.len() == at.operands().len()).ok_or_else(bad)?;
        let inputs = at.operands().zip(maps).map(|(v, &m)| Some((v, access(v, m)?))).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        let out = at.attr("out_maps").and_then(|a| a.as_array()).and_then(|a| a.first().copied()).ok_or_else(bad)?;
        let elem = p.src.ty(at.operand(0)).elem();
        Ok(Attention {
            schedule,
            iters,
            inputs,
            output: access(at.result(0), out).ok_or_else(bad)?,
            scale: at.attr("scale").and_then(|a| a.as_float()).ok_or_else(bad)?,
            causal: at.bool("causal"),
            acc: if elem == Type::f64() { elem } else { Type::f32() },
        })
    }
    fn name(&self, i: usize) -> Name {
        self.iters[i].name
    }
    fn rows(&self) -> i64 {
        self.schedule.tile_of(self.name(M))
    }
    fn keys(&self) -> i64 {
        self.schedule.tile_of(self.name(N))
    }
    /// Elements of the result for each query, at once: all, padded.
    fn width(&self, p: &Program) -> Result<i64> {
        self.padded(p, E)
    }
    fn padded(&self, p: &Program, i: usize) -> Result<i64> {
        let size = self.iters[i].extent.as_static().filter(|&n| n > 0);
        let size = size.ok_or_else(|| Diagnostic::unsupported(p.loc, "attention with a symbolic or empty head size"))?;
        let lanes = p.target.lanes(self.acc) as u64;
        Ok(if p.target.is_cpu() { (size as u64).next_multiple_of(lanes) as i64 } else { (size as u64).next_power_of_two() as i64 })
    }
    fn constant(&self, p: &mut Program, value: f64) -> Value {
        p.splat([1; 2], Attr::float(value, self.acc))
    }

    /// Operand `which` over what the scope tiles, zero past the extent of iterator `past`.
    fn load(&self, p: &mut Program, which: usize, scope: &Scope, shape: [i64; 2], past: usize) -> Result<Value> {
        let (value, access) = &self.inputs[which];
        let tile = p.load(*value, access, scope)?;
        let name = self.name(past);
        let clipped = scope.get(name).is_none_or(|b| b.exact) || access.clips(&self.iters[past]);
        let tile = if clipped {
            tile
        } else {
            let mask = p.inside(scope, &|n| n == name).expect("not exact");
            let zero = p.zeros([1; 2], p.ty(tile).elem());
            p.select(mask, tile, zero)
        };
        Ok(p.broadcast(tile, shape))
    }
    fn with(&self, scope: &Scope, i: usize, base: Value, axis: Option<usize>, size: i64) -> Scope {
        scope.with(self.name(i), bind(&self.iters[i], base, axis, size))
    }
    fn without_rows(&self, scope: &Scope) -> Scope {
        Scope { binds: scope.binds.iter().filter(|b| b.0 != self.name(M)).copied().collect(), ..Scope::default() }
    }

    /// The result for the queries of the scope, with the scope in which it is to be stored.
    pub fn run(&self, p: &mut Program, scope: &Scope) -> Result<(Value, Scope)> {
        let (rows, keys, width) = (self.rows(), self.keys(), self.width(p)?);
        let first = scope.get(self.name(M)).expect("the grid has the queries").base;
        let low = p.splat([rows, 1], Attr::float(f64::NEG_INFINITY, self.acc));
        let start = vec![low, p.zeros([rows, 1], self.acc), p.zeros([rows, width], self.acc)];
        let mut end = p.size(self.iters[N].extent);
        if self.causal {
            let rows = p.constant_index(rows);
            let last = p.add_index(first, rows);
            end = p.binary("rc.core.min", last, end);
        }
        let zero = p.constant_index(0);
        let query = if p.target.is_cpu() { None } else { Some(self.query(p, scope)?) };
        let bounds = [zero, end, p.constant_index(keys)];
        let scratch = p.target.is_cpu().then(|| p.alloc(&[rows, keys], p.src.ty(self.inputs[2].0).elem()));
        let ends = p.for_loop(bounds, &start, |p, at, state| {
            let scores = match query {
                Some(q) => self.scores(p, q, scope, at)?,
                None => self.scores_by_element(p, scope, at)?,
            };
            let scores = self.mask(p, scores, scope, at)?;
            self.fold(p, scores, scope, at, state, scratch)
        })?;
        // A query that sees no key has sum 0 and gives 0.
        let (sum, total) = (ends[1], ends[2]);
        let nothing = self.constant(p, 0.0);
        let none = p.compare("eq", sum, nothing);
        let quotient = p.binary("rc.core.div", total, sum);
        let out = p.select(none, nothing, quotient);
        Ok((out, self.with(scope, E, zero, Some(1), width)))
    }

    fn query(&self, p: &mut Program, scope: &Scope) -> Result<Value> {
        let depth = self.padded(p, D)?;
        let zero = p.constant_index(0);
        let scope = self.with(scope, D, zero, Some(1), depth);
        self.load(p, 0, &scope, [self.rows(), depth], D)
    }
    fn scores(&self, p: &mut Program, query: Value, scope: &Scope, at: Value) -> Result<Value> {
        let (depth, zero) = (self.padded(p, D)?, p.constant_index(0));
        let scope = self.with(&self.without_rows(scope), N, at, Some(0), self.keys());
        let scope = self.with(&scope, D, zero, Some(1), depth);
        let key = self.load(p, 1, &scope, [self.keys(), depth], D)?;
        let start = p.zeros([self.rows(), self.keys()], self.acc);
        Ok(dot(p, [query, key, start], false, true, self.schedule.unit))
    }
    /// On the CPU: a loop over the head's elements, so that few registers are used.
    fn scores_by_element(&self, p: &mut Program, scope: &Scope, at: Value) -> Result<Value> {
        let start = p.zeros([self.rows(), self.keys()], self.acc);
        let bounds = [p.constant_index(0), p.size(self.iters[D].extent), p.constant_index(1)];
        let ends = p.for_loop(bounds, &[start], |p, d, acc| {
            let q_scope = self.with(scope, D, d, None, 1);
            let q = self.load(p, 0, &q_scope, [self.rows(), 1], M)?;
            let k_scope = self.with(&self.without_rows(&q_scope), N, at, Some(1), self.keys());
            let k = self.load(p, 1, &k_scope, [1, self.keys()], N)?;
            Ok::<_, Box<Diagnostic>>(vec![dot(p, [q, k, acc[0]], false, false, Some("fma"))])
        })?;
        Ok(ends[0])
    }

    /// Scaled, the bias added, minus infinity where a key is not visible.
    fn mask(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        let scale = self.constant(p, self.scale);
        let mut scores = p.binary("rc.core.mul", scores, scale);
        let scope = self.with(scope, N, at, Some(1), self.keys());
        if self.inputs.len() > 3 {
            let (value, access) = &self.inputs[3];
            let bias = p.load(*value, access, &scope)?;
            let bias = p.convert(bias, self.acc);
            scores = p.binary("rc.core.add", scores, bias);
        }
        let mut visible = p.inside(&scope, &|n| n == self.name(N));
        if self.causal {
            let (n, m) = (Dim::symbol(self.name(N)), Dim::symbol(self.name(M)));
            let (key, query) = (p.index(n, &scope, Tiled::All)?, p.index(m, &scope, Tiled::All)?);
            let before = p.compare("le", key, query);
            visible = Some(visible.map_or(before, |v| p.binary("rc.core.and", v, before)));
        }
        let low = self.constant(p, f64::NEG_INFINITY);
        Ok(visible.map_or(scores, |v| p.select(v, scores, low)))
    }

    /// One block of keys into the running state.
    fn fold(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value, state: &[Value], scratch: Option<Value>) -> Result<State> {
        let (low, nothing) = (self.constant(p, f64::NEG_INFINITY), self.constant(p, 0.0));
        let here = p.reduce(scores, &[1], "max");
        let best = p.binary("rc.core.max", state[0], here);
        // While nothing is visible the maximum is minus infinity; subtracting 0 then leaves exp(-inf) = 0.
        let unseen = p.compare("eq", best, low);
        let shift = p.select(unseen, nothing, best);
        let (centred, moved) = (p.binary("rc.core.sub", scores, shift), p.binary("rc.core.sub", state[0], shift));
        let (weights, decay) = (p.unary("rc.core.exp", centred), p.unary("rc.core.exp", moved));
        let added = p.reduce(weights, &[1], "add");
        let kept = p.binary("rc.core.mul", state[1], decay);
        let sum = p.binary("rc.core.add", kept, added);
        let total = p.binary("rc.core.mul", state[2], decay);
        let weights = p.convert(weights, p.src.ty(self.inputs[2].0).elem());
        let total = match scratch {
            None => self.values(p, weights, scope, at, total)?,
            Some(memory) => self.values_by_key(p, weights, scope, at, total, memory)?,
        };
        Ok(vec![best, sum, total])
    }
    fn values(&self, p: &mut Program, weights: Value, scope: &Scope, at: Value, total: Value) -> Result<Value> {
        let (width, zero) = (self.width(p)?, p.constant_index(0));
        let scope = self.with(&self.without_rows(scope), N, at, Some(0), self.keys());
        let scope = self.with(&scope, E, zero, Some(1), width);
        let value = self.load(p, 2, &scope, [self.keys(), width], N)?;
        Ok(dot(p, [weights, value, total], false, false, self.schedule.unit))
    }
    /// On the CPU: the weights go through memory, and keys are taken one by one.
    fn values_by_key(&self, p: &mut Program, weights: Value, scope: &Scope, at: Value, total: Value, memory: Value) -> Result<Value> {
        let (width, zero) = (self.width(p)?, p.constant_index(0));
        let both = Attr::i64s(&[0, 1]);
        p.build().op("rc.kernel.store").operand(weights).operand(memory).operands(&[zero, zero]).attr("dims", both).build();
        let size = p.size(self.iters[N].extent);
        let left = p.binary("rc.core.sub", size, at);
        let keys = p.constant_index(self.keys());
        let bounds = [zero, p.binary("rc.core.min", left, keys), p.constant_index(1)];
        let ends = p.for_loop(bounds, &[total], |p, i, acc| {
            let ty = Type::tile(&[self.rows(), 1], p.ty(memory).elem(), None);
            let w = p.build().op("rc.kernel.load").operand(memory).operands(&[zero, i]).attr("dims", both).result(ty).value();
            let key = p.add_index(at, i);
            let scope = self.with(&self.without_rows(scope), N, key, None, 1);
            let scope = self.with(&scope, E, zero, Some(1), width);
            let value = self.load(p, 2, &scope, [1, width], N)?;
            Ok::<_, Box<Diagnostic>>(vec![dot(p, [w, value, acc[0]], false, false, Some("fma"))])
        })?;
        Ok(ends[0])
    }
}
