//! Selections whose condition is the same for all of a tile, or of most, as where several tensors lie one after the other. On a CPU only the chosen side
//! is computed, in a branch, where the other's memory would be read as well; both are for a tile in which the condition changes.

use super::program::Program;
use super::region::Element;
use super::scope::{Scope, Tiled};
use crate::schedule::access::{has_index, mentions};
use crate::schedule::nest::Nest;
use rc_dialects::loop_;
use rc_dialects::op;
use rc_ir::{Dim, Op, OpRef, Result, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// The values of a region that are computed so far.
type Known = FxHashMap<Value, Element>;

impl Program<'_> {
    /// Whether a region has such selections, of what is read from memory.
    pub(super) fn has_branches(&self, nest: &Nest, scope: &Scope) -> bool {
        let entry = self.src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        let branches = |op: Op| self.is_branch(nest, scope, self.src.op_ref(op));
        self.target.is_cpu() && nest.is_pointwise() && self.src.ops(entry).any(branches)
    }

    /// One that compares places along a tile chooses between memory and memory: a row and its padding are read by masks.
    fn is_branch(&self, nest: &Nest, scope: &Scope, op: OpRef) -> bool {
        if self.no_branches || !op.is(op::core::SELECT) {
            return false;
        }
        let sides = || op.operands().skip(1).filter(|&side| self.reads_memory(nest, side)).count();
        self.condition(nest, scope, op.operand(0)).is_some_and(|c| sides() > usize::from(c.moving.is_some()))
    }

    /// What a selection asks for, where it compares places of which one differs within a tile at most, along one dimension.
    fn condition(&self, nest: &Nest, scope: &Scope, condition: Value) -> Option<Condition> {
        let compare = self.src.op_ref(self.src.defining_op(condition)?);
        if !compare.is(op::core::COMPARE) {
            return None;
        }
        let kind = compare.str("kind")?;
        let place = |i: usize| {
            let op = self.src.op_ref(self.src.defining_op(compare.operand(i))?);
            let expr = op.attr("expr").filter(|_| op.name() == &loop_::INDEX)?.as_shape()?[0];
            Some(nest.resolve(expr)).filter(|&expr| !has_index(expr))
        };
        let places = [place(0)?, place(1)?];
        let along = |i: usize| scope.tiled().into_iter().filter(move |&name| mentions(places[i], name));
        let mut moving = (0..2).flat_map(|i| along(i).map(move |name| (i, name)));
        let Some((side, name)) = moving.next() else {
            return Some(Condition { kind: kind.into(), places, moving: None });
        };
        let negated = negation(kind)?;
        let (rest, bind) = (places[side] - Dim::symbol(name), scope.get(name)?);
        // Of a tile that is all of a row it is known for each element.
        if moving.next().is_some() || mentions(rest, name) || self.constant(bind.base) == Some(0) {
            return None;
        }
        // From this value on the answer is another one.
        let strict = matches!((kind, side), ("lt" | "ge", 0) | ("gt" | "le", 1));
        let change = places[1 - side] - rest + Dim::Static(i64::from(!strict));
        let whole = change.as_static().is_some_and(|n| n % bind.size == 0) && self.is_multiple(bind.base, bind.size);
        Some(Condition {
            kind: kind.into(),
            places,
            moving: Some(Moving { side, span: bind.size - 1, negated, whole }),
        })
    }

    fn constant(&self, value: Value) -> Option<i64> {
        let op = self.out.op_ref(self.out.defining_op(value)?);
        op.is(op::core::CONSTANT).then(|| op.int("value")).flatten()
    }

    /// Whether an index is a multiple of `n`, as what is a number times one.
    pub(super) fn is_multiple(&self, value: Value, n: i64) -> bool {
        if let Some(c) = self.constant(value) {
            return c % n == 0;
        }
        let times = |op: Op| {
            let op = self.out.op_ref(op);
            op.is(op::core::MUL) && op.operands().any(|v| self.constant(v).is_some_and(|c| c % n == 0))
        };
        self.out.defining_op(value).is_some_and(times)
    }

    fn reads_memory(&self, nest: &Nest, value: Value) -> bool {
        let entry = self.src.op_ref(nest.op).entry(0);
        let (mut seen, mut open) = (FxHashSet::default(), vec![value]);
        while let Some(value) = open.pop() {
            match self.src.defining_op(value) {
                Some(op) if self.src.parent(op) == entry => {
                    open.extend(self.src.operands(op).filter(|&v| seen.insert(v)))
                }
                Some(_) => {}
                None if self.src.defining_block(value) == entry => return true,
                None => {}
            }
        }
        false
    }

    /// A value of a region, with what it is computed from.
    pub(super) fn value_of(&mut self, nest: &Nest, scope: &Scope, value: Value, known: &mut Known) -> Result<Element> {
        if let Some(&element) = known.get(&value) {
            return Ok(element);
        }
        let src = self.src;
        let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        let element = match src.defining_op(value).map(|op| src.op_ref(op)) {
            _ if src.defining_block(value) != Some(entry) => self.outer(value)?,
            None => {
                let operand = src.block_args(entry).position(|arg| arg == value).expect("an argument of the region");
                Element::Tile(self.read(nest, operand, scope)?)
            }
            Some(op) if self.is_branch(nest, scope, op) => self.branch(nest, scope, op, known)?,
            Some(op) => {
                let skip = usize::from(op.name() == &loop_::GATHER);
                for operand in op.operands().skip(skip) {
                    self.value_of(nest, scope, operand, known)?;
                }
                self.loc = op.loc();
                self.element(nest, scope, op, known)?
            }
        };
        known.insert(value, element);
        Ok(element)
    }

    fn branch(&mut self, nest: &Nest, scope: &Scope, op: OpRef, known: &Known) -> Result<Element> {
        let Condition { kind, places, moving } =
            self.condition(nest, scope, op.operand(0)).expect("checked by the caller");
        let [a, b] = [self.index(places[0], scope, Tiled::First)?, self.index(places[1], scope, Tiled::First)?];
        let side = |p: &mut Self, value: Value| -> Result<Value> {
            let element = p.value_of(nest, scope, value, &mut known.clone())?;
            let tile = p.tile_of(element, scope.shape());
            Ok(p.broadcast(tile, scope.shape()))
        };
        let (holds, fails) = (op.operand(1), op.operand(2));
        let Some(Moving { side: at, span, negated, whole: false }) = moving else {
            let condition = self.compare(&kind, a, b);
            let chosen = self.if_else(condition, |p| side(p, holds), |p| side(p, fails))?;
            return Ok(Element::Tile(chosen));
        };
        let span = self.constant_index(span);
        let mut last = [a, b];
        last[at] = self.binary(op::core::ADD, last[at], span);
        let (all, none) = match (kind.as_str(), at) {
            ("lt" | "le", 0) | ("gt" | "ge", 1) => (last, [a, b]),
            _ => ([a, b], last),
        };
        let all = self.compare(&kind, all[0], all[1]);
        let both = |p: &mut Self| {
            p.no_branches = true;
            let selected = side(p, op.result(0));
            p.no_branches = false;
            selected
        };
        let otherwise = |p: &mut Self| {
            let none = p.compare(negated, none[0], none[1]);
            p.if_else(none, |p| side(p, fails), both)
        };
        let chosen = self.if_else(all, |p| side(p, holds), otherwise)?;
        Ok(Element::Tile(chosen))
    }
}

/// What a selection asks for.
struct Condition {
    kind: String,
    places: [Dim; 2],
    moving: Option<Moving>,
}

/// A place that grows by one from element to element along a tile.
struct Moving {
    /// Which of the two it is.
    side: usize,
    /// From the tile's first element to its last.
    span: i64,
    /// The opposite comparison.
    negated: &'static str,
    /// Whether the answer is the same for all of each tile.
    whole: bool,
}

fn negation(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "lt" => "ge",
        "ge" => "lt",
        "le" => "gt",
        "gt" => "le",
        _ => return None,
    })
}
