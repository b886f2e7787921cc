//! What follows a product in its kernel: nests on the tile of results that is in registers.

use super::Scheduled;
use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::WIDTH;
use crate::work::is_function;
use rc_dialects::op;
use rc_ir::{Attr, Op, Result, Type, Value};
use rc_machine::Unit;

/// Operations on each element from which an epilogue goes over its tile part by part: their code for 128 registers, with that of the
/// products, no longer stays in the instruction cache. One elementary function is as much.
const LONG: usize = 12;

/// Stores the results of a product, and runs the nests after it on them.
///
/// A thread of a warpgroup holds up to 128 of a tile's elements, and its code names each of their registers. Where much is computed
/// from each, the same code goes over the tile in parts of as many columns as are stored at once: in every step the parts that
/// are left move up by one. A quarter of the code is compiled, and stays in the instruction cache.
pub fn epilogue(p: &mut Program, scheduled: &Scheduled, scope: &Scope, tile: Value, stores: &[Vec<bool>]) -> Result {
    let (schedule, columns) = (&scheduled.schedules[0], p.shape(tile)[1]);
    let parts = columns / WIDTH;
    let apart = schedule.unit() == Some(Unit::Wgmma) && parts > 1 && columns % WIDTH == 0 && is_long(p, scheduled);
    let n = schedule.axes[1];
    let (true, Some(&whole), Some(&iter)) = (apart, scope.get(n), scheduled.group.nests[0].iter(n)) else {
        return run(p, scheduled, scope, tile, stores);
    };
    let tiles: Vec<Value> = (0..parts).map(|i| part(p, tile, i * WIDTH)).collect();
    let bounds = [p.constant_index(0), p.constant_index(columns), p.constant_index(WIDTH)];
    p.for_loop(bounds, &tiles, |p, at, tiles| {
        let first = p.add_index(whole.base, at);
        let part = bind(&iter, first, whole.axis, WIDTH).within(&whole);
        run(p, scheduled, &scope.with(n, part), tiles[0], stores)?;
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

/// The columns of a tile from `first` on, as many as are stored at once.
fn part(p: &mut Program, tile: Value, first: i64) -> Value {
    let ty = Type::tile(&[p.shape(tile)[0], WIDTH], p.ty(tile).elem(), None);
    let mut b = p.build();
    b.op(op::kernel::EXTRACT_SLICE).operand(tile).attr("offsets", Attr::i64s(&[0, first])).result(ty).value()
}

fn is_long(p: &Program, scheduled: &Scheduled) -> bool {
    let region = |op: Op| p.src.op_ref(op).entry(0).into_iter().flat_map(|block| p.src.ops(block).collect::<Vec<_>>());
    let after: Vec<Op> = scheduled.group.nests[1..].iter().flat_map(|nest| region(nest.op)).collect();
    after.len() >= LONG || after.iter().any(|&op| is_function(p.src.op_ref(op)))
}
