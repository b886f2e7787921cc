//! Schedules of reductions across what is contiguous in memory (column sums, bias gradients), and the general schedule that
//! runs any nest.

use super::attr::{Kind, Schedule};
use super::group::{Group, collapse};
use super::nest::Nest;
use super::target::Target;
use super::tiles::{fit, storable};
use super::{Plan, elems};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name};

/// A program takes a few columns and goes down them; on a GPU several rows at once, combined at the end.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let pairs = collapse(body, &mut group, &|_, _| true);
    let rows = group.rows();
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let lanes = target.lanes(elems(body, &group));
    let programs: f64 =
        leader.of_kind(IterKind::Parallel).map(|i| super::nest::extent_of(&leader.ranges, i.extent) as f64).product();
    let (columns, down) = if target.is_cpu() { (4 * lanes, 1) } else { gpu_tile(programs, target) };
    let lane = lane_iter(leader, &rows);
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let width = lane
        .and_then(|l| leader.iter(l))
        .map_or(1, |i| storable(&outputs, i, None, fit(target, i.extent.as_static(), columns, lanes), target));
    let mut schedules = Vec::new();
    for nest in &group.nests {
        let mut s = Schedule::new(Kind::Column);
        s.collapse = pairs.clone();
        s.grid = rows.clone();
        s.threads = if target.is_cpu() { 1 } else { 256 };
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
    let why = format!("{width} columns and {down} rows at once, {:.0} programs", (programs / width as f64).ceil());
    Plan { schedules, why, other: "row: reads would not be contiguous".to_string() }
}

/// Columns and rows of a tile of 2048 elements: as many columns as leave a program for each core, but no fewer than fill a
/// memory sector of 32 bytes.
fn gpu_tile(columns: f64, target: &Target) -> (i64, i64) {
    let width = [64, 32, 16, 8].into_iter().find(|&w| columns / w as f64 >= target.cores as f64).unwrap_or(8);
    (width, 2048 / width)
}

/// The parallel iterator along which operands or results are contiguous.
fn lane_iter(nest: &Nest, rows: &[Name]) -> Option<Name> {
    let inside = |n: &Name| rows.contains(n);
    let inputs = nest.inputs.iter().filter_map(|a| a.innermost()).find(inside);
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
