//! Loads that wait for nothing: of what follows a reduction, what is read at the program's own place is on its way while the reduction runs.

use rc_dialects::op;
use rc_dialects::op::kernel::{FOR, LOAD, REDUCE, VIEW};
use rc_ir::{Attr, Body, Op};

/// Elements of a tile that a program may hold from its start to its end.
const MOST: i64 = 64;

/// Moves small loads that come after a program's first reduction or loop before it and the loads before it, with what computes their places. They say so (`cache =
/// early`), since a code generator puts a load nearer to its use otherwise. None moves past what writes memory.
pub fn load_early(kernel: &mut Body) {
    let Some(entry) = kernel.entry() else { return };
    let ops: Vec<Op> = kernel.ops(entry).collect();
    let Some(first) = ops.iter().position(|&op| [FOR, REDUCE].contains(&kernel.name(op).as_str())) else { return };
    let reads = |op: Op| kernel.name(op) == LOAD || rc_ir::effects::is_pure(kernel, op);
    if !kernel.walk_from(ops[first]).into_iter().all(|op| op == ops[first] || reads(op)) {
        return;
    }
    let written = ops[..first].iter().rposition(|&op| !reads(op)).map_or(0, |op| op + 1);
    let load = ops[written..first].iter().position(|&op| kernel.name(op) == LOAD);
    let start = load.map_or(first, |load| written + load);
    let mut moved: Vec<Op> = Vec::new();
    for &op in ops[first + 1..].iter().take_while(|&&op| reads(op)) {
        let mut taken = moved.clone();
        if is_small_load(kernel, op) && places(kernel, op, &ops[start..], &mut taken) {
            taken.push(op);
            moved = taken;
        }
    }
    for op in moved {
        kernel.move_before(ops[start], op);
        if kernel.name(op) == LOAD {
            kernel.set_attr(op, "cache", Attr::str("early"));
        }
    }
}

fn is_small_load(kernel: &Body, op: Op) -> bool {
    let elements = |op: Op| kernel.ty(kernel.result(op, 0)).static_shape().map(|shape| shape.into_iter().product());
    kernel.name(op) == LOAD && elements(op).is_some_and(|n: i64| n <= MOST)
}

/// Adds to `moved` those of the operations `late` that an operation's operands are computed by, in order; whether they are all numbers and views.
fn places(kernel: &Body, op: Op, late: &[Op], moved: &mut Vec<Op>) -> bool {
    let makers: Vec<Op> = kernel.operands(op).filter_map(|v| kernel.defining_op(v)).collect();
    makers.into_iter().filter(|maker| late.contains(maker)).all(|maker| {
        let number = |op: Op| kernel.results(op).all(|v| kernel.ty(v).is_index()) || kernel.name(op) == VIEW;
        let plain = kernel.regions(maker).is_empty() && number(maker) && kernel.name(maker) != op::kernel::READ;
        if !moved.contains(&maker) {
            if !plain || !places(kernel, maker, late, moved) {
                return false;
            }
            moved.push(maker);
        }
        true
    })
}
