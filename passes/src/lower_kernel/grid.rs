//! Where a program stands: the grid of a kernel, and what its iterators are in one program.

use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::Schedule;
use crate::schedule::access::Iter;
use rc_dialects::op;
use rc_ir::{Dim, Result, Value};

/// The largest extent of a CUDA grid along y and z.
const MAX_YZ: i64 = 65535;

/// Places of the last iterator that are handled together where programs go from tile to tile.
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

    /// Starts up to `programs` programs, each of which runs `body` for one place of the iterators after another. The last two
    /// iterators go in blocks of [`BLOCK`] places of the last, so that what programs read at a time overlaps.
    pub fn tile_after_tile(
        &mut self,
        over: &[Spread],
        programs: i64,
        body: impl FnOnce(&mut Self, &[Value]) -> Result,
    ) -> Result<[Dim; 3]> {
        let counts: Vec<Dim> = over.iter().map(|s| s.iter.extent.ceildiv(Dim::Static(s.step))).collect();
        let total = counts.iter().fold(Dim::Static(1), |n, &c| n * c);
        let bounds = [self.program_id(0), self.size(total), self.constant_index(programs)];
        self.for_loop(bounds, &[], |p, number, _| {
            let ids = p.ids_of(number, &counts);
            let starts = ids.into_iter().zip(&counts).zip(over);
            let starts: Vec<Value> = starts.map(|((id, &count), s)| p.start(id, count, s.step)).collect();
            body(p, &starts).map(|()| Vec::new())
        })?;
        Ok([total.min(Dim::Static(programs)), Dim::Static(1), Dim::Static(1)])
    }
    /// Where the tile with a number starts. That the number is below `count` is said again by a minimum: it spares checks of
    /// bounds where tiles divide the extent.
    fn start(&mut self, id: Value, count: Dim, step: i64) -> Value {
        let (last, step) = (self.size(count - Dim::Static(1)), self.constant_index(step));
        let id = self.binary(op::core::MIN, id, last);
        self.mul_index(id, step)
    }
    /// The place with a number: see [`Program::tile_after_tile`].
    fn ids_of(&mut self, number: Value, counts: &[Dim]) -> Vec<Value> {
        let [outer @ .., columns, rows] = counts else { return vec![number] };
        let (mut out, mut rest) = (Vec::new(), number);
        if !outer.is_empty() {
            let plane = self.size(*columns * *rows);
            let batch = self.binary(op::core::DIV, rest, plane);
            rest = self.binary(op::core::REM, rest, plane);
            out = self.digits(batch, outer);
        }
        let few = self.ranges.interval(*rows).is_some_and(|r| r.1 <= 2 * BLOCK);
        if few {
            let rows = self.size(*rows);
            out.push(self.binary(op::core::DIV, rest, rows));
            out.push(self.binary(op::core::REM, rest, rows));
            return out;
        }
        let (width, block, one) =
            (self.size(*columns * Dim::Static(BLOCK)), self.constant_index(BLOCK), self.constant_index(1));
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

/// The scope of a program's tile that starts at `starts`.
pub fn scope_of(over: &[Spread], starts: &[Value], schedule: &Schedule) -> Scope {
    let mut scope = Scope::default();
    for (spread, &start) in over.iter().zip(starts) {
        let name = spread.iter.name;
        let axis = schedule.axis_of(name);
        let size = if axis.is_some() { schedule.tile_of(name) } else { 1 };
        scope.binds.push((name, bind(&spread.iter, start, axis, size)));
    }
    scope
}
