//! Integers and booleans that follow from the place of an element alone: counters, and what is computed from them.

use crate::fuse::reads::{Space, sources};
use rc_dialects::core::reindex::Reindex;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Dim, OpRef, Value};
use std::cell::Cell;

/// At most so many operations are looked at.
const BUDGET: usize = 4096;

/// Elements of tensors as expressions of a space's iterators.
pub struct Places<'a> {
    body: &'a Body,
    space: &'a Space,
    left: Cell<usize>,
}

impl<'a> Places<'a> {
    pub fn new(body: &'a Body, space: &'a Space) -> Places<'a> {
        Places { body, space, left: Cell::new(BUDGET) }
    }

    /// The element of an integer tensor at `map`.
    pub fn integer(&self, value: Value, map: &[Dim]) -> Option<Dim> {
        self.look()?;
        if let Some(n) = self.constant(value) {
            return (n.fract() == 0.0 && n.abs() < 1e15).then_some(Dim::Static(n as i64));
        }
        if !self.body.ty(value).elem().is_int() {
            return None;
        }
        let op = self.body.op_ref(self.body.defining_op(value)?);
        let at = |i: usize| self.integer(op.operand(i), map);
        let found = match op.name().as_str() {
            op::core::IOTA => map.get(usize::try_from(op.int("dim")?).ok()?).copied(),
            op::core::ADD => Some(at(0)? + at(1)?),
            op::core::SUB => Some(at(0)? - at(1)?),
            op::core::MUL => Some(at(0)? * at(1)?),
            op::core::SELECT => at(if self.truth(op.operand(0), map)? { 1 } else { 2 }),
            op::core::CONVERT if self.body.ty(op.operand(0)).elem() == rc_ir::Type::i1() => {
                Some(Dim::Static(self.truth(op.operand(0), map)?.into()))
            }
            op::core::CONVERT => at(0),
            op::core::GATHER => self.gathered(op, map),
            op::core::CONCAT => self.joined(op, map),
            op::core::SCAN => self.summed(op),
            _ => {
                let (from, map) = self.moved(value, map)?;
                self.integer(from, &map)
            }
        };
        // Beyond its type's range a number wraps around, which an expression does not.
        let bits = self.body.ty(value).elem().bit_width()?.min(64);
        let range = self.space.ranges.interval(found?)?;
        let most = i64::MAX >> (64 - bits);
        let least = if self.body.ty(value).elem().is_unsigned() { -1 } else { -most };
        (range.0 > least && range.1 < most).then_some(found?)
    }
    /// A boolean that is the same at all places of the space.
    pub fn truth(&self, value: Value, map: &[Dim]) -> Option<bool> {
        self.look()?;
        if let Some(n) = self.constant(value) {
            return Some(n != 0.0);
        }
        let op = self.body.op_ref(self.body.defining_op(value)?);
        match op.name().as_str() {
            op::core::COMPARE => {
                let excess = self.integer(op.operand(0), map)? - self.integer(op.operand(1), map)?;
                let (low, high) = (self.least(excess)?, -self.least(Dim::Static(0) - excess)?);
                let (same, other) = ((low, high) == (0, 0), low > 0 || high < 0);
                let known = |holds: bool, fails: bool| (holds || fails).then_some(holds);
                match op.str("kind")? {
                    "eq" => known(same, other),
                    "ne" => known(other, same),
                    "le" => known(high <= 0, low > 0),
                    "lt" => known(high < 0, low >= 0),
                    "ge" => known(low >= 0, high < 0),
                    "gt" => known(low > 0, high <= 0),
                    _ => None,
                }
            }
            op::core::NOT => Some(!self.truth(op.operand(0), map)?),
            _ => {
                let (from, map) = self.moved(value, map)?;
                self.truth(from, &map)
            }
        }
    }
    /// Through an operation that only moves elements.
    pub fn moved(&self, value: Value, map: &[Dim]) -> Option<(Value, Vec<Dim>)> {
        let op = self.body.op_ref(self.body.defining_op(value)?);
        op.def()?.interface::<Reindex>()?;
        let (operand, at) = sources(op, map, &self.space.ranges)?.into_iter().next()?;
        Some((operand, self.simplified(at?)))
    }

    /// What all elements are, if that is one constant.
    pub fn constant(&self, mut value: Value) -> Option<f64> {
        loop {
            if let Some(constant) = constant_of(self.body, value) {
                return constant.as_splat();
            }
            let op = self.body.op_ref(self.body.defining_op(value)?);
            op.def()?.interface::<Reindex>()?;
            value = op.operand(0);
        }
    }
    /// Counts what is looked at; `None` when that is too much.
    fn look(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }
    fn least(&self, d: Dim) -> Option<i64> {
        self.space.ranges.least(d)
    }
    fn simplified(&self, map: Vec<Dim>) -> Vec<Dim> {
        map.into_iter().map(|d| self.space.ranges.simplify(d)).collect()
    }
    /// From a table without batches, at a place that follows from that of the result.
    fn gathered(&self, op: OpRef, map: &[Dim]) -> Option<Dim> {
        let axis = usize::try_from(op.int("axis")?).ok()?;
        let (_, indices) = sources(op, map, &self.space.ranges)?.into_iter().nth(1)?;
        let own = self.body.ty(op.operand(1)).rank();
        if op.int("batch").unwrap_or(0) != 0 {
            return None;
        }
        let index = self.integer(op.operand(1), &indices?)?;
        let at = [&map[..axis], &[index], &map[axis + own..]].concat();
        self.integer(op.operand(0), &self.simplified(at))
    }
    /// The part of a concatenation at hand; where it may be either of two of which the first is a single element, this element must continue the other ones.
    fn joined(&self, op: OpRef, map: &[Dim]) -> Option<Dim> {
        let dim = usize::try_from(op.int("dim")?).ok()?;
        let parts = sources(op, map, &self.space.ranges)?;
        let at_least = |d: Dim, n: i64| self.least(d).is_some_and(|low| low >= n);
        for (i, (part, at)) in parts.iter().enumerate() {
            let at = at.as_ref()?;
            let size = self.body.ty(*part).shape()[dim];
            if (i == 0 || at_least(at[dim], 0)) && (i + 1 == parts.len() || at_least(size - at[dim], 1)) {
                return self.integer(*part, &self.simplified(at.clone()));
            }
        }
        let [(first, head), (rest, tail)] = parts.as_slice() else { return None };
        let single = self.body.ty(*first).shape()[dim] == Dim::Static(1);
        let place = map[dim].as_symbol().filter(|_| single)?;
        let (head, tail) = (self.integer(*first, head.as_ref()?)?, self.integer(*rest, tail.as_ref()?)?);
        let start = |d: Dim| d.substitute(&|name| (name == place).then_some(Dim::Static(0)));
        (start(head) == start(tail)).then_some(tail)
    }
    /// Sums of nothing but zeros.
    fn summed(&self, op: OpRef) -> Option<Dim> {
        let space = Space::new(&self.body.ty(op.operand(0)).shape(), &self.space.ranges);
        let whole = Places { body: self.body, space: &space, left: Cell::new(self.left.get()) };
        let element = whole.integer(op.operand(0), &space.identity());
        self.left.set(whole.left.get());
        (op.str("kind") == Some("add") && element == Some(Dim::Static(0))).then_some(Dim::Static(0))
    }
}
