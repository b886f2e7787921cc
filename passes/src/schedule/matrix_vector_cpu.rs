//! Products of a matrix and a vector on the CPU, `y[j] = sum over k of a[j, k] * x[k]`: several rows at once, so that what all of them read of the
//! vector is loaded once, and so that several streams come from memory, of which a core follows one only slowly.

use super::access::Access;
use super::group::Group;
use super::nest::{Nest, extent_of};
use super::share::computes_slowly;
use super::target::Target;
use rc_ir::{Body, Name};

/// Vectors of each row at once: with half of the registers for sums, 8 rows on a machine of 32 vector registers, 4 where it has 16. 11008 rows of 4096 elements
/// take 0.7 times as long as one row at a time on two cores of a Xeon, rows from the second-level cache 0.8 times.
const VECTORS: i64 = 2;

/// Programs for each core that are left, at least.
const PROGRAMS: i64 = 4;

/// Rows that a program takes at once, and the vectors of each; `None` where rows share nothing that they read, or are too few. `along` are the
/// elements of a row that go together.
pub fn rows(body: &Body, group: &Group, rows: &[Name], along: Name, target: &Target) -> Option<(i64, i64)> {
    let (leader, row) = (group.nests.first()?, *rows.last()?);
    let taken = target.registers / (2 * VECTORS);
    let count = leader.iter(row).map_or(1, |i| extent_of(&leader.ranges, i.extent));
    let enough = count >= taken * PROGRAMS * target.cores;
    (enough && shares(leader, row, along) && !computes_slowly(body, leader)).then_some((taken, VECTORS))
}

/// Whether what a nest reads along its rows is in part a row's own, and in part the same for all.
fn shares(nest: &Nest, row: Name, along: Name) -> bool {
    let reads = |own: bool| move |a: &Access| a.mentions(along) && a.mentions(row) == own;
    nest.inputs.iter().any(reads(true)) && nest.inputs.iter().any(reads(false))
}
