//! Schedules of reductions along what is contiguous in memory, with all that shares their rows (softmax, layer norm).

use super::access::{Access, Iter};
use super::attr::{Kind, Row, Schedule};
use super::group::{Group, collapse};
use super::keep::waiting_bytes;
use super::nest::{Nest, extent_of};
use super::target::Target;
use super::tiles::{fit, pow2, storable};
use super::{Plan, elems, keep, matrix_vector_cpu};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Dim, Name, Value};
use rc_machine::{Cpu, Rows};

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

/// How a GPU's program goes over its rows.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Whole rows in registers.
    Registers,
    /// A row waits in shared memory for the nests after the first, in this many bytes.
    Shared(i64),
    /// Chunks of a row, which each nest reads again.
    Chunks,
}

/// On a GPU a program takes a few whole rows if they fit in registers, else chunks of one row in a loop; on a CPU one row
/// in chunks of four vectors.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Plan {
    let mut pairs = collapse_rows(body, &mut group);
    if !target.is_cpu() {
        pairs.extend(collapse_neighbours(body, &mut group, target));
    }
    let rows = group.rows();
    let lanes = target.lanes(elems(body, &group));
    let count = group.nests.iter().map(|n| row_count(n, &rows)).fold(1.0, f64::max);
    let longest = group.nests.iter().map(|n| length(n, &rows)).max().unwrap_or(1);
    let form = match in_registers(body, &group, target) {
        true => Form::Registers,
        false => waiting_bytes(body, &group).map_or(Form::Chunks, Form::Shared),
    };
    let costs = target.gpu.as_ref().map(|gpu| &gpu.rows);
    let each = costs.map_or(1, |c| c.each);
    let shared = target.cpu.as_ref().and_then(|_| rows_at_once(body, &group, &rows, target));
    let (want, each) = match form {
        _ if target.is_cpu() => (shared.map_or_else(|| vectors(longest, lanes, target.cpu()), |s| s.1) * lanes, 1),
        Form::Registers => {
            let want = group.nests.iter().map(|n| at_once(n, &rows, target)).max().unwrap_or(1);
            let deep = group.nests.iter().any(|n| goes_deep(n, &rows, want, target));
            let all = want as f64 * count;
            (want, if deep { elements_of_thread(all, target) } else { in_flight(&group, &rows, all, target) })
        }
        // One or two programs share a core, which all loads of a chunk keep busy.
        Form::Shared(bytes) if 2 * bytes > target.shared_bytes || count <= target.cores as f64 => (1024 * each, each),
        Form::Shared(_) => (512 * each, each),
        Form::Chunks => {
            let whole = group.nests.iter().map(|n| padded(n, &rows)).max().unwrap_or(1);
            (together(&group, &rows, count, target).min(whole), each)
        }
    };
    let deep = group.nests.iter().any(|n| goes_deep(n, &rows, want, target));
    // A program of too few threads takes several rows, if there are enough for all cores.
    let several = costs.filter(|_| form == Form::Registers && !deep);
    let mut taken = several.map_or_else(|| shared.map_or(1, |s| s.0), |c| (c.block * each / want).max(1));
    while several.is_some() && taken > 1 && count < (taken * target.cores) as f64 && want * taken > 32 * each {
        taken /= 2;
    }
    let threads = if target.is_cpu() { 1 } else { pow2(want * taken / each).clamp(32, 1024) };
    let own = Chunk { want, deep, each: several.map_or(0, |_| want * taken / threads) };
    let split = parts(&group, &rows, own.want, target);
    let waits = costs.filter(|_| form == Form::Registers && count > target.cores as f64);
    let resident = waits.and_then(|costs| resident(&group, &rows, longest, threads, costs));
    let row = if target.is_cpu() { rows.last().copied() } else { tiled_row(&group, &rows, taken) };
    let one = |n: &Nest| {
        let keep = keeps(body, &group, n, target);
        Schedule {
            kind: Kind::Row(Row { split, keep, resident }),
            ..nest_schedule(n, (&rows, row), own, taken, lanes, target)
        }
    };
    let schedules: Vec<Schedule> = group.nests.iter().map(one).collect();
    // The rows that a program takes must be the same in all nests.
    let r = schedules.iter().map(|s| row.map_or(1, |r| s.tile_of(r))).min().unwrap_or(1);
    let schedules = schedules.into_iter().map(|mut s| {
        s.collapse = pairs.clone();
        s.threads = threads;
        if let Some(row) = row {
            s.set_tile(row, r);
        }
        s
    });
    let schedules: Vec<Schedule> = schedules.collect();
    if let Some(parts) = split {
        let why = format!("{count} rows of {longest} in {parts} parts each, then a kernel that combines them");
        let other = format!("not split: {count} programs for {} cores", target.cores);
        return Plan::of_rule(schedules, why, other);
    }
    let words = match form {
        Form::Registers if !target.is_cpu() => "rows stay in registers",
        Form::Shared(_) if !target.is_cpu() => "rows stay in shared memory",
        _ => "rows in chunks, read again by each nest",
    };
    let why = format!("{words}: rows of {longest}, chunks of {want}, {r} rows for each program of {threads} threads");
    let other = match (target.is_cpu(), form) {
        (true, _) => "persistent rows: too few vector registers".to_string(),
        (_, Form::Registers | Form::Shared(_)) => "chunks: would read the operands once for each nest".to_string(),
        (_, Form::Chunks) if !group.nests.iter().all(|n| is_bounded(n, &rows, &target.gpu().rows)) => {
            format!("persistent rows: the length is symbolic, and may be more than {}", target.gpu().rows.chunk)
        }
        (_, Form::Chunks) => format!("persistent rows: {longest} elements, more than {}", target.gpu().rows.longest),
    };
    Plan::of_rule(schedules, why, other)
}

/// Vectors that a CPU's program takes of a row at once: of a long one it goes over the rest, by masks, only once in many steps.
fn vectors(longest: i64, lanes: i64, cpu: &Cpu) -> i64 {
    if longest >= cpu.long * cpu.vectors * lanes { cpu.long_vectors } else { cpu.vectors }
}

/// Rows that a CPU's program takes at once, and vectors of each, where they are reduced only once and not in parts.
fn rows_at_once(body: &Body, group: &Group, rows: &[Name], target: &Target) -> Option<(i64, i64)> {
    let along = chunked(group.nests.first().filter(|_| reduces_once(group, rows))?, rows)?.name;
    let whole = parts(group, rows, 1, target).is_none();
    matrix_vector_cpu::rows(body, group, rows, along, target).filter(|_| whole)
}

/// How many programs of whole rows share a multiprocessor, so that one loads while another combines: of many threads no two would, with as many registers
/// as the assembler likes to use. Beside what else they compute, some elements of a row's operands have room in each of them.
fn resident(group: &Group, rows: &[Name], longest: i64, threads: i64, costs: &Rows) -> Option<i64> {
    let long = |nest: &Nest| {
        let own = |a: &&Access| {
            rows.iter().all(|&r| a.mentions(r)) && chunked(nest, rows).is_some_and(|c| a.mentions(c.name))
        };
        nest.inputs.iter().filter(own).count()
    };
    let operands = group.nests.iter().map(long).max().unwrap_or(0);
    (threads == 512 && operands as i64 * longest <= costs.held * threads).then_some(2)
}

/// Elements that a program takes at once: several chunks, so that few programs which go over their rows several times occupy the machine.
fn together(group: &Group, rows: &[Name], count: f64, target: &Target) -> i64 {
    let several = group.nests.iter().filter(|n| !locals(n, rows).is_empty()).count() > 1;
    let costs = &target.gpu().rows;
    let chunks = (target.cores * target.threads) as f64 / (count * (costs.chunk / costs.each) as f64);
    costs.chunk * [4, 2].into_iter().find(|&n| several && chunks >= n as f64).unwrap_or(1)
}

/// The elements of a row that a program takes at once, over two iterators if `deep`.
#[derive(Clone, Copy)]
struct Chunk {
    want: i64,
    deep: bool,
    /// Elements of each thread, of whole rows.
    each: i64,
}

impl Chunk {
    /// Of whole rows in registers no more than they need, in eighths of the power of two that holds them: as long as each is a load of four elements for
    /// each thread. Quarters that are not needed are left out anyway.
    fn tight(&self, width: i64, extent: Option<i64>) -> i64 {
        let eighth = width / 8;
        let needed = extent.filter(|_| self.each >= 8 * 4).map_or(8, |n| (n + eighth - 1) / eighth.max(1));
        if needed % 2 == 1 && (4..8).contains(&needed) { needed * eighth } else { width }
    }
}

/// The iterators of a nest that are no rows and have several elements.
fn locals(nest: &Nest, rows: &[Name]) -> Vec<Iter> {
    let several = |i: &&Iter| !rows.contains(&i.name) && i.extent != Dim::Static(1);
    nest.iters.iter().filter(several).copied().collect()
}

/// The elements of a nest's row.
fn length(nest: &Nest, rows: &[Name]) -> i64 {
    locals(nest, rows).iter().fold(1, |n, i| n.saturating_mul(extent_of(&nest.ranges, i.extent)))
}

/// As [`length`], with the powers of two that tiles are made of.
fn padded(nest: &Nest, rows: &[Name]) -> i64 {
    locals(nest, rows).iter().fold(1, |n, i| n.saturating_mul(pow2(extent_of(&nest.ranges, i.extent))))
}

/// A symbolic length is taken at its greatest; where that is less than a chunk, a loop would take as much at once.
fn is_bounded(nest: &Nest, rows: &[Name], costs: &Rows) -> bool {
    let bounded = |extent: Dim| {
        extent.is_static() || nest.ranges.interval(extent).is_some_and(|(low, high)| low > 0 && high <= costs.chunk)
    };
    locals(nest, rows).iter().all(|i| bounded(i.extent))
}

/// Whether a GPU's program has whole rows in registers: each nest takes all of its row at once, or of short rows all that is contiguous.
pub fn in_registers(body: &Body, group: &Group, target: &Target) -> bool {
    let Some(costs) = target.gpu.as_ref().map(|gpu| &gpu.rows) else { return false };
    let mut group = group.clone();
    collapse_rows(body, &mut group);
    let rows = group.rows();
    let fits = |n: &Nest| {
        let whole = deep(n, &rows, target).is_none() || locals(n, &rows).len() == 2;
        whole && at_once(n, &rows, target) <= costs.longest && is_bounded(n, &rows, costs)
    };
    group.nests.iter().all(fits)
}

/// Elements that a nest takes in a step over all of its row, or of a short row over all that is contiguous.
fn at_once(nest: &Nest, rows: &[Name], target: &Target) -> i64 {
    match deep(nest, rows, target) {
        Some(_) => padded(nest, rows),
        None => chunked(nest, rows).map_or(1, |c| pow2(extent_of(&nest.ranges, c.extent))),
    }
}

/// Collapses what nests run over together. Gives the pairs.
fn collapse_rows(body: &Body, group: &mut Group) -> Vec<[Name; 2]> {
    let rows = group.rows();
    collapse(body, group, &|nest, name| !nest.is_pointwise() || rows.contains(&name) || nest.iter(name).is_some())
}

/// Rows whose elements lie in runs of less than a sector, each beside one of the next row: one iterator over all of them, so that a warp's threads
/// have neighbours. Gives the pair.
fn collapse_neighbours(body: &Body, group: &mut Group, target: &Target) -> Option<[Name; 2]> {
    let rows = group.rows();
    let [outer, inner] = rows[..] else { return None };
    let leader = group.nests.iter().find(|n| !n.is_pointwise())?;
    let run = chunked(leader, &rows)?;
    let short = |(value, a): (Value, &Access)| {
        let bytes = body.ty(value).elem().byte_width().unwrap_or(8) as i64;
        let (Some([.., before, last]), Some(&size)) = (Some(&a.exprs[..]), a.shape.last()) else { return false };
        let beside = *last == Dim::symbol(run.name) && *before == Dim::symbol(inner) && size == run.extent;
        beside && size.as_static().is_some_and(|n| n * bytes < target.gpu().sector_bytes)
    };
    let all = leader.iters.iter().all(|i| i.extent.is_static());
    if !all || !body.operands(leader.op).zip(&leader.inputs).any(short) {
        return None;
    }
    let nests = group
        .nests
        .iter()
        .map(|n| n.collapsed_by_results(outer, inner, target.fusion.reuse))
        .collect::<Option<Vec<_>>>()?;
    let next = Group { nests, ..group.clone() };
    next.nests.iter().all(|n| next.reads_fit(body, n)).then(|| *group = next)?;
    Some([outer, inner])
}

/// Neighbours of a row that are too few for a warp's threads: a program takes those around them too.
const SHORT: i64 = 8;

/// The iterator beside the one that is cut into chunks of which a GPU's tiles have several elements too, where a row has two and there is more of it
/// than a few rows for each thread would be: the one around it, if there is one; else the one within, also where the chunk is a short one, as a group's channels are that lie
/// side by side. Not within where there are rows enough for all threads, as of windows of all places.
fn deep(nest: &Nest, rows: &[Name], target: &Target) -> Option<Iter> {
    let (costs, chunk) = (&target.gpu.as_ref()?.rows, chunked(nest, rows)?);
    let all = locals(nest, rows);
    let at = all.iter().position(|i| i.name == chunk.name)?;
    let (elements, run) = (padded(nest, rows), pow2(extent_of(&nest.ranges, chunk.extent)));
    let much = |short: bool| elements >= costs.deep || short && elements >= (16 * run).max(costs.deep / 4);
    let fills = || row_count(nest, rows) * run as f64 >= (target.cores * target.threads) as f64;
    match at {
        0 => all.get(1).filter(|_| much(true) && !fills()),
        _ => all.get(at - 1).filter(|_| much(run <= SHORT)),
    }
    .copied()
}
fn goes_deep(nest: &Nest, rows: &[Name], want: i64, target: &Target) -> bool {
    let chunk = chunked(nest, rows).map_or(1, |c| pow2(extent_of(&nest.ranges, c.extent)));
    deep(nest, rows, target).is_some() && 2 * chunk <= want
}

/// Whether what several nests read of a row is read from memory once: it fits a core's registers or its shared memory.
pub fn stays_on_chip(body: &Body, group: &Group, target: &Target) -> bool {
    in_registers(body, group, target)
        || waiting_bytes(body, group).is_some()
        || keep::row_to_keep(body, group, target).is_some()
}

/// Whether a nest's result stays in the program's own memory: on a GPU a copy that was made for that ([`keep`]); on a CPU what takes long to compute
/// and other nests of the group read, where a row of it fits beside others in the second-level cache.
fn keeps(body: &Body, group: &Group, nest: &Nest, target: &Target) -> bool {
    if !target.is_cpu() {
        return keep::is_copy(body, nest);
    }
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

/// The iterator of a nest that is cut into chunks: of those that are no rows the one along which the largest operand is contiguous, or the innermost.
fn chunked(nest: &Nest, rows: &[Name]) -> Option<Iter> {
    let local: Vec<_> = nest.iters.iter().filter(|i| !rows.contains(&i.name)).collect();
    let inside = |a: &Access| a.innermost().filter(|n| local.iter().any(|i| i.name == *n));
    let contiguous = nest.inputs.iter().filter_map(|a| Some((nest.elements(a), inside(a)?)));
    let along = contiguous.max_by(|a, b| a.0.total_cmp(&b.0)).map(|c| c.1);
    local.iter().find(|i| Some(i.name) == along).or(local.last()).map(|i| **i)
}

/// Whether a group reduces rows in its first nest, and goes over them no second time.
fn reduces_once(group: &Group, rows: &[Name]) -> bool {
    let Some((first, rest)) = group.nests.split_first() else { return false };
    let alone = first.op == group.ops[0] && rest.iter().all(|n| n.is_pointwise() && chunked(n, rows).is_none());
    alone && !first.is_pointwise() && locals(first, rows).iter().all(|i| i.kind == IterKind::Reduce)
}

/// Into how many parts rows are cut that are too few for the machine's cores, where they are reduced only once.
fn parts(group: &Group, rows: &[Name], chunk: i64, target: &Target) -> Option<i64> {
    let first = group.nests.first().filter(|_| reduces_once(group, rows))?;
    let part = target.cpu.as_ref().map_or_else(|| target.gpu().rows.part, |cpu| cpu.part);
    let most = length(first, rows) / part.max(2 * chunk);
    // Two programs for each core.
    let wanted = 2.0 * target.cores as f64 / row_count(first, rows);
    let wanted = 1 << (wanted.max(1.0).log2().ceil() as u32).min(9);
    std::iter::successors(Some(wanted), |&parts| Some(parts / 2)).find(|&parts| parts <= most.max(1)).filter(|&p| p > 1)
}

/// Elements of each thread, as [`elements_of_thread`]; where each row is reduced in a few more steps, no more than can be in flight in all of them.
fn in_flight(group: &Group, rows: &[Name], total: f64, target: &Target) -> i64 {
    let steps = |nest: &Nest| {
        let along = chunked(nest, rows).map(|c| c.name);
        let others = nest.of_kind(IterKind::Reduce).filter(|i| Some(i.name) != along);
        others.map(|i| extent_of(&nest.ranges, i.extent)).product::<i64>()
    };
    let steps = group.nests.iter().map(steps).max().unwrap_or(1);
    let most = target.gpu().in_flight / steps.max(1);
    let each = elements_of_thread(total * steps as f64, target);
    if most >= 8 { each.min(most) } else { elements_of_thread(total, target) }
}

/// The iterator of which a program takes several rows: of those that fill so many, one along which what index maps compute is the same for all, if
/// there is one; the last of several.
fn tiled_row(group: &Group, rows: &[Name], taken: i64) -> Option<Name> {
    let leader = group.nests.iter().find(|n| !n.is_pointwise())?;
    let fills = |name: &Name| leader.iter(*name).is_some_and(|i| extent_of(&leader.ranges, i.extent) >= taken);
    let rank = |name: &&Name| (fills(name), group.nests.iter().all(|n| n.moves_evenly(**name)));
    rows.iter().max_by_key(rank).copied()
}

fn nest_schedule(
    nest: &Nest,
    (rows, row): (&[Name], Option<Name>),
    own: Chunk,
    taken: i64,
    lanes: i64,
    target: &Target,
) -> Schedule {
    let mut schedule = Schedule::new(Kind::Row(Row::default()));
    schedule.grid = rows.to_vec();
    let outputs: Vec<_> = nest.outputs.iter().collect();
    let chunk = chunked(nest, rows);
    let mut tiled = |axis: usize, iter: &Iter, also: Option<Name>, want: i64| {
        let size = if iter.kind == IterKind::Reduce { want } else { storable(&outputs, iter, also, want, target) };
        schedule.axes[axis] = iter.name;
        schedule.set_tile(iter.name, size);
    };
    let mut width = 1;
    if let Some(iter) = chunk {
        width = own.tight(fit(target, iter.extent.as_static(), own.want, lanes), iter.extent.as_static());
        tiled(1, &iter, None, width);
    }
    let also = chunk.map(|c| c.name);
    match deep(nest, rows, target).filter(|_| own.deep) {
        Some(outer) => tiled(0, &outer, also, fit(target, outer.extent.as_static(), (own.want / width).max(1), 1)),
        None => {
            if let Some(row) = row.and_then(|r| nest.iter(r)) {
                let want = fit(target, row.extent.as_static(), taken, 1);
                tiled(0, row, also, want);
            }
        }
    }
    schedule
}
