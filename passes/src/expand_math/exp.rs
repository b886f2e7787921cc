//! `exp`, `exp2`, `expm1`, and what is made of them: `logistic`, `tanh`.
//!
//! With x = n ln 2 + f, |f| <= ln 2 / 2, exp(x) = 2^n exp(f), and exp(f) - 1 is a minimax polynomial. n is found by adding
//! 1.5 * 2^23 (f32), which leaves it in the low bits of the sum. Subnormal results become zero, but for `exp2`.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;

/// exp(f) - 1 = f + f^2 P(f) on |f| <= 0.3475, relative error 2^-31.9 and 2^-61.7.
const EXPM1_F32: &[f64] = &[0.5, 1.666666567e-01, 4.166635871e-02, 8.333389647e-03, 1.394089311e-03, 1.984590053e-04];
const EXPM1_F64: &[f64] = &[
    0.5,
    0.16666666666666677,
    0.041666666666666505,
    0.008333333333321449,
    0.001388888888896386,
    0.00019841269886661356,
    2.4801587170583255e-05,
    2.755724359984424e-06,
    2.7557403473450287e-07,
    2.5109272355766312e-08,
    2.087533011557584e-09,
];
/// 2^f - 1 = f Q(f) on |f| <= 0.5, relative to 2^f 2^-28.9 and 2^-58.0.
const EXP2_F32: &[f64] =
    &[6.931471825e-01, 2.402264774e-01, 5.550332367e-02, 9.618436918e-03, 1.339887385e-03, 1.535336341e-04];
#[expect(clippy::approx_constant, reason = "a coefficient near ln 2, not equal")]
const EXP2_F64: &[f64] = &[
    0.6931471805599453,
    0.2402265069591013,
    0.055504108664820084,
    0.00961812910759412,
    0.001333355814677463,
    0.00015403530457112067,
    1.525273349311665e-05,
    1.3215435282336804e-06,
    1.0178199576815802e-07,
    7.073783241791062e-09,
    4.4347705024668045e-10,
];
const LN2_F64: [f64; 2] = [std::f64::consts::LN_2, 2.3190468138462996e-17];
const LN2_F32: [f64; 2] = [0.693_147_182_464_599_6, -1.904_654_212_133_6e-9];
/// Below the first, f32's exp is subnormal; the second is the least number whose exp is infinite.
const EXP_LIMITS: [f64; 2] = [-88.0, 88.722_839_355_468_75];
const LOG2E_F32: [f64; 2] = [1.442_695_021_629_333_5, 1.925_963_033_500_011e-8];

/// x as n parts of a step and the rest.
struct Reduced {
    /// n plus 1.5 * 2^mantissa: its low bits are n.
    shifted: Value,
    rest: Value,
}

impl Math<'_> {
    fn magic(&self) -> f64 {
        1.5 * (1u64 << self.format().mantissa) as f64
    }
    fn reduce_by_ln2(&mut self, x: Value) -> Reduced {
        let ln2 = if self.is_f64() { LN2_F64 } else { LN2_F32 };
        let (log2e, magic) = (self.c(std::f64::consts::LOG2_E), self.c(self.magic()));
        let shifted = self.fma(x, log2e, magic);
        let n = self.sub(shifted, magic);
        let (high, low) = (self.c(-ln2[0]), self.c(-ln2[1]));
        let rest = self.fma(n, high, x);
        let rest = self.fma(n, low, rest);
        Reduced { shifted, rest }
    }
    /// exp(f) - 1 for |f| <= ln 2 / 2.
    fn expm1_rest(&mut self, f: Value) -> Value {
        let p = self.polynomial(f, if self.is_f64() { EXPM1_F64 } else { EXPM1_F32 });
        let square = self.mul(f, f);
        self.fma(square, p, f)
    }
    /// `p * 2^n` by adding n to the exponent: right where p and the result are normal numbers.
    fn scale(&mut self, p: Value, shifted: Value) -> Value {
        let (bits, n) = (self.bits(p), self.bits(shifted));
        let n = self.shl(n, self.format().mantissa);
        let sum = self.add(bits, n);
        self.float(sum)
    }
    /// 2^(n - 1), for n from 2 - bias to bias + 1.
    fn half_power(&mut self, shifted: Value) -> Value {
        let format = self.format();
        let n = self.bits(shifted);
        let n = self.shl(n, format.mantissa);
        let bias = self.i((format.bias - 1) << format.mantissa);
        let sum = self.add(n, bias);
        self.float(sum)
    }
    /// The value within (`low`, `high`]; `below` at and under `low`; above `high`, infinity; NaN for NaN.
    fn within(&mut self, x: Value, value: Value, low: f64, below: f64, high: f64) -> Value {
        let (low, below, high, infinity) = (self.c(low), self.c(below), self.c(high), self.c(f64::INFINITY));
        let fits = self.compare("le", x, high);
        let beyond = self.mul(x, infinity);
        let value = self.select(fits, value, beyond);
        let under = self.compare("lt", x, low);
        self.select(under, below, value)
    }

    /// exp(x) where neither x is NaN nor the result beyond the normal numbers. With hardware approximations within 3 ulp, else
    /// within 1.
    pub fn exp_inside(&mut self, x: Value) -> Value {
        if self.approx {
            let (f, shifted) = self.reduce_to_base_2(x);
            let p = self.hardware("ex2", f);
            return self.scale(p, shifted);
        }
        let reduced = self.reduce_by_ln2(x);
        let (one, q) = (self.c(1.0), self.expm1_rest(reduced.rest));
        let p = self.add(q, one);
        self.scale(p, reduced.shifted)
    }
    /// f32: x / ln 2 as n and a rest.
    fn reduce_to_base_2(&mut self, x: Value) -> (Value, Value) {
        let (high, low, magic) = (self.c(LOG2E_F32[0]), self.c(LOG2E_F32[1]), self.c(self.magic()));
        let shifted = self.fma(x, high, magic);
        let n = self.sub(magic, shifted);
        let f = self.fma(x, high, n);
        (self.fma(x, low, f), shifted)
    }
    /// exp(x) for all x by the hardware's ex2 (2.06 ulp measured on sm_90), within 3 ulp. With t + r = x / ln 2, t rounded:
    /// 2^t + 2^t (r ln 2). Limits take the cases: 2^t flushes to zero at the lower, and is infinite at the upper one, where r > 0.
    fn exp_by_hardware(&mut self, x: Value) -> Value {
        let (low, high) = (self.c(EXP_LIMITS[0]), self.c(EXP_LIMITS[1]));
        let x = self.op(op::core::MAX, &[x, low]);
        let x = self.op(op::core::MIN, &[x, high]);
        let (log2e, less) = (self.c(LOG2E_F32[0]), self.c(LOG2E_F32[1]));
        let t = self.mul(x, log2e);
        let minus = self.neg(t);
        let r = self.fma(x, log2e, minus);
        let r = self.fma(x, less, r);
        let (power, ln2) = (self.hardware("ex2", t), self.c(std::f64::consts::LN_2));
        let r = self.mul(r, ln2);
        self.fma(power, r, power)
    }
    /// `value` = exp(x), with the cases that it does not cover.
    fn exp_cases(&mut self, x: Value, value: Value) -> Value {
        let (low, high) =
            if self.is_f64() { (-708.396_418_532_264_1, 709.782_712_893_384) } else { (-87.336_544, 88.722_831_726) };
        self.within(x, value, low, 0.0, high)
    }
    /// Within 1 ulp; with hardware approximations 3.
    pub fn exp(&mut self, x: Value) -> Value {
        if self.approx {
            return self.exp_by_hardware(x);
        }
        let value = self.exp_inside(x);
        self.exp_cases(x, value)
    }
    /// 2^(n + f), |f| <= 0.5.
    fn power_of_2(&mut self, f: Value, shifted: Value) -> Value {
        let q = self.polynomial(f, if self.is_f64() { EXP2_F64 } else { EXP2_F32 });
        let one = self.c(1.0);
        let p = self.fma(q, f, one);
        self.scale(p, shifted)
    }
    /// Within 2 ulp, by the hardware's ex2 within 3; exact for integers. Where the result is subnormal, that of a larger number, scaled down.
    pub fn exp2(&mut self, x: Value) -> Value {
        let up = if self.is_f64() { 128 } else { 64 };
        let (least, zero, one) = (self.c(1.0 - self.format().bias as f64), self.c(0.0), self.c(1.0));
        let (shift, factor) = (self.c(f64::from(up)), self.c(2f64.powi(-up)));
        let small = self.compare("lt", x, least);
        let shift = self.select(small, shift, zero);
        let x = self.add(x, shift);
        let value = self.exp2_of_normal(x);
        let factor = self.select(small, factor, one);
        self.mul(value, factor)
    }
    /// As [`Math::exp2`] (PTX ISA on ex2: relative error 2^-22); subnormal results become zero.
    pub fn exp2_of_normal(&mut self, x: Value) -> Value {
        if self.approx {
            return self.hardware("ex2", x);
        }
        let magic = self.c(self.magic());
        let shifted = self.add(x, magic);
        let n = self.sub(shifted, magic);
        let f = self.sub(x, n);
        let value = self.power_of_2(f, shifted);
        let bias = self.format().bias as f64;
        // The largest number below bias + 1.
        let high = if self.is_f64() {
            f64::from_bits(1024f64.to_bits() - 1)
        } else {
            f64::from(f32::from_bits(128f32.to_bits() - 1))
        };
        self.within(x, value, 1.0 - bias, 0.0, high)
    }
    /// exp(x) - 1 where x is not NaN, not below -18 (f32) or -38 (f64) and does not overflow: 2 (2^(n-1) q + 2^(n-1) - 1/2).
    fn expm1_inside(&mut self, x: Value) -> Value {
        let reduced = self.reduce_by_ln2(x);
        let q = self.expm1_rest(reduced.rest);
        let power = self.half_power(reduced.shifted);
        let half = self.c(0.5);
        let less = self.sub(power, half);
        let value = self.fma(q, power, less);
        self.add(value, value)
    }
    /// Within 4 ulp.
    pub fn expm1(&mut self, x: Value) -> Value {
        let value = self.expm1_inside(x);
        let (low, high) = if self.is_f64() { (-38.0, 709.782_712_893_384) } else { (-18.0, 88.722_831_726) };
        let value = self.within(x, value, low, -1.0, high);
        let zero = self.c(0.0);
        let is_zero = self.compare("eq", x, zero);
        self.select(is_zero, x, value)
    }
    /// 1 / (1 + exp(-x)), within 4 ulp, with hardware approximations 8; subnormal results may become zero.
    pub fn logistic(&mut self, x: Value) -> Value {
        let minus = self.neg(x);
        let (e, one) = (self.exp(minus), self.c(1.0));
        let sum = self.add(e, one);
        self.reciprocal(sum)
    }
    /// tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1, within 4 ulp.
    pub fn tanh(&mut self, x: Value) -> Value {
        let magnitude = self.abs(x);
        // Beyond, it is 1 to the last place.
        let magnitude = self.at_most(magnitude, if self.is_f64() { 20.0 } else { 10.0 });
        let twice = self.add(magnitude, magnitude);
        let (e, two) = (self.expm1_inside(twice), self.c(2.0));
        let sum = self.add(e, two);
        let value = if self.approx {
            let inverse = self.hardware("rcp", sum);
            self.mul(e, inverse)
        } else {
            self.div(e, sum)
        };
        self.with_sign_of(value, x)
    }
    pub fn reciprocal(&mut self, x: Value) -> Value {
        if self.approx {
            return self.hardware("rcp", x);
        }
        let one = self.c(1.0);
        self.div(one, x)
    }
}
