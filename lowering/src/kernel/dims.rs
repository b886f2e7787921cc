//! Expressions over the kernel's symbols, as code.

use super::{Lowering, kernel_error};
use crate::emit::{ICmp, Type, Value};
use rc_ir::dim::Atom;
use rc_ir::{Dim, Name, Result};
use std::collections::HashMap;

/// The symbols' values, and expressions computed at the kernel's entry.
#[derive(Default)]
pub(super) struct Dims<'m> {
    /// In 64 bits.
    pub symbols: Vec<(Name, Value<'m>)>,
    // Looked up only.
    pub computed: HashMap<Dim, Value<'m>>,
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// Computes sizes and strides of all memrefs now, at the kernel's entry.
    pub fn compute_strides(&mut self) -> Result {
        for op in self.body.walk() {
            let values = self.body.results(op).chain(self.body.operands(op));
            for ty in values.map(|value| self.body.ty(value)).filter(|ty| ty.is_memref()) {
                for stride in ty.strides().unwrap_or_default().into_iter().chain(ty.shape()) {
                    if stride.is_dynamic() && !self.dims.computed.contains_key(&stride) {
                        let value = self.dim(stride, self.dim_type(stride))?;
                        self.dims.computed.insert(stride, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// The width in which an expression is computed.
    pub fn dim_type(&self, dim: Dim) -> Type<'m> {
        self.index_width(self.ranges.fits(self.ranges.of_dim(dim)))
    }

    /// The value of an expression in the width `to`.
    pub fn dim(&self, dim: Dim, to: Type<'m>) -> Result<Value<'m>> {
        if let Dim::Static(n) = dim {
            return Ok(self.b.int(to, n));
        }
        let non_negative = self.ranges.of_dim(dim).is_some_and(|range| range.0 >= 0);
        let value = match self.dims.computed.get(&dim) {
            Some(&value) => value,
            None => self.compute_dim(dim)?,
        };
        Ok(self.index_cast(value, to, non_negative))
    }

    fn compute_dim(&self, dim: Dim) -> Result<Value<'m>> {
        let Some(polynomial) = dim.polynomial() else {
            return Err(kernel_error(self.body, "has a memref with a size '?' that no symbol names"));
        };
        // Terms may exceed the sum, so these are added in 64 bits and LLVM narrows what it can.
        let b = self.b;
        let mut sum: Option<Value<'m>> = None;
        for (monomial, coefficient) in &polynomial.terms {
            let mut product: Option<Value<'m>> = None;
            for (atom, power) in monomial {
                let value = self.atom(atom)?;
                for _ in 0..*power {
                    product = Some(product.map_or(value, |p| b.mul_nsw(p, value)));
                }
            }
            let mut term = product.unwrap_or(b.i64(1));
            if *coefficient != 1 {
                term = b.mul_nsw(term, b.i64(*coefficient));
            }
            sum = Some(sum.map_or(term, |s| b.add_nsw(s, term)));
        }
        let sum = sum.unwrap_or(b.i64(0));
        Ok(if polynomial.constant == 0 { sum } else { b.add_nsw(sum, b.i64(polynomial.constant)) })
    }

    fn atom(&self, atom: &Atom) -> Result<Value<'m>> {
        let b = self.b;
        let both = |x: Dim, y: Dim| Ok((self.dim(x, b.ty.i64)?, self.dim(y, b.ty.i64)?));
        match *atom {
            Atom::Symbol(name) => {
                let known = self.dims.symbols.iter().find(|symbol| symbol.0 == name).map(|symbol| symbol.1);
                known.ok_or_else(|| {
                    let error = kernel_error(self.body, format!("uses the symbol '{name}', which it does not declare"));
                    error.help("declare it: rc.symbols = #rc.symbols<name = [min, max, divisor]>")
                })
            }
            Atom::Max(x, y) => both(x, y).map(|(x, y)| b.smax(x, y)),
            Atom::Min(x, y) => both(x, y).map(|(x, y)| b.smin(x, y)),
            Atom::FloorDiv(x, y) => {
                let (n, d) = both(x, y)?;
                Ok(if self.is_non_negative(x) { b.udiv(n, d) } else { self.floor_div(n, d) })
            }
            Atom::Mod(x, y) => {
                let (n, d) = both(x, y)?;
                Ok(if self.is_non_negative(x) { b.urem(n, d) } else { b.sub(n, b.mul(self.floor_div(n, d), d)) })
            }
        }
    }

    fn is_non_negative(&self, dim: Dim) -> bool {
        self.ranges.of_dim(dim).is_some_and(|range| range.0 >= 0)
    }

    /// The quotient rounded down, for positive divisors.
    fn floor_div(&self, n: Value<'m>, d: Value<'m>) -> Value<'m> {
        let b = self.b;
        let (quotient, rest) = (b.sdiv(n, d), b.srem(n, d));
        let below = b.icmp(ICmp::Slt, rest, b.i64(0));
        b.select(below, b.sub(quotient, b.i64(1)), quotient)
    }
}
