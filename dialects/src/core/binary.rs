//! Elementwise ops of two operands, and `fma` and `clamp` of three.

use super::scalar::IntType;
use crate::constraints::{BITS, FLOAT, INTEGER, NUMERIC, SCALAR_LIKE, infer_elementwise};
use crate::interfaces::{Elementwise, FloatFn, IntFn};
use rc_ir::op_def::{operand, result};
use rc_ir::{Effects, OpDef, Traits};

macro_rules! binary {
    ($($id:ident $name:literal on $set:ident $elem:literal $traits:expr, float $float:expr, int $int:expr, $summary:literal, $doc:literal;)*) => {
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
                interfaces: &[&Elementwise { float: $float, int: $int }],
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

binary! {
    ADD "add" on NUMERIC "f32" COMMUTES, float float(|a, b| a + b), int int(|a, b, _| Some(a + b)),
        "Elementwise sum.", "Floats round to nearest, ties to even; integers wrap.";
    SUB "sub" on NUMERIC "f32" PLAIN, float float(|a, b| a - b), int int(|a, b, _| Some(a - b)),
        "Elementwise difference.", "Floats round to nearest, ties to even; integers wrap.";
    MUL "mul" on NUMERIC "f32" COMMUTES, float float(|a, b| a * b), int int(|a, b, _| Some(a.wrapping_mul(b))),
        "Elementwise product.", "Floats round to nearest, ties to even; integers wrap.";
    DIV "div" on NUMERIC "f32" PLAIN, float float(|a, b| a / b), int int(|a, b, _| a.checked_div(b)),
        "Elementwise quotient.",
        "Floats are correctly rounded. Integers truncate toward zero; the least integer over -1 wraps. \
         Integer division by zero is an error, which the interpreter reports; compiled, the result is undefined.";
    REM "rem" on NUMERIC "f32" PLAIN, float float(|a, b| a % b), int int(|a, b, _| a.checked_rem(b)),
        "Elementwise remainder of the truncated quotient, with the sign of the dividend.",
        "As C's `fmod` and `%`; exact. Integer remainder by zero is an error, which the interpreter reports; compiled, \
         the result is undefined.";
    POW "pow" on FLOAT "f32" PLAIN, float float(f64::powf), int None,
        "Elementwise power.",
        "As C's `pow`: 1 for an exponent of zero or a base of one, even beside NaN; NaN for a negative base and an \
         exponent that is no integer. Within 8 units in the last place.";
    MAX "max" on NUMERIC "f32" COMMUTES, float float(maximum), int int(|a, b, _| Some(a.max(b))),
        "Elementwise maximum.", "IEEE 754-2019 `maximum`: NaN where either operand is NaN; -0 is below +0.";
    MIN "min" on NUMERIC "f32" COMMUTES, float float(minimum), int int(|a, b, _| Some(a.min(b))),
        "Elementwise minimum.", "IEEE 754-2019 `minimum`: NaN where either operand is NaN; -0 is below +0.";
    ATAN2 "atan2" on FLOAT "f32" PLAIN, float float(f64::atan2), int None,
        "Elementwise angle in radians of the point (rhs, lhs).", "As C's `atan2`. Within 4 units in the last place.";
    AND "and" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a & b)),
        "Elementwise bitwise and; of i1, the logical one.", "";
    OR "or" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a | b)),
        "Elementwise bitwise or; of i1, the logical one.", "";
    XOR "xor" on BITS "i1" COMMUTES, float None, int int(|a, b, _| Some(a ^ b)),
        "Elementwise bitwise exclusive or; of i1, inequality.", "";
    SHL "shl" on INTEGER "i32" PLAIN, float None, int int(shift_left),
        "Elementwise shift to the left.",
        "`rhs` is the number of bits. A number outside of [0, width) gives 0.";
    SHR "shr" on INTEGER "i32" PLAIN, float None, int int(shift_right),
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
    interfaces: &[&Elementwise { float: Some(FloatFn::Ternary(f64::mul_add)), int: None }],
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
    interfaces: &[&Elementwise {
        float: Some(FloatFn::Ternary(|x, lo, hi| minimum(maximum(x, lo), hi))),
        int: Some(IntFn::Ternary(|x, lo, hi| x.max(lo).min(hi))),
    }],
    ..OpDef::new("rc.core.clamp")
};
