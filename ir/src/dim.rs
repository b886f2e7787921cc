//! Dimensions: integers, or canonical expressions over a function's symbols.
//!
//! An expression is a polynomial with integer coefficients over *atoms*: symbols, and the
//! non-linear operations (`floordiv`, `mod`, `max`, `min`) of two dimensions. Terms are kept sorted and
//! merged, so equal polynomials are the same interned handle and need no proof of equality.
//! Index maps use the same algebra, with a nest's iterators as the symbols.

use crate::intern::{Name, interned};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;

/// The size of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    Static(i64),
    /// An expression over symbols, never a constant.
    Expr(DimExpr),
    /// Not known (`?` with no symbol). MLIR's form; equal to nothing a pass may rely on.
    Dynamic,
}

interned!(
    /// An interned, canonical expression over symbols.
    DimExpr, Polynomial, EXPRS
);

/// What a polynomial's monomials multiply.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Atom {
    Symbol(Name),
    FloorDiv(Dim, Dim),
    Mod(Dim, Dim),
    Max(Dim, Dim),
    Min(Dim, Dim),
}

/// Factors with their powers, sorted by [`Atom`] order.
pub type Monomial = SmallVec<[(Atom, u32); 1]>;

/// A sum of `coefficient * monomial` terms, sorted, plus a constant.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Polynomial {
    pub terms: Vec<(Monomial, i64)>,
    pub constant: i64,
}

impl Atom {
    fn rank(&self) -> u8 {
        match self {
            Atom::Symbol(_) => 0,
            Atom::FloorDiv(..) => 1,
            Atom::Mod(..) => 2,
            Atom::Max(..) => 3,
            Atom::Min(..) => 4,
        }
    }
}
impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        use Atom::*;
        match (self, other) {
            (Symbol(a), Symbol(b)) => a.cmp(b),
            (FloorDiv(a, b), FloorDiv(c, d))
            | (Mod(a, b), Mod(c, d))
            | (Max(a, b), Max(c, d))
            | (Min(a, b), Min(c, d)) => a.structural_cmp(*c).then_with(|| b.structural_cmp(*d)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Polynomial {
    fn constant(constant: i64) -> Self {
        Polynomial { terms: Vec::new(), constant }
    }
    fn atom(atom: Atom) -> Self {
        Polynomial { terms: vec![(SmallVec::from_iter([(atom, 1)]), 1)], constant: 0 }
    }
    /// Degree first (higher first), then the factors' order, so `s * t + s + 1` reads as written.
    fn term_cmp(a: &Monomial, b: &Monomial) -> Ordering {
        let degree = |m: &Monomial| m.iter().map(|f| f.1).sum::<u32>();
        degree(b).cmp(&degree(a)).then_with(|| a.cmp(b))
    }
    fn normalized(mut self) -> Self {
        self.terms.sort_by(|a, b| Self::term_cmp(&a.0, &b.0));
        let mut merged: Vec<(Monomial, i64)> = Vec::with_capacity(self.terms.len());
        for (monomial, coefficient) in self.terms {
            match merged.last_mut() {
                Some(last) if last.0 == monomial => last.1 = last.1.saturating_add(coefficient),
                _ => merged.push((monomial, coefficient)),
            }
        }
        merged.retain(|t| t.1 != 0);
        Polynomial { terms: merged, constant: self.constant }
    }
    fn add(&self, other: &Self) -> Self {
        let terms = self.terms.iter().chain(&other.terms).cloned().collect();
        Polynomial { terms, constant: self.constant.saturating_add(other.constant) }.normalized()
    }
    fn mul(&self, other: &Self) -> Self {
        let mut out = Polynomial::constant(self.constant.saturating_mul(other.constant));
        for (m, c) in &self.terms {
            out.terms.push((m.clone(), c.saturating_mul(other.constant)));
            for (n, d) in &other.terms {
                out.terms.push((monomial_product(m, n), c.saturating_mul(*d)));
            }
        }
        for (n, d) in &other.terms {
            out.terms.push((n.clone(), d.saturating_mul(self.constant)));
        }
        out.normalized()
    }
    /// The polynomial over `divisor`, where every coefficient is a multiple of it.
    fn exact_div(&self, divisor: i64) -> Option<Self> {
        if divisor == 0 || self.constant % divisor != 0 || self.terms.iter().any(|t| t.1 % divisor != 0) {
            return None;
        }
        let terms = self.terms.iter().map(|(m, c)| (m.clone(), c / divisor)).collect();
        Some(Polynomial { terms, constant: self.constant / divisor })
    }
}

fn monomial_product(a: &Monomial, b: &Monomial) -> Monomial {
    let mut out = a.clone();
    for (atom, power) in b {
        match out.iter_mut().find(|f| f.0 == *atom) {
            Some(f) => f.1 += power,
            None => out.push((atom.clone(), *power)),
        }
    }
    out.sort();
    out
}

impl Dim {
    /// The dimension named by a symbol.
    pub fn symbol(name: impl Into<Name>) -> Dim {
        Polynomial::atom(Atom::Symbol(name.into())).into()
    }
    #[inline]
    pub fn as_static(self) -> Option<i64> {
        if let Dim::Static(n) = self { Some(n) } else { None }
    }
    #[inline]
    pub fn is_static(self) -> bool {
        matches!(self, Dim::Static(_))
    }
    pub fn is_dynamic(self) -> bool {
        !self.is_static()
    }
    /// The symbol's name, where the dimension is just a symbol.
    pub fn as_symbol(self) -> Option<Name> {
        match self.as_atom() {
            Some(Atom::Symbol(name)) => Some(*name),
            _ => None,
        }
    }
    /// What the dimension is, where it is no sum or product: a symbol, a quotient, a remainder, a maximum, a minimum.
    pub fn as_atom(self) -> Option<&'static Atom> {
        let Dim::Expr(e) = self else { return None };
        match (e.data().constant, e.data().terms.as_slice()) {
            (0, [(m, 1)]) => match m.as_slice() {
                [(atom, 1)] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }
    /// As a polynomial; `None` for an unknown dimension.
    pub fn polynomial(self) -> Option<Polynomial> {
        match self {
            Dim::Static(n) => Some(Polynomial::constant(n)),
            Dim::Expr(e) => Some(e.data().clone()),
            Dim::Dynamic => None,
        }
    }
    fn both(a: Dim, b: Dim, f: impl Fn(&Polynomial, &Polynomial) -> Polynomial) -> Dim {
        match (a.polynomial(), b.polynomial()) {
            (Some(a), Some(b)) => f(&a, &b).into(),
            _ => Dim::Dynamic,
        }
    }
    /// `a` and `b`, where the dimension is just `a floordiv b` with a positive integer `b`.
    fn as_quotient(self) -> Option<(Dim, i64)> {
        let p = self.polynomial()?;
        match (p.constant, p.terms.as_slice()) {
            (0, [(m, 1)]) => match m.as_slice() {
                [(Atom::FloorDiv(a, Dim::Static(b)), 1)] if *b > 0 => Some((*a, *b)),
                _ => None,
            },
            _ => None,
        }
    }
    /// `floor(self / divisor)`. `self floordiv 1` is `self`; exact multiples divide out; a quotient divided again is one quotient.
    pub fn floordiv(self, divisor: Dim) -> Dim {
        match (self, divisor) {
            (Dim::Static(a), Dim::Static(b)) if b > 0 => Dim::Static(a.div_euclid(b)),
            (Dim::Dynamic, _) | (_, Dim::Dynamic) => Dim::Dynamic,
            (a, Dim::Static(b)) if b > 0 => match (a.polynomial().and_then(|p| p.exact_div(b)), a.as_quotient()) {
                (Some(p), _) => p.into(),
                (None, Some((a, c))) if c.checked_mul(b).is_some() => a.floordiv(Dim::Static(c * b)),
                _ => Polynomial::atom(Atom::FloorDiv(a, divisor)).into(),
            },
            (a, b) if a == b => Dim::Static(1),
            (a, b) => Polynomial::atom(Atom::FloorDiv(a, b)).into(),
        }
    }
    /// `ceil(self / divisor)`, for positive divisors.
    pub fn ceildiv(self, divisor: Dim) -> Dim {
        (self + divisor + Dim::Static(-1)).floordiv(divisor)
    }
    pub fn modulo(self, divisor: Dim) -> Dim {
        match (self, divisor) {
            (Dim::Static(a), Dim::Static(b)) if b > 0 => Dim::Static(a.rem_euclid(b)),
            (Dim::Dynamic, _) | (_, Dim::Dynamic) => Dim::Dynamic,
            (a, Dim::Static(b)) if b > 0 && a.polynomial().is_some_and(|p| p.exact_div(b).is_some()) => Dim::Static(0),
            (a, b) if a == b => Dim::Static(0),
            (a, b) => Polynomial::atom(Atom::Mod(a, b)).into(),
        }
    }
    pub fn max(self, other: Dim) -> Dim {
        self.extremum(other, i64::max, Atom::Max)
    }
    pub fn min(self, other: Dim) -> Dim {
        self.extremum(other, i64::min, Atom::Min)
    }
    fn extremum(self, other: Dim, fold: fn(i64, i64) -> i64, atom: fn(Dim, Dim) -> Atom) -> Dim {
        match (self, other) {
            (Dim::Static(a), Dim::Static(b)) => Dim::Static(fold(a, b)),
            (Dim::Dynamic, _) | (_, Dim::Dynamic) => Dim::Dynamic,
            (a, b) if a == b => a,
            (a, b) if a.structural_cmp(b) == Ordering::Greater => Polynomial::atom(atom(b, a)).into(),
            (a, b) => Polynomial::atom(atom(a, b)).into(),
        }
    }

    /// The value with each symbol bound by `bind`; `None` where a symbol is unbound or the result overflows.
    pub fn evaluate(self, bind: &dyn Fn(Name) -> Option<i64>) -> Option<i64> {
        let Dim::Expr(e) = self else { return self.as_static() };
        let mut sum = e.data().constant;
        for (monomial, coefficient) in &e.data().terms {
            let mut product = *coefficient;
            for (atom, power) in monomial {
                let value = atom.evaluate(bind)?;
                for _ in 0..*power {
                    product = product.checked_mul(value)?;
                }
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// The expression with each symbol replaced by `map`'s answer (`None` keeps the symbol).
    pub fn substitute(self, map: &dyn Fn(Name) -> Option<Dim>) -> Dim {
        let Dim::Expr(e) = self else { return self };
        let mut sum = Dim::Static(e.data().constant);
        for (monomial, coefficient) in &e.data().terms {
            let mut product = Dim::Static(*coefficient);
            for (atom, power) in monomial {
                let value = atom.substitute(map);
                for _ in 0..*power {
                    product = product * value;
                }
            }
            sum = sum + product;
        }
        sum
    }

    /// Calls `f` for every symbol in the expression, repeats included, in the expression's order.
    pub fn for_each_symbol(self, f: &mut dyn FnMut(Name)) {
        let Dim::Expr(e) = self else { return };
        for (atom, _) in e.data().terms.iter().flat_map(|t| &t.0) {
            match atom {
                Atom::Symbol(name) => f(*name),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.for_each_symbol(f);
                    b.for_each_symbol(f);
                }
            }
        }
    }

    /// An order that does not depend on interned ids: integers, then expressions by structure.
    pub fn structural_cmp(self, other: Dim) -> Ordering {
        let rank = |d: Dim| match d {
            Dim::Static(_) => 0,
            Dim::Expr(_) => 1,
            Dim::Dynamic => 2,
        };
        match (self, other) {
            (Dim::Static(a), Dim::Static(b)) => a.cmp(&b),
            (Dim::Expr(a), Dim::Expr(b)) if a == b => Ordering::Equal,
            (Dim::Expr(a), Dim::Expr(b)) => {
                a.data().terms.cmp(&b.data().terms).then_with(|| a.data().constant.cmp(&b.data().constant))
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl Atom {
    fn evaluate(&self, bind: &dyn Fn(Name) -> Option<i64>) -> Option<i64> {
        let both = |a: Dim, b: Dim| Some((a.evaluate(bind)?, b.evaluate(bind)?));
        match *self {
            Atom::Symbol(name) => bind(name),
            Atom::FloorDiv(a, b) => both(a, b).and_then(|(a, b)| (b > 0).then(|| a.div_euclid(b))),
            Atom::Mod(a, b) => both(a, b).and_then(|(a, b)| (b > 0).then(|| a.rem_euclid(b))),
            Atom::Max(a, b) => both(a, b).map(|(a, b)| a.max(b)),
            Atom::Min(a, b) => both(a, b).map(|(a, b)| a.min(b)),
        }
    }
    fn substitute(&self, map: &dyn Fn(Name) -> Option<Dim>) -> Dim {
        match *self {
            Atom::Symbol(name) => map(name).unwrap_or_else(|| Dim::symbol(name)),
            Atom::FloorDiv(a, b) => a.substitute(map).floordiv(b.substitute(map)),
            Atom::Mod(a, b) => a.substitute(map).modulo(b.substitute(map)),
            Atom::Max(a, b) => a.substitute(map).max(b.substitute(map)),
            Atom::Min(a, b) => a.substitute(map).min(b.substitute(map)),
        }
    }
}

impl From<Polynomial> for Dim {
    fn from(p: Polynomial) -> Dim {
        if p.terms.is_empty() { Dim::Static(p.constant) } else { Dim::Expr(DimExpr::new(p)) }
    }
}
impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::Static(n)
    }
}
impl std::ops::Add for Dim {
    type Output = Dim;
    fn add(self, other: Dim) -> Dim {
        match (self, other) {
            (Dim::Static(a), Dim::Static(b)) => Dim::Static(a.saturating_add(b)),
            _ => Dim::both(self, other, Polynomial::add),
        }
    }
}
impl std::ops::Mul for Dim {
    type Output = Dim;
    fn mul(self, other: Dim) -> Dim {
        match (self, other) {
            (Dim::Static(a), Dim::Static(b)) => Dim::Static(a.saturating_mul(b)),
            _ => Dim::both(self, other, Polynomial::mul),
        }
    }
}
impl std::ops::Sub for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self + Dim::Static(-1) * other
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Static(n) => write!(f, "{n}"),
            Dim::Dynamic => f.write_str("?"),
            Dim::Expr(e) => write!(f, "{}", e.data()),
        }
    }
}
impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl fmt::Display for Polynomial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (monomial, coefficient)) in self.terms.iter().enumerate() {
            match (i, *coefficient < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            if magnitude != 1 {
                write!(f, "{magnitude} * ")?;
            }
            let factors = monomial.iter().flat_map(|(atom, power)| std::iter::repeat_n(atom, *power as usize));
            for (j, atom) in factors.enumerate() {
                write!(f, "{}{atom}", if j == 0 { "" } else { " * " })?;
            }
        }
        match self.constant {
            0 if !self.terms.is_empty() => Ok(()),
            c if self.terms.is_empty() => write!(f, "{c}"),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) => write!(f, "{name}"),
            Atom::FloorDiv(a, b) => write!(f, "(({a}) floordiv ({b}))"),
            Atom::Mod(a, b) => write!(f, "(({a}) mod ({b}))"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_the_same_handle() {
        let (s, t) = (Dim::symbol("s"), Dim::symbol("t"));
        assert_eq!((s + t) * (s - t), s * s - t * t);
        assert_eq!(s + 1.into() - s, Dim::Static(1));
        assert_eq!((s * 4.into()).floordiv(2.into()), s * 2.into());
        assert_eq!((s * 4.into()).modulo(2.into()), Dim::Static(0));
        assert_eq!(s.max(t), t.max(s));
        assert_ne!(s, t);
    }

    #[test]
    fn prints_readably() {
        let (s, t) = (Dim::symbol("s"), Dim::symbol("t"));
        assert_eq!((t * s * 2.into() - s + 3.into()).to_string(), "2 * s * t - s + 3");
        assert_eq!(s.ceildiv(64.into()).to_string(), "((s + 63) floordiv (64))");
    }

    #[test]
    fn evaluates_and_substitutes() {
        let (s, t) = (Dim::symbol("s"), Dim::symbol("t"));
        let e = s.ceildiv(64.into()) * t - 1.into();
        let bind = |n: Name| if n == "s" { Some(65) } else { Some(3) };
        assert_eq!(e.evaluate(&bind), Some(5));
        assert_eq!(e.substitute(&|n| (n == "s").then_some(Dim::Static(128))), t * 2.into() - 1.into());
        assert_eq!(e.evaluate(&|_| None), None);
    }
}
