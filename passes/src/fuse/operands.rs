//! What may be on the operand side of a group: computed where a product, a gather or windows read it.

use super::classify::Class;
use super::is_view;
use super::padding::{is_read_in_place, pads_with_zeros, stays_outside};
use super::plan::{Group, Planner};
use super::reads::{Read, Space, index_dims, is_affine, most_elements};
use crate::schedule::access::Access;
use rc_dialects::core::dot::PRECISION;
use rc_dialects::interfaces::Contraction;
use rc_dialects::op;
use rc_ir::{Op, OpRef, Type, Value};

impl Planner<'_> {
    /// Whether `op` feeds an operand of the group's product or attention.
    pub(super) fn on_operand_side(&self, group: usize, op: Op) -> bool {
        let target = &self.groups[group];
        self.uses_in(group, op).any(|(user, _)| {
            target.operand_side.contains(&user) || matches!(self.class(user), Class::Contract | Class::Attention)
        })
    }

    /// Whether the group gathers from a result of `op`.
    pub(super) fn is_table(&self, group: usize, op: Op) -> bool {
        self.uses_in(group, op).any(|(user, i)| i == 0 && self.op(user).is(op::core::GATHER))
    }

    /// Whether `op` widens 8 bits for a product of more rows than those are widened for within it.
    pub(super) fn widens_for_many(&self, target: &Group, op: Op) -> bool {
        let own = self.op(op);
        let bits = |v: Value| self.body.ty(v).elem().bit_width();
        if !own.is(op::core::CONVERT) || bits(own.operand(0)) != Some(8) || bits(own.result(0)) != Some(16) {
            return false;
        }
        let rows = |product: Op| {
            let roles = self.op(product).def()?.interface::<Contraction>().and_then(|c| (c.0)(self.op(product)))?;
            let free = |operand: usize, dims: &[usize]| {
                let shape = self.body.ty(self.body.operand(product, operand)).shape();
                most_elements(&dims.iter().map(|&d| shape[d]).collect::<Vec<_>>(), self.symbols)
            };
            Some(free(0, &roles.lhs_free).min(free(1, &roles.rhs_free)))
        };
        let mut products = target.ops.iter().filter(|&&o| self.class(o) == Class::Contract);
        products.any(|&product| rows(product).is_some_and(|rows| rows > self.options.widened))
    }

    /// Whether `op` turns f32 for a product that may round them, so that their rows are along the sums, as `align-products` does where that pays.
    pub(super) fn turns_words(&self, target: &Group, op: Op) -> bool {
        let turns = self.op(op).is(op::core::TRANSPOSE) && self.options.gathers;
        let last = self.body.ty(self.body.result(op, 0)).rank() as i64 - 1;
        let summed = |(user, operand): (Op, usize)| {
            let dims = self.op(user).ints(if operand == 0 { "lhs_contract" } else { "rhs_contract" });
            target.ops.contains(&user)
                && self.has_units(user)
                && self.op(user).str(PRECISION.name).is_some()
                && dims.unwrap_or_default().contains(&last)
        };
        turns && self.body.uses(self.body.result(op, 0)).any(summed)
    }

    /// Whether `op` gives each product of a batch its matrix from a table: the matrices are read where they lie, from one place for each
    /// product.
    pub(super) fn chooses_matrices(&self, group: usize, op: Op) -> bool {
        let gather = self.op(op);
        let dims = if gather.is(op::core::GATHER) { index_dims(gather) } else { None };
        let Some((batch, own)) = dims else { return false };
        let axis = gather.int("axis").unwrap_or(0);
        let chosen = (0..batch as i64).chain(axis..axis + own as i64);
        let mut uses = self.uses_in(group, op);
        uses.all(|(user, operand)| {
            let dims = self.op(user).ints(if operand == 0 { "lhs_batch" } else { "rhs_batch" }).unwrap_or_default();
            self.op(user).is(op::core::DOT) && chosen.clone().all(|d| dims.contains(&d))
        })
    }

    /// Whether `op` is on the way from memory to windows, or from these to a product of the group that gathers its operand.
    pub(super) fn gathers_windows(&self, target: &Group, op: Op) -> bool {
        let product = target.ops.iter().find(|&&o| self.class(o) == Class::Contract);
        let elem = product.filter(|&&p| self.has_units(p)).map(|&p| self.body.ty(self.body.operand(p, 0)).elem());
        let moves = |o: Op| self.class(o) == Class::Reindex || self.op(o).is(op::core::PAD);
        let alike = elem.is_some_and(|elem| self.body.results(op).all(|v| self.body.ty(v).elem() == elem));
        if !self.options.gathers || !alike || !moves(op) {
            return false;
        }
        let before = std::iter::successors(Some(op), |&o| {
            let from = moves(o).then(|| self.body.defining_op(self.body.operand(o, 0))).flatten();
            from.filter(|&from| moves(from))
        });
        before.take(16).any(|o| self.op(o).is(op::core::WINDOW))
            || self.feeds(target, op, &|user| user.is(op::core::WINDOW))
    }

    /// Whether a GPU's matrix units multiply a product's operands.
    pub(super) fn has_units(&self, product: Op) -> bool {
        let elems = || self.body.operands(product).map(|v| self.body.ty(v).elem());
        let rounds = self.op(product).str(PRECISION.name).is_some() && elems().all(|elem| elem == Type::f32());
        self.op(product).is(op::core::DOT)
            && (rounds || elems().all(|elem| [Type::bf16(), Type::f16()].contains(&elem)))
    }

    /// Whether the group reads the result, moved at most, in an operation that `wanted` is for.
    pub(super) fn feeds(&self, target: &Group, op: Op, wanted: &dyn Fn(OpRef) -> bool) -> bool {
        let mut stack: Vec<Value> = self.body.results(op).collect();
        while let Some(value) = stack.pop() {
            for user in self.body.uses(value).map(|u| u.0).filter(|user| target.ops.contains(user)) {
                let user = self.op(user);
                if wanted(user) {
                    return true;
                }
                let keeps = || self.class(user.op) == Class::Pointwise && self.is_cheap(user.op);
                if self.class(user.op) == Class::Reindex || user.is(op::core::PAD) || keeps() {
                    stack.extend(user.results());
                }
            }
        }
        false
    }

    /// Whether a product's operand is read in pieces of 8 bytes or more, which a program copies to its shared memory at once, if it or one of
    /// those that it is moved from lies in memory. Windows do not.
    pub(super) fn is_read_in_runs(&self, read: &Read) -> bool {
        let ranges = Space::new(&read.space, self.symbols).ranges;
        let windows = |op: OpRef| op.is(op::core::WINDOW);
        let (mut value, mut map) = (read.value, read.map.clone());
        for _ in 0..16 {
            let op = self.body.defining_op(value).map(|op| self.op(op));
            let moved = op.filter(|&op| self.class(op.op) == Class::Reindex || pads_with_zeros(op));
            let reads_windows = moved.is_some_and(|op| {
                let before = std::iter::successors(Some(op), |op| {
                    let from = self.op(self.body.defining_op(op.operand(0))?);
                    (self.class(from.op) == Class::Reindex || pads_with_zeros(from)).then_some(from)
                });
                before.take(16).any(windows)
            });
            if !reads_windows && Access::new(&self.body.ty(value).shape(), &map).longest_run() >= 4 {
                return true;
            }
            let from = moved.and_then(|op| super::reads::sources(op, &map, &ranges)?.into_iter().next());
            let Some((source, Some(at))) = from else { return false };
            (value, map) = (source, at);
        }
        false
    }

    /// Whether `op` moves elements on the way from memory through windows to the left operand of a product of the group, which gathers these as it
    /// packs them: in runs of neighbours, once the windows are part of it.
    pub(super) fn packs_windows(&self, target: &Group, op: Op, found: &[Read]) -> bool {
        let moves = |op: Op| self.class(op) == Class::Reindex;
        let is_window = |op: Op| self.op(op).is(op::core::WINDOW);
        let (mut down, mut inside) = (op, false);
        let fits = loop {
            inside |= is_window(down);
            let user = self.body.uses(self.body.result(down, 0)).find(|(user, _)| target.ops.contains(user));
            match user {
                Some((user, operand)) if self.op(user).is(op::core::DOT) => break operand == 0,
                Some((user, _)) if moves(user) => down = user,
                _ => break false,
            }
        };
        let from = |op: &Op| self.body.defining_op(self.body.operand(*op, 0)).filter(|&op| moves(op));
        let above = || std::iter::successors(Some(op), from).any(is_window);
        let in_runs = |r: &Read| Access::new(&self.body.ty(r.value).shape(), &r.map).longest_run() >= 4;
        let mut through = found.iter().filter(|r| r.through_anchor && !is_affine(&r.map));
        self.options.panels && moves(op) && fits && if inside { through.all(in_runs) } else { above() }
    }

    /// Whether what is outside of a padded value is outside of the memory that it would be moved from. A view is memory by another name, as long as
    /// no kernel has it that reads its padding.
    pub(super) fn stays_outside(&self, pad: Op) -> bool {
        stays_outside(self.op(pad), &|value| self.is_memory(value))
    }

    pub(super) fn is_read_in_place(&self, pad: Op) -> bool {
        is_read_in_place(self.op(pad), &|value| self.is_memory(value), self.options.padded)
    }

    /// Whether a value that is padded is memory, rather than moved and converted on the way from there.
    pub(super) fn is_memory(&self, value: Value) -> bool {
        let moved = |op| self.class(op) == Class::Reindex && !(self.options.gathers && is_view(self.op(op)));
        let moves = |op| moved(op) || self.class(op) == Class::Pointwise && self.is_cheap(op);
        !self.body.defining_op(value).is_some_and(moves)
    }
}
