//! Whether an operation may join the group of its users: the rule of each class, and why not.

use super::classify::Class;
use super::ops::Row;
use super::padding::{padding_value, pads_windows, pads_with_zeros};
use super::plan::{Group, LONG, Planner, overlaps};
use super::reads::{Read, Space, is_affine, is_panelled, is_projection, most_elements};
use super::recompute::{is_light_on_less, is_long};
use crate::work::is_function;
use rc_dialects::op;
use rc_ir::{Dim, Op, OpRef, Traits, Value};
use rustc_hash::FxHashMap;

/// How much oftener than other arithmetic light arithmetic on little is computed again for windows.
const REPEATED: f64 = 4.0;

impl Planner<'_> {
    /// Why an operation may not join a group that uses it. It `escapes` where it is a result of the function too.
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
        if side {
            self.check_operand(target, group, op, windows)?;
        }
        // An elementwise operation reads its operands where its result is read, which can be written already.
        if side || !self.op(op).has(Traits::ELEMENTWISE) {
            self.check_reads(target, group, op, &outputs, [side, windows])?;
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
            Class::Pointwise => self.check_pointwise(target, op, &outputs, [side, windows]),
            Class::Reindex if !side && self.turns_rows(op) => self.check_repeated(target, op, &outputs),
            _ => Ok(()),
        }
    }

    /// What a product, a gather or windows would compute where they read it.
    fn check_operand(&self, target: &Group, group: usize, op: Op, windows: bool) -> Result<(), String> {
        let pads = windows && pads_with_zeros(self.op(op)) && self.stays_outside(op);
        if !(self.is_cheap(op) || self.chooses_matrices(group, op) || pads) {
            return Err("it would be computed again for every tile of a product".into());
        }
        if self.widens_for_many(target, op) {
            return Err("of so many rows, warpgroups multiply what is stored in 16 bits".into());
        }
        if self.turns_words(target, op) {
            return Err("warpgroups multiply words whose rows are stored along the sums".into());
        }
        if target.anchor == Some(Class::Attention) && self.class(op) != Class::Reindex {
            return Err("attention's operands are read where they lie".into());
        }
        Ok(())
    }

    /// How what it reads would be read through it.
    fn check_reads(
        &self,
        target: &Group,
        group: usize,
        op: Op,
        outputs: &[Value],
        [side, windows]: [bool; 2],
    ) -> Result<(), String> {
        let found = self.reads_with(group, op, outputs, side)?;
        let panels = self.options.panels && self.facts.get(op).is_some_and(|fact| fact.moves_constant);
        let follows = |map: &[Dim]| map == [Dim::Dynamic] || is_affine(map) || panels && is_panelled(map);
        let gathered = |r: &Read| windows && self.is_read_in_runs(r);
        let divides = found.iter().any(|r| r.through_anchor && !follows(&r.map) && !gathered(r));
        if side && divides && !self.packs_windows(target, op, &found) {
            return Err("its index map divides, which a product's operand cannot".into());
        }
        Ok(())
    }

    fn check_pointwise(
        &self,
        target: &Group,
        op: Op,
        outputs: &[Value],
        [side, windows]: [bool; 2],
    ) -> Result<(), String> {
        let (pads, joins) = (self.op(op).is(op::core::PAD), self.op(op).is(op::core::CONCAT));
        let elementwise = self.op(op).has(Traits::ELEMENTWISE);
        let costs = !self.is_cheap(op);
        match target.anchor {
            _ if self.finishes_other_rows(target, op) => {
                Err("it finishes the rows of another reduction than the kernel's".into())
            }
            _ if pads && (windows || self.pads_sums(target, op)) => Ok(()),
            _ if (pads || joins && !self.options.gathers) && self.feeds_windows(target, op) => {
                Err("every window would ask again which of its elements are inside".into())
            }
            Some(Class::Reduce) if joins => self.check_concat(target, op),
            // To widen what another product rounded costs nothing where it is read.
            Some(Class::Contract) if !side && costs && self.follows_product(op) => {
                Err("it goes with the product that it follows".into())
            }
            _ if elementwise && self.only_places(target) && self.follows_product(op) => {
                Err("it goes with the product that it follows, which may write into what is joined or padded".into())
            }
            _ if self.ends_moved_product(target, op) => {
                Err("it goes with the product that it follows, whose narrow elements are moved then".into())
            }
            _ if self.finishes_long_columns(target, op) => {
                Err("it finishes a sum over columns, and would be computed again for each of their elements".into())
            }
            _ if elementwise && costs => {
                self.check_again(target, op, outputs)?;
                self.check_windows(target, op, outputs)
            }
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

    /// Whether the group pads the result with zeros for a product or windows, moved at most: outside of its bounds are the zeros then.
    pub(super) fn lies_under_padding(&self, target: &Group, op: Op) -> bool {
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
}
