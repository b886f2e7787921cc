//! Schedules of attention's gradients: a program takes a block of queries (for q's) or of keys (for k's and v's) of one head and
//! walks over the others.

use super::access::Access;
use super::attention::gpu::{Read, Resources, Walk, ceil, in_sectors, of_mask};
use super::attention::{D, E, M, N, copied_by_boxes, iters, longest_first, on_warpgroups, parallel, walked_bytes};
use super::attr::{Attention, Kind, Schedule};
use super::nest::{extent_of, symbol_ranges};
use super::target::Target;
use super::tiles::pow2;
use super::warpgroup::WIDTH;
use super::{Candidate, Cost, Plan};
use rc_dialects::loop_::gradients_of;
use rc_ir::{Attr, Body, Op, Type, Value};
use rc_machine::Unit;

/// Tiles of rows in a block of a whole head's gradients: they hold as many keys as a number of steps does.
const HEAD_BLOCK: i64 = 8;

/// Rows of a tile and columns: their sums fill the registers.
fn cpu_tile(target: &Target) -> [i64; 2] {
    [if target.registers >= 32 { 12 } else { 6 }, 2 * target.lanes(Type::f32())]
}

/// Whether on a CPU a program has all gradients of a head: five products instead of seven, if heads keep the cores busy, the sums of q's gradient
/// stay in the cache and there are scores to fill tiles.
pub fn takes_heads(target: &Target, heads: i64, [queries, keys]: [i64; 2], widths: i64) -> bool {
    let turns = (heads + target.cores - 1) / target.cores;
    let tile = cpu_tile(target)[0];
    let cached = 4 * queries * widths <= target.cache_bytes;
    target.is_cpu() && turns * target.cores * 5 <= heads * 7 && cached && queries.min(keys) >= tile
}

/// `None` if the op does not have the six iterators b, h, m, n, d, e.
pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let ([b, h, m, n, d, e], extents) = iters(body, op)?;
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let size = |i: usize| extent_of(&ranges, extents[i]);
    let at = body.op_ref(op);
    let of = gradients_of(at);
    let of_queries = of[0] == "q";
    let (rows, row, inner, inner_size) = if of_queries { (m, size(M), n, size(N)) } else { (n, size(N), m, size(M)) };
    let programs = |block: i64| size(0) * size(1) * ((row + block - 1) / block);
    let (this, other) = if of_queries { ("queries", "keys") } else { ("keys", "queries") };
    let mut s = Schedule::new(Kind::Attention(Attention::default()));
    s.axes = [rows, inner];
    s.grid = vec![b, h, rows];
    if target.is_cpu() && of.len() == 3 {
        let [taken, step] = cpu_tile(target);
        let block = HEAD_BLOCK * taken;
        s.grid = vec![b, h];
        s.tile = vec![(m, taken), (n, step), (d, size(D)), (e, size(E))];
        s.kind = Kind::Attention(Attention { block: vec![(m, block), (n, block)], ..Attention::default() });
        let heads = size(0) * size(1);
        let why = format!("gradients of q, k, v: blocks of {block} x {block} scores, {heads} programs of a head each");
        return Some(Plan::of_rule(vec![s], why, "q's apart from k's and v's: seven products, not five".into()));
    }
    if target.is_cpu() {
        let [taken, step] = cpu_tile(target);
        let taken = row.clamp(1, taken);
        // Turning the others around pays for itself over many rows; a few programs for each core keep all busy.
        let mut block = taken * 16;
        while block > taken && programs(block) < 4 * target.cores {
            block = (block / 2 + taken - 1) / taken * taken;
        }
        s.tile = vec![(rows, taken), (inner, step), (d, size(D)), (e, size(E))];
        s.kind = Kind::Attention(Attention { block: vec![(rows, block)], ..Attention::default() });
        return Some(Plan::of_rule(
            vec![s],
            format!(
                "gradients of {}: {taken} {this} and {step} {other} at a time, {block} {this} for each of {} programs",
                of.join(", "),
                programs(block)
            ),
            format!("{} {this} at a time: more registers than the machine's {}", taken + 2, target.registers),
        ));
    }
    let problem = Problem {
        programs: size(0) * size(1),
        rows: row,
        others: inner_size,
        widths: [size(D), size(E)],
        of: of.iter().map(|&name| usize::from(name == "v")).collect(),
        half: at.operand_types()[0].elem().bit_width() == Some(16),
        causal: at.bool("causal"),
        masked: at.operands().len() > 6,
    };
    let mut choices = match fits_warpgroups(body, op, target) {
        true => problem.on_warpgroups(target),
        false => Vec::new(),
    };
    if choices.is_empty() {
        choices.push(problem.on_warps(target));
    }
    choices.sort_by(|a, b| a.cost.us.total_cmp(&b.cost.us));
    if problem.causal {
        let walked = if of_queries { [1, 2] } else { [0, 3] };
        let walked = walked_bytes(body, op, walked, problem.programs * inner_size * (size(D) + size(E)));
        s.grid = longest_first([b, h, rows], size(0), walked, target);
    }
    let candidate = |choice: Choice| {
        let [taken, step, depth, width] = choice.tile;
        let mut s = s.clone();
        s.tile = vec![(rows, taken), (inner, step), (d, depth), (e, width)];
        s.threads = choice.threads;
        let Choice { unit, stages, at_once, .. } = choice;
        s.kind = Kind::Attention(Attention { unit: Some(unit), stages, programs: at_once, ..Attention::default() });
        let all = programs(taken);
        let started =
            at_once.map_or(format!("{all} programs"), |at_once| format!("{at_once} programs for {all} blocks"));
        let what = format!("{taken} {this} and {step} {other} at a time, {started}");
        Candidate { schedules: vec![s], what, cost: Some(choice.cost) }
    };
    let candidates = choices.into_iter().map(candidate).collect();
    Some(Plan::of_model(format!("gradients of {}: ", of.join(", ")), candidates, "no other tile fits"))
}

/// Whether Hopper's copy engine can bring tiles of q, k, v and the result's gradient, and its warpgroups multiply them.
fn fits_warpgroups(body: &Body, op: Op, target: &Target) -> bool {
    let Some((names, extents)) = iters(body, op) else { return false };
    let all = parallel(names, extents);
    let mut ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    all.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
    let at = body.op_ref(op);
    let maps = at.attr("maps").and_then(|a| a.as_array()).unwrap_or_default();
    let fits = |((value, map), rows): ((Value, &Attr), [usize; 2])| {
        let access = map.as_shape().map(|map| Access::new(&body.ty(value).shape(), map).normalized(&ranges, &all));
        access.is_some_and(|access| copied_by_boxes(&access, &all, rows) && access.clips(&all[rows[0]]))
    };
    let operands = [[M, D], [N, D], [N, E], [M, E]];
    on_warpgroups(body, op, target, &all) && at.operands().zip(maps).zip(operands).all(fits)
}

/// The sizes that decide on a GPU.
struct Problem {
    /// Batches times heads.
    programs: i64,
    /// Queries or keys of which a program has a block, and what it walks over.
    rows: i64,
    others: i64,
    /// Of q and k, and of v.
    widths: [i64; 2],
    /// Which of the widths the gradients have.
    of: Vec<usize>,
    half: bool,
    causal: bool,
    masked: bool,
}

/// Others that are handled at once. With 96 or 128 none of 11 shapes took less time by more than 1 %.
const STEPS: &[i64] = &[64, 48, 32, 16];

struct Choice {
    /// Rows, others, and the widths of q and k and of v.
    tile: [i64; 4],
    threads: i64,
    unit: Unit,
    stages: Option<i64>,
    /// How many programs are started, where each handles one block of rows after another.
    at_once: Option<i64>,
    cost: Cost,
}

impl Problem {
    /// Columns of sums in registers, for each row.
    fn sums(&self) -> i64 {
        self.of.iter().map(|&i| ceil(self.widths[i], 16) * 16).sum()
    }
    /// Single warps, or scalars.
    fn on_warps(&self, target: &Target) -> Choice {
        let widths = self.widths.map(|n| ceil(n, 16) * 16);
        let fits = |want: i64, size: i64| want.min(pow2(size)).max(16);
        // The sums of 256 columns of one gradient leave few registers for the operands of another product.
        let limit = if self.sums() < 256 || self.of.len() == 2 { 32 } else { 16 };
        let [rows, step] = match self.half {
            true => [fits(64, self.rows), fits(if self.sums() <= 128 { 64 } else { limit }, self.others)],
            false => [fits(32, self.rows), fits(32, self.others)],
        };
        let unit = if self.half { Unit::Mma } else { Unit::Fma };
        let threads = if self.half { rows / 16 * 32 } else { 128 };
        let tile = [rows, step, widths[0], widths[1]];
        let cost = self.cost(tile, unit, 1, false, target);
        Choice { tile, threads, unit, stages: None, at_once: None, cost }
    }
    /// Blocks of one or two warpgroups.
    fn on_warpgroups(&self, target: &Target) -> Vec<Choice> {
        let steps = STEPS.iter().copied().filter(|&n| n < self.others + 16);
        let blocks = [(64, 2), (64, 1), (128, 1)];
        let all = blocks.into_iter().flat_map(|block| steps.clone().map(move |step| (block, step)));
        // Under a causal mask blocks are of unlike length: programs that are handed out as others end balance them.
        let ways: &[bool] = if !self.causal { &[false, true] } else { &[false] };
        let all = all.flat_map(|way| ways.iter().map(move |&on| (way, on)));
        all.filter_map(|(((rows, among), step), on)| self.warpgroup_tile([rows, step], on, among, target)).collect()
    }
    /// `on`: programs go on from block to block of rows.
    fn warpgroup_tile(&self, [rows, step]: [i64; 2], on: bool, among: i64, target: &Target) -> Option<Choice> {
        let [depth, width] = self.widths.map(|w| ceil(w, 16) * 16);
        let lines = self.widths.map(|w| ceil(w, WIDTH) * WIDTH).iter().sum::<i64>() * 2;
        // Of v's gradient alone, scores and weights; else the weights' gradients as well.
        let scores = if self.of == [1] { step * 3 / 4 } else { step * 5 / 4 + step / 4 * self.of.len() as i64 };
        let resources = Resources {
            rows,
            registers: self.sums() / 2 + scores,
            of_mask: if self.masked { of_mask(step) } else { 0 },
            own: rows * lines,
            stage: step * lines,
            steps: ceil(self.others, step).max(if on { 2 } else { 1 }),
        };
        let model = &target.gpu().gradients;
        let most = model.most_registers[resources.rows as usize / 128];
        let (stages, resident) = resources.stages(among, most, model, target)?;
        let tile = [rows, step, depth, width];
        let cost = self.cost(tile, Unit::Wgmma, resident, on, target);
        let at_once = on.then_some(target.cores * resident);
        let fits = at_once.is_none_or(|at_once| self.programs * ceil(self.rows, rows) > at_once);
        fits.then_some(Choice { tile, threads: 2 * rows, unit: Unit::Wgmma, stages: Some(stages), at_once, cost })
    }
    fn cost(&self, tile: [i64; 4], unit: Unit, resident: i64, block_after_block: bool, target: &Target) -> Cost {
        let [rows, step, depth, width] = tile;
        let steps = ceil(self.others, step) as f64;
        let scores = if self.of == [1] { depth } else { depth + width };
        let steps = if self.causal && self.rows > rows { (steps + rows as f64 / step as f64) / 2.0 } else { steps };
        let bytes = if self.half { 2 } else { 4 };
        let walk = Walk {
            programs: self.programs * ceil(self.rows, rows),
            block_after_block,
            resident,
            steps,
            longest: steps,
            rows,
            columns: step,
            widths: [scores, self.of.iter().map(|&i| [depth, width][i]).sum()],
            mask: if self.masked { Read::Direct } else { Read::Not },
            masked: self.masked,
            unit,
            bytes: step * (self.widths[0] + self.widths[1]) * bytes,
            aligned: in_sectors(self.widths, bytes, target),
            own_bytes: 0,
            shared: self.rows > rows,
            filled: false,
        };
        walk.cost(&target.gpu().gradients, target)
    }
}
