//! The order in which a planned function's operations run here: each as late as `after` lets it, so that a launch that should have waited for
//! another one is seen.

use rc_dialects::op;
use rc_ir::{Block, Body, Op, Traits};

/// The operations of a block: views, constants and asserts, then the others, always the last one in the text of those that wait for nothing more.
pub fn latest_first(body: &Body, entry: Block) -> Vec<Op> {
    let at = |op: Op| body.op_ref(op);
    let placed = |op: Op| [op::host::VIEW, op::host::CONSTANT, op::host::ASSERT].iter().any(|name| at(op).is(name));
    let (mut order, others): (Vec<Op>, Vec<Op>) =
        body.ops(entry).filter(|&op| !at(op).has(Traits::TERMINATOR)).partition(|&op| placed(op));
    let waits: Vec<Vec<usize>> = (0..others.len()).map(|i| waits(body, &others, i)).collect();
    let mut done = vec![false; others.len()];
    while let Some(next) = (0..others.len()).rev().find(|&i| !done[i] && waits[i].iter().all(|&j| done[j])) {
        done[next] = true;
        order.push(others[next]);
    }
    order
}

/// Which of the operations before it one waits for. What counts launches back has launches alone on its way.
fn waits(body: &Body, ops: &[Op], i: usize) -> Vec<usize> {
    match body.op_ref(ops[i]).ints("after") {
        Some(distances) => distances.iter().filter_map(|&d| i.checked_sub(d as usize)).collect(),
        None => (0..i).collect(),
    }
}
