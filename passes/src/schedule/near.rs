//! What may be measured besides the choice that a rule made: the same schedule with one of its sizes doubled or halved. A model of memory and
//! of waves of programs ranks them.

use super::attr::{Kind, Schedule};
use super::candidate::{Candidate, Cost, Plan};
use super::group::{Class, Group};
use super::nest::{Nest, extent_of, symbol_ranges};
use super::target::Target;
use super::tiles::{fit, storable};
use super::{NONE, elems};
use crate::work::work;
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name, Value};

/// Gives all candidates of a plan a cost, and a rule's choice neighbours; those behind the first are in the order of their costs.
pub fn complete(body: &Body, group: &Group, plan: &mut Plan, target: &Target) {
    if let [only] = plan.candidates.as_slice() {
        let near = neighbours(body, group, &only.schedules, target);
        plan.candidates.extend(near);
    }
    for candidate in &mut plan.candidates {
        let schedules = &candidate.schedules;
        candidate.cost.get_or_insert_with(|| estimate(body, group, schedules, target));
    }
    let us = |c: &Candidate| c.cost.map_or(f64::INFINITY, |cost| cost.us);
    plan.candidates[1..].sort_by(|a, b| us(a).total_cmp(&us(b)));
}

/// A nest as its schedule sees it.
fn collapsed(group: &Group, schedules: &[Schedule]) -> Vec<Nest> {
    let nest = |(nest, s): (&Nest, &Schedule)| nest.clone().with_collapses(&s.collapse).forward();
    group.nests.iter().zip(schedules).map(nest).collect()
}

fn neighbours(body: &Body, group: &Group, first: &[Schedule], target: &Target) -> Vec<Candidate> {
    let mut out: Vec<Candidate> = Vec::new();
    let mut add = |schedules: Vec<Schedule>, what: String| {
        if schedules != first {
            out.push(Candidate { schedules, what, cost: None });
        }
    };
    let nests = collapsed(group, first);
    let lanes = if nests.is_empty() { 1 } else { target.lanes(elems(body, group)) };
    let each = |change: &dyn Fn(&mut Schedule)| -> Vec<Schedule> {
        let mut all = first.to_vec();
        all.iter_mut().for_each(change);
        all
    };
    for (axis, name) in tiled(first) {
        let tile = first.iter().map(|s| s.tile_of(name)).max().unwrap_or(1);
        let step = if axis == 1 && target.is_cpu() { lanes } else { 1 };
        for size in [2 * tile, tile / 2, 4 * tile, tile / 4].into_iter().filter(|n| *n >= 1 && n % step == 0) {
            let fits = |(nest, s): (&Nest, &Schedule)| tile_fits(nest, s, (axis, name), size, lanes, target);
            if group.class != Class::Scan && nests.iter().zip(first).all(fits) {
                let change = |s: &mut Schedule| {
                    if s.axes[axis] == name {
                        s.set_tile(name, size)
                    }
                };
                add(each(&change), format!("tiles of {size} along {name}"));
            }
        }
    }
    let threads = first.iter().map(|s| s.threads).max().unwrap_or(1);
    for n in [2 * threads, threads / 2].into_iter().filter(|n| (32..=target.block_threads).contains(n)) {
        add(each(&|s: &mut Schedule| s.threads = n), format!("{n} threads"));
    }
    if let Some(parts) = first[0].split() {
        for parts in [2 * parts, parts / 2] {
            let change = |s: &mut Schedule| match &mut s.kind {
                Kind::Row(own) => own.split = Some(parts).filter(|&n| n > 1),
                Kind::Column(own) => own.split = Some(parts).filter(|&n| n > 1),
                _ => {}
            };
            add(each(&change), format!("sums in {parts} parts"));
        }
    }
    if let (Kind::Attention(own), [block]) = (&first[0].kind, first[0].block()) {
        for size in [2 * block.1, block.1 / 2].into_iter().filter(|n| *n > 0 && n % first[0].tile_of(block.0) == 0) {
            let own = super::attr::Attention { block: vec![(block.0, size)], ..own.clone() };
            add(
                each(&|s: &mut Schedule| s.kind = Kind::Attention(own.clone())),
                format!("blocks of {size} along {}", block.0),
            );
        }
    }
    out
}

/// The iterators that tiles run along, with their dimensions.
fn tiled(schedules: &[Schedule]) -> Vec<(usize, Name)> {
    let mut out: Vec<(usize, Name)> = Vec::new();
    for s in schedules {
        let all = s.axes.into_iter().enumerate().filter(|(_, name)| *name != NONE && s.tile_of(*name) > 1);
        out.extend(all);
    }
    out.sort_by_key(|a| (std::cmp::Reverse(a.0), a.1.as_str()));
    out.dedup();
    out
}

/// Whether a nest's tile may have this size along an iterator.
fn tile_fits(nest: &Nest, s: &Schedule, (axis, name): (usize, Name), size: i64, lanes: i64, target: &Target) -> bool {
    let Some(iter) = nest.iter(name).filter(|_| s.axes[axis] == name) else { return s.axis_of(name).is_none() };
    let lanes = if axis == 1 { lanes } else { 1 };
    let also = Some(s.axes[1 - axis]).filter(|other| *other != NONE);
    let outputs: Vec<_> = nest.outputs.iter().collect();
    let stored = iter.kind == IterKind::Reduce || storable(&outputs, iter, also, size, target) == size;
    stored && fit(target, iter.extent.as_static(), size, lanes) == size
}

/// What starting a wave of programs takes, in microseconds: on a GPU from the launch to their first operands.
fn start_us(target: &Target) -> f64 {
    target.gpu.as_ref().map_or_else(|| target.cpu().wave_us, |gpu| gpu.products.fill_us)
}

/// Waves of programs that read and write memory and compute, and leave cores idle in the last wave.
fn estimate(body: &Body, group: &Group, schedules: &[Schedule], target: &Target) -> Cost {
    let nests = collapsed(group, schedules);
    let bytes = traffic(body, group, &nests, schedules);
    let near = if target.is_cpu() { target.cache_bytes * target.cores } else { target.cache_bytes };
    let rate = if bytes <= near as f64 { target.cache_bandwidth.max(target.bandwidth) } else { target.bandwidth };
    let work: f64 = nests.iter().map(|n| n.points() * operations(body, n)).sum();
    let programs = nests.iter().zip(schedules).map(|(n, s)| programs(n, s)).fold(1.0, f64::max);
    let resident = if target.is_cpu() { 1 } else { (target.threads / schedules[0].threads.max(1)).clamp(1, 32) };
    let share = programs / (target.cores * resident) as f64;
    let busy = if nests.is_empty() { 1.0 } else { share / share.ceil() };
    // Too few threads of a GPU do not ask for as much as memory gives; how many cores they are on does not count.
    let memory = match &target.gpu {
        Some(gpu) => {
            let asked = programs.min((target.cores * resident) as f64) * in_flight(body, group, schedules);
            bytes / (rate * 1e3).min(asked / gpu.load_us) / if share > 1.0 { busy } else { 1.0 }
        }
        None => bytes / (rate * 1e3) / busy,
    };
    let cost = Cost::longest([
        ("memory", memory),
        ("arithmetic", work / (target.flops_f32 * 1e6) / busy),
        ("starting programs", share.ceil() * start_us(target)),
    ]);
    let bound = if busy < 0.5 && cost.bound != "starting programs" { "idle cores" } else { cost.bound };
    Cost { us: cost.us + target.launch_us, bound }
}

/// Bytes that a program has asked for before it waits: those of a tile of its widest operand.
fn in_flight(body: &Body, group: &Group, schedules: &[Schedule]) -> f64 {
    let tile =
        |s: &Schedule| s.axes.into_iter().filter(|&name| name != NONE).map(|name| s.tile_of(name)).product::<i64>();
    let widths = group.ops.iter().flat_map(|&op| body.operands(op)).filter_map(|v| body.ty(v).elem().byte_width());
    (schedules.iter().map(tile).max().unwrap_or(1) * widths.max().unwrap_or(4) as i64) as f64
}

/// Bytes that a group reads and writes: a row in chunks is read again by each nest.
fn traffic(body: &Body, group: &Group, nests: &[Nest], schedules: &[Schedule]) -> f64 {
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let bytes = |v: Value| -> f64 {
        let ty = body.ty(v);
        let elements: f64 = ty.shape().iter().map(|&d| extent_of(&ranges, d) as f64).product();
        elements * ty.elem().byte_width().unwrap_or(1) as f64
    };
    let chunks = |(nest, s): (&Nest, &Schedule)| {
        let tile = |name: Name, extent| s.axis_of(name).is_some() && s.tile_of(name) < extent_of(&nest.ranges, extent);
        matches!(s.kind, Kind::Row(_)) && nest.of_kind(IterKind::Reduce).any(|i| tile(i.name, i.extent))
    };
    let again = nests.iter().zip(schedules).any(chunks);
    let inside = |v: Value| body.defining_op(v).is_some_and(|op| group.ops.contains(&op));
    let mut read: Vec<Value> = group.ops.iter().flat_map(|&op| body.operands(op)).filter(|&v| !inside(v)).collect();
    if !again {
        read.sort_unstable();
        read.dedup();
    }
    let results = group.ops.iter().flat_map(|&op| body.results(op));
    let written = results.filter(|&v| body.uses(v).any(|(user, _)| !group.ops.contains(&user)));
    read.into_iter().chain(written).map(bytes).sum()
}

/// Operations on a point of a nest.
fn operations(body: &Body, nest: &Nest) -> f64 {
    let entry = body.op_ref(nest.op).entry(0);
    entry.map_or(1.0, |entry| body.ops(entry).map(|op| work(body.op_ref(op))).sum())
}

fn programs(nest: &Nest, s: &Schedule) -> f64 {
    let along = |name: &Name| {
        let extent = nest.iter(*name).map_or(1, |i| extent_of(&nest.ranges, i.extent));
        (extent as f64 / s.tile_of(*name) as f64).ceil()
    };
    s.grid.iter().map(along).product::<f64>().max(1.0) * s.split().unwrap_or(1) as f64
}
