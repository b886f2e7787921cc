//! Elementwise operations on a view of sums of windows, as of a pool's gradient: they work on the sums themselves, and their result is viewed. One kernel has both then.

use super::classify::{Class, classify};
use super::padding::pads_windows;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, AttrData, Block, Body, Builder, Dim, Op, Result, Traits, Value};

/// Operations between windows and their sum, at most.
const NEAR: usize = 32;

/// Moves views behind the elementwise operations that follow sums of windows.
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn finish_windows(body: &mut Body, block: Block) -> Result {
    let sums: Vec<Op> = body.ops(block).filter(|&op| sums_windows(body, op)).collect();
    for sum in sums {
        let mut value = body.result(sum, 0);
        while let Some(user) = only_user(body, value) {
            if body.op_ref(user).is(op::core::RESHAPE) {
                let view = body.result(user, 0);
                let Some(next) = only_user(body, view).filter(|&next| is_elementwise(body, next, view)) else { break };
                value = on_source(body, next, view, value)?;
            } else if is_elementwise(body, user, value) {
                value = body.result(user, 0);
            } else {
                break;
            }
        }
    }
    Ok(())
}

/// Widens what is padded for windows last: the view before is then one of memory, whose elements they read and widen.
pub fn widen_padded_last(body: &mut Body, block: Block) {
    let pads: Vec<Op> = body.ops(block).filter(|&op| pads_windows(body.op_ref(op), false)).collect();
    for pad in pads {
        let padded = body.operand(pad, 0);
        let view = defined_by(body, padded, op::core::RESHAPE).filter(|_| only_user(body, padded) == Some(pad));
        let converted = view.map(|view| body.operand(view, 0));
        let Some(convert) = converted.and_then(|v| defined_by(body, v, op::core::CONVERT)) else { continue };
        let (from, to) = (body.operand(convert, 0), body.ty(padded));
        if body.ty(from).elem().byte_width() > to.elem().byte_width() {
            continue;
        }
        let mut b = Builder::before(body, pad);
        let view = b.reshape(from, &to.shape());
        let wide = b.convert(view, to.elem());
        body.set_operand(pad, 0, wide);
    }
}

fn defined_by(body: &Body, value: Value, name: &str) -> Option<Op> {
    body.defining_op(value).filter(|&op| body.op_ref(op).is(name))
}

fn only_user(body: &Body, value: Value) -> Option<Op> {
    let mut users = body.uses(value).map(|(user, _)| user);
    users.next().filter(|user| users.all(|other| other == *user))
}

/// Whether an operation computes, from operands of the shape of `value`, one result of it.
fn is_elementwise(body: &Body, op: Op, value: Value) -> bool {
    let shape = body.ty(value).shape();
    body.op_ref(op).has(Traits::ELEMENTWISE)
        && body.result_count(op) == 1
        && body.operands(op).all(|v| body.ty(v).is_tensor() && body.ty(v).shape() == shape)
}

/// Whether it adds up the elements of windows.
fn sums_windows(body: &Body, op: Op) -> bool {
    if classify(body.op_ref(op)) != Class::Reduce || body.op_ref(op).str("kind") != Some("add") {
        return false;
    }
    let (mut stack, mut seen) = (vec![op], 0);
    while let Some(op) = stack.pop().filter(|_| seen < NEAR) {
        seen += 1;
        for from in body.operands(op).filter_map(|v| body.defining_op(v)) {
            if body.op_ref(from).is(op::core::WINDOW) {
                return true;
            }
            stack.extend((classify(body.op_ref(from)) == Class::Pointwise).then_some(from));
        }
    }
    false
}

/// An elementwise operation on what its operand `view` is of, with a view of the result in its place; gives the result.
fn on_source(body: &mut Body, op: Op, view: Value, source: Value) -> Result<Value> {
    let (shape, old) = (body.ty(source).shape(), body.ty(body.result(op, 0)));
    let mut state = body.state(op);
    for slot in &mut state.operands {
        *slot = if *slot == view { source } else { as_shape(body, op, *slot, &shape)? };
    }
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    body.insert_before(op, made);
    let result = body.result(made, 0);
    let viewed = Builder::before(body, op).op(op::core::RESHAPE).operand(result).result(old).try_value()?;
    body.replace_op(op, &[viewed]);
    if let Some(unused) = body.defining_op(view).filter(|_| !body.has_uses(view)) {
        body.erase(unused);
    }
    Ok(result)
}

/// A value seen in another shape of as many elements.
fn as_shape(body: &mut Body, before: Op, value: Value, shape: &[Dim]) -> Result<Value> {
    let ty = body.ty(value).with_shape(shape);
    let number = match constant_of(body, value).map(|a| a.data()) {
        Some(AttrData::Dense { data, .. }) if data.splat => Some(data.clone()),
        _ => None,
    };
    let reshape = body.defining_op(value).filter(|&op| body.op_ref(op).is(op::core::RESHAPE));
    let source = reshape.map_or(value, |op| body.operand(op, 0));
    if body.ty(source).shape().as_slice() == shape {
        return Ok(source);
    }
    let mut b = Builder::before(body, before);
    match number {
        Some(data) => {
            b.op(op::core::CONSTANT).attr("value", Attr::new(AttrData::Dense { ty, data })).result(ty).try_value()
        }
        None => b.op(op::core::RESHAPE).operand(source).result(ty).try_value(),
    }
}
