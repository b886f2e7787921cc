//! Scatters by an order that a sort made: each place has one update, or as many as all others, so that they can be looked up.
//!
//! ```text
//! p = sort(x).indices        scatter(0, p, u)        gather(u, inverse of p)
//!                            scatter(0, p / k, u)    sum(gather(u, inverse of p) in groups of k)
//! ```
//!
//! These are the gradients of rows that were taken in order (tokens by their experts), which atomic sums would form in memory.

use super::fold::uniform;
use crate::builder::CoreBuilder;
use crate::op;
use rc_ir::op_def::constant_of;
use rc_ir::rewrite::Rewriter;
use rc_ir::{Attr, Body, Builder, Dim, Op, OpRef, Result, Type, Value};

pub fn look_up_updates(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (Some(axis), 0, 3) = (at.int("axis"), at.int("batch").unwrap_or(0), at.operands().len()) else {
        return Ok(false);
    };
    let [x, indices, updates] = [0, 1, 2].map(|i| at.operand(i));
    let kind = at.str("kind").unwrap_or_default();
    let zero = constant_of(rw.body, x).and_then(|x| x.as_splat()) == Some(0.0);
    let (ty, axis) = (rw.body.ty(x), axis as usize);
    let Some((order, each)) = order_of(rw.body, indices) else { return Ok(false) };
    let places = rw.body.ty(order).shape()[0].as_static();
    let covers = places.zip(ty.shape()[axis].as_static()).is_some_and(|(n, size)| size.checked_mul(each) == Some(n));
    let one = each == 1 && (kind == "set" || kind == "add" && zero);
    if !(covers && (one || kind == "add" && zero)) || is_counter(rw.body, updates) {
        return Ok(false);
    }
    let known = inverse_of(rw.body, order);
    let mut b = rw.before(op);
    let inverse = known.unwrap_or_else(|| inverse(&mut b, order));
    let found = b.gather(updates, inverse, axis as i64);
    let result = match each {
        1 => b.convert(found, ty.elem()),
        _ => {
            let mut shape = ty.shape().to_vec();
            shape.insert(axis + 1, Dim::Static(each));
            let found = b.convert(found, ty.elem());
            let groups = b.reshape(found, &shape);
            b.reduce("add", groups, &[axis as i64 + 1])
        }
    };
    rw.replace(op, &[result]);
    Ok(true)
}

/// The permutation [n] that indices are, divided by a number.
fn order_of(body: &Body, indices: Value) -> Option<(Value, i64)> {
    let made = body.op_ref(body.defining_op(indices)?);
    if made.name().as_str() == op::core::DIV {
        let by = i64::try_from(uniform(body, made.operand(1))?.int()?).ok().filter(|&by| by > 0)?;
        let order = made.operand(0);
        return is_permutation(body, order).then_some((order, by));
    }
    is_permutation(body, indices).then_some((indices, 1))
}

/// Whether the numbers [n] are 0 to n - 1 in any order.
fn is_permutation(body: &Body, value: Value) -> bool {
    let Some(op) = body.defining_op(value).map(|op| body.op_ref(op)) else { return false };
    let (shape, named) = (body.ty(value).shape(), op.name());
    if shape.len() != 1 {
        return false;
    }
    match named.as_str() {
        op::core::SORT => op.operands().len() == 1 && op.int("count").is_none() && op.result(1) == value,
        op::tensor::SORT => op.result(1) == value,
        op::core::CONVERT => fits(body, op) && is_permutation(body, op.operand(0)),
        _ => inverse_of(body, value).is_some(),
    }
}

/// Whether converted numbers stay what they are.
fn fits(body: &Body, convert: OpRef) -> bool {
    let elem = convert.result_types()[0].elem();
    elem.is_int() && elem.bit_width().is_some_and(|bits| bits >= 32) && body.ty(convert.operand(0)).elem().is_int()
}

/// The permutation p of which a value is the inverse: the numbers from 0 on, scattered by p.
fn inverse_of(body: &Body, value: Value) -> Option<Value> {
    let op = body.op_ref(body.defining_op(value)?);
    let scatters = op.name().as_str() == op::core::SCATTER && op.operands().len() == 3 && op.str("kind") == Some("set");
    let order = op.operands().nth(1).filter(|_| scatters)?;
    let whole = body.ty(order).shape() == body.ty(value).shape();
    (whole && is_counter(body, op.operand(2)) && is_permutation(body, order)).then_some(order)
}

/// Whether a value [n] is 0 to n - 1.
fn is_counter(body: &Body, value: Value) -> bool {
    let iota = |op: Op| body.name(op).as_str() == op::core::IOTA;
    body.ty(value).rank() == 1 && body.defining_op(value).is_some_and(iota)
}

fn inverse(b: &mut Builder, order: Value) -> Value {
    let ty = b.ty(order).with_elem(Type::i64());
    let number = b.op(op::core::IOTA).attr("dim", Attr::i64(0)).result(ty).value();
    let zeros = b.splat(0.0, ty);
    let scatter = b.op(op::core::SCATTER).operand(zeros).operand(order).operand(number);
    scatter.attr("axis", Attr::i64(0)).attr("batch", Attr::i64(0)).attr("kind", Attr::str("set")).value()
}
