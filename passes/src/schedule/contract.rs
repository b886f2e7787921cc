//! Schedules of matrix products and their epilogues.

use super::access::{Access, Iter};
use super::attr::{Contract, Kind, Operand, Schedule};
use super::group::{Group, collapse};
use super::nest::{Nest, extent_of};
use super::roles::Roles;
use super::tiles::{pow2, storable};
use super::{Candidate, Cost, Plan, beside, contract_cpu, cores, direct, lanes_cpu, warpgroup};
use crate::work::is_function;
use rc_dialects::core::dot::{EXACT_SUMS, PRECISION};
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Body, Dim, Name, Type};
use rc_machine::{Target, Unit};

/// The element types of the yielded factors.
fn factor_types(body: &Body, nest: &Nest) -> [Type; 2] {
    let entry = body.op_ref(nest.op).entry(0).expect("a verified nest has a body");
    let yielded = body.last_op(entry).expect("a verified nest yields");
    [0, 1].map(|i| body.ty(body.operand(yielded, i)))
}

/// The type that matrix units multiply factors in: their own or, of f32 that may be, TF32.
pub fn multiplied(body: &Body, nest: &Nest, factors: [Type; 2]) -> Type {
    let rounds = body.op_ref(nest.op).str(PRECISION.name) == Some("tf32") && factors == [Type::f32(); 2];
    if rounds { Type::tf32() } else { factors[0] }
}

/// Bytes that a thread copies at once to shared memory.
const LARGEST_PIECE: f64 = 16.0;

/// The bytes of a piece of rows of this shape, as they begin at multiples of it.
fn piece(shape: &[Dim], elem: Type) -> f64 {
    let (ty, width) = (Type::memref(shape, elem, 0), elem.byte_width().unwrap_or(1) as i64);
    let fits = |&bytes: &i64| bytes > width && warpgroup::has_strides_of(ty, bytes / width);
    [16, 8, 4].into_iter().find(fits).unwrap_or(width) as f64
}

/// Whether a product's sums may not be rounded otherwise than f32's.
pub fn has_exact_sums(body: &Body, nest: &Nest) -> bool {
    body.op_ref(nest.op).bool(EXACT_SUMS.name)
}

pub struct Problem {
    pub roles: Roles,
    pub m: Iter,
    pub n: Iter,
    /// Extents, and the product of those of all other parallel iterators, in all launches that come together.
    pub sizes: [f64; 3],
    pub batch: f64,
    /// Of reduce iterators besides k, whose values are taken one by one: the product of their extents, and the greatest of them.
    pub outer: f64,
    pub longest_outer: f64,
    pub launches: f64,
    pub factors: [Type; 2],
    /// What matrix units multiply.
    pub multiplied: Type,
    /// Whether they may add only few products at a time.
    pub exact_sums: bool,
    pub acc: Type,
    /// Whether rows of the operands are copied in pieces of 16 bytes, and the bytes of a piece, at most so many.
    pub aligned: bool,
    pub piece: f64,
    /// Whether an operand's tiles are gathered.
    pub gathered: bool,
    /// Whether the larger operand's rows in memory are along the reduced iterator.
    pub along_k: bool,
    /// Bytes of an element of each factor as it lies in memory.
    pub bytes: [f64; 2],
    /// Whether the left and the right factor's rows in memory are.
    pub along_sums: [bool; 2],
    /// Elementary functions that each result goes through.
    pub functions: f64,
}

impl Problem {
    /// The factor with more rows.
    fn larger(&self) -> usize {
        if self.sizes[0] > self.sizes[1] { self.roles.left } else { 1 - self.roles.left }
    }
    /// Whether a factor lies in memory in fewer bits.
    fn is_widened(&self, which: usize) -> bool {
        self.bytes[which] < self.factors[which].byte_width().unwrap_or(4) as f64
    }
    fn widens(&self) -> bool {
        self.is_widened(0) || self.is_widened(1)
    }
    /// Whether matrix units take words that lie across the sums: threads read them from shared memory one by one.
    fn reads_words(&self) -> bool {
        self.multiplied == Type::tf32() && self.along_sums != [true; 2]
    }
    /// How many products each result is the sum of.
    pub fn depth(&self) -> f64 {
        self.sizes[2] * self.outer
    }
    /// Steps of `width` along k that each of so many parts takes.
    pub fn steps(&self, width: f64, parts: f64) -> f64 {
        ((self.sizes[2] / width).ceil() * self.outer / parts).ceil()
    }
}

/// `None` where the group is no product of two matrices.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Option<Plan> {
    let mut pairs = collapse(body, &mut group, &|_, _| true);
    if let Some((joined, rows)) = join_rows(body, &group).filter(|_| !target.is_cpu()) {
        pairs.extend(rows);
        group = joined;
    }
    let nest = &group.nests[0];
    let roles = Roles::of(body, nest)?;
    let (m, n) = (*nest.iter(roles.m)?, *nest.iter(roles.n)?);
    if m.extent == Dim::Static(1) || n.extent == Dim::Static(1) {
        return None; // A vector: reading the matrix is all the work.
    }
    let size = |name: Name| nest.iter(name).map_or(1.0, |i| extent_of(&nest.ranges, i.extent).max(1) as f64);
    let sizes = [size(roles.m), size(roles.n), size(roles.k)];
    let points: f64 = nest.iters.iter().map(|i| size(i.name)).product();
    let outer = || nest.of_kind(IterKind::Reduce).filter(|i| i.name != roles.k).map(|i| size(i.name));
    let factors = factor_types(body, nest);
    let acc = nest.acc.unwrap_or_else(|| rc_dialects::constraints::default_acc(factors[0]));
    let launches = beside::launches(body) as f64;
    let batch = points / sizes.iter().product::<f64>() / outer().product::<f64>() * launches;
    let mut problem = Problem {
        roles,
        m,
        n,
        sizes,
        batch,
        outer: outer().product(),
        longest_outer: outer().fold(1.0, f64::max),
        launches,
        factors,
        multiplied: multiplied(body, nest, factors),
        exact_sums: has_exact_sums(body, nest),
        acc,
        aligned: true,
        piece: LARGEST_PIECE,
        gathered: false,
        along_k: false,
        bytes: [0, 1].map(|which| bytes_in_memory(body, nest, which)),
        along_sums: [roles.is_contiguous(nest, roles.left, roles.k), roles.lies_along_k(nest, 1 - roles.left)],
        functions: functions(body, &group),
    };
    problem.along_k = is_along_k(body, nest, &problem);
    for factor in 0..2 {
        let runs = warpgroup::gathered_along(body, nest, &problem.roles, factor).is_some_and(|g| g.1 >= 4);
        problem.gathered |= runs && !is_plain(body, nest, &problem, factor);
    }
    let elem = |i: usize| body.ty(body.operand(nest.op, i)).elem();
    problem.piece = nest.inputs.iter().enumerate().map(|(i, a)| piece(&a.shape, elem(i))).fold(LARGEST_PIECE, f64::min);
    problem.aligned = problem.gathered || problem.piece == LARGEST_PIECE;
    let mut out = match target.is_cpu() {
        true => {
            contract_cpu::plan(body, &group, &problem, target).with(lanes_cpu::candidates(&group, &problem, target))
        }
        false => {
            let gather = warpgroup::gathered(&problem, &|factor| {
                let runs = warpgroup::gathered_along(body, nest, &problem.roles, factor);
                runs.is_some() && !is_plain(body, nest, &problem, factor)
            });
            let units = factors[0] == factors[1]
                && !problem.exact_sums
                && factors[0].is_float()
                && target.instruction(Unit::Mma, problem.multiplied, problem.acc).is_some();
            let mut all = if units { with_units(&group, &problem, &gather, target) } else { Vec::new() };
            if all.is_empty() {
                all = cores::candidates(&group, &problem, &gather, target);
            }
            all.extend(direct::candidates(&group, &problem, target));
            all.extend(warpgroup::candidates(body, &group, &problem, target).unwrap_or_default());
            all.sort_by(|a, b| us(a).total_cmp(&us(b)));
            let [m, n, k] = problem.sizes;
            let together = if launches > 1.0 { format!(", {launches} launches together") } else { String::new() };
            Plan::of_model(format!("{m} x {n} x {k}{together}: "), all, "no other tile fits")
        }
    };
    let grid: Vec<Name> = nest.of_kind(IterKind::Parallel).map(|i| i.name).collect();
    let tiled = [problem.roles.m, problem.roles.n];
    // Batch slowest; then down the rows before the next columns, so that the right operand stays in cache. On a CPU each core takes a part of the
    // programs: of more rows than columns so many rows, which it has in its own cache from the launch before. Where a table says which
    // matrix a product has, products after one another often have the same one, and the next has the same columns of it.
    let batch = grid.iter().copied().filter(|g| !tiled.contains(g));
    let rows_slowest = target.is_cpu() && problem.sizes[0] > problem.sizes[1];
    let grid: Vec<Name> = match nest.gathers.is_empty() {
        true if rows_slowest => batch.chain([roles.m, roles.n]).collect(),
        true => batch.chain([roles.n, roles.m]).collect(),
        false => [roles.n].into_iter().chain(batch).chain([roles.m]).collect(),
    };
    for candidate in &mut out.candidates {
        let schedule = &mut candidate.schedules[0];
        schedule.grid = grid.clone();
        schedule.collapse = pairs.clone();
        schedule.axes = tiled;
        if let Kind::Contract(own) = &mut schedule.kind {
            own.inner = Some(roles.k);
        }
        candidate.schedules = vec![candidate.schedules[0].clone(); group.nests.len()];
    }
    Some(out)
}

/// Elementary functions of floats that a group's nests after the first compute of each result.
fn functions(body: &Body, group: &Group) -> f64 {
    let entries = group.ops[1..].iter().filter_map(|&op| body.op_ref(op).entry(0));
    let computed = entries.flat_map(|entry| body.ops(entry)).map(|op| body.op_ref(op));
    computed.filter(|&op| is_function(op) && op.result_types()[0].elem().is_float()).count() as f64
}

/// A batch of products with fewer rows each than a tile has, whose left operands lie apart (the windows of an image, say), as one product: its rows are
/// gathered in runs. Gives the pairs of iterators that are one.
fn join_rows(body: &Body, group: &Group) -> Option<(Group, Vec<[Name; 2]>)> {
    let roles = Roles::of(body, &group.nests[0])?;
    let rows = group.nests[0].iter(roles.m)?.extent.as_static()?;
    let (mut joined, mut pairs) = (group.clone(), Vec::new());
    while let Some((pair, next)) = with_row_before(body, &joined).filter(|_| rows < warpgroup::WIDTH) {
        pairs.push(pair);
        joined = next;
    }
    let nest = &joined.nests[0];
    let roles = Roles::of(body, nest)?;
    let run = warpgroup::gathered_along(body, nest, &roles, roles.left)?;
    (run.1 >= 4 && !pairs.is_empty()).then_some((joined, pairs))
}

/// The group with the rows of products and the iterator before as one, where only the left operand and the results are along it.
fn with_row_before(body: &Body, group: &Group) -> Option<([Name; 2], Group)> {
    let nest = &group.nests[0];
    let row = Roles::of(body, nest)?.m;
    let at = nest.iters.iter().position(|i| i.name == row)?;
    let pair @ [outer, inner] = [nest.iters[at.checked_sub(1)?].name, row];
    if nest.inputs.iter().any(|a| a.mentions(outer) && !a.mentions(inner)) {
        return None;
    }
    let has = |n: &Nest| pair.iter().any(|&name| n.iter(name).is_some());
    let rest = group.nests[1..].iter().map(|n| if has(n) { n.collapsed(outer, inner) } else { Some(n.clone()) });
    let first = nest.along_results(outer, inner)?;
    let nests = [Some(first)].into_iter().chain(rest).collect::<Option<_>>()?;
    Some((pair, Group { nests, ..group.clone() }))
}

fn us(candidate: &Candidate) -> f64 {
    candidate.cost.map_or(f64::INFINITY, |cost| cost.us)
}

/// Whether a factor's tiles are boxes of an operand.
fn is_plain(body: &Body, nest: &Nest, p: &Problem, which: usize) -> bool {
    let own = if which == p.roles.left { p.roles.m } else { p.roles.n };
    factor(body, nest, which).is_none_or(|access| access.plain(&[own, p.roles.k]).is_some())
}

/// What a factor reads, where it is an operand itself.
fn factor<'a>(body: &Body, nest: &'a Nest, which: usize) -> Option<&'a Access> {
    let entry = body.op_ref(nest.op).entry(0)?;
    let value = body.last_op(entry).map(|end| body.operand(end, which));
    let operand = body.block_args(entry).position(|a| Some(a) == value);
    operand.map(|i| &nest.inputs[i])
}

fn is_along_k(body: &Body, nest: &Nest, p: &Problem) -> bool {
    stored(body, nest, p.larger()).is_some_and(|operand| nest.inputs[operand].innermost() == Some(p.roles.k))
}

/// The operand that a factor is, itself or converted.
fn stored(body: &Body, nest: &Nest, which: usize) -> Option<usize> {
    let entry = body.op_ref(nest.op).entry(0)?;
    let mut value = body.operand(body.last_op(entry)?, which);
    while let Some(op) = body.defining_op(value).filter(|&op| body.name(op) == op::core::CONVERT) {
        value = body.operand(op, 0);
    }
    body.block_args(entry).position(|a| a == value)
}

fn bytes_in_memory(body: &Body, nest: &Nest, which: usize) -> f64 {
    let ty = match stored(body, nest, which) {
        Some(operand) => body.ty(body.operand(nest.op, operand)).elem(),
        None => factor_types(body, nest)[which],
    };
    ty.byte_width().unwrap_or(4) as f64
}

/// The rows and columns of a tile, at most so many, whose results can be stored.
pub fn limit(group: &Group, p: &Problem, m: i64, n: i64, target: &Target) -> (i64, i64) {
    let outputs: Vec<_> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let n = storable(&outputs, &p.n, Some(p.roles.m), n, target);
    (storable(&outputs, &p.m, Some(p.roles.n), m, target), n)
}

/// Candidate tiles `[m, n, k]` on a GPU.
const TILES: &[[i64; 3]] = &[
    [128, 128, 32],
    [128, 64, 32],
    [64, 128, 32],
    [64, 64, 32],
    [32, 128, 32],
    [64, 32, 32],
    [32, 64, 32],
    [32, 32, 32],
    [16, 64, 32],
    [16, 32, 32],
    [16, 16, 32],
];

/// The same for few rows times a matrix whose rows lie along k: a step takes whole lines of these, be they of 16 bits or of 8.
const LINES: &[[i64; 3]] = &[[16, 128, 64], [16, 64, 64], [16, 64, 128], [16, 32, 128]];

/// Ways with `mma.sync`.
fn with_units(group: &Group, p: &Problem, gather: &[Operand], target: &Target) -> Vec<Candidate> {
    let mut tiles: Vec<[i64; 3]> = Vec::new();
    let few = p.aligned && p.along_k && p.sizes[0] <= 16.0;
    let line = |tile: &&[i64; 3]| few && tile[2] as f64 * p.bytes[p.larger()] <= target.gpu().products.line_bytes;
    for &[bm, bn, bk] in TILES.iter().chain(LINES.iter().filter(line)) {
        let (bm, bn) =
            limit(group, p, bm.min(pow2(p.sizes[0] as i64).max(16)), bn.min(pow2(p.sizes[1] as i64).max(16)), target);
        if bn >= 8 && bm >= 16 && !tiles.contains(&[bm, bn, bk]) {
            tiles.push([bm, bn, bk]);
        }
    }
    let splits = warpgroup::splits(group, p, 7, target);
    let threads = |tile| match () {
        // What is widened keeps more threads busy than its products do.
        () if p.widens() => vec![threads_of(tile, 64), threads_of(tile, 16)],
        // Parts of 64 x 64 results, of which a warp has one or two warps share one, read the fewest words.
        () if p.reads_words() => vec![threads_of(tile, 64).min(64).max(threads_of(tile, 128))],
        () => vec![threads_of(tile, 64)],
    };
    let ways =
        |(tile, split): ([i64; 3], i64)| threads(tile).into_iter().map(move |threads| Way { tile, threads, split });
    // Sums are cut where tiles would leave most cores without work, or without work enough what is widened, or waits for words.
    let busy = if p.widens() || p.reads_words() { 0.25 } else { 4.0 };
    let idle = |[bm, bn, _]: [i64; 3]| {
        let programs = (p.sizes[0] / bm as f64).ceil() * (p.sizes[1] / bn as f64).ceil() * p.batch;
        busy * programs <= target.cores as f64
    };
    let splits = |tile| splits.iter().filter(move |&&split| split == 1 || idle(tile)).map(move |&split| (tile, split));
    let ways = tiles.into_iter().flat_map(splits).flat_map(ways);
    ways.map(|way| way.candidate(p, Unit::Mma, gather, cost(p, &way, target), target)).collect()
}

/// How a GPU's program computes a tile of a product, without warpgroups.
pub struct Way {
    pub tile: [i64; 3],
    pub threads: i64,
    /// Parts of the sums.
    pub split: i64,
}

impl Way {
    pub fn candidate(&self, p: &Problem, unit: Unit, gather: &[Operand], cost: Cost, target: &Target) -> Candidate {
        let models = &target.gpu().products;
        let (with, stages) = match unit {
            Unit::Mma => ("tensor cores", models.mma_stages),
            _ => ("no tensor cores for these types", models.fma_stages),
        };
        let Way { tile, threads, split } = *self;
        let parts = Some(split).filter(|&parts| parts > 1);
        let gather = gather.to_vec();
        let own = Contract { unit: Some(unit), stages: Some(stages), gather, split: parts, ..Contract::default() };
        let mut s = Schedule::new(Kind::Contract(own));
        s.tile = [p.roles.m, p.roles.n, p.roles.k].into_iter().zip(tile).collect();
        s.threads = threads;
        let parts = if split > 1 { format!(", sums in {split} parts") } else { String::new() };
        let what = format!("tiles of {tile:?} ({with}), {threads} threads{parts}");
        Candidate { schedules: vec![s], what, cost: Some(cost) }
    }
}

/// What a product takes: programs one after the other on each core, each bound by arithmetic, by reading its operands from the second-level cache, or by its
/// steps. It waits for its first tile and then writes its results. Operands whose rows begin at no multiple of 16 bytes are copied in pieces, and a core's
/// programs copy theirs one after the other.
fn cost(p: &Problem, way: &Way, target: &Target) -> Cost {
    let Way { tile, threads, split: parts } = *way;
    let models = &target.gpu().products;
    let ([m, n, _], k) = (p.sizes, p.depth());
    let [bm, bn, bk] = tile.map(|size| size as f64);
    let resident = (target.registers / (models.registers * threads)).max(1) as f64;
    let programs = (m / bm).ceil() * (n / bn).ceil() * p.batch * parts as f64;
    let waves = (programs / target.cores as f64).ceil();
    let of_part = k / parts as f64;
    // A matrix unit reaches its rate only with tiles that reuse registers.
    let part = if p.aligned && target.has_warpgroups() { models.rate } else { 1.0 };
    // The unit takes as many bytes of wider factors.
    let width = p.factors[0].byte_width().unwrap_or(4) as f64;
    // Words are read again by each 64 x 64 results: larger tiles are no faster, smaller ones less slow.
    let (results, half) = match p.reads_words() {
        true => ((bm * bn).min(models.mma_half), models.mma_half / 2.0),
        false => (bm * bn, models.mma_half),
    };
    let rate = target.flops_mma * 2.0 / width * part * (results / (results + half));
    let arithmetic = 2.0 * bm * bn * of_part / (rate * 1e6 / target.cores as f64);
    let of_core = target.bandwidth * 1e3 / target.cores as f64; // bytes of memory in a microsecond
    let cache = (bm + bn) * of_part * width / (models.cache_rate * of_core);
    let [left, right] = [p.roles.left, 1 - p.roles.left].map(|which| p.bytes[which]);
    let memory = (m * k * left + k * n * right + m * n * width) * p.batch / (target.bandwidth * 1e3);
    // A step that takes a part of a line of each row comes back for the others.
    let parts_of_line =
        if p.aligned && p.along_k && bk < k { models.line_bytes / (bk * p.bytes[p.larger()]) } else { 1.0 };
    let memory = memory * models.half_lines.powf(parts_of_line.max(1.0).log2());
    // A step ends with a barrier, whatever it computes; others that a core runs meanwhile fill the time in part.
    let together = resident.min(waves);
    let step = match p.aligned {
        true => models.tile_us + models.tile_kb_us * (bm + bn) * bk * width / 1024.0,
        false => models.step_us,
    };
    let beside = together.sqrt();
    let beside = if parts > 1 { beside.max((programs / target.cores as f64).min(resident)) } else { beside };
    let pieces = if p.aligned { 0.0 } else { copying(p, way, together, target) };
    let widened = [(p.roles.left, bm), (1 - p.roles.left, bn)].into_iter().filter(|&(which, _)| p.is_widened(which));
    let widening = widened.map(|(_, rows)| rows * bk).sum::<f64>() / threads as f64 * models.widen_ns * 1e-3;
    let steps = p.steps(bk, parts as f64) * (step / beside + pieces + widening);
    let inside = Cost::longest([("arithmetic", arithmetic), ("copies", cache), ("latency", steps)]);
    let cost = Cost::longest([(inside.bound, waves * inside.us), ("memory", memory)]);
    let result = match p.aligned {
        true => width * slower_stores(p, width, target) / of_core,
        false => (models.result_ns + models.function_ns * p.functions) * 1e-3,
    };
    let ends = waves * bm * bn * result + (waves / together).ceil() * models.fill_us;
    Cost { us: cost.us + ends + warpgroup::combining(p, parts, target), ..cost }
}

/// Microseconds in which a core copies a step's operands in pieces. A warp keeps few of them in flight, so that one of a scheduler's own takes longer, unless
/// the core has other programs.
fn copying(p: &Problem, way: &Way, together: f64, target: &Target) -> f64 {
    let models = &target.gpu().products;
    let [bm, bn, bk] = way.tile.map(|size| size as f64);
    let pieces = (bm * p.bytes[p.roles.left] + bn * p.bytes[1 - p.roles.left]) * bk / p.piece;
    let idle = (4.0 / (way.threads as f64 / 32.0) - 1.0).max(0.0) / together;
    pieces * models.piece_ns * 1e-3 * (1.0 + models.piece_alone * idle)
}

/// How much longer it takes to store a result's rows where they begin at no multiple of 16 bytes: each element is stored by itself.
fn slower_stores(p: &Problem, width: f64, target: &Target) -> f64 {
    if p.sizes[1] * width % 16.0 == 0.0 { 1.0 } else { target.gpu().products.unaligned }
}

/// Threads for a tile: so many results for each, where they are enough for a warp and not too many.
pub fn threads_of([bm, bn, _]: [i64; 3], each: i64) -> i64 {
    pow2(bm * bn / each).clamp(32, 256)
}
