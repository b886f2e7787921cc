//! Schedules of sorts.
//!
//! On a GPU a program has rows, which its threads hold and merge through shared memory. On a CPU a program has a row, which is sorted
//! digit by digit in memory, or by comparing all pairs where it is short.

use super::attr::{Kind, Schedule};
use super::nest::{extent_of, symbol_ranges};
use super::target::Target;
use super::tiles::pow2;
use super::{Plan, access::Iter};
use rc_dialects::loop_::IterKind;
use rc_ir::dim_range::Ranges;
use rc_ir::{Body, Dim, Name, Op, OpRef, Result};

/// The longest row that a GPU's program sorts.
pub const LONGEST: i64 = 16384;

/// Vectors of a row that a CPU sorts by comparing all pairs, at most: the pairs grow with the square, what the digits' counts take does not.
const SHORT: i64 = 8;

/// Whether a CPU, with so many keys in a vector, compares all pairs of rows that are no longer.
pub fn is_short(longest: i64, lanes: i64) -> bool {
    longest <= SHORT * lanes
}

/// A sort's sizes: x is [rows, length], of which `count` are kept.
#[derive(Clone, Debug)]
pub struct Sort {
    /// The rows, the elements of one.
    pub iters: [Iter; 2],
    pub count: Dim,
}

impl Sort {
    /// Reads a verified `loop.sort`.
    pub fn read(op: OpRef) -> Option<Sort> {
        let names: Vec<Name> =
            op.attr("iters")?.as_array()?.iter().map(|a| a.as_str().map(Name::new)).collect::<Option<_>>()?;
        let shape = op.body.ty(op.operand(0)).shape();
        let (&length, outer) = shape.split_last()?;
        let rows = outer.iter().fold(Dim::Static(1), |n, &d| n * d);
        let iter = |i: usize, extent| Some(Iter { name: *names.get(i)?, extent, kind: IterKind::Parallel });
        Some(Sort { iters: [iter(0, rows)?, iter(1, length)?], count: op.int("count").map_or(length, Dim::Static) })
    }
    /// The most elements that a row may have.
    ///
    /// # Errors
    /// If there is no bound.
    pub fn longest(&self, op: OpRef, ranges: &Ranges) -> Result<i64> {
        let bound = ranges.interval(self.iters[1].extent).map(|r| r.1).filter(|&n| n < i64::from(i32::MAX));
        let unbounded =
            || op.unsupported("of rows without a bound").help("declare the symbol's greatest value in rc.symbols");
        Ok(bound.ok_or_else(unbounded)?.max(1))
    }
}

pub fn plan(body: &Body, op: Op, target: &Target) -> Result<Plan> {
    let at = body.op_ref(op);
    let sort = Sort::read(at).ok_or_else(|| at.error("has malformed attributes"))?;
    let [o, j] = sort.iters;
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let longest = sort.longest(at, &ranges)?;
    let mut s = Schedule::new(Kind::Sort);
    s.grid = vec![o.name];
    if target.is_cpu() {
        let why = format!("rows of {longest} elements in memory, digit by digit, or by all pairs where they are short");
        return Ok(Plan::of_rule(vec![s], why, "merging: a pass for each doubling of sorted runs".into()));
    }
    if longest > LONGEST {
        let error = at.unsupported(format!("of rows of up to {longest} elements: a program sorts {LONGEST} at most"));
        return Err(error.help("run split-sorts before, which cuts rows of a fixed length"));
    }
    let (length, count) = (pow2(longest), extent_of(&ranges, o.extent));
    // Fewer elements for each thread where programs are fewer than cores, so that all is over sooner.
    let costs = &target.gpu().sorts;
    let each = costs.each[usize::from(count >= target.cores)];
    // At least a warp's, though rows beyond the last be empty.
    let mut rows = (32 / length).max(1);
    while rows * length < costs.block * each && 2 * rows * target.cores <= count {
        rows *= 2;
    }
    s.axes = [o.name, j.name];
    s.set_tile(o.name, rows);
    s.set_tile(j.name, length);
    s.threads = (rows * length / each).clamp(32, target.block_threads);
    let why = format!(
        "{rows} rows of {length} for each program, of whose {} threads each merges {} elements",
        s.threads,
        rows * length / s.threads
    );
    let other = "longer runs merged in memory: two more launches for each doubling".to_string();
    Ok(Plan::of_rule(vec![s], why, other))
}
