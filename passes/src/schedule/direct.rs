//! Few rows times a matrix whose rows lie along the sums, on a GPU: reading the matrix is all the work. Warps of a program divide the sums and bring
//! what they multiply from memory straight to their registers; no tile waits in shared memory.

use super::attr::{Contract, Kind, Schedule};
use super::contract::{Problem, limit};
use super::group::Group;
use super::{Candidate, Cost};
use crate::lower_tiles::layout::WARP;
use rc_ir::Type;
use rc_machine::{Target, Unit};

/// Neighbours along the sums that a lane has of an operand in registers: with those of the three lanes that share its row a line of 128 bytes.
pub const PART: i64 = 16;

/// Those of a warp.
pub const PART_ROW: i64 = 4 * PART;

/// Rows of a program, which are all there are: every few columns read them again.
const ROWS: i64 = 16;

/// Columns of a program, and how many times [`PART_ROW`] elements of each a warp takes in a step, where nothing speaks against it.
const COLUMNS: i64 = 16;
const DEEP: i64 = 2;

/// Warps of a core that have enough of the matrix on its way together.
const ENOUGH: f64 = 11.0;

/// The part by which a way is slower whose columns, warps or depth are twice or half the usual: 12 products of 2 to 16 rows.
const UNUSUAL: f64 = 0.02;

/// Registers of a thread that are neither operands nor sums, and at most of all.
const OTHERS: i64 = 40;
const MOST: i64 = 168;

/// A program's tile.
struct Way {
    columns: i64,
    warps: i64,
    deep: i64,
}

/// Ways with `mma` and `parts`; none where the operands do not lie so.
pub fn candidates(group: &Group, p: &Problem, target: &Target) -> Vec<Candidate> {
    if !is_direct(p, target) {
        return Vec::new();
    }
    let usual = Way::usual(p, target);
    let with_warps = |columns| [4, 8, 16].map(|warps| (columns, warps));
    let tiles = [8, 16, 32].into_iter().flat_map(with_warps);
    let ways = tiles.flat_map(|(columns, warps)| [1, 2, 4].map(|deep| Way { columns, warps, deep }));
    let stores = |way: &Way| limit(group, p, ROWS, way.columns, target) == (ROWS, way.columns);
    let fit = ways.filter(|way| way.fits(p, target) && stores(way));
    fit.map(|way| way.candidate(p, way.cost(p, &usual, target))).collect()
}

/// Whether there are few rows, and memory has both operands as lanes take them.
fn is_direct(p: &Problem, target: &Target) -> bool {
    let [left, right] = p.factors;
    let half = left == right && (left == Type::bf16() || left == Type::f16());
    let multiplies = half && !p.exact_sums && target.instruction(Unit::Mma, p.multiplied, p.acc).is_some();
    let lies_so = p.aligned && !p.gathered && p.along_sums == [true; 2] && p.outer == 1.0;
    multiplies && lies_so && p.sizes[0] <= ROWS as f64
}

impl Way {
    /// The fewest warps that keep the cores busy, in steps no longer than the sums are.
    fn usual(p: &Problem, target: &Target) -> Way {
        let lines = p.sizes[2] as i64 / PART_ROW;
        let wanted = ENOUGH * target.cores as f64 / (p.batch * (p.sizes[1] / COLUMNS as f64).ceil());
        let fewer = [4, 8].into_iter().find(|&warps| warps as f64 >= wanted || 2 * warps > lines);
        let warps = fewer.unwrap_or(16);
        Way { columns: COLUMNS, warps, deep: if warps * DEEP <= lines { DEEP } else { 1 } }
    }
    /// Elements of the sums in a step.
    fn step(&self) -> i64 {
        self.warps * self.deep * PART_ROW
    }
    fn threads(&self) -> i64 {
        WARP * self.warps
    }
    /// Registers of a thread: for what it loads in a step, for sums and for places.
    fn registers(&self) -> i64 {
        PART / 2 * (self.columns + ROWS) / 8 * self.deep + ROWS * self.columns / WARP + OTHERS
    }
    fn fits(&self, p: &Problem, target: &Target) -> bool {
        let registers = self.registers();
        registers <= MOST && self.threads() * registers <= target.registers && self.step() < 2 * p.sizes[2] as i64
    }
    fn candidate(&self, p: &Problem, cost: Cost) -> Candidate {
        let own = Contract { unit: Some(Unit::Mma), parts: Some(self.warps), ..Contract::default() };
        let mut s = Schedule::new(Kind::Contract(own));
        let tile = [ROWS, self.columns, self.step()];
        s.tile = [p.roles.m, p.roles.n, p.roles.k].into_iter().zip(tile).collect();
        s.threads = self.threads();
        let what = format!("tiles of {tile:?} in registers, sums among {} warps", self.warps);
        Candidate { schedules: vec![s], what, cost: Some(cost) }
    }
    /// What memory takes, or the cores for the columns of their programs and the rows that each of these reads again. Programs that others have to end for wait
    /// for memory, and then for one another's sums, anew.
    fn cost(&self, p: &Problem, usual: &Way, target: &Target) -> Cost {
        let ([m, n, k], models) = (p.sizes, &target.gpu().products);
        let [left, right] = [p.roles.left, 1 - p.roles.left].map(|which| p.bytes[which]);
        let memory = (m * k * left + k * n * right) * p.batch / (target.bandwidth * 1e3);
        let of_core = target.bandwidth * 1e3 / target.cores as f64;
        let programs = (n / self.columns as f64).ceil() * p.batch;
        let of_program = (self.columns as f64 * right + (m / 8.0).ceil() * 8.0 * left) * k;
        let reads = programs / target.cores as f64 * of_program / (models.direct_rate * of_core);
        let resident = target.registers / (self.threads() * self.registers());
        let later = (programs / (target.cores * resident) as f64).ceil() - 1.0;
        let waits = models.fill_us + later * 2.0 * target.gpu().load_us;
        let cost = Cost::longest([("memory", memory), ("reads", reads)]);
        Cost { us: waits + cost.us * (1.0 + UNUSUAL * self.steps_from(usual)), ..cost }
    }
    /// How many doublings and halvings lead to another way.
    fn steps_from(&self, other: &Way) -> f64 {
        let pairs = [(self.columns, other.columns), (self.warps, other.warps), (self.deep, other.deep)];
        pairs.iter().map(|&(a, b)| (a as f64 / b as f64).log2().abs()).sum()
    }
}
