//! What sums of updates cost, by the bytes that move.

use rc_dialects::constraints::default_acc;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Dim, Op};
use rc_machine::Target;

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
    let place = if table * wide > target.cache_bytes as f64 { 2.0 * wide } else { wide };
    let atomic = begin + table * (wide + rounding) + updates * (own + place);
    let sorted = begin + table * own + updates * own;
    let places = table / slice.min(costs.wide) as f64;
    let us = |bytes: f64| bytes / (target.bandwidth * 1e3);
    let merges = (count as f64 / costs.run as f64).log2().ceil().max(0.0);
    let rounds = if rounding > 0.0 { 3.0 } else { 2.0 };
    let run = count.min(costs.run) as f64 / costs.run as f64;
    let sort = target.launch_us * (costs.launches + costs.merge_launches * merges + costs.sort_launches * run);
    Some(
        [us(atomic) + rounds * target.launch_us, us(sorted) + places * costs.place_ns / 1e3 + sort]
            .map(|us| us.round() as i64),
    )
}
