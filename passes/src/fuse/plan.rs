//! Which operations go together. One pass in reverse order: each producer joins the group of its users, if
//! it has one group of users and a rule allows it; otherwise it starts a group of its own.

use super::classify::{Class, classify};
use super::ops::{Ops, Row, row_of};
use super::padding::{is_read_in_place, padding_value, pads_windows, pads_with_zeros, stays_outside};
use super::reads::{
    Read, Scope, Space, index_dims, is_affine, is_panelled, is_projection, most_elements, tensor_bytes,
};
use super::recompute::{is_light_on_less, is_long};
use super::{FuseOptions, Order, is_view};
use crate::layout::attention::settling;
use crate::schedule::access::Access;
use crate::work::is_function;
use rc_dialects::core::dot::PRECISION;
use rc_dialects::interfaces::Contraction;
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::{Block, Body, Diagnostic, Dim, Op, OpRef, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Operations that become one kernel.
#[derive(Default, Debug)]
pub struct Group {
    pub ops: FxHashSet<Op>,
    /// Its operations in quarters, as [`Fact`](super::ops::Fact) counts them.
    quarters: usize,
    /// Reached through an operand of a product or of attention: may only move or convert elements.
    operand_side: FxHashSet<Op>,
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
const LONG: i64 = 16384;

impl Planner<'_> {
    pub(super) fn op(&self, op: Op) -> OpRef<'_> {
        self.body.op_ref(op)
    }

    pub(super) fn class(&self, op: Op) -> Class {
        self.facts.get(op).map_or_else(|| classify(self.op(op)), |fact| fact.class)
    }
    fn is_cheap(&self, op: Op) -> bool {
        self.facts.get(op).is_some_and(|fact| fact.cheap)
    }
    /// Whether it is computed from a product, element by element.
    fn follows_product(&self, op: Op) -> bool {
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

    fn row_of(&self, op: Op, class: Class) -> Option<Row> {
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

    pub(super) fn check(&self, group: usize, op: Op, escapes: bool) -> Result<(), String> {
        let (target, class) = (&self.groups[group], self.class(op));
        if target.anchor == Some(Class::Alone) && !self.is_update(group, op) {
            return Err("its user is a kernel of its own".into());
        }
        if target.quarters >= 4 * self.options.max_ops {
            return Err(format!("the kernel has the most operations allowed, {}", self.options.max_ops));
        }
        if self.is_table(group, op) {
            return Err("a gathered table has to lie in memory".into());
        }
        let outputs = self.outputs(group);
        if escapes && class != Class::Attention && !self.may_be_result(target, op, &outputs) {
            return Err("it is also a result, of another shape than the kernel's".into());
        }
        let side = self.on_operand_side(group, op);
        let windows = side && self.gathers_windows(target, op);
        let pads = windows && pads_with_zeros(self.op(op)) && self.stays_outside(op);
        let free = self.is_cheap(op) || self.chooses_matrices(group, op) || pads;
        if side && !free {
            return Err("it would be computed again for every tile of a product".into());
        }
        if side && self.widens_for_many(target, op) {
            return Err("of so many rows, warpgroups multiply what is stored in 16 bits".into());
        }
        if side && self.turns_words(target, op) {
            return Err("warpgroups multiply words whose rows are stored along the sums".into());
        }
        if side && target.anchor == Some(Class::Attention) && class != Class::Reindex {
            return Err("attention's operands are read where they lie".into());
        }
        // An elementwise operation reads its operands where its result is read, which can be written already.
        if side || !self.op(op).has(Traits::ELEMENTWISE) {
            let found = self.reads_with(group, op, &outputs, side)?;
            let panels = self.options.panels && self.facts.get(op).is_some_and(|fact| fact.moves_constant);
            let follows = |map: &[Dim]| map == [Dim::Dynamic] || is_affine(map) || panels && is_panelled(map);
            let gathered = |r: &Read| windows && self.is_read_in_runs(r);
            let divides = found.iter().any(|r| r.through_anchor && !follows(&r.map) && !gathered(r));
            if side && divides && !self.packs_windows(target, op, &found) {
                return Err("its index map divides, which a product's operand cannot".into());
            }
        }
        let moves = [op::core::TRANSPOSE, op::core::SLICE].iter().any(|name| self.op(op).is(name));
        let keeps_zeros = moves || class == Class::Pointwise && self.is_cheap(op);
        if (self.options.gathers || target.anchor == Some(Class::Reduce))
            && !keeps_zeros
            && self.lies_under_padding(target, op)
        {
            return Err("what is padded for windows lies in memory".into());
        }
        match class {
            Class::Reduce => self.check_reduce(target, op, &outputs),
            Class::Scan => self.check_scan(target, op, &outputs),
            Class::Contract => self.check_contract(target, group, op, &outputs),
            Class::Attention => self.check_attention(target, op, &outputs),
            Class::Pointwise if self.finishes_other_rows(target, op) => {
                Err("it finishes the rows of another reduction than the kernel's".into())
            }
            Class::Pointwise if self.op(op).is(op::core::PAD) && (windows || self.pads_sums(target, op)) => Ok(()),
            Class::Pointwise
                if (self.op(op).is(op::core::PAD) || self.op(op).is(op::core::CONCAT) && !self.options.gathers)
                    && self.feeds_windows(target, op) =>
            {
                Err("every window would ask again which of its elements are inside".into())
            }
            Class::Pointwise if target.anchor == Some(Class::Reduce) && self.op(op).is(op::core::CONCAT) => {
                self.check_concat(target, op)
            }
            // To widen what another product rounded costs nothing where it is read.
            Class::Pointwise
                if target.anchor == Some(Class::Contract)
                    && !side
                    && !self.is_cheap(op)
                    && self.follows_product(op) =>
            {
                Err("it goes with the product that it follows".into())
            }
            Class::Pointwise
                if self.op(op).has(Traits::ELEMENTWISE) && self.only_places(target) && self.follows_product(op) =>
            {
                Err("it goes with the product that it follows, which may write into what is joined or padded".into())
            }
            Class::Pointwise if self.ends_moved_product(target, op) => {
                Err("it goes with the product that it follows, whose narrow elements are moved then".into())
            }
            Class::Pointwise if self.finishes_long_columns(target, op) => {
                Err("it finishes a sum over columns, and would be computed again for each of their elements".into())
            }
            Class::Pointwise if self.op(op).has(Traits::ELEMENTWISE) && !self.is_cheap(op) => {
                self.check_again(target, op, &outputs)?;
                self.check_windows(target, op, &outputs)
            }
            Class::Reindex if !side && self.turns_rows(op) => self.check_repeated(target, op, &outputs),
            _ => Ok(()),
        }
    }

    /// Whether what `op` computes can be stored beside the kernel's results: of their shape, or one element for each of the rows that it reduces.
    fn may_be_result(&self, target: &Group, op: Op, outputs: &[Value]) -> bool {
        let shape = |v: Value| self.body.ty(v).shape();
        let own = shape(self.body.result(op, 0));
        let other = outputs.iter().map(|&v| shape(v)).find(|s| *s != own);
        let Some(full) = other else { return true };
        let reduces = matches!(target.anchor, None | Some(Class::Reduce));
        reduces && outputs.iter().all(|&v| shape(v) == own || shape(v) == full) && self.finishes_rows(op, &own, &full)
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

    /// Whether the group reads the result, moved at most, through windows that overlap.
    fn feeds_windows(&self, target: &Group, op: Op) -> bool {
        self.feeds(target, op, &|user| user.is(op::core::WINDOW) && overlaps(user))
    }

    /// Whether each element of the result is computed from a reduction of rows of its own, where the group reduces others: with
    /// that reduction it makes one kernel, here it would hold reductions of the same rows apart. Windows are no rows that others reduce.
    fn finishes_other_rows(&self, target: &Group, op: Op) -> bool {
        let finished = || self.facts.finished_row(self.body, op);
        target.row.as_ref().is_some_and(|row| finished().is_some_and(|found| found != *row))
    }

    /// Overlapping windows would compute each element again for every one of them.
    fn check_windows(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        let moves = |o: &Op| !self.op(*o).has(Traits::ELEMENTWISE) && self.class(*o) != Class::Reduce;
        if !self.scope(target, None).after(op).iter().any(moves) {
            return Ok(());
        }
        match self.times_read(target, op, outputs, |r| !is_projection(&r.map))? {
            n if n >= self.options.costs.times && !self.may_be_repeated(op, n) => {
                Err(format!("it would be computed {n:.0} times for each element"))
            }
            n if n > 1.5 && self.follows_product(op) => Err("it goes with the product that it follows".into()),
            _ => self.check_neighbours(target, op, outputs),
        }
    }

    /// Several steps of a stencil in one kernel would compute each element again for every neighbour's neighbour.
    fn check_neighbours(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        let elements = |shape: &[Dim]| most_elements(shape, self.symbols) as f64;
        let own = elements(&self.body.ty(self.body.result(op, 0)).shape()).max(1.0);
        let found = self.reads_of(target, op, outputs)?;
        // A place that some results read counts as these do, one that is read for many as one.
        let part = |read: &Read| (elements(&read.space) / own).min(1.0);
        let maps: FxHashMap<&[Dim], f64> = found.iter().map(|read| (read.map.as_slice(), part(read))).collect();
        match maps.values().sum::<f64>() {
            n if n >= 2.0 * self.options.costs.times => {
                Err(format!("it would be computed for {n:.0} neighbours of each element"))
            }
            _ => Ok(()),
        }
    }

    /// An elementary function of what is broadcast, or many operations, take a CPU longer to compute again than to read: its arithmetic does not wait for
    /// memory. What finishes rows that the kernel reduces stays with them.
    fn check_again(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        let costs = &self.options.costs;
        let fact = self.facts.get(op).filter(|fact| !fact.follows_product);
        let Some(fact) = fact.filter(|_| !self.options.gathers && self.facts.finished_row(self.body, op).is_none())
        else {
            return Ok(());
        };
        let what = match fact.function {
            true => "an elementary function",
            false if is_long(self.body, op, costs.again as usize) => "what takes many operations",
            false => return Ok(()),
        };
        let times = self.times_read(target, op, outputs, |_| true)?;
        let own = most_elements(&self.body.ty(self.body.result(op, 0)).shape(), self.symbols) as f64;
        match times >= costs.times && (times - 1.0) * own > costs.stored as f64 {
            true => Err(format!("{what} would be computed {times:.0} times for each element")),
            false => Ok(()),
        }
    }

    /// Whether a division or a function of what columns are reduced to, which are too long to stay on a core, meets their elements again in the kernel: there
    /// it would be computed in each thread, with the reduction once.
    fn finishes_long_columns(&self, target: &Group, op: Op) -> bool {
        let at = self.op(op);
        let slow = at.is(op::core::DIV) || at.is(op::core::SQRT) || is_function(at);
        let row = self.facts.finished_row(self.body, op).filter(|_| slow && self.options.gathers);
        let own = most_elements(&self.body.ty(self.body.result(op, 0)).shape(), self.symbols);
        let columns = |(shape, dims): &Row| {
            !dims.contains(&(shape.len() - 1)) && most_elements(shape, self.symbols) / own.max(1) >= LONG
        };
        target.anchor.is_none()
            && row.as_ref().is_some_and(columns)
            && target
                .ops
                .iter()
                .any(|&o| self.body.results(o).any(|v| most_elements(&self.body.ty(v).shape(), self.symbols) > own))
    }

    /// Whether to compute it `times` for each element costs less than to read more: light arithmetic on much less than its result, as a gradient of a
    /// weighted sum of windows; or than a kernel of its own, for a few elements.
    fn may_be_repeated(&self, op: Op, times: f64) -> bool {
        let costs = &self.options.costs;
        let light = || is_light_on_less(self.body, op, self.symbols, costs);
        let own = most_elements(&self.body.ty(self.body.result(op, 0)).shape(), self.symbols) as f64;
        let few = times * own <= costs.repeated as f64 && self.facts.get(op).is_some_and(|fact| !fact.function);
        let short = || !is_long(self.body, op, costs.again as usize);
        self.options.gathers && times <= REPEATED * costs.times && light() || few && short()
    }

    /// Every nest of the kernel that reads a concatenation computes each of its parts, and chooses one.
    fn check_concat(&self, target: &Group, op: Op) -> Result<(), String> {
        let nests = 1 + target.ops.iter().filter(|&&op| self.class(op) == Class::Reduce).count();
        match self.op(op).operands().len() * nests {
            n if n as i64 > self.options.costs.choices => Err(format!("each element would be chosen among {n} parts")),
            _ => Ok(()),
        }
    }

    /// Whether the kernel does nothing but concatenate or, on a CPU, pad rows: what it places may then be computed in its memory.
    fn only_places(&self, target: &Group) -> bool {
        let places = |op: &Op| self.op(*op).is(op::core::CONCAT) || self.pads_rows(*op);
        let (placing, others): (Vec<Op>, Vec<Op>) = target.ops.iter().partition(|&op| places(op));
        placing.len() == 1 && others.iter().all(|&op| self.op(op).is(op::core::RESHAPE))
    }

    fn pads_rows(&self, op: Op) -> bool {
        let last = |name| self.op(op).attr(name)?.as_shape()?.last().copied();
        !self.options.gathers
            && self.op(op).is(op::core::PAD)
            && [last("low"), last("high")] == [Some(Dim::Static(0)); 2]
    }

    pub(super) fn scope<'s>(&'s self, target: &'s Group, also: Option<Op>) -> Scope<'s> {
        Scope { body: self.body, facts: &self.facts, group: &target.ops, also }
    }

    /// Reads by the group with `op`: all, or none where only maps that cannot be written are asked for.
    fn reads_with(&self, group: usize, op: Op, outputs: &[Value], all: bool) -> Result<Vec<Read>, String> {
        let scope = self.scope(&self.groups[group], Some(op));
        let found = scope.reads(if all { None } else { Some(op) }, outputs, self.symbols);
        found.ok_or_else(|| "an index map cannot be written".to_string())
    }

    /// Reads of `op`'s result by the group as it is.
    fn reads_of(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<Vec<Read>, String> {
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

    /// A scan whose prefixes a program holds joins what reads each of them at its own place, and reduces or scans the same rows if any.
    fn check_scan(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        let row = self.row_of(op, Class::Scan).ok_or("a scan of long rows is a kernel of its own")?;
        match target.anchor {
            None | Some(Class::Reduce | Class::Scan) => {}
            _ => return Err("a product's tiles do not hold whole rows".into()),
        }
        if target.anchor.is_some() && target.row.as_ref() != Some(&row) {
            return Err("the kernel reduces other rows".into());
        }
        let (shape, dims) = &row;
        let rows: Vec<Dim> = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
        let fits = |v: &Value| [shape, &rows].contains(&&self.body.ty(*v).shape().to_vec());
        if !outputs.iter().all(fits) {
            return Err("the kernel's results are neither of the scanned shape nor of the rows' shape".into());
        }
        let own = Space::new(shape, self.symbols).identity();
        match self.reads_of(target, op, outputs)?.iter().all(|read| read.space == *shape && read.map == own) {
            true => Ok(()),
            false => Err("its elements are read at other places than their own".into()),
        }
    }

    /// Whether a GPU's programs have whole rows, which `dims` of `shape` are reduced to, so that what finishes them may be stored beside what is computed of their
    /// elements, wherever these lie: rows that fit a program, and enough of them; columns that are held whole.
    pub(super) fn holds_rows(&self, shape: &[Dim], rows: &[Dim], dims: &[usize]) -> bool {
        let (count, all) = (most_elements(rows, self.symbols), most_elements(shape, self.symbols));
        let (longest, fewest) = if dims.contains(&(shape.len() - 1)) { (LONG, 32) } else { (2048, 4096) };
        self.options.gathers && shape.iter().all(|d| d.is_static()) && count >= fewest && all / count <= longest
    }

    /// A product takes an epilogue that reads each element of it at its own place.
    fn check_contract(&self, target: &Group, group: usize, op: Op, outputs: &[Value]) -> Result<(), String> {
        if target.anchor.is_some() {
            return Err("the kernel has another reduction or product".into());
        }
        let shape = self.body.ty(self.body.result(op, 0)).shape().to_vec();
        let identity = Space::new(&shape, self.symbols).identity();
        if self.only_moves(target) && outputs.len() == 1 && self.is_written_in_rows(target, op, outputs[0]) {
            return Ok(());
        }
        if outputs.iter().any(|&v| self.body.ty(v).shape().as_slice() != shape.as_slice()) {
            return Err("the kernel's results have another shape than the product".into());
        }
        let all = self.reads_of(target, op, outputs)?;
        if all.iter().any(|r| r.map != identity) {
            return Err("its elements are read at other places than their own".into());
        }
        let gathers = self.groups[group].ops.iter().any(|&o| self.op(o).is(op::core::GATHER));
        if gathers { Err("an epilogue cannot gather".into()) } else { Ok(()) }
    }

    /// Whether all that the group does is to put elements elsewhere.
    pub(super) fn only_moves(&self, target: &Group) -> bool {
        target.ops.iter().all(|&o| {
            let reindex = self.op(o).def().and_then(|d| d.interface::<rc_dialects::core::reindex::Reindex>());
            reindex.is_some_and(|r| r.target.is_some())
        })
    }

    /// Whether the group puts the rows of a product elsewhere, whole, into `end`.
    fn is_written_in_rows(&self, target: &Group, op: Op, end: Value) -> bool {
        let map = super::forward_map(self.body, self.body.result(op, 0), end, &target.ops, self.symbols);
        map.is_some_and(|(space, map)| is_projection(&map) && map.last() == space.symbols().last())
    }

    /// Attention writes through transposes and reshapes of its result, one after the other.
    fn check_attention(&self, target: &Group, op: Op, outputs: &[Value]) -> Result<(), String> {
        if !self.only_moves(target) || outputs.len() != 1 {
            return Err("attention takes no epilogue but transposes and reshapes".into());
        }
        let map = super::forward_map(self.body, self.body.result(op, 0), outputs[0], &target.ops, self.symbols);
        match map {
            Some((_, map)) if is_affine(&map) => Ok(()),
            _ => Err("the index map of its result divides".into()),
        }
    }

    /// Whether `op` widens 8 bits for a product of more rows than those are widened for within it.
    fn widens_for_many(&self, target: &Group, op: Op) -> bool {
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
    fn turns_words(&self, target: &Group, op: Op) -> bool {
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
    fn chooses_matrices(&self, group: usize, op: Op) -> bool {
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
    fn gathers_windows(&self, target: &Group, op: Op) -> bool {
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
    fn has_units(&self, product: Op) -> bool {
        let elems = || self.body.operands(product).map(|v| self.body.ty(v).elem());
        let rounds = self.op(product).str(PRECISION.name).is_some() && elems().all(|elem| elem == Type::f32());
        self.op(product).is(op::core::DOT)
            && (rounds || elems().all(|elem| [Type::bf16(), Type::f16()].contains(&elem)))
    }

    /// Whether the group reads the result, moved at most, in an operation that `wanted` is for.
    fn feeds(&self, target: &Group, op: Op, wanted: &dyn Fn(OpRef) -> bool) -> bool {
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

    /// Whether the group pads the result with zeros for a product or windows, moved at most: outside of its bounds are the zeros then.
    fn lies_under_padding(&self, target: &Group, op: Op) -> bool {
        let product = target.anchor == Some(Class::Contract);
        let zeros = |user: OpRef| pads_with_zeros(user) && (product || pads_windows(user, false));
        (product || target.anchor == Some(Class::Reduce)) && self.feeds(target, op, &zeros)
    }

    /// Whether it narrows a product's sums, which the group only moves then: a GPU's product stores the narrow elements.
    fn ends_moved_product(&self, target: &Group, op: Op) -> bool {
        let narrows = self.op(op).is(op::core::CONVERT) && !self.is_cheap(op);
        let moves = || target.ops.iter().all(|&o| self.class(o) == Class::Reindex);
        self.options.gathers && target.anchor.is_none() && narrows && self.follows_product(op) && moves()
    }

    /// Whether it is a padding of windows that the group adds, or takes the extremes of: a GPU reads zeros, or another element of the same
    /// window, instead of what is outside. So does a CPU where whole vectors are padding, and not many steps of a tile of windows have any.
    fn pads_sums(&self, target: &Group, op: Op) -> bool {
        let mut reductions = target.ops.iter().filter(|&&o| self.class(o) == Class::Reduce);
        let mut all = |kinds: &[&str]| {
            target.anchor == Some(Class::Reduce)
                && (self.options.gathers || kinds == ["add"] && self.is_read_in_place(op))
                && reductions.all(|&o| self.op(o).str("kind").is_some_and(|kind| kinds.contains(&kind)))
        };
        match padding_value(self.op(op)) {
            Some(0.0) => pads_windows(self.op(op), false) && all(&["add"]) && self.stays_outside(op),
            Some(f64::NEG_INFINITY) => pads_windows(self.op(op), true) && all(&["max", "argmax"]),
            _ => false,
        }
    }

    /// Whether what is outside of a padded value is outside of the memory that it would be moved from. A view is memory by another name, as long as
    /// no kernel has it that reads its padding.
    fn stays_outside(&self, pad: Op) -> bool {
        stays_outside(self.op(pad), &|value| self.is_memory(value))
    }

    fn is_read_in_place(&self, pad: Op) -> bool {
        is_read_in_place(self.op(pad), &|value| self.is_memory(value), self.options.padded)
    }

    /// Whether a value that is padded is memory, rather than moved and converted on the way from there.
    fn is_memory(&self, value: Value) -> bool {
        let moved = |op| self.class(op) == Class::Reindex && !(self.options.gathers && is_view(self.op(op)));
        let moves = |op| moved(op) || self.class(op) == Class::Pointwise && self.is_cheap(op);
        !self.body.defining_op(value).is_some_and(moves)
    }

    /// Whether a product's operand is read in pieces of 8 bytes or more, which a program copies to its shared memory at once, if it or one of
    /// those that it is moved from lies in memory. Windows do not.
    fn is_read_in_runs(&self, read: &Read) -> bool {
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
    fn packs_windows(&self, target: &Group, op: Op, found: &[Read]) -> bool {
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

    /// Whether the group gathers from a result of `op`.
    fn is_table(&self, group: usize, op: Op) -> bool {
        self.uses_in(group, op).any(|(user, i)| i == 0 && self.op(user).is(op::core::GATHER))
    }

    /// Whether `op` feeds an operand of the group's product or attention.
    fn on_operand_side(&self, group: usize, op: Op) -> bool {
        let target = &self.groups[group];
        self.uses_in(group, op).any(|(user, _)| {
            target.operand_side.contains(&user) || matches!(self.class(user), Class::Contract | Class::Attention)
        })
    }

    /// The uses of an operation's results by a group.
    fn uses_in(&self, group: usize, op: Op) -> impl Iterator<Item = (Op, usize)> {
        let ops = &self.groups[group].ops;
        let uses = self.body.results(op).flat_map(|r| self.body.uses(r).collect::<Vec<_>>());
        uses.filter(|(user, _)| ops.contains(user))
    }

    /// The group's values that are used outside of it.
    pub(super) fn outputs(&self, group: usize) -> Vec<Value> {
        self.order.outputs(self.body, &self.groups[group].ops)
    }
}

/// How much oftener than other arithmetic light arithmetic on little is computed again for windows.
const REPEATED: f64 = 4.0;
