//! What is known of indices: each is a [`Dim`] over the kernel's symbols and over variables with bounds (program
//! numbers, loop counts), and questions about it are answered on that polynomial. Answers are "proved" or
//! "not proved", never wrong.

use super::Ranges;
use crate::dim::{Atom, Dim, Monomial, Polynomial};
use crate::intern::Name;

/// A variable, from `lower` to `upper`, both included.
struct Variable {
    name: Name,
    lower: Dim,
    upper: Dim,
}

/// A symbol of the kernel. It is `divisor` times `reduced`, which the analysis uses instead.
struct Symbol {
    name: Name,
    reduced: Name,
    divisor: i64,
    min: i64,
    max: i64,
}

/// Bounds of symbols and variables.
#[derive(Default)]
pub struct Facts {
    /// Those that are numbers, by which expressions are simplified.
    ranges: Ranges,
    symbols: Vec<Symbol>,
    /// In order of definition: bounds of one mention only earlier ones.
    variables: Vec<Variable>,
    /// What is not negative here: conditions of the branches around.
    conditions: Vec<Dim>,
}

/// Replacements of which one, or each, must make the statement hold.
enum Bounds {
    Any(Vec<Dim>),
    All(Vec<Dim>),
}

/// Steps of a proof: a proof of one access replaces a handful of variables.
const FUEL: u32 = 24;

impl Facts {
    /// Declares a symbol of values `min` to `max`, multiples of `divisor`.
    pub fn symbol(&mut self, name: Name, min: i64, max: i64, divisor: i64) {
        let divisor = divisor.max(1);
        let reduced = if divisor == 1 { name } else { Name::new(&format!("{name}/{divisor}")) };
        let (min, max) = (min.max(0).div_euclid(divisor), max / divisor);
        self.ranges.set(reduced, min, max);
        self.symbols.push(Symbol { name, reduced, divisor, min, max });
    }
    /// A new variable within bounds, as a dimension.
    pub fn variable(&mut self, hint: &str, lower: Dim, upper: Dim) -> Dim {
        let name = Name::new(&format!("%{hint}{}", self.variables.len()));
        if let (Some((low, _)), Some((_, high))) = (self.ranges.interval(lower), self.ranges.interval(upper)) {
            self.ranges.set(name, low, high.max(low));
        }
        self.variables.push(Variable { name, lower, upper });
        Dim::symbol(name)
    }
    /// An expression of the kernel's symbols as the analysis sees it.
    pub fn normal(&self, dim: Dim) -> Dim {
        let reduced = |name: Name| {
            let symbol = self.symbols.iter().find(|s| s.name == name && s.divisor > 1)?;
            Some(Dim::symbol(symbol.reduced) * Dim::Static(symbol.divisor))
        };
        self.ranges.simplify(dim.substitute(&reduced))
    }
    /// `a floordiv b`, as simple as the bounds that are numbers allow for.
    pub fn quotient(&self, a: Dim, b: Dim) -> Dim {
        self.ranges.floordiv(a, b)
    }
    /// `a mod b`, likewise.
    pub fn remainder(&self, a: Dim, b: Dim) -> Dim {
        self.ranges.modulo(a, b)
    }
    /// Whether `dim` is a multiple of `n` wherever the symbols and variables stand.
    pub fn divisible(&self, dim: Dim, n: i64) -> bool {
        n == 1
            || dim
                .polynomial()
                .is_some_and(|p| p.constant % n == 0 && p.terms.iter().all(|(_, coefficient)| coefficient % n == 0))
    }
    /// Whether `a <= b` is proved.
    pub fn le(&self, a: Dim, b: Dim) -> bool {
        self.is_nonneg(b - a)
    }
    /// Assumes `a <= b` until [`Facts::forget`].
    pub fn assume_le(&mut self, a: Dim, b: Dim) {
        self.conditions.push(b - a);
    }
    /// Assumes `a < b` until [`Facts::forget`].
    pub fn assume_less(&mut self, a: Dim, b: Dim) {
        let difference = b - a;
        // A positive multiple of n is at least n.
        let step =
            difference.polynomial().map_or(1, |p| p.terms.iter().fold(p.constant, |n, t| gcd(n, t.1)).abs().max(1));
        self.conditions.push(difference - Dim::Static(step));
    }
    /// Drops the last assumption.
    pub fn forget(&mut self) {
        self.conditions.pop();
    }
    /// Whether `dim >= 0` is proved.
    pub fn is_nonneg(&self, dim: Dim) -> bool {
        self.nonneg(dim, FUEL) || self.conditions.iter().any(|&c| self.nonneg(dim - c, FUEL))
    }

    fn nonneg(&self, dim: Dim, fuel: u32) -> bool {
        let Some(p) = dim.polynomial() else { return false };
        if p.terms.is_empty() {
            return p.constant >= 0;
        }
        if fuel == 0 {
            return false;
        }
        for atom in self.by_priority(&p) {
            let Some(sign) = self.sign(&p, &atom) else { continue };
            let bounds = if sign > 0 { self.lower(&atom, fuel) } else { self.upper(&atom, fuel) };
            let holds = |bound: &Dim| self.nonneg(replace(&p, &atom, *bound), fuel - 1);
            if let Some(linear) = floordiv_out(&p, &atom)
                && self.nonneg(linear, fuel - 1)
            {
                return true;
            }
            match bounds {
                Bounds::Any(bounds) if bounds.is_empty() => continue,
                Bounds::Any(bounds) => return bounds.iter().any(holds),
                Bounds::All(bounds) => return bounds.iter().all(holds),
            }
        }
        false
    }

    /// The atoms of a polynomial in the order to replace them: operations on variables, variables from the newest, operations on
    /// symbols, symbols.
    fn by_priority(&self, p: &Polynomial) -> Vec<Atom> {
        let mut atoms: Vec<Atom> = p.terms.iter().flat_map(|(m, _)| m.iter().map(|f| f.0.clone())).collect();
        atoms.sort();
        atoms.dedup();
        atoms.sort_by_key(|atom| match atom {
            Atom::Symbol(name) => match self.position(*name) {
                Some(at) => 1 + self.variables.len() - at,
                None => self.variables.len() + 3,
            },
            other => {
                let mut has_variable = false;
                parts(other)
                    .iter()
                    .for_each(|d| d.for_each_symbol(&mut |n| has_variable |= self.position(n).is_some()));
                if has_variable { 0 } else { self.variables.len() + 2 }
            }
        });
        atoms
    }
    fn position(&self, name: Name) -> Option<usize> {
        self.variables.iter().position(|v| v.name == name)
    }

    /// The common sign of the terms with `atom`, which must be linear in it with factors that are not negative.
    fn sign(&self, p: &Polynomial, atom: &Atom) -> Option<i64> {
        let mut sign = 0;
        for (monomial, coefficient) in p.terms.iter().filter(|(m, _)| m.iter().any(|f| f.0 == *atom)) {
            for (factor, power) in monomial {
                let fits = if factor == atom { *power == 1 } else { self.factor_is_nonneg(factor) };
                fits.then_some(())?;
            }
            (sign == 0 || sign == coefficient.signum()).then_some(())?;
            sign = coefficient.signum();
        }
        (sign != 0).then_some(sign)
    }
    fn factor_is_nonneg(&self, atom: &Atom) -> bool {
        match atom {
            Atom::Symbol(name) => match self.position(*name) {
                Some(at) => self.variables[at].lower.as_static().is_some_and(|n| n >= 0),
                None => true,
            },
            Atom::Mod(..) => true,
            Atom::FloorDiv(a, b) => b.as_static().is_some_and(|b| b > 0) && self.nonneg(*a, 4),
            Atom::Max(..) | Atom::Min(..) => false,
        }
    }

    fn lower(&self, atom: &Atom, fuel: u32) -> Bounds {
        Bounds::Any(match *atom {
            Atom::Symbol(name) => match (self.position(name), self.reduced(name)) {
                (Some(at), _) => vec![self.variables[at].lower],
                (None, Some(symbol)) => vec![Dim::Static(symbol.min)],
                (None, None) => vec![Dim::Static(0)],
            },
            Atom::Mod(..) => vec![Dim::Static(0)],
            Atom::FloorDiv(a, b) if self.nonneg(a, fuel / 2) && self.nonneg(b, fuel / 2) => vec![Dim::Static(0)],
            Atom::FloorDiv(..) => vec![],
            Atom::Max(a, b) => vec![a, b],
            Atom::Min(a, b) => return Bounds::All(vec![a, b]),
        })
    }
    fn upper(&self, atom: &Atom, fuel: u32) -> Bounds {
        Bounds::Any(match *atom {
            Atom::Symbol(name) => match (self.position(name), self.reduced(name)) {
                (Some(at), _) => vec![self.variables[at].upper],
                (None, Some(symbol)) if symbol.max < i64::MAX / (1 << 20) => vec![Dim::Static(symbol.max)],
                (None, _) => vec![],
            },
            Atom::Mod(a, b) if self.nonneg(a, fuel / 2) => vec![a, b - Dim::Static(1)],
            Atom::Mod(_, b) => vec![b - Dim::Static(1)],
            Atom::FloorDiv(a, b) => {
                let below = self.below(a).into_iter().flatten().map(|a| self.quotient(a, b));
                self.upper_quotient(a, b).into_iter().chain(below).collect()
            }
            Atom::Min(a, b) => vec![a, b],
            Atom::Max(a, b) => return Bounds::All(vec![a, b]),
        })
    }
    fn reduced(&self, name: Name) -> Option<&Symbol> {
        self.symbols.iter().find(|s| s.reduced == name)
    }
    /// Two bounds of a sum with a minimum, which is either of its parts at most.
    fn below(&self, a: Dim) -> Option<[Dim; 2]> {
        let p = a.polynomial()?;
        let atoms = p.terms.iter().flat_map(|(m, _)| m.iter().map(|f| &f.0));
        let minimum = atoms.filter(|atom| matches!(atom, Atom::Min(..))).find(|atom| self.sign(&p, atom) == Some(1))?;
        let Atom::Min(x, y) = *minimum else { return None };
        Some([x, y].map(|bound| replace(&p, minimum, bound)))
    }
    /// A bound of `a floordiv b` without the variables of `a`.
    fn upper_quotient(&self, a: Dim, b: Dim) -> Option<Dim> {
        let mut most = a;
        for variable in self.variables.iter().rev() {
            let p = most.polynomial()?;
            let atom = Atom::Symbol(variable.name);
            if !p.terms.iter().any(|(m, _)| m.iter().any(|f| f.0 == atom)) {
                continue;
            }
            let bound = if self.sign(&p, &atom)? > 0 { variable.upper } else { variable.lower };
            most = replace(&p, &atom, bound);
        }
        if most == a {
            return None;
        }
        // (b q - 1) floordiv b is q - 1.
        if let (q, Dim::Static(0)) = self.ranges.split(most + Dim::Static(1), b) {
            return Some(q - Dim::Static(1));
        }
        b.as_static().filter(|b| *b > 0).map(|_| self.quotient(most, b))
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.saturating_abs() } else { gcd(b, a % b) }
}

fn parts(atom: &Atom) -> Vec<Dim> {
    match *atom {
        Atom::Symbol(_) => vec![],
        Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => vec![a, b],
    }
}

fn product(monomial: &[(Atom, u32)], coefficient: i64) -> Dim {
    let terms = vec![(Monomial::from_iter(monomial.iter().cloned()), coefficient)];
    if monomial.is_empty() { Dim::Static(coefficient) } else { Polynomial { terms, constant: 0 }.into() }
}

/// The polynomial with every `atom`, which is linear in it, replaced by `by`.
fn replace(p: &Polynomial, atom: &Atom, by: Dim) -> Dim {
    let mut sum = Dim::Static(p.constant);
    for (monomial, coefficient) in &p.terms {
        let rest: Vec<_> = monomial.iter().filter(|f| f.0 != *atom).cloned().collect();
        let term = product(&rest, *coefficient);
        sum = sum + if rest.len() < monomial.len() { term * by } else { term };
    }
    sum
}

/// A lower bound of the polynomial where the only term with `atom = a floordiv c` has a coefficient k c: from
/// `a - c + 1 <= c * atom <= a`.
fn floordiv_out(p: &Polynomial, atom: &Atom) -> Option<Dim> {
    let Atom::FloorDiv(a, Dim::Static(c)) = *atom else { return None };
    let mut sum = Dim::Static(p.constant);
    for (monomial, coefficient) in &p.terms {
        sum = sum
            + match monomial.as_slice() {
                [(only, 1)] if only == atom => {
                    (c > 0 && coefficient % c == 0).then_some(())?;
                    let k = Dim::Static(coefficient / c);
                    if *coefficient > 0 { k * (a - Dim::Static(c - 1)) } else { k * a }
                }
                other if other.iter().any(|f| f.0 == *atom) => return None,
                other => product(other, *coefficient),
            };
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(x: i64) -> Dim {
        Dim::Static(x)
    }

    /// Blocks of 128 cover s elements exactly where s is a multiple of 128.
    #[test]
    fn blocks_cover_what_divides() {
        for (divisor, proved) in [(128, true), (256, true), (64, false), (1, false)] {
            let mut facts = Facts::default();
            facts.symbol(Name::new("s"), 1, i64::MAX, divisor);
            let s = facts.normal(Dim::symbol("s"));
            let grid = facts.normal(Dim::symbol("s").ceildiv(n(128)));
            let pid = facts.variable("p", n(0), grid - n(1));
            assert_eq!(facts.le(pid * n(128) + n(128), s), proved, "divisor {divisor}");
            assert!(facts.le(pid * n(128), s - n(1)), "a block starts inside");
            assert!(facts.is_nonneg(pid * n(128)));
        }
    }

    #[test]
    fn loops_over_whole_blocks_stay_inside() {
        let mut facts = Facts::default();
        facts.symbol(Name::new("s"), 0, i64::MAX, 1);
        let s = Dim::symbol("s");
        let trip = facts.variable("l", n(0), s.floordiv(n(32)) - n(1));
        assert!(facts.le(trip * n(32) + n(32), s));
        assert!(!facts.le(trip * n(32) + n(33), s));
        let all = facts.variable("l", n(0), s.ceildiv(n(32)) - n(1));
        assert!(!facts.le(all * n(32) + n(32), s));
        assert!(facts.le(all * n(32) + n(1), s));
    }

    #[test]
    fn grouped_program_numbers_split() {
        let mut facts = Facts::default();
        facts.symbol(Name::new("m"), 1, i64::MAX, 64);
        let blocks = facts.normal(Dim::symbol("m").ceildiv(n(64)));
        let pid = facts.variable("p", n(0), blocks * n(12) - n(1));
        let (row, column) = (pid.floordiv(n(12)), pid.modulo(n(12)));
        assert!(facts.le(row * n(64) + n(64), facts.normal(Dim::symbol("m"))));
        assert!(facts.le(column * n(32) + n(32), n(384)));
        assert!(!facts.le(column * n(32) + n(33), n(384)));
        let swapped = facts.variable("p", n(0), blocks * n(12) - n(1));
        assert!(facts.le(swapped.floordiv(blocks) * n(32) + n(32), n(384)));
        assert!(facts.le(swapped.modulo(blocks) * n(64) + n(64), facts.normal(Dim::symbol("m"))));
    }

    #[test]
    fn minima_and_symbol_bounds_count() {
        let mut facts = Facts::default();
        facts.symbol(Name::new("s"), 16, 64, 1);
        let s = Dim::symbol("s");
        assert!(facts.le(n(16), s) && facts.le(s, n(64)) && !facts.le(s, n(63)));
        assert!(facts.le(s.min(n(8)), n(8)) && facts.le(n(8), s.min(n(8))));
        assert!(facts.le(s.max(n(70)), n(70)));
        assert!(!facts.le(Dim::Dynamic, n(1)));
    }

    /// Tiles of 16 in a block of at most 176 elements, which is cut off at 1000.
    #[test]
    fn tiles_of_a_block_are_numbered() {
        let mut facts = Facts::default();
        let first = facts.variable("p", n(0), n(5)) * n(176);
        let count = (n(1000) - first).min(n(176));
        let tile = facts.variable("l", n(0), facts.quotient(count + n(15), n(16)) - n(1));
        assert!(facts.le(tile + n(1), n(11)) && !facts.le(tile + n(1), n(10)));
        assert!(facts.le(tile * n(16) + n(16), n(176)) && !facts.le(first + tile * n(16) + n(16), n(1000)));
        let whole = facts.variable("l", n(0), facts.quotient(count, n(16)) - n(1));
        assert!(facts.le(first + whole * n(16) + n(16), n(1000)));
    }

    #[test]
    fn conditions_count_in_whole_steps() {
        let mut facts = Facts::default();
        let trip = facts.variable("l", n(0), n(3));
        let ahead = trip * n(32) + n(64);
        assert!(!facts.le(ahead + n(32), n(128)));
        facts.assume_less(ahead, n(128));
        assert!(facts.le(ahead + n(32), n(128)) && !facts.le(ahead + n(33), n(128)));
        facts.forget();
        assert!(!facts.le(ahead + n(32), n(128)));
    }

    #[test]
    fn divisibility() {
        let mut facts = Facts::default();
        facts.symbol(Name::new("s"), 0, 1024, 8);
        let s = facts.normal(Dim::symbol("s"));
        assert!(
            facts.divisible(s * n(2) + n(16), 16) && !facts.divisible(s + n(4), 8) && facts.divisible(Dim::Dynamic, 1)
        );
    }
}
