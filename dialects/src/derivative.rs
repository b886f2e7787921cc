//! Derivatives: what an operation declares beside its meaning, for the pass `autodiff`.
//!
//! One rule serves both modes. It gives the gradients of the operands, linear in those of the results; forward mode transposes
//! these linear operations, whose own rules then give the tangents of the results. Rules are written in ops of `core` and `tensor`,
//! which have derivatives themselves, so that a derivative can be differentiated again.

use crate::builder::CoreBuilder;
use crate::constraints::default_acc;
use rc_ir::{Builder, Op, OpRef, Result, Type, Value};
use std::ops::{Deref, DerefMut};

/// The interface of ops with a derivative. An op of `tensor` that has only a definition is differentiated as its definition.
pub enum Derivative {
    /// For each operand of an elementwise op, its gradient.
    Elementwise(&'static [Slope]),
    /// Gives the gradients of the operands that are wanted.
    Vjp(fn(&mut Vjp) -> Result),
    /// Zero wherever it exists: of integers, comparisons, steps.
    Zero,
    /// That of the functions which the op calls.
    Calls,
    /// That of what computes the same, and takes the op's place where it is differentiated: gives the results.
    Definition(fn(&mut Builder, Op) -> Result<Vec<Value>>),
    /// There is none, and why.
    Missing(&'static str),
}

/// The interface of ops whose derivative needs more than their results: makes the op that gives the same results, and what is needed after them.
/// None where the op is that one.
pub struct Residuals(pub fn(&mut Builder, Op) -> Option<Op>);

/// The gradient of an operand of an elementwise op, in the type for computing.
pub type Slope = fn(&mut Builder, Point) -> Value;

/// What a slope is computed of: gradient and value of the result, and the operands.
#[derive(Clone, Copy)]
pub struct Point<'a> {
    pub g: Value,
    pub y: Value,
    pub xs: &'a [Value],
}

impl Point<'_> {
    /// Operand 0.
    pub fn x(self) -> Value {
        self.xs[0]
    }
}

/// A rule at work on one op: a builder, what is known, and the gradients found.
pub struct Vjp<'a, 'b> {
    b: &'a mut Builder<'b>,
    op: Op,
    results: &'a [Option<Value>],
    wanted: &'a [bool],
    gradients: Vec<Option<Value>>,
}

impl<'b> Deref for Vjp<'_, 'b> {
    type Target = Builder<'b>;
    fn deref(&self) -> &Builder<'b> {
        self.b
    }
}
impl<'b> DerefMut for Vjp<'_, 'b> {
    fn deref_mut(&mut self) -> &mut Builder<'b> {
        self.b
    }
}

impl Vjp<'_, '_> {
    pub fn at(&self) -> OpRef<'_> {
        self.b.body.op_ref(self.op)
    }
    pub fn operand(&self, i: usize) -> Value {
        self.b.body.operand(self.op, i)
    }
    pub fn result(&self, i: usize) -> Value {
        self.b.body.result(self.op, i)
    }
    /// The gradient of result 0, the only one that has any.
    ///
    /// # Panics
    /// If it has none: a rule is asked only where a result has one.
    pub fn g(&self) -> Value {
        self.results[0].expect("a rule is asked where the result has a gradient")
    }
    /// The gradient of a result, where it has one.
    pub fn gradient(&self, result: usize) -> Option<Value> {
        self.results.get(result).copied().flatten()
    }
    /// Whether an operand's gradient is wanted; that of one which is absent is not.
    pub fn wants(&self, operand: usize) -> bool {
        self.wanted.get(operand) == Some(&true)
    }
    /// Sets an operand's gradient, of the operand's type.
    pub fn give(&mut self, operand: usize, gradient: Value) {
        let (ty, given) = (self.b.ty(self.operand(operand)), self.b.ty(gradient));
        debug_assert_eq!(ty, given, "the gradient of operand {operand} of {}", self.at().name());
        self.gradients[operand] = Some(gradient);
    }
    /// As [`Vjp::give`], where it is wanted: computed only then.
    pub fn give_with(&mut self, operand: usize, gradient: impl FnOnce(&mut Self) -> Value) {
        if self.wants(operand) {
            let gradient = gradient(self);
            self.give(operand, gradient);
        }
    }
}

impl Derivative {
    /// The gradients of the operands that are `wanted`, from those of the results; one of which has one.
    ///
    /// # Errors
    /// What the rule does not cover, at the op.
    pub fn gradients(
        &self,
        b: &mut Builder,
        op: Op,
        results: &[Option<Value>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Value>>> {
        let mut vjp = Vjp { b, op, results, wanted, gradients: vec![None; wanted.len()] };
        match self {
            Derivative::Elementwise(slopes) => elementwise(&mut vjp, slopes),
            Derivative::Vjp(rule) => rule(&mut vjp)?,
            Derivative::Zero => {}
            Derivative::Calls => {
                return Err(vjp.at().error("calls functions, whose derivatives the pass 'autodiff' makes"));
            }
            Derivative::Definition(_) => {
                return Err(vjp
                    .at()
                    .error("is differentiated as its definition, which the pass 'autodiff' puts in its place"));
            }
            Derivative::Missing(why) => return Err(vjp.at().error(format!("has no derivative: {why}"))),
        }
        Ok(vjp.gradients)
    }
}

/// Computed in f32 for narrower floats and rounded once.
fn elementwise(v: &mut Vjp, slopes: &[Slope]) {
    let elem = v.ty(v.g()).elem();
    let wide = default_acc(elem);
    let (g, y) = (v.g(), v.result(0));
    let xs: Vec<Value> = v.at().operands().collect();
    let g = v.convert(g, wide);
    let y = v.convert(y, wide);
    let xs: Vec<Value> = xs.into_iter().map(|x| v.convert(x, wide)).collect();
    for (i, slope) in slopes.iter().enumerate().filter(|(i, _)| *i < xs.len()) {
        v.give_with(i, |v| {
            let gradient = slope(v, Point { g, y, xs: &xs });
            v.convert(gradient, elem)
        });
    }
}

/// The product of the gradient and a constant.
pub fn times(b: &mut Builder, g: Value, factor: f64) -> Value {
    b.binary_scalar("mul", g, factor)
}

/// `1 + sign x²`, as a product where it is a difference, which keeps its digits.
pub fn one_plus_square(b: &mut Builder, x: Value, sign: f64) -> Value {
    let one = b.splat(1.0, b.ty(x));
    if sign < 0.0 {
        let (low, high) = (b.binary("sub", one, x), b.binary("add", one, x));
        return b.binary("mul", low, high);
    }
    let square = b.binary("mul", x, x);
    b.binary("add", square, one)
}

/// The gradient where the condition holds, else 0.
pub fn where_or_zero(b: &mut Builder, condition: Value, g: Value) -> Value {
    let zero = b.splat(0.0, b.ty(g));
    b.select(condition, g, zero)
}

/// One number everywhere, of a value's type.
pub fn splat_like(b: &mut Builder, value: f64, x: Value) -> Value {
    b.splat(value, b.ty(x))
}

/// Zeros of a value's type.
pub fn zeros_like(b: &mut Builder, x: Value) -> Value {
    splat_like(b, 0.0, x)
}

/// The type in which gradients of this one are computed.
pub fn wide(ty: Type) -> Type {
    default_acc(ty.elem())
}
