//! Functions whose results are rounded to 16 bits soon: GELU, SiLU, an exponential before a bf16 store. There the hardware's
//! approximations and short polynomials are exact enough.
//!
//! | function | error, relative |
//! |---|---|
//! | `exp`, `logistic` | 2^-16 |
//! | `tanh(x)` | 2^-16 |
//! | `sinh`, `cosh`, `asinh`, `acosh`, `atanh` | 2^-16 |
//! | `log`, `log1p`, `log2`, `log10` | 2^-16 |
//! | `sin`, `cos`, `tan`, `asin`, `acos`, `atan`, `atan2` | 2^-16 |
//! | `erfc`, `erfinv`, `pow` | 2^-15 |
//! | `lgamma`, `digamma` | 2^-16, of negative numbers 2^-16 of the larger of the result and 1 |
//! | `a / b` | 2^-21 |
//! | `1 + tanh(x)`, as 2 / (1 + exp(-2 x)) | 2^-16 |
//! | `1 + erf(x)`, as erfc(-x) | 2^-14, or 2^-25 of 1; 2^-19 where other numbers are added before the rounding |
//!
//! bf16 rounds with 2^-9, f16 with 2^-12. `1 + f(x)` in f32 has an error of 2^-25 of 1 itself, from the rounding of f.

use super::emit::Math;
use rc_dialects::core::scalar;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Op, Type, Value};

/// What happens to a number between the function and its rounding to 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Until {
    /// It is multiplied, divided, chosen: relative errors stay as they are, or become smaller.
    Scaled,
    /// Other numbers are added as well.
    Summed,
}

/// Operations that are followed on the way to the rounding.
const DEPTH: usize = 12;

/// How `value`, an f32, comes to be rounded to 16 bits; `None` where it is used otherwise too.
pub fn rounded(body: &Body, value: Value) -> Option<Until> {
    body.has_uses(value).then(|| follow(body, value, DEPTH)).flatten()
}

fn follow(body: &Body, value: Value, depth: usize) -> Option<Until> {
    let depth = depth.checked_sub(1)?;
    let mut worst = Until::Scaled;
    for (user, operand) in body.uses(value) {
        let op = body.op_ref(user);
        let result = || follow(body, body.result(user, 0), depth);
        let until = match op.name().as_str() {
            op::core::CONVERT => {
                let to = body.ty(op.result(0)).elem();
                (to == Type::bf16() || to == Type::f16()).then_some(Until::Scaled)?
            }
            op::core::MUL | op::core::DIV | op::core::NEG => result()?,
            // Functions that make no relative error larger; log1p of what is not negative.
            op::core::TANH | op::core::SQRT | op::core::RSQRT | op::core::ABS => result()?,
            op::core::LOG1P if is_exponential(body, value) => result()?,
            op::core::SELECT if operand > 0 => result()?,
            op::core::ADD | op::core::SUB | op::core::FMA => result()?.max(Until::Summed),
            _ => return None,
        };
        worst = worst.max(until);
    }
    Some(worst)
}

fn is_exponential(body: &Body, value: Value) -> bool {
    body.defining_op(value).is_some_and(|op| body.name(op) == op::core::EXP)
}

/// `1 + f(x)` where f is used for nothing else: the operation of f.
pub fn one_plus(body: &Body, op: Op) -> Option<Op> {
    let sum = body.op_ref(op);
    if !sum.is(op::core::ADD) || sum.operand_types().first()?.elem() != Type::f32() {
        return None;
    }
    let is_one = |v: Value| constant_of(body, v).and_then(scalar::splat_of).is_some_and(|s| s.float() == 1.0);
    let other = [(0, 1), (1, 0)].into_iter().find(|&(_, one)| is_one(sum.operand(one)))?.0;
    let function = body.defining_op(sum.operand(other))?;
    let known = [op::core::ERF, op::core::TANH].contains(&body.name(function).as_str());
    (known && body.uses(sum.operand(other)).count() == 1).then_some(function)
}

/// log2(erfc(t)) = t P(t) on [0, 4.1]: with an error of 2^-14.5, or as erfc(t) is below 2^-11, of 2^-25.5 / erfc(t) (Lawson's
/// algorithm). Beyond, it falls on.
const LOG2_ERFC: &[f64] = &[-1.626942754, -0.923_058_390_6, -0.141_926_661_1, 0.025_689_821_69, -0.002_173_128_771];

/// The same with 2^-19.3.
const LOG2_ERFC_SUMMED: &[f64] =
    &[-1.627_981_067, -0.917_678_177_4, -0.151_026_040_3, 0.032_420_363_28, -0.004_435_090_348, 0.000_282_882_800_1];

/// tanh(x) = x + x^3 P(x^2) on |x| < 0.35, relative error 2^-18.1 (the same).
const TANH_NEAR: &[f64] = &[-0.333_007_902, 0.124_605_715];

/// log(1 + x) = x P(x) on |x| < 1/8, relative error 2^-17.3.
const LOG_NEAR: [f64; 4] = [0.9999938117993773, -0.4999886275821263, 0.33649120879005145, -0.2531630531677743];

/// asinh(x) = x + x^3 P(x^2) on |x| < 0.5, relative error 2^-20.4.
const ASINH_NEAR: &[f64] = &[-0.1666058671766312, 0.07345593360530324, -0.03306130116242969];

/// sinh(x) = x + x^3 P(x^2) on |x| < 0.5, relative error 2^-18.3.
const SINH_NEAR: &[f64] = &[1.0 / 6.0, 1.0 / 120.0];

impl Math<'_> {
    /// exp(x), within 2^-16.
    pub fn exp_narrow(&mut self, x: Value) -> Value {
        let log2e = self.c(std::f64::consts::LOG2_E);
        let t = self.mul(x, log2e);
        self.hardware("ex2", t)
    }
    /// 1 / (1 + exp(-x)), within 2^-16.
    pub fn logistic_narrow(&mut self, x: Value) -> Value {
        let (factor, one) = (self.c(-std::f64::consts::LOG2_E), self.c(1.0));
        let t = self.mul(x, factor);
        let e = self.hardware("ex2", t);
        let sum = self.add(e, one);
        self.hardware("rcp", sum)
    }
    /// tanh(x) = 1 - 2 / (1 + exp(2 x)), near 0 a polynomial; within 2^-16.
    pub fn tanh_narrow(&mut self, x: Value) -> Value {
        let square = self.mul(x, x);
        let p = self.polynomial(square, TANH_NEAR);
        let part = self.mul(square, p);
        let near = self.fma(part, x, x);
        let (factor, one, minus, limit) =
            (self.c(2.0 * std::f64::consts::LOG2_E), self.c(1.0), self.c(-2.0), self.c(0.35));
        let t = self.mul(x, factor);
        let e = self.hardware("ex2", t);
        let sum = self.add(e, one);
        let inverse = self.hardware("rcp", sum);
        let far = self.fma(inverse, minus, one);
        let magnitude = self.abs(x);
        let is_near = self.compare("lt", magnitude, limit);
        self.select(is_near, near, far)
    }
    /// exp |x| / 2 and exp(-|x|) / 2, within 2^-17.
    fn half_exponentials(&mut self, x: Value) -> [Value; 2] {
        let (a, log2e, minus, quarter) = (self.abs(x), self.c(std::f64::consts::LOG2_E), self.c(-1.0), self.c(0.25));
        let t = self.fma(a, log2e, minus);
        let e = self.hardware("ex2", t);
        let inverse = self.hardware("rcp", e);
        [e, self.mul(inverse, quarter)]
    }
    /// Within 2^-16.
    pub fn cosh_narrow(&mut self, x: Value) -> Value {
        let [e, inverse] = self.half_exponentials(x);
        self.add(e, inverse)
    }
    /// Near 0 a polynomial; within 2^-16.
    pub fn sinh_narrow(&mut self, x: Value) -> Value {
        let square = self.mul(x, x);
        let p = self.polynomial(square, SINH_NEAR);
        let part = self.mul(square, p);
        let near = self.fma(part, x, x);
        let [e, inverse] = self.half_exponentials(x);
        let far = self.sub(e, inverse);
        let far = self.with_sign_of(far, x);
        let (magnitude, limit) = (self.abs(x), self.c(0.5));
        let is_near = self.compare("lt", magnitude, limit);
        self.select(is_near, near, far)
    }
    /// log(x) `factor`, within 2^-16: what is rounded to 16 bits is exact for whole powers.
    pub fn log_to_base_narrow(&mut self, x: Value, factor: f64) -> Value {
        let one = self.c(1.0);
        let less = self.sub(x, one);
        self.log_narrow(less, x, factor)
    }
    /// log(1 + x), within 2^-16.
    pub fn log1p_narrow(&mut self, x: Value) -> Value {
        let one = self.c(1.0);
        let sum = self.add(x, one);
        self.log_narrow(x, sum, 1.0)
    }
    /// log(`sum`) `factor` of sum = 1 + x. Near 1, where the hardware's logarithm has no relative error, a polynomial.
    fn log_narrow(&mut self, x: Value, sum: Value, factor: f64) -> Value {
        let scaled = LOG_NEAR.map(|c| c * factor);
        let (p, log) = (self.polynomial(x, &scaled), self.hardware("lg2", sum));
        let (near, by) = (self.mul(x, p), self.c(std::f64::consts::LN_2 * factor));
        let (far, magnitude, limit) = (self.mul(log, by), self.abs(x), self.c(0.125));
        let is_near = self.compare("lt", magnitude, limit);
        self.select(is_near, near, far)
    }
    /// log(1 + `x`), or the logarithm of twice `whole` where that is so large that nothing else counts.
    pub fn log_of_sum_narrow(&mut self, x: Value, whole: Value) -> Value {
        let (one, zero, limit) = (self.c(1.0), self.c(0.0), self.c(2f64.powi(32)));
        let (sum, is_far) = (self.add(x, one), self.compare("gt", whole, limit));
        let (sum, rest) = (self.select(is_far, whole, sum), self.select(is_far, one, zero));
        let (log, p) = (self.hardware("lg2", sum), self.polynomial(x, &LOG_NEAR));
        let (log, near) = (self.add(log, rest), self.mul(x, p));
        let (ln2, limit) = (self.c(std::f64::consts::LN_2), self.c(0.125));
        let (far, is_near) = (self.mul(log, ln2), self.compare("lt", x, limit));
        self.select(is_near, near, far)
    }
    /// log(a + sqrt(a^2 + 1)) of a = |x|, near 0 a polynomial; within 2^-16.
    pub fn asinh_narrow(&mut self, x: Value) -> Value {
        let (a, one, limit) = (self.abs(x), self.c(1.0), self.c(0.5));
        let square = self.mul(x, x);
        let p = self.polynomial(square, ASINH_NEAR);
        let (part, next) = (self.mul(square, p), self.add(square, one));
        let (near, inverse) = (self.fma(part, a, a), self.hardware("rsqrt", next));
        let less = self.sub(a, one);
        let sum = self.fma(next, inverse, less);
        let far = self.log_of_sum_narrow(sum, a);
        let is_near = self.compare("lt", a, limit);
        let value = self.select(is_near, near, far);
        self.with_sign_of(value, x)
    }
    /// 1 + tanh(x) = 2 / (1 + exp(-2 x)), within 2^-16.
    pub fn one_plus_tanh(&mut self, x: Value) -> Value {
        let (factor, one) = (self.c(-2.0 * std::f64::consts::LOG2_E), self.c(1.0));
        let t = self.mul(x, factor);
        let e = self.hardware("ex2", t);
        let sum = self.add(e, one);
        let value = self.hardware("rcp", sum);
        self.add(value, value)
    }
    /// 1 + erf(x) = erfc(-x).
    pub fn one_plus_erf(&mut self, x: Value, until: Until) -> Value {
        let magnitude = self.abs(x);
        let (t, coefficients) = match until {
            Until::Scaled => (magnitude, LOG2_ERFC),
            // The polynomial rises again beyond.
            Until::Summed => (self.at_most(magnitude, 4.1), LOG2_ERFC_SUMMED),
        };
        let p = self.polynomial(t, coefficients);
        let exponent = self.mul(p, t);
        let (tail, zero, two) = (self.hardware("ex2", exponent), self.c(0.0), self.c(2.0));
        let whole = self.sub(two, tail);
        let negative = self.compare("lt", x, zero);
        self.select(negative, tail, whole)
    }
}
