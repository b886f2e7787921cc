//! What follows a product in its kernel: nests on the tile of results that is in registers.

use super::Scheduled;
use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::{ROWS, WARPGROUP, WIDTH};
use crate::work::is_function;
use rc_dialects::op;
use rc_ir::{Attr, Op, Result, Type, Value};
use rc_machine::Unit;

/// Operations on each element from which an epilogue goes over its tile part by part: their code for 128 registers, with that of the
/// products, no longer stays in the instruction cache. One elementary function is as much.
const LONG: usize = 12;

/// Stores the results of a product, and runs the nests after it on them.
///
/// A thread of a warpgroup holds up to 192 of a tile's elements, and its code names each of their registers. So the same code goes over the tile in
/// [parts](cut): in every step those that are left move up by one. Less code is compiled, and stays in the instruction cache.
pub fn epilogue(p: &mut Program, scheduled: &Scheduled, scope: &Scope, tile: Value, stores: &[Vec<bool>]) -> Result {
    let Some((dim, size)) = cut(p, scheduled, tile) else { return run(p, scheduled, scope, tile, stores) };
    let (axis, length) = (scheduled.schedules[0].axes[dim], p.shape(tile)[dim]);
    let (Some(&whole), Some(&iter)) = (scope.get(axis), scheduled.group.nests[0].iter(axis)) else {
        return run(p, scheduled, scope, tile, stores);
    };
    let tiles: Vec<Value> = (0..length / size).map(|i| part(p, tile, dim, [i * size, size])).collect();
    let bounds = [p.constant_index(0), p.constant_index(length), p.constant_index(size)];
    p.for_loop(bounds, &tiles, |p, at, tiles| {
        let first = p.add_index(whole.base, at);
        let part = bind(&iter, first, whole.axis, size).within(&whole);
        run(p, scheduled, &scope.with(axis, part), tiles[0], stores)?;
        let last = *tiles.last().expect("several parts");
        Ok::<_, Box<rc_ir::Diagnostic>>(tiles[1..].iter().copied().chain([last]).collect())
    })
    .map(drop)
}

fn run(p: &mut Program, scheduled: &Scheduled, scope: &Scope, tile: Value, stores: &[Vec<bool>]) -> Result {
    let (nests, schedules) = (&scheduled.group.nests, &scheduled.schedules);
    p.result(&nests[0], 0, tile, scope, stores[0][0])?;
    for i in 1..nests.len() {
        p.run(&nests[i], &schedules[i], scope, &stores[i])?;
    }
    Ok(())
}

/// Along which dimension a tile is cut into parts, if nests follow the product, and how long these are: where much is computed from each element, as many columns as are stored at once;
/// else 64 rows of each warpgroup.
fn cut(p: &Program, scheduled: &Scheduled, tile: Value) -> Option<(usize, i64)> {
    let (schedule, shape) = (&scheduled.schedules[0], p.shape(tile));
    if schedule.unit() != Some(Unit::Wgmma) || scheduled.group.nests.len() == 1 {
        return None;
    }
    let columns = if is_long(p, scheduled) { WIDTH } else { shape[1] };
    let rows = ROWS * schedule.threads / WARPGROUP;
    [(1, columns), (0, rows)].into_iter().find(|&(dim, size)| shape[dim] > size && shape[dim] % size == 0)
}

/// A part of a tile: from the first index on along `dim`, as many as the second says.
fn part(p: &mut Program, tile: Value, dim: usize, [first, size]: [i64; 2]) -> Value {
    let (mut shape, mut offsets) = (p.shape(tile).to_vec(), [0, 0]);
    (shape[dim], offsets[dim]) = (size, first);
    let ty = Type::tile(&shape, p.ty(tile).elem(), None);
    let mut b = p.build();
    b.op(op::kernel::EXTRACT_SLICE).operand(tile).attr("offsets", Attr::i64s(&offsets)).result(ty).value()
}

fn is_long(p: &Program, scheduled: &Scheduled) -> bool {
    let region = |op: Op| p.src.op_ref(op).entry(0).into_iter().flat_map(|block| p.src.ops(block).collect::<Vec<_>>());
    let after: Vec<Op> = scheduled.group.nests[1..].iter().flat_map(|nest| region(nest.op)).collect();
    after.len() >= LONG || after.iter().any(|&op| is_function(p.src.op_ref(op)))
}
