//! Schedules of nests that compute every element for itself.

use super::access::{Access, Iter, mentions};
use super::attr::{Kind, Schedule};
use super::contract_cpu::LINE;
use super::group::{Group, collapse};
use super::nest::{Nest, collapsed_name, extent_of};
use super::tiles::{best_outer, fit, pow2, storable};
use super::{Plan, elems, elems_along};
use crate::schedule::target::Target;
use crate::work::is_function;
use rc_dialects::loop_::IterKind;
use rc_dialects::{loop_, op};
use rc_ir::{Body, Dim, Name, Op, Type, Value};
use rc_machine::Cpu;

/// Rows of a tile that read the same elements of operands, at least.
const REPEATED: i64 = 8;
/// Elements of a row from which on an operand whose rows lie across those of the result is read by rows.
const LONG: i64 = 8;
/// The same on a CPU, or a quarter of a vector where that is more. On a Zen 5, with AVX2 and AVX-512, rows of 2 elements take longer by rows than one by one, and rows
/// of 4 to 7 a third to two thirds of the time.
const SHORT: i64 = 3;
/// Operands that do not change along an iterator from which on a tile has rows along it.
const MANY: usize = 4;

/// One tile for each program: all of the innermost iterator that is contiguous in the results, up to a size, and rows of the
/// next one if that is short; a square tile where an operand is read transposed.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let mut pairs = collapse(body, &mut group, &|_, _| true);
    if !target.is_cpu() {
        let lanes = target.lanes(elems(body, &group));
        pairs.extend(collapse_odd_rows(body, &mut group, lanes, target));
    }
    if let Some((pair, next)) = collapse_short_rows(body, &group, target) {
        pairs.push(pair);
        group = next;
    }
    let nest = group.nests.last().expect("a group has a nest").clone();
    let inner = nest.outputs[0].innermost().or(nest.iters.last().map(|i| i.name));
    let along = inner.filter(|_| target.is_cpu());
    let lanes = target.lanes(along.map_or_else(|| elems(body, &group), |x| elems_along(body, &group, x)));
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    // A GPU's thread has two loads of each operand in flight where with one all threads that it holds would not do: some would wait for others to end.
    let each = target.gpu.as_ref().map_or(1, |gpu| {
        let [few, many] = gpu.pointwise.each;
        if nest.points() > (target.cores * target.threads * few) as f64 { many } else { few }
    });
    let width = nest.outputs[0].innermost().and_then(|x| nest.iter(x)?.extent.as_static());
    let want = match &target.cpu {
        Some(cpu) => lanes * vectors(body, &group, width, lanes, cpu),
        None => 128 * each,
    };
    let mut schedule = Schedule::new(Kind::Pointwise);
    schedule.collapse = pairs;
    schedule.grid = nest.iters.iter().map(|i| i.name).collect();
    let across = inner.and_then(|x| transposed(&group, x, lanes, target));
    let repeated = inner.filter(|_| across.is_none() && !target.is_cpu()).and_then(|x| repeated(&group, x, want));
    let note = match (across, repeated) {
        (Some(_), _) => "square, since an operand is read across",
        (None, Some(_)) => "of rows that read the same operands",
        (None, None) => "contiguous",
    };
    if let Some(x) = inner.and_then(|x| nest.iter(x)) {
        let (want_x, want_y) = match across {
            Some(_) if target.is_cpu() => (lanes, lanes),
            Some(_) => {
                let side = target.gpu().pointwise.square;
                let fills = nest.points() >= (side * side * 2 * target.cores) as f64;
                if fills { (side, side) } else { (side / 2, side / 2) }
            }
            None if repeated.is_some() => (want / REPEATED, 1),
            None => (want, 1),
        };
        let size = storable(&outputs, x, None, fit(target, x.extent.as_static(), want_x, lanes), target);
        let size = if target.is_cpu() && across.is_none() { undivided(body, &group, x, size, lanes) } else { size };
        schedule.axes[1] = x.name;
        schedule.set_tile(x.name, size);
        let rows = across.map_or_else(|| (want / size).max(1), |(_, run)| want_y.min(run));
        // A CPU's square is whole where rows are not: exchanging lanes takes least between as many vectors as a vector has.
        let unit = if across.is_some() { rows } else { 1 };
        let taken =
            |y: &Iter| storable(&outputs, y, Some(x.name), fit(target, y.extent.as_static(), rows, unit), target);
        let second = match across.map(|a| a.0).or(repeated) {
            Some(y) => nest.iter(y).map(|y| (y.name, taken(y))),
            None if target.is_cpu() => None,
            None => {
                let beside = short_rows(&nest, x, rows, elems(body, &group), target);
                let shared =
                    |y: Name| if shares_maps(&group, x.name, y) { 1 + same_along(&group, x.name, y) } else { 0 };
                best_outer(&nest, x.name, &taken, &|y| if beside == Some(y) { usize::MAX } else { shared(y) })
            }
        };
        if let Some((y, size_y)) = second.filter(|y| y.1 > 1) {
            schedule.axes[0] = y;
            schedule.set_tile(y, size_y);
        }
    }
    let elements: i64 = schedule.tile.iter().map(|t| t.1).product();
    let each = target.gpu.as_ref().filter(|_| across.is_some()).map_or(each, |gpu| {
        let square = gpu.pointwise.square * gpu.pointwise.square;
        if elements >= square { gpu.pointwise.across } else { gpu.pointwise.each[1] }
    });
    schedule.threads = if target.is_cpu() { 1 } else { pow2(elements / each).clamp(32, 256) };
    let programs = nest.points() / elements as f64;
    let why = format!("tiles of {elements} elements ({note}), {programs:.0} programs");
    let other = match across {
        Some(_) => "tiles along the result's rows read one operand element by element".to_string(),
        None => format!("tiles of {} elements: {:.0} programs", 2 * elements, programs / 2.0),
    };
    Plan::of_rule(vec![schedule; group.nests.len()], why, other)
}

/// Vectors that a CPU's program takes of a row: so many that they divide a row of `width` elements into few parts, and evenly, where little is computed, or
/// elementary functions: in these each step waits for the one before, while those of other vectors run.
fn vectors(body: &Body, group: &Group, width: Option<i64>, lanes: i64, cpu: &Cpu) -> i64 {
    let entries = group.ops.iter().filter_map(|&op| body.op_ref(op).entry(0));
    let computed: Vec<Op> = entries.flat_map(|entry| body.ops(entry)).collect();
    let (usual, costs) = (cpu.vectors, &cpu.pointwise);
    let functions = computed.iter().any(|&op| is_function(body.op_ref(op)));
    let most = [(computed.len() as i64 <= costs.light, 2 * usual), (functions, costs.function_vectors)];
    let most = most.into_iter().filter(|case| case.0).map(|case| case.1).fold(usual, i64::max);
    let Some(width) = width.filter(|&width| width > usual * lanes) else { return usual };
    let programs = |vectors: i64| (width + vectors * lanes - 1) / (vectors * lanes);
    let cost = |vectors: &i64| programs(*vectors) * (vectors + costs.program_vectors);
    (usual..=most).min_by_key(cost).unwrap_or(usual)
}

/// A size of tiles along `x`, at least half as large, of which none lies on both sides of where a selection changes, as from one tensor of a concatenation
/// to the next; the size as it is where there is none.
fn undivided(body: &Body, group: &Group, x: &Iter, size: i64, lanes: i64) -> i64 {
    let changes: Vec<i64> = group.nests.iter().flat_map(|nest| changes(body, nest, x.name)).collect();
    if changes.is_empty() || x.extent.as_static().is_none_or(|n| n <= size) {
        return size;
    }
    let divides = |n: &i64| n % lanes == 0 && changes.iter().all(|change| change % n == 0);
    ((size + 1) / 2..=size).rev().find(divides).unwrap_or(size)
}

/// The values of an iterator from which on selections of a nest choose another side.
fn changes(body: &Body, nest: &Nest, x: Name) -> Vec<i64> {
    let place = |value: Value| {
        let op = body.op_ref(body.defining_op(value)?);
        let expr = op.attr("expr").filter(|_| op.name() == &loop_::INDEX)?.as_shape()?[0];
        Some(nest.resolve(expr))
    };
    let change = |op: Op| {
        let compare = body.defining_op(body.op_ref(op).operand(0)).map(|op| body.op_ref(op));
        let compare = compare.filter(|op| op.is(op::core::COMPARE))?;
        let places = [place(compare.operand(0))?, place(compare.operand(1))?];
        let side = places.iter().position(|&e| mentions(e, x))?;
        (places[1 - side] - (places[side] - Dim::symbol(x))).as_static()
    };
    let Some(entry) = body.op_ref(nest.op).entry(0) else { return Vec::new() };
    let selections = body.ops(entry).filter(|&op| body.op_ref(op).is(op::core::SELECT));
    selections.filter_map(change).collect()
}

/// Where a GPU's rows along `x` are shorter than two sectors: the iterator whose next value has the next row in memory, if it has about `rows` of them.
fn short_rows(nest: &Nest, x: &Iter, rows: i64, elem: Type, target: &Target) -> Option<Name> {
    let bytes = x.extent.as_static()? * elem.byte_width()? as i64;
    let above = nest.iters.iter().take_while(|i| i.name != x.name).last()?;
    let many = 2 * extent_of(&nest.ranges, above.extent) >= rows;
    (bytes < 2 * target.gpu.as_ref()?.sector_bytes && many).then_some(above.name)
}

/// The number of operands that change along `x` and not along `y`.
fn same_along(group: &Group, x: Name, y: Name) -> usize {
    let operands = group.nests.iter().flat_map(|n| &n.inputs);
    operands.filter(|access| access.mentions(x) && !access.mentions(y)).count()
}

/// The iterator along which many operands are the same, as weights of places are for all channels: rows along it read them once. With those along `x` it has
/// half of the elements that a tile wants.
fn repeated(group: &Group, x: Name, want: i64) -> Option<Name> {
    let nest = group.nests.last()?;
    let same = |y: &Iter| same_along(group, x, y.name);
    let extent = |y: Name| nest.iter(y).map_or(1, |i| extent_of(&nest.ranges, i.extent));
    let least = REPEATED.max(want / 2 / extent(x).max(1));
    let long = |y: &&Iter| y.name != x && y.kind == IterKind::Parallel && extent(y.name) >= least;
    let most = nest.iters.iter().filter(long).max_by_key(|y| same(y))?;
    (same(most) >= MANY).then_some(most.name)
}

/// Whether elements along `y` have in common what index maps compute along `x`, which is more than where to start.
fn shares_maps(group: &Group, x: Name, y: Name) -> bool {
    group.nests.iter().any(|n| n.inputs.iter().any(|a| a.plain(&[x]).is_none()))
        && group.nests.iter().all(|n| n.moves_evenly(y))
}

/// Rows that are no multiples of what a thread loads at once would be read element by element. Where only small operands are in the way, they are,
/// and rows run as one.
fn collapse_odd_rows(body: &Body, group: &mut Group, lanes: i64, target: &Target) -> Vec<[Name; 2]> {
    let mut pairs = Vec::new();
    loop {
        let iters = &group.nests[0].iters;
        let Some([.., a, b]) = iters.get(..) else { return pairs };
        let (outer, inner) = (a.name, b.name);
        let odd = b.extent.as_static().is_some_and(|n| n % lanes != 0);
        let next: Option<Vec<_>> =
            group.nests.iter().map(|n| n.collapsed_by_results(outer, inner, target.fusion.reuse)).collect();
        match next.map(|nests| Group { nests, ..group.clone() }) {
            Some(next) if odd && next.nests.iter().all(|n| next.reads_fit(body, n)) => {
                pairs.push([outer, inner]);
                *group = next;
            }
            _ => return pairs,
        }
    }
}

/// Rows of at most half a vector's elements, a pair of parts for one, run as one with the rows above. On a GPU such as are shorter than two sectors do, too,
/// where an operand has other rows beside one another: a tile would store a part of a sector for each.
fn collapse_short_rows(body: &Body, group: &Group, target: &Target) -> Option<([Name; 2], Group)> {
    let [.., outer, inner] = &group.nests.last()?.iters[..] else { return None };
    let lanes = target.lanes(elems_along(body, group, inner.name));
    let divides = |n: i64| 2 * n <= lanes && lanes % n == 0;
    let sectors = target.gpu.as_ref().map_or(0, |gpu| 2 * gpu.sector_bytes);
    let narrow = |n: i64| elems(body, group).byte_width().is_some_and(|bytes| n * (bytes as i64) < sectors);
    let long = outer.extent.as_static().is_none_or(|n| n > 1);
    let nests: Option<Vec<Nest>> = group.nests.iter().map(|n| n.along_results(outer.name, inner.name)).collect();
    let next = Group { nests: nests.filter(|_| long)?, ..group.clone() };
    let across = || transposed(&next, collapsed_name(outer.name, inner.name), lanes, target).is_some();
    inner.extent.as_static().filter(|&n| n > 1 && (divides(n) || narrow(n) && across()))?;
    next.nests.iter().all(|n| next.reads_fit(body, n)).then_some(([outer.name, inner.name], next))
}

/// An iterator other than `x` along which some operand, as large as the result, or the rows of a table are contiguous. The operand may be anywhere along
/// `x`, at every second element, say: a CPU then reads elements one by one as long as the line of each stays in the first-level cache until the next is read.
/// With the iterator: the greatest tile along it that lies in one run of the operand.
fn transposed(group: &Group, x: Name, lanes: i64, target: &Target) -> Option<(Name, i64)> {
    let extent = |nest: &Nest, along: Name| nest.iter(along).map_or(0, |i| extent_of(&nest.ranges, i.extent));
    let least = if target.is_cpu() { SHORT.max(lanes / 4) } else { LONG };
    let long = |nest: &Nest, along: Name| extent(nest, along) >= least;
    let read = |nest: &Nest, access: &Access| {
        let across = access.innermost().filter(|&y| y != x && access.mentions(x) && long(nest, y));
        let apart = |y: Name| long(nest, y) && lines_between(nest, access, y) * LINE > target.shared_bytes;
        let even =
            |y: Name| access.plain(&[y, x]).is_some() || access.plain(&[y]).is_some() && (!target.is_cpu() || apart(y));
        let plain = across.filter(|&y| even(y));
        let bounded = || access.innermost_within().filter(|&y| y != x && access.mentions(x) && !target.is_cpu());
        let other = || beside_runs(nest, access, x, target).or_else(bounded).filter(|&y| long(nest, y));
        let whole = plain.or_else(other).map(|y| (y, i64::MAX));
        whole.or_else(|| in_runs(nest, access, x, lanes))
    };
    let looked_up = |nest: &Nest, table: &Access| {
        let along = table.innermost().filter(|&y| y != x && !table.mentions(x))?;
        (extent(nest, along) >= LONG).then_some((along, i64::MAX))
    };
    group.nests.iter().find_map(|nest| {
        let inputs = nest.inputs.iter().find_map(|access| read(nest, access));
        inputs.or_else(|| nest.gathers.iter().find_map(|table| looked_up(nest, table)))
    })
}

/// How many lines of an operand are read between an element and the next along `y`, where each is in another.
fn lines_between(nest: &Nest, access: &Access, y: Name) -> i64 {
    let inner = nest.iters.iter().skip_while(|i| i.name != y).skip(1).filter(|i| access.mentions(i.name));
    inner.map(|i| extent_of(&nest.ranges, i.extent)).fold(1, i64::saturating_mul)
}

/// The iterator along which an operand that is read across lies in runs of whole vectors, as `[y floordiv 64, x, y mod 64]`, and the greatest tile
/// within one.
fn in_runs(nest: &Nest, access: &Access, x: Name, lanes: i64) -> Option<(Name, i64)> {
    let across = access.innermost().is_none() && access.mentions(x);
    let others = nest.iters.iter().map(|i| i.name).filter(|&y| across && y != x);
    others.map(|y| (y, access.run_within(y, 64))).find(|run| run.1 >= lanes.max(8))
}

/// Where an operand has a few elements beside one another along `x`: the iterator whose other values have their runs next to these, in the same sector.
fn beside_runs(nest: &Nest, access: &Access, x: Name, target: &Target) -> Option<Name> {
    let sector = target.gpu.as_ref()?.sector_bytes / 2;
    let short = access.innermost() != Some(x) && access.mentions(x) && (2..sector / 2).contains(&access.run(x));
    let near = |i: &&Iter| access.distance(i.name).is_some_and(|d| (1..sector).contains(&d));
    let others = nest.iters.iter().filter(|i| i.name != x && i.kind == IterKind::Parallel && short).filter(near);
    others.max_by_key(|i| extent_of(&nest.ranges, i.extent)).map(|i| i.name)
}
