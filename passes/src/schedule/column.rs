//! Schedules of reductions across what is contiguous in memory (column sums, bias gradients), and the general schedule that
//! runs any nest.

use super::access::{Access, Iter, mentions};
use super::attr::{Column, Kind, Schedule};
use super::group::{Group, collapse};
use super::nest::Nest;
use super::target::Target;
use super::tiles::{best_outer, fit, pow2, storable};
use super::{Plan, elems};
use crate::work::work;
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Dim, Name, Op};
use rc_machine::{Columns, Cpu};

/// Columns and rows that a program takes at once, into how many parts the rows are cut, and the program's threads.
struct Tile {
    columns: i64,
    down: i64,
    split: Option<i64>,
    threads: i64,
}

/// A program takes a few columns and goes down them; on a GPU several rows at once, combined at the end.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let pairs = collapse(body, &mut group, &|_, _| true);
    let rows = group.rows();
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let lanes = target.lanes(elems(body, &group));
    let programs = leader.results();
    let Tile { columns, down, split, threads } = match &target.cpu {
        Some(cpu) => {
            Tile { columns: cpu_columns(body, &group, leader, lanes, cpu, target), down: 1, split: None, threads: 1 }
        }
        None => gpu_tile(body, &group, leader, programs, target),
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
        s.threads = threads;
        if let Some(lane) = lane {
            s.axes[1] = lane;
            s.set_tile(lane, width);
        }
        let outs: Vec<_> = nest.outputs.iter().collect();
        let mut locals = nest.iters.iter().rev().filter(|i| !rows.contains(&i.name));
        if let Some(local) = locals.next().filter(|_| down > 1) {
            let size = fit(target, local.extent.as_static(), down, 1);
            let size = if local.kind == IterKind::Reduce { size } else { storable(&outs, local, lane, size, target) };
            s.axes[0] = local.name;
            s.set_tile(local.name, size);
            // Parts of the rows are many programs, which hide it from one another, and of few steps each.
            let around = locals.next().filter(|_| split.is_none());
            if let Some((outer, steps)) = around.and_then(|i| together(nest, i, size * width / threads, target)) {
                s.set_tile(outer, steps);
            }
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
    Plan::of_rule(schedules, why, other)
}

/// Of a GPU's nest the iterator around a program's rows, and how many of its steps, in which a thread has `each` elements, run together: it would wait for memory
/// in each.
fn together(nest: &Nest, outer: &Iter, each: i64, target: &Target) -> Option<(Name, i64)> {
    let whole = target.gpu.as_ref()?.columns.whole;
    let extent = outer.extent.as_static().filter(|_| outer.kind == IterKind::Reduce)?;
    let reads = nest.inputs.iter().filter(|a| a.mentions(outer.name)).count() as i64;
    let loads = each.max(1) * reads.max(1);
    let steps = (2..=whole / loads).rev().find(|n| extent % n == 0)?;
    Some((outer.name, steps))
}

/// Columns of a CPU's tile. Wide ones go to a new row, on another page as a rule, less often; as many are taken as end soonest on all cores.
/// Tiles are not wide that leave a part of one, which takes as long and has masks, or whose rows other nests read again, which are to stay in
/// the caches.
fn cpu_columns(body: &Body, group: &Group, leader: &Nest, lanes: i64, cpu: &Cpu, target: &Target) -> i64 {
    let (usual, rows) = (cpu.vectors * lanes, group.rows());
    let again = |n: &Nest| n.op != leader.op && n.iters.iter().any(|i| !rows.contains(&i.name));
    if group.nests.iter().any(again) {
        // All cores have programs, if there are vectors for them.
        let each = (leader.results() / (target.cores * lanes) as f64) as i64 * lanes;
        return usual.min(each.max(lanes));
    }
    let Some(extent) = lane_extent(leader) else { return usual };
    let bytes = body.op_ref(leader.op).operand_types().iter().filter_map(|t| t.elem().byte_width()).max().unwrap_or(4);
    let time = |width: &i64| {
        let programs = leader.results() / *width as f64;
        let row = width * bytes as i64 + cpu.columns.row_bytes;
        (programs / target.cores as f64).ceil() * row as f64
    };
    let most = cpu.columns.vectors * lanes / leader.outputs.len().max(1) as i64;
    let widths = std::iter::successors(Some(usual), |width| Some(2 * width)).take_while(|&width| width <= most);
    let whole = widths.filter(|width| extent % width == 0);
    whole.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(usual)
}

/// The parallel iterator along which windows are reduced side by side: the results lie along it, and so do the elements that each
/// step of a window adds, be it that windows slide along it, less than `apart` elements each, or (channels last) along others.
pub fn window_lane(nest: &Nest, apart: i64) -> Option<Name> {
    let lane = result_lane(nest)?;
    let iter = *nest.iter(lane)?;
    let last = |access: &Access| access.shape.iter().rposition(|&s| s != Dim::Static(1));
    let sliding = |access: &Access| {
        let along = last(access).map(|d| access.exprs[d]).filter(|&e| mentions(e, lane));
        along.is_some_and(|e| step(e, &iter).is_none_or(|step| step <= apart))
            && access.exprs.iter().any(|&e| slides(nest, e))
    };
    nest.inputs.iter().any(sliding).then_some(lane)
}

/// The parallel iterator along which results lie side by side.
pub fn result_lane(nest: &Nest) -> Option<Name> {
    let lane = nest.outputs.iter().find_map(|a| a.innermost())?;
    (nest.iter(lane)?.kind == IterKind::Parallel).then_some(lane)
}

/// Whether windows slide along dimensions of an operand that is read along `lane` side by side.
pub fn has_windows(nest: &Nest, lane: Name) -> bool {
    nest.inputs.iter().any(|a| a.innermost() == Some(lane) && a.exprs.iter().any(|&e| slides(nest, e)))
}

/// Whether windows slide along a dimension that is read at `e`.
fn slides(nest: &Nest, e: Dim) -> bool {
    let mentioned = |kind: IterKind| nest.of_kind(kind).any(|i| mentions(e, i.name));
    mentioned(IterKind::Reduce) && mentioned(IterKind::Parallel)
}

/// By how much an expression grows along an iterator from value to value, on the average.
fn step(e: Dim, iter: &Iter) -> Option<i64> {
    let last = iter.extent.as_static().filter(|n| *n > 1)? - 1;
    let at = |n: i64| {
        let value = |name: Name| Some(Dim::Static(if name == iter.name { n } else { 0 }));
        e.substitute(&value).as_static()
    };
    Some((at(last)? - at(0)?) / last)
}

/// Of windows on a GPU: a program computes neighbouring results, and goes over the elements of their windows one by one. A thread has several
/// results, as long as all cores have work: neighbours whose windows share elements, or results that share what index maps compute.
pub fn windows(body: &Body, mut group: Group, lane: Name, target: &Target) -> Plan {
    // Results along which windows slide stay apart from those beside them: they share elements.
    let pairs = collapse(body, &mut group, &|nest, name| !windows_slide(nest, name));
    let rows = group.rows();
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let joined = pairs.iter().rfind(|pair| pair.contains(&lane)).and_then(|_| result_lane(leader));
    let lane = joined.unwrap_or(lane);
    let lanes = target.lanes(elems(body, &group));
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let mut schedule = Schedule::new(Kind::Column(Column::default()));
    schedule.collapse = pairs;
    schedule.grid = rows;
    schedule.axes[1] = lane;
    let most = target.gpu().columns.threads;
    let each =
        [8, 4, 2, 1].into_iter().find(|each| leader.results() / (most * each) as f64 >= (2 * target.cores) as f64);
    let each = each.unwrap_or(1);
    if let Some(tile) = stored_across(leader, lane, &outputs, target) {
        let [_, (across, _)] = tile;
        let at = |name: Name| leader.iters.iter().position(|i| i.name == name);
        schedule.axes = if at(lane) < at(across) { [lane, across] } else { [across, lane] };
        tile.iter().for_each(|&(name, size)| schedule.set_tile(name, size));
        let size = tile.iter().map(|t| t.1).product::<i64>();
        schedule.threads = pow2(size / each).clamp(32, most);
        let why = format!("windows read along {lane} and stored along {across}, {size} results at once");
        let other = "one of both would be read or stored element by element".to_string();
        return Plan::of_rule(vec![schedule; group.nests.len()], why, other);
    }
    let (width, outer, threads) = if let Some((width, along, size, threads)) =
        sharing(leader, lane, each, &outputs, target)
    {
        (width, Some((along, size)), threads)
    } else {
        let fits = |i: &Iter| storable(&outputs, i, None, fit(target, i.extent.as_static(), most / 2, lanes), target);
        let width = leader.iter(lane).map_or(1, fits);
        let down = |i: &Iter| {
            let rows = fit(target, i.extent.as_static(), most / 2 * each / width, 1);
            storable(&outputs, i, Some(lane), rows, target)
        };
        // Where neighbours have the same windows, their program has all of them; else what computes the same index maps.
        let shares = |i: &Iter| leader.inputs.iter().any(|a| overlaps(leader, a, lane, i, 0));
        let shared: Vec<Name> = leader.of_kind(IterKind::Parallel).filter(|i| shares(i)).map(|i| i.name).collect();
        let even = |y: Name| match shared.is_empty() {
            true => group.nests.iter().all(|n| n.moves_evenly(y)),
            false => shared.contains(&y),
        };
        let outer = best_outer(leader, lane, &down, &|y| usize::from(even(y))).filter(|o| o.1 > 1);
        (width, outer, pow2(width * outer.map_or(1, |o| o.1) / each).clamp(32, most))
    };
    if let Some((name, size)) = outer {
        schedule.axes[0] = name;
        schedule.set_tile(name, size);
    }
    let size = width * outer.map_or(1, |o| o.1);
    schedule.threads = threads;
    schedule.set_tile(lane, width);
    let why = format!("windows along {lane}, {size} results at once");
    let other = "row: windows are too short to fill vectors".to_string();
    Plan::of_rule(vec![schedule; group.nests.len()], why, other)
}

/// A tile along `lane` and the iterator that results are contiguous along, where that is another and both may have several elements.
fn stored_across(nest: &Nest, lane: Name, outputs: &[&Access], target: &Target) -> Option<[(Name, i64); 2]> {
    let across = outputs.iter().find_map(|a| a.innermost()).filter(|&name| name != lane)?;
    let side = |name: Name, also: Name| {
        let iter = nest.iter(name).filter(|i| i.kind == IterKind::Parallel)?;
        let side = target.gpu().pointwise.square.min(pow2(iter.extent.as_static()?));
        (side >= SIDE && storable(outputs, iter, Some(also), side, target) == side).then_some((name, side))
    };
    Some([side(lane, across)?, side(across, lane)?])
}

/// Elements along the shorter side of a tile that is read along one iterator and read or stored along another, at least: a sector of 16-bit ones.
pub const SIDE: i64 = 16;

/// Whether an operand is read along `lane` side by side, and along `iter` in windows that slide by so many elements from one to the next.
fn overlaps(nest: &Nest, access: &Access, lane: Name, iter: &Iter, by: i64) -> bool {
    let slow = |e: Dim| mentions(e, iter.name) && step(e, iter) == Some(by) && slides(nest, e);
    access.innermost() == Some(lane) && access.exprs.iter().any(|&e| slow(e))
}

/// Whether windows slide along an iterator.
fn windows_slide(nest: &Nest, name: Name) -> bool {
    nest.inputs.iter().any(|a| a.exprs.iter().any(|&e| mentions(e, name) && slides(nest, e)))
}

/// Where windows along another iterator than the lanes' overlap by all but one element: what warps read side by side, channels as vectors or places where
/// windows slide along these too; that iterator with the neighbours that they have, `each` of them in one thread; and the threads.
fn sharing(nest: &Nest, lane: Name, each: i64, outputs: &[&Access], target: &Target) -> Option<(i64, Name, i64, i64)> {
    let vec = if windows_slide(nest, lane) { 1 } else { target.vector_bits / 16 };
    let mostly = |extent: i64, tile: i64| extent * 8 >= (extent + tile - 1) / tile * tile * 7;
    let lane_extent = nest.iter(lane)?.extent.as_static()?;
    let most = if vec == 1 { pow2(lane_extent).min(target.gpu().columns.threads / 2) } else { target.vector_bits * 2 };
    let least = if vec == 1 { SIDE / 2 } else { vec };
    let widths = std::iter::successors(Some(most), |&w| Some(w / 2)).take_while(|&w| w >= least);
    let width = widths.into_iter().find(|&w| mostly(lane_extent, w)).or((vec == 1).then_some(most))?;
    let read = |i: &Iter, a: &Access| a.plain(&[i.name]).is_some() && overlaps(nest, a, lane, i, 1);
    let overlapping = |i: &&Iter| nest.inputs.iter().any(|a| read(i, a));
    let along = nest.of_kind(IterKind::Parallel).filter(|i| i.name != lane).filter(overlapping).last()?;
    let extent = along.extent.as_static()?;
    // Lanes that are left by the channels take further neighbours.
    let beside = (32 * vec / width).max(1);
    let size = [8, 4, 2].into_iter().filter(|n| *n <= each).map(|n| n * beside).find(|&n| mostly(extent, n))?;
    let threads = (width / vec * beside).clamp(32, target.gpu().columns.threads);
    let iter = nest.iter(lane)?;
    let stored = storable(outputs, iter, None, width, target) == width
        && storable(outputs, along, Some(lane), size, target) == size;
    stored.then_some((width, along.name, size, threads))
}

/// Of few elements: as many columns as leave a program for each core, but no fewer than a thread loads at once, and rows until all loads are in
/// flight. Of many, rows of as many bytes as a warp reads at once.
fn gpu_tile(body: &Body, group: &Group, leader: &Nest, columns: f64, target: &Target) -> Tile {
    let bytes =
        body.op_ref(leader.op).operand_types().iter().filter_map(|t| t.elem().byte_width()).min().unwrap_or(4) as i64;
    let costs = &target.gpu().columns;
    let usual = Tile { columns: 1, down: 1, split: None, threads: costs.threads };
    if let Some((width, rows)) = short_columns(leader, columns, target) {
        return Tile { columns: width, down: rows, threads: width / COLUMNS_OF_THREAD, ..usual };
    }
    let alone = group.nests.iter().all(|n| n.op == leader.op || n.is_pointwise()) && group.nests[0].op == leader.op;
    if let Some(whole) = whole_columns(group, leader, columns, bytes, target).filter(|_| !alone) {
        return whole;
    }
    // Of rows that several iterators count, a program takes those of the innermost at once.
    let innermost = leader.of_kind(IterKind::Reduce).last().and_then(|i| i.extent.as_static());
    let loaded = in_flight(body, leader, costs);
    // No more columns than lie side by side.
    let side_by_side = lane_extent(leader).map_or(i64::MAX, pow2);
    let down_of = |width: i64| (loaded / width.min(side_by_side)).min(innermost.map_or(i64::MAX, pow2));
    if leader.points() < costs.split_from as f64 || !alone {
        let width = [64, 32, 16, 8].into_iter().find(|&w| columns / w as f64 >= target.cores as f64).unwrap_or(8);
        let down = down_of(width);
        // A step of few rows takes a quarter of the time of a whole one, at least.
        let rows = leader.points() / columns;
        let steps = (rows * width as f64 / loaded as f64).max(rows / down as f64 / 4.0);
        // A few programs that go over many rows each take longer than another launch.
        if !alone || steps < costs.steps as f64 || columns / width as f64 * 2.0 >= target.cores as f64 {
            return Tile { columns: width, down, ..usual };
        }
    }
    let width = columns_at_once(leader, costs.row_bytes / bytes, pow2(columns as i64));
    let lane = lane_extent(leader).unwrap_or(width);
    let across = columns / lane as f64 * ((lane + width - 1) / width) as f64;
    // Tiles of fewer rows, a load or two of each operand in flight, where those of more leave cores without a program.
    let fewer = |&down: &i64| (down / 2 * width >= 4 * costs.threads).then_some(down / 2);
    let downs: Vec<i64> = std::iter::successors(Some(down_of(width)), fewer).collect();
    let cost = |down: i64, parts: i64| split_cost(leader, columns, across, [down, parts], bytes, target);
    let parts_of = |down: i64| {
        let enough = |parts: &i64| leader.points() / columns / *parts as f64 >= (2 * down) as f64;
        let parts = (1..10).map(|i| 1 << i).filter(enough).min_by(|&a, &b| cost(down, a).total_cmp(&cost(down, b)));
        parts.map(|parts| (down, parts))
    };
    let busy = |&(_, parts): &(i64, i64)| (across * parts as f64).min(target.cores as f64);
    let ways = downs.iter().filter_map(|&down| parts_of(down));
    let best = ways.reduce(|best, way| if busy(&way) > busy(&best) { way } else { best });
    match best.filter(|&(down, parts)| cost(down, parts) < SPLIT_GAIN * cost(downs[0], 1)) {
        Some((down, parts)) => Tile { columns: width, down, split: Some(parts), ..usual },
        None => Tile { columns: width, down: downs[0], ..usual },
    }
}

/// What of its time a reduction takes at most that is worth a second kernel.
const SPLIT_GAIN: f64 = 0.75;

/// The time of `across` programs' columns, in that of reading all rows on the whole machine, where programs take `down` rows at once and rows are cut into so many
/// parts. Two programs run on a core at once. Cutting pays as it fills the machine, and costs writing and reading the parts, and a launch.
fn split_cost(leader: &Nest, columns: f64, across: f64, [down, parts]: [i64; 2], bytes: i64, target: &Target) -> f64 {
    let rows = leader.points() / columns;
    let all = leader.points() * bytes as f64 / (target.bandwidth * 1e3);
    let launch = if parts > 1 { target.launch_us / all } else { 0.0 };
    let waves = across * parts as f64 / (2 * target.cores) as f64;
    // Parts are whole tiles.
    let taken = (rows / (parts * down) as f64).ceil() * (parts * down) as f64;
    waves.ceil() / waves * (taken / rows + (8 * parts) as f64 / (rows * bytes as f64)) + launch
}

/// Whether a group's one reduction is of a few elements, over several iterators: of blocks of an image, say.
pub fn is_short(group: &Group, target: &Target) -> bool {
    let Some(nest) = only_reduction(group) else { return false };
    let several = nest.of_kind(IterKind::Reduce).filter(|i| i.extent != Dim::Static(1)).count() > 1;
    several && is_of_few(nest, target)
}

/// The nest of a group that reduces, if there is one only.
fn only_reduction(group: &Group) -> Option<&Nest> {
    let mut reducing = group.nests.iter().filter(|n| !n.is_pointwise());
    reducing.next().filter(|_| reducing.next().is_none())
}

/// Whether a group's one reduction is to a few neighbours at many places, as to the coordinates of points: programs of those few would have nothing to do.
pub fn is_narrow(group: &Group, lane: Name, target: &Target) -> bool {
    let Some(nest) = only_reduction(group) else { return false };
    let few = |i: &Iter| i.extent.as_static().is_some_and(|n| n < SIDE / 2);
    nest.iter(lane).is_some_and(few) && nest.results() >= (target.cores * target.threads) as f64 / 4.0
}

/// Whether a nest reduces so few elements to each result that a thread has them at once.
pub fn is_of_few(nest: &Nest, target: &Target) -> bool {
    let all = nest.of_kind(IterKind::Reduce).map(|i| i.extent.as_static()).try_fold(1, |n, e| Some(n * e?));
    all.is_some_and(|n| n <= target.gpu().columns.whole)
}

/// Neighbouring columns that a thread holds as a whole.
const COLUMNS_OF_THREAD: i64 = 2;

/// Columns of a few rows: a thread has all of some, so that none waits for another; the columns of a program, and their rows.
fn short_columns(leader: &Nest, columns: f64, target: &Target) -> Option<(i64, i64)> {
    let costs = &target.gpu().columns;
    let mut reduced = leader.of_kind(IterKind::Reduce);
    let rows = pow2(reduced.next()?.extent.as_static()?);
    let extent = lane_extent(leader)?;
    let fits = |width: &i64| *width <= pow2(extent) && columns >= (width * target.cores * 2) as f64;
    let width = [256, 128, 64].into_iter().find(fits)?;
    (rows <= costs.whole && reduced.next().is_none()).then_some((width, rows))
}

/// Threads of a program that holds whole columns, at least.
const LEAST_THREADS: i64 = 64;

/// Columns of which a program holds all rows in registers, for all its nests: they are read once, in one step. Programs are small, so that few warps wait for
/// one another where rows are combined: as many columns as a sector has, and many elements in each thread. Of long ones neighbouring programs share a sector.
fn whole_columns(group: &Group, leader: &Nest, columns: f64, bytes: i64, target: &Target) -> Option<Tile> {
    let (gpu, costs) = (target.gpu(), &target.gpu().columns);
    let mut reduced = leader.of_kind(IterKind::Reduce).filter(|i| i.extent != Dim::Static(1));
    let rows = pow2(reduced.next()?.extent.as_static()?);
    let large = |nest: &Nest| nest.inputs.iter().filter(|a| nest.elements(a) >= leader.points()).count() as i64;
    let operands = group.nests.iter().map(large).max().unwrap_or(1).max(1);
    let sector = (gpu.sector_bytes / bytes).clamp(8, 64);
    let tile = |(width, each): (i64, i64)| {
        let threads = pow2(width * rows / each).max(LEAST_THREADS);
        let tile = Tile { columns: width, down: rows, split: None, threads };
        (threads <= 2 * costs.threads).then_some(tile)
    };
    let each = (2 * costs.whole / pow2(operands)).max(1);
    let several = [(sector, each), (8, each), (sector, 2 * each), (8, 2 * each)];
    // A few cores may be without a program; where columns are that few anyway, to read them once is what is left.
    let occupied = |tile: &Tile| columns * 1.1 >= (tile.columns * target.cores) as f64;
    let best = several.into_iter().filter_map(tile).find(occupied).or_else(|| tile((8, each)));
    best.filter(|_| reduced.next().is_none())
}

/// Elements that a program takes at once so that each of its threads has all its loads in flight, of the widest operand.
fn in_flight(body: &Body, leader: &Nest, costs: &Columns) -> i64 {
    let reads = body.op_ref(leader.op).operand_types().into_iter().zip(&leader.inputs);
    // An extreme's place takes a register, too.
    let loads = if leader.combiners.iter().any(|c| c.starts_with("arg")) { costs.loads / 2 } else { costs.loads };
    let elements = reads.filter_map(|(ty, access)| {
        let bytes = ty.elem().byte_width()? as i64;
        let aligned = |n: &i64| access.shape.last().is_some_and(|d| d.modulo(Dim::Static(*n)) == Dim::Static(0));
        let neighbours = [16, 8, 4, 2].into_iter().filter(|n| n * bytes <= 16).find(aligned).unwrap_or(1);
        Some(((loads * neighbours).max(costs.load_bytes / bytes), leader.elements(access)))
    });
    let most = elements.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    let most = most.map_or(costs.loads, |m| m.0);
    let needed = registers(body, leader);
    let mut halved = std::iter::successors(Some(most), |&each| (each > costs.loads).then_some(each / 2));
    costs.threads * halved.find(|&each| each as f64 * needed <= costs.registers as f64).unwrap_or(most.min(costs.loads))
}

/// Registers that a thread needs for each of its elements: those of what it has read of all rows' operands, of its sums, and of the steps of divisions and
/// functions, which the assembler interleaves.
fn registers(body: &Body, leader: &Nest) -> f64 {
    let reads = body.op_ref(leader.op).operand_types().into_iter().zip(&leader.inputs);
    let whole = reads.filter(|(_, access)| leader.elements(access) >= leader.points());
    let read: i64 = whole.filter_map(|(ty, _)| Some(ty.elem().byte_width()? as i64)).sum();
    let slow = |op: &Op| work(body.op_ref(*op)) > 1.0;
    let slow = body.op_ref(leader.op).entry(0).map_or(0, |entry| body.ops(entry).filter(slow).count());
    read as f64 / 4.0 + (leader.combiners.len() + slow) as f64
}

/// The extent of the parallel iterator along which a program's columns lie.
fn lane_extent(leader: &Nest) -> Option<i64> {
    let rows: Vec<Name> = leader.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    leader.iter(lane_iter(leader, &rows)?)?.extent.as_static().filter(|&n| n > 0)
}

/// How many columns a program takes, `widest` where no fewer leave clearly less of the last program's without work.
fn columns_at_once(leader: &Nest, widest: i64, most: i64) -> i64 {
    let Some(extent) = lane_extent(leader) else { return widest.min(most) };
    let idle = |width: i64| ((extent + width - 1) / width * width) as f64 / extent as f64;
    let widths = [widest, widest / 2, widest / 4, widest / 8].into_iter().filter(|&w| w > 0);
    widths.map(|w| w.min(most)).reduce(|best, w| if idle(w) * 1.08 < idle(best) { w } else { best }).unwrap_or(1)
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
    Plan::of_rule(vec![schedule; group.nests.len()], why, "none of the special forms applies".into())
}
