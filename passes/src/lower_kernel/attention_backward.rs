//! Gradients of attention: a block of queries (for q's gradient) or of keys (for k's and v's) of one head, a loop over blocks of the others.
//! The probabilities are formed anew from the scores and the logarithms of their sums.
//!
//! For k and v, scores lie with the keys as rows, so that probabilities are the left operand of the next product as they are.

use super::attention::{D, E, M, N};
use super::contract::dot;
use super::program::Program;
use super::run::{bind, divides};
use super::scope::{Scope, Tiled};
use crate::schedule::access::{Access, Iter};
use crate::schedule::{Schedule, attention_iters};
use rc_dialects::constraints::default_acc;
use rc_dialects::loop_::{IterKind, gradients_of};
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Name, Op, Result, Type, Value};

/// The operands' numbers.
pub(super) const Q: usize = 0;
pub(super) const K: usize = 1;
pub(super) const V: usize = 2;
pub(super) const GRAD: usize = 3;
const SUMS: usize = 4;
const DELTA: usize = 5;
const MASK: usize = 6;

const LOG2_E: f64 = std::f64::consts::LOG2_E;

pub struct AttentionBackward<'s> {
    pub op: Op,
    pub(super) schedule: &'s Schedule,
    /// b, h, m, n, d, e.
    pub iters: [Iter; 6],
    /// Whose gradients.
    pub(super) of: Vec<&'static str>,
    inputs: Vec<(Value, Access)>,
    outputs: Vec<Access>,
    scale: f64,
    pub causal: bool,
    /// The type of scores, sums and the gradients' sums.
    pub(super) acc: Type,
}

/// What a program holds of its own rows, queries or keys.
struct Own {
    /// Left operand of the product that gives scores.
    scores: Value,
    /// That of the probabilities' gradients, which v's gradient alone does not need.
    weights: Option<Value>,
    /// Of queries: their sums, as exponents of two, and delta.
    rows: Option<[Value; 2]>,
}

impl<'s> AttentionBackward<'s> {
    /// # Errors
    /// If an attribute is missing.
    pub fn read(p: &Program, op: Op, schedule: &'s Schedule) -> Result<AttentionBackward<'s>> {
        let at = p.src.op_ref(op);
        let bad = || {
            at.error("expects the iterators b, h, m, n, d, e with extents, and a map for each operand and each result")
        };
        let (names, extents) = attention_iters(p.src, op).ok_or_else(bad)?;
        let iters: [Iter; 6] =
            std::array::from_fn(|i| Iter { name: names[i], extent: extents[i], kind: IterKind::Parallel });
        let mut ranges = p.ranges.clone();
        iters.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
        let maps = |name: &str| at.attr(name).and_then(|a| a.as_array()).unwrap_or_default();
        let access = |(v, map): (Value, &Attr)| {
            Some((v, Access::new(&p.src.ty(v).shape(), map.as_shape()?).normalized(&ranges, &iters)))
        };
        let inputs: Vec<_> = at.operands().zip(maps("maps")).map(access).collect::<Option<_>>().ok_or_else(bad)?;
        let outputs: Vec<_> = at.results().zip(maps("out_maps")).map(access).collect::<Option<_>>().ok_or_else(bad)?;
        let of = gradients_of(at);
        if inputs.len() != at.operands().len() || outputs.len() != of.len() {
            return Err(bad());
        }
        // A tile's dimension of one element, of which the map says nothing.
        let whole = |(&name, (_, mut access)): (&&str, (Value, Access))| {
            for iter in [if name == "q" { M } else { N }, column_of(name)].map(|i| iters[i]) {
                if !access.mentions(iter.name) && iter.extent == Dim::Static(1) {
                    access.shape.push(Dim::Static(1));
                    access.exprs.push(Dim::symbol(iter.name));
                }
            }
            access
        };
        Ok(AttentionBackward {
            op,
            schedule,
            iters,
            outputs: of.iter().zip(outputs).map(whole).collect(),
            of,
            inputs,
            scale: at.attr("scale").and_then(|a| a.as_float()).ok_or_else(bad)?,
            causal: at.bool("causal"),
            acc: default_acc(p.src.ty(at.operand(0)).elem()),
        })
    }

    pub(super) fn name(&self, i: usize) -> Name {
        self.iters[i].name
    }
    pub(super) fn with(&self, scope: &Scope, i: usize, base: Value, axis: usize, size: i64) -> Scope {
        scope.with(self.name(i), bind(&self.iters[i], base, Some(axis), size))
    }
    /// Operand `which` over what the scope tiles.
    pub(super) fn load(&self, p: &mut Program, which: usize, scope: &Scope) -> Result<Value> {
        let (value, access) = &self.inputs[which];
        p.load(*value, access, scope)
    }
    /// The type in which probabilities and the scores' gradients are multiplied.
    pub(super) fn factor_type(&self, p: &Program) -> Type {
        p.src.ty(self.inputs[Q].0).elem()
    }

    /// The iterators of the program's rows and of what it walks over.
    pub fn axes(&self) -> [usize; 2] {
        if self.of_queries() { [M, N] } else { [N, M] }
    }
    /// Whether it has all gradients, of a whole head.
    pub fn of_head(&self) -> bool {
        self.of.len() == 3
    }
    fn of_queries(&self) -> bool {
        self.of[0] == "q"
    }
    /// Rows of the program, and how many of the others are handled at once.
    pub(super) fn tile(&self) -> [i64; 2] {
        self.axes().map(|i| self.schedule.tile_of(self.name(i)))
    }
    /// Columns of q and k, and of v and grad, padded.
    pub(super) fn width(&self, p: &Program, i: usize) -> Result<i64> {
        let unknown = || Diagnostic::unsupported(p.loc, "attention with a symbolic or empty head size");
        let size = self.iters[i].extent.as_static().filter(|&n| n > 0).ok_or_else(unknown)?;
        let tile = self.schedule.tile_of(self.name(i));
        if tile < size {
            let message = format!("a schedule with tiles of {tile} of the {size} elements of {}", self.name(i));
            return Err(Diagnostic::unsupported(p.loc, message));
        }
        Ok(tile)
    }

    /// Computes the gradients of the rows of the scope and stores them.
    pub fn run(&self, p: &mut Program, scope: &Scope) -> Result {
        let [rows, step] = self.tile();
        let own = self.own(p, scope)?;
        let mut start = Vec::new();
        for &name in &self.of {
            let width = self.width(p, column_of(name))?;
            start.push(p.zeros([rows, width], self.acc));
        }
        let [from, to] = self.bounds(p, scope, rows);
        let bounds = [from, to, p.constant_index(step)];
        let ends = p.for_loop(bounds, &start, |p, at, sums| self.step(p, scope, &own, at, sums))?;
        if let Some(stages) = self.schedule.stages() {
            let made = p.out.defining_op(ends[0]).expect("a loop's result");
            p.out.set_attr(made, "stages", Attr::i64(stages));
        }
        for (i, (&name, &end)) in self.of.iter().zip(&ends).enumerate() {
            let (zero, column) = (p.constant_index(0), column_of(name));
            let width = self.width(p, column)?;
            let scope = self.with(scope, column, zero, 1, width);
            self.store(p, i, end, &scope)?;
        }
        Ok(())
    }
    /// Stores sums of the gradient `of[i]`, scaled.
    pub(super) fn store(&self, p: &mut Program, i: usize, sums: Value, scope: &Scope) -> Result {
        let tile = match self.of[i] {
            "v" => sums,
            _ => {
                let scale = self.constant(p, self.scale);
                p.binary(op::core::MUL, sums, scale)
            }
        };
        let value = p.src.result(self.op, i);
        p.store(tile, value, &self.outputs[i], scope)
    }
    /// The scope without an iterator.
    pub(super) fn without(&self, scope: &Scope, i: usize) -> Scope {
        let binds = scope.binds.iter().filter(|b| b.0 != self.name(i)).copied().collect();
        Scope { binds, ..Scope::default() }
    }

    /// Where a loop over the others of `rows` rows starts and ends: where keys and queries meet.
    pub(super) fn bounds(&self, p: &mut Program, scope: &Scope, rows: i64) -> [Value; 2] {
        let [row, other] = self.axes();
        let step = self.tile()[1];
        let first = scope.get(self.name(row)).expect("the grid has the rows").base;
        let zero = p.constant_index(0);
        if self.of_queries() {
            let mut end = p.size(self.iters[N].extent);
            if self.causal {
                let rows = p.constant_index(rows);
                let last = p.add_index(first, rows);
                end = p.binary(op::core::MIN, last, end);
            }
            return [zero, end];
        }
        let end = p.size(self.iters[other].extent);
        if !self.causal {
            return [zero, end];
        }
        // The first block with a query that sees the first key.
        if rows % step == 0 {
            return [first, end];
        }
        let step = p.constant_index(step);
        let past = p.binary(op::core::REM, first, step);
        [p.binary(op::core::SUB, first, past), end]
    }

    fn own(&self, p: &mut Program, scope: &Scope) -> Result<Own> {
        let row = self.axes()[0];
        let [first, second] = if self.of_queries() { [Q, GRAD] } else { [K, V] };
        let scores = self.operand(p, first, scope, D, row, false)?;
        let weights = match self.of == ["v"] {
            true => None,
            false => Some(self.operand(p, second, scope, E, row, false)?),
        };
        let rows = match self.of_queries() {
            true => Some(self.rows(p, scope)?),
            false => None,
        };
        Ok(Own { scores, weights, rows })
    }

    /// One block of the others: adds its share to the gradients' sums.
    fn step(&self, p: &mut Program, scope: &Scope, own: &Own, at: Value, sums: &[Value]) -> Result<Vec<Value>> {
        let (f, [rows, step]) = (self, self.tile());
        let [row, other] = self.axes();
        let both = f.with(scope, other, at, 1, step);
        let without = f.without(scope, row);
        let there = f.with(&without, other, at, 0, step);
        let [first, second] = if self.of_queries() { [K, V] } else { [Q, GRAD] };
        let right = [self.operand(p, first, &there, D, other, true)?, self.operand(p, second, &there, E, other, true)?];
        let queries = f.with(&without, other, at, 1, step);
        // What is said of each query is on its way while the products are.
        let of_rows = match own.rows {
            Some(_) => None,
            None => Some([self.load(p, SUMS, &queries)?, self.load(p, DELTA, &queries)?]),
        };
        let zeros = p.zeros([rows, step], f.acc);
        let scores = dot(p, [own.scores, right[0], zeros], false, true, f.schedule.unit());
        // Started before the scores are used, so that the two products follow one another.
        let gradient = own.weights.map(|left| dot(p, [left, right[1], zeros], false, true, f.schedule.unit()));
        let [exponents, delta] = match (own.rows, of_rows) {
            (_, Some([sums, delta])) => [self.exponents(p, sums, &queries)?, self.delta(p, delta, &queries)],
            (rows, None) => rows.expect("queries' own rows, or those of the step"),
        };
        let weights = self.probabilities(p, scores, exponents, &both, Some(at))?;
        let mut next = sums.to_vec();
        if let Some(i) = self.of.iter().position(|&n| n == "v") {
            let factor = p.convert(weights, f.factor_type(p));
            next[i] = dot(p, [factor, right[1], sums[i]], false, false, f.schedule.unit());
        }
        if let (Some(i), Some(gradient)) = (self.of.iter().position(|&n| n != "v"), gradient) {
            let apart = p.binary(op::core::SUB, gradient, delta);
            let gradient = p.binary(op::core::MUL, weights, apart);
            let factor = p.convert(gradient, f.factor_type(p));
            next[i] = dot(p, [factor, right[0], sums[i]], false, false, f.schedule.unit());
        }
        Ok(next)
    }

    /// The logarithms of sums as exponents of two, plus infinity for a query that sees nothing or is none: its probabilities are 0. So it is where
    /// the lowest number hides all keys: next to it the sum of their exponentials is lost.
    fn exponents(&self, p: &mut Program, sums: Value, scope: &Scope) -> Result<Value> {
        let (low, high) = (self.constant(p, f64::NEG_INFINITY), self.constant(p, f64::INFINITY));
        let log = self.constant(p, LOG2_E);
        let exponents = p.binary(op::core::MUL, sums, log);
        let mut seen = p.compare("ne", exponents, low);
        if let Some(inside) = p.inside(scope, &|n| n == self.name(M)) {
            seen = p.binary(op::core::AND, seen, inside);
        }
        Ok(p.select(seen, exponents, high))
    }
    /// 0 past the last query.
    fn delta(&self, p: &mut Program, delta: Value, scope: &Scope) -> Value {
        self.zero_past(p, delta, DELTA, scope, &[M])
    }
    /// Exponents and delta of the queries of the scope.
    pub(super) fn rows(&self, p: &mut Program, scope: &Scope) -> Result<[Value; 2]> {
        let (sums, delta) = (self.load(p, SUMS, scope)?, self.load(p, DELTA, scope)?);
        Ok([self.exponents(p, sums, scope)?, self.delta(p, delta, scope)])
    }

    /// Probabilities from scores and the exponents of their sums, masked. `at`, the first of the others: what is hidden is hidden only in blocks
    /// where something is.
    pub(super) fn probabilities(
        &self,
        p: &mut Program,
        scores: Value,
        exponents: Value,
        scope: &Scope,
        at: Option<Value>,
    ) -> Result<Value> {
        let (mut scores, has_bias) = (scores, self.has_bias(p));
        if self.inputs.len() > MASK {
            let mask = self.load(p, MASK, scope)?;
            scores = if has_bias {
                let (scale, log) = (self.constant(p, self.scale * LOG2_E), self.constant(p, LOG2_E));
                let bias = p.convert(mask, self.acc);
                let scores = p.binary(op::core::MUL, scores, scale);
                p.fma(bias, log, scores)
            } else {
                let low = self.constant(p, f64::NEG_INFINITY);
                p.select(mask, scores, low)
            };
        }
        let scores = match at.map(|at| self.some_hidden(p, scope, at)) {
            None => self.visible(p, scores, scope)?,
            Some(None) => scores,
            Some(Some(hides)) => p.if_else(hides, |p| self.visible(p, scores, scope), |_| Ok(scores))?,
        };
        let shift = p.unary(op::core::NEG, exponents);
        let centred = if has_bias {
            p.binary(op::core::ADD, scores, shift)
        } else {
            let factor = self.constant(p, self.scale * LOG2_E);
            p.fma(scores, factor, shift)
        };
        Ok(p.power_of_2(centred))
    }
    /// Whether there is a mask that is added, not one of booleans.
    fn has_bias(&self, p: &Program) -> bool {
        self.inputs.get(MASK).is_some_and(|mask| p.src.ty(mask.0).elem() != Type::i1())
    }
    /// Whether in this block some key is not visible to some query: the diagonal; the end of the keys, where these are summed over.
    fn some_hidden(&self, p: &mut Program, scope: &Scope, at: Value) -> Option<Value> {
        let (f, [rows, step]) = (self, self.tile());
        let first = scope.get(f.name(self.axes()[0])).expect("the grid has the rows").base;
        let mut parts = Vec::new();
        if self.of_queries() && !divides(step, f.iters[N].extent) {
            let (step, extent) = (p.constant_index(step), p.size(f.iters[N].extent));
            let end = p.add_index(at, step);
            parts.push(p.compare("gt", end, extent));
        }
        if f.causal {
            let (key, query, keys) = if self.of_queries() { (at, first, step) } else { (first, at, rows) };
            let last = p.constant_index(keys - 1);
            let last = p.add_index(key, last);
            parts.push(p.compare("gt", last, query));
        }
        parts.into_iter().reduce(|a, b| p.binary(op::core::OR, a, b))
    }
    fn visible(&self, p: &mut Program, scores: Value, scope: &Scope) -> Result<Value> {
        let f = self;
        let mut visible = if self.of_queries() { p.inside(scope, &|n| n == f.name(N)) } else { None };
        if f.causal {
            let (n, m) = (Dim::symbol(f.name(N)), Dim::symbol(f.name(M)));
            let (key, query) = (p.index(n, scope, Tiled::All)?, p.index(m, scope, Tiled::All)?);
            let before = p.compare("le", key, query);
            visible = Some(visible.map_or(before, |v| p.binary(op::core::AND, v, before)));
        }
        let low = self.constant(p, f64::NEG_INFINITY);
        Ok(visible.map_or(scores, |v| p.select(v, scores, low)))
    }

    /// Operand `which` with `rows` along the first dimension and all of `columns` along the second: zero past the columns, and past the
    /// rows where these are summed over.
    fn operand(
        &self,
        p: &mut Program,
        which: usize,
        scope: &Scope,
        columns: usize,
        rows: usize,
        summed: bool,
    ) -> Result<Value> {
        let (width, zero) = (self.width(p, columns)?, p.constant_index(0));
        let scope = self.with(scope, columns, zero, 1, width);
        let tile = self.load(p, which, &scope)?;
        let past = [columns, rows];
        let tile = self.zero_past(p, tile, which, &scope, if summed { &past } else { &past[..1] });
        let size = scope.get(self.name(rows)).expect("rows are bound").size;
        Ok(p.broadcast(tile, [size, width]))
    }
    /// A tile of operand `which`, zero past the extents of these iterators.
    pub(super) fn zero_past(&self, p: &mut Program, tile: Value, which: usize, scope: &Scope, of: &[usize]) -> Value {
        let access = &self.inputs[which].1;
        let open = |name| of.iter().any(|&i| self.name(i) == name && !access.clips(&self.iters[i]));
        let Some(mask) = p.inside(scope, &open) else { return tile };
        let zero = p.zeros([1; 2], p.ty(tile).elem());
        p.select(mask, tile, zero)
    }
    fn constant(&self, p: &mut Program, value: f64) -> Value {
        p.splat([1; 2], Attr::float(value, self.acc))
    }
}

/// The iterator along the columns of a gradient.
pub(super) fn column_of(name: &str) -> usize {
    if name == "v" { E } else { D }
}
