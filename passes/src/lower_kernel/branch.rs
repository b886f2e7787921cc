//! Selections whose condition is the same for all of a tile, as where several tensors lie one after the other. On a CPU only the chosen side is
//! computed, in a branch, where the other's memory would be read as well.

use super::program::Program;
use super::region::Element;
use super::scope::{Scope, Tiled};
use crate::schedule::access::{has_index, mentions};
use crate::schedule::nest::Nest;
use rc_dialects::loop_;
use rc_dialects::op;
use rc_ir::{Dim, Op, OpRef, Result, Value};
use rustc_hash::FxHashMap;

/// The values of a region that are computed so far.
type Known = FxHashMap<Value, Element>;

impl Program<'_> {
    /// Whether a region has such selections, of what is read from memory.
    pub(super) fn has_branches(&self, nest: &Nest, scope: &Scope) -> bool {
        let entry = self.src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        let branches = |op: Op| self.is_branch(nest, scope, self.src.op_ref(op));
        self.target.is_cpu() && nest.is_pointwise() && self.src.ops(entry).any(branches)
    }

    fn is_branch(&self, nest: &Nest, scope: &Scope, op: OpRef) -> bool {
        let reads = || op.operands().skip(1).any(|side| self.reads_memory(nest, side));
        op.is(op::core::SELECT) && self.places(nest, scope, op.operand(0)).is_some() && reads()
    }

    /// The two places that a condition compares, where neither differs within a tile.
    fn places(&self, nest: &Nest, scope: &Scope, condition: Value) -> Option<[Dim; 2]> {
        let compare = self.src.op_ref(self.src.defining_op(condition)?);
        if !compare.is(op::core::COMPARE) {
            return None;
        }
        let place = |i: usize| {
            let op = self.src.op_ref(self.src.defining_op(compare.operand(i))?);
            let expr = op.attr("expr").filter(|_| op.name() == &loop_::INDEX)?.as_shape()?[0];
            let expr = nest.resolve(expr);
            let differs = has_index(expr) || scope.tiled().iter().any(|&name| mentions(expr, name));
            (!differs).then_some(expr)
        };
        Some([place(0)?, place(1)?])
    }

    fn reads_memory(&self, nest: &Nest, value: Value) -> bool {
        let entry = self.src.op_ref(nest.op).entry(0);
        match self.src.defining_op(value) {
            Some(op) if self.src.parent(op) == entry => self.src.operands(op).any(|v| self.reads_memory(nest, v)),
            Some(_) => false,
            None => self.src.defining_block(value) == entry,
        }
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
        let places = self.places(nest, scope, op.operand(0)).expect("checked by the caller");
        let compare = self.src.op_ref(self.src.defining_op(op.operand(0)).expect("a comparison"));
        let [a, b] = [self.index(places[0], scope, Tiled::First)?, self.index(places[1], scope, Tiled::First)?];
        let condition = self.compare(compare.str("kind").unwrap_or_default(), a, b);
        let side = |p: &mut Self, value: Value| -> Result<Value> {
            let element = p.value_of(nest, scope, value, &mut known.clone())?;
            let tile = p.tile_of(element, scope.shape());
            Ok(p.broadcast(tile, scope.shape()))
        };
        let chosen = self.if_else(condition, |p| side(p, op.operand(1)), |p| side(p, op.operand(2)))?;
        Ok(Element::Tile(chosen))
    }
}
