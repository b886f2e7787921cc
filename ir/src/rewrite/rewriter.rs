//! What a pattern changes the program through.

use super::fold::Constants;
use crate::attr::Attr;
use crate::body::{Block, Body, Op, Value};
use crate::builder::{Builder, InsertPoint};
use crate::diag::Result;
use crate::loc::Loc;
use crate::types::Type;

/// A body under rewriting. Operations that a pattern makes are found by themselves; those that it changes in
/// place, erases or replaces it changes through these methods, so that they and their users are visited again.
pub struct Rewriter<'a> {
    pub body: &'a mut Body,
    /// What patterns say of what they did or nearly did, and where.
    pub remarks: Vec<(Loc, String)>,
    /// Ops to visit again.
    pub(super) touched: Vec<Op>,
    pub(super) constants: Option<Constants>,
}

impl<'a> Rewriter<'a> {
    /// For use outside a driver.
    pub fn new(body: &'a mut Body) -> Rewriter<'a> {
        Rewriter { body, remarks: Vec::new(), touched: Vec::new(), constants: None }
    }
    /// Builds before `op`, with its location.
    pub fn before(&mut self, op: Op) -> Builder<'_> {
        Builder::before(self.body, op)
    }
    /// Builds after `op`, with its location.
    pub fn after(&mut self, op: Op) -> Builder<'_> {
        Builder::after(self.body, op)
    }
    /// Builds at the end of a block, with the location of `like`.
    pub fn at_end(&mut self, block: Block, like: Op) -> Builder<'_> {
        let loc = self.body.loc(like);
        Builder { body: self.body, at: InsertPoint::End(block), loc }
    }
    /// Says that `op` was changed in place.
    pub fn modified(&mut self, op: Op) {
        self.touched.push(op);
    }
    pub fn set_operand(&mut self, op: Op, i: usize, value: Value) {
        let old = self.body.operand(op, i);
        self.body.set_operand(op, i, value);
        self.touched.extend(self.body.defining_op(old));
        self.modified(op);
    }
    pub fn set_attr(&mut self, op: Op, name: &str, value: Attr) {
        self.body.set_attr(op, name, value);
        self.modified(op);
    }
    /// Lets `new` take the place of `old` in all its uses.
    pub fn replace_uses(&mut self, old: Value, new: Value) {
        self.touch_users(old);
        self.body.replace_all_uses(old, new);
        self.touched.extend(self.body.defining_op(old));
    }
    /// Replaces the results of `op` by `values`, and erases it.
    pub fn replace(&mut self, op: Op, values: &[Value]) {
        let results: Vec<Value> = self.body.results(op).collect();
        results.iter().for_each(|&r| self.touch_users(r));
        self.touch_operands(op);
        self.body.replace_op(op, values);
    }
    /// Replaces `op` by `new`, which has as many results, and erases it.
    pub fn replace_with(&mut self, op: Op, new: Op) {
        let values: Vec<Value> = self.body.results(new).collect();
        self.replace(op, &values);
    }
    /// Erases an op whose results have no uses.
    pub fn erase(&mut self, op: Op) {
        self.touch_operands(op);
        self.body.erase(op);
    }
    /// Moves the ops of `block`, except its terminator, before `op`; `values` take the place of its arguments.
    /// Returns the terminator's operands: what the block yields. The op that owns the block is then to be replaced.
    pub fn inline_before(&mut self, block: Block, op: Op, values: &[Value]) -> Vec<Value> {
        let args: Vec<Value> = self.body.block_args(block).collect();
        assert_eq!(args.len(), values.len(), "a value for each block argument");
        for (&arg, &value) in args.iter().zip(values) {
            self.replace_uses(arg, value);
        }
        let terminator = self.body.terminator(block);
        let moved: Vec<Op> = self.body.ops(block).filter(|&o| Some(o) != terminator).collect();
        for inner in moved {
            self.body.move_before(op, inner);
            self.modified(inner);
        }
        terminator.map_or(Vec::new(), |t| self.body.operands(t).collect())
    }
    /// A constant of the type `ty` before `op`. Errors: no registered constant holds `value`.
    pub fn constant(&mut self, op: Op, value: Attr, ty: Type) -> Result<Value> {
        self.constants.get_or_insert_with(Constants::new).materialize(self.body, op, value, ty)
    }

    fn touch_users(&mut self, value: Value) {
        let users = self.body.uses(value).map(|u| u.0);
        self.touched.extend(users);
    }
    /// The ops behind the operands of `op` and of the ops in it, and the op around it: they may have become dead.
    fn touch_operands(&mut self, op: Op) {
        self.touched.extend(self.body.parent_op(op));
        let inner = if self.body.regions(op).is_empty() { vec![op] } else { self.body.walk_from(op) };
        for op in inner {
            let definitions = self.body.operands(op).filter_map(|v| self.body.defining_op(v));
            self.touched.extend(definitions);
        }
    }
}
