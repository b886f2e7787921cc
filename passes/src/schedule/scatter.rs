//! Schedules of scatters.
//!
//! On a CPU a program has all places of a slice, or some of its columns, and each update changes its own in memory, one after the other. On a GPU
//! programs have updates, which they combine with memory atomically, those of few places in shared memory first; or, where the order of the updates counts or there are no atomics for
//! their combination, a tile of places in registers, and ask of each update whether it is one of them: no memory is read that
//! another thread wrote. Updates that are sorted by place are combined by the program that has the
//! place, and on a GPU several neighbours of it.

use super::attr::{self, Kind, Schedule};
use super::nest::{extent_of, symbol_ranges};
use super::target::Target;
use super::tiles::{fit, pow2};
use super::{Plan, access::Iter};
use rc_dialects::loop_::IterKind;
use rc_ir::dim_range::Ranges;
use rc_ir::{Body, Dim, Name, Op, OpRef, Type};

/// Bytes of a line of a CPU's caches.
const LINE: i64 = 64;
/// Of so many places one is updated at least, where a slice is worth copying into a core's cache first.
const MANY: i64 = 8;

/// A scatter's sizes: x is [b, o, a, l], the indices [b, k], the updates [b, o, k, l].
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The slices (b and o as one), the places, the elements of a slice.
    pub iters: [Iter; 3],
    pub b: Dim,
    pub o: Dim,
    pub k: Dim,
}

impl Scatter {
    /// Reads a verified `loop.scatter`.
    pub fn read(op: OpRef) -> Option<Scatter> {
        let names: Vec<Name> =
            op.attr("iters")?.as_array()?.iter().map(|a| a.as_str().map(Name::new)).collect::<Option<_>>()?;
        let (axis, batch) = (op.int("axis")? as usize, op.int("batch").unwrap_or(0) as usize);
        let (x, indices) = (op.body.ty(op.operand(0)).shape(), op.body.ty(op.operand(1)).shape());
        let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
        let (b, o) = (product(&x[..batch]), product(&x[batch..axis]));
        let extents = [b * o, x[axis], product(&x[axis + 1..])];
        let iter = |i: usize| Some(Iter { name: *names.get(i)?, extent: extents[i], kind: IterKind::Parallel });
        Some(Scatter { iters: [iter(0)?, iter(1)?, iter(2)?], b, o, k: product(&indices[batch..]) })
    }
    /// The updates' numbers as an iterator, for programs that have updates instead of places.
    pub fn updates(&self) -> Iter {
        let free = |n: &Name| self.iters.iter().all(|i| i.name != *n);
        let name = (0..).map(|i| Name::new(&format!("k_{i}"))).find(free).expect("an endless range");
        Iter { name, extent: self.k, kind: IterKind::Parallel }
    }
    /// The iterators of programs that have updates.
    pub fn update_iters(&self) -> [Iter; 3] {
        [self.iters[0], self.updates(), self.iters[2]]
    }
}

/// Whether a scatter, of `core` or `loop`, combines its updates with memory as they come: nothing is read of them twice, or in an order of its own.
pub fn takes_updates(op: OpRef) -> bool {
    op.bool("any_order") && op.operands().len() == 3 && op.str("kind").unwrap_or("set") != "set"
}

pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let at = body.op_ref(op);
    let scatter = Scatter::read(at)?;
    let [o, a, l] = scatter.iters;
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let elem = at.result_types()[0].elem();
    let lanes = target.lanes(super::tiles::widest([elem, Type::f32()].into_iter()));
    let mut s = Schedule::new(Kind::Scatter(attr::Scatter::default()));
    let flat = l.extent == Dim::Static(1);
    if at.operands().len() == 5 && (target.is_cpu() || !flat) {
        return Some(by_place(&scatter, &ranges, target, s));
    }
    if target.is_cpu() {
        s.grid = vec![o.name, l.name];
        let along = if flat { a } else { l };
        let usual = target.cpu().vectors * lanes;
        // Of rows apart in memory, the longest pieces that leave a program for each core; no two programs write to one line.
        let line = lanes.max(LINE / elem.byte_width().map_or(LINE, |n| n as i64));
        let programs = |width: i64| extent_of(&ranges, o.extent) * ((extent_of(&ranges, l.extent) + width - 1) / width);
        let widths = std::iter::successors(Some(4 * usual), |width| Some(width / 2)).take_while(|&width| width > line);
        let wide = widths.chain([line]).find(|&width| programs(width) >= target.cores).unwrap_or(line);
        s.axes[1] = along.name;
        s.set_tile(along.name, fit(target, along.extent.as_static(), if flat { usual } else { wide }, lanes));
        let why = format!("updates one by one in memory, {} elements at a time", s.tile_of(along.name));
        let other = "tiles of places in registers: every update is read for every tile";
        return Some(Plan::of_rule(vec![s], why, other.into()));
    }
    // One update has no order; its slice goes to one place.
    let one = scatter.k == Dim::Static(1) && !flat && at.operands().len() == 3;
    if at.bool("any_order") || one && at.str("kind").unwrap_or("set") == "set" {
        let plan = if one { None } else { together(&scatter, &ranges, elem, target, s.clone()) };
        return Some(plan.unwrap_or_else(|| updates(&scatter, &ranges, target.gpu().scatters.updates, s)));
    }
    s.grid = vec![o.name, a.name, l.name];
    let wide = if flat { 1 } else { fit(target, l.extent.as_static(), 128, 1) };
    let places = (1024 / wide).min(pow2(extent_of(&ranges, a.extent)));
    if flat {
        s.axes[1] = a.name;
    } else {
        s.axes = [a.name, l.name];
        s.set_tile(l.name, wide);
    }
    s.set_tile(a.name, places);
    s.threads = 128;
    let why = format!("{places} places of {wide} elements in registers, every update asked for");
    Some(Plan::of_rule(vec![s], why, "updates one by one in memory: threads would wait for one another".into()))
}

/// Whether a CPU's program copies what its slices begin as, which its cache then holds as they are updated: where it has whole slices, each core some, and
/// the updates are many. Else the result begins as a copy, which all threads make a stretch of memory each, or none where that memory may be written to.
pub fn copies_slices(body: &Body, scatter: &Scatter, schedule: &Schedule, target: &Target) -> bool {
    let [o, a, l] = scatter.iters;
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let whole = l.extent == Dim::Static(1) || l.extent.as_static().is_some_and(|n| n <= schedule.tile_of(l.name));
    let many = MANY * extent_of(&ranges, scatter.k) >= extent_of(&ranges, a.extent);
    whole && many && extent_of(&ranges, o.extent) >= target.cores
}

/// Programs have a place, or several one after the other, and take the updates that are sorted for it.
fn by_place(scatter: &Scatter, ranges: &Ranges, target: &Target, mut s: Schedule) -> Plan {
    let ([o, a, l], k) = (scatter.iters, scatter.updates());
    let lanes = target.lanes(Type::f32());
    let (want, updates, each, places) = match (&target.cpu, &target.gpu) {
        (Some(cpu), _) => (cpu.vectors * lanes, 1, None, 1),
        _ => {
            let costs = &target.gpu().scatters;
            (costs.wide, costs.at_once, Some(costs.each), costs.places)
        }
    };
    let wide = fit(target, l.extent.as_static(), want, lanes);
    s.grid = vec![o.name, a.name, l.name];
    s.axes = [k.name, l.name];
    s.set_tile(k.name, updates);
    s.set_tile(l.name, wide);
    s.threads = each.map_or(1, |each| (wide / each).max(32));
    // A machine starts programs less often than they store short slices.
    let programs = [o, a, l].map(|i| extent_of(ranges, i.extent)).into_iter().product::<i64>() / wide;
    let fills = |places: &i64| programs / places >= 8 * target.cores;
    let places = std::iter::successors(Some(places), |n| Some(n / 2)).take_while(|&n| n > 1).find(fills).unwrap_or(1);
    s.set_tile(a.name, places);
    let why = format!("{places} places a program, {updates} of their updates at a time, {wide} elements of them");
    Plan::of_rule(vec![s], why, "tiles of places: every update of theirs is compared with each".into())
}

/// Where places have many updates each, which would wait for one another in memory: programs combine their own in shared memory, in a table of all places
/// and as many elements of a slice as fit.
fn together(scatter: &Scatter, ranges: &Ranges, elem: Type, target: &Target, mut s: Schedule) -> Option<Plan> {
    let costs = &target.gpu().scatters;
    let [o, k, l] = scatter.update_iters();
    let (places, updates) = (scatter.iters[1].extent.as_static()?, k.extent.as_static()?);
    if places == 0 || updates / places < costs.together {
        return None;
    }
    let bytes = elem.byte_width()? as i64;
    let slice = pow2(l.extent.as_static()?);
    let widths = std::iter::successors(Some(slice.min(costs.width)), |width| Some(width / 2)).take_while(|&w| w > 0);
    let least = slice.min(2 * target.gpu().sector_bytes / bytes);
    let wide = widths.take_while(|&w| w >= least).find(|width| places * width * bytes <= costs.table_bytes)?;
    let threads = 256;
    let slices = extent_of(ranges, o.extent) * ((l.extent.as_static()? + wide - 1) / wide);
    // Each program adds its table to the result: as many updates of each place as pay that.
    let programs = (target.cores / slices.max(1)).min(updates / (costs.merge * places)).max(1);
    s.kind = Kind::Scatter(attr::Scatter { programs: Some(programs) });
    s.grid = vec![o.name, k.name, l.name];
    s.threads = threads;
    if l.extent == Dim::Static(1) {
        s.axes[1] = k.name;
        s.set_tile(k.name, 4 * threads);
    } else {
        s.axes = [k.name, l.name];
        s.set_tile(k.name, (16 * threads / wide).max(1));
        s.set_tile(l.name, wide);
    }
    let why = format!("{programs} programs for a slice, each with {places} places of {wide} elements in shared memory");
    let other = format!("combined with memory: {} updates of a place would wait for one another", updates / places);
    Some(Plan::of_rule(vec![s], why, other))
}

/// Programs have updates, whole slices of them where those fit.
fn updates(scatter: &Scatter, ranges: &Ranges, most: i64, mut s: Schedule) -> Plan {
    let [o, k, l] = scatter.update_iters();
    s.grid = vec![o.name, k.name, l.name];
    let size = |extent: Dim| pow2(extent_of(ranges, extent));
    s.threads = 256;
    let (outer, inner) = match (l.extent == Dim::Static(1), scatter.o == Dim::Static(1)) {
        (false, _) => (Some(k), l),
        // Neighbours of several batches, where a batch has few.
        (true, true) => (Some(o), k),
        (true, false) => (None, k),
    };
    let wide = size(inner.extent).min(most / 4);
    s.axes[1] = inner.name;
    s.set_tile(inner.name, wide);
    let mut taken = wide;
    if let Some(outer) = outer.filter(|o| o.extent != Dim::Static(1)) {
        let high = (most / wide).min(size(outer.extent));
        s.axes[0] = outer.name;
        s.set_tile(outer.name, high);
        taken *= high;
    }
    s.threads = (taken / 4).clamp(32, 256);
    let why = format!("{taken} elements of the updates at a time, combined with memory atomically");
    let other = "updates sorted by place: one more pass over the indices for each of their digits".to_string();
    Plan::of_rule(vec![s], why, other)
}
