//! Binding a function's symbols to what its arguments' shapes say.

use rc_dialects::func::{arg_names, symbols_of};
use rc_dialects::op;
use rc_ir::dim::Atom;
use rc_ir::{Body, Diagnostic, Dim, Loc, Name, Result, Type};

use super::Mode;
use super::exec::Symbols;
use super::value::dtype_of;
use crate::tensor::{DType, Tensor};

/// What a function takes and gives.
pub(crate) struct Signature {
    pub inputs: Vec<Type>,
    pub results: Vec<Type>,
    /// Of a planned function: the number of inputs and results, the arguments before the arena.
    outputs: usize,
    names: Vec<Name>,
    decls: Vec<rc_dialects::func::SymbolDecl>,
    loc: Loc,
    function: Name,
    /// Whether symbols may also be learnt while the body runs, by `core.assume_shape`.
    assumes: bool,
}

impl Signature {
    pub fn of(body: &Body) -> Result<Signature> {
        let root = body.op_ref(body.root());
        let ty = root.attr("function_type").and_then(|a| a.as_type()).and_then(Type::as_function);
        let (inputs, results) = ty.ok_or_else(|| root.unsupported("as a function: it has no function type"))?;
        // A planned function lists its results and the arena after its inputs.
        let planned = root.is(op::host::FUNC);
        let count =
            if planned { root.int("inputs").unwrap_or(0).clamp(0, inputs.len() as i64) as usize } else { inputs.len() };
        Ok(Signature {
            outputs: inputs.len() - usize::from(planned && inputs.len() > count),
            inputs: inputs[..count].to_vec(),
            results: results.to_vec(),
            names: arg_names(body),
            decls: symbols_of(root)?,
            loc: root.loc(),
            function: body.symbol().unwrap_or_default(),
            assumes: assumes(body),
        })
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The symbols' values, where the arguments fit the inputs' types.
    pub fn bind(&self, args: &[Tensor], mode: Mode) -> Result<Symbols> {
        let shapes: Vec<Vec<i64>> = args.iter().map(|t| t.shape().iter().map(|&n| n as i64).collect()).collect();
        if args.len() != self.inputs.len() {
            let what =
                format!("@{} takes {} arguments, and {} were given", self.function, self.inputs.len(), args.len());
            return Err(Diagnostic::error(self.loc, what));
        }
        for (i, (arg, ty)) in args.iter().zip(&self.inputs).enumerate() {
            self.check_type(i, arg, *ty, mode)?;
        }
        let symbols = self.solve(&shapes);
        for (i, (shape, ty)) in shapes.iter().zip(&self.inputs).enumerate() {
            for (d, (&size, dim)) in shape.iter().zip(ty.shape()).enumerate() {
                if let Some(expected) = symbols.eval(dim)
                    && expected != size
                {
                    let is = if dim.is_static() { expected.to_string() } else { format!("{dim} = {expected}") };
                    return Err(self.error(i, format!("has {size} along dimension {d}, where its type {ty} says {is}")));
                }
            }
        }
        symbols.check(self.loc, &self.decls, self.assumes)?;
        Ok(symbols)
    }

    fn check_type(&self, i: usize, arg: &Tensor, ty: Type, mode: Mode) -> Result {
        let fits = |dtype: DType| {
            arg.dtype() == dtype || (mode == Mode::Float64 && dtype.is_float() && arg.dtype() == DType::F64)
        };
        let dtype = dtype_of(ty.elem());
        let dtype = dtype.ok_or_else(|| self.error(i, format!("has the type {ty}, which no host tensor has")))?;
        if !fits(dtype) {
            return Err(self.error(i, format!("has the dtype {}, and its type is {ty}", arg.dtype())));
        }
        if arg.shape().len() != ty.rank() {
            return Err(self.error(i, format!("has the shape {:?}, and its type is {ty}", arg.shape())));
        }
        Ok(())
    }

    fn error(&self, i: usize, what: String) -> Box<Diagnostic> {
        let name = self.names.get(i).filter(|n| !n.is_empty());
        let name = name.map_or(String::new(), |n| format!(" '{n}'"));
        Diagnostic::error(self.loc, format!("argument {i}{name} of @{} {what}", self.function))
    }

    /// Symbols from dimensions `c * s + k`, plain ones first, until nothing more is learnt.
    fn solve(&self, shapes: &[Vec<i64>]) -> Symbols {
        let mut symbols = Symbols::default();
        while shapes.iter().zip(&self.inputs).any(|(shape, ty)| learn_shape(*ty, shape, &mut symbols)) {}
        symbols
    }
}

/// Whether the body learns sizes while it runs.
pub(crate) fn assumes(body: &Body) -> bool {
    body.walk().into_iter().any(|op| body.name(op) == op::core::ASSUME_SHAPE)
}

/// Binds the symbols that follow from a type and its sizes; whether there were any.
pub(crate) fn learn_shape(ty: Type, sizes: &[i64], symbols: &mut Symbols) -> bool {
    let mut found = false;
    for (&size, dim) in sizes.iter().zip(ty.shape()) {
        if let Some((name, value)) = learn(dim, size, symbols) {
            symbols.bind(name, value);
            found = true;
        }
    }
    found
}

/// The one unbound symbol of a linear dimension, from the dimension's value.
fn learn(dim: Dim, size: i64, symbols: &Symbols) -> Option<(Name, i64)> {
    let poly = dim.substitute(&|name| symbols.get(name).map(Dim::Static)).polynomial()?;
    let [(monomial, coefficient)] = poly.terms.as_slice() else { return None };
    let [(Atom::Symbol(name), 1)] = monomial.as_slice() else { return None };
    let rest = size.checked_sub(poly.constant)?;
    (rest % coefficient == 0).then_some((*name, rest / coefficient))
}
