//! Matrix products of types that a GPU's matrix units do not take: multiply-adds of threads.

use super::attr::Operand;
use super::contract::{Problem, Way, limit, threads_of};
use super::group::Group;
use super::tiles::pow2;
use super::{Candidate, Cost, warpgroup};
use rc_machine::{Products, Target, Unit};

/// Rows and columns of candidate tiles; the last two for products that have no more.
const SIDES: &[i64] = &[128, 64, 32, 16, 8, 4];

/// Results of a tile, at least: four for each thread of a warp.
const LEAST: i64 = 128;
/// Elements of the sums that a step takes, and results that a thread computes.
const STEPS: &[i64] = &[16, 32];
const EACH: &[i64] = &[64, 32, 16, 8];

pub fn candidates(group: &Group, p: &Problem, gather: &[Operand], target: &Target) -> Vec<Candidate> {
    let mut tiles: Vec<[i64; 2]> = Vec::new();
    for bm in sides(p.sizes[0], p.sizes[1]) {
        for bn in sides(p.sizes[1], p.sizes[0]) {
            let (bm, bn) = limit(group, p, bm, bn, target);
            let enough = bm * bn >= LEAST || tiles.is_empty();
            if enough && !tiles.contains(&[bm, bn]) {
                tiles.push([bm, bn]);
            }
        }
    }
    let splits = warpgroup::splits(group, p, 9, target);
    let mut ways = Vec::new();
    for [bm, bn] in tiles {
        for &bk in STEPS {
            let tile = [bm, bn, bk];
            for threads in counts(tile) {
                ways.extend(splits.iter().map(|&split| Way { tile, threads, split }));
            }
        }
    }
    ways.iter().map(|way| way.candidate(p, Unit::Fma, gather, cost(p, way, target), target)).collect()
}

/// Elements of a tile along a dimension of `size` elements, where the other has `other`: a warp has results for all of its threads.
fn sides(size: f64, other: f64) -> impl Iterator<Item = i64> {
    let least = if other > 16.0 { 4 } else { 16 };
    let most = pow2(size as i64).max(least);
    SIDES.iter().copied().filter(move |&side| side <= most && (side >= 16 || side == most))
}

/// Numbers of threads for a tile.
fn counts(tile: [i64; 3]) -> Vec<i64> {
    let mut all: Vec<i64> = EACH.iter().map(|&each| threads_of(tile, each)).collect();
    all.dedup();
    all
}

/// What a product takes: the instructions of all warps of a core, or the steps of one program after the other, or memory.
fn cost(p: &Problem, way: &Way, target: &Target) -> Cost {
    let models = &target.gpu().products;
    let cores = target.cores as f64;
    let Way { tile, threads, split } = *way;
    let ([m, n, _], k) = (p.sizes, p.depth());
    let [bm, bn, bk] = tile.map(|size| size as f64);
    let (threads, split) = (threads as f64, split as f64);
    let width = p.factors[0].byte_width().unwrap_or(4) as f64;
    let programs = (m / bm).ceil() * (n / bn).ceil() * p.batch * split;
    let of_core = (programs / cores).ceil();
    let each = bm * bn / threads;
    let resident = resident(way, each, width, target);
    let steps = p.steps(bk, split);
    // Microseconds of a cycle, in which a core takes an instruction of each of four warps.
    let cycle = 256.0 * cores / (target.flops_f32 * 1e6);
    let step = (bk / 4.0 * (each + models.fma_read * reads(p, way, each, models)) + models.fma_step) * cycle;
    let warps = (of_core * threads / 128.0).ceil();
    let alone = 1.0 + models.fma_alone / warps.min((resident * threads / 128.0).max(1.0));
    let arithmetic = 4.0 * warps * steps * step * alone;
    let wait = if p.gathered { models.gather_us } else { models.fma_us };
    let chain = bk * (each + 2.0) * cycle * (threads / 128.0).max(1.0);
    let latency = (of_core / resident).ceil() * (steps * (chain + wait) + models.fill_us);
    let halves = p.along_k && bk * width < models.line_bytes && bk < k;
    let again = if halves { models.half_lines } else { 1.0 };
    let memory = (m * k + k * n + m * n) * p.batch * width * again / (target.bandwidth * 1e3);
    let cache = (bm + bn) * k / split * width * programs / (models.cache_rate * target.bandwidth * 1e3);
    let all = [("arithmetic", arithmetic), ("latency", latency), ("memory", memory), ("copies", cache)];
    let cost = Cost::longest(all);
    // What happens beside is not hidden altogether.
    let others = all.iter().map(|part| part.1).sum::<f64>() - cost.us;
    let ends = models.fill_us + warpgroup::combining(p, way.split, target);
    Cost { us: cost.us + models.fma_beside * others + ends, ..cost }
}

/// Programs that a core runs together.
fn resident(way: &Way, each: f64, width: f64, target: &Target) -> f64 {
    let models = &target.gpu().products;
    let [bm, bn, bk] = way.tile.map(|size| size as f64);
    let registers = way.threads as f64 * (models.fma_registers + each);
    let shared = models.fma_stages as f64 * (bm + bn) * bk * width;
    let of_registers = target.registers as f64 / registers;
    of_registers.min(target.shared_bytes as f64 / shared).floor().max(1.0)
}

/// Reads of shared memory for four elements of the sums: a thread has four neighbours in each of its rows, and reads a factor's four elements along
/// the sums together, where these lie so.
fn reads(p: &Problem, way: &Way, each: f64, models: &Products) -> f64 {
    let [bm, bn, bk] = way.tile.map(|size| size as f64);
    let across = (bn / 4.0).min(way.threads as f64);
    let rows = (bm / (way.threads as f64 / across)).max(1.0);
    let [left, right] = p.along_sums;
    // Threads side by side read four rows of the right factor apart, which fall into the same banks.
    let threads = (across * 16.0 / bk).clamp(1.0, 4.0);
    let conflicts = if right { 1.0 + models.fma_conflict * (threads - 1.0) } else { 1.0 };
    // Four neighbouring rows are read together where they lie so.
    let left = if left { rows } else { rows.max(4.0) };
    left + 4.0 * (each / rows / 4.0).max(1.0) * conflicts
}
