//! Operands whose memory lies across the elements that a kernel goes along, as a transpose has it.

use super::plan::{Group, Planner};
use super::reads::{Read, Scope, Space, most_elements};
use crate::schedule::access::mentions;
use rc_dialects::core::reindex::Reindex;
use rc_dialects::op;
use rc_ir::{Dim, Op, Value};

/// Elements of a row from which on a program has few rows: it uses one element of each sector that it reads across.
const FEW_ROWS: i64 = 512;

impl Planner<'_> {
    /// Whether it is a transpose after which other elements are neighbours.
    pub(super) fn turns_rows(&self, op: Op) -> bool {
        let shape = self.body.ty(self.body.result(op, 0)).shape();
        let many = |d: &i64| shape[*d as usize] != Dim::Static(1);
        let Some(perm) = self.op(op).ints("perm").filter(|_| self.op(op).is(op::core::TRANSPOSE)) else { return false };
        // The dimensions with more than one element, by their numbers in the operand.
        let moved: Vec<i64> = (0..perm.len() as i64).filter(many).map(|d| perm[d as usize]).collect();
        moved.last() != moved.iter().max()
    }

    /// What is read many times and across its memory is better moved once.
    pub(super) fn check_repeated(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        match self.times_read(target, op, outputs, |_| true)? {
            n if n >= self.options.costs.times && !self.is_read_along(target, op, outputs)? => {
                Err(format!("it would be read across its memory {n:.0} times"))
            }
            _ => Ok(()),
        }
    }

    /// Whether what `op` moves would be read along its memory where the group reads as much else along that, however it is moved on the way: lanes go
    /// that way.
    fn is_read_along(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<bool, String> {
        let unknown = || "an index map cannot be written".to_string();
        let near = self.scope(target, Some(op)).reads(None, outputs, self.symbols).ok_or_else(unknown)?;
        let mut ops = target.ops.clone();
        ops.insert(op);
        near.iter().for_each(|read| ops.extend(self.moves_of(read.value)));
        let scope = Scope { body: self.body, facts: &self.facts, group: &ops, also: None };
        let found = scope.reads(None, outputs, self.symbols).ok_or_else(unknown)?;
        let moved = self.body.operand(self.moves_of(self.body.operand(op, 0)).last().copied().unwrap_or(op), 0);
        let elements = |read: &Read| most_elements(&self.body.ty(read.value).shape(), self.symbols);
        let along =
            |a: &Read, b: &Read| a.space == b.space && a.map.last() == b.map.last() && elements(b) >= elements(a);
        let (own, others): (Vec<&Read>, Vec<&Read>) = found.iter().partition(|read| read.value == moved);
        Ok(own.iter().all(|read| others.iter().any(|other| along(read, other))))
    }

    /// Whether a program that holds one long row of the space, as `op` reduces it, would read elements of others' memory beside each element of an operand as
    /// large: of each sector one.
    pub(super) fn reads_across_memory(
        &self,
        target: &Group,
        op: Op,
        full: &Space,
        dims: &[usize],
        outputs: &[Value],
    ) -> Result<bool, String> {
        let length: i64 =
            dims.iter().map(|&d| full.extents[d].as_static().unwrap_or(i64::MAX)).fold(1, i64::saturating_mul);
        let turned = self.moves_of(self.body.operand(op, 0)).iter().any(|&from| self.turns_rows(from));
        if !self.options.gathers || length < FEW_ROWS || turned {
            return Ok(false);
        }
        let unknown = || "an index map cannot be written".to_string();
        let reads = self.scope(target, Some(op)).reads(None, outputs, self.symbols).ok_or_else(unknown)?;
        let elements = most_elements(&full.extents, self.symbols);
        let along = full.iters[full.iters.len() - 1];
        let across = |read: &Read| {
            let shape = self.body.ty(read.value).shape();
            let last = shape.iter().rposition(|&size| size != Dim::Static(1));
            let moves = read.map.iter().any(|&at| mentions(at, along));
            moves
                && last.is_some_and(|d| !mentions(read.map[d], along))
                && most_elements(&shape, self.symbols) >= elements
        };
        Ok(reads.iter().any(|read| read.space == full.extents && across(read)))
    }

    /// What moves or converts the elements of a value, one operation after the other, the last one first.
    fn moves_of(&self, value: Value) -> Vec<Op> {
        let moves = |&op: &Op| {
            let own = self.op(op);
            let reindexes = own.def().is_some_and(|d| d.interface::<Reindex>().is_some());
            reindexes || own.is(op::core::PAD) || own.is(op::core::CONVERT)
        };
        let made = |v: Value| self.body.defining_op(v).filter(moves);
        std::iter::successors(made(value), |&op| made(self.body.operand(op, 0))).collect()
    }
}
