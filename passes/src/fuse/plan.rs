//! Which operations go together. One pass in reverse order: each producer joins the group of its users, if
//! it has one group of users and a rule allows it; otherwise it starts a group of its own.

use super::classify::{Class, classify};
use super::ops::{Ops, Row, row_of};
use super::reads::{Read, Scope, Space, most_elements, tensor_bytes};
use super::{FuseOptions, Order, is_view};
use crate::layout::attention::settling;
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::{Block, Body, Diagnostic, Dim, Op, OpRef, Traits, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Operations that become one kernel.
#[derive(Default, Debug)]
pub struct Group {
    pub ops: FxHashSet<Op>,
    /// Its operations in quarters, as [`Fact`](super::ops::Fact) counts them.
    pub(super) quarters: usize,
    /// Reached through an operand of a product or of attention: may only move or convert elements.
    pub(super) operand_side: FxHashSet<Op>,
    pub(super) anchor: Option<Class>,
    /// For groups with reductions: the shape that rows are reduced from, and along which dimensions.
    pub(super) row: Option<Row>,
}

impl Group {
    /// The union of groups; `None` if one is a kernel of another kind, or they reduce other rows.
    pub(super) fn of_all(parts: &[&Group]) -> Option<Group> {
        let mut all = Group::default();
        for part in parts {
            let joins = matches!(part.anchor, None | Some(Class::Reduce)) && part.operand_side.is_empty();
            if !joins || all.row.is_some() && part.row.is_some() && all.row != part.row {
                return None;
            }
            all.ops.extend(&part.ops);
            all.quarters += part.quarters;
            all.anchor = all.anchor.or(part.anchor);
            all.row = all.row.or_else(|| part.row.clone());
        }
        Some(all)
    }
    pub(super) fn quarters(&self) -> usize {
        self.quarters
    }
    pub(super) fn is_operand(&self, op: Op) -> bool {
        self.operand_side.contains(&op)
    }
    pub(super) fn remove(&mut self, op: Op, quarters: usize) {
        self.ops.remove(&op);
        self.quarters -= quarters;
    }
}

pub struct Plan {
    pub groups: Vec<Group>,
    pub remarks: Vec<Diagnostic>,
    pub order: Order,
}

pub(super) struct Planner<'a> {
    pub(super) body: &'a mut Body,
    pub(super) symbols: &'a Ranges,
    pub(super) order: Order,
    /// What each operation of the block is.
    pub(super) facts: Ops,
    pub(super) options: &'a FuseOptions,
    pub(super) groups: Vec<Group>,
    pub(super) of: FxHashMap<Op, usize>,
    remarks: Vec<Diagnostic>,
    /// Copies of operations that are not placed yet.
    pub(super) copies: FxHashMap<Op, Vec<Op>>,
}

/// Plans the fusions of a block. What several kernels compute each for itself is copied.
pub fn plan(body: &mut Body, block: Block, symbols: &Ranges, options: &FuseOptions) -> Plan {
    let (order, facts) = (Order::of(body, block), Ops::of(body, block));
    let (groups, remarks, of, copies) = <(Vec<Group>, Vec<Diagnostic>, FxHashMap<_, _>, FxHashMap<_, _>)>::default();
    let mut planner = Planner { body, symbols, order, facts, options, groups, of, remarks, copies };
    let ops: Vec<Op> = planner.body.ops(block).collect();
    for &op in ops.iter().rev() {
        planner.place_copies(op);
        planner.place(op, options.fuse);
    }
    if options.fuse && options.gathers {
        planner.join_reductions();
    }
    let Planner { body, mut groups, remarks, order, .. } = planner;
    groups.retain(|g| !g.ops.iter().all(|&op| is_view(body.op_ref(op))));
    Plan { groups, remarks, order }
}

/// Whether a `core.window` has an element in several windows.
pub(crate) fn overlaps(op: OpRef) -> bool {
    let sizes = op.ints("sizes").unwrap_or_default();
    let steps = |name: &str| op.ints(name).unwrap_or_else(|| vec![1; sizes.len()]);
    sizes.iter().zip(steps("strides")).zip(steps("divisors")).any(|((&size, stride), divisor)| size * divisor > stride)
}

/// Elements of a scan whose prefixes a program holds, at most; of a column a quarter.
const PREFIXES: i64 = 1024;

/// Elements of a column that is read again from memory, at least.
pub(super) const LONG: i64 = 16384;

impl Planner<'_> {
    pub(super) fn op(&self, op: Op) -> OpRef<'_> {
        self.body.op_ref(op)
    }

    pub(super) fn class(&self, op: Op) -> Class {
        self.facts.get(op).map_or_else(|| classify(self.op(op)), |fact| fact.class)
    }
    pub(super) fn is_cheap(&self, op: Op) -> bool {
        self.facts.get(op).is_some_and(|fact| fact.cheap)
    }
    /// Whether it is computed from a product, element by element.
    pub(super) fn follows_product(&self, op: Op) -> bool {
        self.facts.get(op).is_some_and(|fact| fact.follows_product)
    }

    fn place(&mut self, op: Op, fuse: bool) {
        let class = self.class(op);
        if matches!(class, Class::Outside | Class::Splat) {
            return;
        }
        let alone = class == Class::Alone || class == Class::Scan && self.row_of(op, class).is_none();
        if !fuse || alone || self.options.apart.contains(&op) {
            self.start(op, class);
            return;
        }
        match self.home(op) {
            Ok(Some(group)) => self.join(group, op, class),
            Ok(None) => self.start(op, class),
            Err(reason) => {
                let name = self.op(op).name().pretty();
                let bytes = tensor_bytes(self.body.ty(self.body.result(op, 0)), self.symbols);
                let message =
                    format!("{name} is not fused with what uses it: {reason}; its result of {bytes} bytes is stored");
                if self.take_rounding(op) {
                    self.join(self.groups.len() - 1, op, class);
                    return;
                }
                if self.compute_again(op) {
                    return;
                }
                self.remarks.push(*Diagnostic::remark(self.body.loc(op), message));
                self.start(op, class);
            }
        }
    }

    fn start(&mut self, op: Op, class: Class) {
        let group =
            Group { anchor: class.is_anchor().then_some(class), row: self.row_of(op, class), ..Group::default() };
        self.groups.push(group);
        self.add(self.groups.len() - 1, op);
    }

    pub(super) fn quarters_of(&self, op: Op) -> usize {
        self.facts.get(op).map_or(0, |fact| fact.quarters)
    }

    pub(super) fn add(&mut self, group: usize, op: Op) {
        self.groups[group].quarters += self.quarters_of(op);
        self.groups[group].ops.insert(op);
        self.of.insert(op, group);
    }

    pub(super) fn row_of(&self, op: Op, class: Class) -> Option<Row> {
        match class {
            Class::Reduce => row_of(self.body, op),
            Class::Scan => row_of(self.body, op).filter(|row| self.holds_prefixes(op, row)),
            _ => None,
        }
    }

    /// Whether a GPU's programs hold all prefixes of a scan's rows, for what is computed of them.
    fn holds_prefixes(&self, op: Op, (shape, dims): &Row) -> bool {
        let &[dim] = dims.as_slice() else { return false };
        let longest = if dim + 1 == shape.len() { PREFIXES } else { PREFIXES / 4 };
        let length = shape[dim].as_static();
        let forward = !self.op(op).bool("reverse") && self.body.result_count(op) == 1;
        self.options.gathers && forward && shape.iter().all(|d| d.is_static()) && length.is_some_and(|n| n <= longest)
    }

    pub(super) fn join(&mut self, group: usize, op: Op, class: Class) {
        let side = self.on_operand_side(group, op);
        let row = self.row_of(op, class);
        let target = &mut self.groups[group];
        if side {
            target.operand_side.insert(op);
        }
        if class.is_anchor() && target.anchor.is_none() {
            target.anchor = Some(class);
        }
        if target.row.is_none() {
            target.row = row;
        }
        self.add(group, op);
    }

    /// The group that `op` may join, made of several if need be; none where it has no users to join; an error says why not.
    pub(super) fn home(&mut self, op: Op) -> Result<Option<usize>, String> {
        if self.waits_for_attention(op) {
            return Ok(None);
        }
        if self.class(op) == Class::Attention && self.body.result_count(op) > 1 {
            return Ok(self.join_moves(&self.groups_of_results(op), op));
        }
        let (groups, escapes) = self.groups_of_users(op)?;
        // What computes does not join views: they cost nothing as they are, and read what is stored.
        let views = |&g: &usize| self.groups[g].ops.iter().all(|&user| is_view(self.op(user)));
        let kernels: Vec<usize> = groups.iter().copied().filter(|g| is_view(self.op(op)) || !views(g)).collect();
        let stored = escapes || kernels.len() < groups.len();
        match kernels.as_slice() {
            [] => Ok(None),
            &[group] => {
                self.check(group, op, stored)?;
                if stored && (self.is_far(group, op) || self.lies_between(group, op)) {
                    return Err("another kernel lies between what uses it".into());
                }
                Ok(Some(group))
            }
            _ if self.is_cheap(op) => Err(format!("{} kernels use it", kernels.len())),
            _ => self.merge(&kernels, op, stored).or_else(|why| self.beside(&kernels, op).ok_or(why)).map(Some),
        }
    }

    /// Whether it transposes one of several results of attention, which stores it so: what uses it reads whole rows then.
    fn waits_for_attention(&self, op: Op) -> bool {
        let results =
            |&from: &Op| self.body.result_count(from) > 1 && settling(self.body, self.body.operand(op, 0)) == Some(op);
        let from =
            self.op(op).is(op::core::TRANSPOSE).then(|| self.body.defining_op(self.body.operand(op, 0))).flatten();
        from.filter(results).is_some_and(|_| self.body.uses(self.body.operand(op, 0)).count() == 1)
    }

    /// The groups that use any result of `op`.
    fn groups_of_results(&self, op: Op) -> Vec<usize> {
        let users = self.body.results(op).flat_map(|result| self.body.uses(result).map(|(user, _)| user));
        let mut groups: Vec<usize> = users.filter_map(|user| self.of.get(&user).copied()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The groups of what uses `op`, and whether it is a result of the function too.
    pub(super) fn groups_of_users(&self, op: Op) -> Result<(Vec<usize>, bool), String> {
        let mut groups: Vec<usize> = Vec::new();
        let mut escapes = false;
        for result in self.body.results(op) {
            for (user, _) in self.body.uses(result) {
                match self.of.get(&user) {
                    Some(&group) if !groups.contains(&group) => groups.push(group),
                    Some(_) => {}
                    None if self.class(user) == Class::Alone => {
                        return Err("its user is a kernel of its own".into());
                    }
                    None if self.op(user).has(Traits::TERMINATOR) => escapes = true,
                    None => return Err(format!("{} uses it", self.op(user).name().pretty())),
                }
            }
        }
        groups.sort_unstable();
        Ok((groups, escapes))
    }

    /// How often the group reads each element of the result, at most, by the reads that `counts` is for.
    pub(super) fn times_read(
        &self,
        target: &Group,
        op: Op,
        outputs: &[Value],
        counts: impl Fn(&Read) -> bool,
    ) -> Result<f64, String> {
        let elements = |shape: &[Dim]| most_elements(shape, self.symbols) as f64;
        let own = elements(&self.body.ty(self.body.result(op, 0)).shape());
        let times = |read: &Read| elements(&read.space) / own.max(1.0);
        let found = self.reads_of(target, op, outputs)?;
        Ok(found.iter().filter(|r| counts(r)).map(times).fold(0.0, f64::max))
    }

    pub(super) fn scope<'s>(&'s self, target: &'s Group, also: Option<Op>) -> Scope<'s> {
        Scope { body: self.body, facts: &self.facts, group: &target.ops, also }
    }

    /// Reads by the group with `op`: all, or none where only maps that cannot be written are asked for.
    pub(super) fn reads_with(&self, group: usize, op: Op, outputs: &[Value], all: bool) -> Result<Vec<Read>, String> {
        let scope = self.scope(&self.groups[group], Some(op));
        let found = scope.reads(if all { None } else { Some(op) }, outputs, self.symbols);
        found.ok_or_else(|| "an index map cannot be written".to_string())
    }

    /// Reads of `op`'s result by the group as it is.
    pub(super) fn reads_of(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<Vec<Read>, String> {
        let found = self.scope(target, None).reads(Some(op), outputs, self.symbols);
        let found = found.ok_or("an index map cannot be written")?;
        Ok(found.into_iter().filter(|r| self.body.results(op).any(|v| v == r.value)).collect())
    }

    /// A reduction joins what reads it once for each row of the same rows.
    pub(super) fn check_reduce(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        match target.anchor {
            Some(Class::Contract | Class::Attention) => return Err("a product's tiles do not hold whole rows".into()),
            Some(Class::Scan) if target.row.is_none() => {
                return Err("a scan goes over its operand element by element".into());
            }
            _ => {}
        }
        let (shape, dims) = self.row_of(op, Class::Reduce).ok_or("its dimensions are unknown")?;
        if target.row.as_ref().is_some_and(|row| *row != (shape.clone(), dims.clone())) {
            return Err("the kernel reduces other rows".into());
        }
        let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
        let full = Space::new(&shape, self.symbols);
        let rows: Vec<Dim> = kept.iter().map(|&d| shape[d]).collect();
        let trailing = kept.iter().enumerate().all(|(n, &d)| n == d);
        let shape_of = |value: &Value| self.body.ty(*value).shape().to_vec();
        let whole_columns = !rows.is_empty() && outputs.iter().all(|v| shape_of(v) == rows);
        let on_chip = self.holds_rows(&shape, &rows, &dims);
        for value in outputs {
            let out = shape_of(value);
            if out != shape && !(out == rows && (trailing || whole_columns || on_chip)) {
                return Err("the kernel's results are neither of the reduced shape nor of the rows' shape".into());
            }
        }
        for read in self.reads_of(target, op, outputs)? {
            let of_rows = || Space::new(&rows, self.symbols).identity();
            let expected = if read.space == shape { kept.iter().map(|&d| full.index(d)).collect() } else { of_rows() };
            if (read.space != shape && read.space != rows) || read.map != expected {
                return Err("it is read across rows".into());
            }
        }
        if dims.contains(&(shape.len() - 1)) && self.reads_across_memory(target, op, &full, &dims, outputs)? {
            return Err("what else is read of its rows lies across them, which squares exchange and rows do not".into());
        }
        Ok(())
    }

    /// Whether a GPU's programs have whole rows, which `dims` of `shape` are reduced to, so that what finishes them may be stored beside what is computed of their
    /// elements, wherever these lie: rows that fit a program, and enough of them; columns that are held whole.
    pub(super) fn holds_rows(&self, shape: &[Dim], rows: &[Dim], dims: &[usize]) -> bool {
        let (count, all) = (most_elements(rows, self.symbols), most_elements(shape, self.symbols));
        let (longest, fewest) = if dims.contains(&(shape.len() - 1)) { (LONG, 32) } else { (2048, 4096) };
        self.options.gathers && shape.iter().all(|d| d.is_static()) && count >= fewest && all / count <= longest
    }

    /// Whether all that the group does is to put elements elsewhere.
    pub(super) fn only_moves(&self, target: &Group) -> bool {
        target.ops.iter().all(|&o| {
            let reindex = self.op(o).def().and_then(|d| d.interface::<rc_dialects::core::reindex::Reindex>());
            reindex.is_some_and(|r| r.target.is_some())
        })
    }

    /// The uses of an operation's results by a group.
    pub(super) fn uses_in(&self, group: usize, op: Op) -> impl Iterator<Item = (Op, usize)> {
        let ops = &self.groups[group].ops;
        let uses = self.body.results(op).flat_map(|r| self.body.uses(r).collect::<Vec<_>>());
        uses.filter(|(user, _)| ops.contains(user))
    }

    /// The group's values that are used outside of it.
    pub(super) fn outputs(&self, group: usize) -> Vec<Value> {
        self.order.outputs(self.body, &self.groups[group].ops)
    }
}
