//! Where a nest reads and writes: index maps, brought into the form that tiles can follow.

use crate::fuse::reads::panel_iterator;
use rc_ir::dim::{Atom, Monomial};
use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, Name};

/// An iterator of a nest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Iter {
    pub name: Name,
    pub extent: Dim,
    pub kind: rc_dialects::loop_::IterKind,
}

/// A dense row-major tensor of some shape, indexed by one expression for each dimension.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    pub shape: Vec<Dim>,
    pub exprs: Vec<Dim>,
}

/// Whether `dim` mentions the symbol.
pub fn mentions(dim: Dim, name: Name) -> bool {
    let mut found = false;
    dim.for_each_symbol(&mut |n| found |= n == name);
    found
}

impl Access {
    pub fn new(shape: &[Dim], exprs: &[Dim]) -> Access {
        Access { shape: shape.to_vec(), exprs: exprs.to_vec() }
    }
    /// The access with symbols replaced in its expressions.
    pub fn substitute(&self, map: &dyn Fn(Name) -> Option<Dim>) -> Access {
        Access { shape: self.shape.clone(), exprs: self.exprs.iter().map(|e| e.substitute(map)).collect() }
    }
    pub fn mentions(&self, name: Name) -> bool {
        self.exprs.iter().any(|&e| mentions(e, name))
    }
    /// The access with simpler expressions.
    pub fn simplified(&self, ranges: &Ranges) -> Access {
        Access { shape: self.shape.clone(), exprs: self.exprs.iter().map(|&e| ranges.simplify(e)).collect() }
    }
    /// The same elements of the same memory seen as another shape, in which expressions are as plain as can be:
    /// `[h * 64 + d]` of `[768]` is `[h, d]` of `[12, 64]`, and `[i floordiv 64, i mod 64]` of `[n, 64]` is `[i]` of `[n * 64]`.
    pub fn normalized(&self, ranges: &Ranges, iters: &[Iter]) -> Access {
        let mut out = self.simplified(ranges);
        while out.split_one(ranges, iters) || out.merge_one(ranges) {}
        out
    }

    /// Splits a dimension of size `q * c` whose expression is `a * c + r`, with `r` known to be in `0..c`.
    fn split_one(&mut self, ranges: &Ranges, iters: &[Iter]) -> bool {
        for d in 0..self.exprs.len() {
            if let Some((c, outer, inner)) = split(self.exprs[d], self.shape[d], ranges, iters) {
                let size = exact_div(self.shape[d], c, ranges).expect("checked by split");
                self.shape.splice(d..=d, [size, c]);
                self.exprs.splice(d..=d, [outer, inner]);
                return true;
            }
        }
        false
    }

    /// Merges two dimensions whose expressions are quotient and remainder of one expression.
    fn merge_one(&mut self, ranges: &Ranges) -> bool {
        for d in 1..self.exprs.len() {
            let (a, b, size) = (self.exprs[d - 1], self.exprs[d], self.shape[d]);
            let Some(merged) = merge(a, b, self.shape[d - 1], size) else { continue };
            let shape = self.shape[d - 1] * size;
            self.shape.splice(d - 1..=d, [shape]);
            self.exprs.splice(d - 1..=d, [ranges.simplify(merged)]);
            return true;
        }
        false
    }

    /// For each dimension, which of the tiled iterators runs along it; `None` where that is not so for all: each
    /// tiled iterator in at most one dimension, at most one in each, as `iterator + rest`.
    pub fn plain(&self, tiled: &[Name]) -> Option<Vec<Option<Name>>> {
        self.plain_by_tiles(tiled, &[])
    }
    /// As [`Access::plain`], where some iterators' tiles start at multiples of their sizes, given here: tiles of 16 of `[i floordiv 64, i mod 64]` run along
    /// the second dimension.
    pub fn plain_by_tiles(&self, tiled: &[Name], tiles: &[(Name, i64)]) -> Option<Vec<Option<Name>>> {
        let by_tiles = |e: Dim| {
            let (name, size) = *tiles.iter().find(|t| mentions(e, t.0))?;
            let alone = tiled.iter().all(|&t| t == name || !mentions(e, t));
            let (_, steps) = run_start(e, name, size, Dim::symbol(name)).filter(|_| alone)?;
            Some((steps == 1).then_some(name))
        };
        let along: Option<Vec<_>> = self.exprs.iter().map(|&e| runs_along(e, tiled).or_else(|| by_tiles(e))).collect();
        along.filter(|along| tiled.iter().all(|t| along.iter().filter(|a| **a == Some(*t)).count() <= 1))
    }
    /// The longest run of 8, 4 or 2 neighbours in memory that the iterator's next values always are, from each multiple of the run's length
    /// on, at an address that is a multiple of it too; 1 where there is none.
    pub fn run(&self, iter: Name) -> i64 {
        self.run_within(iter, 8)
    }
    /// The same with up to `most` neighbours, a power of two.
    pub fn run_within(&self, iter: Name, most: i64) -> i64 {
        let mut runs = std::iter::successors(Some(most), |run| (*run > 2).then_some(run / 2));
        runs.find(|&run| self.by_runs(iter, run, Dim::symbol(iter)).is_some()).unwrap_or(1)
    }
    /// The longest run along any iterator.
    pub fn longest_run(&self) -> i64 {
        let mut longest = 1;
        if let Some(last) = self.exprs.last() {
            last.for_each_symbol(&mut |name| longest = longest.max(self.run(name)));
        }
        longest
    }
    /// Where each run of neighbours starts, with `iter = run * number`; `None` where they are none: see [`Access::run`].
    pub fn by_runs(&self, iter: Name, run: i64, number: Dim) -> Option<Vec<Dim>> {
        let (&last, outer) = self.exprs.split_last()?;
        let mut out = Vec::new();
        let mut stride = Dim::Static(1);
        for (&e, &size) in outer.iter().zip(&self.shape[1..]).rev() {
            stride = stride * size;
            let aligned = stride.modulo(Dim::Static(run)) == Dim::Static(0) || e == Dim::Static(0);
            let (at, steps) = run_start(e, iter, run, number)?;
            if !aligned || steps != 0 {
                return None;
            }
            out.push(at);
        }
        out.reverse();
        let (at, steps) = run_start(last, iter, run, number)?;
        out.push(at);
        let size = self.shape.last()?.modulo(Dim::Static(run)) == Dim::Static(0);
        (steps == 1 && size && is_multiple(at, run)).then_some(out)
    }
    /// Elements of memory from one of the iterator's values to the next, where that is the same number for all.
    pub fn distance(&self, iter: Name) -> Option<i64> {
        let (mut sum, mut stride) = (0, Dim::Static(1));
        for (&e, &size) in self.exprs.iter().zip(&self.shape).rev() {
            let steps = coefficient(e, iter)?;
            sum += if steps == 0 { 0 } else { steps * stride.as_static()? };
            stride = stride * size;
        }
        Some(sum)
    }
    /// The columns of a panel, where `iter` runs over panels of a packed matrix: `[iter floordiv c, k, iter mod c]`.
    pub fn panels(&self, iter: Name) -> Option<i64> {
        let (&lane, rest) = self.exprs.split_last()?;
        let mut of = rest.iter().filter(|&&e| mentions(e, iter));
        let (&panel, None) = (of.next()?, of.next()) else { return None };
        panel_iterator(panel, lane).filter(|found| found.0 == iter).map(|found| found.1)
    }
    /// The columns of a panel and the elements of a word, where `iter` runs over panels of a matrix packed in words of `k`:
    /// `[iter floordiv c, k floordiv w, iter mod c, k mod w]`, or over one panel: `[k floordiv w, iter, k mod w]`.
    pub fn word_panels(&self, iter: Name, k: Name) -> Option<(i64, i64)> {
        let (columns, word, element) = match self.exprs[..] {
            [panel, word, lane, element] => {
                let (_, columns) = panel_iterator(panel, lane).filter(|found| found.0 == iter)?;
                (columns, word, element)
            }
            [word, lane, element] if lane == Dim::symbol(iter) => (self.shape[1].as_static()?, word, element),
            _ => return None,
        };
        let (_, width) = panel_iterator(word, element).filter(|found| found.0 == k)?;
        Some((columns, width))
    }
    /// Whether a tile of `iter` that reaches past its extent reaches out of the memory's bounds there, in one dimension of its own.
    pub fn clips(&self, iter: &Iter) -> bool {
        self.exprs
            .iter()
            .zip(&self.shape)
            .all(|(&e, &size)| !mentions(e, iter.name) || (e == Dim::symbol(iter.name) && size == iter.extent))
            && self.mentions(iter.name)
    }
    /// The iterator that runs along the last dimension with more than one element, with coefficient 1.
    pub fn innermost(&self) -> Option<Name> {
        let last = self.shape.iter().rposition(|&s| s != Dim::Static(1))?;
        let p = self.exprs[last].polynomial()?;
        let unit = p.terms.iter().find_map(|(m, c)| match (m.as_slice(), c) {
            ([(Atom::Symbol(name), 1)], 1) => Some(*name),
            _ => None,
        })?;
        (p.terms.iter().filter(|(m, _)| m.iter().any(|f| atom_mentions(&f.0, unit))).count() == 1).then_some(unit)
    }
    /// The iterator that runs along the last dimension with more than one element but near its ends, where what lies past them is reflected or bounded.
    pub fn innermost_within(&self) -> Option<Name> {
        let last = self.shape.iter().rposition(|&s| s != Dim::Static(1))?;
        let mut names = Vec::new();
        self.exprs[last].for_each_symbol(&mut |name| names.push(name));
        let (&name, others) = names.split_first()?;
        (others.iter().all(|other| *other == name) && is_within(self.exprs[last], name)).then_some(name)
    }
}

/// Whether an expression is an iterator, forwards or backwards and shifted, or an extreme of such and of numbers.
fn is_within(e: Dim, name: Name) -> bool {
    let Some(p) = e.polynomial() else { return false };
    let mut terms = p.terms.iter().filter(|(m, _)| !m.is_empty());
    match (terms.next(), terms.next()) {
        (None, _) => true,
        (Some((m, c)), None) => match (m.as_slice(), c.abs()) {
            ([(Atom::Symbol(symbol), 1)], 1) => *symbol == name,
            ([(Atom::Max(a, b) | Atom::Min(a, b), 1)], 1) => is_within(*a, name) && is_within(*b, name),
            _ => false,
        },
        _ => false,
    }
}

fn atom_mentions(atom: &Atom, name: Name) -> bool {
    match *atom {
        Atom::Symbol(n) => n == name,
        Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
            mentions(a, name) || mentions(b, name)
        }
    }
}

/// What an expression grows by from each of the iterator's values to the next, where that is the same for all.
pub fn coefficient(e: Dim, iter: Name) -> Option<i64> {
    if !mentions(e, iter) {
        return Some(0);
    }
    let terms = e.polynomial()?.terms;
    let of_iter = terms.iter().filter(|(monomial, _)| monomial.iter().any(|(atom, _)| atom_mentions(atom, iter)));
    let linear = |(monomial, c): &(Monomial, i64)| (monomial.as_slice() == [(Atom::Symbol(iter), 1)]).then_some(*c);
    of_iter.map(linear).sum()
}

/// What an expression is at `iter = run * number`, and by how much it grows from each to the next of the `run` values from there on, 0 or 1.
fn run_start(e: Dim, iter: Name, run: i64, number: Dim) -> Option<(Dim, i64)> {
    if !mentions(e, iter) {
        return Some((e, 0));
    }
    let p = e.polynomial()?;
    let (mut sum, mut steps) = (Dim::Static(p.constant), 0);
    for (monomial, coefficient) in &p.terms {
        let mut term = Dim::Static(*coefficient);
        let mut grows = 0;
        for (atom, power) in monomial {
            let (value, by) = atom_start(atom, iter, run, number)?;
            if by != 0 && (monomial.len() != 1 || *power != 1) {
                return None;
            }
            grows += by;
            (0..*power).for_each(|_| term = term * value);
        }
        sum = sum + term;
        steps += coefficient * grows;
    }
    (steps == 0 || steps == 1).then_some((sum, steps))
}

fn atom_start(atom: &Atom, iter: Name, run: i64, number: Dim) -> Option<(Dim, i64)> {
    let divides = |a: Dim, b: Dim, steps: i64| {
        steps == 0 || is_multiple(a, run) && b.as_static().is_some_and(|b| b > 0 && b % run == 0)
    };
    match *atom {
        Atom::Symbol(name) if name == iter => Some((Dim::Static(run) * number, 1)),
        Atom::Symbol(name) => Some((Dim::symbol(name), 0)),
        Atom::FloorDiv(a, b) if !mentions(b, iter) => {
            let (at, steps) = run_start(a, iter, run, number)?;
            divides(at, b, steps).then(|| (at.floordiv(b), 0))
        }
        Atom::Mod(a, b) if !mentions(b, iter) => {
            let (at, steps) = run_start(a, iter, run, number)?;
            divides(at, b, steps).then(|| (at.modulo(b), steps))
        }
        Atom::Max(a, b) | Atom::Min(a, b) if !mentions(a, iter) && !mentions(b, iter) => {
            Some((if matches!(atom, Atom::Max(..)) { a.max(b) } else { a.min(b) }, 0))
        }
        _ => None,
    }
}

/// Whether every term is a multiple of `n`, or a remainder of one by another.
fn is_multiple(e: Dim, n: i64) -> bool {
    let Some(p) = e.polynomial() else { return e.as_static().is_some_and(|e| e % n == 0) };
    let whole = |atom: &Atom| matches!(*atom, Atom::Mod(a, b) if is_multiple(a, n) && is_multiple(b, n));
    p.constant % n == 0 && p.terms.iter().all(|(m, c)| c % n == 0 || m.iter().any(|f| whole(&f.0)))
}

/// `Some(None)`: no tiled iterator; `Some(Some(t))`: `t` plus what has none; `None`: anything else.
fn runs_along(e: Dim, tiled: &[Name]) -> Option<Option<Name>> {
    let mut found = tiled.iter().copied().filter(|&t| mentions(e, t));
    let Some(first) = found.next() else { return Some(None) };
    let rest = e - Dim::symbol(first);
    (found.next().is_none() && !mentions(rest, first)).then_some(Some(first))
}

/// `size / c` where it leaves no rest.
fn exact_div(size: Dim, c: Dim, ranges: &Ranges) -> Option<Dim> {
    let q = ranges.floordiv(size, c);
    (q * c == size).then_some(q)
}

/// A way to read `e` as `outer * c + inner` with `inner` in `0..c`, both with iterators, where `size` is a multiple of `c`.
fn split(e: Dim, size: Dim, ranges: &Ranges, iters: &[Iter]) -> Option<(Dim, Dim, Dim)> {
    let terms = e.polynomial()?.terms;
    let has_iter = |d: Dim| iters.iter().any(|i| mentions(d, i.name)) || has_index(d);
    if terms.len() < 2 {
        return None;
    }
    for iter in iters.iter().filter(|i| i.extent != Dim::Static(1) && i.extent != Dim::Static(0)) {
        let rest = e - Dim::symbol(iter.name);
        if mentions(rest, iter.name) || !mentions(e, iter.name) || !has_iter(rest) {
            continue;
        }
        if let (Some(outer), Some(_)) = (exact_div(rest, iter.extent, ranges), exact_div(size, iter.extent, ranges)) {
            return Some((iter.extent, outer, Dim::symbol(iter.name)));
        }
    }
    let mut coefficients: Vec<i64> = terms.iter().map(|t| t.1).filter(|&c| c > 1).collect();
    coefficients.sort_unstable();
    coefficients.dedup();
    coefficients.into_iter().map(Dim::Static).find_map(|c| {
        let (outer, inner) = (ranges.floordiv(e, c), ranges.modulo(e, c));
        let whole = outer * c + inner == e && has_iter(outer) && has_iter(inner);
        let inside = ranges.interval(inner).is_some_and(|r| r.0 >= 0 && r.1 < c.as_static().unwrap_or(0));
        (whole && inside && exact_div(size, c, ranges).is_some()).then_some((c, outer, inner))
    })
}

/// Whether the expression has a computed index `_0`, `_1`, … of a gather.
pub fn has_index(dim: Dim) -> bool {
    let mut found = false;
    dim.for_each_symbol(&mut |n| found |= index_number(n).is_some());
    found
}

/// The number of a gather's index symbol: 0 of `_0`.
pub fn index_number(name: Name) -> Option<usize> {
    name.as_str().strip_prefix('_')?.parse().ok()
}

/// One expression for `[a, b]` of shape `[outer, size]`, where `b` is `x mod size` and `a` the matching quotient, or a sum with it.
fn merge(a: Dim, b: Dim, outer: Dim, size: Dim) -> Option<Dim> {
    let Some(&Atom::Mod(x, f)) = b.as_atom() else { return None };
    if f != size {
        return None;
    }
    let quotient = x.floordiv(f);
    match a.as_atom() {
        Some(&Atom::Mod(q, e)) if e == outer && q == quotient => Some(x.modulo(e * f)),
        _ => {
            let has = |d: Dim| d.polynomial().is_some_and(|p| p.terms.iter().any(|t| is_quotient(t, x, f)));
            has(a).then(|| (a - quotient) * size + x)
        }
    }
}

/// Whether the term is `x floordiv f`.
fn is_quotient((monomial, coefficient): &(rc_ir::dim::Monomial, i64), x: Dim, f: Dim) -> bool {
    *coefficient == 1 && monomial.as_slice() == [(Atom::FloorDiv(x, f), 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_dialects::loop_::IterKind;

    fn iters(list: &[(&str, Dim)]) -> (Vec<Iter>, Ranges) {
        let mut ranges = Ranges::new();
        ranges.set(Name::new("s"), 0, 1024);
        let iters: Vec<Iter> =
            list.iter().map(|&(n, extent)| Iter { name: Name::new(n), extent, kind: IterKind::Parallel }).collect();
        for i in &iters {
            ranges.set_iterator(i.name, i.extent);
        }
        (iters, ranges)
    }

    #[test]
    fn interleaved_heads_come_apart() {
        let s = Dim::symbol("s");
        let (iters, ranges) = iters(&[("h", 12.into()), ("m", s), ("d", 64.into())]);
        let (h, m, d) = (Dim::symbol("h"), Dim::symbol("m"), Dim::symbol("d"));
        // A slice of the packed projections: q, k and v of every head side by side.
        let access = Access::new(&[s, 2304.into()], &[m, h * 64.into() + d + 768.into()]).normalized(&ranges, &iters);
        assert_eq!(access, Access::new(&[s, 36.into(), 64.into()], &[m, h + 12.into(), d]));
        assert!(access.clips(&iters[2]) && !access.clips(&iters[0]));
        assert_eq!(access.innermost(), Some(Name::new("d")));
    }

    #[test]
    fn collapsed_iterators_merge_dimensions() {
        let s = Dim::symbol("s");
        let (iters, ranges) = iters(&[("ij", s * 64.into())]);
        let ij = Dim::symbol("ij");
        let access = Access::new(&[s, 64.into()], &[ij.floordiv(64.into()), ij.modulo(64.into())]);
        let merged = access.normalized(&ranges, &iters);
        assert_eq!(merged, Access::new(&[s * 64.into()], &[ij]));
        // A window's row of channels, collapsed.
        let (k, c) = (Dim::symbol("k"), Dim::Static(64));
        let row = Access::new(&[58.into(), c], &[k + ij.floordiv(c), ij.modulo(c)]).normalized(&ranges, &iters);
        assert_eq!(row, Access::new(&[Dim::Static(58 * 64)], &[k * c + ij]));
        let by_symbol = Access::new(&[64.into(), s], &[ij.floordiv(s), ij.modulo(s)]).normalized(&ranges, &iters);
        assert_eq!(by_symbol.exprs, [ij]);
    }

    #[test]
    fn rows_of_windows_lie_at_one_distance() {
        let (t, r, k) = (Dim::symbol("t"), Dim::symbol("r"), Dim::symbol("k"));
        let shape = [Dim::Static(58), Dim::Static(58), Dim::Static(64)];
        let at = [t.floordiv(4.into()), (t * 28.into() + r * 2.into()) + k.floordiv(64.into()), k.modulo(64.into())];
        assert_eq!(Access::new(&shape, &at).distance(Name::new("r")), Some(128));
        let other = [t, (t + r).modulo(14.into()), k];
        assert_eq!(Access::new(&shape, &other).distance(Name::new("r")), None);
    }

    #[test]
    fn what_is_plain() {
        let (i, j) = (Dim::symbol("i"), Dim::symbol("j"));
        let tiled = [Name::new("i"), Name::new("j")];
        let shape = [Dim::Static(8), Dim::Static(8)];
        assert!(Access::new(&shape, &[j, i + 3.into()]).plain(&tiled).is_some());
        assert!(Access::new(&shape, &[i, i]).plain(&tiled).is_none());
        assert!(Access::new(&shape, &[i * 2.into(), j]).plain(&tiled).is_none());
        assert!(Access::new(&shape, &[i * 2.into(), j]).plain(&tiled[1..]).is_some());
        assert!(Access::new(&shape, &[i + j, 0.into()]).plain(&tiled).is_none());
    }
}
