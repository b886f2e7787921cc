//! Which results of a kernel may have an operand's memory.

use rc_dialects::op;
use rc_dialects::op::kernel::{
    BROADCAST, EXTENT, FOR, GATHER, IOTA, LOAD, PROGRAM_ID, REDUCE, RETURN, STORE, VIEW, YIELD,
};
use rc_ir::{Attr, Body, Builder, Op, Traits, Value};

/// Pairs of result and input numbers: what a program loads of the input are the elements that it stores of the result later on. As programs
/// store different elements, the two may then be the same memory. `inputs`: how many arguments are inputs.
///
/// On a GPU several threads may load an element that one of them stores: where they do, they wait for one another in between.
pub fn in_place(kernel: &mut Body, inputs: usize, threads: i64) -> Vec<i64> {
    let Some(entry) = kernel.entry() else { return Vec::new() };
    let args: Vec<Value> = kernel.block_args(entry).collect();
    // Operations in a loop, of which each turn may meet the same elements, are in no order.
    let order: Vec<Op> = kernel.ops(entry).collect();
    let all: Vec<Op> = kernel.walk().into_iter().filter(|&op| op != kernel.root()).collect();
    if threads > 1 && !all.iter().all(|&op| is_known(kernel, op)) {
        return Vec::new();
    }
    let place = |op: Op| order.iter().position(|&other| other == op);
    let (inputs, outputs) = args.split_at(inputs);
    let (mut pairs, mut ordered) = (Vec::new(), Vec::new());
    for (result, &output) in outputs.iter().enumerate() {
        let [store] = accesses(kernel, output)[..] else { continue };
        let Some(end) = place(store).filter(|_| kernel.name(store) == op::kernel::STORE) else { continue };
        for (input, &arg) in inputs.iter().enumerate().filter(|(_, arg)| kernel.ty(**arg) == kernel.ty(output)) {
            let before = |&op: &Op| place(op).is_some_and(|at| at < end) && reads_as(kernel, op, store);
            if accesses(kernel, arg).iter().all(before) {
                pairs.extend([result as i64, input as i64]);
                ordered.push(store);
            }
        }
    }
    ordered.dedup();
    for store in ordered.into_iter().filter(|_| threads > 1) {
        if is_repeated(kernel, &all, store, threads) {
            Builder::before(kernel, store).op(op::kernel::BARRIER).attr("threads", Attr::i64(threads)).build();
        }
    }
    pairs
}

/// Whether an operation reads no memory but that of its operands. What a reduction gives follows from all that was loaded for it: a store that needs it comes later.
fn is_known(kernel: &Body, op: Op) -> bool {
    let known = [PROGRAM_ID, EXTENT, VIEW, LOAD, GATHER, STORE, BROADCAST, IOTA, REDUCE, FOR, YIELD, RETURN];
    match kernel.name(op).as_str() {
        name if known.contains(&name) => true,
        _ => kernel.op_ref(op).has(Traits::ELEMENTWISE) || kernel.op_ref(op).has(Traits::CONSTANT),
    }
}

/// Whether several threads may have an element of the tile that is stored: it has fewer than there are threads, or than another tile.
fn is_repeated(kernel: &Body, ops: &[Op], store: Op, threads: i64) -> bool {
    let elements = |value: Value| kernel.ty(value).static_shape().map_or(1, |shape| shape.into_iter().product::<i64>());
    let own = elements(kernel.operand(store, 0));
    let values = ops.iter().flat_map(|&op| kernel.results(op)).filter(|&v| kernel.ty(v).is_tile());
    own < threads || values.map(elements).any(|other| other > own)
}

/// What uses an argument, directly or as a view of another shape.
fn accesses(kernel: &Body, memory: Value) -> Vec<Op> {
    let view = |op: Op| kernel.name(op) == op::kernel::VIEW && kernel.operands(op).len() == 1;
    kernel
        .uses(memory)
        .flat_map(|(op, _)| if view(op) { accesses(kernel, kernel.result(op, 0)) } else { vec![op] })
        .collect()
}

/// Whether a load has the elements that a store writes.
fn reads_as(kernel: &Body, load: Op, store: Op) -> bool {
    if kernel.name(load) != op::kernel::LOAD {
        return false;
    }
    let (read, written) = (kernel.operand(load, 0), kernel.operand(store, 1));
    let mut starts = kernel.operands(load).skip(1).zip(kernel.operands(store).skip(2));
    kernel.ty(kernel.result(load, 0)) == kernel.ty(kernel.operand(store, 0))
        && kernel.ty(read) == kernel.ty(written)
        && kernel.attr(load, "dims") == kernel.attr(store, "dims")
        && starts.all(|(a, b)| are_same(kernel, a, b))
}

/// Whether two values are computed alike.
fn are_same(kernel: &Body, a: Value, b: Value) -> bool {
    let (Some(x), Some(y)) = (kernel.defining_op(a), kernel.defining_op(b)) else { return a == b };
    let alike = kernel.name(x) == kernel.name(y) && kernel.attrs(x) == kernel.attrs(y) && kernel.ty(a) == kernel.ty(b);
    let pure = rc_ir::effects::is_pure(kernel, x) && kernel.results(x).len() == 1;
    let mut operands = kernel.operands(x).zip(kernel.operands(y));
    a == b || alike && pure && operands.all(|(a, b)| are_same(kernel, a, b))
}
