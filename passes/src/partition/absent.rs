//! A backward function where some gradients of results are absent.

use super::split::{SAVED, keep_args};
use crate::dce::erase_unused;
use rc_dialects::{CoreBuilder, op};
use rc_ir::{Body, Builder, Op, Value};
use rustc_hash::FxHashSet;

/// Takes gradients of results away from a backward function, by their numbers: they are zero. The function is linear in all of them: what follows
/// from these alone is zero, and goes where it is added to what follows from others.
pub fn without(body: &mut Body, absent: &[usize]) {
    let entry = body.entry().expect("a function with a body");
    let arguments: Vec<Value> = body.block_args(entry).collect();
    let saved = body.attr(body.root(), SAVED).and_then(|a| a.as_ints()).map_or(0, |saved| saved.len());
    let (mut zero, mut given): (FxHashSet<Value>, FxHashSet<Value>) = (saved..arguments.len())
        .map(|i| arguments[i])
        .partition(|v| absent.iter().any(|&a| arguments[saved + a] == *v));
    let ops: Vec<Op> = body.ops(entry).collect();
    for op in ops {
        let follows = |set: &FxHashSet<Value>| body.operands(op).any(|v| set.contains(&v));
        let is_end = body.result_count(op) == 0;
        match (follows(&zero), follows(&given)) {
            (true, false) if !is_end => zero.extend(body.results(op)),
            (false, false) => {}
            (some, _) => {
                given.extend(body.results(op));
                if some {
                    drop_zeros(body, op, &zero);
                }
            }
        }
    }
    let kept: Vec<usize> = (0..arguments.len()).filter(|i| !zero.contains(&arguments[*i])).collect();
    erase_unused(body);
    keep_args(body, &kept);
}

/// An op without the operands that are zero: its other operand takes the place of a sum, constants that of others.
fn drop_zeros(body: &mut Body, op: Op, zero: &FxHashSet<Value>) {
    let at = body.op_ref(op);
    let operands: Vec<Value> = at.operands().collect();
    let other = match operands[..] {
        [a, b] if at.is(op::core::ADD) => Some(if zero.contains(&a) { b } else { a }),
        [a, b] if at.is(op::core::SUB) && zero.contains(&b) => Some(a),
        _ => None,
    };
    if let Some(other) = other {
        let sum = body.result(op, 0);
        body.replace_all_uses(sum, other);
        return;
    }
    for (i, &operand) in operands.iter().enumerate().filter(|(_, v)| zero.contains(v)) {
        let ty = body.ty(operand);
        let constant = Builder::before(body, op).splat(0.0, ty);
        body.set_operand(op, i, constant);
    }
}
