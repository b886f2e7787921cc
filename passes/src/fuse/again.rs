//! Light arithmetic, and paddings with zeros, that several kernels use which cannot be one: each computes it for itself where that reads less than the stored result.

use super::classify::Class;
use super::is_view;
use super::padding::pads_with_zeros;
use super::plan::Planner;
use super::recompute::{goes_along, is_computed_again};
use rc_ir::{Mapping, Op, Traits, Value};

impl Planner<'_> {
    /// Has the kernels that use light arithmetic or a padding with zeros compute it, each for itself, with what it is made of. What finishes rows
    /// stays with their reduction. Gives whether it is part of them all, and lies nowhere.
    pub(super) fn compute_again(&mut self, op: Op) -> bool {
        let result = |v: Value| self.body.uses(v).any(|(user, _)| self.op(user).has(Traits::TERMINATOR));
        let pads = pads_with_zeros(self.op(op));
        if !self.options.gathers
            || !pads && !is_computed_again(self.body, op, self.symbols, &self.options.costs)
            || self.facts.finished_row(self.body, op).is_some()
            || self.body.results(op).any(result)
        {
            return false;
        }
        let Ok((groups, _)) = self.groups_of_users(op) else { return false };
        let views = |g: usize| self.groups[g].ops.iter().all(|&user| is_view(self.op(user)));
        let takes = |&g: &usize| !views(g) && self.check(g, op, false).is_ok();
        let taking: Vec<usize> = groups.iter().copied().filter(takes).collect();
        let everywhere = taking.len() == groups.len();
        if groups.len() < 2 || pads && !everywhere {
            return false;
        }
        let class = self.class(op);
        for &group in &taking[usize::from(everywhere)..] {
            let copy = self.copy_chain(op);
            let (old, new) = (self.body.result(op, 0), self.body.result(copy, 0));
            let mut users: Vec<(Op, usize)> = self.body.uses(old).collect();
            users.retain(|(user, _)| self.of.get(user) == Some(&group));
            users.into_iter().for_each(|(user, operand)| self.body.set_operand(user, operand, new));
            self.join(group, copy, class);
        }
        if everywhere {
            self.join(taking[0], op, class);
        }
        everywhere
    }

    /// A copy of an operation before it, with copies of the light arithmetic of which it is made: these are placed when that is.
    fn copy_chain(&mut self, op: Op) -> Op {
        let copy = self.body.clone_op(op, &mut Mapping::new());
        self.body.insert_before(op, copy);
        self.order.add_copy(op, copy);
        self.facts.add_copy(op, copy);
        for operand in 0..self.body.operands(op).count() {
            let from = self.body.defining_op(self.body.operand(op, operand));
            let stays = |from: Op| self.facts.finished_row(self.body, from).is_some();
            let copied = |&from: &Op| self.class(from) != Class::Splat && goes_along(self.body, from) && !stays(from);
            if let Some(from) = from.filter(copied) {
                let made = self.copy_chain(from);
                let value = self.body.result(made, 0);
                self.body.set_operand(copy, operand, value);
                self.copies.entry(from).or_default().push(made);
            }
        }
        copy
    }

    /// Has each copy of an operation join the kernel that uses it; where it may not, the operation itself is used.
    pub(super) fn place_copies(&mut self, op: Op) {
        for copy in self.copies.remove(&op).unwrap_or_default() {
            match self.home(copy) {
                Ok(Some(group)) => self.join(group, copy, self.class(copy)),
                _ => {
                    let value = self.body.result(op, 0);
                    self.body.replace_op(copy, &[value]);
                }
            }
        }
    }
}
