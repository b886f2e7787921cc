//! Kernels with several results: what several kernels use joins them as one, where they go over the same elements or rows and no
//! other kernel lies between them.

use super::classify::Class;
use super::is_view;
use super::plan::{Group, Planner};
use super::reads::{is_affine, most_elements, reduced_dims};
use rc_dialects::interfaces::Reduction;
use rc_dialects::op;
use rc_ir::{Body, Dim, Op, Traits, Value};
use rustc_hash::FxHashSet;

impl Planner<'_> {
    /// Makes one group of several that use `op`, for it to join; an error says why they stay apart, as they were.
    pub(super) fn merge(&mut self, groups: &[usize], op: Op, escapes: bool) -> Result<usize, String> {
        let apart = || format!("{} kernels use it", groups.len());
        let parts: Vec<&Group> = groups.iter().map(|&g| &self.groups[g]).collect();
        let merged = Group::of_all(&parts).ok_or_else(apart)?;
        let of_rows = self.class(op) == Class::Reduce || self.facts.finished_row(self.body, op).is_some();
        let plain = |&o: &Op| self.goes_element_by_element(o) || of_rows && self.looks_up(&merged, o);
        if merged.quarters() > 4 * self.options.max_ops || !plain(&op) || !merged.ops.iter().all(plain) {
            return Err(apart());
        }
        if self.is_read_both_ways(op, &merged) {
            return Err(format!("{}, of which some read it across its memory", apart()));
        }
        let into = groups[0];
        let before = std::mem::replace(&mut self.groups[into], merged);
        if let Err(reason) = self.check_merged(into, op, escapes) {
            self.groups[into] = before;
            return Err(format!("{}, which stay apart: {reason}", apart()));
        }
        for &group in &groups[1..] {
            let ops = std::mem::take(&mut self.groups[group]).ops;
            self.of.extend(ops.into_iter().map(|op| (op, into)));
        }
        Ok(into)
    }

    /// Of attention's gradients: makes one group of those that only put one of its results elsewhere, for it to join; none
    /// where there is no such group. Other results are stored as they are.
    pub(super) fn join_moves(&mut self, groups: &[usize], op: Op) -> Option<usize> {
        let moves = |&group: &usize| {
            let target = &self.groups[group];
            let outputs = self.outputs(group);
            let mut used = self.body.results(op).filter(|&r| self.body.uses(r).any(|u| target.ops.contains(&u.0)));
            let (Some(result), None, &[end]) = (used.next(), used.next(), outputs.as_slice()) else { return false };
            let map = || super::forward_map(self.body, result, end, &target.ops, self.symbols);
            let alone = self.body.uses(result).count() == 1 && target.anchor.is_none() && self.only_moves(target);
            alone && map().is_some_and(|(_, map)| is_affine(&map))
        };
        let joined: Vec<usize> = groups.iter().copied().filter(moves).collect();
        let (&into, others) = joined.split_first()?;
        for &group in others {
            let taken = std::mem::take(&mut self.groups[group]);
            self.of.extend(taken.ops.iter().map(|&op| (op, into)));
            self.groups[into].ops.extend(taken.ops);
        }
        Some(into)
    }

    /// Whether an operation reads its operands where its result is, moved or reduced: not where data or bounds say.
    fn goes_element_by_element(&self, op: Op) -> bool {
        self.op(op).has(Traits::ELEMENTWISE)
            || matches!(self.class(op), Class::Reindex | Class::Reduce)
            || self.op(op).is(op::core::IOTA)
    }

    /// Whether a group reads what `op` computes as it lies, and transposed too: one of the two would be across memory.
    fn is_read_both_ways(&self, op: Op, group: &Group) -> bool {
        let uses = self.body.results(op).flat_map(|result| self.body.uses(result));
        let users: FxHashSet<Op> = uses.map(|(user, _)| user).filter(|user| group.ops.contains(user)).collect();
        let turned = users.iter().filter(|&&user| self.turns_rows(user)).count();
        turned > 0 && turned < users.len()
    }

    /// Whether an operation of a group gathers elements of what lies in memory.
    fn looks_up(&self, group: &Group, op: Op) -> bool {
        let stored = |table: Value| self.body.defining_op(table).is_none_or(|from| !group.ops.contains(&from));
        self.op(op).is(op::core::GATHER) && stored(self.body.operand(op, 0))
    }

    /// One of the groups, elementwise over as many elements or reducing the rows that `op` finishes, that stores a small result of it for the others beside
    /// its own: a kernel less to start, which is all that such a one costs, and a mean's rows are read once with their variance.
    pub(super) fn beside(&self, groups: &[usize], op: Op) -> Option<usize> {
        let shape = self.body.ty(self.body.result(op, 0)).shape();
        if most_elements(&shape, self.symbols) > self.options.costs.stored || !self.goes_element_by_element(op) {
            return None;
        }
        let fits = |&&group: &&usize| {
            let target = &self.groups[group];
            let plain = target.anchor.is_none() && target.ops.iter().all(|&o| self.goes_element_by_element(o));
            let finishes = || target.row == self.facts.finished_row(self.body, op) && self.only_reduces(group);
            let alike = || self.outputs(group).iter().all(|&v| self.body.ty(v).shape() == shape);
            let apart = || self.is_far(group, op) || self.lies_between(group, op);
            (plain || finishes()) && alike() && self.check(group, op, true).is_ok() && !apart()
        };
        groups.iter().find(fits).copied()
    }

    /// Makes one group of those that reduce the same rows and read an operand of these in common, as a normalization's gradients of its scale and its shift,
    /// or a maximum and where it is: the operand is read once then.
    pub(super) fn join_reductions(&mut self) {
        let all: Vec<usize> = (0..self.groups.len()).filter(|&group| self.only_reduces(group)).collect();
        for (i, &other) in all.iter().enumerate() {
            let into = all[..i].iter().copied().find(|&into| self.reads_in_common(into, other));
            if let Some(into) = into.filter(|&into| self.may_reduce_with(into, other)) {
                let taken = std::mem::take(&mut self.groups[other]);
                self.of.extend(taken.ops.iter().map(|&op| (op, into)));
                self.groups[into] = Group::of_all(&[&self.groups[into], &taken]).expect("was checked");
            }
        }
    }

    /// Whether all that a group does is to reduce what it reads as it lies, and to finish the results.
    fn only_reduces(&self, group: usize) -> bool {
        let target = &self.groups[group];
        let Some((shape, dims)) = target.row.as_ref().filter(|_| target.anchor == Some(Class::Reduce)) else {
            return false;
        };
        let rows: Vec<Dim> = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
        target.ops.iter().all(|&o| self.goes_element_by_element(o) && !self.turns_rows(o))
            && self.outputs(group).iter().all(|&v| self.body.ty(v).shape().as_slice() == rows)
    }

    /// Whether groups reduce the same rows, and read an operand of their size that neither computes.
    fn reads_in_common(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|group| &self.groups[group]);
        let Some((shape, _)) = a.row.as_ref().filter(|_| a.row == b.row) else { return false };
        let elements = most_elements(shape, self.symbols);
        let outside = |group: &Group, v: Value| self.body.defining_op(v).is_none_or(|def| !group.ops.contains(&def));
        let large = |v: &Value| most_elements(&self.body.ty(*v).shape(), self.symbols) == elements;
        let read: FxHashSet<Value> = a.ops.iter().flat_map(|&o| self.body.operands(o)).filter(large).collect();
        let mut others = b.ops.iter().flat_map(|&o| self.body.operands(o));
        others.any(|v| read.contains(&v) && outside(a, v) && outside(b, v))
    }

    /// Whether one kernel may have the reductions of both groups, of which neither follows from the other.
    fn may_reduce_with(&mut self, into: usize, other: usize) -> bool {
        let Some(all) = Group::of_all(&[&self.groups[into], &self.groups[other]]) else { return false };
        let follows = |a: usize, b: usize| {
            let made = |v: Value| self.body.defining_op(v).is_some_and(|def| self.groups[a].ops.contains(&def));
            self.groups[b].ops.iter().any(|&o| self.body.operands(o).any(made))
        };
        let ends: Vec<u32> = all.ops.iter().map(|&o| self.order.number(o)).collect();
        let far = ends.iter().max() > ends.iter().min().map(|first| first + REACH).as_ref();
        let Some(&op) = all.ops.iter().next() else { return false };
        if all.quarters() > 4 * self.options.max_ops || far || follows(into, other) || follows(other, into) {
            return false;
        }
        let before = std::mem::replace(&mut self.groups[into], all);
        let between = self.lies_between(into, op);
        self.groups[into] = before;
        !between
    }

    fn check_merged(&self, group: usize, op: Op, escapes: bool) -> Result<(), String> {
        let outputs = self.outputs(group);
        if !self.fit_together(&outputs) {
            return Err("their results have different shapes".into());
        }
        for &reduce in self.groups[group].ops.iter().filter(|&&o| self.class(o) == Class::Reduce) {
            self.check_reduce(&self.groups[group], reduce, &outputs)?;
        }
        self.check(group, op, escapes)?;
        if self.is_far(group, op) || self.lies_between(group, op) {
            return Err("another kernel lies between them".into());
        }
        Ok(())
    }

    /// Whether results are of one shape, or some of them have one element for each row of the others and finish reductions of these rows.
    fn fit_together(&self, outputs: &[Value]) -> bool {
        let shape = |v: Value| self.body.ty(v).shape();
        let Some(full) = outputs.iter().map(|&v| shape(v)).max_by_key(|s| most_elements(s, self.symbols)) else {
            return false;
        };
        let mut others = outputs.iter().filter(|&&v| shape(v) != full);
        others.all(|&v| self.body.defining_op(v).is_some_and(|op| self.finishes_rows(op, &shape(v), &full)))
    }

    /// Whether `op` has an element for each row of a tensor, and is computed from reductions of these rows.
    pub(super) fn finishes_rows(&self, op: Op, rows: &[Dim], full: &[Dim]) -> bool {
        let of_rows = |op: Op| self.body.ty(self.body.result(op, 0)).shape().as_slice() == rows;
        let mut seen = FxHashSet::default();
        let mut stack = vec![op];
        while let Some(op) = stack.pop() {
            if self.reduces_rows(op, rows, full) {
                return true;
            }
            if self.op(op).has(Traits::ELEMENTWISE) || self.class(op) == Class::Reindex {
                let makers = self.body.operands(op).filter_map(|v| self.body.defining_op(v));
                stack.extend(makers.filter(|&from| of_rows(from) && seen.insert(from)));
            }
        }
        false
    }

    fn reduces_rows(&self, op: Op, rows: &[Dim], full: &[Dim]) -> bool {
        if self.op(op).def().and_then(|d| d.interface::<Reduction>()).is_none() || self.class(op) != Class::Reduce {
            return false;
        }
        let shape = self.body.ty(self.body.operand(op, 0)).shape();
        let together = |dims: &[usize]| dims.iter().all(|&d| d >= rows.len()) || self.holds_rows(&shape, rows, dims);
        shape.as_slice() == full
            && self.body.ty(self.body.result(op, 0)).shape().as_slice() == rows
            && reduced_dims(self.op(op)).is_some_and(|dims| together(&dims))
    }

    /// Whether a kernel outside of the group uses a result of it, or of `op`, and gives it one of its operands: neither could come first.
    pub(super) fn lies_between(&self, group: usize, op: Op) -> bool {
        let members = &self.groups[group].ops;
        let inside = |o: &Op| *o == op || members.contains(o);
        let last = members.iter().map(|&o| self.order.number(o)).max().unwrap_or(0);
        let mut seen = FxHashSet::default();
        let mut stack: Vec<Op> = members.iter().copied().chain([op]).flat_map(|o| self.users(o)).collect();
        stack.retain(|o| !inside(o));
        while let Some(user) = stack.pop() {
            if !seen.insert(user) {
                continue;
            }
            let alone = || vec![user];
            let whole = self.kernel_of(user).map_or_else(alone, |g| self.groups[g].ops.iter().copied().collect());
            seen.extend(&whole);
            // Results of a kernel are at most that far apart, and a way back takes many such kernels.
            if whole.iter().all(|&o| self.order.number(o) > last + 8 * REACH) {
                continue;
            }
            for next in whole.iter().flat_map(|&o| self.users(o)) {
                if inside(&next) {
                    return true;
                }
                if !seen.contains(&next) {
                    stack.push(next);
                }
            }
        }
        false
    }

    /// Whether `op` is further from the group's last operation than a result of it may be.
    pub(super) fn is_far(&self, group: usize, op: Op) -> bool {
        let last = self.groups[group].ops.iter().map(|&o| self.order.number(o)).max().unwrap_or(0);
        last - self.order.number(op) > REACH
    }

    /// The group that an operation becomes a kernel with; views become none.
    fn kernel_of(&self, op: Op) -> Option<usize> {
        let group = *self.of.get(&op)?;
        let views = self.groups[group].ops.iter().all(|&o| is_view(self.op(o)));
        (!views).then_some(group)
    }

    /// The operations of the block that use an operation's results, in their regions too.
    fn users(&self, op: Op) -> Vec<Op> {
        let block = self.body.parent(op);
        let users = self.body.results(op).flat_map(|r| self.body.uses(r).map(|u| u.0).collect::<Vec<_>>());
        users.map(|user| at_level(self.body, user, block)).collect()
    }
}

/// How far apart, in operations, a value's uses may be for their kernels to become one.
const REACH: u32 = 256;

fn at_level(body: &Body, op: Op, block: Option<rc_ir::Block>) -> Op {
    let mut op = op;
    while body.parent(op) != block {
        let Some(outer) = body.parent_op(op) else { break };
        op = outer;
    }
    op
}

/// Brings the operations of a block into an order in which each comes after what it uses, with as little moved as that takes.
pub fn restore_order(body: &mut Body, block: rc_ir::Block) {
    let ops: Vec<Op> = body.ops(block).collect();
    let mut place = vec![u32::MAX; body.op_capacity()];
    ops.iter().enumerate().for_each(|(i, op)| place[op.index()] = i as u32);
    let needs: Vec<Vec<u32>> = ops.iter().enumerate().map(|(i, &op)| needs(body, block, op, i, &ops, &place)).collect();
    if needs.iter().enumerate().all(|(i, needs)| needs.iter().all(|&n| (n as usize) < i)) {
        return;
    }
    let (mut done, mut begun) = (vec![false; ops.len()], vec![false; ops.len()]);
    for first in 0..ops.len() {
        let mut stack = vec![(first, 0)];
        while let Some((i, next)) = stack.pop() {
            if done[i] {
                continue;
            }
            match needs[i][next..].iter().position(|&n| !done[n as usize]) {
                Some(at) => {
                    let need = needs[i][next + at] as usize;
                    begun[i] = true;
                    assert!(!begun[need] || done[need], "fusions need one another");
                    stack.push((i, next + at));
                    stack.push((need, 0));
                }
                None => {
                    done[i] = true;
                    body.move_to_end(block, ops[i]);
                }
            }
        }
    }
}

/// The places of what an operation has to come after: what makes its operands and those of its regions; for one with effects the one before it.
fn needs(body: &Body, block: rc_ir::Block, op: Op, at: usize, ops: &[Op], place: &[u32]) -> Vec<u32> {
    let mut needs = Vec::new();
    let mut stack = vec![op];
    while let Some(inner) = stack.pop() {
        let makers = body.operands(inner).filter_map(|v| body.defining_op(v));
        needs.extend(makers.map(|m| place[m.index()]).filter(|&p| p != u32::MAX));
        for region in body.regions(inner) {
            stack.extend(body.blocks(region).flat_map(|b| body.ops(b).collect::<Vec<_>>()));
        }
    }
    let acts = |op: Op| !rc_ir::effects::is_pure(body, op);
    if body.op_ref(op).has(Traits::TERMINATOR) {
        needs.extend(0..at as u32);
    } else if acts(op) {
        needs.extend(ops[..at].iter().rposition(|&before| acts(before)).map(|p| p as u32));
    }
    debug_assert_eq!(body.parent(op), Some(block));
    needs
}
