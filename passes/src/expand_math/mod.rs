//! `expand-math`: elementary functions of scalars and vectors become arithmetic, within the error that each op's
//! declaration states. Neither libm nor libdevice is needed.
//!
//! | op | f32 | f64 |
//! |---|---|---|
//! | `exp` | 2 ulp, on a GPU 3; subnormal results may become zero | 2 ulp; subnormal results may become zero |
//! | `exp2` | 2 ulp, on a GPU 3; with `flush`, subnormal results become zero | 2 ulp, as in f32 |
//! | `log`, `rsqrt` | 2 ulp | 2 ulp |
//! | `expm1`, `log1p`, `tanh` | 4 ulp | 4 ulp |
//! | `logistic` | 4 ulp, on a GPU 8; subnormal results may become zero | 4 ulp |
//! | `erf`, `atan2` | 4 ulp | 4 ulp |
//! | `sin`, `cos` | 4 ulp, arguments of any size | 4 ulp, arguments of any size |
//! | `pow` | 2 ulp, computed in f64 | 8 ulp |
//! | `rem` | exact | exact |
//! | `tan`, `asin`, `acos`, `atan`, `sinh`, `cosh`, `asinh`, `acosh`, `atanh` | 8 ulp | 8 ulp |
//! | `log2`, `log10` | 2 ulp, exact for whole powers | 2 ulp, exact for whole powers |
//! | `erfc` | 8 ulp, subnormal results may become zero | 8 ulp, subnormal results may become zero |
//! | `erfinv` | 2 ulp | 8 ulp, subnormal results may become zero |
//! | `lgamma`, `digamma` | 8 ulp, of negative numbers 8 ulp of the larger of the result and 1 | 64 ulp of the larger of the result and 1 |
//! | `div`, in kernels whose warpgroups multiply | 4 ulp | |
//! | `div`, on a GPU by a number that divides several elements of a thread | 1/2 ulp, 1 of what is not normal | |
//!
//! On a GPU 64-bit integers are divided as such of 32 bits where they are.
//!
//! bf16 and f16 are computed in f32 and rounded. On a GPU f32 uses `kernel.approx` (ex2, rcp, rsqrt) where
//! the bound allows it, and what is rounded to 16 bits soon after has the bounds of [`narrow`] there.

mod emit;
mod exp;
mod gamma;
mod gamma_f64;
mod hyperbolic;
mod integer;
mod inverse_trig;
mod log;
mod narrow;
mod pow_f32;
mod pow_f64;
mod quotient;
mod random;
mod rem;
mod special;
#[cfg(test)]
mod tests;
mod trig;
mod trig_f64;

use emit::{Constants, Math};
use rc_dialects::op;
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::{Body, Module, Op, OpRef, Result, Type, Value};

pub static EXPAND_MATH: PassDef = PassDef {
    summary: "Expands elementary functions in kernels to arithmetic with a stated error.",
    doc: "Works on kernel.func in the thread phase. exp, exp2, log, log1p, expm1, tanh, erf, logistic, rsqrt, sin, cos, atan2, pow, rem and what is made of these become polynomials, fma and \
bit operations; 16-bit floats are computed in f32 and rounded; on CUDA kernel.approx is used where the op's bound allows it. There, results that are \
rounded to 16 bits after a few operations are computed as exactly as that needs: exp, logistic, logarithms, trigonometric and hyperbolic functions and their inverses, lgamma, digamma and 1 + tanh within 2^-16, quotients within 2^-21, erfc, erfinv and pow within 2^-15, 1 + erf within 2^-14, 2^-19 where sums come before.",
    requires: &["lower-tiles"],
    pending: Some(|module: &Module| {
        let expandable = |body: &Body| {
            body.walk().iter().any(|&op| expands(body.op_ref(op)))
                || !quotient::divisions(body).is_empty()
                || !integer::divisions(body).is_empty()
        };
        module.bodies.iter().any(|body| is_thread_kernel(body) && expandable(body))
    }),
    ..PassDef::new("expand-math", |_| {
        Ok(PassKind::symbol(|body: &mut Body, cx: &mut SymbolContext| {
            if is_thread_kernel(body) {
                let count = expand(body)?;
                cx.count("functions expanded", count);
            }
            Ok(())
        }))
    })
};

fn is_thread_kernel(body: &Body) -> bool {
    let root = body.op_ref(body.root());
    root.is(op::kernel::FUNC) && root.str("phase") == Some("thread")
}

/// 1 / log 2 and 1 / log 10, and what their f64 leaves out.
const LOG2_E: [f64; 2] = [std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17];
const LOG10_E: [f64; 2] = [std::f64::consts::LOG10_E, 1.098_319_650_216_765e-17];

/// The functions.
pub const FUNCTIONS: &[&str] = &[
    op::core::EXP,
    op::core::EXP2,
    op::core::EXPM1,
    op::core::LOGISTIC,
    op::core::TANH,
    op::core::LOG,
    op::core::LOG1P,
    op::core::RSQRT,
    op::core::ERF,
    op::core::SIN,
    op::core::COS,
    op::core::ATAN2,
    op::core::POW,
    op::core::REM,
    op::core::TAN,
    op::core::ASIN,
    op::core::ACOS,
    op::core::ATAN,
    op::core::SINH,
    op::core::COSH,
    op::core::ASINH,
    op::core::ACOSH,
    op::core::ATANH,
    op::core::LOG2,
    op::core::LOG10,
    op::core::ERFC,
    op::core::ERFINV,
    op::core::LGAMMA,
    op::core::DIGAMMA,
];

fn expands(op: OpRef) -> bool {
    let name = op.name().as_str();
    let float = |i: usize| op.operand_types().get(i).map(|t| t.elem()).filter(|t| t.is_float());
    let narrow_fma = name == op::core::FMA && float(0).is_some_and(|t| t.bit_width() < Some(32));
    [op::core::PHILOX, op::core::PHILOX_WORD].contains(&name)
        || float(0).is_some() && (narrow_fma || FUNCTIONS.contains(&name))
}

/// A copy of the body in which no elementary function is left.
///
/// # Errors
/// A function of an element type that it is not expanded for.
pub fn expand_math(body: &Body) -> Result<Body> {
    let mut out = body.clone();
    expand(&mut out)?;
    Ok(out)
}

/// Expands in place; gives the number of functions.
fn expand(body: &mut Body) -> Result<u64> {
    let gpu = body.op_ref(body.root()).str("target") == Some("cuda");
    let mut constants = Constants::default();
    let short = if gpu { expand_sums(body, &mut constants) } else { 0 };
    let ops: Vec<Op> = body.walk().into_iter().filter(|&op| expands(body.op_ref(op))).collect();
    let whole = integer::divisions(body);
    // Whether a quotient is rounded soon is asked before the functions on the way are expanded.
    let quotients = quotient::divisions(body);
    for &op in &ops {
        let value = expand_op(body, &mut constants, op, gpu)?;
        body.replace_op(op, &[value]);
    }
    let divisions = quotient::expand_divisions(body, &mut constants, &quotients);
    let whole = integer::expand_divisions(body, &mut constants, &whole);
    Ok(short + ops.len() as u64 + divisions + whole)
}

/// `1 + erf(x)` and `1 + tanh(x)`, where they are rounded to 16 bits soon; their number.
fn expand_sums(body: &mut Body, constants: &mut Constants) -> u64 {
    let mut count = 0;
    for op in body.walk() {
        let Some(function) = narrow::one_plus(body, op) else { continue };
        let Some(until) = narrow::rounded(body, body.result(op, 0)) else { continue };
        let (x, ty) = (body.operand(function, 0), body.ty(body.result(op, 0)));
        let is_erf = body.op_ref(function).is(op::core::ERF);
        let mut m = Math { body, constants, before: op, ty, approx: true, rounded: true };
        let value = if is_erf { m.one_plus_erf(x, until) } else { m.one_plus_tanh(x) };
        body.replace_op(op, &[value]);
        body.erase(function);
        count += 1;
    }
    count
}

fn expand_op(body: &mut Body, constants: &mut Constants, op: Op, gpu: bool) -> Result<Value> {
    let operands: Vec<Value> = body.operands(op).collect();
    let (ty, name) = (body.ty(operands[0]), body.name(op).as_str());
    let elem = ty.elem();
    if name == op::core::PHILOX || name == op::core::PHILOX_WORD {
        let ty = ty.with_elem(Type::f64());
        let mut m = Math { body, constants, before: op, ty, approx: false, rounded: false };
        let [key, counter] = [operands[0], operands[1]];
        return Ok(if name == op::core::PHILOX { m.philox(key, counter) } else { m.philox_word(key, counter) });
    }
    let narrow = elem.is_float() && elem.bit_width() <= Some(16);
    let unsupported = |body: &Body| {
        body.op_ref(op).unsupported(format!("on {ty}")).help("compute it in f32, with core.convert around it")
    };
    if !narrow && elem != Type::f32() && elem != Type::f64() {
        return Err(unsupported(body));
    }
    let compute = if narrow { ty.with_elem(Type::f32()) } else { ty };
    let approx = gpu && compute.elem() == Type::f32();
    let rounded = approx && (narrow || narrow::rounded(body, body.result(op, 0)).is_some());
    let mut m = Math { body, constants, before: op, ty: compute, approx, rounded };
    let inputs: Vec<Value> = operands.iter().map(|&x| if narrow { m.convert(x, Type::f32()) } else { x }).collect();
    let value = match name {
        op::core::EXP if rounded => m.exp_narrow(inputs[0]),
        op::core::TANH if rounded => m.tanh_narrow(inputs[0]),
        op::core::LOGISTIC if rounded => m.logistic_narrow(inputs[0]),
        op::core::SINH if rounded => m.sinh_narrow(inputs[0]),
        op::core::COSH if rounded => m.cosh_narrow(inputs[0]),
        op::core::LOG if rounded => m.log_to_base_narrow(inputs[0], 1.0),
        op::core::LOG1P if rounded => m.log1p_narrow(inputs[0]),
        op::core::LOG2 if rounded => m.log_to_base_narrow(inputs[0], LOG2_E[0]),
        op::core::LOG10 if rounded => m.log_to_base_narrow(inputs[0], LOG10_E[0]),
        op::core::EXP2 if m.body.op_ref(op).bool("flush") => m.exp2_of_normal(inputs[0]),
        _ => match function(&mut m, name, &inputs) {
            Some(value) => value,
            None => return Err(unsupported(body)),
        },
    };
    Ok(if narrow { m.convert(value, elem) } else { value })
}

fn function(m: &mut Math, name: &str, x: &[Value]) -> Option<Value> {
    Some(match name {
        op::core::EXP => m.exp(x[0]),
        op::core::EXP2 => m.exp2(x[0]),
        op::core::EXPM1 => m.expm1(x[0]),
        op::core::LOGISTIC => m.logistic(x[0]),
        op::core::TANH => m.tanh(x[0]),
        op::core::LOG => m.log(x[0]),
        op::core::LOG1P => m.log1p(x[0]),
        op::core::RSQRT => m.rsqrt(x[0]),
        op::core::ERF => m.erf(x[0]),
        op::core::SIN => m.sin(x[0]),
        op::core::COS => m.cos(x[0]),
        op::core::ATAN2 => m.atan2(x[0], x[1]),
        op::core::POW => m.pow(x[0], x[1]),
        op::core::REM => m.rem(x[0], x[1]),
        op::core::TAN => m.tan(x[0]),
        op::core::ASIN => m.asin(x[0]),
        op::core::ACOS => m.acos(x[0]),
        op::core::ATAN => m.atan(x[0]),
        op::core::SINH => m.sinh(x[0]),
        op::core::COSH => m.cosh(x[0]),
        op::core::ASINH => m.asinh(x[0]),
        op::core::ACOSH => m.acosh(x[0]),
        op::core::ATANH => m.atanh(x[0]),
        op::core::LOG2 => m.log_to_base(x[0], LOG2_E),
        op::core::LOG10 => m.log_to_base(x[0], LOG10_E),
        op::core::ERFC => m.erfc(x[0]),
        op::core::ERFINV => m.erfinv(x[0]),
        op::core::LGAMMA => m.lgamma(x[0]),
        op::core::DIGAMMA => m.digamma(x[0]),
        op::core::FMA => m.fma(x[0], x[1], x[2]),
        _ => return None,
    })
}
