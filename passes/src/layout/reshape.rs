//! Reshapes between products and what is around them: frontends view `[batch, length, n]` as `[batch * length, n]` for a product and
//! back. Products and elementwise operations are brought to the longer shape, so that the two views meet and vanish. Elementwise
//! operations on another view of a product (a convolution's, say), or of what is computed from the sums of its own rows (a normalization in groups), are
//! brought to the shape of these, so that they fuse with them.

use super::channels;
use super::segments::Segments;
use super::sums;
use super::windows;
use rc_dialects::core::constant::CONSTANT;
use rc_dialects::core::dot::DOT;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{BROADCAST, RESHAPE, TRANSPOSE};
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, AttrData, Body, Builder, Dim, Op, Result, Traits, Type, Value};
use rustc_hash::FxHashSet;

/// Operations that make a row's numbers of its sums, at most.
const FINISH: usize = 32;

/// Moves reshapes that collapse leading dimensions behind products and elementwise operations, in program order; how many.
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn move_reshapes(body: &mut Body) -> Result<u64> {
    let mut moved = 0;
    let mut shaped = FxHashSet::default();
    for op in body.walk() {
        if body.is_erased(op) {
            continue;
        }
        let done = match body.name(op) {
            n if n == &RESHAPE => merge(body, op)? || windows::behind_windows(body, op)?,
            n if n == &DOT => behind_product(body, op)?,
            n if n == &TRANSPOSE => channels::cancel(body, op)?,
            _ if body.op_ref(op).has(Traits::ELEMENTWISE) => elementwise(body, op, &mut shaped)?,
            _ => sums::behind_reshape(body, op)? || windows::behind_windows(body, op)?,
        };
        moved += u64::from(done);
    }
    // What is read in another form now.
    for op in body.walk().into_iter().rev() {
        if moved > 0 && rc_ir::effects::is_dead(body, op) {
            body.erase(op);
        }
    }
    Ok(moved)
}

fn elementwise(body: &mut Body, op: Op, shaped: &mut FxHashSet<Value>) -> Result<bool> {
    if let Some(made) = channels::behind_elementwise(body, op)? {
        after_product(body, made, shaped)?;
        return Ok(true);
    }
    if behind_elementwise(body, op)? || without_units(body, op)? || after_product(body, op, shaped)? {
        return Ok(true);
    }
    let shape = body.ty(body.result(op, 0)).shape();
    let shapes = |v: Value| is_of_product(body, v, shaped) || is_of_rows(body, v);
    if body.operands(op).any(|v| body.ty(v).shape() == shape && shapes(v)) {
        shaped.insert(body.result(op, 0));
    }
    Ok(false)
}

/// Whether it is a product's result, or what elementwise operations made of one (`shaped`).
fn is_of_product(body: &Body, value: Value, shaped: &FxHashSet<Value>) -> bool {
    shaped.contains(&value) || body.defining_op(value).is_some_and(|def| body.name(def) == &DOT)
}

/// Whether it repeats what was computed from reductions of rows, along these rows.
fn is_of_rows(body: &Body, value: Value) -> bool {
    let shape = body.ty(value).shape();
    let Some(repeat) = body.defining_op(value).filter(|&op| body.name(op) == &BROADCAST) else { return false };
    let (mut stack, mut seen) = (vec![body.operand(repeat, 0)], FxHashSet::default());
    while let Some(op) = stack.pop().and_then(|v| body.defining_op(v)) {
        if body.name(op) == &REDUCE {
            return body.ty(body.operand(op, 0)).shape() == shape;
        }
        let moves = body.op_ref(op).has(Traits::ELEMENTWISE) || body.name(op) == &RESHAPE;
        if moves && seen.len() < FINISH && seen.insert(op) {
            stack.extend(body.operands(op).filter(|&v| body.defining_op(v).is_some()));
        }
    }
    false
}

/// What a value is a view of, where leading dimensions are collapsed into its first.
fn collapsed(body: &Body, value: Value) -> Option<Value> {
    let reshape = body.defining_op(value).filter(|&op| body.name(op) == &RESHAPE)?;
    let source = body.operand(reshape, 0);
    let (from, to) = (body.ty(source).shape(), body.ty(value).shape());
    let lead = from.len().checked_sub(to.len()).filter(|&n| n > 0 && !to.is_empty())?;
    let first = from[..=lead].iter().fold(Dim::Static(1), |n, &d| n * d);
    (first == to[0] && from[lead + 1..] == to[1..]).then_some(source)
}

/// A reshape of a reshape: of the first one's operand, or that operand itself.
fn merge(body: &mut Body, op: Op) -> Result<bool> {
    let Some(inner) = body.defining_op(body.operand(op, 0)).filter(|&i| body.name(i) == &RESHAPE) else {
        return Ok(false);
    };
    let (source, ty) = (body.operand(inner, 0), body.ty(body.result(op, 0)));
    if body.ty(source) == ty {
        body.replace_op(op, &[source]);
        return Ok(true);
    }
    Ok(false)
}

/// `dot(collapse(x), w)` is `collapse(dot(x, w))`, where the last dimension of x is contracted.
fn behind_product(body: &mut Body, op: Op) -> Result<bool> {
    let at = body.op_ref(op);
    let lists = |name: &str| at.ints(name).unwrap_or_default();
    let rank = body.ty(body.operand(op, 0)).rank() as i64;
    let plain = lists("lhs_batch").is_empty() && lists("lhs_contract") == [rank - 1] && rank == 2;
    let Some(source) = collapsed(body, body.operand(op, 0)).filter(|_| plain) else { return Ok(false) };
    let (old, lead) = (body.ty(body.result(op, 0)), body.ty(source).shape());
    let shape: Vec<Dim> = lead[..lead.len() - 1].iter().copied().chain(old.shape()[1..].iter().copied()).collect();
    let mut state = body.state(op);
    state.operands[0] = source;
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    body.set_attr(made, "lhs_contract", Attr::i64s(&[lead.len() as i64 - 1]));
    replace_viewed(body, op, made, old)
}

/// An elementwise operation on collapsed operands, on what they are views of.
fn behind_elementwise(body: &mut Body, op: Op) -> Result<bool> {
    let operands: Vec<Value> = body.operands(op).collect();
    let Some(source) = operands.iter().find_map(|&v| collapsed(body, v)) else { return Ok(false) };
    let shape = body.ty(source).shape();
    let old = body.ty(body.result(op, 0));
    if body.results(op).len() != 1 || operands.iter().any(|&v| body.ty(v).shape() != old.shape()) {
        return Ok(false);
    }
    if !operands.iter().all(|&v| has_longer_form(body, v, &shape)) {
        return Ok(false);
    }
    let mut state = body.state(op);
    for (i, &operand) in operands.iter().enumerate() {
        state.operands[i] = longer_form(body, op, operand, &shape)?;
    }
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    replace_viewed(body, op, made, old)
}

/// An elementwise operation on views with more dimensions of one element (`keepdim`), on what they are views of: rows have one shape then,
/// be they reduced, finished or stored.
fn without_units(body: &mut Body, op: Op) -> Result<bool> {
    let operands: Vec<Value> = body.operands(op).collect();
    let old = body.ty(body.result(op, 0));
    let many = |shape: &[Dim]| shape.iter().copied().filter(|d| *d != Dim::Static(1)).collect::<Vec<_>>();
    let shape = many(&old.shape());
    let smaller = |v: Value| viewed(body, v).filter(|&source| body.ty(source).shape().as_slice() == shape);
    let fits = |&v: &Value| body.ty(v).shape() == old.shape() && (smaller(v).is_some() || is_splat(body, v));
    let views = operands.iter().any(|&v| smaller(v).is_some());
    if shape.len() == old.rank() || body.results(op).len() != 1 || !views || !operands.iter().all(fits) {
        return Ok(false);
    }
    let mut state = body.state(op);
    for (slot, &operand) in state.operands.iter_mut().zip(&operands) {
        *slot = as_shape(body, op, operand, &shape)?;
    }
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    replace_viewed(body, op, made, old)
}

/// An elementwise operation on a view of a product's result, or of what such operations made of one or of rows (`shaped`), on that itself.
fn after_product(body: &mut Body, op: Op, shaped: &mut FxHashSet<Value>) -> Result<bool> {
    let operands: Vec<Value> = body.operands(op).collect();
    let of_product = |v: &Value| viewed(body, *v).filter(|&source| is_of_product(body, source, shaped));
    let Some(source) = operands.iter().find_map(of_product) else { return Ok(false) };
    let (shape, old) = (body.ty(source).shape(), body.ty(body.result(op, 0)));
    if body.results(op).len() != 1 || operands.iter().any(|&v| body.ty(v).shape() != old.shape()) {
        return Ok(false);
    }
    let Some(segments) = Segments::between(&shape, &old.shape()) else { return Ok(false) };
    let dims = |v: Value| match body.defining_op(v) {
        Some(def) if body.name(def) == &BROADCAST => segments.broadcast(body, def).map(Some),
        _ => Some(None),
    };
    let Some(dims) = operands.iter().map(|&v| dims(v)).collect::<Option<Vec<_>>>() else { return Ok(false) };
    let mut state = body.state(op);
    for ((slot, &operand), dims) in state.operands.iter_mut().zip(&operands).zip(dims) {
        *slot = match dims {
            Some(dims) => broadcast_along(body, op, operand, &dims, &shape)?,
            None => as_shape(body, op, operand, &shape)?,
        };
    }
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    replace_viewed(body, op, made, old)?;
    shaped.insert(body.result(made, 0));
    Ok(true)
}

/// What a reshape is of.
fn viewed(body: &Body, value: Value) -> Option<Value> {
    let reshape = body.defining_op(value).filter(|&op| body.name(op) == &RESHAPE)?;
    Some(body.operand(reshape, 0))
}

/// A value seen in another shape of as many elements.
pub fn as_shape(body: &mut Body, before: Op, value: Value, shape: &[Dim]) -> Result<Value> {
    if is_splat(body, value) {
        return splat(body, before, value, shape);
    }
    let source = viewed(body, value).unwrap_or(value);
    if body.ty(source).shape().as_slice() == shape {
        return Ok(source);
    }
    let ty = body.ty(value).with_shape(shape);
    Builder::before(body, before).op(&RESHAPE).operand(source).result(ty).try_value()
}

/// The broadcast `value`, made in another shape: its operand without dimensions of one element runs along `dims`.
pub fn broadcast_along(body: &mut Body, before: Op, value: Value, dims: &[i64], shape: &[Dim]) -> Result<Value> {
    let def = body.defining_op(value).expect("a broadcast");
    let source = body.operand(def, 0);
    let kept: Vec<Dim> = dims.iter().map(|&d| shape[d as usize]).collect();
    let source = as_shape(body, before, source, &kept)?;
    let ty = body.ty(value).with_shape(shape);
    let dims = Attr::i64s(dims);
    Builder::before(body, before).op(&BROADCAST).operand(source).attr("dims", dims).result(ty).try_value()
}

fn has_longer_form(body: &Body, value: Value, shape: &[Dim]) -> bool {
    if let Some(source) = collapsed(body, value) {
        return body.ty(source).shape().as_slice() == shape;
    }
    let Some(op) = body.defining_op(value) else { return false };
    match body.name(op) {
        n if n == &CONSTANT => is_splat(body, value),
        n if n == &BROADCAST => body.op_ref(op).ints("dims").is_some_and(|dims| !dims.contains(&0)),
        _ => false,
    }
}
pub fn is_splat(body: &Body, value: Value) -> bool {
    matches!(constant_of(body, value).map(|a| a.data()), Some(AttrData::Dense { data, .. }) if data.splat)
}

/// The value with the dimensions that a collapse has put together.
fn longer_form(body: &mut Body, before: Op, value: Value, shape: &[Dim]) -> Result<Value> {
    if let Some(source) = collapsed(body, value) {
        return Ok(source);
    }
    let ty = body.ty(value).with_shape(shape);
    let op = body.defining_op(value).expect("checked to have a longer form");
    let more = (shape.len() - body.ty(value).rank()) as i64;
    if body.name(op) == &BROADCAST {
        let dims: Vec<i64> = body.op_ref(op).ints("dims").unwrap_or_default().iter().map(|d| d + more).collect();
        let operand = body.operand(op, 0);
        return Builder::before(body, before)
            .op(&BROADCAST)
            .operand(operand)
            .attr("dims", Attr::i64s(&dims))
            .result(ty)
            .try_value();
    }
    splat(body, before, value, shape)
}

/// The splat constant `value` in another shape.
fn splat(body: &mut Body, before: Op, value: Value, shape: &[Dim]) -> Result<Value> {
    let ty = body.ty(value).with_shape(shape);
    let data = match constant_of(body, value).map(|a| a.data()) {
        Some(AttrData::Dense { data, .. }) => data.clone(),
        _ => unreachable!("checked to be a splat"),
    };
    let value = Attr::new(AttrData::Dense { ty, data });
    Builder::before(body, before).op(&CONSTANT).attr("value", value).result(ty).try_value()
}

/// Replaces an operation by a new one whose result is seen as type `ty`.
fn replace_viewed(body: &mut Body, op: Op, made: Op, ty: Type) -> Result<bool> {
    replace(body, op, made, |b, value| b.op(&RESHAPE).operand(value).result(ty).try_value())
}

/// Replaces an operation by what `back` makes of a new one's result.
pub fn replace(
    body: &mut Body,
    op: Op,
    made: Op,
    back: impl FnOnce(&mut Builder, Value) -> Result<Value>,
) -> Result<bool> {
    body.insert_before(op, made);
    let (name, value) = (body.value_name(body.result(op, 0)), body.result(made, 0));
    body.set_value_name(value, name);
    let view = back(&mut Builder::before(body, op), value)?;
    body.replace_op(op, &[view]);
    Ok(true)
}
