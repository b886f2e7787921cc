//! On a CPU, the order of what a thread computes: a few registers of a result as far as memory, side by side, then the next ones. Operations on tiles become those
//! of all registers one after the other, in which many results wait for their next operation, and more than there are registers of vectors spill. Each register
//! for itself waits for each of its operations.

use rc_dialects::op;
use rc_ir::effects::is_pure;
use rc_ir::{Block, Body, Op};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// Registers of results at most that are all computed side by side. Mish of 100 x 333 elements on a thread of a Zen 5, AVX-512: 32 µs with one, 20 with four, 15 with
/// eight; AVX2: 61, 44, 44.
const MOST: usize = 8;
/// Of more, as a product's sums, which take most registers themselves.
const FEW: usize = 2;

/// Where a block computes and writes without reading in between: what a few writes need, and none before them did, is computed side by side right before them.
pub fn compute_before_writes(body: &mut Body) {
    let ops = body.walk();
    let blocks: Vec<Block> = ops.iter().flat_map(|&op| body.regions(op)).flat_map(|r| body.blocks(r)).collect();
    for block in blocks {
        let ops: Vec<Op> = body.ops(block).collect();
        let last = *ops.last().expect("a block of a kernel ends with an operation");
        let moves =
            |op: &Op| *op != last && (is_write(body, *op) || body.regions(*op).is_empty() && is_pure(body, *op));
        let runs: Vec<&[Op]> = ops.chunk_by(|a, b| moves(a) && moves(b)).collect();
        let several = |run: &&[Op]| run.iter().filter(|&&op| is_write(body, op)).count() > 1;
        let runs: Vec<&[Op]> = runs.into_iter().filter(several).collect();
        runs.into_iter().for_each(|run| order(body, run));
    }
}

fn is_write(body: &Body, op: Op) -> bool {
    body.name(op) == op::kernel::WRITE
}

/// Orders a run of operations that is not the end of its block.
fn order(body: &mut Body, run: &[Op]) {
    let after = body.next_op(run[run.len() - 1]).expect("an operation ends the block");
    let mut left: FxHashSet<Op> = run.iter().copied().collect();
    let (writes, rest): (Vec<Op>, Vec<Op>) = run.iter().partition(|&&op| is_write(body, op));
    let together = match writes.len() {
        _ if run.iter().any(|&op| is_by_lane(body, op)) => 1,
        ..=MOST => MOST,
        _ => FEW,
    };
    for writes in writes.chunks(together) {
        let chains = writes.iter().map(|&op| needed(body, op, &mut left)).collect();
        side_by_side(body, chains, after);
    }
    // What no write needs comes behind them, with what it needs.
    for op in rest {
        for needed in needed(body, op, &mut left) {
            body.move_before(after, needed);
        }
    }
}

/// Whether an operation moves lanes, or is computed lane by lane, as a division of integers. With such, chains side by side take longer: sums along rows a tenth,
/// divisions a third.
fn is_by_lane(body: &Body, op: Op) -> bool {
    let name = body.name(op);
    let divides = || {
        let ty = body.ty(body.result(op, 0));
        ty.is_vector() && !ty.elem().is_float()
    };
    match name.as_str() {
        op::kernel::PERMUTE | op::kernel::EXTRACT | op::kernel::INSERT => true,
        op::core::DIV | op::core::REM => divides(),
        _ => false,
    }
}

/// Puts chains of operations that end with a write each before `after`: one operation of each in turn, once all that it needs is there. The writes keep their order.
fn side_by_side(body: &mut Body, mut chains: Vec<VecDeque<Op>>, after: Op) {
    let mut waiting: FxHashSet<Op> = chains.iter().flatten().copied().collect();
    while !waiting.is_empty() {
        let mut first = true;
        for chain in &mut chains {
            let Some(&op) = chain.front() else { continue };
            let waits = body.operands(op).filter_map(|value| body.defining_op(value)).any(|op| waiting.contains(&op));
            if !waits && (first || !is_write(body, op)) {
                body.move_before(after, op);
                chain.pop_front();
                waiting.remove(&op);
            }
            first &= chain.is_empty();
        }
    }
}

/// Takes out of `left` an operation and all that it needs of these: what is needed first is first.
fn needed(body: &Body, op: Op, left: &mut FxHashSet<Op>) -> VecDeque<Op> {
    let (mut out, mut open) = (VecDeque::new(), vec![(op, false)]);
    while let Some((op, computable)) = open.pop() {
        if computable {
            out.push_back(op);
        } else if left.remove(&op) {
            open.push((op, true));
            let operands: Vec<Op> = body.operands(op).filter_map(|value| body.defining_op(value)).collect();
            open.extend(operands.into_iter().rev().map(|op| (op, false)));
        }
    }
    out
}
