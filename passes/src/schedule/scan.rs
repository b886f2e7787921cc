//! Schedules of scans. Along what is contiguous in memory a GPU program takes whole rows, or chunks of one after the other, and its
//! threads hand on what comes before their elements; across it, a program takes a few columns and its warps parts of them. A CPU program takes a
//! row in chunks of a few vectors.

use super::Plan;
use super::access::{Iter, mentions};
use super::attr::{Column, Kind, Row, Schedule};
use super::group::{Group, collapse};
use super::nest::{Nest, extent_of};
use super::row::elements_of_thread;
use super::target::Target;
use super::tiles::{fit, pow2, storable};
use rc_dialects::constraints::default_acc;
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name};

/// Of a GPU's warp.
const LANES: i64 = 32;

/// Whether a GPU's program holds the prefixes of a group's scans for its other nests: all nests have the same rows, and run over the scans' iterator alone,
/// which is short.
pub fn holds(group: &Group, target: &Target) -> bool {
    let Some(leader) = group.nests.iter().find(|n| n.has(IterKind::Scan)) else { return false };
    let Some(scan) = leader.of_kind(IterKind::Scan).next().copied() else { return false };
    let rows: Vec<Name> = leader.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    let fits = |n: &Nest| {
        let own = |i: &Iter| rows.contains(&i.name) || i.name == scan.name && i.extent == scan.extent;
        rows.iter().all(|&r| n.iter(r) == leader.iter(r))
            && n.iters.iter().all(own)
            && n.clone().forward().reverse == n.reverse
            && n.outputs.iter().all(|out| out.exprs.iter().all(|e| e.as_symbol().is_some()))
    };
    !target.is_cpu() && !rows.is_empty() && group.nests.iter().all(fits) && held(leader, target).is_some()
}

/// The tile `[scan, row]` of a program that holds whole rows or columns, and whether these are rows.
fn held(leader: &Nest, target: &Target) -> Option<([i64; 2], bool)> {
    let (gpu, scan) = (target.gpu.as_ref()?, *leader.of_kind(IterKind::Scan).next()?);
    let length = pow2(scan.extent.as_static()?);
    let innermost = leader.outputs[0].innermost()?;
    let contiguous = innermost == scan.name;
    let lane = if contiguous { leader.of_kind(IterKind::Parallel).last()?.name } else { innermost };
    let lanes = pow2(leader.iter(lane)?.extent.as_static()?);
    // As many rows as make up a program's threads, or columns as a warp has lanes.
    let want = if contiguous { gpu.scans.block * gpu.scans.each / length } else { LANES };
    let most = gpu.scans.chunk / 2;
    let taken = want.min(most / length).min(lanes);
    (length <= most && (contiguous || taken >= LANES / 4)).then_some(([length, taken.max(1)], contiguous))
}

/// Scans, and what is computed of their prefixes, which a program holds.
pub fn of_rows(body: &Body, mut group: Group, target: &Target) -> Option<Plan> {
    let leader = group.nests.iter().find(|n| n.has(IterKind::Scan))?;
    let rows: Vec<Name> = leader.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    let pairs = collapse(body, &mut group, &|_, name| rows.contains(&name));
    let leader = group.nests.iter().find(|n| n.has(IterKind::Scan))?;
    let ([length, mut taken], contiguous) = held(leader, target)?;
    let scan = *leader.of_kind(IterKind::Scan).next()?;
    let rows: Vec<Name> = leader.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    let lane = if contiguous { *rows.last()? } else { leader.outputs[0].innermost()? };
    let count: f64 = leader.of_kind(IterKind::Parallel).map(|i| extent_of(&leader.ranges, i.extent) as f64).product();
    while taken > if contiguous { 1 } else { LANES / 4 } && count < (taken * target.cores) as f64 {
        taken /= 2;
    }
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let iter = *leader.iter(lane)?;
    let taken = storable(&outputs, &iter, None, taken, target);
    let each = elements_of_thread(length as f64 * count, target).min(16);
    let threads = pow2(length * taken / each).clamp(32, 1024);
    let schedules = group.nests.iter().map(|nest| {
        let kind = if contiguous { Kind::Row(Row::default()) } else { Kind::Column(Column::default()) };
        let mut s = Schedule::new(kind);
        s.collapse = pairs.clone();
        s.grid = rows.clone();
        let (own, along) = if contiguous { (0, 1) } else { (1, 0) };
        if taken > 1 {
            s.axes[own] = lane;
            s.set_tile(lane, taken);
        }
        if nest.iter(scan.name).is_some() {
            s.axes[along] = scan.name;
            s.set_tile(scan.name, length);
        }
        s.threads = threads;
        s
    });
    let what = if contiguous { "rows" } else { "columns" };
    let why = format!(
        "scans of {length} whose prefixes stay in registers, {taken} {what} for each program of {threads} threads"
    );
    Some(Plan::of_rule(schedules.collect(), why, "scans apart: would store the prefixes".to_string()))
}

/// `None` where rows are not contiguous, and on a CPU where they are shorter than a vector.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Option<Plan> {
    let pairs = collapse(body, &mut group, &|nest, name| nest.iter(name).is_some_and(|i| i.kind == IterKind::Parallel));
    let nest = group.nests[0].clone().forward();
    let scan = *nest.of_kind(IterKind::Scan).next()?;
    let output = &nest.outputs[0];
    let largest = nest
        .inputs
        .iter()
        .filter(|a| a.mentions(scan.name))
        .max_by(|a, b| nest.elements(a).total_cmp(&nest.elements(b)));
    let contiguous = largest.is_none_or(|a| a.exprs.last().is_some_and(|&e| mentions(e, scan.name)))
        && output.innermost() == Some(scan.name);
    if nest.outputs.len() != 1 {
        return None;
    }
    if !contiguous {
        return columns(body, &group, pairs, target);
    }
    let acc = nest.acc.unwrap_or_else(|| default_acc(body.ty(body.result(nest.op, 0)).elem()));
    let words = (acc.byte_width().unwrap_or(4) as i64 / 4).max(1);
    let rows: Vec<_> = nest.of_kind(IterKind::Parallel).copied().collect();
    let count = rows.iter().map(|i| extent_of(&nest.ranges, i.extent) as f64).product::<f64>();
    let length = extent_of(&nest.ranges, scan.extent);
    let lanes = if target.is_cpu() { target.lanes(acc) } else { 1 };
    let most = target.cpu.as_ref().map_or_else(|| target.gpu().scans.chunk / words, |cpu| cpu.vectors * lanes);
    let chunk = storable(&[output], &scan, None, fit(target, scan.extent.as_static(), most, lanes), target);
    if target.is_cpu() && length < lanes {
        return None;
    }
    let each = (elements_of_thread(length as f64 * count, target) / words).max(4);
    // A program of too few threads takes several rows, if there are enough for all cores.
    let mut taken = target.gpu.as_ref().map_or(1, |gpu| (gpu.scans.block * each / chunk).max(1));
    while taken > 1 && count < (taken * target.cores) as f64 {
        taken /= 2;
    }
    let mut s = Schedule::new(Kind::Row(Row::default()));
    s.collapse = pairs;
    s.grid = rows.iter().map(|i| i.name).collect();
    s.axes[1] = scan.name;
    s.set_tile(scan.name, chunk);
    if let Some(row) = rows.last().filter(|_| !target.is_cpu()) {
        taken = storable(&[output], row, Some(scan.name), fit(target, row.extent.as_static(), taken, 1), target);
        s.axes[0] = row.name;
        s.set_tile(row.name, taken);
    }
    s.threads = if target.is_cpu() { 1 } else { pow2(chunk * taken / each).clamp(32, 1024) };
    let why = format!("scans of {length} in chunks of {chunk}, {taken} rows for each program of {} threads", s.threads);
    let other = "general: point by point, a row for each thread or lane".to_string();
    (chunk > 1).then(|| Plan::of_rule(vec![s], why, other))
}

/// On a GPU, of what lies side by side in memory: columns for a program on each core, as many at once as a warp has lanes, where there are
/// enough; threads for all elements of a column, where there are few columns.
fn columns(body: &Body, group: &Group, pairs: Vec<[Name; 2]>, target: &Target) -> Option<Plan> {
    let costs = &target.gpu.as_ref()?.scans;
    let nest = group.nests[0].clone().forward();
    let scan = *nest.of_kind(IterKind::Scan).next()?;
    let output = &nest.outputs[0];
    let lane = *nest.iter(output.innermost()?).filter(|i| i.kind == IterKind::Parallel)?;
    let bytes = body.op_ref(nest.op).operand_types().iter().filter_map(|t| t.elem().byte_width()).max().unwrap_or(4);
    let count = nest.of_kind(IterKind::Parallel).map(|i| extent_of(&nest.ranges, i.extent) as f64).product::<f64>();
    let narrow = target.gpu().sector_bytes / bytes as i64;
    let width = std::iter::successors(Some(LANES), |w| Some(w / 2))
        .find(|&w| w <= narrow || count / w as f64 >= target.cores as f64)?;
    let width = storable(&[output], &lane, None, fit(target, lane.extent.as_static(), width, 1), target);
    let programs = (count / width as f64).max(1.0);
    let fills = |threads: &i64| programs * *threads as f64 >= (target.cores * target.threads / 2) as f64;
    let threads = [costs.block, 2 * costs.block].into_iter().find(fills).unwrap_or(4 * costs.block);
    let want = threads / width * costs.each;
    let down = storable(&[output], &scan, Some(lane.name), fit(target, scan.extent.as_static(), want, 1), target);
    let mut s = Schedule::new(Kind::Column(Column::default()));
    s.collapse = pairs;
    s.grid = nest.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    s.axes = [scan.name, lane.name];
    s.set_tile(scan.name, down);
    s.set_tile(lane.name, width);
    s.threads = pow2(width * down / costs.each).clamp(32, threads);
    let why = format!(
        "scans down {width} columns, {down} elements of each at once, {programs:.0} programs of {} threads",
        s.threads
    );
    (down > 1).then(|| Plan::of_rule(vec![s], why, "general: point by point, a column for each thread".to_string()))
}
