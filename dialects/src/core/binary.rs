//! Elementwise ops of two operands, and `fma` and `clamp` of three.

use super::scalar::IntType;
use crate::builder::CoreBuilder;
use crate::constraints::{BITS, FLOAT, INTEGER, NUMERIC, SCALAR_LIKE, infer_elementwise};
use crate::derivative::Derivative::{Elementwise as Slopes, Zero};
use crate::derivative::{Point, times, where_or_zero, zeros_like};
use crate::interfaces::{Elementwise, FloatFn, IntFn};
use rc_ir::op_def::{operand, result};
use rc_ir::{Builder, Effects, OpDef, Traits, Value};

macro_rules! binary {
    ($($id:ident $name:literal on $set:ident $elem:literal $traits:expr, float $float:expr, int $int:expr, slopes $slopes:expr, $summary:literal, $doc:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: $summary,
                doc: $doc,
                example: concat!(
                    "func.func @", $name, "(%x: tensor<7x", $elem, ">, %y: tensor<7x", $elem, ">) -> tensor<7x", $elem, "> {\n",
                    "  %z = core.", $name, " %x, %y : tensor<7x", $elem, ">\n",
                    "  func.return %z\n}\n",
                ),
                operands: &[operand("lhs", $set), operand("rhs", $set)],
                results: &[result("result", SCALAR_LIKE)],
                traits: $traits,
                effects: Effects::Pure,
                infer: Some(infer_elementwise),
                fold: Some(super::fold::fold_elementwise),
                interfaces: &[&Elementwise { float: $float, int: $int }, &$slopes],
                ..OpDef::new(concat!("rc.core.", $name))
            };
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id,)* &FMA, &CLAMP];
    };
}

const PLAIN: Traits = Traits::ELEMENTWISE;
const COMMUTES: Traits = Traits::ELEMENTWISE.union(Traits::COMMUTATIVE);

const fn float(f: fn(f64, f64) -> f64) -> Option<FloatFn> {
    Some(FloatFn::Binary(f))
}
const fn int(f: fn(i128, i128, IntType) -> Option<i128>) -> Option<IntFn> {
    Some(IntFn::Binary(f))
}

/// IEEE 754-2019 `maximum`: NaN where either is NaN, and +0 above -0.
pub fn maximum(a: f64, b: f64) -> f64 {
    match a.partial_cmp(&b) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Equal) if a.is_sign_negative() => b,
        Some(std::cmp::Ordering::Less) => b,
        _ => a,
    }
}
/// IEEE 754-2019 `minimum`: NaN where either is NaN, and -0 below +0.
pub fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}
fn shift_left(a: i128, by: i128, ty: IntType) -> Option<i128> {
    Some(if (0..i128::from(ty.width)).contains(&by) { a << by } else { 0 })
}
fn shift_right(a: i128, by: i128, ty: IntType) -> Option<i128> {
    let inside = (0..i128::from(ty.width)).contains(&by);
    Some(a >> if inside { by } else { 127 })
}

/// y x^(y - 1), and 0 for an exponent of 0.
fn pow_by_base(b: &mut Builder, p: Point) -> Value {
    let (x, exponent) = (p.xs[0], p.xs[1]);
    let zero = zeros_like(b, exponent);
    let none = b.compare("eq", exponent, zero);
    let less = b.binary_scalar("sub", exponent, 1.0);
    let power = b.binary("pow", x, less);
    let slope = b.binary("mul", exponent, power);
    let slope = b.select(none, zero, slope);
    b.binary("mul", p.g, slope)
}

/// x^y log x, and 0 for a base of 0 with an exponent that is not negative.
fn pow_by_exponent(b: &mut Builder, p: Point) -> Value {
    let (x, exponent) = (p.xs[0], p.xs[1]);
    let zero = zeros_like(b, x);
    let (no_base, natural) = (b.compare("eq", x, zero), b.compare("ge", exponent, zero));
    let flat = b.binary("and", no_base, natural);
    let log = b.unary("log", x);
    let slope = b.binary("mul", p.y, log);
    let slope = b.select(flat, zero, slope);
    b.binary("mul", p.g, slope)
}

/// The gradient goes to the operand that was chosen, half of it to each of equal ones. `loses` holds where operand `i` was not chosen.
fn of_extreme(b: &mut Builder, p: Point, i: usize, loses: &str) -> Value {
    let (own, other) = (p.xs[i], p.xs[1 - i]);
    let (equal, lost) = (b.compare("eq", own, other), b.compare(loses, own, other));
    let half = times(b, p.g, 0.5);
    let shared = b.select(equal, half, p.g);
    let zero = zeros_like(b, p.g);
    b.select(lost, zero, shared)
}

/// g times an operand over the sum of both squares.
fn of_angle(b: &mut Builder, p: Point, i: usize, g: Value) -> Value {
    let squares = p.xs[..2].iter().map(|&x| b.binary("mul", x, x)).collect::<Vec<_>>();
    let sum = b.binary("add", squares[0], squares[1]);
    let ratio = b.binary("div", p.xs[i], sum);
    b.binary("mul", g, ratio)
}

/// The gradient of a clamp for `x`: inside of the bounds and on them.
fn of_clamped(b: &mut Builder, p: Point) -> Value {
    let (above, below) = (b.compare("ge", p.x(), p.xs[1]), b.compare("le", p.x(), p.xs[2]));
    let inside = b.binary("and", above, below);
    where_or_zero(b, inside, p.g)
}

/// The gradient of a clamp for the lower bound: where x is below it and it is not above the upper one.
fn of_lower_bound(b: &mut Builder, p: Point) -> Value {
    let (below, ordered) = (b.compare("lt", p.x(), p.xs[1]), b.compare("le", p.xs[1], p.xs[2]));
    let chosen = b.binary("and", below, ordered);
    where_or_zero(b, chosen, p.g)
}

/// The gradient of a clamp for the upper bound: where x or the lower bound is above it.
fn of_upper_bound(b: &mut Builder, p: Point) -> Value {
    let (above, crossed) = (b.compare("gt", p.x(), p.xs[2]), b.compare("gt", p.xs[1], p.xs[2]));
    let chosen = b.binary("or", above, crossed);
    where_or_zero(b, chosen, p.g)
}

binary! {
    ADD "add" on NUMERIC "f32" COMMUTES, float float(|a, b| a + b), int int(|a, b, _| Some(a + b)), slopes Slopes(&[|_, p| p.g, |_, p| p.g]),
        "Elementwise sum.", "Floats round to nearest, ties to even; integers wrap.";
    SUB "sub" on NUMERIC "f32" PLAIN, float float(|a, b| a - b), int int(|a, b, _| Some(a - b)), slopes Slopes(&[|_, p| p.g, |b, p| b.unary("neg", p.g)]),
        "Elementwise difference.", "Floats round to nearest, ties to even; integers wrap.";
    MUL "mul" on NUMERIC "f32" COMMUTES, float float(|a, b| a * b), int int(|a, b, _| Some(a.wrapping_mul(b))), slopes Slopes(&[|b, p| b.binary("mul", p.g, p.xs[1]), |b, p| b.binary("mul", p.g, p.xs[0])]),
        "Elementwise product.", "Floats round to nearest, ties to even; integers wrap.";
    DIV "div" on NUMERIC "f32" PLAIN, float float(|a, b| a / b), int int(|a, b, _| a.checked_div(b)), slopes Slopes(&[|b, p| b.binary("div", p.g, p.xs[1]), |b, p| {
        let g = b.unary("neg", p.g);
        let g = b.binary("div", g, p.xs[1]);
        b.binary("mul", g, p.y)
    }]),
        "Elementwise quotient.",
        "Floats are correctly rounded, f32 in kernels of warpgroups within 4 ulp. Integers truncate toward zero; the least integer over -1 wraps. \
         Integer division by zero is an error, which the interpreter reports; compiled, the result is undefined.";
    REM "rem" on NUMERIC "f32" PLAIN, float float(|a, b| a % b), int int(|a, b, _| a.checked_rem(b)), slopes Slopes(&[|_, p| p.g, |b, p| {
        let quotient = b.binary("div", p.xs[0], p.xs[1]);
        let whole = b.unary("trunc", quotient);
        let g = b.unary("neg", p.g);
        b.binary("mul", g, whole)
    }]),
        "Elementwise remainder of the truncated quotient, with the sign of the dividend.",
        "As C's `fmod` and `%`; exact. Integer remainder by zero is an error, which the interpreter reports; compiled, \
         the result is undefined.";
    POW "pow" on FLOAT "f32" PLAIN, float float(f64::powf), int None, slopes Slopes(&[pow_by_base, pow_by_exponent]),
        "Elementwise power.",
        "As C's `pow`: 1 for an exponent of zero or a base of one, even beside NaN; NaN for a negative base and an \
         exponent that is no integer. Within 8 units in the last place.";
    MAX "max" on NUMERIC "f32" COMMUTES, float float(maximum), int int(|a, b, _| Some(a.max(b))), slopes Slopes(&[|b, p| of_extreme(b, p, 0, "lt"), |b, p| of_extreme(b, p, 1, "lt")]),
        "Elementwise maximum.", "IEEE 754-2019 `maximum`: NaN where either operand is NaN; -0 is below +0.";
    MIN "min" on NUMERIC "f32" COMMUTES, float float(minimum), int int(|a, b, _| Some(a.min(b))), slopes Slopes(&[|b, p| of_extreme(b, p, 0, "gt"), |b, p| of_extreme(b, p, 1, "gt")]),
        "Elementwise minimum.", "IEEE 754-2019 `minimum`: NaN where either operand is NaN; -0 is below +0.";
    ATAN2 "atan2" on FLOAT "f32" PLAIN, float float(f64::atan2), int None, slopes Slopes(&[|b, p| of_angle(b, p, 1, p.g), |b, p| {
        let g = b.unary("neg", p.g);
        of_angle(b, p, 0, g)
    }]),
        "Elementwise angle in radians of the point (rhs, lhs).", "As C's `atan2`. Within 4 units in the last place.";
    AND "and" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a & b)), slopes Zero,
        "Elementwise bitwise and; of i1, the logical one.", "";
    OR "or" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a | b)), slopes Zero,
        "Elementwise bitwise or; of i1, the logical one.", "";
    XOR "xor" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a ^ b)), slopes Zero,
        "Elementwise bitwise exclusive or; of i1, inequality.", "";
    SHL "shl" on INTEGER "i32" PLAIN, float None, int int(shift_left), slopes Zero,
        "Elementwise shift to the left.",
        "`rhs` is the number of bits. A number outside of [0, width) gives 0.";
    SHR "shr" on INTEGER "i32" PLAIN, float None, int int(shift_right), slopes Zero,
        "Elementwise shift to the right.",
        "`rhs` is the number of bits. Arithmetic (copies of the sign move in), of unsigned types logical. \
         A number outside of [0, width) gives 0, or -1 for a negative signed integer.";
}

pub static FMA: OpDef = OpDef {
    summary: "Elementwise a * b + c with one rounding.",
    doc: "The exact product and sum, rounded once to the element type.",
    example: "func.func @fma(%a: tensor<7xf32>, %b: tensor<7xf32>, %c: tensor<7xf32>) -> tensor<7xf32> {
  %y = core.fma %a, %b, %c : tensor<7xf32>
  func.return %y
}
",
    operands: &[operand("a", FLOAT), operand("b", FLOAT), operand("c", FLOAT)],
    results: &[result("result", FLOAT)],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer_elementwise),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[
        &Elementwise { float: Some(FloatFn::Ternary(f64::mul_add)), int: None },
        &Slopes(&[|b, p| b.binary("mul", p.g, p.xs[1]), |b, p| b.binary("mul", p.g, p.xs[0]), |_, p| p.g]),
    ],
    ..OpDef::new("rc.core.fma")
};

pub static CLAMP: OpDef = OpDef {
    summary: "Elementwise min(max(x, lo), hi).",
    doc: "With `core.max`'s and `core.min`'s meaning: NaN where any operand is NaN; `hi` where lo > hi.",
    example: "func.func @clamp(%x: tensor<7xf32>, %lo: tensor<7xf32>, %hi: tensor<7xf32>) -> tensor<7xf32> {
  %y = core.clamp %x, %lo, %hi : tensor<7xf32>
  func.return %y
}
",
    operands: &[operand("x", NUMERIC), operand("lo", NUMERIC), operand("hi", NUMERIC)],
    results: &[result("result", NUMERIC)],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer_elementwise),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[
        &Elementwise {
            float: Some(FloatFn::Ternary(|x, lo, hi| minimum(maximum(x, lo), hi))),
            int: Some(IntFn::Ternary(|x, lo, hi| x.max(lo).min(hi))),
        },
        &Slopes(&[of_clamped, of_lower_bound, of_upper_bound]),
    ],
    ..OpDef::new("rc.core.clamp")
};
