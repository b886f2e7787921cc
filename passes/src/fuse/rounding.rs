//! Products and reductions whose sums are rounded before anything else reads them: the rounding goes with them, so that narrow elements are stored.

use super::classify::Class;
use super::is_view;
use super::plan::{Group, Planner};
use rc_ir::{Op, Traits, Value};
use rustc_hash::FxHashSet;

/// Operations between a sum and its rounding, at most: a bound of the search. A bias, a scale and an activation are fewer.
const WALKED: usize = 8;

impl Planner<'_> {
    /// Takes what rounds the sums of a product or a reduction from the group that uses them, which that itself could not join. Gives whether there was any.
    pub(super) fn take_rounding(&mut self, sum: Op) -> bool {
        let Some((group, ops)) = self.rounding_of(sum) else { return false };
        let own = self.groups.len();
        self.groups.push(Group::default());
        self.move_ops(&ops, group, own);
        let takes = self.check(own, sum, false).is_ok();
        if !takes {
            self.move_ops(&ops, own, group);
            self.groups.pop();
        }
        takes
    }

    fn move_ops(&mut self, ops: &[Op], from: usize, to: usize) {
        for &op in ops {
            let quarters = self.quarters_of(op);
            self.groups[from].remove(op, quarters);
            self.add(to, op);
        }
    }

    /// The elementwise operations from a sum to where it becomes narrower, with what is only computed for them, and their group.
    fn rounding_of(&self, sum: Op) -> Option<(usize, Vec<Op>)> {
        let width = |value: Value| self.body.ty(value).elem().byte_width();
        let sums_up = matches!(self.class(sum), Class::Contract | Class::Reduce);
        let mut value = self.body.results(sum).next().filter(|_| sums_up)?;
        let sums = width(value)?;
        let mut ops: Vec<Op> = Vec::new();
        let mut group = None;
        while width(value)? >= sums {
            let mut users = self.body.uses(value).map(|(user, _)| user);
            let user = users.next().filter(|_| users.next().is_none() && ops.len() < WALKED)?;
            let home = *self.of.get(&user)?;
            let joins = self.op(user).has(Traits::ELEMENTWISE) || is_view(self.op(user));
            if !joins || *group.get_or_insert(home) != home || self.groups[home].is_operand(user) {
                return None;
            }
            ops.push(user);
            value = self.body.result(user, 0);
        }
        let group = group?;
        self.with_sources(group, &mut ops).then_some((group, ops))
    }

    /// Adds the operations of a group that others of it are made of; not where something else reads their results too.
    fn with_sources(&self, group: usize, ops: &mut Vec<Op>) -> bool {
        let mut taken: FxHashSet<Op> = ops.iter().copied().collect();
        let mut next = 0;
        while next < ops.len() {
            for from in self.body.operands(ops[next]).filter_map(|v| self.body.defining_op(v)) {
                if self.of.get(&from) != Some(&group) || taken.contains(&from) {
                    continue;
                }
                let alone = self.body.results(from).all(|v| self.body.uses(v).all(|(user, _)| taken.contains(&user)));
                if !alone || ![Class::Pointwise, Class::Reindex].contains(&self.class(from)) {
                    return false;
                }
                taken.insert(from);
                ops.push(from);
            }
            next += 1;
        }
        true
    }
}
