//! Ranges of symbols, and the simplifications of index arithmetic that they allow: the one engine for it.
//!
//! [`interval`] is arithmetic on bounds that are numbers. [`Ranges`] has such bounds for symbols, and simplifies expressions by them.
//! [`Facts`] has bounds that are expressions themselves (a loop's counter is below a symbolic size) and proves inequalities by them; what
//! it proves them of, [`Ranges`] has simplified.

mod facts;
pub mod interval;

pub use facts::Facts;
pub use interval::Interval;

use crate::dim::{Atom, Dim, Polynomial};
use crate::intern::Name;
use rustc_hash::FxHashMap;

/// A larger bound of a size is none: frontends know no better.
const UNBOUNDED: i64 = 65536;
const USUAL: i64 = 1024;

/// The example of a symbol's values that costs and plans are made for: its greatest, or a usual one where it has no bound to speak of.
pub fn counted(low: i64, high: i64) -> i64 {
    if high > UNBOUNDED { USUAL.max(low) } else { high }
}

/// Inclusive bounds of symbols (a function's, or a nest's iterators).
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    bounds: FxHashMap<Name, (i64, i64)>,
    /// The symbolic extents that iterators run over.
    extents: FxHashMap<Name, Dim>,
}

impl Ranges {
    pub fn new() -> Ranges {
        Self::default()
    }
    /// States that `low <= name <= high`.
    pub fn set(&mut self, name: Name, low: i64, high: i64) {
        self.bounds.insert(name, (low, high));
        self.extents.remove(&name);
    }
    /// States that `name` runs from 0 up to, not including, `extent`.
    pub fn set_iterator(&mut self, name: Name, extent: Dim) {
        let high = self.interval(extent).map_or(i64::MAX, |r| r.1.saturating_sub(1));
        self.set(name, 0, high.max(0));
        if extent.is_dynamic() {
            self.extents.insert(name, extent);
        }
    }
    pub fn get(&self, name: Name) -> Option<(i64, i64)> {
        self.bounds.get(&name).copied()
    }

    /// What an expression counts as where costs are weighed, with its symbols as [`counted`]. `None` where a symbol has no range, or 64 bits do not hold it.
    pub fn counted(&self, dim: Dim) -> Option<i64> {
        dim.evaluate(&|name| self.get(name).map(|(low, high)| counted(low, high)))
    }

    /// Inclusive bounds of an expression, by interval arithmetic; `None` where a symbol has none.
    pub fn interval(&self, dim: Dim) -> Option<Interval> {
        let e = match dim {
            Dim::Static(n) => return Some((n, n)),
            Dim::Dynamic => return None,
            Dim::Expr(e) => e.data(),
        };
        let (mut low, mut high) = (e.constant, e.constant);
        for (monomial, coefficient) in &e.terms {
            let mut product = (*coefficient, *coefficient);
            for (atom, power) in monomial {
                let factor = self.atom_interval(atom)?;
                for _ in 0..*power {
                    product = interval::mul(product, factor);
                }
            }
            (low, high) = interval::add((low, high), product);
        }
        Some((low, high))
    }

    /// A bound from below that also knows that an iterator ends before its extent; `None` where a symbol has no bounds.
    pub fn least(&self, dim: Dim) -> Option<i64> {
        let low = self.interval(dim)?.0;
        let Some(p) = dim.polynomial() else { return Some(low) };
        let ends = |(monomial, coefficient): &(crate::dim::Monomial, i64)| match monomial.as_slice() {
            [(Atom::Symbol(name), 1)] if *coefficient < 0 => Some((*name, *self.extents.get(name)?)),
            _ => None,
        };
        let Some((name, extent)) = p.terms.iter().find_map(ends) else { return Some(low) };
        let ended = dim.substitute(&|n| (n == name).then_some(extent - Dim::Static(1)));
        // An iterator may be part of other terms, which then do not belong to its last turn.
        let alone = p.terms.iter().filter(|t| mentions(t, name)).count() == 1;
        if alone { Some(low.max(self.least(ended)?)) } else { Some(low) }
    }

    fn atom_interval(&self, atom: &Atom) -> Option<Interval> {
        match *atom {
            Atom::Symbol(name) => self.get(name),
            Atom::FloorDiv(a, b) => interval::floordiv(self.interval(a)?, self.interval(b)?),
            Atom::Mod(a, b) => interval::modulo(self.interval(a), self.interval(b)?),
            Atom::Max(a, b) => Some(interval::max(self.interval(a)?, self.interval(b)?)),
            Atom::Min(a, b) => Some(interval::min(self.interval(a)?, self.interval(b)?)),
        }
    }

    /// `a floordiv b`, where the bounds split `a` into a multiple of `b` and a rest below it.
    pub fn floordiv(&self, a: Dim, b: Dim) -> Dim {
        let (quotient, rest) = self.split(a, b);
        match self.interval(rest) {
            Some((low, high)) if low >= 0 && self.below(high, rest, b) => quotient,
            _ => match self.coarser(rest, b) {
                // g q + r, with r in 0..g, over g m is q over m.
                Some((_, q, _, m)) => quotient + self.floordiv(q, m),
                None if quotient == Dim::Static(0) => a.floordiv(b),
                None => quotient + rest.floordiv(b),
            },
        }
    }
    /// `a mod b`, likewise.
    pub fn modulo(&self, a: Dim, b: Dim) -> Dim {
        let (_, rest) = self.split(a, b);
        match self.interval(rest) {
            Some((low, high)) if low >= 0 && self.below(high, rest, b) => rest,
            _ => match self.coarser(rest, b) {
                Some((g, q, r, m)) => g * self.modulo(q, m) + r,
                None => rest.modulo(b),
            },
        }
    }
    /// `a` as g q + r and `b` as g m, with r known to be in 0..g: `(g, q, r, m)`, for the greatest coefficient g that does it.
    fn coarser(&self, a: Dim, b: Dim) -> Option<(Dim, Dim, Dim, Dim)> {
        let Dim::Static(whole) = b else { return None };
        let mut steps: Vec<i64> = a.polynomial()?.terms.iter().map(|t| t.1.abs()).collect();
        steps.retain(|&g| g > 1 && g < whole && whole % g == 0);
        steps.sort_unstable_by(|x, y| y.cmp(x));
        steps.into_iter().find_map(|g| {
            let (q, r) = self.split(a, Dim::Static(g));
            let fits = self.interval(r).is_some_and(|(low, high)| low >= 0 && high < g);
            fits.then_some((Dim::Static(g), q, r, Dim::Static(whole / g)))
        })
    }
    /// The expression with every `floordiv` and `mod` simplified.
    pub fn simplify(&self, dim: Dim) -> Dim {
        let Some(p) = dim.polynomial().filter(|p| !p.terms.is_empty()) else { return dim };
        let mut sum = Dim::Static(p.constant);
        for (monomial, coefficient) in &p.terms {
            let mut product = Dim::Static(*coefficient);
            for (atom, power) in monomial {
                let value = match *atom {
                    Atom::Symbol(name) => Dim::symbol(name),
                    Atom::FloorDiv(a, b) => self.floordiv(self.simplify(a), self.simplify(b)),
                    Atom::Mod(a, b) => self.modulo(self.simplify(a), self.simplify(b)),
                    Atom::Max(a, b) => self.max(self.simplify(a), self.simplify(b)),
                    Atom::Min(a, b) => self.min(self.simplify(a), self.simplify(b)),
                };
                for _ in 0..*power {
                    product = product * value;
                }
            }
            sum = sum + product;
        }
        join_quotients(sum)
    }
    /// Whether `a <= b` always holds.
    pub fn always_le(&self, a: Dim, b: Dim) -> bool {
        self.least(b - a).is_some_and(|n| n >= 0)
    }
    fn max(&self, a: Dim, b: Dim) -> Dim {
        if self.always_le(a, b) {
            b
        } else if self.always_le(b, a) {
            a
        } else {
            a.max(b)
        }
    }
    fn min(&self, a: Dim, b: Dim) -> Dim {
        if self.always_le(a, b) {
            a
        } else if self.always_le(b, a) {
            b
        } else {
            a.min(b)
        }
    }

    /// Whether `rest < b` always holds: by the numbers, or since `b - 1` is what an iterator over `b` reaches.
    fn below(&self, high: i64, rest: Dim, b: Dim) -> bool {
        match b {
            Dim::Static(b) => high < b,
            _ => self.least(b - rest).is_some_and(|n| n > 0),
        }
    }

    /// `a` as `quotient * b + rest`, moving into the quotient the terms that are multiples of `b`.
    pub(super) fn split(&self, a: Dim, b: Dim) -> (Dim, Dim) {
        let (Some(p), Some(divisor)) = (a.polynomial(), b.polynomial()) else { return (Dim::Static(0), a) };
        let (mut quotient, mut rest) = (Dim::Static(0), Dim::Static(0));
        for (monomial, coefficient) in &p.terms {
            let term: Dim = Polynomial { terms: vec![(monomial.clone(), *coefficient)], constant: 0 }.into();
            match exact_quotient(monomial, *coefficient, &divisor) {
                Some(q) => quotient = quotient + q,
                None => rest = rest + term,
            }
        }
        match b {
            Dim::Static(b) if b > 0 => {
                (quotient + Dim::Static(p.constant.div_euclid(b)), rest + Dim::Static(p.constant.rem_euclid(b)))
            }
            _ => (quotient, rest + Dim::Static(p.constant)),
        }
    }
}

fn mentions(term: &(crate::dim::Monomial, i64), name: Name) -> bool {
    let (mut found, one) = (false, Polynomial { terms: vec![(term.0.clone(), 1)], constant: 0 });
    Dim::from(one).for_each_symbol(&mut |n| found |= n == name);
    found
}

/// The sum with c q (x floordiv q) + c (x mod q) written as c x, and with c q ((x floordiv q) mod m) + c (x mod q) as c (x mod q m).
fn join_quotients(sum: Dim) -> Dim {
    let Some(p) = sum.polynomial() else { return sum };
    let alone = |m: &crate::dim::Monomial| if let [(atom, 1)] = m.as_slice() { Some(atom.clone()) } else { None };
    for (rest, c) in p.terms.iter().filter_map(|(m, c)| Some((alone(m)?, *c))) {
        let Atom::Mod(x, q) = rest else { continue };
        let Dim::Static(size) = q else { continue };
        let quotient = x.floordiv(q);
        let whole = |atom: Atom| match atom {
            Atom::FloorDiv(y, r) if y == x && r == q => Some((quotient, x)),
            Atom::Mod(y, m) if y == quotient => Some((quotient.modulo(m), x.modulo(q * m))),
            _ => None,
        };
        let steps = p.terms.iter().filter(|(_, d)| Some(*d) == c.checked_mul(size));
        if let Some((high, joined)) = steps.filter_map(|(m, _)| whole(alone(m)?)).next() {
            let (c, steps) = (Dim::Static(c), Dim::Static(c * size));
            return join_quotients(sum - c * x.modulo(q) - steps * high + c * joined);
        }
    }
    sum
}

/// `term / divisor` where the divisor is a constant or a single term that divides it.
fn exact_quotient(monomial: &crate::dim::Monomial, coefficient: i64, divisor: &Polynomial) -> Option<Dim> {
    match (divisor.terms.as_slice(), divisor.constant) {
        ([], c) if c != 0 && coefficient % c == 0 => {
            Some(Polynomial { terms: vec![(monomial.clone(), coefficient / c)], constant: 0 }.into())
        }
        ([(factors, c)], 0) if coefficient % c == 0 => {
            let mut rest = monomial.clone();
            for (atom, power) in factors {
                let f = rest.iter_mut().find(|f| f.0 == *atom && f.1 >= *power)?;
                f.1 -= power;
            }
            rest.retain(|f| f.1 > 0);
            if rest.is_empty() {
                return Some(Dim::Static(coefficient / c));
            }
            Some(Polynomial { terms: vec![(rest, coefficient / c)], constant: 0 }.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linearized_indices_come_apart_again() {
        let mut r = Ranges::new();
        let (h, d, s, i) = (Dim::symbol("h"), Dim::symbol("d"), Dim::symbol("s"), Dim::symbol("i"));
        r.set(Name::new("s"), 1, 1024);
        r.set_iterator(Name::new("h"), 12.into());
        r.set_iterator(Name::new("d"), 64.into());
        r.set_iterator(Name::new("i"), s);
        let linear = h * 64.into() + d;
        assert_eq!(r.floordiv(linear, 64.into()), h);
        assert_eq!(r.modulo(linear, 64.into()), d);
        assert_eq!(r.modulo(linear + 768.into(), 768.into()), linear);
        assert_eq!(r.floordiv(linear + 768.into(), 768.into()), Dim::Static(1));
        assert_eq!(r.floordiv(i * s, s), i);
        let (j, k) = (Dim::symbol("j"), Dim::symbol("k"));
        r.set_iterator(Name::new("j"), s);
        r.set_iterator(Name::new("k"), s + 1.into());
        assert_eq!((r.floordiv(i * s + j, s), r.modulo(i * s + j, s)), (i, j));
        assert_ne!(r.modulo(i * s + k, s), k);
        assert!(r.always_le(k, s) && !r.always_le(k, s - 1.into()) && !r.always_le(j * k, s));
        assert_ne!(r.floordiv(linear, 32.into()), h);
        assert_eq!(r.simplify((h * 64.into() + d).floordiv(64.into()) + d), h + d);
    }

    #[test]
    fn remainders_join_with_remainders_of_quotients() {
        let (r, k) = (Ranges::new(), Dim::symbol("k"));
        let (inner, outer) = (k.modulo(64.into()), k.floordiv(64.into()).modulo(48.into()));
        assert_eq!(r.simplify(inner + outer * 64.into()), k.modulo(3072.into()));
        assert_eq!(r.simplify(inner * 3.into() + outer * 192.into()), k.modulo(3072.into()) * 3.into());
        assert_ne!(r.simplify(inner + outer * 32.into()), k.modulo(3072.into()));
    }

    #[test]
    fn reshapes_of_clamped_indices_come_apart() {
        let mut r = Ranges::new();
        let (j, k, l) = (Dim::symbol("j"), Dim::symbol("k"), Dim::symbol("l"));
        r.set_iterator(Name::new("j"), 128.into());
        r.set(Name::new("k"), 0, 65);
        r.set(Name::new("l"), 0, 65);
        let clamp = |d: Dim| (d - 1.into()).max(0.into()).min(63.into());
        let flat = j * 4096.into() + clamp(k) * 64.into() + clamp(l);
        let group = flat.floordiv(65536.into());
        let inside = flat.modulo(65536.into());
        assert_eq!(r.simplify(group * 16.into() + inside.floordiv(4096.into())), j);
        assert_eq!(r.simplify(inside.floordiv(64.into()).modulo(64.into())), clamp(k));
        assert_eq!(r.simplify(inside.modulo(64.into())), clamp(l));
        // Rests that may be negative or too large stay as they are.
        let wide = j * 4096.into() + k * 64.into() + l;
        assert_eq!(r.simplify(wide.floordiv(65536.into())), wide.floordiv(65536.into()));
    }

    #[test]
    fn simplified_expressions_keep_their_values() {
        let mut r = Ranges::new();
        let (a, b) = (Dim::symbol("a"), Dim::symbol("b"));
        r.set(Name::new("a"), -3, 9);
        r.set(Name::new("b"), 0, 11);
        let sums = [a * 12.into() + b, a * 24.into() + b * 2.into(), a * 12.into() - b, a * 6.into() + b + 5.into()];
        for sum in sums {
            for (q, s) in [(48, 12), (24, 6), (36, 4), (144, 24)] {
                let (q, s) = (Dim::Static(q), Dim::Static(s));
                let e = sum.floordiv(q) * q + sum.modulo(q).floordiv(s) * s + sum.modulo(q).modulo(s);
                let simple = r.simplify(e);
                for (x, y) in (-3..=9).flat_map(|x| (0..=11).map(move |y| (x, y))) {
                    let at = |n: Name| Some(Dim::Static(if n == Name::new("a") { x } else { y }));
                    assert_eq!(e.substitute(&at), simple.substitute(&at), "{e} as {simple} at {x}, {y}");
                }
            }
        }
    }

    #[test]
    fn intervals() {
        let mut r = Ranges::new();
        r.set(Name::new("x"), -3, 5);
        let x = Dim::symbol("x");
        assert_eq!(r.interval(x * x), Some((-15, 25)));
        assert_eq!(r.interval(x.modulo(4.into())), Some((0, 3)));
        assert_eq!(r.interval(Dim::symbol("unknown")), None);
        assert!(r.always_le(x, 5.into()) && !r.always_le(x, 4.into()));
    }
}
