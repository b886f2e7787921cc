//! Where a program stands: the grid of a kernel, and what its iterators are in one program.

use super::program::Program;
use super::run::bind;
use super::scope::Scope;
use crate::schedule::Schedule;
use crate::schedule::access::Iter;
use rc_ir::{Dim, Value};

/// The largest extent of a CUDA grid along y and z.
const MAX_YZ: i64 = 65535;

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

    fn ids_by_axis(&mut self, n: usize) -> Vec<Value> {
        (0..n).rev().map(|axis| self.program_id(axis as i64)).collect()
    }

    fn ids_by_division(&mut self, counts: &[Dim]) -> Vec<Value> {
        let mut rest = self.program_id(0);
        let mut ids = Vec::new();
        for (i, &count) in counts.iter().enumerate().rev() {
            if i == 0 {
                ids.push(rest);
                break;
            }
            let count = self.size(count);
            ids.push(self.binary("rc.core.rem", rest, count));
            rest = self.binary("rc.core.div", rest, count);
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
