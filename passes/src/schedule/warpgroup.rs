//! Products on Hopper's warpgroups: tiles that the copy engine brings to shared memory, `wgmma`, programs that go from one
//! tile of results to the next, alone or in clusters that share an operand's tile.

use super::access::Access;
use super::attr::{Contract, Kind, Operand, Schedule};
use super::candidate::{Candidate, Cost};
use super::contract::{Problem, limit};
use super::group::Group;
use super::nest::Nest;
use super::roles::Roles;
use crate::work::work_of_floats;
use rc_dialects::loop_;
use rc_ir::{Body, Dim, Name, Op, Type, Value};
use rc_machine::{Target, Unit};
use rustc_hash::FxHashSet;

/// Elements of a 16-bit type in a row of shared memory: what one swizzle of 128 bytes spans.
pub const WIDTH: i64 = 64;

/// Elements of any type in such a row.
pub fn row_width(elem: Type) -> i64 {
    ROW_BYTES / elem.byte_width().map_or(ROW_BYTES, |width| width.max(1) as i64)
}

/// Bytes of a row of shared memory.
pub const ROW_BYTES: i64 = 128;

/// Columns of a tile of which a warpgroup has the sums of all steps and those of one.
const WIDEST_EXACT: i64 = 128;

/// Rows of a tile that a warpgroup computes at once.
pub const ROWS: i64 = 64;

/// Candidate tiles `[m, n]`: a warpgroup takes multiples of 64 rows, and any multiple of 16 columns, so that tiles fill whole waves.
fn tiles() -> impl Iterator<Item = [i64; 2]> {
    let of = |m: i64, least: i64| (least..=256).rev().step_by(16).map(move |n| [m, n]);
    of(128, 64).chain(of(64, 16))
}

/// Programs of a cluster along m and n: alone, or two with neighbouring tiles, which read the same tile of the other operand.
const CLUSTERS: [[i64; 2]; 3] = [[1, 1], [2, 1], [1, 2]];

/// Threads of a warpgroup.
pub const WARPGROUP: i64 = 128;

/// Warpgroups that take turns: more would have too few registers.
const TURNS: i64 = 2;

/// Boxes of what the epilogue reads that each warpgroup has in shared memory: one is read while the next one is on its way.
const EPILOGUE_STAGES: i64 = 2;

/// Shared memory of the boxes that epilogues read, of which each of so many warpgroups has `stages`.
pub fn box_bytes(warpgroups: i64, stages: i64) -> i64 {
    warpgroups.saturating_mul(stages).saturating_mul(ROWS * ROW_BYTES)
}

/// What there is to choose.
#[derive(Clone, Copy)]
struct Choice {
    tile: [i64; 2],
    stages: i64,
    split: i64,
    /// Programs of a cluster along m and n.
    cluster: [i64; 2],
    /// Warpgroups that have tiles of their own.
    turns: i64,
    /// Whether what the epilogue reads comes ahead of it.
    ahead: bool,
}

impl Choice {
    /// Warpgroups that compute a tile: one of its own where they take turns, else one for 64 rows.
    fn groups(&self) -> i64 {
        if self.turns > 1 { 1 } else { self.tile[0] / ROWS }
    }
    /// The sums of the tile that a thread has.
    fn sums(&self) -> i64 {
        self.tile[0] * self.tile[1] / (self.groups() * WARPGROUP)
    }
    /// Tiles of operands that are in shared memory at once, of which those of the right one take so many rows.
    fn stages(&self, held: i64, target: &Target) -> i64 {
        let model = &target.gpu().warpgroups;
        let boxes = if self.ahead { box_bytes(self.groups() * self.turns, EPILOGUE_STAGES) } else { 0 };
        let room = target.shared_bytes - model.reserve_bytes - boxes;
        (room / ((self.tile[0] + held) * ROW_BYTES)).min(model.max_stages)
    }
    /// Whether the operand whose tile the programs of a cluster have in common is copied as boxes, by each of them enough rows: smaller boxes take longer than
    /// whole tiles of its own.
    fn shares(&self, p: &Problem, brought: &[Brought; 2]) -> bool {
        let common = [(1 - p.roles.left, self.tile[1]), (p.roles.left, self.tile[0])];
        self.cluster.into_iter().zip(common).all(|(programs, (factor, rows))| {
            programs == 1 || matches!(brought[factor], Brought::Boxes(_)) && rows / programs >= ROWS
        })
    }
    fn what(&self) -> String {
        let Choice { tile, stages, split, cluster, turns, ahead } = *self;
        let parts = if split > 1 { format!(", sums in {split} parts") } else { String::new() };
        let shared = match cluster {
            [1, 1] => "",
            [_, 1] => ", two of them above one another a cluster",
            _ => ", two of them side by side a cluster",
        };
        let turns = if turns > 1 { format!(" that take {turns} turns") } else { String::new() };
        let ahead = if ahead { ", what the epilogue reads ahead of it" } else { "" };
        format!("tiles of {tile:?} by warpgroups{turns}, {stages} stages{parts}{shared}{ahead}")
    }
}

/// How a factor's tiles come to shared memory, and along which iterator they are contiguous.
#[derive(Clone, Copy, PartialEq)]
enum Brought {
    /// Boxes of a tensor map.
    Boxes(Name),
    /// Runs of neighbours that threads gather.
    Runs(Name),
}

impl Brought {
    fn along(self) -> Name {
        match self {
            Brought::Boxes(along) | Brought::Runs(along) => along,
        }
    }
}

/// Ways to run a product; `None` where the machine or the operands do not allow for it: each factor is one operand as
/// it lies in memory, whose rows are multiples of 16 bytes, or one that is read in runs of 8 bytes or more.
pub fn candidates(body: &Body, group: &Group, p: &Problem, target: &Target) -> Option<Vec<Candidate>> {
    let types = p.factors[0] == p.factors[1] && p.factors[0].is_float();
    if !types || target.instruction(Unit::Wgmma, p.multiplied, p.acc).is_none() {
        return None;
    }
    let nest = &group.nests[0];
    let brought = [brought(body, nest, p, 0)?, brought(body, nest, p, 1)?];
    let (left, right) = (brought[p.roles.left], brought[1 - p.roles.left]);
    // Words are multiplied along the sums alone. What is gathered becomes TF32 in registers, where only the left operand may be.
    if p.multiplied == Type::tf32() && (left.along() != p.roles.k || right != Brought::Boxes(p.roles.k)) {
        return None;
    }
    let width = row_width(p.factors[0]);
    // A tile of rows that lie along n is whole swizzles wide: what is past its columns is copied for nothing.
    let across = brought[1 - p.roles.left].along() == p.roles.n;
    let held = |n: i64| if across { (n + WIDTH - 1) / WIDTH * WIDTH } else { n };
    let boxes_across = right == Brought::Boxes(p.roles.n);
    let splits = splits(group, p, 7, target);
    let work = Work {
        straddles: [0, 1].map(|f| straddles(body, nest, p, f, brought[f], target)),
        across: boxes_across,
        runs: [0, 1].map(|f| match (brought[f], gathered_along(body, nest, &p.roles, f)) {
            (Brought::Runs(_), Some((_, length))) => (width / length.min(width / 8)) as f64,
            _ => 0.0,
        }),
        elements: [0, 1].map(|f| elements(body, nest, f)),
        on_line: if boxes_across { rows_on_line(body, nest, 1 - p.roles.left, width) } else { 1.0 },
        after: work_after(body, group),
        reads: reads_after(body, group, p).count() as f64,
        boxes: come_in_boxes(body, group, p, &brought),
    };
    let mut out: Vec<Candidate> = Vec::new();
    for [bm, bn] in tiles() {
        // Sums of a step lie beside those of all.
        if p.exact_sums && bn > WIDEST_EXACT {
            continue;
        }
        // Runs are gathered into whole swizzles alone.
        let cut = matches!(brought[1 - p.roles.left], Brought::Runs(_)) && held(bn) != bn;
        let fits = limit(group, p, bm, bn, target) == (bm, bn) && !cut;
        if fits {
            let choices = splits.iter().flat_map(|&split| CLUSTERS.map(|cluster| (split, cluster)));
            let choices = choices.flat_map(|(split, cluster)| {
                let ways = [(1, false), (TURNS, false), (1, true), (TURNS, true)];
                ways.map(|(turns, ahead)| Choice { tile: [bm, bn], stages: 0, split, cluster, turns, ahead })
            });
            let choices = choices.map(|choice| Choice { stages: choice.stages(held(bn), target), ..choice });
            let choices = choices.filter(|choice| {
                let turns = choice.turns == 1 || takes_turns(group, p, &brought, choice, work.reads);
                let ahead = !choice.ahead || work.boxes && choice.split == 1 && bn >= WIDTH;
                choice.stages >= 2 && turns && ahead
            });
            let candidate = |choice: Choice| Candidate {
                schedules: vec![schedule(p, &brought, choice, target)],
                what: choice.what(),
                cost: Some(cost(p, &work, choice, held(bn), target)),
            };
            let fits = |choice: &Choice| {
                let [m, n] = [bm * choice.cluster[0], bn * choice.cluster[1]];
                choice.shares(p, &brought) && limit(group, p, m, n, target) == (m, n)
            };
            out.extend(choices.filter(fits).map(candidate));
        }
    }
    Some(out)
}

/// Sums that a thread of a warpgroup that takes turns may have: what is left of its registers is the epilogue's, which may load several elements for
/// each, and addresses, more where a table chooses an operand.
fn most_sums(group: &Group, loads: f64) -> i64 {
    match group.nests[0].gathers.is_empty() {
        _ if loads > 1.0 => 128,
        true => 192,
        false => 176,
    }
}

/// Whether a warpgroup may compute a tile alone: all take the same steps.
fn takes_turns(group: &Group, p: &Problem, brought: &[Brought; 2], choice: &Choice, reads: f64) -> bool {
    let sums = group.nests[0].of_kind(loop_::IterKind::Reduce).count();
    let boxes = brought.iter().all(|b| matches!(b, Brought::Boxes(_)));
    let known = group.nests[0].iter(p.roles.k).is_some_and(|k| k.extent.is_static());
    // Of whole boxes the epilogue has one at hand.
    let loads = if choice.ahead && choice.tile[1] % WIDTH == 0 { 0.0 } else { reads };
    let fits = choice.sums() <= most_sums(group, loads) && (choice.tile[0] == ROWS || !p.exact_sums);
    fits && choice.split == 1 && sums == 1 && boxes && known
}

fn schedule(p: &Problem, brought: &[Brought; 2], choice: Choice, target: &Target) -> Schedule {
    let Choice { tile: [bm, bn], stages, split, cluster, turns, ahead } = choice;
    let along = [(p.roles.m, cluster[0]), (p.roles.n, cluster[1])];
    let own = Contract {
        unit: Some(Unit::Wgmma),
        stages: Some(stages),
        programs: Some(target.cores),
        turns: (turns > 1).then_some(turns),
        epilogue_stages: ahead.then_some(EPILOGUE_STAGES),
        cluster: along.into_iter().filter(|c| c.1 > 1).collect(),
        split: (split > 1).then_some(split),
        gather: gathered(p, &|factor| matches!(brought[factor], Brought::Runs(_))),
        ..Contract::default()
    };
    let mut s = Schedule::new(Kind::Contract(own));
    s.tile = vec![(p.roles.m, bm), (p.roles.n, bn), (p.roles.k, row_width(p.factors[0]))];
    s.threads = choice.groups() * WARPGROUP;
    s
}

/// The operands that are gathered.
pub fn gathered(p: &Problem, is: &dyn Fn(usize) -> bool) -> Vec<Operand> {
    [(p.roles.left, Operand::Left), (1 - p.roles.left, Operand::Right)]
        .into_iter()
        .filter(|f| is(f.0))
        .map(|f| f.1)
        .collect()
}

fn brought(body: &Body, nest: &Nest, p: &Problem, which: usize) -> Option<Brought> {
    let boxes = copied_along(body, nest, p, which).map(Brought::Boxes);
    boxes.or_else(|| gathered_along(body, nest, &p.roles, which).filter(|g| g.1 >= 4).map(|g| Brought::Runs(g.0)))
}

/// The iterator along which a factor, an operand as it is, is read in runs, and how long these are.
pub fn gathered_along(body: &Body, nest: &Nest, roles: &Roles, which: usize) -> Option<(Name, i64)> {
    let access = operand_of(body, nest, which)?;
    let own = if which == roles.left { roles.m } else { roles.n };
    // A run that reaches past the end of the sums needs zeros there of the other factor.
    let (k, most) = (nest.iter(roles.k)?, line(body.ty(factor_of(body, nest, which)?)));
    let other = operand_of(body, nest, 1 - which);
    let ends = |run: i64| k.extent.modulo(Dim::Static(run.min(most))) == Dim::Static(0);
    let zeros = other.is_none_or(|access| access.clips(k));
    let along = [roles.k, own].map(|iter| (iter, access.run(iter)));
    let along = along.into_iter().filter(|&(iter, run)| iter != roles.k || zeros || ends(run));
    let best = along.max_by_key(|a| a.1)?;
    let tiled = access.mentions(own) && access.mentions(roles.k);
    (tiled && best.1 > 1 && access.shape.iter().all(|d| d.is_static())).then_some(best)
}

/// The iterator along which a factor's memory is contiguous, where the copy engine can bring tiles of it.
fn copied_along(body: &Body, nest: &Nest, p: &Problem, which: usize) -> Option<Name> {
    let (entry, value) = (body.op_ref(nest.op).entry(0)?, factor_of(body, nest, which)?);
    let access = match body.block_args(entry).position(|a| a == value) {
        Some(operand) => &nest.inputs[operand],
        None => chosen(body, nest, p, value)?,
    };
    let own = if which == p.roles.left { p.roles.m } else { p.roles.n };
    let tiled = [own, p.roles.k];
    let along = access.plain(&tiled)?;
    let last = (*along.last()?)?;
    // Past the end of the sums there must be zeros, which is where the memory ends.
    let k = nest.iter(p.roles.k)?;
    let whole = k.extent.modulo(Dim::Static(row_width(body.ty(value).elem()))) == Dim::Static(0);
    let ends = whole || access.clips(k);
    let both = tiled.iter().all(|t| along.contains(&Some(*t)));
    (both && ends && boxes_fit(access, last, body.ty(value).elem())).then_some(last)
}

/// Whether the copy engine takes boxes of an operand that begin where tiles along `last` do: its strides are multiples of 16 bytes, and so is each box's first place in a
/// row (from 8 bytes on an H200 stops, with an illegal instruction).
pub fn boxes_fit(access: &Access, last: Name, elem: Type) -> bool {
    let from = access.exprs.last().map_or(Dim::Static(0), |&e| e - Dim::symbol(last));
    let on_lines = from.modulo(Dim::Static(line(elem))) == Dim::Static(0);
    access.shape.len() <= 5 && on_lines && strides_fit(&access.shape, elem)
}

/// Elements of 16 bytes.
pub fn line(elem: Type) -> i64 {
    16 / elem.byte_width().map_or(16, |width| width.clamp(1, 16) as i64)
}

/// Where a factor lies that a table chooses for each product of a batch: the same for all of a program's tile.
fn chosen<'n>(body: &Body, nest: &'n Nest, p: &Problem, value: Value) -> Option<&'n Access> {
    let gather = body.op_ref(body.defining_op(value)?);
    let entry = body.op_ref(nest.op).entry(0)?;
    let gathers: Vec<Op> = body.ops(entry).filter(|&op| body.name(op) == &loop_::GATHER).collect();
    let access = nest.gathers.get(gathers.iter().position(|&op| op == gather.op)?)?;
    let once = gather.operands().skip(1).all(|index| {
        let operand = body.block_args(entry).position(|a| a == index);
        operand.is_some_and(|i| ![p.roles.m, p.roles.n, p.roles.k].iter().any(|&n| nest.inputs[i].mentions(n)))
    });
    once.then_some(access)
}

/// Whether all strides but the last are multiples of 16 bytes, in row-major order.
pub fn strides_fit(shape: &[Dim], elem: Type) -> bool {
    is_mapped(Type::memref(shape, elem, 0))
}

/// Whether a tensor map takes a memref's strides: all but the last are multiples of 16 bytes.
pub fn is_mapped(ty: Type) -> bool {
    has_strides_of(ty, line(ty.elem()))
}

/// Whether all strides but the last are multiples of so many elements.
pub fn has_strides_of(ty: Type, elements: i64) -> bool {
    let strides = ty.strides().unwrap_or_default();
    strides.iter().rev().skip(1).all(|stride| stride.modulo(Dim::Static(elements)) == Dim::Static(0))
}

/// Into how many parts the sums may be cut, one or so many doublings less one of it, each with steps enough. A second kernel combines them, and runs the nests that follow.
pub fn splits(group: &Group, p: &Problem, doublings: usize, target: &Target) -> Vec<i64> {
    let least = (target.gpu().warpgroups.part_steps * WIDTH) as f64;
    let whole = group.nests[1..].iter().all(|n| n.is_pointwise()) && group.nests[0].gathers.is_empty();
    // One iterator is cut.
    let cut = |n: f64| p.sizes[2] / n >= least || p.longest_outer >= n && p.depth() / n >= least;
    let enough = |n: &i64| *n == 1 || whole && cut(*n as f64);
    (0..doublings).map(|i| 1 << i).filter(enough).collect()
}

/// What else decides how long a product takes.
struct Work {
    /// Of each factor in order, whether its rows start within sectors of the cache: a copy reads a line more for each.
    straddles: [bool; 2],
    /// Whether boxes of the right operand have rows along n: these start within lines too where tiles are no whole lines wide.
    across: bool,
    /// Of each factor, how many runs threads gather for a row of its tile; none of boxes.
    runs: [f64; 2],
    /// Of each factor, how many elements lie in memory, where it is an operand of static sizes: windows overlap.
    elements: [Option<f64>; 2],
    /// How many rows of the right operand lie on one line of memory, where these are along n.
    on_line: f64,
    /// Operations on each of the sums in the epilogue, and elements that it reads from memory for each.
    after: f64,
    reads: f64,
    /// Whether these may come to shared memory ahead of it, in boxes.
    boxes: bool,
}

fn straddles(body: &Body, nest: &Nest, p: &Problem, which: usize, brought: Brought, target: &Target) -> bool {
    // The cache gives whole sectors: where rows start with one, they take no more of them.
    let sector = target.gpu().sector_bytes * row_width(p.factors[which]) / ROW_BYTES;
    let own = if which == p.roles.left { p.roles.m } else { p.roles.n };
    let row = operand_of(body, nest, which).and_then(|access| {
        let last = access.plain(&[own, p.roles.k])?.into_iter().last()??;
        (last == brought.along()).then(|| access.shape.last().copied()).flatten()
    });
    matches!(brought, Brought::Boxes(_)) && row.is_some_and(|n| n.modulo(Dim::Static(sector)) != Dim::Static(0))
}

/// The operand that a factor is.
fn operand_of<'n>(body: &Body, nest: &'n Nest, which: usize) -> Option<&'n Access> {
    let (entry, value) = (body.op_ref(nest.op).entry(0)?, factor_of(body, nest, which)?);
    Some(&nest.inputs[body.block_args(entry).position(|a| a == value)?])
}

/// What the nest's region yields as a factor.
fn factor_of(body: &Body, nest: &Nest, which: usize) -> Option<Value> {
    Some(body.operand(body.last_op(body.op_ref(nest.op).entry(0)?)?, which))
}

fn elements(body: &Body, nest: &Nest, which: usize) -> Option<f64> {
    let shape = &operand_of(body, nest, which)?.shape;
    shape.iter().map(|d| d.as_static().map(|n| n as f64)).product()
}

/// How many rows of a factor's memory lie on one line, of so many elements.
fn rows_on_line(body: &Body, nest: &Nest, which: usize, width: i64) -> f64 {
    let row = operand_of(body, nest, which).and_then(|access| access.shape.last()?.as_static());
    row.map_or(1.0, |row| (width as f64 / row.max(1) as f64).max(1.0))
}

/// Operations of the nests that follow.
fn work_after(body: &Body, group: &Group) -> f64 {
    let entries = group.nests[1..].iter().filter_map(|n| body.op_ref(n.op).entry(0));
    entries.map(|entry| work_of_floats(body, body.ops(entry))).sum()
}

/// What the nests which follow read for each of the sums, other than of one another: values, and how.
fn reads_after<'n>(body: &Body, group: &'n Group, p: &Problem) -> impl Iterator<Item = (Value, &'n Access)> {
    let made = |v: Value| body.defining_op(v).is_some_and(|op| group.nests.iter().any(|n| n.op == op));
    let inputs = group.nests[1..].iter().flat_map(|nest| body.operands(nest.op).zip(&nest.inputs));
    let mut read = inputs
        .filter(|(v, access)| !made(*v) && access.mentions(p.roles.m) && access.mentions(p.roles.n))
        .collect::<Vec<_>>();
    let mut known = FxHashSet::default();
    read.retain(|(v, _)| known.insert(*v));
    read.into_iter()
}

/// Whether all of that may come to shared memory in boxes: some, of one type of 16 bits, with rows along n, beside a product whose producer gathers nothing.
fn come_in_boxes(body: &Body, group: &Group, p: &Problem, brought: &[Brought; 2]) -> bool {
    let mut reads = reads_after(body, group, p).peekable();
    let elem = reads.peek().map(|(v, _)| body.ty(*v).elem());
    let boxes = brought.iter().all(|b| matches!(b, Brought::Boxes(_)));
    let comes = |(v, access): (Value, &Access)| {
        let along = access.plain(&[p.roles.m, p.roles.n]);
        let last = along.and_then(|along| *along.last()?);
        let elem = body.ty(v).elem();
        last == Some(p.roles.n) && elem.byte_width() == Some(2) && boxes_fit(access, p.roles.n, elem)
    };
    boxes && elem.is_some() && reads.all(|read| Some(body.ty(read.0).elem()) == elem && comes(read))
}

/// Of tiles this wide beside one another, the part that start with a line.
fn aligned(tile: i64) -> f64 {
    (1i64 << tile.trailing_zeros()).min(WIDTH) as f64 / WIDTH as f64
}

/// Waves of tiles, each step of which takes as long as the matrix units or the copies from the second-level
/// cache, whichever is slower, then the epilogue; the first tile waits for memory. Parts of the sums are written and read again, mostly in
/// the second-level cache, by a kernel of their own. Of a tile that the programs of a cluster have in common, each copies a part, and waits for the others'.
/// Where warpgroups take turns, the epilogue of one runs beside the products of the other.
fn cost(p: &Problem, work: &Work, choice: Choice, held: i64, target: &Target) -> Cost {
    let Choice { tile: [bm, bn], stages, split, cluster, turns, ahead } = choice;
    let [above, beside] = cluster.map(|n| n as f64);
    let model = &target.gpu().warpgroups;
    let ([m, n, _], k) = (p.sizes, p.depth());
    let (rows, columns) = (bm as f64, bn as f64);
    let parts = split as f64;
    let clusters = (target.cores as f64 / (above * beside)).floor();
    let share = (m / rows / above).ceil() * (n / columns / beside).ceil() * p.batch * parts / clusters;
    let waves = (model.whole_waves * share.ceil() + (1.0 - model.whole_waves) * share).max(1.0);
    let width = row_width(p.factors[0]) as f64;
    let (row, bytes) = (ROW_BYTES as f64, ROW_BYTES as f64 / width);
    // Of a core in a microsecond: the units take as many bytes of wider factors.
    let flops = target.flops_mma * 2.0 / bytes * 1e6 / target.cores as f64;
    let cache = model.cache_rate * target.bandwidth * 1e3 / target.cores as f64; // bytes to a core in a microsecond
    let steps = p.steps(width, parts);
    let arithmetic = 2.0 * rows * columns * width / (model.rate * flops);
    let lines = |which: usize, tile: i64| if work.straddles[which] { 2.0 } else { 2.0 - aligned(tile) };
    let (left, right) = (p.roles.left, 1 - p.roles.left);
    let right_lines = lines(right, if work.across { bn } else { WIDTH });
    let asked = rows * lines(left, WIDTH) / beside + held as f64 * right_lines / above;
    // A core takes in what it copies; the cache gives whole lines, to all cores that are at work.
    let copied = (rows / beside + held as f64 / above).max(asked * share.min(1.0));
    let copies = copied * row / cache;
    // Shared memory takes in both tiles, and each warpgroup's products read its rows and all columns.
    let shared = (rows + held as f64 + (ROWS as f64 + columns) * rows / ROWS as f64) * row / (model.shared_rate * 1e3);
    let runs = rows * work.runs[left] + columns * work.runs[right];
    let gathers = if runs > 0.0 { model.gather_us + runs * model.gather_ns * 1e-3 } else { 0.0 };
    // Results leave through shared memory 64 columns at a time; of narrow tiles, each thread stores its own.
    let stores = if bn < WIDTH { 2.0 } else { (bn as f64 / WIDTH as f64).ceil() * WIDTH as f64 / columns };
    // Each thread has a column of so many times 64 rows.
    let own = rows / ROWS as f64 / choice.groups() as f64;
    let read_ns = if ahead { model.box_ns } else { model.read_ns };
    let each = work.after * model.after_ns + work.reads * read_ns;
    let epilogue = model.epilogue_us + stores * rows * columns * 4.0 / cache / 2.0 + each * columns * own * 1e-3;
    let read = |which: usize, size: f64| {
        work.elements[which].map_or(f64::INFINITY, |n| n * p.launches).min(size * k * p.batch)
    };
    let moved = read(left, m) + read(right, n) + m * n * p.batch;
    // What is on its way bounds the rate.
    let busy = share.min(1.0) * target.cores as f64;
    let way = (stages - 1) as f64 * (rows.min(m) + columns.min(n)) * row * busy / model.latency_us;
    let memory = moved * bytes / (model.memory_rate * target.bandwidth * 1e3).min(way);
    let step = Cost::longest([
        ("arithmetic", arithmetic),
        ("copies", copies),
        ("shared memory", shared),
        ("gathering", gathers),
        ("latency", model.step_us.max(model.tile_us / (stages - 1) as f64)),
    ]);
    let apart = if above * beside > 1.0 { model.cluster_us } else { 0.0 };
    // Threads add each step's sums.
    let adds = rows * columns * 2.0 / (target.flops_f32 * 1e6 / target.cores as f64);
    let products = steps * (step.us + apart + if p.exact_sums { adds } else { 0.0 });
    let products = if turns > 1 { products / model.turn_rate } else { products };
    let waves = match turns {
        1 => waves * (products + epilogue),
        _ => waves * products.max((products + epilogue) / turns as f64) + epilogue,
    };
    // Narrow rows of the right operand ask for one line one after the other, and so do boxes past its end; all tiles of rows at the same time.
    let past = if work.across { held as f64 / ((n / width).ceil() * width).min(held as f64) } else { 1.0 };
    let line = (m / rows / above).ceil() * (work.on_line * past - 1.0) * model.line_ns * 1e-3;
    let cost = Cost::longest([(step.bound, waves), ("memory", memory), ("one line", line)]);
    let shorter = waves + memory + line - cost.us;
    Cost { us: cost.us + model.beside * shorter + model.start_us + combining(p, split, target), ..cost }
}

/// Microseconds of the kernel that adds the parts of sums, if there are several.
pub fn combining(p: &Problem, parts: i64, target: &Target) -> f64 {
    let model = &target.gpu().warpgroups;
    let [m, n, _] = p.sizes;
    let moved = 8.0 * parts as f64 * m * n * p.batch;
    if parts == 1 { 0.0 } else { model.combine_us + moved / (model.combine_rate * target.bandwidth * 1e3) }
}
