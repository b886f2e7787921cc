//! What iterators stand for at a place in a program: an index, or the elements along a dimension of its tiles.

use super::program::{Program, RANK};
use crate::schedule::access::{Access, index_number};
use rc_dialects::op;
use rc_ir::dim::Atom;
use rc_ir::{Diagnostic, Dim, Name, Result, Value};

/// An iterator at a place in a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bind {
    /// Its value, or the first of those along the tile's dimension `axis`.
    pub base: Value,
    pub axis: Option<usize>,
    /// Elements at once; 1 without an axis.
    pub size: i64,
    pub extent: Dim,
    /// Whether the tile never reaches past the extent.
    pub exact: bool,
}

impl Bind {
    /// As a part of a tile, which may lie past the extent where that one does.
    pub fn within(self, tile: &Bind) -> Bind {
        Bind { exact: self.exact && tile.exact, ..self }
    }
}

/// The iterators that are bound here.
#[derive(Clone, Default, Debug)]
pub struct Scope {
    pub binds: Vec<(Name, Bind)>,
    /// Index tiles of the gather at hand: `_0`, `_1`, ….
    pub indices: Vec<Value>,
    /// Whether an index may be negative: what it names is zero.
    pub may_miss: bool,
}

/// A result of a nest that is in registers.
#[derive(Clone, Debug)]
pub struct Held {
    /// The nest's result.
    pub value: Value,
    pub tile: Value,
    /// Where it belongs, and what the iterators there stood for.
    pub access: Access,
    pub binds: Vec<(Name, Bind)>,
}

impl Scope {
    pub fn get(&self, name: Name) -> Option<&Bind> {
        self.binds.iter().find(|b| b.0 == name).map(|b| &b.1)
    }
    pub fn with(&self, name: Name, bind: Bind) -> Scope {
        let mut out = self.clone();
        out.binds.retain(|b| b.0 != name);
        out.binds.push((name, bind));
        out
    }
    /// The iterators along tile dimensions.
    pub fn tiled(&self) -> Vec<Name> {
        self.binds.iter().filter(|b| b.1.axis.is_some()).map(|b| b.0).collect()
    }
    /// The shape of a tile over all that runs along tile dimensions here.
    pub fn shape(&self) -> [i64; RANK] {
        let mut shape = [1; RANK];
        for (_, bind) in &self.binds {
            if let Some(axis) = bind.axis {
                shape[axis] = bind.size;
            }
        }
        shape
    }
    /// Whether every iterator that the access mentions stands for the same here as in `binds`.
    pub fn agrees(&self, access: &Access, binds: &[(Name, Bind)]) -> bool {
        let same = |b: &&(Name, Bind)| {
            self.get(b.0).is_some_and(|s| (s.base, s.axis, s.size) == (b.1.base, b.1.axis, b.1.size))
        };
        binds.iter().filter(|b| access.mentions(b.0)).all(|b| same(&b))
    }
}

/// What a tiled iterator stands for in an expression.
#[derive(Clone, Copy, PartialEq)]
pub enum Tiled {
    /// Its first value: for the start of a load.
    First,
    /// All its values, also those past the extent.
    All,
    /// All, those past the extent as the last one: to address memory.
    Clamped,
}

impl Program<'_> {
    /// The value of an expression over iterators and symbols: an index, or a tile of them.
    pub fn index(&mut self, dim: Dim, scope: &Scope, tiled: Tiled) -> Result<Value> {
        let mut local = false;
        dim.for_each_symbol(&mut |n| local |= scope.get(n).is_some() || index_number(n).is_some());
        if !local {
            return match dim {
                Dim::Dynamic => Err(Diagnostic::unsupported(self.loc, "an index expression with an unknown size '?'")),
                _ => Ok(self.size(dim)),
            };
        }
        let p = dim.polynomial().expect("a dimension with symbols is a polynomial");
        let (mut scalar, mut tile) = (None, None);
        for (monomial, coefficient) in &p.terms {
            let mut product = None;
            for (atom, power) in monomial {
                let value = self.atom(atom, scope, tiled)?;
                for _ in 0..*power {
                    product = Some(product.map_or(value, |p| self.mul_index(p, value)));
                }
            }
            let mut term = product.expect("a term has a factor");
            if *coefficient != 1 {
                let c = self.constant_index(*coefficient);
                term = self.mul_index(term, c);
            }
            let sum = if self.ty(term).is_tile() { &mut tile } else { &mut scalar };
            *sum = Some(match *sum {
                Some(s) => self.add_index(s, term),
                None => term,
            });
        }
        if p.constant != 0 {
            let c = self.constant_index(p.constant);
            scalar = Some(scalar.map_or(c, |s| self.add_index(s, c)));
        }
        Ok(match (scalar, tile) {
            (Some(s), Some(t)) => self.add_index(t, s),
            (s, t) => t.or(s).expect("an expression with symbols has terms"),
        })
    }

    fn atom(&mut self, atom: &Atom, scope: &Scope, tiled: Tiled) -> Result<Value> {
        match *atom {
            Atom::Symbol(name) => self.symbol(name, scope, tiled),
            Atom::Max(a, b) | Atom::Min(a, b) => {
                let (x, y) = (self.index(a, scope, tiled)?, self.index(b, scope, tiled)?);
                Ok(self.binary(if matches!(atom, Atom::Max(..)) { op::core::MAX } else { op::core::MIN }, x, y))
            }
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) => {
                let (x, y) = (self.index(a, scope, tiled)?, self.index(b, scope, tiled)?);
                let natural = self.is_natural(a, scope);
                let quotient = matches!(atom, Atom::FloorDiv(..));
                if natural {
                    return Ok(self.binary(if quotient { op::core::DIV } else { op::core::REM }, x, y));
                }
                // floor(x / y) = (x - x mod y) / y, and x mod y is in 0..y.
                let rem = self.binary(op::core::REM, x, y);
                let zero = self.constant_index(0);
                let (negative, up) = (self.compare("lt", rem, zero), self.binary(op::core::ADD, rem, y));
                let modulo = self.select(negative, up, rem);
                if !quotient {
                    return Ok(modulo);
                }
                let whole = self.binary(op::core::SUB, x, modulo);
                Ok(self.binary(op::core::DIV, whole, y))
            }
        }
    }

    /// Whether an expression is known not to be negative: iterators are not.
    fn is_natural(&self, dim: Dim, scope: &Scope) -> bool {
        let mut ranges = self.ranges.clone();
        for (name, bind) in &scope.binds {
            ranges.set_iterator(*name, bind.extent);
        }
        ranges.interval(dim).is_some_and(|r| r.0 >= 0)
    }

    fn symbol(&mut self, name: Name, scope: &Scope, tiled: Tiled) -> Result<Value> {
        if let Some(n) = index_number(name) {
            let missing = || Diagnostic::error(self.loc, format!("the index '{name}' has no operand"));
            return scope.indices.get(n).copied().ok_or_else(missing);
        }
        let Some(bind) = scope.get(name).copied() else { return Ok(self.size(Dim::symbol(name))) };
        match (bind.axis, tiled) {
            (None, _) | (_, Tiled::First) => Ok(bind.base),
            (Some(axis), _) => {
                let all = self.iota(bind.base, axis, bind.size);
                if tiled == Tiled::All || bind.exact {
                    return Ok(all);
                }
                let last = self.size(bind.extent - Dim::Static(1));
                Ok(self.binary(op::core::MIN, all, last))
            }
        }
    }

    /// Where the elements of tiles lie within the extents of these iterators; `None` where all do.
    pub fn inside(&mut self, scope: &Scope, of: &dyn Fn(Name) -> bool) -> Option<Value> {
        let mut mask = None;
        for (name, bind) in scope.binds.clone() {
            let Some(axis) = bind.axis.filter(|_| !bind.exact && of(name)) else { continue };
            let (at, end) = (self.iota(bind.base, axis, bind.size), self.size(bind.extent));
            let here = self.compare("lt", at, end);
            mask = Some(mask.map_or(here, |m| self.binary(op::core::AND, m, here)));
        }
        mask
    }

    /// The bindings that the access mentions, for [`Held`].
    pub fn hold(&mut self, value: Value, tile: Value, access: &Access, scope: &Scope) {
        let binds = scope.binds.iter().filter(|b| access.mentions(b.0)).copied().collect();
        self.held.push(Held { value, tile, access: access.clone(), binds });
    }
    /// The tile of a value of the group that is read at `access`, if it is in registers.
    pub fn held_tile(&self, value: Value, access: &Access, scope: &Scope) -> Option<Value> {
        let fits = |h: &&Held| h.value == value && h.access == *access && scope.agrees(access, &h.binds);
        self.held.iter().rev().find(fits).map(|h| h.tile)
    }
}
