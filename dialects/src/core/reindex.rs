//! Operations that only move elements: the place in the operand that each element of the result comes from,
//! and, where every element goes to exactly one place, the way back.

use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, OpRef};

/// The op's result has at `index` the element that operand 0 has at `source(op, index, ranges)`.
pub struct Reindex {
    pub source: fn(OpRef, &[Dim], &Ranges) -> Option<Vec<Dim>>,
    /// Of bijections: where operand 0's element at an index goes in the result.
    pub target: Option<fn(OpRef, &[Dim], &Ranges) -> Option<Vec<Dim>>>,
}

pub static BROADCAST: Reindex = Reindex { source: broadcast_source, target: None };
pub static TRANSPOSE: Reindex = Reindex { source: transpose_source, target: Some(transpose_target) };
pub static RESHAPE: Reindex = Reindex { source: reshape_source, target: Some(reshape_target) };
pub static SLICE: Reindex = Reindex { source: slice_source, target: None };
pub static WINDOW: Reindex = Reindex { source: window_source, target: None };
pub static REVERSE: Reindex = Reindex { source: reverse_source, target: Some(reverse_source) };

fn broadcast_source(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    let dims = op.ints("dims")?;
    let from = op.body.ty(op.operand(0)).shape();
    let at = dims.iter().zip(from).map(|(&d, size)| match size {
        Dim::Static(1) => Some(Dim::Static(0)),
        _ => index.get(d as usize).copied(),
    });
    at.collect()
}

fn transpose_source(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    let perm = op.ints("perm")?;
    let mut at = vec![Dim::Static(0); perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        *at.get_mut(p as usize)? = *index.get(i)?;
    }
    Some(at)
}

fn transpose_target(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    op.ints("perm")?.iter().map(|&p| index.get(p as usize).copied()).collect()
}

fn reshape_source(op: OpRef, index: &[Dim], ranges: &Ranges) -> Option<Vec<Dim>> {
    relinearize(&op.body.ty(op.result(0)).shape(), &op.body.ty(op.operand(0)).shape(), index, ranges)
}

fn reshape_target(op: OpRef, index: &[Dim], ranges: &Ranges) -> Option<Vec<Dim>> {
    relinearize(&op.body.ty(op.operand(0)).shape(), &op.body.ty(op.result(0)).shape(), index, ranges)
}

fn slice_source(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    let starts = op.attr("starts")?.as_shape()?;
    let strides = op.ints("strides").unwrap_or_else(|| vec![1; starts.len()]);
    Some(index.iter().zip(starts).zip(strides).map(|((&i, &start), stride)| start + i * Dim::Static(stride)).collect())
}

fn window_source(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    let dims = op.ints("dims")?;
    let shape = op.body.ty(op.operand(0)).shape();
    let rank = shape.len();
    let mut at = index.get(..rank)?.to_vec();
    for (i, &d) in dims.iter().enumerate() {
        let d = d as usize;
        at[d] = super::window::element(op, i, (*at.get(d)?, *index.get(rank + i)?), shape[d]);
    }
    Some(at)
}

fn reverse_source(op: OpRef, index: &[Dim], _: &Ranges) -> Option<Vec<Dim>> {
    let dims = op.ints("dims")?;
    let shape = op.body.ty(op.operand(0)).shape();
    let at = index
        .iter()
        .zip(shape)
        .enumerate()
        .map(|(d, (&i, size))| if dims.contains(&(d as i64)) { size - Dim::Static(1) - i } else { i });
    Some(at.collect())
}

/// The index in a dense tensor of shape `to` of the element that has `index` in shape `from`. Dimensions
/// are matched from the innermost out in groups of equal size, so that most come through as they are.
pub fn relinearize(from: &[Dim], to: &[Dim], index: &[Dim], ranges: &Ranges) -> Option<Vec<Dim>> {
    let mut out = vec![Dim::Static(0); to.len()];
    let (mut i, mut j) = (from.len(), to.len());
    while i > 0 || j > 0 {
        let (i_end, j_end) = (i, j);
        let (mut a, mut b) = (Dim::Static(1), Dim::Static(1));
        // Take dimensions on the side that lacks them until the sizes agree.
        loop {
            if i_end > i && j_end > j && a == b {
                break;
            }
            let take_from = i > 0 && (i_end == i || j == 0 || !needs_more(b, a));
            if take_from {
                i -= 1;
                a = a * from[i];
            } else if j > 0 {
                j -= 1;
                b = b * to[j];
            } else {
                break;
            }
        }
        // Size-one dimensions left over on one side belong to the last group.
        if a != b {
            return None;
        }
        let linear = (i..i_end)
            .fold(Dim::Static(0), |sum, d| sum * from[d] + if is_one(from[d]) { Dim::Static(0) } else { index[d] });
        let mut rest = linear;
        for d in (j..j_end).rev() {
            let outermost = (j..d).all(|o| is_one(to[o]));
            out[d] = match () {
                () if is_one(to[d]) => Dim::Static(0),
                () if outermost => rest,
                () => ranges.modulo(rest, to[d]),
            };
            if !is_one(to[d]) {
                rest = if outermost { Dim::Static(0) } else { ranges.floordiv(rest, to[d]) };
            }
        }
    }
    Some(out)
}

fn is_one(d: Dim) -> bool {
    d == Dim::Static(1)
}

/// Whether the product `b` has to grow to reach `a`: it is smaller, or `a` is symbolic and `b` not yet.
fn needs_more(b: Dim, a: Dim) -> bool {
    match (b, a) {
        (Dim::Static(b), Dim::Static(a)) => b < a,
        (Dim::Static(_), _) => true,
        (_, Dim::Static(_)) => false,
        (b, a) => {
            let terms = |d: Dim| d.polynomial().map_or(0, |p| p.terms.iter().map(|t| t.1.abs()).max().unwrap_or(0));
            terms(b) < terms(a)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::Name;

    fn names(index: &[&str], shape: &[Dim]) -> (Vec<Dim>, Ranges) {
        let mut ranges = Ranges::new();
        ranges.set(Name::new("s"), 1, 1024);
        for (name, &size) in index.iter().zip(shape) {
            ranges.set_iterator(Name::new(name), size);
        }
        (index.iter().map(|n| Dim::symbol(*n)).collect(), ranges)
    }

    /// Checks the map against linear indices, for every element of a static shape.
    fn check(from: &[i64], to: &[i64]) {
        let dims = |s: &[i64]| s.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>();
        let labels = ["i", "j", "k", "l"];
        let (index, ranges) = names(&labels[..from.len()], &dims(from));
        let at = relinearize(&dims(from), &dims(to), &index, &ranges).unwrap();
        let total: i64 = from.iter().product();
        for linear in 0..total {
            let mut rest = linear;
            let mut coords = vec![0; from.len()];
            for d in (0..from.len()).rev() {
                coords[d] = rest % from[d];
                rest /= from[d];
            }
            let bind = |n: Name| labels.iter().position(|l| n == *l).map(|d| coords[d]);
            let got = at.iter().zip(to).fold(0, |sum, (e, n)| sum * n + e.evaluate(&bind).unwrap());
            assert_eq!(got, linear, "{from:?} to {to:?} at {coords:?}: {at:?}");
        }
    }

    #[test]
    fn reshapes() {
        for (from, to) in [
            (&[6][..], &[2, 3][..]),
            (&[2, 3], &[6]),
            (&[2, 3, 4], &[6, 4]),
            (&[4, 6], &[2, 2, 3, 2]),
            (&[1, 6, 1], &[6]),
            (&[6], &[1, 6, 1]),
            (&[2, 1, 3], &[1, 2, 3, 1]),
            (&[1, 1], &[1]),
            (&[4, 3], &[3, 4]),
            (&[2, 12], &[2, 3, 4]),
        ] {
            check(from, to);
        }
    }

    #[test]
    fn symbolic_sizes_come_through() {
        let s = Dim::symbol("s");
        let (from, to) = ([1.into(), s, 768.into()], [1.into(), s, 12.into(), 64.into()]);
        let (index, ranges) = names(&["b", "i", "h", "d"], &to);
        let at = relinearize(&to, &from, &index, &ranges).unwrap();
        assert_eq!(format!("{at:?}"), "[0, i, d + 64 * h]");
        let (index, ranges) = names(&["b", "i", "c"], &from);
        let at = relinearize(&from, &to, &index, &ranges).unwrap();
        assert_eq!(format!("{at:?}"), "[0, i, ((c) floordiv (64)), ((c) mod (64))]");
    }
}
