//! A region's operations, once for each block.

use super::along::Along;
use super::region::Region;
use crate::fuse::restore_order;
use rc_dialects::builder::CoreBuilder;
use rc_ir::{Attr, AttrData, Body, Builder, Dim, Name, Op, Traits, Type, Value};
use rustc_hash::FxHashMap;

/// What a block's operations read: results of the block's own, and parts of what is computed as a whole, along a dimension.
#[derive(Default)]
struct Made {
    own: FxHashMap<Value, Value>,
    parts: FxHashMap<(Value, usize), Value>,
}

/// Blocks of long dimensions begin at multiples of this, whatever reads them in lines or tiles.
const UNIT: i64 = 64;

/// The size of blocks; the last may be smaller.
pub fn step(size: i64, count: i64) -> i64 {
    let step = (size + count - 1) / count;
    if step < 4 * UNIT { step } else { (step + UNIT - 1) / UNIT * UNIT }
}

/// Computes a region in so many blocks, or fewer where they are rounded up.
pub fn compute(body: &mut Body, region: &Region, count: i64) {
    let Some(&(last, _)) = region.ops.last() else { return };
    let block = body.parent(last).expect("in a function");
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); region.ops.len()];
    let step = step(region.size, count);
    for from in (0..region.size).step_by(step as usize) {
        let to = (from + step).min(region.size);
        let mut made = Made::default();
        for (i, (op, follow)) in region.ops.iter().enumerate() {
            let value = one(body, last, *op, follow, &mut made, (from, to - from));
            match (follow.result, results[i].last()) {
                (Along::Combined(name, _), Some(&sum)) => {
                    let mut b = before(body, last, *op);
                    let sum = b.op(name).operands(&[sum, value]).value();
                    results[i] = vec![sum];
                }
                _ => results[i].push(value),
            }
        }
    }
    let inside: Vec<Op> = region.ops.iter().map(|(op, _)| *op).collect();
    for ((op, follow), blocks) in region.ops.iter().zip(results) {
        let old = body.result(*op, 0);
        if !body.uses(old).any(|(user, _)| !inside.contains(&user)) {
            continue;
        }
        let elem = body.ty(old).elem();
        let mut b = before(body, last, *op);
        let new = match follow.result {
            Along::Dim(d) => b.concat(&blocks, d as i64),
            Along::Combined(..) => b.convert(blocks[0], elem),
        };
        let name = body.value_name(old);
        body.set_value_name(new, name);
        body.replace_all_uses(old, new);
    }
    inside.iter().rev().for_each(|&op| body.erase(op));
    restore_order(body, block);
}

fn before(body: &mut Body, place: Op, like: Op) -> Builder<'_> {
    let loc = body.loc(like);
    let mut b = Builder::before(body, place);
    b.loc = loc;
    b
}

/// One block's copy of an operation.
fn one(
    body: &mut Body,
    place: Op,
    op: Op,
    follow: &super::along::Follow,
    made: &mut Made,
    (from, size): (i64, i64),
) -> Value {
    let operands: Vec<Value> = body.operands(op).collect();
    let mut state = body.state(op);
    for (i, (&value, &along)) in operands.iter().zip(&follow.operands).enumerate() {
        state.operands[i] = match (made.own.get(&value), along) {
            (Some(&block), _) => block,
            (None, Some(d)) => {
                let known = made.parts.get(&(value, d)).copied();
                let block = known.unwrap_or_else(|| part(body, place, value, d, (from, size)));
                made.parts.insert((value, d), block);
                block
            }
            (None, None) => value,
        };
    }
    match follow.result {
        Along::Dim(d) => state.results[0] = cut(state.results[0], d, size),
        Along::Combined(_, acc) => state.results[0] = state.results[0].with_elem(acc),
    }
    if body.name(op) == rc_dialects::op::core::SLICE {
        state.attrs = state.attrs.with(Name::new("sizes"), Some(Attr::shape(&state.results[0].shape())));
    }
    let copy = body.create(state);
    body.insert_before(place, copy);
    let value = body.result(copy, 0);
    if let Along::Dim(_) = follow.result {
        made.own.insert(body.result(op, 0), value);
    }
    value
}

/// A block of what is computed as a whole.
fn part(body: &mut Body, place: Op, value: Value, d: usize, (from, size): (i64, i64)) -> Value {
    let (ty, block) = (body.ty(value), cut(body.ty(value), d, size));
    let constant = body.defining_op(value).filter(|&op| body.op_ref(op).has(Traits::CONSTANT));
    let splat = constant.and_then(|op| match body.attr(op, "value")?.data() {
        AttrData::Dense { data, .. } if data.splat => Some(data.clone()),
        _ => None,
    });
    let mut b = Builder::before(body, place);
    if let Some(data) = splat {
        let value = Attr::new(AttrData::Dense { ty: block, data });
        return b.op(rc_dialects::op::core::CONSTANT).attr("value", value).result(block).value();
    }
    let mut starts = vec![Dim::Static(0); ty.rank()];
    starts[d] = Dim::Static(from);
    b.slice(value, &starts, &block.shape())
}

fn cut(ty: Type, d: usize, size: i64) -> Type {
    let mut shape = ty.shape().to_vec();
    shape[d] = Dim::Static(size);
    ty.with_shape(&shape)
}
