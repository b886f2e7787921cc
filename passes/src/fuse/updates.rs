//! What computes the updates of a scatter joins its kernel, which combines them with memory as they come.

use super::classify::Class;
use super::plan::Planner;
use crate::schedule::scatter::takes_updates;
use rc_dialects::op;
use rc_ir::Op;

/// The updates among the operands of a scatter.
const UPDATES: usize = 2;

impl Planner<'_> {
    /// Whether all that uses `op` is a scatter of the group, which takes it as its updates, and what leads to these. What is read across its memory
    /// is turned before.
    pub(super) fn is_update(&self, group: usize, op: Op) -> bool {
        let moves = matches!(self.class(op), Class::Pointwise | Class::Reindex) && !self.turns_rows(op);
        let leads = |(user, operand): (Op, usize)| {
            let scatter = self.op(user);
            let takes = !scatter.is(op::core::SCATTER) || operand == UPDATES && takes_updates(scatter);
            self.groups[group].ops.contains(&user) && takes
        };
        self.options.gathers && moves && self.body.results(op).all(|result| self.body.uses(result).all(leads))
    }
}
