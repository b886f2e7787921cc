//! What sums of updates cost, by the bytes that move.

use crate::fuse::{Class, classify, is_view};
use crate::split_sorts::price::Sizes;
use rc_dialects::constraints::default_acc;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Dim, Op};
use rc_machine::Target;

/// Whether the updates are computed for the scatter alone.
fn is_computed(body: &Body, scatter: Op) -> bool {
    let updates = body.operand(scatter, 2);
    let made = body.defining_op(updates).filter(|_| body.has_one_use(updates));
    made.is_some_and(|op| {
        let op = body.op_ref(op);
        matches!(classify(op), Class::Pointwise | Class::Reindex) && !is_view(op)
    })
}

/// Microseconds of a sum on a GPU by atomic instructions, and with its updates sorted by place; `None` where a size is not known or slices
/// are short.
pub fn times(body: &Body, scatter: Op, target: &Target) -> Option<[i64; 2]> {
    let op = body.op_ref(scatter);
    let (axis, batch) = (op.int("axis")? as usize, op.int("batch").unwrap_or(0) as usize);
    let shape = body.ty(op.operand(0)).shape();
    let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d).as_static();
    let (table, slice) = (product(&shape)?, product(&shape[axis + 1..])?);
    let updates = body.ty(op.operand(2)).num_elements().as_static()?;
    let count = product(&body.ty(op.operand(1)).shape()[batch..])?;
    let costs = &target.gpu.as_ref()?.scatters;
    if slice < costs.slice {
        return None;
    }
    let elem = body.ty(op.result(0)).elem();
    let (own, wide) = (elem.byte_width()? as f64, default_acc(elem).byte_width()? as f64);
    let (table, updates) = (table as f64, updates as f64);
    // Both begin with what was there, where that is in memory. An atomic sum reads and writes its place, in the second-level cache if it fits
    // there; a narrow table is rounded from a wide one.
    let begin = if constant_of(body, op.operand(0)).is_some() { 0.0 } else { table * own };
    let rounding = if wide > own { wide + own } else { 0.0 };
    let batches = product(&shape[..batch])?.max(1) as f64;
    let place = if table / batches * wide > target.cache_bytes as f64 { 2.0 * wide } else { wide };
    // Updates that are computed are so where they are combined in any order, and are stored to be sorted.
    let [read, stored] = if is_computed(body, scatter) { [0.0, 2.0 * own] } else { [own; 2] };
    let atomic = begin + table * (wide + rounding) + updates * (read + place);
    let sorted = begin + table * own + updates * stored;
    let places = table / slice.min(costs.wide) as f64;
    let us = |bytes: f64| bytes / (target.bandwidth * 1e3);
    let rounds = if rounding > 0.0 { 3.0 } else { 2.0 };
    let sizes = Sizes { rows: batches as i64, length: count, key_bytes: 4, below: Some(shape[axis].as_static()?) };
    let sort = target.launch_us * costs.launches + sizes.cheapest(target).1;
    Some(
        [us(atomic) + rounds * target.launch_us, us(sorted) + places * costs.place_ns / 1e3 + sort]
            .map(|us| us.round() as i64),
    )
}
