//! Transposes from channels last to channels first: elementwise operations work in the order that a convolution's product has, so
//! that the transposes meet those before the next convolution and vanish.

use super::reshape::{as_shape, broadcast_along, is_splat, replace};
use rc_dialects::core::shape::{BROADCAST, TRANSPOSE};
use rc_ir::{Attr, Body, Dim, Op, Result, Value};

/// Two transposes that undo each other.
pub fn cancel(body: &mut Body, op: Op) -> Result<bool> {
    let Some((source, first)) = transposed(body, body.operand(op, 0)) else { return Ok(false) };
    let Some(second) = body.op_ref(op).ints("perm") else { return Ok(false) };
    let same = second.iter().enumerate().all(|(i, &d)| first[d as usize] == i as i64);
    if same {
        body.replace_op(op, &[source]);
    }
    Ok(same)
}

/// What a transpose is of, and its permutation.
pub fn transposed(body: &Body, value: Value) -> Option<(Value, Vec<i64>)> {
    let op = body.defining_op(value).filter(|&op| body.name(op) == &TRANSPOSE)?;
    Some((body.operand(op, 0), body.op_ref(op).ints("perm")?))
}

/// Whether a permutation brings the last dimension to place 1: `[0, 3, 1, 2]`. Others, the elements of windows, may follow as they are.
pub fn brings_channels_first(perm: &[i64]) -> bool {
    let rank = perm.get(1).map_or(0, |channels| channels + 1);
    rank > 2 && perm[0] == 0 && perm[2..].iter().copied().eq((1..rank - 1).chain(rank..perm.len() as i64))
}

/// An elementwise operation on transposed operands, on those as they are; gives the new operation.
pub fn behind_elementwise(body: &mut Body, op: Op) -> Result<Option<Op>> {
    let operands: Vec<Value> = body.operands(op).collect();
    let perms = operands.iter().filter_map(|&v| transposed(body, v));
    let Some((source, perm)) = perms.into_iter().find(|t| brings_channels_first(&t.1)) else { return Ok(None) };
    let (shape, old) = (body.ty(source).shape(), body.ty(body.result(op, 0)));
    let fits = body.results(op).len() == 1 && operands.iter().all(|&v| body.ty(v).shape() == old.shape());
    if !fits || !operands.iter().all(|&v| has_channels_last(body, v, &perm)) {
        return Ok(None);
    }
    let mut state = body.state(op);
    for (slot, &operand) in state.operands.iter_mut().zip(&operands) {
        *slot = channels_last(body, op, operand, &perm, &shape)?;
    }
    state.results[0] = old.with_shape(&shape);
    let made = body.create(state);
    replace(body, op, made, |b, value| {
        b.op(&TRANSPOSE).operand(value).attr("perm", Attr::i64s(&perm)).result(old).try_value()
    })?;
    Ok(Some(made))
}

fn has_channels_last(body: &Body, value: Value, perm: &[i64]) -> bool {
    transposed(body, value).is_some_and(|(_, p)| p == perm)
        || is_splat(body, value)
        || broadcast_dims(body, value, perm).is_some()
}

/// Along which dimensions of the untransposed shape a broadcast's operand runs, without its dimensions of one element.
fn broadcast_dims(body: &Body, value: Value, perm: &[i64]) -> Option<Vec<i64>> {
    let op = body.defining_op(value).filter(|&op| body.name(op) == &BROADCAST)?;
    let sizes = body.ty(body.operand(op, 0)).shape();
    let dims = body.op_ref(op).ints("dims")?;
    let many = dims.iter().zip(&sizes).filter(|(_, s)| **s != Dim::Static(1));
    let along: Vec<i64> = many.map(|(&d, _)| perm[d as usize]).collect();
    along.is_sorted().then_some(along)
}

fn channels_last(body: &mut Body, before: Op, value: Value, perm: &[i64], shape: &[Dim]) -> Result<Value> {
    if let Some((source, _)) = transposed(body, value) {
        return Ok(source);
    }
    let Some(dims) = broadcast_dims(body, value, perm) else { return as_shape(body, before, value, shape) };
    broadcast_along(body, before, value, &dims, shape)
}
