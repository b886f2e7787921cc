//! Tiles of attention on a GPU, and the parts in which few programs go over many keys.

use super::super::candidate::Cost;
use super::super::tiles::pow2;
use super::super::warpgroup::WIDTH;
use rc_machine::Attention;
use rc_machine::{Target, Unit};

/// Shared memory for results on their way out, of each warpgroup, and for barriers: what lower-kernel allocates, 64 rows of 128 elements of two bytes.
const STORES: i64 = 16 << 10;
const BARRIERS: i64 = 2 << 10;
/// Threads of a program with one computing warpgroup: a warp copies.
const ALONE: i64 = 160;
/// Rows of the smallest product, which a warp computes alone, and its threads.
const FEW: i64 = 16;
const WARP: i64 = 32;
/// Steps of a warp whose keys are in shared memory or on their way there, where it has room for so many.
const STAGES: i64 = 3;
/// The widest rows of keys and of values that a warp takes: of wider ones warpgroups take less time.
const WIDEST: i64 = 128;
/// Shared memory of a block that CUDA keeps for itself, on every architecture from sm_80 on.
const OWN: i64 = 1 << 10;

/// The sizes that decide.
pub struct Problem {
    /// Batches times heads of keys.
    pub programs: i64,
    pub queries: i64,
    pub keys: i64,
    /// Of keys and of values.
    pub widths: [i64; 2],
    /// Of an element.
    pub bytes: i64,
    pub causal: bool,
    pub mask: Mask,
    /// Whether there is a mask or a bias at all, which may be the same for all queries.
    pub masked: bool,
    pub warpgroups: bool,
}

/// What is added to each score, or hides it.
#[derive(Clone, Copy)]
pub struct Mask {
    pub read: Read,
    /// Bytes of an element.
    pub bytes: i64,
    /// Programs of the same queries and other heads that read the same.
    pub sharing: i64,
}

/// How a mask comes to the scores.
#[derive(Clone, Copy, PartialEq)]
pub enum Read {
    /// There is none, or it is the same for all queries.
    Not,
    /// Threads read what belongs to their scores.
    Direct,
    /// Boxes to shared memory, with the keys.
    Staged,
}

pub struct Choice {
    /// Queries, keys, and the widths of keys and of values.
    pub tile: [i64; 4],
    pub threads: i64,
    pub unit: Unit,
    pub stages: Option<i64>,
    /// How many programs are started, where each handles one block of queries after another.
    pub at_once: Option<i64>,
    /// Programs among which the keys of a query are split.
    pub parts: i64,
    /// Programs that a core has at once.
    resident: i64,
    /// Blocks of queries, times the parts of their keys.
    programs: i64,
    pub cost: Cost,
}

impl Choice {
    pub fn text(&self) -> String {
        let [rows, keys, ..] = self.tile;
        let parts = if self.parts > 1 { format!(", the keys in {} parts", self.parts) } else { String::new() };
        let programs = match self.at_once {
            Some(programs) => format!("{programs} programs for {} blocks", self.programs),
            None => format!("{} programs", self.programs),
        };
        format!("{rows} queries and {keys} keys at a time, {programs}{parts}")
    }
}

impl Problem {
    /// All choices, the one that takes the least time first.
    pub fn ranked(&self, target: &Target) -> Vec<Choice> {
        let mut all = self.candidates(target);
        all.sort_by(|a, b| a.cost.us.total_cmp(&b.cost.us));
        all
    }

    fn candidates(&self, target: &Target) -> Vec<Choice> {
        let mut out = Vec::new();
        for mut choice in self.tiles(target) {
            let blocks = self.programs * ceil(self.queries, choice.tile[0]);
            if choice.at_once.is_some_and(|at_once| blocks <= at_once) {
                continue;
            }
            for parts in (0..=5).map(|i| 1 << i) {
                let enough = parts == 1 || choice.at_once.is_none() && self.keys >= 2 * parts * choice.tile[1];
                if enough && !(parts > 1 && self.causal && self.queries > choice.tile[0]) {
                    choice.parts = parts;
                    choice.programs = blocks * parts;
                    choice.cost = self.cost(&choice, target);
                    out.push(Choice { ..choice });
                }
            }
        }
        out
    }

    /// The tiles that fit, with one or two warpgroups or without.
    fn tiles(&self, target: &Target) -> Vec<Choice> {
        let choice = |tile, threads, unit, stages| Choice {
            tile,
            threads,
            unit,
            stages,
            at_once: None,
            parts: 1,
            resident: 1,
            programs: 0,
            cost: Cost { us: 0.0, bound: "latency" },
        };
        if self.warpgroups {
            // One warpgroup leaves room for other programs, at least for a second; two take turns.
            let blocks = [128, 112, 96, 80, 64, 48, 32, 16];
            let blocks = blocks.into_iter().filter(|&keys| keys < self.keys + 16 && (keys > 16 || self.keys <= 16));
            let model = &target.gpu().attention;
            // Under a causal mask blocks are of unlike length: programs that are handed out as others end balance them.
            let on: &[bool] = if self.causal { &[false] } else { &[false, true] };
            let steps = blocks.flat_map(|keys| on.iter().map(move |&on| (keys, on)));
            let of = |(rows, among)| {
                let most = model.most_registers[rows as usize / 128];
                let tile = move |(keys, on)| self.warpgroup_tile([rows, keys], on, among, most, target);
                steps.clone().filter_map(tile)
            };
            // A third one where there are as many: a few queries wait for copies, and larger ones bring more at once.
            let many = self.programs * ceil(self.queries, 64) > 2 * target.cores;
            let ways = [(64, 3), (64, 2), (64, 1), (128, 1)].into_iter().skip(usize::from(!many));
            let mut out: Vec<Choice> = Vec::new();
            for choice in ways.flat_map(of) {
                // What fits among more programs is the same among fewer.
                let key = |choice: &Choice| (choice.tile, choice.stages, choice.at_once);
                let same = |other: &Choice| key(other) == key(&choice);
                if !out.iter().any(same) {
                    out.push(choice);
                }
            }
            out.extend(self.warp_tile(target));
            return out;
        }
        if let Some(few) = self.warp_tile(target) {
            return vec![few];
        }
        let fits = |want: i64, size: i64| want.min(pow2(size)).max(16);
        let widths = self.filled();
        if self.bytes == 2 {
            // Accumulators of 256 columns leave registers for few keys.
            let (rows, keys) = (fits(64, self.queries), fits(if widths[1] > 128 { 32 } else { 64 }, self.keys));
            return vec![choice([rows, keys, widths[0], widths[1]], (rows / 16 * 32).clamp(32, 128), Unit::Mma, None)];
        }
        vec![choice([fits(32, self.queries), fits(32, self.keys), widths[0], widths[1]], 128, Unit::Fma, None)]
    }

    /// A tile whose stages take a program's part of a multiprocessor's shared memory, of `among`, and whose sums, scores and weights `most`
    /// registers. `on`: programs go on from block to block of queries, so that what the next one reads is on its way while one is finished.
    fn warpgroup_tile(
        &self,
        [rows, keys]: [i64; 2],
        on: bool,
        among: i64,
        most: i64,
        target: &Target,
    ) -> Option<Choice> {
        let [depth, width] = self.widths.map(|w| ceil(w, 16) * 16);
        let fits = Resources {
            rows,
            // Sums take half a register a column, scores and weights three quarters of one a key.
            registers: keys * 3 / 4 + width / 2,
            of_mask: if self.mask.read == Read::Direct { of_mask(keys) } else { 0 },
            own: rows * ceil(depth, WIDTH) * WIDTH * 2,
            stage: keys * self.widths.map(|w| ceil(w, WIDTH) * WIDTH).iter().sum::<i64>() * 2
                + if self.mask.read == Read::Staged { rows * ceil(keys, WIDTH) * WIDTH * 2 } else { 0 },
            steps: ceil(self.keys, keys).max(if on { 2 } else { 1 }),
        };
        // What threads read of a mask is on its way meanwhile, a quarter of a register a key.
        if self.mask.read == Read::Direct
            && keys > 32
            && fits.registers + keys / 4 > target.gpu().attention.masked_registers
        {
            return None;
        }
        let (stages, resident) = fits.stages(among, most, &target.gpu().attention, target)?;
        Some(Choice {
            tile: [rows, keys, depth, width],
            threads: 2 * rows,
            unit: Unit::Wgmma,
            stages: Some(stages),
            at_once: on.then_some(target.cores * resident),
            resident,
            parts: 1,
            programs: 0,
            cost: Cost { us: 0.0, bound: "latency" },
        })
    }

    /// The tile of few queries for programs of one warp, as many at once as shared memory has room for: warpgroups would compute 64 rows for them. With 64 keys
    /// enough is on its way where a multiprocessor has two programs; where they wait for a mask, there are to be more of them.
    fn warp_tile(&self, target: &Target) -> Option<Choice> {
        let [depth, width] = self.filled();
        let fits = self.queries <= FEW && self.bytes == 2 && depth.max(width) <= WIDEST;
        let keys = if self.masked { 32 } else { 64 };
        let bytes = |stages: i64| (FEW * depth + stages * keys * (depth + width)) * self.bytes + OWN;
        let resident = |stages: i64| (target.shared_bytes + OWN) / bytes(stages);
        let stages = (1..=STAGES.min(ceil(self.keys, keys))).rev().find(|&stages| resident(stages) > 0)?;
        (fits && self.mask.read != Read::Staged).then_some(Choice {
            tile: [FEW, keys, depth, width],
            threads: WARP,
            unit: Unit::Mma,
            stages: Some(stages),
            at_once: None,
            resident: resident(stages),
            parts: 1,
            programs: 0,
            cost: Cost { us: 0.0, bound: "latency" },
        })
    }

    /// The widths of keys and values in tiles of products that warps compute.
    fn filled(&self) -> [i64; 2] {
        self.widths.map(|w| pow2(w).max(if self.bytes == 2 { FEW } else { 1 }))
    }

    /// How many steps programs take on the average, and the longest of them: under a causal mask a block of queries ends at its diagonal.
    fn steps(&self, choice: &Choice) -> [f64; 2] {
        let [rows, keys, ..] = choice.tile;
        let blocks = ceil(self.queries, rows).max(1);
        let seen = if self.causal { self.keys.min(blocks * rows) } else { self.keys };
        let longest = ceil(ceil(seen, keys), choice.parts) as f64;
        if !self.causal || blocks == 1 {
            return [longest, longest];
        }
        // Blocks that end before the last key, and those that see all.
        let before = blocks.min(self.keys / rows) as f64;
        let all = rows as f64 * before * (before + 1.0) / 2.0 + (blocks as f64 - before) * self.keys as f64;
        let average = all / (blocks * keys) as f64 + 0.5;
        [average.clamp(1.0, longest), longest]
    }

    fn cost(&self, choice: &Choice, target: &Target) -> Cost {
        let [rows, keys, depth, width] = choice.tile;
        let [steps, longest] = self.steps(choice);
        let walk = Walk {
            programs: choice.programs,
            block_after_block: choice.at_once.is_some(),
            resident: choice.resident,
            steps,
            longest,
            rows,
            columns: keys,
            widths: [depth, width],
            mask: self.mask.read,
            masked: self.masked,
            unit: choice.unit,
            bytes: keys * self.widths.iter().sum::<i64>() * self.bytes,
            aligned: in_sectors(self.widths, self.bytes, target),
            own_bytes: if self.mask.read == Read::Not { 0 } else { rows * keys * self.mask.bytes / self.mask.sharing },
            shared: self.queries > rows,
            filled: self.widths != [depth, width],
        };
        let combine = match choice.parts {
            1 => 0.0,
            parts => {
                let bytes = 8 * parts * self.programs * self.queries * self.widths[1];
                target.launch_us + bytes as f64 / (target.bandwidth * 1e3)
            }
        };
        let cost = walk.cost(&target.gpu().attention, target);
        Cost { us: cost.us + combine, ..cost }
    }
}

/// Programs that walk over blocks of keys or of queries.
pub struct Walk {
    pub programs: i64,
    /// Whether those that a core has at once do the work of all.
    pub block_after_block: bool,
    /// Programs that a core has at once.
    pub resident: i64,
    /// Of a program on the average, and of the longest, which begins first.
    pub steps: f64,
    pub longest: f64,
    /// Of a step's scores.
    pub rows: i64,
    pub columns: i64,
    /// Depths of the products that give scores, and columns of those that add to sums, all together.
    pub widths: [i64; 2],
    pub mask: Read,
    /// Whether there is one, which may be the same for all rows.
    pub masked: bool,
    pub unit: Unit,
    /// What a step brings, besides what is for this program alone.
    pub bytes: i64,
    pub own_bytes: i64,
    /// Whether its rows begin where sectors do.
    pub aligned: bool,
    /// Whether other programs bring the same.
    pub shared: bool,
    /// Whether its rows are narrower than the tile's.
    pub filled: bool,
}

impl Walk {
    /// Waves of programs and their steps. A step takes a program the scores' latency, the products and the softmax between
    /// them, one after the other; several programs, or two warpgroups, overlap until the multiprocessor's units are busy, or the copies
    /// take longer.
    pub fn cost(&self, model: &Attention, target: &Target) -> Cost {
        let cores = target.cores as f64;
        let rate = if self.unit == Unit::Fma { target.flops_f32 } else { target.flops_mma };
        // Few columns, and the rows that both operands of a product have in shared memory are what is waited for.
        let narrow = ((1.0 + model.narrow / self.columns as f64) / 2.0).max(1.0);
        let widths = self.widths[0] as f64 * narrow + self.widths[1] as f64;
        let products = (2 * self.rows * self.columns) as f64 * widths * cores / (model.rate * rate * 1e6);
        let each = model.score_ps
            + match self.mask {
                Read::Not => 0.0,
                Read::Direct => model.mask_ps,
                Read::Staged => model.staged_ps,
            };
        let softmax = self.rows as f64 * (self.columns as f64 * each + self.widths[1] as f64 * model.sum_ps) * 1e-6;
        let warpgroups = if self.unit == Unit::Wgmma { (self.rows / 64).max(1) as f64 } else { 1.0 };
        let warp = self.unit == Unit::Mma && self.rows == FEW;
        let alone = if warp { model.warp } else { 1.0 / warpgroups };
        // It waits for what it reads of a mask, though a step ahead.
        let waits = if warp && self.masked { target.gpu().load_us } else { 0.0 };
        let chain = model.step_us + (model.alone * products + softmax) * alone + waits;
        let units = products.max(softmax).max(model.overlap * (products + softmax));

        let slots = cores * self.resident as f64;
        let share = self.programs as f64 / slots;
        let whole = |share: f64| model.whole_waves * share.ceil() + (1.0 - model.whole_waves) * share;
        // Where the longest begin first, the last wave is of short ones.
        let waves = if self.longest > self.steps { share } else { whole(share) }.max(1.0);
        let busy = (self.programs as f64).min(slots);
        // Programs of the same keys find them in the second-level cache; keys of one program alone come from memory.
        let [boxes, threads, filled] = model.memory;
        let shared = match self.unit {
            _ if self.shared => 2.0,
            Unit::Wgmma => 1.0 / boxes,
            _ if self.filled => 1.0 / filled,
            _ => 1.0 / threads,
        };
        let longer = if self.aligned || self.unit != Unit::Wgmma { 1.0 } else { model.unaligned };
        // A core alone gets at most a few times its share of the memory's rate.
        let copies = (longer * self.bytes as f64 / shared + self.own_bytes as f64)
            / (target.bandwidth * 1e3 * (1.0 / busy).min(2.0 / cores));
        // Some cores have one program more than others.
        let units = units * whole(busy / cores).max(1.0);
        let step = Cost::longest([("latency", chain), ("arithmetic", units), ("copies", copies)]);
        // A warp computes its last step when all copies have come.
        let last = if warp { chain } else { 0.0 };
        let us = match self.block_after_block {
            true => model.start_us + waves * (model.block_us + self.steps * step.us),
            false => waves * (model.start_us + self.steps * step.us + last),
        };
        Cost { us: us.max(model.start_us + self.longest * step.us), ..step }
    }
}

/// What a program of warpgroups takes.
pub struct Resources {
    /// 64 for each warpgroup.
    pub rows: i64,
    /// Of a thread, for sums, scores and weights.
    pub registers: i64,
    /// And for a mask that threads read.
    pub of_mask: i64,
    /// Bytes of shared memory for what is loaded once, and for a stage.
    pub own: i64,
    pub stage: i64,
    /// Of the longest walk.
    pub steps: i64,
}

impl Resources {
    /// Stages that fill a program's part of a multiprocessor's shared memory, of `among`, and how many programs there are at once; none where
    /// the program takes more than `most` registers.
    pub fn stages(&self, among: i64, most: i64, model: &Attention, target: &Target) -> Option<(i64, i64)> {
        let fixed = BARRIERS + self.rows / 64 * STORES + self.own;
        let part = |n: i64| (target.shared_bytes + OWN) / n - OWN;
        let stages = ((part(among) - fixed) / self.stage).min(4).min(self.steps);
        let bytes = fixed + stages * self.stage;
        // Warps get them in units of eight for each thread.
        let registers = ceil(self.registers + self.of_mask + model.registers, 8) * 8;
        let beside =
            |n: i64| n == 1 || self.rows == 64 && bytes <= part(n) && registers * ALONE * n <= target.registers;
        let resident = (1..=4).rev().find(|&n| beside(n))?;
        (stages >= self.steps.min(2) && self.registers <= most && resident >= among).then_some((stages, resident))
    }
}

/// Registers of a thread that a mask of so many columns takes beside the model's: with 64 columns three programs share a multiprocessor, with 80 two.
pub fn of_mask(columns: i64) -> i64 {
    columns / 8
}

/// Whether rows of these widths, one after the other, all begin where a sector does.
pub fn in_sectors(widths: [i64; 2], bytes: i64, target: &Target) -> bool {
    widths.iter().all(|width| width * bytes % target.gpu().sector_bytes == 0)
}

pub fn ceil(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}
