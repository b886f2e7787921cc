//! Schedules of reductions along what is contiguous in memory, with all that shares their rows (softmax, layer norm).

use super::attr::{Kind, Row, Schedule};
use super::group::{Group, collapse};
use super::nest::{Nest, extent_of};
use super::target::Target;
use super::tiles::{fit, pow2, storable};
use super::{Plan, elems};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Name};

/// Rows up to this many elements stay in a GPU program's registers between the nests.
const PERSISTENT: i64 = 16384;

/// Elements of a longer row that a GPU program takes at once.
const CHUNK: i64 = 4096;

/// Elements for which a program of its own pays, besides the second kernel that combines the parts.
const PART: i64 = 8192;

/// Threads that a GPU program has at least where it takes several rows.
const BLOCK: i64 = 128;

/// Elements of a row in each thread's registers: where there are many, four loads of eight are in flight before the first is
/// used, and what a reduction costs is shared by them; where there are few, all threads that the machine holds take part.
pub fn elements_of_thread(total: f64, target: &Target) -> i64 {
    let threads = (target.cores * target.threads / 4) as f64;
    [32, 16].into_iter().find(|&each| total / each as f64 >= threads).unwrap_or(8)
}

fn row_count(nest: &Nest, rows: &[Name]) -> f64 {
    let rows = nest.iters.iter().filter(|i| rows.contains(&i.name));
    rows.map(|i| extent_of(&nest.ranges, i.extent) as f64).product()
}

/// On a GPU a program takes a few whole rows if they fit in registers, else chunks of one row in a loop; on a CPU one row
/// in chunks of four vectors.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let rows_before = group.rows();
    let pairs = collapse(body, &mut group, &|nest, name| {
        !nest.is_pointwise() || rows_before.contains(&name) || nest.iter(name).is_some()
    });
    let rows = group.rows();
    let lanes = target.lanes(elems(body, &group));
    let longest = group
        .nests
        .iter()
        .filter_map(|n| chunked(n, &rows))
        .map(|(n, c)| extent_of(&n.ranges, c.extent))
        .max()
        .unwrap_or(1);
    // A symbolic length is taken at its greatest; where that is less than a chunk, a loop would take as much at once.
    let bounded = |nest: &Nest, extent: rc_ir::Dim| {
        extent.is_static() || nest.ranges.interval(extent).is_some_and(|(low, high)| low > 0 && high <= CHUNK)
    };
    let bounded_rows = group.nests.iter().all(|n| chunked(n, &rows).is_none_or(|(_, c)| bounded(n, c.extent)));
    let persistent = !target.is_cpu() && longest <= PERSISTENT && bounded_rows;
    let want = match (target.is_cpu(), persistent) {
        (true, _) => 4 * lanes,
        (false, true) => pow2(longest),
        (false, false) => CHUNK,
    };
    let count = group.nests.iter().map(|n| row_count(n, &rows)).fold(1.0, f64::max);
    let each = if persistent { elements_of_thread(want as f64 * count, target) } else { 16 };
    // A program of too few threads takes several rows, if there are enough for all cores.
    let mut taken = if persistent { (BLOCK * each / want).max(1) } else { 1 };
    while taken > 1 && count < (taken * target.cores) as f64 && want * taken > 32 * each {
        taken /= 2;
    }
    let threads = if target.is_cpu() { 1 } else { pow2(want * taken / each).clamp(32, 1024) };
    let split = parts(&group, &rows, want, target);
    let one = |n: &Nest| {
        let keep = target.is_cpu() && keeps(body, &group, n, target);
        Schedule { kind: Kind::Row(Row { split, keep }), ..nest_schedule(n, &rows, want, taken, lanes, target) }
    };
    let schedules: Vec<Schedule> = group.nests.iter().map(one).collect();
    // The rows that a program takes must be the same in all nests.
    let r = schedules.iter().map(|s| rows.last().map_or(1, |&r| s.tile_of(r))).min().unwrap_or(1);
    let schedules = schedules.into_iter().map(|mut s| {
        s.collapse = pairs.clone();
        s.threads = threads;
        if let Some(&row) = rows.last() {
            s.set_tile(row, r);
        }
        s
    });
    let schedules: Vec<Schedule> = schedules.collect();
    if let Some(parts) = split {
        let why = format!("{count} rows of {longest} in {parts} parts each, then a kernel that combines them");
        let other = format!("not split: {count} programs for {} cores", target.cores);
        return Plan { schedules, why, other };
    }
    let form = if persistent { "rows stay in registers" } else { "rows in chunks, read again by each nest" };
    let why = format!("{form}: rows of {longest}, chunks of {want}, {r} rows for each program of {threads} threads");
    let other = match (target.is_cpu(), persistent) {
        (true, _) => "persistent rows: too few vector registers".to_string(),
        (_, true) => "chunks: would read the operands once for each nest".to_string(),
        (_, false) if !bounded_rows => format!("persistent rows: the length is symbolic, and may be more than {CHUNK}"),
        (_, false) => format!("persistent rows: {longest} elements, more than {PERSISTENT}"),
    };
    Plan { schedules, why, other }
}

/// Whether a nest's result stays in the program's own memory on a CPU: it takes long to compute, other nests of the group read it,
/// and a row of it fits beside others in the second-level cache.
fn keeps(body: &Body, group: &Group, nest: &Nest, target: &Target) -> bool {
    let result = body.result(nest.op, 0);
    let read = group.ops.iter().any(|&op| body.operands(op).any(|v| v == result));
    let (rows, written) = (group.rows(), &nest.outputs[0]);
    let row = |name: &Name| rows.contains(name);
    let bounds = written.exprs.iter().zip(&written.shape).map(|(&e, &size)| {
        let mut names = Vec::new();
        e.for_each_symbol(&mut |n| names.push(n));
        match names.iter().filter(|n| row(n)).count() {
            0 => nest.ranges.interval(size).map(|r| r.1),
            all => (all == names.len()).then_some(1),
        }
    });
    let elements =
        bounds.collect::<Option<Vec<i64>>>().and_then(|b| b.into_iter().try_fold(1i64, |n, d| n.checked_mul(d)));
    let bytes = |n: i64| n.saturating_mul(body.ty(result).elem().byte_width().unwrap_or(8) as i64);
    nest.is_pointwise()
        && read
        && super::share::computes_slowly(body, nest)
        && elements.is_some_and(|n| bytes(n) <= target.cache_bytes / 4)
}

/// The iterator of a nest that is cut into chunks: the innermost one that is no row.
fn chunked<'a>(nest: &'a Nest, rows: &[Name]) -> Option<(&'a Nest, super::access::Iter)> {
    let local: Vec<_> = nest.iters.iter().filter(|i| !rows.contains(&i.name)).collect();
    let along = nest.inputs.iter().rev().find_map(|a| a.innermost().filter(|n| local.iter().any(|i| i.name == *n)));
    let pick = local.iter().find(|i| Some(i.name) == along).or(local.last())?;
    Some((nest, **pick))
}

/// Into how many parts rows are cut that are too few for the machine's cores, where they are reduced only once.
fn parts(group: &Group, rows: &[Name], chunk: i64, target: &Target) -> Option<i64> {
    let (first, rest) = group.nests.split_first()?;
    let along = chunked(first, rows)?.1;
    let length = extent_of(&first.ranges, along.extent);
    let alone = first.op == group.ops[0] && rest.iter().all(|n| n.is_pointwise() && chunked(n, rows).is_none());
    let combines = !first.is_pointwise() && !first.combiners.iter().any(|c| c.starts_with("arg"));
    let enough = |parts: i64| length >= parts * PART.max(2 * chunk);
    if !alone || !combines || along.kind != IterKind::Reduce {
        return None;
    }
    // Two programs for each core.
    let wanted = 2.0 * target.cores as f64 / row_count(first, rows);
    let most = 1 << (wanted.max(1.0).log2().ceil() as u32).min(9);
    std::iter::successors(Some(most), |&parts| Some(parts / 2)).take_while(|&parts| parts > 1).find(|&p| enough(p))
}

fn nest_schedule(nest: &Nest, rows: &[Name], want: i64, taken: i64, lanes: i64, target: &Target) -> Schedule {
    let mut schedule = Schedule::new(Kind::Row(Row::default()));
    schedule.grid = rows.to_vec();
    let outputs: Vec<_> = nest.outputs.iter().collect();
    let chunk = chunked(nest, rows).map(|c| c.1);
    if let Some(iter) = chunk {
        let size = fit(target, iter.extent.as_static(), want, lanes);
        let size = if iter.kind == IterKind::Reduce { size } else { storable(&outputs, &iter, None, size, target) };
        schedule.axes[1] = iter.name;
        schedule.set_tile(iter.name, size);
    }
    if let Some(row) = rows.last().and_then(|&r| nest.iter(r)) {
        let size =
            storable(&outputs, row, chunk.map(|c| c.name), fit(target, row.extent.as_static(), taken, 1), target);
        schedule.axes[0] = row.name;
        schedule.set_tile(row.name, size);
    }
    schedule
}
