//! Where a program stands: the grid of a kernel, and what its iterators are in one program.

use super::program::Program;
use super::run::{bind, divides};
use super::scope::{Bind, Scope};
use crate::schedule::Schedule;
use crate::schedule::access::Iter;
use rc_dialects::op;
use rc_ir::{Dim, Result, Value};

/// The largest extent of a CUDA grid along y and z.
const MAX_YZ: i64 = 65535;

/// Tiles along the last iterator that are handled together where programs go from tile to tile.
const BLOCK: i64 = 8;

/// An iterator in the grid, with how many elements of it a program takes.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub iter: Iter,
    pub step: i64,
}

impl Program<'_> {
    /// Numbers the programs over the iterators, the first the slowest. Gives the grid and, for each, its first element in a program.
    pub fn spread(&mut self, over: &[Spread]) -> ([Dim; 3], Vec<Value>) {
        let count = |s: &Spread| s.iter.extent.ceildiv(Dim::Static(s.step));
        let counts: Vec<Dim> = over.iter().map(count).filter(|&c| c != Dim::Static(1)).collect();
        let outer = &counts[..counts.len().saturating_sub(1)];
        let fits = |&c: &Dim| self.ranges.interval(c).is_some_and(|r| r.1 <= MAX_YZ);
        let axes = counts.len() <= 3 && (self.target.is_cpu() || outer.iter().all(fits));
        let ids = if axes { self.ids_by_axis(counts.len()) } else { self.ids_by_division(&counts) };
        let mut grid = [Dim::Static(1); 3];
        if axes {
            counts.iter().rev().zip(&mut grid).for_each(|(c, g)| *g = *c);
        } else {
            grid[0] = counts.iter().fold(Dim::Static(1), |n, &c| n * c);
        }
        let mut ids = ids.into_iter();
        let starts = over.iter().map(|s| match count(s) {
            Dim::Static(1) => self.constant_index(0),
            _ => {
                let step = self.constant_index(s.step);
                self.mul_index(ids.next().expect("an id for each count"), step)
            }
        });
        let starts = starts.collect();
        (grid, starts)
    }

    /// Starts up to as many programs as the schedule says, each of which runs `body` for one place of the iterators after another. A product's last two
    /// iterators go in blocks of [`BLOCK`] places of the last, so that what programs read at a time overlaps. The programs of a cluster
    /// have neighbouring places at a time, the last of which may lie past the end.
    pub fn tile_after_tile(
        &mut self,
        over: &[Spread],
        schedule: &Schedule,
        body: impl FnOnce(&mut Self, &[Value]) -> Result,
    ) -> Result<[Dim; 3]> {
        let programs = schedule.programs().unwrap_or(1);
        let clusters: Vec<i64> = over.iter().map(|s| schedule.cluster_along(s.iter.name)).collect();
        let blocks: i64 = clusters.iter().product();
        let count = |(s, &n): (&Spread, &i64)| s.iter.extent.ceildiv(Dim::Static(s.step)).ceildiv(Dim::Static(n));
        let counts: Vec<Dim> = over.iter().zip(&clusters).map(count).collect();
        let total = counts.iter().fold(Dim::Static(1), |n, &c| n * c);
        let (mut first, mut rank, at_once) = (self.program_id(0), None, programs / blocks);
        if blocks > 1 {
            let size = self.constant_index(blocks);
            first = self.binary(op::core::DIV, first, size);
            rank = Some(self.cluster_rank());
            self.cluster = Some(blocks);
        }
        let bounds = [first, self.size(total), self.constant_index(at_once)];
        let rows = BLOCK / clusters.last().copied().unwrap_or(1);
        self.for_loop(bounds, &[], |p, number, _| {
            let ids = match schedule.contract() {
                Some(_) => p.ids_of(number, &counts, rows),
                None => p.digits(number, &counts),
            };
            let mut starts = Vec::new();
            for (((id, &count), s), &cluster) in ids.into_iter().zip(&counts).zip(over).zip(&clusters) {
                let rank = rank.filter(|_| cluster > 1).map(|rank| (cluster, rank));
                starts.push(p.start(id, count, rank, s.step));
            }
            body(p, &starts).map(|()| Vec::new())
        })?;
        Ok([total.min(Dim::Static(at_once)) * Dim::Static(blocks), Dim::Static(1), Dim::Static(1)])
    }
    /// Where the tile with a number starts, or the one of this program, by its rank, of a cluster's so many. That the number is below `count` is said
    /// again by a minimum: it spares checks of bounds where tiles divide the extent.
    fn start(&mut self, id: Value, count: Dim, rank: Option<(i64, Value)>, step: i64) -> Value {
        let (last, step) = (self.size(count - Dim::Static(1)), self.constant_index(step));
        let mut id = self.binary(op::core::MIN, id, last);
        if let Some((blocks, rank)) = rank {
            let blocks = self.constant_index(blocks);
            id = self.mul_index(id, blocks);
            id = self.add_index(id, rank);
        }
        self.mul_index(id, step)
    }
    /// The place with a number, in blocks of so many of the last iterator: see [`Program::tile_after_tile`].
    fn ids_of(&mut self, number: Value, counts: &[Dim], block: i64) -> Vec<Value> {
        let [outer @ .., columns, rows] = counts else { return vec![number] };
        let (mut out, mut rest) = (Vec::new(), number);
        if !outer.is_empty() {
            let plane = self.size(*columns * *rows);
            let batch = self.binary(op::core::DIV, rest, plane);
            rest = self.binary(op::core::REM, rest, plane);
            out = self.digits(batch, outer);
        }
        let few = self.ranges.interval(*rows).is_some_and(|r| r.1 <= 2 * block);
        if few {
            let rows = self.size(*rows);
            out.push(self.binary(op::core::DIV, rest, rows));
            out.push(self.binary(op::core::REM, rest, rows));
            return out;
        }
        let (width, block, one) =
            (self.size(*columns * Dim::Static(block)), self.constant_index(block), self.constant_index(1));
        let number = self.binary(op::core::DIV, rest, width);
        let inside = self.binary(op::core::REM, rest, width);
        let first = self.mul_index(number, block);
        let rows = self.size(*rows);
        let left = self.binary(op::core::SUB, rows, first);
        let high = self.binary(op::core::MIN, left, block);
        let high = self.binary(op::core::MAX, high, one);
        let row = self.binary(op::core::REM, inside, high);
        out.push(self.binary(op::core::DIV, inside, high));
        out.push(self.add_index(first, row));
        out
    }

    fn ids_by_axis(&mut self, n: usize) -> Vec<Value> {
        (0..n).rev().map(|axis| self.program_id(axis as i64)).collect()
    }

    fn ids_by_division(&mut self, counts: &[Dim]) -> Vec<Value> {
        let number = self.program_id(0);
        self.digits(number, counts)
    }
    /// A number's digits in a mixed radix, the first the slowest.
    fn digits(&mut self, number: Value, counts: &[Dim]) -> Vec<Value> {
        let (mut rest, mut ids) = (number, Vec::new());
        for (i, &count) in counts.iter().enumerate().rev() {
            if i == 0 {
                ids.push(rest);
                break;
            }
            let count = self.size(count);
            ids.push(self.binary(op::core::REM, rest, count));
            rest = self.binary(op::core::DIV, rest, count);
        }
        ids.reverse();
        ids
    }
}

/// The scope of a program's tile that starts at `starts`. Where the tiles of a cluster do not divide an extent, some lie past its end as a whole.
pub fn scope_of(over: &[Spread], starts: &[Value], schedule: &Schedule) -> Scope {
    let mut scope = Scope::default();
    for (spread, &start) in over.iter().zip(starts) {
        let name = spread.iter.name;
        let axis = schedule.axis_of(name);
        let size = if axis.is_some() { schedule.tile_of(name) } else { 1 };
        let bind = bind(&spread.iter, start, axis, size);
        let exact = bind.exact && divides(bind.size * schedule.cluster_along(name), spread.iter.extent);
        scope.binds.push((name, Bind { exact, ..bind }));
    }
    scope
}
