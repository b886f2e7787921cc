//! `fuse`: groups operations of `core` into `core.fusion`s, each of which becomes one kernel.
//!
//! Elementwise operations and index maps join what uses them; reductions join what reads them row by row
//! (softmax, normalization); a product takes elementwise epilogues; attention takes the index maps of its operands
//! and of its result. Everything else starts a kernel of its own, and a remark says why.

mod across;
mod again;
mod by_rows;
mod check;
mod classify;
mod excess;
mod merge;
mod operands;
mod ops;
mod outline;
pub mod padding;
mod pass;
mod plan;
pub mod reads;
mod recompute;
mod rounding;
mod scalars;
mod short;
mod sink;
mod updates;
mod weigh;

pub use classify::{Class, classify, is_cheap};
pub use merge::restore_order;
pub use ops::row_of;
pub use pass::{FUSE, OUTLINE_OPS, of_target};
pub(crate) use plan::overlaps;
pub use weigh::peak_of;

use rc_dialects::core::reindex::Reindex;
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::{Block, Body, Diagnostic, Dim, Op, OpRef, Value};
use rc_machine::{Fusion, Target};
use reads::Space;
use rustc_hash::FxHashSet;

#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Off: every operation becomes a fusion of its own.
    pub fuse: bool,
    /// The most operations in one fusion.
    pub max_ops: usize,
    /// Whether products read operands that are packed in panels, which their schedules on a CPU do.
    pub panels: bool,
    /// The side of windows plus their step up to which a CPU reads padding in place; the same where rows of lanes are padded.
    pub padded: [i64; 2],
    /// Whether products gather their operands through any index map, which their schedules on a GPU do.
    pub gathers: bool,
    /// Rows up to which a product widens an operand of 8 bits itself.
    pub widened: i64,
    /// What pays on the machine.
    pub costs: Fusion,
    /// Operations whose results are stored, whatever uses them.
    pub apart: FxHashSet<Op>,
}

impl Default for FuseOptions {
    fn default() -> Self {
        let costs = Target::default().fusion;
        FuseOptions {
            fuse: true,
            max_ops: 64,
            panels: false,
            padded: [0; 2],
            gathers: false,
            widened: i64::MAX,
            costs,
            apart: FxHashSet::default(),
        }
    }
}

/// Fuses the operations of a function's blocks. Gives remarks: what was fused and what was not, and why.
pub fn fuse(body: &mut Body, options: &FuseOptions) -> Vec<Diagnostic> {
    let Some(region) = body.op_ref(body.root()).region(0) else { return Vec::new() };
    let symbols = symbol_ranges(body);
    let blocks: Vec<Block> = body.blocks(region).collect();
    let mut remarks = Vec::new();
    for block in blocks {
        if options.gathers {
            short::write_out_products(body, block);
            short::write_out(body, block);
        }
        recompute::split_cheap_ops(body, block, &symbols, &options.costs);
        if options.gathers {
            recompute::round_in_products(body, block);
            recompute::copy_paddings(body, block);
        }
        let plan = plan::plan(body, block, &symbols, options);
        remarks.extend(plan.remarks);
        // Producers come last in the plan, and their fusions first in the block.
        for group in plan.groups.iter().rev() {
            remarks.extend(outline::outline(body, &group.ops, &symbols, &plan.order));
        }
        outline::erase_dead(body, block);
        restore_order(body, block);
    }
    remarks
}

/// The ranges of the symbols that a function or kernel declares.
pub fn symbol_ranges(body: &Body) -> Ranges {
    let mut ranges = Ranges::new();
    for symbol in rc_dialects::func::symbols(body) {
        ranges.set(symbol.name, symbol.min, symbol.max);
    }
    ranges
}

/// The operations of a block by number, as they stood before any was fused.
pub struct Order(Vec<u32>);

impl Order {
    fn of(body: &Body, block: Block) -> Order {
        let mut numbers = vec![0; body.op_capacity()];
        for (number, op) in body.ops(block).enumerate() {
            numbers[op.index()] = number as u32;
        }
        Order(numbers)
    }
    fn number(&self, op: Op) -> u32 {
        self.0[op.index()]
    }
    /// Numbers a copy as what it is a copy of.
    fn add_copy(&mut self, op: Op, copy: Op) {
        self.0.resize(self.0.len().max(copy.index() + 1), 0);
        self.0[copy.index()] = self.0[op.index()];
    }
    /// A group's operations in program order.
    fn sorted(&self, ops: &FxHashSet<Op>) -> Vec<Op> {
        let mut sorted: Vec<Op> = ops.iter().copied().collect();
        sorted.sort_unstable_by_key(|op| (self.0[op.index()], op.index()));
        sorted
    }
    /// Values that operations of the group define and others use, in program order.
    fn outputs(&self, body: &Body, ops: &FxHashSet<Op>) -> Vec<Value> {
        let mut out = Vec::new();
        for op in self.sorted(ops) {
            // Attention stores its result, also where only the logarithms of its sums are read.
            let is_attention = body.name(op) == op::core::ATTENTION;
            let stored = |v| is_attention && v == body.result(op, 0) && !body.has_uses(v);
            let read = |v| body.uses(v).any(|(user, _)| !ops.contains(&user));
            out.extend(body.results(op).filter(|&v| stored(v) || read(v)));
        }
        out
    }
}

/// Follows a value forward through transposes and reshapes to `end`: the space of `from`, and the place in `end` of each of its elements.
pub fn forward_map(
    body: &Body,
    from: Value,
    end: Value,
    ops: &FxHashSet<Op>,
    symbols: &Ranges,
) -> Option<(Space, Vec<Dim>)> {
    let space = Space::new(&body.ty(from).shape(), symbols);
    let (mut value, mut map) = (from, space.identity());
    while value != end {
        let mut users = body.uses(value).filter(|(op, _)| ops.contains(op));
        let (op, _) = users.next()?;
        if users.next().is_some() {
            return None;
        }
        let target = body.name(op).def()?.interface::<Reindex>()?.target?;
        map = target(body.op_ref(op), &map, &space.ranges)?;
        value = body.result(op, 0);
    }
    Some((space, map))
}

/// Whether the op is a constant, or a number made of sizes, that fusions hold inside.
fn is_splat(body: &Body, op: Op) -> bool {
    classify(body.op_ref(op)) == Class::Splat
}

/// A reshape renames memory; alone it is no kernel.
pub(crate) fn is_view(op: OpRef) -> bool {
    op.is(op::core::RESHAPE)
}
