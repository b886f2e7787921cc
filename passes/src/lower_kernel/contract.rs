//! Matrix products: a tile of results in registers, a loop over the sums, the epilogue on the tile.

use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::access::Iter;
use crate::schedule::nest::Nest;
use crate::schedule::roles::Roles;
use crate::schedule::{Operand, Schedule, has_exact_sums, multiplied};
use rc_dialects::constraints::default_acc;
use rc_dialects::kernel::{UNIT_TILE, word_width};
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Attr, Name, OpRef, Result, Traits, Type, Value};
use rc_machine::Unit;

/// What the parts of a product need to know.
pub struct Product<'n> {
    pub nest: &'n Nest,
    pub schedule: &'n Schedule,
    pub roles: Roles,
    pub acc: Type,
    /// Where the unit multiplies words of several factors.
    pub words: Option<Words>,
    /// Whether a GPU's unit rounds factors of f32 to TF32.
    rounds: bool,
}

/// Words of `width` neighbours along k, of the type `of`, and what multiplies them.
#[derive(Clone, Copy)]
pub struct Words {
    pub of: Type,
    pub width: i64,
    pub unit: Unit,
}

impl Words {
    /// Of a schedule's unit, if that multiplies words; an error where it does not multiply these factors.
    fn of(p: &Program, op: OpRef, schedule: &Schedule, factors: [Type; 2], acc: Type) -> Result<Option<Words>> {
        let Some(unit) = schedule.unit().filter(|unit| unit.multiplies_words()) else { return Ok(None) };
        let [left, right] = factors;
        let matrix = p.target.instruction(unit, left, acc).filter(|_| left == right);
        let wrong =
            || op.unsupported(format!("with unit = {} for products of {left} and {right} in {acc}", unit.word()));
        let width = matrix.and_then(|_| word_width(left)).ok_or_else(|| wrong().help("choose unit = fma"))?;
        let packed = |which| schedule.packs(which);
        if schedule.block().is_empty() || !packed(Operand::Left) {
            let error = op.unsupported(format!("with unit = {} where operands are not packed", unit.word()));
            return Err(error.help("give the schedule blocks and pack = [left, right]"));
        }
        let results = schedule.axes.map(|axis| schedule.tile_of(axis));
        if unit == Unit::Amx && results.iter().any(|n| ![UNIT_TILE, 2 * UNIT_TILE].contains(n)) {
            let error = op.unsupported(format!("with unit = amx and tiles of {results:?} results"));
            return Err(error.help(format!("a tile has {UNIT_TILE} or {} rows and columns", 2 * UNIT_TILE)));
        }
        let depth = schedule.contract().and_then(|own| own.inner).and_then(|k| schedule.block_of(k));
        if unit == Unit::Amx && depth.is_some_and(|depth| depth % (UNIT_TILE * width) != 0) {
            let error =
                op.unsupported(format!("with unit = amx and blocks of {} elements of the sums", depth.unwrap_or(0)));
            return Err(error.help(format!("a tile has {} of them", UNIT_TILE * width)));
        }
        Ok(Some(Words { of: left, width, unit }))
    }
}

impl<'n> Product<'n> {
    /// # Errors
    /// If the nest is no product of two matrices, for which the schedule is wrong.
    pub fn new(p: &Program, nest: &'n Nest, schedule: &'n Schedule) -> Result<Product<'n>> {
        let op = p.src.op_ref(nest.op);
        let roles = Roles::of(p.src, nest).ok_or_else(|| {
            op.error("has a contract schedule and is no product of two matrices")
                .help("remove it, or run the schedule pass again")
        })?;
        let roles = Roles {
            m: schedule.axes[0],
            n: schedule.axes[1],
            k: schedule.contract().and_then(|own| own.inner).unwrap_or(roles.k),
            ..roles
        };
        let known = [roles.m, roles.n, roles.k].iter().all(|&n| nest.iter(n).is_some());
        if !known {
            return Err(op.error("has a contract schedule with iterators that it does not have in 'axes' or 'inner'"));
        }
        let yielded = p.src.last_op(op.entry(0).expect("verified")).expect("verified");
        let acc = nest.acc.unwrap_or_else(|| default_acc(p.src.ty(p.src.operand(yielded, 0))));
        let factors = [0, 1].map(|i| p.src.ty(p.src.operand(yielded, i)));
        let words = Words::of(p, op, schedule, factors, acc)?;
        let units = [Some(Unit::Mma), Some(Unit::Wgmma)].contains(&schedule.unit());
        let rounds = units && factors == [Type::f32(); 2];
        if rounds && multiplied(p.src, nest, factors) != Type::tf32() {
            let error = op.unsupported("with matrix units for products of f32 that may not be rounded");
            return Err(error.help("choose unit = fma, or say precision = tf32"));
        }
        Ok(Product { nest, schedule, roles, acc, words, rounds })
    }
    pub fn iter(&self, name: Name) -> &'n Iter {
        self.nest.iter(name).expect("checked when made")
    }
    /// The reduce iterators other than k, which are taken point by point.
    pub fn outer_sums(&self) -> impl Iterator<Item = Iter> {
        self.nest.of_kind(IterKind::Reduce).filter(|i| i.name != self.roles.k).copied()
    }
    /// Elements of m, n and k that are handled at once.
    pub fn tile(&self) -> [i64; 3] {
        [self.roles.m, self.roles.n, self.roles.k].map(|n| self.schedule.tile_of(n))
    }

    /// A factor as a tile whose dimensions run along `rows` and `columns` of the scope's iterators, zero past the sums' extent.
    fn factor(&self, p: &mut Program, which: usize, scope: &Scope, shape: [i64; 2]) -> Result<Value> {
        if let Some(along) = self.gathers_along(which) {
            let tile = self.gathered(p, which, along, scope)?;
            return Ok(p.broadcast(tile, shape));
        }
        let tile = p.region(self.nest, scope, &[which])?[0];
        let k = self.iter(self.roles.k);
        let bound = *scope.get(k.name).expect("the sums' iterator is bound");
        let tile = if bound.exact || self.is_zero_past(p, which, k) {
            tile
        } else {
            let mask = p.inside(scope, &|n| n == k.name).expect("not exact");
            let zero = p.zeros([1; 2], p.ty(tile).elem());
            p.select(mask, tile, zero)
        };
        Ok(p.broadcast(tile, shape))
    }
    /// The iterator along which a factor is gathered, where the schedule says that it is.
    pub fn gathers_along(&self, which: usize) -> Option<Name> {
        let left = which == self.roles.left;
        if !self.schedule.gathers(if left { Operand::Left } else { Operand::Right }) {
            return None;
        }
        let own = if left { self.roles.m } else { self.roles.n };
        Some(if self.roles.is_contiguous(self.nest, which, self.roles.k) { self.roles.k } else { own })
    }
    /// Whether a factor is an operand, at most converted, whose memory ends where the sums do: a load is zero past it.
    pub fn is_zero_past(&self, p: &Program, which: usize, k: &Iter) -> bool {
        let entry = p.src.op_ref(self.nest.op).entry(0).expect("verified");
        let mut value = p.src.operand(p.src.last_op(entry).expect("verified"), which);
        while let Some(op) = p.src.defining_op(value) {
            let converts = p.src.name(op) == op::core::CONVERT && !p.src.op_ref(op).has(Traits::CONSTANT);
            if !converts {
                return false;
            }
            value = p.src.operand(op, 0);
        }
        let arg = p.src.block_args(entry).position(|a| a == value);
        let from_memory = |i: usize| p.memory.contains_key(&p.src.operand(self.nest.op, i));
        arg.is_some_and(|i| self.nest.inputs[i].clips(k) && from_memory(i))
    }

    /// acc + the products at the scope, where k is bound to its first element.
    fn step(&self, p: &mut Program, scope: &Scope, k_first: Value, acc: Value) -> Result<Value> {
        let [bm, bn, bk] = self.tile();
        let Roles { m, n, k, left } = self.roles;
        let without =
            |name| Scope { binds: scope.binds.iter().filter(|b| b.0 != name).copied().collect(), ..Scope::default() };
        let rebind = |s: Scope, name, axis, size| {
            let bound = |base| bind(self.iter(name), base, Some(axis), size);
            let tile = || scope.get(name).expect("bound by the grid");
            s.with(name, if name == k { bound(k_first) } else { bound(tile().base).within(tile()) })
        };
        // A GPU reads operands as they lie in memory and turns them in shared memory.
        let turns = !p.target.is_cpu();
        let a_t =
            turns && self.roles.is_contiguous(self.nest, left, m) && !self.roles.is_contiguous(self.nest, left, k);
        let b_t = turns && self.roles.lies_along_k(self.nest, 1 - left);
        let (am, ak) = if a_t { (1, 0) } else { (0, 1) };
        let scope_a = rebind(rebind(without(n), m, am, bm), k, ak, bk);
        let a = self.factor(p, left, &scope_a, if a_t { [bk, bm] } else { [bm, bk] })?;
        let (bk_axis, bn_axis) = if b_t { (1, 0) } else { (0, 1) };
        let scope_b = rebind(rebind(without(m), n, bn_axis, bn), k, bk_axis, bk);
        let b = self.factor(p, 1 - left, &scope_b, if b_t { [bn, bk] } else { [bk, bn] })?;
        if !(self.rounds && has_exact_sums(p.src, self.nest)) {
            return Ok(self.dot(p, a, b, acc, a_t, b_t));
        }
        let zero = p.zeros([bm, bn], self.acc);
        let sums = self.dot(p, a, b, zero, a_t, b_t);
        Ok(p.binary(op::core::ADD, acc, sums))
    }

    /// `kernel.dot`; factors of different types are converted to the accumulator's first.
    pub fn dot(&self, p: &mut Program, a: Value, b: Value, acc: Value, a_t: bool, b_t: bool) -> Value {
        let same = p.ty(a).elem() == p.ty(b).elem();
        let (a, b) = if same { (a, b) } else { (p.convert(a, self.acc), p.convert(b, self.acc)) };
        let sums = dot(p, [a, b, acc], a_t, b_t, self.schedule.unit());
        let of = self.words.map(|words| words.of).or(self.rounds.then(Type::tf32)).map(Attr::ty);
        let parts = self.schedule.contract().and_then(|own| own.parts).map(Attr::i64);
        let op = p.out.defining_op(sums).expect("a product");
        for (name, value) in [("of", of), ("parts", parts)] {
            if let Some(value) = value {
                p.out.set_attr(op, name, value);
            }
        }
        sums
    }

    /// The sums over k, and over other reduce iterators, point by point, as a tile of results: the whole of them, or a part of one iterator.
    pub fn sums(&self, p: &mut Program, scope: &Scope, part: Option<(Name, [Value; 2])>) -> Result<Value> {
        let [bm, bn, _] = self.tile();
        let start = p.zeros([bm, bn], self.acc);
        let outer: Vec<Iter> = self.outer_sums().collect();
        self.outer(p, scope, &outer, start, part)
    }
    fn outer(
        &self,
        p: &mut Program,
        scope: &Scope,
        outer: &[Iter],
        acc: Value,
        part: Option<(Name, [Value; 2])>,
    ) -> Result<Value> {
        let Some((iter, rest)) = outer.split_first() else { return self.inner(p, scope, acc, part) };
        let [first, end] = range(p, iter, part);
        let bounds = [first, end, p.constant_index(1)];
        let ends = p.for_loop(bounds, &[acc], |p, at, acc| {
            let inner = scope.with(iter.name, bind(iter, at, None, 1));
            Ok::<_, Box<rc_ir::Diagnostic>>(vec![self.outer(p, &inner, rest, acc[0], part)?])
        })?;
        Ok(ends[0])
    }
    fn inner(&self, p: &mut Program, scope: &Scope, acc: Value, part: Option<(Name, [Value; 2])>) -> Result<Value> {
        let (k, bk) = (self.iter(self.roles.k), self.tile()[2]);
        let [first, end] = range(p, k, part);
        let bounds = [first, end, p.constant_index(bk)];
        let ends = p.for_loop(bounds, &[acc], |p, at, acc| self.step(p, scope, at, acc[0]).map(|v| vec![v]))?;
        let made = p.out.defining_op(ends[0]).expect("a loop's result");
        if let Some(stages) = self.schedule.stages() {
            p.out.set_attr(made, "stages", Attr::i64(stages));
        }
        Ok(ends[0])
    }
}

/// Where an iterator begins and ends, of which there may be a part.
fn range(p: &mut Program, iter: &Iter, part: Option<(Name, [Value; 2])>) -> [Value; 2] {
    match part.filter(|part| part.0 == iter.name) {
        Some((_, bounds)) => bounds,
        None => [p.constant_index(0), p.size(iter.extent)],
    }
}

/// `kernel.dot` of `[a, b, acc]`.
pub fn dot(p: &mut Program, operands: [Value; 3], a_t: bool, b_t: bool, unit: Option<Unit>) -> Value {
    let flag = |on: bool| on.then(|| Attr::bool(true));
    let mut b = p.build();
    let op = b.op(op::kernel::DOT).operand(operands[0]).operand(operands[1]).operand(operands[2]);
    op.maybe_attr("a_t", flag(a_t))
        .maybe_attr("b_t", flag(b_t))
        .maybe_attr("unit", unit.map(|unit| Attr::str(unit.word())))
        .value()
}
