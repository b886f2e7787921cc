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

/// How a tile is cut along a dimension: into parts of so many elements, over which one piece of code may go.
struct Cut {
    dim: usize,
    size: i64,
    looped: bool,
}

/// Stores the results of a product, and runs the nests after it on them.
///
/// A thread of a warpgroup holds up to 192 of a tile's elements, and its code names each of their registers. So it goes over the tile in [parts](cuts). Where
/// much is computed, the same code goes over several: in every step those that are left move up by one. Less code is compiled, and stays in the instruction
/// cache.
pub fn epilogue(p: &mut Program, scheduled: &Scheduled, scope: &Scope, tile: Value, stores: &[Vec<bool>]) -> Result {
    in_parts(p, scheduled, scope, tile, &cuts(p, scheduled, tile), stores)
}

/// Runs the nests on a tile's parts, those of the first cut outermost.
fn in_parts(
    p: &mut Program,
    scheduled: &Scheduled,
    scope: &Scope,
    tile: Value,
    cuts: &[Cut],
    stores: &[Vec<bool>],
) -> Result {
    let Some((&Cut { dim, size, looped }, rest)) = cuts.split_first() else {
        return run(p, scheduled, scope, tile, stores);
    };
    let firsts = (0..p.shape(tile)[dim]).step_by(size as usize);
    let tiles: Vec<Value> = firsts.clone().map(|first| part(p, tile, dim, [first, size])).collect();
    let one = |p: &mut Program, first: Value, tile: Value| {
        let scope = within(p, scheduled, scope, dim, first, size);
        in_parts(p, scheduled, &scope, tile, rest, stores)
    };
    if !looped {
        return firsts.zip(tiles).try_for_each(|(first, tile)| {
            let first = p.constant_index(first);
            one(p, first, tile)
        });
    }
    let bounds = [p.constant_index(0), p.constant_index(p.shape(tile)[dim]), p.constant_index(size)];
    p.for_loop(bounds, &tiles, |p, at, tiles| {
        one(p, at, tiles[0])?;
        let last = *tiles.last().expect("several parts");
        Ok::<_, Box<rc_ir::Diagnostic>>(tiles[1..].iter().copied().chain([last]).collect())
    })
    .map(drop)
}

/// The scope of `size` elements of a tile along `dim`, from `first` on.
fn within(p: &mut Program, scheduled: &Scheduled, scope: &Scope, dim: usize, first: Value, size: i64) -> Scope {
    let axis = scheduled.schedules[0].axes[dim];
    let whole = scope.get(axis).expect("bound by the grid");
    let iter = scheduled.group.nests[0].iter(axis).expect("an iterator of the product");
    let first = p.add_index(whole.base, first);
    scope.with(axis, bind(iter, first, whole.axis, size).within(whole))
}

fn run(p: &mut Program, scheduled: &Scheduled, scope: &Scope, tile: Value, stores: &[Vec<bool>]) -> Result {
    let (nests, schedules) = (&scheduled.group.nests, &scheduled.schedules);
    p.result(&nests[0], 0, tile, scope, stores[0][0])?;
    for i in 1..nests.len() {
        p.run(&nests[i], &schedules[i], scope, &stores[i])?;
    }
    Ok(())
}

/// Where a tile is cut, if nests follow the product: into as many columns as are stored at once where much is computed from each element, or where what is
/// read comes ahead in boxes; and into the 64 rows of each warpgroup.
fn cuts(p: &Program, scheduled: &Scheduled, tile: Value) -> Vec<Cut> {
    let (schedule, shape) = (&scheduled.schedules[0], p.shape(tile));
    if schedule.unit() != Some(Unit::Wgmma) || scheduled.group.nests.len() == 1 {
        return Vec::new();
    }
    let long = is_long(p, scheduled);
    let ahead = schedule.contract().is_some_and(|own| own.epilogue_stages.is_some());
    let columns = if ahead || long { WIDTH } else { shape[1] };
    let sizes = [(1, columns), (0, ROWS * schedule.threads / WARPGROUP)];
    let several = sizes.into_iter().filter(|&(dim, size)| shape[dim] > size && shape[dim] % size == 0);
    several.enumerate().map(|(i, (dim, size))| Cut { dim, size, looped: long && i == 0 }).collect()
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
