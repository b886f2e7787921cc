//! On a CPU, the order of what a thread computes: each register of a result as far as memory, then the next one. Operations on tiles become those of all
//! registers one after the other, in which many results wait for their next operation, and more than there are registers of vectors spill.

use rc_dialects::op;
use rc_ir::effects::is_pure;
use rc_ir::{Block, Body, Op};
use rustc_hash::FxHashSet;

/// Where a block computes and writes without reading in between: what a write needs, and none before it did, is computed right before it.
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
    // What no write needs comes behind them, with what it needs.
    for op in writes.into_iter().chain(rest) {
        for needed in needed(body, op, &mut left) {
            body.move_before(after, needed);
        }
    }
}

/// Takes out of `left` an operation and all that it needs of these: what is needed first is first.
fn needed(body: &Body, op: Op, left: &mut FxHashSet<Op>) -> Vec<Op> {
    let (mut out, mut open) = (Vec::new(), vec![(op, false)]);
    while let Some((op, computable)) = open.pop() {
        if computable {
            out.push(op);
        } else if left.remove(&op) {
            open.push((op, true));
            let operands: Vec<Op> = body.operands(op).filter_map(|value| body.defining_op(value)).collect();
            open.extend(operands.into_iter().rev().map(|op| (op, false)));
        }
    }
    out
}
