//! The check of a call's arguments, made ready: their dtypes and shapes against a flat list, without a lookup by name.

use super::signature::{Bindings, Signature};
use crate::tensor::byte_size;
use crate::{DType, Result};
use rc_ir::{Dim, Name};
use smallvec::SmallVec;
use std::ops::Range;

/// What arguments have to be.
#[derive(Debug)]
pub struct Guard {
    signature: Signature,
    /// For each argument its dtype, and where its sizes end in `sizes`.
    arguments: Vec<(DType, usize)>,
    sizes: Vec<Size>,
    /// Symbols in the order in which arguments give their values.
    symbols: Vec<Name>,
}

/// A size of an argument.
#[derive(Clone, Copy, Debug)]
enum Size {
    Is(usize),
    /// The value of a symbol, by its number: the first that gives it, and those that have to be the same.
    Gives(usize),
    Same(usize),
    Expression(Dim),
}

/// Values of symbols, in a guard's order.
type Values = SmallVec<[usize; 8]>;

impl Guard {
    /// Of the first arguments of a function.
    pub fn new(signature: &Signature, arguments: usize) -> Guard {
        let mut signature = signature.clone();
        signature.inputs.truncate(arguments);
        let (mut ends, mut sizes, mut symbols) = (Vec::new(), Vec::new(), Vec::<Name>::new());
        for spec in &signature.inputs {
            for &dim in &spec.shape {
                let known = |name| symbols.iter().position(|&symbol| symbol == name);
                sizes.push(match (dim.as_static(), dim.as_symbol()) {
                    (Some(size), _) => Size::Is(usize::try_from(size).unwrap_or(usize::MAX)),
                    (_, Some(name)) => match known(name) {
                        Some(number) => Size::Same(number),
                        None => {
                            symbols.push(name);
                            Size::Gives(symbols.len() - 1)
                        }
                    },
                    _ => Size::Expression(dim),
                });
            }
            ends.push((spec.dtype, sizes.len()));
        }
        Guard { signature, arguments: ends, sizes, symbols }
    }

    /// The values of the symbols for arguments of these dtypes and shapes.
    ///
    /// # Errors
    /// Arguments that do not fit, by name.
    pub fn bind<'a>(&self, argument: impl Fn(usize) -> (DType, &'a [usize]), count: usize) -> Result<Bindings> {
        match self.values(&argument, count) {
            Some(values) => Ok(self.symbols.iter().copied().zip(values.iter().map(|&n| n as i64)).collect()),
            // What is wrong is said by the signature.
            None => self.signature.bind_shapes(&(0..count).map(argument).collect::<Vec<_>>()),
        }
    }

    /// What arguments have to be where the symbols have these values.
    ///
    /// # Errors
    /// Sizes that have no value then.
    pub fn exact(&self, bindings: &Bindings) -> Result<Exact> {
        let mut exact = Exact::default();
        for spec in &self.signature.inputs {
            let sizes = spec.sizes(bindings)?;
            let (start, bytes) = (exact.sizes.len(), byte_size(spec.dtype, &sizes)?);
            exact.sizes.extend(sizes);
            exact.arguments.push(Argument { dtype: spec.dtype, sizes: start..exact.sizes.len(), bytes });
        }
        Ok(exact)
    }

    /// The values of the symbols; `None` where the arguments do not fit.
    fn values<'a>(&self, argument: &impl Fn(usize) -> (DType, &'a [usize]), count: usize) -> Option<Values> {
        if count != self.arguments.len() {
            return None;
        }
        let (mut values, mut start) = (Values::from_elem(0, self.symbols.len()), 0);
        let mut has_expressions = false;
        for (i, &(dtype, end)) in self.arguments.iter().enumerate() {
            let (given, shape) = argument(i);
            let sizes = &self.sizes[start..end];
            if given != dtype || shape.len() != sizes.len() {
                return None;
            }
            for (&size, &expected) in shape.iter().zip(sizes) {
                match expected {
                    Size::Is(n) if n != size => return None,
                    Size::Same(number) if values[number] != size => return None,
                    Size::Gives(number) => values[number] = size,
                    Size::Expression(_) => has_expressions = true,
                    Size::Is(_) | Size::Same(_) => {}
                }
            }
            start = end;
        }
        let value = |name| self.symbols.iter().position(|&symbol| symbol == name).map(|number| values[number] as i64);
        let fits = |s: &super::SymbolDecl| value(s.name).is_some_and(|n| s.allows(n));
        if !self.signature.symbols.iter().all(fits) {
            return None;
        }
        if has_expressions {
            let given = (0..count).flat_map(|i| argument(i).1);
            let is = |(&size, expected): (&usize, &Size)| match expected {
                Size::Expression(dim) => dim.evaluate(&value) == Some(size as i64),
                _ => true,
            };
            return given.zip(&self.sizes).all(is).then_some(values);
        }
        Some(values)
    }
}

/// What arguments have to be for the sizes of a call: every size a number, for further calls of the same sizes.
#[derive(Default, Debug)]
pub struct Exact {
    arguments: Vec<Argument>,
    sizes: Vec<usize>,
}

#[derive(Debug)]
struct Argument {
    dtype: DType,
    /// Where its sizes are in the list of all.
    sizes: Range<usize>,
    bytes: usize,
}

impl Exact {
    pub fn count(&self) -> usize {
        self.arguments.len()
    }

    /// The bytes of an argument of this dtype and shape; `None` where it has to be another.
    #[inline]
    pub fn bytes(&self, i: usize, dtype: DType, shape: &[usize]) -> Option<usize> {
        let argument = self.arguments.get(i)?;
        let sizes = &self.sizes[argument.sizes.clone()];
        let is = argument.dtype == dtype && sizes.len() == shape.len() && sizes.iter().zip(shape).all(|(n, m)| n == m);
        is.then_some(argument.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TensorSpec;
    use super::*;
    use rc_dialects::func::SymbolDecl;

    fn signature() -> Signature {
        let (s, t) = (SymbolDecl::new("s", 1, 64).multiple_of(4), SymbolDecl::new("t", 0, 8));
        let spec =
            |name: &str, shape: &[Dim]| TensorSpec { name: Name::new(name), dtype: DType::F32, shape: shape.to_vec() };
        let inputs = vec![
            spec("w", &[(s.dim() + t.dim()) * 2.into()]),
            spec("x", &[s.dim(), 8.into()]),
            spec("y", &[t.dim(), s.dim()]),
            spec("z", &[]),
        ];
        Signature { inputs, outputs: Vec::new(), symbols: vec![s, t] }
    }

    #[test]
    fn gives_what_the_signature_does() {
        let signature = signature();
        let guard = Guard::new(&signature, 4);
        let f = DType::F32;
        let given: &[&[(DType, &[usize])]] = &[
            &[(f, &[28]), (f, &[12, 8]), (f, &[2, 12]), (f, &[])],
            &[(f, &[24]), (f, &[12, 8]), (f, &[0, 12]), (f, &[])],
            &[(f, &[27]), (f, &[12, 8]), (f, &[2, 12]), (f, &[])],
            &[(f, &[28]), (f, &[12, 7]), (f, &[2, 12]), (f, &[])],
            &[(f, &[28]), (f, &[12, 8]), (f, &[2, 11]), (f, &[])],
            &[(f, &[30]), (f, &[13, 8]), (f, &[2, 13]), (f, &[])],
            &[(f, &[42]), (f, &[12, 8]), (f, &[9, 12]), (f, &[])],
            &[(f, &[28]), (DType::F64, &[12, 8]), (f, &[2, 12]), (f, &[])],
            &[(f, &[28]), (f, &[12, 8, 1]), (f, &[2, 12]), (f, &[])],
            &[(f, &[28]), (f, &[12, 8]), (f, &[2, 12]), (f, &[1])],
            &[(f, &[28]), (f, &[12, 8]), (f, &[2, 12])],
            &[],
        ];
        for (i, args) in given.iter().enumerate() {
            let expected = signature.bind_shapes(args).map_err(|e| e.to_string());
            let found = guard.bind(|i| args[i], args.len()).map_err(|e| e.to_string());
            assert_eq!(found, expected, "{i}");
            assert_eq!(found.is_ok(), guard.values(&|i| args[i], args.len()).is_some(), "{i}");
            let exact = guard.exact(&guard.bind(|i| given[0][i], 4).unwrap()).unwrap();
            let is =
                args.len() == exact.count() && args.iter().enumerate().all(|(i, a)| exact.bytes(i, a.0, a.1).is_some());
            assert_eq!(i == 0, is, "{i}");
            assert_eq!(found.is_ok(), i < 2, "{i}");
        }
    }
}
