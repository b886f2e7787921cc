//! Operations that are computed again where they are used, not stored: run before planning.

use super::classify::{Class, classify, is_cheap};
use super::padding::{padding_value, pads_windows};
use super::reads::{most_elements, reduced_dims, tensor_bytes};
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::{Block, Body, Op, OpRef, Traits, Type, Value};
use rc_machine::Fusion;
use rustc_hash::FxHashSet;

/// Makes a copy of each cheap operation for each of its uses, so that every group has its own. Run before planning.
/// The transpose of a product stays one: the product is written in that order.
pub fn split_cheap_ops(body: &mut Body, block: Block, symbols: &Ranges, costs: &Fusion) {
    let ops: Vec<Op> = body.ops(block).collect();
    for &op in ops.iter().rev() {
        copy_for_columns(body, op, symbols, costs);
        // Numbers are copied into each group that uses them.
        let splat = classify(body.op_ref(op)) == Class::Splat;
        let again = is_cheap(body.op_ref(op)) || is_small_mask(body, op, symbols, costs);
        if splat || !again || orders_product(body, op) {
            continue;
        }
        let result = body.result(op, 0);
        let mut users: Vec<(Op, usize)> = body.uses(result).collect();
        users.sort();
        for (user, operand) in users.into_iter().skip(1) {
            let copy = body.clone_op(op, &mut rc_ir::Mapping::new());
            body.insert_before(user, copy);
            let value = body.result(copy, 0);
            body.set_operand(user, operand, value);
        }
    }
}

/// Whether it is a small mask that follows from what lies in memory: which targets of a loss count, say.
fn is_small_mask(body: &Body, op: Op, symbols: &Ranges, costs: &Fusion) -> bool {
    let at = body.op_ref(op);
    let known = |v: Value| body.defining_op(v).is_none_or(|def| classify(body.op_ref(def)) == Class::Splat);
    at.has(Traits::ELEMENTWISE)
        && body.result_count(op) == 1
        && body.ty(body.result(op, 0)).elem() == Type::i1()
        && most_elements(&body.ty(body.result(op, 0)).shape(), symbols) <= costs.compared
        && body.operands(op).all(known)
}

/// Gives each window that is reduced to its greatest elements a padding of its own: a GPU reads the nearest element instead, where a shared one would
/// be stored.
pub fn copy_paddings(body: &mut Body, block: Block) {
    let least = |op: OpRef| padding_value(op) == Some(f64::NEG_INFINITY) && pads_windows(op, true);
    let pads: Vec<Op> = body.ops(block).filter(|&op| least(body.op_ref(op))).collect();
    for pad in pads {
        let mut users: Vec<(Op, usize)> = body.uses(body.result(pad, 0)).collect();
        users.sort();
        if !users.iter().all(|&(window, _)| finds_greatest(body, window)) {
            continue;
        }
        for (user, operand) in users.into_iter().skip(1) {
            let copy = body.clone_op(pad, &mut rc_ir::Mapping::new());
            body.insert_before(user, copy);
            let value = body.result(copy, 0);
            body.set_operand(user, operand, value);
        }
    }
}

/// Whether all that windows, moved at most, are for is a maximum or its place.
fn finds_greatest(body: &Body, window: Op) -> bool {
    let mut op = window;
    loop {
        if classify(body.op_ref(op)) == Class::Reduce {
            return body.op_ref(op).str("kind").is_some_and(|kind| ["max", "argmax"].contains(&kind));
        }
        let mut users = body.uses(body.result(op, 0));
        match (users.next(), users.next()) {
            (Some((user, _)), None) if classify(body.op_ref(op)) == Class::Reindex => op = user,
            _ => return false,
        }
    }
}

/// Has products round their sums to 16 bits whose transposes are all that is read of them: they then write their rows in that order.
pub fn round_in_products(body: &mut Body, block: Block) {
    let only_use = |body: &Body, v: Value| {
        let mut uses = body.uses(v);
        uses.next().filter(|_| uses.next().is_none()).map(|(user, _)| user)
    };
    let converts: Vec<Op> = body.ops(block).filter(|&op| body.op_ref(op).is(op::core::CONVERT)).collect();
    for convert in converts {
        let Some(dot) = body.operands(convert).next().and_then(|v| body.defining_op(v)) else { continue };
        let (sums, narrow) = (body.result(dot, 0), body.ty(body.result(convert, 0)));
        let fits = body.op_ref(dot).is(op::core::DOT)
            && body.ty(sums).elem() == Type::f32()
            && [Type::bf16(), Type::f16()].contains(&narrow.elem())
            && body.operands(dot).all(|v| body.ty(v).elem() == narrow.elem());
        let moved =
            only_use(body, body.result(convert, 0)).is_some_and(|user| body.op_ref(user).is(op::core::TRANSPOSE));
        if !(fits && moved && only_use(body, sums) == Some(convert)) {
            continue;
        }
        let mut state = body.state(dot);
        state.results[0] = narrow;
        let made = body.create(state);
        body.insert_before(dot, made);
        body.replace_op(convert, &[body.result(made, 0)]);
        body.erase(dot);
    }
}

/// Whether it transposes a product or attention that nothing else reads.
fn orders_product(body: &Body, op: Op) -> bool {
    let Some(from) = body.operands(op).next().filter(|_| body.op_ref(op).is(op::core::TRANSPOSE)) else { return false };
    let product = body.defining_op(from).map(|def| classify(body.op_ref(def)));
    matches!(product, Some(Class::Contract | Class::Attention)) && body.uses(from).count() == 1
}

/// Gives each sum over columns arithmetic of its own on narrower operands. Others use its result row by row; no kernel does both, and to
/// store it would take more memory traffic than to read the operands again.
fn copy_for_columns(body: &mut Body, op: Op, symbols: &Ranges, costs: &Fusion) {
    if !is_light_here(body.op_ref(op), symbols) || is_cheap(body.op_ref(op)) {
        return;
    }
    let mut users: Vec<(Op, usize)> = body.uses(body.result(op, 0)).collect();
    users.sort();
    let (columns, others): (Vec<_>, Vec<_>) = users.into_iter().partition(|u| feeds_columns(body, u.0));
    if columns.is_empty() || others.is_empty() || !reads_less(body, op, symbols, costs, costs.narrower) {
        return;
    }
    for (user, operand) in columns {
        let copy = body.clone_op(op, &mut rc_ir::Mapping::new());
        body.insert_before(user, copy);
        let value = body.result(copy, 0);
        body.set_operand(user, operand, value);
    }
}

/// Whether light arithmetic that several kernels use is computed again by each: they then read its operands.
pub fn is_computed_again(body: &Body, op: Op, symbols: &Ranges, costs: &Fusion) -> bool {
    !is_cheap(body.op_ref(op)) && !narrows(body, op) && is_light_on_less(body, op, symbols, costs)
}

/// Whether it is light arithmetic on operands of no more bytes than half its result's, or on what lies in memory whatever is fused.
pub fn is_light_on_less(body: &Body, op: Op, symbols: &Ranges, costs: &Fusion) -> bool {
    is_light_here(body.op_ref(op), symbols)
        && (is_of_stored(body, op, symbols, costs) || reads_less(body, op, symbols, costs, 2.0))
}

/// Whether light arithmetic makes it of no more bytes than it has, of which all but a small part are stored anyway.
fn is_of_stored(body: &Body, op: Op, symbols: &Ranges, costs: &Fusion) -> bool {
    let bytes = |v: Value| tensor_bytes(body.ty(v), symbols);
    let small = |v: &Value| SMALL * bytes(*v) <= bytes(body.result(op, 0));
    let (leaves, arithmetic) = made_of(body, op, symbols);
    let read: i64 = leaves.iter().map(|&v| bytes(v)).sum();
    (arithmetic as i64) < costs.again
        && read as f64 <= A_FEW_MORE * bytes(body.result(op, 0)) as f64
        && leaves.iter().all(|v| small(v) || is_stored(body, *v))
}

/// Whether a value lies in memory whatever is fused: as an argument does, and a table.
fn is_stored(body: &Body, value: Value) -> bool {
    let looks_up = |(user, operand): (Op, usize)| operand == 0 && body.op_ref(user).is(op::core::GATHER);
    body.defining_op(value).is_none() || body.uses(value).any(looks_up)
}

/// Whether it makes operands of light arithmetic that is computed again, and is so too.
pub fn goes_along(body: &Body, op: Op) -> bool {
    is_light(body.op_ref(op)) && !narrows(body, op) || is_cheap(body.op_ref(op)) && !orders_product(body, op)
}

/// Arithmetic that costs less than reading its operands.
fn is_light(op: OpRef) -> bool {
    use op::core::{ABS, ADD, CONVERT, DIV, MAX, MIN, MUL, NEG, SUB};
    let names = [ABS, ADD, CONVERT, DIV, MAX, MIN, MUL, NEG, SUB];
    op.has(Traits::ELEMENTWISE) && names.iter().any(|&name| op.is(name)) && op.body.ty(op.result(0)).is_tensor()
}

/// Whether an operation takes more than so many others to compute, element by element, from what has to be read.
pub fn is_long(body: &Body, op: Op, most: usize) -> bool {
    let mut found = vec![op];
    let mut next = 0;
    while next < found.len() && found.len() <= most {
        let makers = body.operands(found[next]).filter_map(|v| body.defining_op(v));
        let counts = |o: &Op| body.op_ref(*o).has(Traits::ELEMENTWISE);
        for maker in makers.filter(counts).collect::<Vec<_>>() {
            if !found.contains(&maker) {
                found.push(maker);
            }
        }
        next += 1;
    }
    found.len() > most
}

/// Whether all that an operation's result is for is a sum over columns, perhaps of a view: what lies side by side in memory goes to different sums.
fn feeds_columns(body: &Body, op: Op) -> bool {
    let rank = |v: Value| body.ty(v).rank() as i64;
    // The dimension that lies side by side where the arithmetic is done.
    let (mut op, mut last) = (op, rank(body.operand(op, 0)) - 1);
    loop {
        let at = body.op_ref(op);
        if classify(at) == Class::Reduce {
            return reduced_dims(at).is_some_and(|dims| !dims.contains(&(last as usize)));
        }
        let view = if at.is(op::core::TRANSPOSE) {
            let perm = at.ints("perm").unwrap_or_default();
            perm.iter().position(|&d| d == last).map(|d| d as i64)
        } else if at.is(op::core::RESHAPE) {
            (last == rank(at.operand(0)) - 1).then(|| rank(at.result(0)) - 1)
        } else {
            is_light(at).then_some(last)
        };
        let mut users = body.results(op).flat_map(|r| body.uses(r).collect::<Vec<_>>());
        match (users.next(), users.next(), view) {
            (Some((user, _)), None, Some(dim)) => (op, last) = (user, dim),
            _ => return false,
        }
    }
}

/// Whether it rounds to fewer bytes: its result is what lies in memory.
fn narrows(body: &Body, op: Op) -> bool {
    body.op_ref(op).is(op::core::CONVERT) && !is_cheap(body.op_ref(op))
}

/// Whether a result has so many times as many bytes as what light arithmetic makes it of, or a few less.
fn reads_less(body: &Body, op: Op, symbols: &Ranges, costs: &Fusion, times: f64) -> bool {
    let bytes = |v: Value| tensor_bytes(body.ty(v), symbols);
    let (leaves, arithmetic) = made_of(body, op, symbols);
    let read: i64 = leaves.iter().map(|&v| bytes(v)).sum();
    (arithmetic as i64) < costs.again && times * read as f64 <= A_FEW_MORE * bytes(body.result(op, 0)) as f64
}

/// Numbers for rows and columns, beside what is as large as the result.
const A_FEW_MORE: f64 = 1.0625;
/// A value of less than this part of a result's bytes is read at no cost.
const SMALL: i64 = 16;

/// Elements from which on a division takes less time than reading its result: fewer are in few programs, which wait for it. An estimate: of 32768, to divide
/// again took an H100 2 µs more; of 2 million, less.
const DIVIDED: i64 = 262144;

/// Whether it is light arithmetic for as many elements as its result has.
fn is_light_here(op: OpRef, symbols: &Ranges) -> bool {
    let many = || most_elements(&op.body.ty(op.result(0)).shape(), symbols) >= DIVIDED;
    is_light(op) && (!op.is(op::core::DIV) || many())
}

/// The values of which light arithmetic makes a result, and how many operations of it do beside the last.
fn made_of(body: &Body, op: Op, symbols: &Ranges) -> (FxHashSet<Value>, usize) {
    // Of what a slice is taken from, the slice is read.
    let along = |&from: &Op| {
        let at = body.op_ref(from);
        goes_along(body, from) && (is_light_here(at, symbols) || is_cheap(at)) && !at.is(op::core::SLICE)
    };
    let (mut stack, mut seen, mut leaves) = (vec![op], FxHashSet::default(), FxHashSet::default());
    while let Some(op) = stack.pop() {
        for value in body.operands(op) {
            match body.defining_op(value).filter(along) {
                Some(def) if seen.insert(def) => stack.push(def),
                None => _ = leaves.insert(value),
                _ => {}
            }
        }
    }
    let arithmetic = seen.iter().filter(|&&o| is_light(body.op_ref(o))).count();
    (leaves, arithmetic)
}
