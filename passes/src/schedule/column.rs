//! Schedules of reductions across what is contiguous in memory (column sums, bias gradients), and the general schedule that
//! runs any nest.

use super::access::{Access, Iter, mentions};
use super::attr::{Column, Kind, Schedule};
use super::group::{Group, collapse};
use super::nest::Nest;
use super::target::Target;
use super::tiles::{best_outer, fit, pow2, storable};
use super::{Plan, elems};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name};

/// A program takes a few columns and goes down them; on a GPU several rows at once, combined at the end.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let pairs = collapse(body, &mut group, &|_, _| true);
    let rows = group.rows();
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let lanes = target.lanes(elems(body, &group));
    let programs = leader.results();
    let (columns, down, split) = match target.is_cpu() {
        true => (4 * lanes, 1, None),
        false => gpu_tile(body, &group, leader, programs, target),
    };
    let lane = lane_iter(leader, &rows);
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let width = lane
        .and_then(|l| leader.iter(l))
        .map_or(1, |i| storable(&outputs, i, None, fit(target, i.extent.as_static(), columns, lanes), target));
    let mut schedules = Vec::new();
    for nest in &group.nests {
        let mut s = Schedule::new(Kind::Column(Column { split }));
        s.collapse = pairs.clone();
        s.grid = rows.clone();
        s.threads = if target.is_cpu() { 1 } else { THREADS };
        if let Some(lane) = lane {
            s.axes[1] = lane;
            s.set_tile(lane, width);
        }
        let outs: Vec<_> = nest.outputs.iter().collect();
        if let Some(local) = nest.iters.iter().rfind(|i| !rows.contains(&i.name)).filter(|_| down > 1) {
            let size = fit(target, local.extent.as_static(), down, 1);
            let size = if local.kind == IterKind::Reduce { size } else { storable(&outs, local, lane, size, target) };
            s.axes[0] = local.name;
            s.set_tile(local.name, size);
        }
        schedules.push(s);
    }
    let programs = (programs / width as f64).ceil();
    let why = format!("{width} columns and {down} rows at once, {:.0} programs", programs * split.unwrap_or(1) as f64);
    let (why, other) = match split {
        Some(parts) => (
            format!("{why}, {parts} for each column, then a kernel that combines them"),
            format!("not split: {programs:.0} programs for {} cores", target.cores),
        ),
        None => (why, "row: reads would not be contiguous".to_string()),
    };
    Plan { schedules, why, other }
}

/// The parallel iterator along which windows are reduced side by side: the results lie along it, and so do the elements that each
/// step of a window adds, be it that windows slide along it or (channels last) along others.
pub fn window_lane(nest: &Nest) -> Option<Name> {
    let lane = nest.outputs.iter().find_map(|a| a.innermost())?;
    let within = |e: rc_ir::Dim| nest.of_kind(IterKind::Reduce).any(|i| mentions(e, i.name));
    let slides = |e: rc_ir::Dim| within(e) && nest.of_kind(IterKind::Parallel).any(|i| mentions(e, i.name));
    let sliding = |access: &Access| {
        let last = access.shape.iter().rposition(|&s| s != rc_ir::Dim::Static(1));
        last.is_some_and(|d| mentions(access.exprs[d], lane) && access.exprs.iter().any(|&e| slides(e)))
    };
    (nest.iter(lane)?.kind == IterKind::Parallel && nest.inputs.iter().any(sliding)).then_some(lane)
}

/// Of windows: a program computes neighbouring results, and goes over the elements of their windows one by one. On a GPU its results are
/// neighbours along two iterators.
pub fn windows(body: &Body, mut group: Group, lane: Name, target: &Target) -> Plan {
    let pairs = collapse(body, &mut group, &|_, _| true);
    let rows = group.rows();
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let lanes = target.lanes(elems(body, &group));
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    // A GPU's thread has several results, as long as all cores have work.
    let each =
        [8, 4, 2].into_iter().find(|each| leader.results() / (THREADS * each) as f64 >= (2 * target.cores) as f64);
    let wanted = if target.is_cpu() { 4 * lanes } else { THREADS / 2 * each.unwrap_or(1) };
    let widest = if target.is_cpu() { wanted } else { THREADS / 2 };
    let fits = |i: &Iter| storable(&outputs, i, None, fit(target, i.extent.as_static(), widest, lanes), target);
    let width = leader.iter(lane).map_or(1, fits);
    let mut schedule = Schedule::new(Kind::Column(Column::default()));
    let down = |i: &Iter| {
        let rows = fit(target, i.extent.as_static(), wanted / width, 1);
        storable(&outputs, i, Some(lane), rows, target)
    };
    let outer = if target.is_cpu() { None } else { best_outer(leader, lane, &down).filter(|o| o.1 > 1) };
    if let Some((name, size)) = outer {
        schedule.axes[0] = name;
        schedule.set_tile(name, size);
    }
    schedule.collapse = pairs;
    schedule.grid = rows;
    let size = width * outer.map_or(1, |o| o.1);
    schedule.threads = if target.is_cpu() { 1 } else { pow2(size / each.unwrap_or(1)).clamp(32, THREADS) };
    schedule.axes[1] = lane;
    schedule.set_tile(lane, width);
    let why = format!("windows along {lane}, {size} results at once");
    let other = "row: windows are too short to fill vectors".to_string();
    Plan { schedules: vec![schedule; group.nests.len()], why, other }
}

/// Threads of a GPU's program.
const THREADS: i64 = 256;

/// Loads of 16 bytes that a GPU's thread has in flight.
const LOADS: i64 = 8;

/// Least elements for which a second kernel pays for itself.
const SPLIT_FROM: f64 = (1 << 21) as f64;

/// Columns and rows of a tile, and into how many parts the rows are cut. Of few elements: as many columns as leave a program
/// for each core, but no fewer than a thread loads at once, and rows until all loads are in flight. Of many, rows of 512 bytes for each warp.
fn gpu_tile(body: &Body, group: &Group, leader: &Nest, columns: f64, target: &Target) -> (i64, i64, Option<i64>) {
    let bytes =
        body.op_ref(leader.op).operand_types().iter().filter_map(|t| t.elem().byte_width()).min().unwrap_or(4) as i64;
    let combines = |c: &&str| !c.starts_with("arg");
    let alone = group.nests.iter().all(|n| n.op == leader.op || n.is_pointwise()) && group.nests[0].op == leader.op;
    if leader.points() < SPLIT_FROM || !alone || !leader.combiners.iter().all(|c| combines(&c)) {
        let width = [64, 32, 16, 8].into_iter().find(|&w| columns / w as f64 >= target.cores as f64).unwrap_or(8);
        return (width, if alone { in_flight(body, leader) } else { 2048 } / width, None);
    }
    let width = (512 / bytes).min(pow2(columns as i64));
    let down = THREADS * LOADS * 16 / bytes / width;
    let across = (columns / width as f64).ceil();
    // Two programs run on a core at once. Cutting pays as it fills the machine, and costs writing and reading the parts.
    let rows = leader.points() / columns;
    let at_once = (2 * target.cores) as f64;
    let cost = |parts: i64| {
        let waves = across * parts as f64 / at_once;
        waves.ceil() / waves * (1.0 + (8 * parts) as f64 / (rows * bytes as f64))
    };
    let enough = |parts: &i64| rows / *parts as f64 >= (2 * down) as f64;
    let best = (0..10).map(|i| 1 << i).filter(enough).min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
    (width, down, best.filter(|&parts| parts > 1))
}

/// Elements that a program takes at once so that each of its threads has all its loads in flight, of the widest operand.
fn in_flight(body: &Body, leader: &Nest) -> i64 {
    let widths = body.op_ref(leader.op).operand_types();
    let bytes = widths.iter().filter_map(|t| t.elem().byte_width()).max().unwrap_or(4) as i64;
    THREADS * LOADS * 16 / bytes
}

/// The parallel iterator along which operands, the largest first, or results are contiguous. A vector of numbers for
/// channels, say, does not outweigh results.
fn lane_iter(nest: &Nest, rows: &[Name]) -> Option<Name> {
    let inside = |n: &Name| rows.contains(n);
    let largest = nest.inputs.iter().map(|a| nest.elements(a)).fold(0.0, f64::max);
    let inputs = nest.inputs.iter().filter(|&a| nest.elements(a) == largest).filter_map(|a| a.innermost()).find(inside);
    inputs.or_else(|| nest.outputs.iter().filter_map(|a| a.innermost()).find(inside)).or(rows.last().copied())
}

/// For any nest: tiles along one parallel iterator whose results can be stored so, one point at a time of all others.
pub fn general(body: &Body, group: &Group, target: &Target, why: &str) -> Plan {
    let nest = &group.nests[0];
    let rows = group.rows();
    let outputs: Vec<_> = nest.outputs.iter().collect();
    let lanes = target.lanes(elems(body, group));
    let want = if target.is_cpu() { lanes } else { 128 };
    let mut schedule = Schedule::new(Kind::General);
    schedule.grid = rows.clone();
    schedule.threads = if target.is_cpu() { 1 } else { 128 };
    let lane = lane_iter(nest, &rows);
    if let Some(iter) = lane.and_then(|l| nest.iter(l)) {
        schedule.axes[1] = iter.name;
        schedule.set_tile(
            iter.name,
            storable(&outputs, iter, None, fit(target, iter.extent.as_static(), want, lanes), target),
        );
    }
    let width = schedule.tile.first().map_or(1, |t| t.1);
    let why = format!("{why}; {width} results at a time");
    Plan { schedules: vec![schedule; group.nests.len()], why, other: "none of the special forms applies".into() }
}
