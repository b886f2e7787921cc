//! Iteration spaces of nests, walked in blocks of points, and index maps evaluated on a block at a time.

use rc_ir::dim::Atom;
use rc_ir::{Dim, Name};

use super::exec::Symbols;
use super::shape::strides;

/// Points handled at once: enough to hide the cost of dispatching an op, few enough to stay in the cache.
const BLOCK: usize = 4096;

/// Iterators, outermost first, each running from 0 to its extent.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub names: Vec<Name>,
    pub extents: Vec<usize>,
}

/// Consecutive points of a space in row-major order: the values of each iterator.
pub(crate) struct Block {
    pub len: usize,
    values: Vec<Vec<i64>>,
}

impl Space {
    pub fn points(&self) -> usize {
        self.extents.iter().product()
    }
    pub fn position(&self, name: Name) -> Option<usize> {
        self.names.iter().position(|&n| n == name)
    }
    /// The starts of the blocks that cover the space.
    pub fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.points()).step_by(BLOCK)
    }
    /// The block that starts at point number `start`.
    pub fn block(&self, start: usize) -> Block {
        let len = BLOCK.min(self.points() - start);
        let mut values = vec![Vec::with_capacity(len); self.names.len()];
        let mut inner = 1;
        for d in (0..self.names.len()).rev() {
            let (extent, column) = (self.extents[d], &mut values[d]);
            let (mut value, mut left) = (start / inner % extent, inner - start % inner);
            while column.len() < len {
                let run = left.min(len - column.len());
                column.resize(column.len() + run, value as i64);
                value = if value + 1 == extent { 0 } else { value + 1 };
                left = inner;
            }
            inner *= extent;
        }
        Block { len, values }
    }
    /// The expression with symbols replaced by their values, except those that iterators (or `_0`, …) shadow.
    pub fn resolve(&self, dim: Dim, symbols: &Symbols) -> Dim {
        dim.substitute(&|name| if self.position(name).is_some() { None } else { symbols.get(name).map(Dim::Static) })
    }
}

/// Values of an expression's names on a block.
pub(crate) type Extra<'a> = &'a [Vec<i64>];

/// An expression's values at the points of a block; `extra` are those of `_0`, `_1`, …. An error says why not.
pub(crate) fn eval(dim: Dim, space: &Space, block: &Block, extra: Extra) -> Result<Vec<i64>, String> {
    let Dim::Expr(expr) = dim else {
        let value = dim.as_static().ok_or("has the unknown size ? in an index")?;
        return Ok(vec![value; block.len]);
    };
    let mut sum = vec![expr.data().constant; block.len];
    for (monomial, coefficient) in &expr.data().terms {
        let mut product = vec![*coefficient; block.len];
        for (atom, power) in monomial {
            let value = eval_atom(atom, space, block, extra)?;
            for _ in 0..*power {
                product.iter_mut().zip(&value).for_each(|(p, v)| *p = p.wrapping_mul(*v));
            }
        }
        sum.iter_mut().zip(&product).for_each(|(s, p)| *s = s.wrapping_add(*p));
    }
    Ok(sum)
}

fn eval_atom(atom: &Atom, space: &Space, block: &Block, extra: Extra) -> Result<Vec<i64>, String> {
    let combine = |a: Dim, b: Dim, f: fn(i64, i64) -> Option<i64>| -> Result<Vec<i64>, String> {
        let (x, y) = (eval(a, space, block, extra)?, eval(b, space, block, extra)?);
        let all: Option<Vec<i64>> = x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect();
        all.ok_or_else(|| format!("divides {a} by {b}, which is not positive"))
    };
    match *atom {
        Atom::Symbol(name) => match space.position(name) {
            Some(at) => Ok(block.values[at].clone()),
            None => operand_number(name)
                .and_then(|i| extra.get(i).cloned())
                .ok_or_else(|| format!("uses {name} in an index, which is neither an iterator nor a known symbol")),
        },
        Atom::FloorDiv(a, b) => combine(a, b, |x, y| (y > 0).then(|| x.div_euclid(y))),
        Atom::Mod(a, b) => combine(a, b, |x, y| (y > 0).then(|| x.rem_euclid(y))),
        Atom::Max(a, b) => combine(a, b, |x, y| Some(x.max(y))),
        Atom::Min(a, b) => combine(a, b, |x, y| Some(x.min(y))),
    }
}

/// 3 for `_3`.
fn operand_number(name: Name) -> Option<usize> {
    name.as_str().strip_prefix('_')?.parse().ok()
}

/// Where an index map leads in a row-major array.
pub(crate) struct Access {
    dims: Vec<Dim>,
    shape: Vec<usize>,
    /// Start, and step for each iterator, where the map is affine and in bounds everywhere.
    affine: Option<(i64, Vec<i64>)>,
    /// Whether what lies outside is a zero, at the position [`OUTSIDE`].
    zero_outside: bool,
}

/// The position of what is zero because it lies outside.
pub(crate) const OUTSIDE: usize = usize::MAX;

impl Access {
    pub fn new(map: &[Dim], shape: &[usize], space: &Space, symbols: &Symbols) -> Access {
        let dims: Vec<Dim> = map.iter().map(|&d| space.resolve(d, symbols)).collect();
        let mut access = Access { dims, shape: shape.to_vec(), affine: None, zero_outside: false };
        access.affine = access.find_affine(space);
        access
    }
    /// The same, of an array that is zero outside.
    pub fn zero_outside(self, zero_outside: bool) -> Access {
        Access { zero_outside, ..self }
    }

    fn find_affine(&self, space: &Space) -> Option<(i64, Vec<i64>)> {
        let (mut start, mut steps) = (0, vec![0; space.names.len()]);
        for ((&dim, &size), stride) in self.dims.iter().zip(&self.shape).zip(strides(&self.shape)) {
            let (base, coefficients) = affine(dim, space)?;
            let (mut low, mut high) = (base, base);
            for (i, &c) in coefficients.iter().enumerate() {
                let reach = c.checked_mul(space.extents[i] as i64 - 1)?;
                low += reach.min(0);
                high += reach.max(0);
                steps[i] += c * stride as i64;
            }
            if low < 0 || high >= size as i64 {
                return None;
            }
            start += base * stride as i64;
        }
        Some((start, steps))
    }

    /// Row-major positions at the points of a block; an error names the first point out of bounds.
    pub fn positions(&self, space: &Space, block: &Block, extra: Extra) -> Result<Vec<usize>, String> {
        if let Some((start, steps)) = &self.affine {
            let mut out = vec![*start as usize; block.len];
            for (values, &step) in block.values.iter().zip(steps).filter(|s| *s.1 != 0) {
                out.iter_mut().zip(values).for_each(|(o, &v)| *o = o.wrapping_add((v * step) as usize));
            }
            return Ok(out);
        }
        let mut out = vec![0; block.len];
        for (d, (&dim, stride)) in self.dims.iter().zip(strides(&self.shape)).enumerate() {
            let index = eval(dim, space, block, extra)?;
            let size = self.shape[d] as i64;
            if self.zero_outside {
                let outside = |(o, &i): (&mut usize, &i64)| {
                    if (0..size).contains(&i) && *o != OUTSIDE { *o += i as usize * stride } else { *o = OUTSIDE }
                };
                out.iter_mut().zip(&index).for_each(outside);
                continue;
            }
            if let Some(p) = index.iter().position(|i| !(0..size).contains(i)) {
                let what = format!("index {} ({dim}) is outside of dimension {d}, which has {size}", index[p]);
                return Err(format!("{what}, at {}", at_point(space, block, p)));
            }
            out.iter_mut().zip(&index).for_each(|(o, &i)| *o += i as usize * stride);
        }
        Ok(out)
    }
}

fn at_point(space: &Space, block: &Block, p: usize) -> String {
    let one = |(name, values): (&Name, &Vec<i64>)| format!("{name} = {}", values[p]);
    space.names.iter().zip(&block.values).map(one).collect::<Vec<_>>().join(", ")
}

/// The constant, and each iterator's factor, of a linear expression over iterators only.
fn affine(dim: Dim, space: &Space) -> Option<(i64, Vec<i64>)> {
    let poly = dim.polynomial()?;
    let mut factors = vec![0; space.names.len()];
    for (monomial, coefficient) in &poly.terms {
        let [(Atom::Symbol(name), 1)] = monomial.as_slice() else { return None };
        factors[space.position(*name)?] += coefficient;
    }
    Some((poly.constant, factors))
}
