//! Attention in the online form: a block of queries of one head, a loop over blocks of keys. On a GPU all of it is tiles;
//! `attention_cpu` has the CPU's form.

use super::contract::dot;
use super::program::Program;
use super::run::{bind, divides};
use super::scope::{Scope, Tiled};
use crate::lower_tiles::Layout;
use crate::schedule::access::{Access, Iter};
use crate::schedule::{AttentionAccesses, Schedule, attention_accesses, attention_iters};
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Name, Op, Result, Type, Value};

pub struct Attention<'s> {
    pub op: Op,
    pub schedule: &'s Schedule,
    /// b, h, m, n, d, e.
    pub iters: [Iter; 6],
    /// q, k, v and perhaps a bias.
    pub(super) inputs: Vec<(Value, Access)>,
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
        let AttentionAccesses { inputs, outputs } = attention_accesses(p.src, op, &p.ranges, &iters).ok_or_else(bad)?;
        let mut outputs = at.results().zip(outputs);
        let (_, output) = outputs.next().ok_or_else(bad)?;
        let sums = outputs.next().filter(|(value, _)| p.memory.contains_key(value));
        let elem = p.src.ty(at.operand(0)).elem();
        Ok(Attention {
            op,
            schedule,
            iters,
            inputs: at.operands().zip(inputs).collect(),
            output,
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
    /// The width of keys (`D`) or of values (`E`) in tiles: all, padded.
    pub(super) fn padded(&self, p: &Program, i: usize) -> Result<i64> {
        let (size, tile) = (self.head_size(p, i)?, self.schedule.tile_of(self.name(i)));
        if tile >= size {
            return Ok(tile);
        }
        let name = self.name(i);
        Err(p.src.op_ref(self.op).error(format!("has a schedule whose tile of {name} is {tile}, less than {size}")))
    }
    pub(super) fn sums(&self) -> Option<(Value, &Access)> {
        self.sums.as_ref().map(|(value, access)| (*value, access))
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

    /// What scores are multiplied by before they become exponents of two.
    fn factor(&self, p: &Program) -> f64 {
        if self.scaled_early(p) { Self::LOG2_E } else { self.scale * Self::LOG2_E }
    }
    /// Whether scores are scaled before their maximum is taken: a bias is added to them, or a factor would turn their order.
    fn scaled_early(&self, p: &Program) -> bool {
        self.scale <= 0.0 || self.has_bias(p)
    }
    fn has_bias(&self, p: &Program) -> bool {
        self.inputs.get(3).is_some_and(|m| p.src.ty(m.0).elem() != Type::i1())
    }

    /// The result for the queries of the scope, with the scope in which it is to be stored.
    pub fn run(&self, p: &mut Program, scope: &Scope) -> Result<(Value, Scope)> {
        let first = scope.get(self.name(M)).expect("the grid has the queries").base;
        let bounds = [p.constant_index(0), self.last_key(p, scope, first, self.rows())?];
        let [best, sum, total] = self.walk(p, scope, bounds)?;
        if let Some((target, access)) = self.sums() {
            let logs = self.logs(p, best, sum);
            p.store(logs, target, access, scope)?;
        }
        let out = self.quotient(p, total, sum);
        Ok((out, self.across(p, scope)?))
    }
    /// The scope with the result's columns.
    pub(super) fn across(&self, p: &mut Program, scope: &Scope) -> Result<Scope> {
        let (zero, width) = (p.constant_index(0), self.padded(p, E)?);
        Ok(self.with(scope, E, zero, Some(1), width))
    }

    /// Maxima, sums of weights and weighted sums over a range of keys.
    pub(super) fn walk(&self, p: &mut Program, scope: &Scope, keys: [Value; 2]) -> Result<[Value; 3]> {
        let (rows, width) = (self.rows(), self.padded(p, E)?);
        let low = p.splat([rows, 1], Attr::float(f64::NEG_INFINITY, self.acc));
        let start = vec![low, p.zeros([rows, 1], self.acc), p.zeros([rows, width], self.acc)];
        let query = self.query(p, scope)?;
        let bounds = [keys[0], keys[1], p.constant_index(self.keys())];
        let ends = p.for_loop(bounds, &start, |p, at, state| {
            // What a mask says is on its way while the scores are computed.
            let mask = self.load_mask(p, scope, at)?;
            let scores = self.scores(p, query, scope, at)?;
            let scores = self.masked(p, scores, mask);
            let scores = self.hide_where_needed(p, scores, scope, at)?;
            let (best, sum, decay, weights) = self.weights(p, scores, state[0], state[1]);
            let total = p.binary(op::core::MUL, state[2], decay);
            Ok::<_, Box<Diagnostic>>(vec![best, sum, self.values(p, weights, scope, at, total)?])
        })?;
        if let Some(stages) = self.schedule.stages() {
            let made = p.out.defining_op(ends[0]).expect("a loop's result");
            p.out.set_attr(made, "stages", Attr::i64(stages));
        }
        Ok([ends[0], ends[1], ends[2]])
    }

    /// The logarithms of the sums.
    pub(super) fn logs(&self, p: &mut Program, best: Value, sum: Value) -> Value {
        let factor = self.factor(p) / Self::LOG2_E;
        let factor = self.constant(p, factor);
        let log = p.unary(op::core::LOG, sum);
        p.fma(best, factor, log)
    }

    /// Where the keys end that `rows` queries from `first` on can see.
    pub(super) fn last_key(&self, p: &mut Program, scope: &Scope, first: Value, rows: i64) -> Result<Value> {
        let mut end = p.size(self.iters[N].extent);
        if let Some((counts, access)) = self.inputs.get(4) {
            let memory = p.memory_of(*counts)?;
            let shown = p.read_index(memory, access, scope)?;
            let zero = p.constant_index(0);
            let shown = p.binary(op::core::MAX, shown, zero);
            end = p.binary(op::core::MIN, shown, end);
        }
        if !self.causal {
            return Ok(end);
        }
        let rows = p.constant_index(rows);
        let last = p.add_index(first, rows);
        Ok(p.binary(op::core::MIN, last, end))
    }
    /// Whether it is told how many keys there are to see.
    pub(super) fn counts_keys(&self) -> bool {
        self.inputs.len() > 4
    }
    /// The weighted sum over the sum of weights; a query that sees no key has sum 0 and gives 0.
    pub(super) fn quotient(&self, p: &mut Program, total: Value, sum: Value) -> Value {
        let nothing = self.constant(p, 0.0);
        let none = p.compare("eq", sum, nothing);
        let quotient = p.binary(op::core::DIV, total, sum);
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
        Ok(dot(p, [query, key, start], false, true, self.schedule.unit()))
    }
    /// Scaled if [`Attention::scaled_early`], masked, and minus infinity where a key is not visible.
    pub(super) fn mask(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        let mask = self.load_mask(p, scope, at)?;
        let scores = self.masked(p, scores, mask);
        self.hide(p, scores, scope, at)
    }
    fn load_mask(&self, p: &mut Program, scope: &Scope, at: Value) -> Result<Option<Value>> {
        let Some((value, access)) = self.inputs.get(3) else { return Ok(None) };
        let scope = self.with(scope, N, at, Some(1), self.keys());
        let tile = p.load(*value, access, &scope)?;
        if let (true, Some(stages)) = (self.schedule.stages_bias(), self.schedule.stages()) {
            let ty = p.ty(tile);
            let layout = Layout::Shared { stages: stages.max(1) }.to_attr();
            p.out.set_ty(tile, Type::tile(&ty.static_shape().unwrap_or_default(), ty.elem(), Some(layout)));
        }
        Ok(Some(tile))
    }
    /// Scaled if [`Attention::scaled_early`]; a bias added, or minus infinity where a mask hides.
    fn masked(&self, p: &mut Program, scores: Value, mask: Option<Value>) -> Value {
        let scaled = |p: &mut Program| match self.scaled_early(p) {
            true => {
                let scale = self.constant(p, self.scale);
                p.binary(op::core::MUL, scores, scale)
            }
            false => scores,
        };
        match mask {
            None => scaled(p),
            Some(mask) if p.ty(mask).elem() == Type::i1() => {
                let (scores, low) = (scaled(p), self.constant(p, f64::NEG_INFINITY));
                p.select(mask, scores, low)
            }
            Some(mut bias) => {
                let ty = p.ty(bias);
                if Layout::of(ty).is_some() {
                    let own = Type::tile(&ty.static_shape().unwrap_or_default(), ty.elem(), None);
                    bias = p.build().op(op::kernel::CONVERT_LAYOUT).operand(bias).result(own).value();
                }
                let (bias, scale) = (p.convert(bias, self.acc), self.constant(p, self.scale));
                p.fma(scores, scale, bias)
            }
        }
    }
    /// Minus infinity past the last key, and where the query comes before the key.
    fn hide(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        let scope = self.with(scope, N, at, Some(1), self.keys());
        let mut visible = p.inside(&scope, &|n| n == self.name(N));
        if self.causal {
            let (n, m) = (Dim::symbol(self.name(N)), Dim::symbol(self.name(M)));
            let (key, query) = (p.index(n, &scope, Tiled::All)?, p.index(m, &scope, Tiled::All)?);
            let before = p.compare("le", key, query);
            visible = Some(visible.map_or(before, |v| p.binary(op::core::AND, v, before)));
        }
        let low = self.constant(p, f64::NEG_INFINITY);
        Ok(visible.map_or(scores, |v| p.select(v, scores, low)))
    }

    /// [`Attention::hide`] for a block in which some key is not visible to some query: the diagonal, the end of the keys.
    fn hide_where_needed(&self, p: &mut Program, scores: Value, scope: &Scope, at: Value) -> Result<Value> {
        let first = scope.get(self.name(M)).expect("the grid has the queries").base;
        let (extent, keys) = (self.iters[N].extent, self.keys());
        if !self.causal && divides(keys, extent) {
            return Ok(scores);
        }
        let mut seen = p.size(extent);
        if self.causal {
            let one = p.constant_index(1);
            let own = p.add_index(first, one);
            seen = p.binary(op::core::MIN, seen, own);
        }
        let keys = p.constant_index(keys);
        let end = p.add_index(at, keys);
        let hides = p.compare("gt", end, seen);
        p.if_else(hides, |p| self.hide(p, scores, scope, at), |_| Ok(scores))
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
        let next = p.binary(op::core::MAX, best, here);
        // While nothing is visible the maximum is minus infinity; subtracting 0 then leaves exp(-inf) = 0.
        let unseen = p.compare("eq", next, low);
        let shift = p.select(unseen, nothing, next);
        let [centred, moved] = self.centred(p, [scores, best], shift);
        let (weights, decay) = (p.power_of_2(centred), p.power_of_2(moved));
        let added = p.reduce(weights, &[1], "add");
        let kept = p.binary(op::core::MUL, sum, decay);
        let sum = p.binary(op::core::ADD, kept, added);
        (next, sum, decay, p.convert(weights, self.value_type(p)))
    }
    /// Scores less the maximum, as exponents of two. A bias may be the lowest number there is, whose multiple is infinite: it is subtracted first.
    fn centred(&self, p: &mut Program, scores: [Value; 2], shift: Value) -> [Value; 2] {
        let factor = self.factor(p);
        let factor = self.constant(p, factor);
        if self.has_bias(p) {
            return scores.map(|score| {
                let apart = p.binary(op::core::SUB, score, shift);
                p.binary(op::core::MUL, apart, factor)
            });
        }
        let shift = p.binary(op::core::MUL, shift, factor);
        let shift = p.unary(op::core::NEG, shift);
        scores.map(|score| p.fma(score, factor, shift))
    }
    fn values(&self, p: &mut Program, weights: Value, scope: &Scope, at: Value, total: Value) -> Result<Value> {
        let (width, zero) = (self.padded(p, E)?, p.constant_index(0));
        let scope = self.with(&self.without_rows(scope), N, at, Some(0), self.keys());
        let scope = self.with(&scope, E, zero, Some(1), width);
        let value = self.load(p, 2, &scope, [self.keys(), width], N)?;
        Ok(dot(p, [weights, value, total], false, false, self.schedule.unit()))
    }
}
