//! Schedules of attention: a program takes a block of queries of one head and walks over the keys.

use super::access::{Access, Iter, has_index};
use super::attr::{Kind, Schedule};
use super::nest::extent_of;
use super::target::Target;
use super::tiles::pow2;
use super::{Plan, nest};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Dim, Name, Op};

/// The iterators of `loop.attention`, by role.
pub fn iters(body: &Body, op: Op) -> Option<([Name; 6], [Dim; 6])> {
    let op = body.op_ref(op);
    let names: Vec<Name> =
        op.attr("iters")?.as_array()?.iter().map(|a| a.as_str().map(Name::new)).collect::<Option<_>>()?;
    let extents = op.attr("extents")?.as_shape()?;
    Some((names.try_into().ok()?, extents.try_into().ok()?))
}

/// `None` if the op does not have the six iterators b, h, m, n, d, e.
pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let ([b, h, m, n, d, e], extents) = iters(body, op)?;
    let ranges = nest::symbol_ranges(&rc_dialects::func::symbols(body));
    let size = |i: usize| extent_of(&ranges, extents[i]);
    let mut s = Schedule::new(Kind::Attention);
    s.grid = vec![b, h, m];
    s.axes = [m, n];
    let ty = body.op_ref(op).operand_types()[0].elem();
    let half = ty.bit_width() == Some(16);
    let fits = |want: i64, i: usize| want.min(pow2(size(i)));
    let (why, other);
    if target.is_cpu() {
        let (rows, keys) = (if target.registers >= 32 { 12 } else { 6 }, 2 * target.lanes(rc_ir::Type::f32()));
        let rows = size(2).clamp(1, rows);
        // Turning the keys around pays for itself over many queries; a few programs for each core keep all busy.
        let programs = |block: i64| size(0) * size(1) * ((size(2) + block - 1) / block);
        let mut block = rows * 16;
        while block > rows && programs(block) < 4 * target.cores {
            block = (block / 2 + rows - 1) / rows * rows;
        }
        s.tile = vec![(m, rows), (n, keys)];
        s.block = vec![(m, block)];
        why = format!(
            "{rows} queries and {keys} keys at a time, {block} queries for each of {} programs; scores never leave the core",
            programs(block)
        );
        other = format!("{} queries at a time: more registers than the machine's {}", rows + 2, target.registers);
    } else {
        let (bm, bn) =
            if half { (fits(64, 2).max(16), fits(64, 3).max(16)) } else { (fits(32, 2).max(16), fits(32, 3).max(16)) };
        let warpgroups = half && fits_warpgroups(body, op, target);
        let (bm, bn) = if warpgroups { (if size(2) <= 64 { 64 } else { 128 }, 128) } else { (bm, bn) };
        s.tile = vec![(m, bm), (n, bn), (d, pow2(size(4))), (e, pow2(size(5)))];
        s.threads = match (warpgroups, half) {
            (true, _) => 2 * bm,
            (_, true) => (bm / 16 * 32).clamp(32, 128),
            _ => 128,
        };
        s.unit = Some(match half && size(4) % 16 == 0 {
            _ if warpgroups => "wgmma",
            true => "mma",
            false => "fma",
        });
        s.stages = warpgroups.then_some(2);
        if body.op_ref(op).bool("causal") {
            s.grid = vec![m, b, h]; // The longest rows of all heads first.
        }
        let programs = size(0) * size(1) * ((size(2) + bm - 1) / bm);
        why = format!("{bm} queries and {bn} keys at a time, {programs} programs");
        other = format!("{} queries: {} programs", 2 * bm, programs / 2);
    }
    Some(Plan { schedules: vec![s], why, other })
}

/// Whether Hopper's copy engine can bring tiles of q, k and v, and its warpgroups multiply them.
fn fits_warpgroups(body: &Body, op: Op, target: &Target) -> bool {
    let Some((names, extents)) = iters(body, op) else { return false };
    let at = body.op_ref(op);
    let all: Vec<Iter> =
        (0..6).map(|i| Iter { name: names[i], extent: extents[i], kind: IterKind::Parallel }).collect();
    let mut ranges = nest::symbol_ranges(&rc_dialects::func::symbols(body));
    all.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
    let maps = at.attr("maps").and_then(|a| a.as_array()).unwrap_or_default();
    let read = |(i, map): (usize, &rc_ir::Attr)| {
        Some(Access::new(&body.ty(at.operand(i)).shape(), map.as_shape()?).normalized(&ranges, &all))
    };
    let Some(accesses) = maps.iter().take(3).enumerate().map(read).collect::<Option<Vec<Access>>>() else {
        return false;
    };
    let copied = |(access, [row, column]): (&Access, [usize; 2])| {
        let tiled = [names[row], names[column]];
        let along = access.plain(&tiled).unwrap_or_default();
        let whole = |i: usize| tiled.iter().all(|t| along.contains(&Some(*t))) && access.clips(&all[i]);
        along.last() == Some(&Some(names[column]))
            && whole(row)
            && access.shape.len() <= 5
            && super::warpgroup::strides_fit(&access.shape)
            && !access.exprs.iter().any(|&e| has_index(e))
    };
    let sizes = |i: usize| matches!(extents[i], Dim::Static(64 | 128));
    target.has_warpgroups()
        && accesses.len() == 3
        && sizes(4)
        && sizes(5)
        && accesses.iter().zip([[2, 4], [3, 4], [3, 5]]).all(copied)
}
