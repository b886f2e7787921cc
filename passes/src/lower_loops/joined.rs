//! Concatenations of pieces of one value: padding by reflection or by the nearest element, rows that are rolled.

use crate::fuse::reads::sources;
use crate::fuse::{Class, classify};
use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, Name, OpRef, Value};

/// Places along the concatenation at most: all of them are tried.
const MOST: i64 = 1 << 14;

/// The value of which all operands are pieces, and the one place where it has the element at `map`. Each of its coordinates is made of what the
/// pieces ask for: `min(max(1 - i, i - 1), 2 n - 1 - i)` for a reflection by one, `(i + 3) mod n` for a roll.
pub fn joined(op: OpRef, map: &[Dim], ranges: &Ranges) -> Option<(Value, Vec<Dim>)> {
    let dim = usize::try_from(op.int("dim")?).ok()?;
    let along = map[dim].as_symbol()?;
    op.body.ty(op.result(0)).shape()[dim].as_static().filter(|&n| n <= MOST)?;
    let mut start = Dim::Static(0);
    let mut found: Option<(Value, Vec<Dim>)> = None;
    for operand in op.operands() {
        let size = op.body.ty(operand).shape()[dim];
        if size == Dim::Static(0) {
            continue;
        }
        let mut at = map.to_vec();
        at[dim] = map[dim] - start;
        let (value, at) = moved_from(op, operand, at, ranges)?;
        found = Some(match found {
            None => (value, at),
            Some((first, before)) if first == value => {
                let from = start.as_static()?;
                let places = Places { along, from, end: from + size.as_static()? };
                let shape = op.body.ty(value).shape();
                let rows = shape.iter().enumerate().map(|(d, size)| size.as_static().filter(|_| d + 1 < shape.len()));
                let joined = before.into_iter().zip(at).zip(rows);
                (value, joined.map(|((before, at), size)| places.either(before, at, size)).collect::<Option<_>>()?)
            }
            Some(_) => return None,
        });
        start = start + size;
    }
    found.filter(|_| op.operands().len() > 1)
}

/// What an operand is moved from by index maps alone, and where its element at `at` is there.
fn moved_from(op: OpRef, mut value: Value, mut at: Vec<Dim>, ranges: &Ranges) -> Option<(Value, Vec<Dim>)> {
    while let Some(from) = op.body.defining_op(value).map(|from| op.body.op_ref(from)) {
        if classify(from) != Class::Reindex {
            break;
        }
        let (source, place) = sources(from, &at, ranges)?.into_iter().next()?;
        (value, at) = (source, place?);
    }
    Some((value, at))
}

/// Places up to `end` along a concatenation, of which those from `from` on are another piece's.
struct Places {
    along: Name,
    from: i64,
    end: i64,
}

impl Places {
    /// One expression that is `before` at places before `from` and `after` from there on: the greater, the lesser or, of `size` rows that start again
    /// after the last, a remainder. Neighbours along the last dimension stay neighbours.
    fn either(&self, before: Dim, after: Dim, size: Option<i64>) -> Option<Dim> {
        let around = size
            .filter(|_| (0..self.end).all(|place| self.value(before, place) >= Some(0)))
            .map(|size| before.modulo(Dim::Static(size)));
        let choices = [Some(before), Some(before.max(after)), Some(before.min(after)), around];
        choices.into_iter().flatten().find(|&e| self.is(e, before, after))
    }
    fn value(&self, e: Dim, place: i64) -> Option<i64> {
        e.evaluate(&|name| (name == self.along).then_some(place))
    }
    /// Whether the expression is `before` and then `after`.
    fn is(&self, e: Dim, before: Dim, after: Dim) -> bool {
        let holds = |place: i64| {
            let expected = self.value(if place < self.from { before } else { after }, place);
            expected.is_some() && self.value(e, place) == expected
        };
        before == after || (0..self.end).all(holds)
    }
}
