//! Elementwise ops of one operand.

use super::special::trigamma;
use crate::builder::CoreBuilder;
use crate::constraints::{BITS, FLOAT, NUMERIC, infer_elementwise, infer_predicate};
use crate::derivative::Derivative::{Elementwise as Slopes, Zero};
use crate::derivative::{one_plus_square, times};
use crate::interfaces::{Elementwise, FloatFn, IntFn};
use rc_ir::op_def::{AttrDef, AttrKind, attr, operand, result};
use rc_ir::{Builder, Effects, OpDef, Traits, Value};
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LOG2_E, LOG10_E};

/// One declaration a line: the static, the op, its type set, inference, scalar functions and documentation.
macro_rules! unary {
    ($($id:ident $name:literal on $set:ident ($input:literal to $output:literal) $infer:ident
       float $float:expr, int $int:expr, slope $slope:expr, $(attrs $attrs:expr,)? $summary:literal, $doc:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: $summary,
                doc: $doc,
                example: concat!(
                    "func.func @", $name, "(%x: tensor<5x3x", $input, ">) -> tensor<5x3x", $output, "> {\n",
                    "  %y = core.", $name, " %x : tensor<5x3x", $output, ">\n",
                    "  func.return %y\n}\n",
                ),
                operands: &[operand("x", $set)],
                results: &[result("result", crate::constraints::SCALAR_LIKE)],
                $(attrs: $attrs,)?
                traits: Traits::ELEMENTWISE,
                effects: Effects::Pure,
                infer: Some($infer),
                fold: Some(super::fold::fold_elementwise),
                interfaces: &[&Elementwise { float: $float, int: $int }, &$slope],
                ..OpDef::new(concat!("rc.core.", $name))
            };
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id),*];
    };
}

const fn float(f: fn(f64) -> f64) -> Option<FloatFn> {
    Some(FloatFn::Unary(f))
}
const fn int(f: fn(i128) -> i128) -> Option<IntFn> {
    Some(IntFn::Unary(f))
}
const fn test(f: fn(f64) -> bool) -> Option<FloatFn> {
    Some(FloatFn::Test(f))
}
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

/// The gradient of a function with the slope factor · exp(-x²).
fn bell(b: &mut Builder, g: Value, x: Value, factor: f64) -> Value {
    let square = b.binary("mul", x, x);
    let negative = b.unary("neg", square);
    let exp = b.unary("exp", negative);
    let g = times(b, g, factor);
    b.binary("mul", g, exp)
}

const FLUSH: &[AttrDef] =
    &[attr("flush", AttrKind::Bool, "Whether subnormal results may be zero, which takes fewer instructions.")
        .optional()];

unary! {
    NEG "neg" on NUMERIC ("f32" to "f32") infer_elementwise float float(|x| -x), int int(|x| -x), slope Slopes(&[|b, p| b.unary("neg", p.g)]),
        "Elementwise negation.",
        "Flips the sign of a float, of zero and NaN too. Integers wrap: the least one is its own negation.";
    ABS "abs" on NUMERIC ("f32" to "f32") infer_elementwise float float(f64::abs), int int(i128::abs), slope Slopes(&[|b, p| {
        let sign = b.unary("sign", p.x());
        b.binary("mul", p.g, sign)
    }]),
        "Elementwise absolute value.",
        "Clears the sign of a float. Integers wrap: the least one stays. Unsigned integers stay.";
    SIGN "sign" on NUMERIC ("f32" to "f32") infer_elementwise float float(sign), int int(i128::signum), slope Zero,
        "Elementwise sign: -1, 0 or 1.",
        "A NaN or a zero of either sign gives itself.";
    EXP "exp" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::exp), int None, slope Slopes(&[|b, p| b.binary("mul", p.g, p.y)]),
        "Elementwise natural exponential.",
        "Within 2 units in the last place of the element type; subnormal results may be flushed to zero.";
    EXP2 "exp2" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::exp2), int None, slope Slopes(&[|b, p| {
        let g = times(b, p.g, LN_2);
        b.binary("mul", g, p.y)
    }]), attrs FLUSH,
        "Elementwise power of two.",
        "Within 2 units in the last place of the element type, of subnormal results too; exact for integers in range.";
    LOG "log" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::ln), int None, slope Slopes(&[|b, p| b.binary("div", p.g, p.x())]),
        "Elementwise natural logarithm.",
        "-inf for zero, NaN for negative numbers. Within 2 units in the last place.";
    LOG2 "log2" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::log2), int None, slope Slopes(&[|b, p| {
        let g = times(b, p.g, LOG2_E);
        b.binary("div", g, p.x())
    }]),
        "Elementwise logarithm to base 2.",
        "-inf for zero, NaN for negative numbers. Within 2 units in the last place; exact for powers of 2.";
    LOG10 "log10" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::log10), int None, slope Slopes(&[|b, p| {
        let g = times(b, p.g, LOG10_E);
        b.binary("div", g, p.x())
    }]),
        "Elementwise logarithm to base 10.",
        "-inf for zero, NaN for negative numbers. Within 2 units in the last place; exact for powers of 10.";
    LOG1P "log1p" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::ln_1p), int None, slope Slopes(&[|b, p| {
        let from_zero = b.binary_scalar("add", p.x(), 1.0);
        b.binary("div", p.g, from_zero)
    }]),
        "Elementwise log(1 + x), accurate near zero.",
        "-inf for -1, NaN below. Within 4 units in the last place.";
    EXPM1 "expm1" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::exp_m1), int None, slope Slopes(&[|b, p| {
        let exp = b.binary_scalar("add", p.y, 1.0);
        b.binary("mul", p.g, exp)
    }]),
        "Elementwise exp(x) - 1, accurate near zero.",
        "Within 4 units in the last place.";
    SQRT "sqrt" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::sqrt), int None, slope Slopes(&[|b, p| {
        let g = times(b, p.g, 0.5);
        b.binary("div", g, p.y)
    }]),
        "Elementwise square root.",
        "Correctly rounded. NaN for negative numbers, -0 for -0.";
    RSQRT "rsqrt" on FLOAT ("f32" to "f32") infer_elementwise float float(|x| 1.0 / x.sqrt()), int None, slope Slopes(&[|b, p| {
        let square = b.binary("mul", p.y, p.y);
        let cube = b.binary("mul", square, p.y);
        let g = times(b, p.g, -0.5);
        b.binary("mul", g, cube)
    }]),
        "Elementwise reciprocal square root.",
        "inf for 0, NaN for negative numbers. Within 2 units in the last place.";
    SIN "sin" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::sin), int None, slope Slopes(&[|b, p| {
        let cos = b.unary("cos", p.x());
        b.binary("mul", p.g, cos)
    }]),
        "Elementwise sine of radians.",
        "Within 4 units in the last place for arguments of any size. NaN for infinities.";
    COS "cos" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::cos), int None, slope Slopes(&[|b, p| {
        let sin = b.unary("sin", p.x());
        let g = b.unary("neg", p.g);
        b.binary("mul", g, sin)
    }]),
        "Elementwise cosine of radians.",
        "Within 4 units in the last place for arguments of any size. NaN for infinities.";
    TAN "tan" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::tan), int None, slope Slopes(&[|b, p| {
        let slope = one_plus_square(b, p.y, 1.0);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise tangent of radians.",
        "Within 8 units in the last place for arguments of any size. NaN for infinities.";
    ASIN "asin" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::asin), int None, slope Slopes(&[|b, p| {
        let rest = one_plus_square(b, p.x(), -1.0);
        let slope = b.unary("rsqrt", rest);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise arc sine, in radians.",
        "NaN outside of [-1, 1]. Within 8 units in the last place.";
    ACOS "acos" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::acos), int None, slope Slopes(&[|b, p| {
        let rest = one_plus_square(b, p.x(), -1.0);
        let slope = b.unary("rsqrt", rest);
        let g = b.unary("neg", p.g);
        b.binary("mul", g, slope)
    }]),
        "Elementwise arc cosine, in radians.",
        "NaN outside of [-1, 1]. Within 8 units in the last place.";
    ATAN "atan" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::atan), int None, slope Slopes(&[|b, p| {
        let slope = one_plus_square(b, p.x(), 1.0);
        b.binary("div", p.g, slope)
    }]),
        "Elementwise arc tangent, in radians.",
        "Within 8 units in the last place.";
    SINH "sinh" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::sinh), int None, slope Slopes(&[|b, p| {
        let cosh = b.unary("cosh", p.x());
        b.binary("mul", p.g, cosh)
    }]),
        "Elementwise hyperbolic sine.",
        "Within 8 units in the last place.";
    COSH "cosh" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::cosh), int None, slope Slopes(&[|b, p| {
        let sinh = b.unary("sinh", p.x());
        b.binary("mul", p.g, sinh)
    }]),
        "Elementwise hyperbolic cosine.",
        "Within 8 units in the last place.";
    ASINH "asinh" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::asinh), int None, slope Slopes(&[|b, p| {
        let square = one_plus_square(b, p.x(), 1.0);
        let slope = b.unary("rsqrt", square);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise inverse hyperbolic sine.",
        "Within 8 units in the last place.";
    ACOSH "acosh" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::acosh), int None, slope Slopes(&[|b, p| {
        let (low, high) = (b.binary_scalar("sub", p.x(), 1.0), b.binary_scalar("add", p.x(), 1.0));
        let (low, high) = (b.unary("rsqrt", low), b.unary("rsqrt", high));
        let slope = b.binary("mul", low, high);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise inverse hyperbolic cosine.",
        "NaN below 1. Within 8 units in the last place.";
    ATANH "atanh" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::atanh), int None, slope Slopes(&[|b, p| {
        let rest = one_plus_square(b, p.x(), -1.0);
        b.binary("div", p.g, rest)
    }]),
        "Elementwise inverse hyperbolic tangent.",
        "Infinite at 1 and -1, NaN beyond. Within 8 units in the last place.";
    TANH "tanh" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::tanh), int None, slope Slopes(&[|b, p| {
        let slope = one_plus_square(b, p.y, -1.0);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise hyperbolic tangent.",
        "Within 4 units in the last place.";
    ERF "erf" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::erf), int None, slope Slopes(&[|b, p| bell(b, p.g, p.x(), FRAC_2_SQRT_PI)]),
        "Elementwise error function.",
        "Within 4 units in the last place.";
    ERFC "erfc" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::erfc), int None, slope Slopes(&[|b, p| bell(b, p.g, p.x(), -FRAC_2_SQRT_PI)]),
        "Elementwise complementary error function: 1 - erf(x), accurate where that is small.",
        "Within 8 units in the last place; subnormal results may be flushed to zero.";
    ERFINV "erfinv" on FLOAT ("f32" to "f32") infer_elementwise float float(super::special::erfinv), int None, slope Slopes(&[|b, p| {
        let square = b.binary("mul", p.y, p.y);
        let exp = b.unary("exp", square);
        let g = times(b, p.g, 1.0 / FRAC_2_SQRT_PI);
        b.binary("mul", g, exp)
    }]),
        "Elementwise inverse of the error function.",
        "Infinite at 1 and -1, NaN beyond. Within 8 units in the last place.";
    LGAMMA "lgamma" on FLOAT ("f32" to "f32") infer_elementwise float float(libm::lgamma), int None, slope Slopes(&[|b, p| {
        let slope = b.unary("digamma", p.x());
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise logarithm of the magnitude of the gamma function.",
        "Infinite at zero, the negative integers and infinities. Within 8 units in the last place, f64 within 64; \
         of negative numbers, in f64 of all, of the larger of the result and 1.";
    DIGAMMA "digamma" on FLOAT ("f32" to "f32") infer_elementwise float float(super::special::digamma), int None, slope Slopes(&[|b, p| {
        let slope = trigamma(b, p.x());
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise logarithmic derivative of the gamma function.",
        "Infinite at zero, with the opposite sign of the zero; NaN at the negative integers. Within 8 units in the last place, \
         f64 within 64; of negative numbers, in f64 of all, of the larger of the result and 1.";
    LOGISTIC "logistic" on FLOAT ("f32" to "f32") infer_elementwise float float(|x| 1.0 / (1.0 + (-x).exp())), int None, slope Slopes(&[|b, p| {
        let one = b.splat(1.0, b.ty(p.y));
        let rest = b.binary("sub", one, p.y);
        let slope = b.binary("mul", p.y, rest);
        b.binary("mul", p.g, slope)
    }]),
        "Elementwise logistic function (sigmoid): 1 / (1 + exp(-x)).",
        "Within 4 units in the last place.";
    FLOOR "floor" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::floor), int None, slope Zero,
        "Elementwise greatest integer that is not above.",
        "Exact. Keeps infinities, NaN and the sign of zero.";
    CEIL "ceil" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::ceil), int None, slope Zero,
        "Elementwise least integer that is not below.",
        "Exact. Keeps infinities, NaN and the sign of zero.";
    ROUND "round" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::round_ties_even), int None, slope Zero,
        "Elementwise nearest integer, ties to even.",
        "Exact, as `torch.round`. Keeps infinities, NaN and the sign of zero.";
    TRUNC "trunc" on FLOAT ("f32" to "f32") infer_elementwise float float(f64::trunc), int None, slope Zero,
        "Elementwise integer part: the nearest integer toward zero.",
        "Exact. Keeps infinities, NaN and the sign of zero.";
    NOT "not" on BITS ("i1" to "i1") infer_elementwise float None, int int(|x| !x), slope Zero,
        "Elementwise complement of all bits; of i1, the logical not.",
        "";
    IS_FINITE "is_finite" on FLOAT ("f32" to "i1") infer_predicate float test(f64::is_finite), int None, slope Zero,
        "Elementwise: neither infinite nor NaN.",
        "";
    IS_NAN "is_nan" on FLOAT ("f32" to "i1") infer_predicate float test(f64::is_nan), int None, slope Zero,
        "Elementwise: NaN.",
        "";
}
