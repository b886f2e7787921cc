//! Attention in the online form: a block of queries of one head, a loop over blocks of keys. On a GPU all of it is tiles;
//! `attention_cpu` has the CPU's form.

use super::contract::dot;
use super::program::Program;
use super::run::bind;
use super::scope::{Scope, Tiled};
use crate::schedule::access::{Access, Iter};
use crate::schedule::{Schedule, attention_iters};
use rc_dialects::loop_::IterKind;
use rc_ir::{Attr, Diagnostic, Dim, Name, Op, Result, Type, Value};

pub struct Attention<'s> {
    pub op: Op,
    pub schedule: &'s Schedule,
    /// b, h, m, n, d, e.
    pub iters: [Iter; 6],
    /// q, k, v and perhaps a bias.
    inputs: Vec<(Value, Access)>,
    pub output: Access,
    /// Where the logarithms of the sums lie, if they are a result.
    sums: Option<(Value, Access)>,
    scale: f64,
    pub(super) causal: bool,
    /// The type of scores, sums and the accumulator.
    pub(super) acc: Type,
}

pub(super) const M: usize = 2;
pub(super) const N: usize = 3;
pub(super) const D: usize = 4;
pub(super) const E: usize = 5;

impl<'s> Attention<'s> {
    /// # Errors
    /// If an attribute is missing.
    pub fn read(p: &Program, op: Op, schedule: &'s Schedule) -> Result<Attention<'s>> {
        let at = p.src.op_ref(op);
        let bad = || {
            at.error("expects the iterators b, h, m, n, d, e with extents, and a map for each operand and the result")
        };
        let (names, extents) = attention_iters(p.src, op).ok_or_else(bad)?;
        let iters: [Iter; 6] =
            std::array::from_fn(|i| Iter { name: names[i], extent: extents[i], kind: IterKind::Parallel });
        let mut ranges = p.ranges.clone();
        iters.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
        let access =
            |v: Value, map: Attr| Some(Access::new(&p.src.ty(v).shape(), map.as_shape()?).normalized(&ranges, &iters));
        let maps =
            at.attr("maps").and_then(|a| a.as_array()).filter(|m| m.len() == at.operands().len()).ok_or_else(bad)?;
        let inputs = at
            .operands()
            .zip(maps)
            .map(|(v, &m)| Some((v, access(v, m)?)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(bad)?;
        let outs = at.attr("out_maps").and_then(|a| a.as_array()).filter(|m| m.len() == at.results().len());
        let mut outputs = at
            .results()
            .zip(outs.ok_or_else(bad)?)
            .map(|(v, &m)| Some((v, access(v, m)?)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(bad)?;
        // A tile's dimension of one element, of which the map says nothing.
        for (i, (_, access)) in outputs.iter_mut().enumerate() {
            for iter in iters[M..].iter().filter(|it| it.name == names[M] || i == 0 && it.name == names[E]) {
                if !access.mentions(iter.name) && iter.extent == Dim::Static(1) {
                    access.shape.push(Dim::Static(1));
                    access.exprs.push(Dim::symbol(iter.name));
                }
            }
        }
        let sums = outputs.drain(1..).next();
        let elem = p.src.ty(at.operand(0)).elem();
        Ok(Attention {
            op,
            schedule,
            iters,
            inputs,
            output: outputs.swap_remove(0).1,
            sums,
            scale: at.attr("scale").and_then(|a| a.as_float()).ok_or_else(bad)?,
            causal: at.bool("causal"),
            acc: if elem == Type::f64() { elem } else { Type::f32() },
        })
    }
    pub(super) fn name(&self, i: usize) -> Name {
        self.iters[i].name
    }
    /// The element type of v, in which weights are multiplied.
    pub(super) fn value_type(&self, p: &Program) -> Type {
        p.src.ty(self.inputs[2].0).elem()
    }
    pub(super) fn rows(&self) -> i64 {
        self.schedule.tile_of(self.name(M))
    }
    pub(super) fn keys(&self) -> i64 {
        self.schedule.tile_of(self.name(N))
    }
    /// Elements of the result for each query, at once: all, padded.
    fn width(&self, p: &Program) -> Result<i64> {
        self.padded(p, E)
    }
    fn padded(&self, p: &Program, i: usize) -> Result<i64> {
        // An instruction of the matrix units has 16 columns.
        let least = if self.schedule.unit == Some("fma") { 1 } else { 16 };
        self.head_size(p, i).map(|n| (n.max(least) as u64).next_power_of_two() as i64)
    }
    pub(super) fn head_size(&self, p: &Program, i: usize) -> Result<i64> {
        let size = self.iters[i].extent.as_static().filter(|&n| n > 0);
        size.ok_or_else(|| Diagnostic::unsupported(p.loc, "attention with a symbolic or empty head size"))
    }
    fn constant(&self, p: &mut Program, value: f64) -> Value {
        p.splat([1; 2], Attr::float(value, self.acc))
    }

    /// Operand `which` over what the scope tiles, zero past the extent of iterator `past`.
    pub(super) fn load(
        &self,
        p: &mut Program,
        which: usize,
        scope: &Scope,
        shape: [i64; 2],
        past: usize,
    ) -> Result<Value> {
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
    pub(super) fn with(&self, scope: &Scope, i: usize, base: Value, axis: Option<usize>, size: i64) -> Scope {
        scope.with(self.name(i), bind(&self.iters[i], base, axis, size))
    }
    pub(super) fn without_rows(&self, scope: &Scope) -> Scope {
        Scope { binds: scope.binds.iter().filter(|b| b.0 != self.name(M)).copied().collect(), ..Scope::default() }
    }

    /// log2(e): weights are powers of two.
    const LOG2_E: f64 = std::f64::consts::LOG2_E;

    /// What scores are multiplied by before they become exponents of two: the scale, unless the mask has done that.
    fn factor(&self) -> f64 {
        if self.scaled_early() { 1.0 } else { self.scale * Self::LOG2_E }
    }
    /// Whether scores are scaled before their maximum is taken: a bias is added to them, or a factor would turn their order.
    fn scaled_early(&self) -> bool {
        self.inputs.len() > 3 || self.scale <= 0.0
    }

    /// The result for the queries of the scope, with the scope in which it is to be stored.
    pub fn run(&self, p: &mut Program, scope: &Scope) -> Result<(Value, Scope)> {
        let (rows, keys, width) = (self.rows(), self.keys(), self.width(p)?);
        let first = scope.get(self.name(M)).expect("the grid has the queries").base;
        let low = p.splat([rows, 1], Attr::float(f64::NEG_INFINITY, self.acc));
        let start = vec![low, p.zeros([rows, 1], self.acc), p.zeros([rows, width], self.acc)];
        let zero = p.constant_index(0);
        let query = self.query(p, scope)?;
        let bounds = [zero, self.last_key(p, first, rows), p.constant_index(keys)];
        let ends = p.for_loop(bounds, &start, |p, at, state| {
            let scores = self.scores(p, query, scope, at)?;
            let scores = self.mask_where_needed(p, scores, scope, at)?;
            let (best, sum, decay, weights) = self.weights(p, scores, state[0], state[1]);
            let total = p.binary("rc.core.mul", state[2], decay);
            Ok::<_, Box<Diagnostic>>(vec![best, sum, self.values(p, weights, scope, at, total)?])
        })?;
        if let Some(stages) = self.schedule.stages {
            let made = p.out.defining_op(ends[0]).expect("a loop's result");
            p.out.set_attr(made, "stages", Attr::i64(stages));
        }
        self.store_sums(p, ends[0], ends[1], scope)?;
        let out = self.quotient(p, ends[2], ends[1]);
        Ok((out, self.with(scope, E, zero, Some(1), width)))
    }

    /// Stores the logarithms of the sums, if they are a result.
    pub(super) fn store_sums(&self, p: &mut Program, best: Value, sum: Value, scope: &Scope) -> Result {
        let Some((target, access)) = &self.sums else { return Ok(()) };
        let factor = self.constant(p, self.factor() / Self::LOG2_E);
        let log = p.unary("rc.core.log", sum);
        let logs = p.fma(best, factor, log);
        p.store(logs, *target, access, scope)
    }

    /// Where the keys end that `rows` queries from `first` on can see.
    pub(super) fn last_key(&self, p: &mut Program, first: Value, rows: i64) -> Value {
        let end = p.size(self.iters[N].extent);
        if !self.causal {
            return end;
        }
        let rows = p.constant_index(rows);
        let last = p.add_index(first, rows);
        p.binary("rc.core.min", last, end)
    }
    /// The weighted sum over the sum of weights; a query that sees no key has sum 0 and gives 0.
    pub(super) fn quotient(&self, p: &mut Program, total: Value, sum: Value) -> Value {
        let nothing = self.constant(p, 0.0);
        let none = p.compare("eq", sum, nothing);
        let quotient = p.binary("rc.core.div", total, sum);
        p.select(none, nothing, quotient)
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
    /// Scaled and the bias added if [`Attention::scaled_early`]; minus infinity where a key is not visible.
    pub(super) fn mask(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        let scope = self.with(scope, N, at, Some(1), self.keys());
        let mut scores = scores;
        if self.scaled_early() {
            let scale = self.constant(p, self.scale * Self::LOG2_E);
            scores = p.binary("rc.core.mul", scores, scale);
        }
        let mut visible = p.inside(&scope, &|n| n == self.name(N));
        if let Some((value, access)) = self.inputs.get(3) {
            let mask = p.load(*value, access, &scope)?;
            if p.ty(mask).elem() == Type::i1() {
                visible = Some(visible.map_or(mask, |v| p.binary("rc.core.and", v, mask)));
            } else {
                let (bias, log) = (p.convert(mask, self.acc), self.constant(p, Self::LOG2_E));
                scores = p.fma(bias, log, scores);
            }
        }
        if self.causal {
            let (n, m) = (Dim::symbol(self.name(N)), Dim::symbol(self.name(M)));
            let (key, query) = (p.index(n, &scope, Tiled::All)?, p.index(m, &scope, Tiled::All)?);
            let before = p.compare("le", key, query);
            visible = Some(visible.map_or(before, |v| p.binary("rc.core.and", v, before)));
        }
        let low = self.constant(p, f64::NEG_INFINITY);
        Ok(visible.map_or(scores, |v| p.select(v, scores, low)))
    }

    /// The mask of a block in which some key is not visible to some query: the diagonal, the end of the keys.
    fn mask_where_needed(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        if self.scaled_early() {
            return self.mask(p, scores, scope, at);
        }
        let (first, keys) =
            (scope.get(self.name(M)).expect("the grid has the queries").base, p.constant_index(self.keys()));
        let mut seen = p.size(self.iters[N].extent);
        if self.causal {
            let one = p.constant_index(1);
            let own = p.add_index(first, one);
            seen = p.binary("rc.core.min", seen, own);
        }
        let end = p.add_index(at, keys);
        let masks = p.compare("gt", end, seen);
        p.if_else(masks, |p| self.mask(p, scores, scope, at), |_| Ok(scores))
    }

    /// From the scores of one block of keys and the state before: the new maximum, the new sum, what earlier sums are to be
    /// multiplied by, and the weights in the values' type.
    pub(super) fn weights(
        &self,
        p: &mut Program,
        scores: Value,
        best: Value,
        sum: Value,
    ) -> (Value, Value, Value, Value) {
        let (low, nothing) = (self.constant(p, f64::NEG_INFINITY), self.constant(p, 0.0));
        let here = p.reduce(scores, &[1], "max");
        let next = p.binary("rc.core.max", best, here);
        // While nothing is visible the maximum is minus infinity; subtracting 0 then leaves exp(-inf) = 0.
        let unseen = p.compare("eq", next, low);
        let shift = p.select(unseen, nothing, next);
        let factor = self.constant(p, self.factor());
        let shift = p.binary("rc.core.mul", shift, factor);
        let shift = p.unary("rc.core.neg", shift);
        let (centred, moved) = (p.fma(scores, factor, shift), p.fma(best, factor, shift));
        let (weights, decay) = (p.unary("rc.core.exp2", centred), p.unary("rc.core.exp2", moved));
        let added = p.reduce(weights, &[1], "add");
        let kept = p.binary("rc.core.mul", sum, decay);
        let sum = p.binary("rc.core.add", kept, added);
        (next, sum, decay, p.convert(weights, self.value_type(p)))
    }
    fn values(&self, p: &mut Program, weights: Value, scope: &Scope, at: Value, total: Value) -> Result<Value> {
        let (width, zero) = (self.width(p)?, p.constant_index(0));
        let scope = self.with(&self.without_rows(scope), N, at, Some(0), self.keys());
        let scope = self.with(&scope, E, zero, Some(1), width);
        let value = self.load(p, 2, &scope, [self.keys(), width], N)?;
        Ok(dot(p, [weights, value, total], false, false, self.schedule.unit))
    }
}
