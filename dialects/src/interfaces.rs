//! What passes ask of an operation instead of its name. An op implements an interface by listing a static
//! of its type in [`rc_ir::OpDef::interfaces`]; `def.interface::<Decompose>()` finds it.

use crate::core::scalar::IntType;
use crate::op;
use rc_ir::{Attr, Builder, Op, OpRef, Result, Type, Value};

/// An elementwise op with a regular scalar function. Irregular ones (`compare`, `select`, `convert`, `bitcast`)
/// have none; [`crate::core::scalar::eval`] evaluates all of them.
pub struct Elementwise {
    /// On floats: computed in `f64`, to be rounded to the result's type once.
    pub float: Option<FloatFn>,
    /// On integers; results are to be wrapped to the type.
    pub int: Option<IntFn>,
}

#[derive(Clone, Copy)]
pub enum FloatFn {
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
    Ternary(fn(f64, f64, f64) -> f64),
    /// A test, whose result is `i1`.
    Test(fn(f64) -> bool),
}

/// `None` is an error of the program, such as division by zero.
#[derive(Clone, Copy)]
pub enum IntFn {
    Unary(fn(i128) -> i128),
    Binary(fn(i128, i128, IntType) -> Option<i128>),
    Ternary(fn(i128, i128, i128) -> i128),
}

/// The definition of an op by ops of a lower dialect. The ops are made by the builder (whose body holds the
/// op); the values that replace the op's results are returned. The op itself is left in place.
pub struct Decompose(pub fn(&mut Builder, Op) -> Result<Vec<Value>>);

/// An op that sums products: matrix products, contractions.
pub struct Contraction(pub fn(OpRef) -> Option<ContractionRoles>);

/// What each dimension of a contraction's operands is. The result's dimensions are the batch dimensions, the
/// free dimensions of the left operand, then those of the right, each in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractionRoles {
    pub lhs_batch: Vec<usize>,
    pub rhs_batch: Vec<usize>,
    pub lhs_contract: Vec<usize>,
    pub rhs_contract: Vec<usize>,
    pub lhs_free: Vec<usize>,
    pub rhs_free: Vec<usize>,
    /// The type in which products are added.
    pub acc: Type,
}

/// An op that combines elements along dimensions.
pub struct Reduction(pub fn(OpRef) -> Option<ReductionInfo>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionInfo {
    pub combiner: Combiner,
    /// Dimensions of operand 0 that are combined.
    pub dims: Vec<usize>,
    /// The type in which elements are combined.
    pub acc: Type,
    /// Whether the result has every prefix (a scan) or only the whole (a reduction).
    pub scan: bool,
}

impl ReductionInfo {
    /// Of an operation that is a reduction.
    pub fn of(op: OpRef) -> Option<ReductionInfo> {
        (op.def()?.interface::<Reduction>()?.0)(op)
    }
}

/// How two elements become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combiner {
    Add,
    Mul,
    /// NaN where either is NaN.
    Max,
    Min,
    And,
    Or,
    /// The index of the first maximum; a NaN counts as one.
    ArgMax,
    ArgMin,
}

impl Combiner {
    /// The words of the `kind` attribute.
    pub const KINDS: &'static [&'static str] = &["add", "mul", "max", "min", "and", "or", "argmax", "argmin"];

    pub fn from_kind(kind: &str) -> Option<Combiner> {
        use Combiner::*;
        let at = Self::KINDS.iter().position(|&k| k == kind)?;
        [Add, Mul, Max, Min, And, Or, ArgMax, ArgMin].get(at).copied()
    }
    pub fn kind(self) -> &'static str {
        Self::KINDS[self as usize]
    }
    /// The core op of two elements, `core.add` for [`Combiner::Add`]; none for the arg-kinds.
    pub fn core_op(self) -> Option<&'static str> {
        let names = [op::core::ADD, op::core::MUL, op::core::MAX, op::core::MIN, op::core::AND, op::core::OR];
        names.get(self as usize).copied()
    }
    /// What leaves every element of the scalar type `ty` as it is; none for the arg-kinds.
    pub fn identity(self, ty: Type) -> Option<Attr> {
        use crate::core::scalar::{Scalar, scalar_attr};
        let (low, high) = match IntType::of(ty) {
            Some(int) => (Scalar::Int(int.min()), Scalar::Int(int.max())),
            None => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
        };
        let number = |n: i32| if ty.is_float() { Scalar::Float(f64::from(n)) } else { Scalar::Int(i128::from(n)) };
        let value = match self {
            Combiner::Add => number(0),
            Combiner::Mul => number(1),
            Combiner::Max => low,
            Combiner::Min => high,
            Combiner::And => Scalar::Int(if ty == Type::i1() { 1 } else { -1 }),
            Combiner::Or => Scalar::Int(0),
            Combiner::ArgMax | Combiner::ArgMin => return None,
        };
        scalar_attr(ty, value)
    }
}
