//! Tiles of attention on a GPU, and the parts in which few programs go over many keys.

use super::super::tiles::pow2;
use super::super::warpgroup::WIDTH;
use rc_machine::{Target, Unit};

/// Shared memory for results on their way out, of each warpgroup, and for barriers.
const STORES: i64 = 16 << 10;
const BARRIERS: i64 = 2 << 10;
/// Registers of a thread for scores, weights and sums; the rest of 240 is for addresses and the like.
const REGISTERS: i64 = 190;
/// How much of a core's rate one computing warpgroup reaches, while none overlaps with its softmax.
const ALONE: f64 = 0.65;
/// Microseconds from a program's start to its first product, and after its last.
const START: f64 = 2.0;
/// Microseconds of a step along the keys at least: the scores, their softmax and the second product follow one another.
const STEP: f64 = 0.5;
/// Shared memory of a block that the machine keeps for itself.
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
    /// Whether a mask or a bias is read.
    pub masked: bool,
    pub warpgroups: bool,
}

pub struct Choice {
    /// Queries, keys, and the widths of keys and of values.
    pub tile: [i64; 4],
    pub threads: i64,
    pub unit: Unit,
    pub stages: Option<i64>,
    /// Programs among which the keys of a query are split.
    pub parts: i64,
    /// Programs that a core has at once.
    resident: i64,
    programs: i64,
    time: f64,
}

impl Choice {
    pub fn text(&self) -> String {
        let [rows, keys, ..] = self.tile;
        let parts = if self.parts > 1 { format!(", the keys in {} parts", self.parts) } else { String::new() };
        format!("{rows} queries and {keys} keys at a time, {} programs{parts}: {:.1} us", self.programs, self.time)
    }
}

impl Problem {
    /// The choice that takes the least time.
    pub fn best(&self, target: &Target) -> Choice {
        let all = self.candidates(target);
        all.into_iter().min_by(|a, b| a.time.total_cmp(&b.time)).expect("there is always one")
    }
    /// The next best, with its numbers.
    pub fn other(&self, best: &Choice, target: &Target) -> String {
        let differs = |c: &Choice| (c.tile, c.parts) != (best.tile, best.parts);
        let rest = self.candidates(target).into_iter().filter(differs);
        rest.min_by(|a, b| a.time.total_cmp(&b.time)).map_or("none fits".into(), |c| c.text())
    }

    fn candidates(&self, target: &Target) -> Vec<Choice> {
        let mut out = Vec::new();
        for mut choice in self.tiles(target) {
            for parts in (0..=5).map(|i| 1 << i) {
                let enough = parts == 1 || self.keys >= 2 * parts * choice.tile[1];
                if enough && !(parts > 1 && self.causal && self.queries > choice.tile[0]) {
                    choice.parts = parts;
                    choice.programs = self.programs * ceil(self.queries, choice.tile[0]) * parts;
                    choice.time = self.time(&choice, target);
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
            parts: 1,
            resident: 1,
            programs: 0,
            time: 0.0,
        };
        if self.warpgroups {
            // One warpgroup with its copying warp leaves room for a second program.
            let kinds = [(128, 1), (64, 2), (64, 1)];
            return kinds.iter().filter_map(|&(rows, resident)| self.warpgroup_tile(rows, resident, target)).collect();
        }
        let fits = |want: i64, size: i64| want.min(pow2(size)).max(16);
        let widths = self.widths.map(|w| pow2(w).max(if self.bytes == 2 { 16 } else { 1 }));
        if self.bytes == 2 {
            // Accumulators of 256 columns leave registers for few keys.
            let (rows, keys) = (fits(64, self.queries), fits(if widths[1] > 128 { 32 } else { 64 }, self.keys));
            return vec![choice([rows, keys, widths[0], widths[1]], (rows / 16 * 32).clamp(32, 128), Unit::Mma, None)];
        }
        vec![choice([fits(32, self.queries), fits(32, self.keys), widths[0], widths[1]], 128, Unit::Fma, None)]
    }

    fn warpgroup_tile(&self, rows: i64, resident: i64, target: &Target) -> Option<Choice> {
        let [depth, width] = self.widths.map(|w| ceil(w, 16) * 16);
        let lines = self.widths.map(|w| ceil(w, WIDTH) * WIDTH).iter().sum::<i64>() * 2;
        let queries = rows * ceil(depth, WIDTH) * WIDTH * 2;
        let room = if resident > 1 { (target.shared_bytes + OWN) / resident - OWN } else { target.shared_bytes };
        let left = room - BARRIERS - rows / 64 * STORES - queries;
        // Sums take half a register a column, scores and weights three quarters of one a key, and what a mask says a third.
        let each = if self.masked { 13 } else { 9 };
        let fits = |keys: &&i64| **keys * each / 12 + width / 2 <= REGISTERS && 2 * **keys * lines <= left;
        let keys = *[128, 112, 96, 80, 64, 48, 32, 16].iter().find(fits)?;
        let keys = keys.min(ceil(self.keys, 16) * 16);
        // Small blocks of keys are more steps than two programs make up for.
        if resident > 1 && (keys < 64.min(self.keys) || width > 128) {
            return None;
        }
        let stages = (left / (keys * lines)).clamp(2, 4);
        Some(Choice {
            tile: [rows, keys, depth, width],
            threads: 2 * rows,
            unit: Unit::Wgmma,
            stages: Some(stages),
            resident,
            parts: 1,
            programs: 0,
            time: 0.0,
        })
    }

    /// Microseconds: waves of programs, each step of which takes as long as its products or its copies, whichever is longer; then the
    /// parts are read again.
    fn time(&self, choice: &Choice, target: &Target) -> f64 {
        let [rows, keys, depth, width] = choice.tile;
        let cores = target.cores as f64;
        let rate = if choice.unit == Unit::Fma { target.flops_f32 } else { target.flops_mma * 0.7 };
        let alone = rows <= 64 && choice.unit == Unit::Wgmma;
        let rate = rate * 1e6 / cores * if alone && choice.resident == 1 { ALONE } else { 1.0 };
        let slots = cores * choice.resident as f64;
        let arithmetic = (2 * rows * keys * (depth + width)) as f64 / rate * choice.resident as f64;
        let waves = (choice.programs as f64 / slots).ceil();
        let busy = (choice.programs as f64).min(slots);
        // Programs of the same keys find them in the second-level cache.
        let shared = if self.queries > rows { 2.0 } else { 1.0 };
        let bytes = (keys * self.widths.iter().sum::<i64>() * self.bytes) as f64;
        // A core alone gets at most a few times its share of the memory's rate.
        let share = (1.0 / busy).min(2.0 / cores);
        let copies = bytes / (shared * target.bandwidth * 1e3 * share);
        let steps = ceil(ceil(self.keys, keys), choice.parts) as f64;
        let steps = if self.causal && self.queries > rows { steps / 2.0 } else { steps };
        let combine = match choice.parts {
            1 => 0.0,
            parts => {
                let bytes = 8 * parts * self.programs * self.queries * self.widths[1];
                target.launch_us + bytes as f64 / (target.bandwidth * 1e3)
            }
        };
        waves * (START + steps * arithmetic.max(copies).max(STEP)) + combine
    }
}

fn ceil(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}
