//! Tables of which the same places are looked up, or changed, for each of many channels, as a sampled image and its gradient: with channels last one place
//! has them side by side.

use rc_dialects::core::constant::CONSTANT;
use rc_dialects::core::gather::{GATHER, SCATTER};
use rc_dialects::core::shape::{RESHAPE, TRANSPOSE};
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Builder, Dim, Op, Value};

/// Channels that fill what is read of memory at once, at least.
const CHANNELS: i64 = 16;
/// Bytes of a channel's places, at least: those of fewer are in a few lines of the cache.
const PLACES: i64 = 1024;
/// Elements that are looked up for each of the table's, at least: to turn the table and what is looked up takes less then.
const TIMES: i64 = 2;

/// Looks places up in tables with channels last, and changes them there, where channels come first and places are many; how many such there were.
pub fn turn(body: &mut Body) -> u64 {
    let scatters: Vec<Op> = body.walk().into_iter().filter(|&op| changes_places(body, op)).collect();
    for &op in &scatters {
        turn_scatter(body, op);
    }
    scatters.len() as u64 + turn_tables(body)
}

fn turn_tables(body: &mut Body) -> u64 {
    let gathers: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &GATHER).collect();
    let chosen: Vec<Op> = gathers.iter().copied().filter(|&op| is_by_places(body, op, &gathers)).collect();
    for &op in &chosen {
        turn_table(body, op);
    }
    chosen.len() as u64
}

/// Whether a gather looks up places along the last dimension, the same ones for all channels, and these are many.
fn is_by_places(body: &Body, gather: Op, all: &[Op]) -> bool {
    let (table, [batch, axis]) = (body.operand(gather, 0), dims_of(body, gather));
    let Some(shape) = body.ty(table).static_shape() else { return false };
    let width = body.ty(table).elem().byte_width().unwrap_or(1) as i64;
    let size = elements(body, table).unwrap_or(i64::MAX);
    let same = |other: &&Op| {
        let of = body.operand(**other, 0);
        stored(body, of) == stored(body, table)
            && body.ty(of) == body.ty(table)
            && dims_of(body, **other) == [batch, axis]
    };
    let looked_up = all.iter().filter(same).filter_map(|&other| elements(body, body.result(other, 0)));
    axis + 1 == shape.len()
        && shape[batch..axis].iter().product::<i64>() >= CHANNELS
        && shape[axis] * width >= PLACES
        && looked_up.fold(0, i64::saturating_add) >= size.saturating_mul(TIMES)
}

/// The dimensions of the batch, and the one along which a gather looks up.
fn dims_of(body: &Body, gather: Op) -> [usize; 2] {
    ["batch", "axis"].map(|name| body.op_ref(gather).int(name).unwrap_or(0) as usize)
}

/// What a value is a view of.
fn stored(body: &Body, value: Value) -> Value {
    let viewed = |&v: &Value| {
        let view = body.defining_op(v).filter(|&op| body.name(op) == &RESHAPE)?;
        Some(body.operand(view, 0))
    };
    std::iter::successors(Some(value), viewed).last().unwrap_or(value)
}

fn elements(body: &Body, value: Value) -> Option<i64> {
    body.ty(value).num_elements().as_static()
}

/// Whether a scatter changes places along the last dimension, the same ones for all channels, and there are as many changes as places.
fn changes_places(body: &Body, op: Op) -> bool {
    if body.name(op) != &SCATTER || body.operand_count(op) != 3 {
        return false;
    }
    let (table, updates, [batch, axis]) = (body.operand(op, 0), body.operand(op, 2), dims_of(body, op));
    let Some(shape) = body.ty(table).static_shape() else { return false };
    axis + 1 == shape.len()
        && shape[batch..axis].iter().product::<i64>() >= CHANNELS
        && elements(body, updates) >= elements(body, table)
}

/// The order with channels behind the places, of which there are so many dimensions.
fn channels_last([batch, axis]: [usize; 2], places: usize) -> Vec<i64> {
    let rest = (axis..axis + places).chain(batch..axis);
    (0..batch).chain(rest).map(|d| d as i64).collect()
}

/// The order that puts them back.
fn channels_first([batch, axis]: [usize; 2], places: usize) -> Vec<i64> {
    let rest = (batch + places..axis + places).chain(batch..batch + places);
    (0..batch).chain(rest).map(|d| d as i64).collect()
}

fn transposed(b: &mut Builder, value: Value, perm: &[i64]) -> Value {
    b.op(&TRANSPOSE).operand(value).attr("perm", Attr::i64s(perm)).value()
}

fn turn_table(body: &mut Body, gather: Op) {
    let dims = dims_of(body, gather);
    let (table, indices) = (body.operand(gather, 0), body.operand(gather, 1));
    let (places, attrs) = (body.ty(body.result(gather, 0)).rank() - dims[1], body.attrs(gather));
    let mut b = Builder::before(body, gather);
    let turned = transposed(&mut b, table, &channels_last(dims, 1));
    let axis = Attr::i64(dims[0] as i64);
    let found = b.op(&GATHER).operand(turned).operand(indices).attrs(attrs).attr("axis", axis).value();
    let found = transposed(&mut b, found, &channels_first(dims, places));
    body.replace_op(gather, &[found]);
}

fn turn_scatter(body: &mut Body, scatter: Op) {
    let dims = dims_of(body, scatter);
    let [table, indices, updates] = [0, 1, 2].map(|i| body.operand(scatter, i));
    let (places, attrs) = (body.ty(updates).rank() - dims[1], body.attrs(scatter));
    let turned_before = body
        .defining_op(table)
        .filter(|&op| body.name(op) == &TRANSPOSE && body.op_ref(op).ints("perm") == Some(channels_first(dims, 1)));
    let number = constant_of(body, table).and_then(|value| value.as_splat());
    let mut b = Builder::before(body, scatter);
    let order = channels_last(dims, 1);
    let turned = match (turned_before, number) {
        (Some(op), _) => b.body.operand(op, 0),
        (None, Some(number)) => {
            let shape: Vec<Dim> = order.iter().map(|&d| b.ty(table).shape()[d as usize]).collect();
            let ty = b.ty(table).with_shape(&shape);
            b.op(&CONSTANT).attr("value", Attr::splat(ty, number)).result(ty).value()
        }
        (None, None) => transposed(&mut b, table, &order),
    };
    let updates = transposed(&mut b, updates, &channels_last(dims, places));
    let made = b.op(&SCATTER).operand(turned).operand(indices).operand(updates).attrs(attrs);
    let changed = made.attr("axis", Attr::i64(dims[0] as i64)).value();
    let changed = transposed(&mut b, changed, &channels_first(dims, 1));
    body.replace_op(scatter, &[changed]);
}
