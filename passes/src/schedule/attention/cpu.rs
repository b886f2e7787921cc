//! Tiles of attention on a CPU, by a model of a core's cycles.
//!
//! A program takes a block of queries of one head. Keys are turned around once for all of its queries; few queries read them as they
//! lie. See `lower_kernel/attention_cpu.rs`, which has the same steps.

use super::super::candidate::Cost;
use super::super::target::Target;
use super::gpu::ceil;
use rc_ir::Type;

/// The most queries of a tile that read the keys where they lie.
pub const FEW: i64 = 4;

/// Tiles of queries that a program takes, where all cores are busy.
const TILES: i64 = 16;

/// Attention as its schedule sees it: sizes of symbols are guesses.
pub struct Problem {
    /// Of all batches.
    pub heads: i64,
    pub queries: i64,
    pub keys: i64,
    pub widths: [i64; 2],
    pub causal: bool,
}

pub struct Choice {
    /// Of a tile.
    pub rows: i64,
    pub keys: i64,
    /// Queries of a program.
    pub block: i64,
    pub cost: Cost,
}

impl Choice {
    pub fn text(&self, problem: &Problem) -> String {
        let Choice { rows, keys, block, .. } = self;
        let programs = problem.heads * ceil(problem.queries, *block);
        format!(
            "{rows} queries and {keys} keys at a time, {block} queries for each of {programs} programs; scores never leave the core"
        )
    }
}

/// Whether a tile of queries reads the keys where they lie: its sums are vectors along the head.
pub fn reads_keys_in_place(rows: i64, depth: i64, lanes: i64) -> bool {
    rows * lanes <= depth && rows <= FEW
}

impl Problem {
    /// All tiles whose scores fit in the registers, the fastest first.
    pub fn ranked(&self, target: &Target) -> Vec<Choice> {
        let (lanes, most) = (target.lanes(Type::f32()), self.queries.clamp(1, 12));
        let mut out = Vec::new();
        for rows in (1..=most).filter(|rows| *rows == most || [1, 2, 3, 4, 6, 8, 12].contains(rows)) {
            for vectors in [1, 2, 4, 8] {
                // Sums, the keys that all queries are multiplied with, and a query's element; one tile more than there are keys is waste.
                if (rows + 1) * vectors + 1 > target.registers || vectors > 1 && (vectors / 2) * lanes >= self.keys {
                    continue;
                }
                let (keys, block) = (vectors * lanes, self.block(rows, target));
                out.push(Choice { rows, keys, block, cost: self.cost([rows, vectors], block, target) });
            }
        }
        out.sort_by(|a, b| a.cost.us.total_cmp(&b.cost.us));
        out
    }

    /// Turning the keys around pays for itself over many queries; a few programs for each core keep all busy.
    fn block(&self, rows: i64, target: &Target) -> i64 {
        let mut block = rows * TILES;
        while block > rows && self.heads * ceil(self.queries, block) < 4 * target.cores {
            block = ceil(block / 2, rows) * rows;
        }
        block
    }

    /// Cycles of all steps, shared by the cores.
    fn cost(&self, [rows, vectors]: [i64; 2], block: i64, target: &Target) -> Cost {
        let (model, lanes) = (&target.cpu().attention, target.lanes(Type::f32()));
        let [depth, width] = self.widths.map(|n| ceil(n, lanes) as f64);
        let in_place = reads_keys_in_place(rows, self.widths[0], lanes);
        let [steps, seen, turned] = self.walk([rows, vectors * lanes], block);
        let [rows, vectors, steps, seen, turned] = [rows, vectors, steps, seen, turned].map(|n| n as f64);
        let latency = target.cpu().products.latency;
        // Two multiply-adds and two loads a cycle, and a sum waits for its last product.
        let step = |rows: f64, vectors: f64| (rows * vectors / 2.0).max((rows + vectors) / 2.0).max(latency);
        let scores = match in_place {
            true => seen * rows * (depth * 0.75 + model.lanes / lanes as f64),
            false => steps * depth * lanes as f64 * step(rows, vectors) + turned * vectors * depth * model.square,
        };
        // The results of a query come in parts as wide as the keys of a tile.
        let rest = width % vectors;
        let last = if rest > 0.0 { step(rows, rest) } else { 0.0 };
        let sums = seen * ((width / vectors).floor() * step(rows, vectors) + last);
        // A tile of keys and values that the first-level cache does not hold comes from the second for each tile of queries.
        let vector = target.vector_bits as f64 / 8.0;
        let read = seen * (width + depth * if in_place { rows } else { 1.0 }) * vector;
        let near = match vectors * lanes as f64 * (depth + width) * vector > target.shared_bytes as f64 {
            true => read / target.cpu().dots.near_rate,
            false => 0.0,
        };
        let softmax = steps * rows * (vectors * model.softmax + width * model.total);
        let cycles = scores + sums + near + softmax + steps * model.step;
        let heads = (self.heads as f64 / target.cores as f64).max(1.0 / ceil(self.queries, block).max(1) as f64);
        let rate = target.flops_f32 * 1e6 / target.cores as f64 / (4 * lanes) as f64;
        Cost { us: cycles * heads / rate, bound: "arithmetic" }
    }

    /// Of a head: tiles of scores, keys that tiles of queries see, and tiles of keys that programs see.
    fn walk(&self, [rows, keys]: [i64; 2], block: i64) -> [i64; 3] {
        let [mut steps, mut seen, mut turned] = [0; 3];
        for start in (0..self.queries).step_by(block as usize) {
            let end = self.queries.min(start + block);
            turned += ceil(self.visible(end), keys);
            for row in (start..end).step_by(rows as usize) {
                let visible = self.visible(row + rows);
                steps += ceil(visible, keys);
                seen += visible;
            }
        }
        [steps, seen, turned]
    }

    /// Keys that one of the first queries sees.
    fn visible(&self, queries: i64) -> i64 {
        if self.causal { self.keys.min(queries) } else { self.keys }
    }
}
