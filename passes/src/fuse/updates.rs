//! What computes the updates of a scatter joins its kernel, which combines them with memory as they come.

use super::classify::Class;
use super::plan::Planner;
use crate::schedule::scatter::takes_updates;
use rc_dialects::op;
use rc_ir::Op;

/// The updates among the operands of a scatter.
const UPDATES: usize = 2;
/// Elements of a slice of which a program has as many slices: it reads them across as well as along their memory.
const SQUARE: i64 = 64;

impl Planner<'_> {
    /// Whether all that uses `op` is a scatter of the group, which takes it as its updates, and what leads to these. Long slices that would be read across
    /// their memory are turned before.
    pub(super) fn is_update(&self, group: usize, op: Op) -> bool {
        let computes = matches!(self.class(op), Class::Pointwise | Class::Reindex);
        let reads = || !self.turns_rows(op) || self.has_short_slices(group);
        let leads = |(user, operand): (Op, usize)| {
            let scatter = self.op(user);
            let takes = !scatter.is(op::core::SCATTER) || operand == UPDATES && takes_updates(scatter);
            self.groups[group].ops.contains(&user) && takes
        };
        self.options.gathers
            && computes
            && reads()
            && self.body.results(op).all(|result| self.body.uses(result).all(leads))
    }

    fn has_short_slices(&self, group: usize) -> bool {
        let scatters = self.groups[group].ops.iter().map(|&op| self.op(op)).filter(|op| op.is(op::core::SCATTER));
        scatters.into_iter().all(|op| {
            let shape = self.body.ty(op.operand(0)).static_shape().unwrap_or_default();
            let slice = shape.iter().skip(1 + op.int("axis").unwrap_or(0) as usize);
            slice.product::<i64>() <= SQUARE
        })
    }
}
