//! What a function takes and gives, and the binding of its symbols by the shapes of its arguments.

use crate::interp::dtype_of;
use crate::{DType, Error, Result, Tensor};
use rc_dialects::func::SymbolDecl;
use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, Name, Type};
use rustc_hash::FxHashMap;

/// A tensor of a function's signature.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: Name,
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

/// `x: tensor<s x 768 x f32>`.
impl std::fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        f.write_str("tensor<")?;
        self.shape.iter().try_for_each(|d| write!(f, "{d} x "))?;
        write!(f, "{}>", self.dtype)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Signature {
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
    pub symbols: Vec<SymbolDecl>,
}

/// Values of symbols.
pub type Bindings = FxHashMap<Name, i64>;

impl TensorSpec {
    /// Of a tensor or memref type. Fails on element types that host tensors do not have.
    pub fn new(name: Name, ty: Type) -> Result<TensorSpec> {
        let elem = ty.elem();
        let dtype = dtype_of(elem).ok_or_else(|| Error::Unsupported(format!("tensors of {elem}")))?;
        Ok(TensorSpec { name, dtype, shape: ty.shape().to_vec() })
    }
    /// The sizes where the symbols are bound.
    pub fn sizes(&self, bindings: &Bindings) -> Result<Vec<usize>> {
        self.shape.iter().map(|&d| evaluate(d, bindings).map(|n| n as usize)).collect()
    }
    /// Whether a tensor of this shape is one, where the symbols are bound.
    fn fits(&self, shape: &[usize], bindings: &Bindings) -> bool {
        let is = |(&dim, &size): (&Dim, &usize)| match dim {
            Dim::Static(n) => n == size as i64,
            _ => evaluate(dim, bindings).is_ok_and(|n| n == size as i64),
        };
        self.shape.len() == shape.len() && self.shape.iter().zip(shape).all(is)
    }
    /// `%x: tensor<s x 768 x f32>`, for messages.
    fn describe(&self, i: usize) -> String {
        let shape: String = self.shape.iter().map(|d| format!("{d} x ")).collect();
        let name = if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) };
        format!("argument {i}{name} of type tensor<{shape}{}>", self.dtype)
    }
}

/// The value of an expression; fails where a symbol is not bound, or the value is negative.
pub fn evaluate(dim: Dim, bindings: &Bindings) -> Result<i64> {
    let value = dim.evaluate(&|name| bindings.get(&name).copied());
    value.filter(|&n| n >= 0).ok_or_else(|| Error::Invalid(format!("the size {dim} has no value for these arguments")))
}

impl Signature {
    /// The ranges of the symbols, for reasoning about expressions.
    pub fn ranges(&self) -> Ranges {
        let mut ranges = Ranges::new();
        self.symbols.iter().for_each(|s| ranges.set(s.name, s.min, s.max));
        ranges
    }

    /// The dtype and shape of each result where the symbols are bound.
    pub(crate) fn shapes_of_results(&self, bindings: &Bindings) -> Result<Vec<(DType, Vec<usize>)>> {
        self.outputs.iter().map(|spec| Ok((spec.dtype, spec.sizes(bindings)?))).collect()
    }

    /// Checks arguments against the signature, and gives the values of the symbols.
    pub fn bind(&self, args: &[Tensor]) -> Result<Bindings> {
        self.bind_shapes(&args.iter().map(|arg| (arg.dtype(), arg.shape())).collect::<Vec<_>>())
    }

    pub(crate) fn bind_shapes<S: AsRef<[usize]>>(&self, args: &[(DType, S)]) -> Result<Bindings> {
        if args.len() != self.inputs.len() {
            let (takes, given) = (self.inputs.len(), args.len());
            return Err(Error::Invalid(format!("the function takes {takes} arguments, {given} were given")));
        }
        let mut bindings = Bindings::default();
        for (i, (spec, (dtype, shape))) in self.inputs.iter().zip(args).enumerate() {
            let shape = shape.as_ref();
            if *dtype != spec.dtype {
                return Err(Error::Invalid(format!("{} was given an array of {dtype}", spec.describe(i))));
            }
            if shape.len() != spec.shape.len() {
                return Err(Error::Invalid(format!("{} was given an array of shape {shape:?}", spec.describe(i))));
            }
            for (&dim, &size) in spec.shape.iter().zip(shape) {
                if let Some(symbol) = dim.as_symbol() {
                    bindings.entry(symbol).or_insert(size as i64);
                }
            }
        }
        self.check_symbols(&bindings)?;
        for (i, (spec, (_, shape))) in self.inputs.iter().zip(args).enumerate() {
            let shape = shape.as_ref();
            if !spec.fits(shape, &bindings) {
                let (what, expected) = (spec.describe(i), spec.sizes(&bindings)?);
                return Err(Error::Invalid(format!(
                    "{what} has the shape {shape:?} here, where {expected:?} is expected"
                )));
            }
        }
        Ok(bindings)
    }

    /// Checks that every symbol has a value, and one of its range.
    pub fn check_symbols(&self, bindings: &Bindings) -> Result<()> {
        for symbol in &self.symbols {
            let Some(&value) = bindings.get(&symbol.name) else {
                return Err(Error::Invalid(format!("no argument's shape gives the symbol '{}'", symbol.name)));
            };
            if !symbol.allows(value) {
                return Err(Error::Invalid(symbol.refuse(value)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> Signature {
        let s = SymbolDecl::new("s", 1, 1024).multiple_of(4);
        let spec =
            |name: &str, shape: &[Dim]| TensorSpec { name: Name::new(name), dtype: DType::F32, shape: shape.to_vec() };
        let inputs = vec![spec("x", &[s.dim(), 8.into()]), spec("y", &[s.dim() * 2.into()])];
        Signature { inputs, outputs: Vec::new(), symbols: vec![s] }
    }

    fn zeros(shape: &[usize]) -> Tensor {
        Tensor::zeros(DType::F32, shape).unwrap()
    }

    #[test]
    fn binds_symbols_and_says_what_does_not_fit() {
        let signature = signature();
        assert_eq!(signature.bind(&[zeros(&[12, 8]), zeros(&[24])]).unwrap()[&Name::new("s")], 12);
        let error = |args: &[Tensor]| signature.bind(args).unwrap_err().to_string();
        assert!(error(&[zeros(&[12, 8])]).contains("takes 2 arguments, 1 were given"));
        assert!(
            error(&[zeros(&[2048, 8]), zeros(&[4096])])
                .contains("'s' is 2048, outside of its range 1 to 1024, multiples of 4")
        );
        assert!(error(&[zeros(&[6, 8]), zeros(&[12])]).contains("'s' is 6"));
        assert!(error(&[zeros(&[12, 8]), zeros(&[12])]).contains("argument 1 (y)"));
        assert!(error(&[zeros(&[12, 8, 1]), zeros(&[24])]).contains("shape [12, 8, 1]"));
        let ints = Tensor::zeros(DType::I64, &[12, 8]).unwrap();
        assert!(error(&[ints, zeros(&[24])]).contains("was given an array of i64"));
    }
}
