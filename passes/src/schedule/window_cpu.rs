//! Schedules of windows on a CPU: results that are neighbours along two iterators are summed side by side in registers, so that what
//! depends on one of the two alone (a window's weights, say) is loaded once for several of them.

use super::access::{Access, Iter};
use super::attr::{Column, Kind, Schedule};
use super::group::{Group, collapse};
use super::nest::{Nest, extent_of};
use super::target::Target;
use super::tiles::{fit, storable};
use super::{Plan, elems};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name};
use rc_machine::CpuWindows;

/// Tiles of results along `lane` and, where that loads less, along another iterator before it.
pub fn plan(body: &Body, mut group: Group, lane: Name, target: &Target) -> Plan {
    // Lanes stay along the iterator that they are for, also where rows of a window would run as one with those below.
    let pairs = collapse(body, &mut group, &|_, name| name != lane);
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let lanes = target.lanes(elems(body, &group));
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let beside: Vec<&Iter> = leader.of_kind(IterKind::Parallel).filter(|i| i.name != lane).collect();
    let width = |vectors: i64| {
        let fits =
            |i: &Iter| storable(&outputs, i, None, fit(target, i.extent.as_static(), vectors * lanes, lanes), target);
        leader.iter(lane).map_or(1, fits)
    };
    let costs = &target.cpu().windows;
    let mut tiles: Vec<(Option<Name>, i64, i64)> = (1..=costs.vectors).map(|v| (None, 1, width(v))).collect();
    for outer in beside.into_iter().rev() {
        let apart = leader.accesses().all(|access| !collides(access, outer.name, target));
        let rows = if apart { costs.rows } else { costs.colliding_rows };
        let most = outer.extent.as_static().unwrap_or(costs.rows).min(rows);
        for (rows, vectors) in (2..=most).flat_map(|rows| (1..=costs.vectors).map(move |v| (rows, v))) {
            let fits = storable(&outputs, outer, Some(lane), rows, target) == rows;
            if fits && rows * vectors + vectors < target.registers {
                tiles.push((Some(outer.name), rows, width(vectors)));
            }
        }
    }
    let cost = |&(outer, rows, width): &(Option<Name>, i64, i64)| {
        cycles(leader, [outer, Some(lane)], [rows, width], lanes, costs)
    };
    let best = tiles.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let &(outer, rows, width) = best.expect("there are tiles of one row");
    let mut schedule = Schedule::new(Kind::Column(Column::default()));
    schedule.collapse = pairs;
    schedule.grid = group.rows();
    schedule.threads = 1;
    schedule.axes[1] = lane;
    schedule.set_tile(lane, width);
    if let Some(outer) = outer {
        schedule.axes[0] = outer;
        schedule.set_tile(outer, rows);
    }
    let along = outer.map_or(String::new(), |outer| format!(" and {rows} along {outer}"));
    let why = format!("windows along {lane}, {width} results{along} at once");
    let other = "row: windows are too short to fill vectors".to_string();
    Plan::of_rule(vec![schedule; group.nests.len()], why, other)
}

/// Whether neighbours along an iterator lie a multiple of a page apart: their lines are in the same set of the first-level cache.
fn collides(access: &Access, name: Name, target: &Target) -> bool {
    let page = (target.cpu().page_bytes / 4).max(1); // In elements of four bytes.
    access.distance(name).is_some_and(|distance| distance != 0 && distance % page == 0)
}

/// Cycles of all tiles' steps, but for a factor: two loads and two operations on vectors a cycle.
fn cycles(nest: &Nest, names: [Option<Name>; 2], sizes: [i64; 2], lanes: i64, costs: &CpuWindows) -> f64 {
    let vectors = (sizes[1] as f64 / lanes as f64).ceil();
    let shape = [sizes[0] as f64, vectors];
    let loads: f64 = nest
        .inputs
        .iter()
        .map(|access| {
            let along = |i: usize| names[i].is_some_and(|name| access.mentions(name));
            (0..2).filter(|&i| along(i)).map(|i| shape[i]).product::<f64>()
        })
        .sum();
    let step = (loads / 2.0).max(shape[0] * vectors / 2.0).max(costs.latency) + costs.step;
    let tiles = |i: usize| {
        let extent = names[i].and_then(|name| nest.iter(name)).map(|iter| extent_of(&nest.ranges, iter.extent));
        extent.map_or(1.0, |n| (n as f64 / sizes[i] as f64).ceil() / n as f64)
    };
    step * tiles(0) * tiles(1)
}
