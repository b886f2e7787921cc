//! Schedules of windows on a CPU: results that are neighbours along two iterators are summed side by side in registers, so that what
//! depends on one of the two alone (a window's weights, say) is loaded once for several of them.

use super::access::{Access, Iter, coefficient, mentions};
use super::attr::{Column, Kind, Schedule};
use super::contract_cpu::LINE;
use super::group::{Group, collapse};
use super::nest::{Nest, extent_of};
use super::target::Target;
use super::tiles::{fit, storable};
use super::{Plan, elems};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Dim, Name};
use rc_machine::CpuWindows;
use rustc_hash::FxHashSet;

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
    let mut tiles: Vec<Tile> =
        (1..=costs.vectors).map(|v| Tile { outer: None, rows: 1, width: width(v), sliding: None }).collect();
    for outer in beside.into_iter().rev() {
        let apart = leader.accesses().all(|access| !collides(access, outer.name, target));
        let rows = if apart { costs.rows } else { costs.colliding_rows };
        let most = outer.extent.as_static().unwrap_or(costs.rows).min(rows);
        let sliding = sliding(leader, outer.name, costs);
        for (rows, vectors) in (2..=most).flat_map(|rows| (1..=costs.vectors).map(move |v| (rows, v))) {
            let fits = storable(&outputs, outer, Some(lane), rows, target) == rows;
            if !fits || rows * vectors >= target.registers {
                continue;
            }
            let tile = Tile { outer: Some(outer.name), rows, width: width(vectors), sliding: None };
            tiles.extend(sliding.iter().map(|&iter| Tile { sliding: Some(iter), ..tile }));
            if rows * vectors + vectors < target.registers {
                tiles.push(tile);
            }
        }
    }
    let cost = |tile: &Tile| cycles(leader, tile, lane, lanes, target);
    let best = tiles.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let &Tile { outer, rows, width, sliding } = best.expect("there are tiles of one row");
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
    if let Some((name, steps)) = sliding {
        schedule.set_tile(name, steps);
    }
    let along = outer.map_or(String::new(), |outer| format!(" and {rows} along {outer}"));
    let shared = sliding.map_or(String::new(), |(name, steps)| format!(", and {steps} steps along {name}"));
    let why = format!("windows along {lane}, {width} results{along} at once{shared}");
    let other = "row: windows are too short to fill vectors".to_string();
    Plan::of_rule(vec![schedule; group.nests.len()], why, other)
}

/// Whether neighbours along an iterator lie a multiple of a page apart: their lines are in the same set of the first-level cache.
fn collides(access: &Access, name: Name, target: &Target) -> bool {
    let page = (target.cpu().page_bytes / 4).max(1); // In elements of four bytes.
    access.distance(name).is_some_and(|distance| distance != 0 && distance % page == 0)
}

/// Results that are summed side by side: so many along the lanes and along another iterator, and an iterator of the windows, all steps of which are taken
/// at once, since neighbouring results share what they read.
#[derive(Clone, Copy)]
struct Tile {
    outer: Option<Name>,
    rows: i64,
    width: i64,
    sliding: Option<(Name, i64)>,
}

/// The iterators of few steps along which windows slide over what those of the next result along `outer` have read.
fn sliding(nest: &Nest, outer: Name, costs: &CpuWindows) -> Vec<(Name, i64)> {
    let short = |iter: &Iter| iter.extent.as_static().filter(|n| (2..=costs.unrolled).contains(n));
    let shares = |iter: &Iter, steps: i64| {
        nest.inputs.iter().any(|access| rows_read(access, outer, 2, iter.name, steps).is_some_and(|n| n < 2 * steps))
    };
    let reduced = nest.of_kind(IterKind::Reduce).filter_map(|iter| Some((iter, short(iter)?)));
    reduced.filter(|(iter, steps)| shares(iter, *steps)).map(|(iter, steps)| (iter.name, steps)).collect()
}

/// How many different elements `rows` results next to each other along `outer` read in `steps` along `along`, where both lie along one dimension.
fn rows_read(access: &Access, outer: Name, rows: i64, along: Name, steps: i64) -> Option<i64> {
    let mut both = access.exprs.iter().filter(|&&e| mentions(e, outer) || mentions(e, along));
    let (&e, None) = (both.next()?, both.next()) else { return None };
    let (by_row, by_step) = (coefficient(e, outer)?, coefficient(e, along)?);
    if by_row == 0 || by_step == 0 {
        return None;
    }
    let places: FxHashSet<i64> =
        (0..rows).flat_map(|row| (0..steps).map(move |step| row * by_row + step * by_step)).collect();
    Some(places.len() as i64)
}

/// What the unrolled steps of a tile read of an operand.
struct Read {
    /// Places along everything but the lanes, and vectors at each.
    places: i64,
    vectors: f64,
    by_row: bool,
    /// Whether a later step reads some of them again.
    again: bool,
    /// How many loads a vector takes: one that does not start at a multiple of its size lies on two lines.
    loads: f64,
}

/// Cycles of all tiles, but for a factor: two loads and two operations on vectors a cycle.
fn cycles(nest: &Nest, tile: &Tile, lane: Name, lanes: i64, target: &Target) -> f64 {
    let (costs, vectors) = (&target.cpu().windows, (tile.width as f64 / lanes as f64).ceil());
    let (rows, outer) = (tile.rows, tile.outer);
    let (steps, along) = tile.sliding.map_or((1, None), |(along, steps)| (steps, Some(along)));
    let reduced = |e: Dim| nest.of_kind(IterKind::Reduce).any(|i| mentions(e, i.name));
    let read = |access: &Access| {
        let by = |name: Option<Name>| name.is_some_and(|name| access.mentions(name));
        let apart = if by(outer) { rows } else { 1 } * if by(along) { steps } else { 1 };
        let shared = outer.zip(along).and_then(|(outer, along)| rows_read(access, outer, rows, along, steps));
        let unaligned = access.exprs.iter().any(|&e| mentions(e, lane) && reduced(e));
        Read {
            places: shared.unwrap_or(apart),
            vectors: if access.mentions(lane) { vectors } else { 1.0 },
            by_row: by(outer),
            again: shared.is_some_and(|places| places < apart),
            loads: if unaligned { 1.0 + (target.vector_bits / 8) as f64 / LINE as f64 } else { 1.0 },
        }
    };
    let reads: Vec<Read> = nest.inputs.iter().map(read).collect();
    let loads: f64 = reads.iter().map(|r| r.places as f64 * r.vectors * r.loads).sum();
    let places: i64 = reads.iter().filter(|r| r.by_row).map(|r| r.places).sum();
    let kept: f64 = reads.iter().filter(|r| r.again).map(|r| r.places as f64 * r.vectors).sum();
    let sums = rows as f64 * vectors;
    let spilled = (sums + kept + 1.0 - target.registers as f64).max(0.0);
    let (arithmetic, waits) = (sums * steps as f64 / 2.0, costs.latency * steps as f64);
    let besides = costs.step + costs.row * places as f64 + costs.spill * spilled;
    let step = (loads / 2.0).max(arithmetic).max(waits) + besides;
    let extent = |name: Name| nest.iter(name).map_or(1, |iter| extent_of(&nest.ranges, iter.extent)) as f64;
    let windows: f64 = nest.of_kind(IterKind::Reduce).map(|i| extent(i.name)).product();
    // For each element, where the last tile is a part of one.
    let tiles = |name: Name, size: i64, partial: f64| {
        let (whole, rest) = ((extent(name) / size as f64).floor(), extent(name) % size as f64);
        (whole + if rest > 0.0 { partial } else { 0.0 }) / extent(name)
    };
    let of_all = tiles(lane, tile.width, costs.partial) * outer.map_or(1.0, |outer| tiles(outer, rows, 1.0));
    (step * windows / steps as f64 + costs.tile) * of_all
}
