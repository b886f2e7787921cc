//! `exp`, `exp2`, `expm1`, and what is made of them: `logistic`, `tanh`.
//!
//! With x = n ln 2 + f, |f| <= ln 2 / 2, exp(x) = 2^n exp(f), and exp(f) is a minimax polynomial. n is found by adding
//! 1.5 * 2^23 + 127 (f32), which leaves the exponent of 2^n in the low bits of the sum. There are no branches and no masks: n is at most 127, so that
//! f goes up to ln 2 before the result overflows, and at least -127, for which 2^n is zero. Subnormal results become zero or stay, but for `exp2`.

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
/// exp(f) on -0.3475 <= f <= 0.694, relative error 2^-29.3 and 2^-56.5.
const EXP_F32: &[f64] =
    &[1.0, 1.0, 4.9999995e-01, 1.66667002e-01, 4.16680636e-02, 8.32675576e-03, 1.38393639e-03, 2.32487832e-04];
const EXP_F64: &[f64] = &[
    1.0,
    1.0,
    0.500_000_000_000_001,
    0.166_666_666_666_657_77,
    0.041_666_666_666_583_02,
    0.008_333_333_333_818_54,
    0.001_388_888_890_540_981_2,
    0.000_198_412_688_777_062_9,
    2.480_157_952_132_636_3e-5,
    2.755_812_713_564_472e-6,
    2.755_219_584_531_988e-7,
    2.482_981_849_128_214_4e-8,
    2.463_986_986_766_099e-9,
];
/// 2^f on -0.5 <= f <= 1, relative error 2^-29.1 and 2^-55.9; 2 at 1.
const EXP2_F32: &[f64] =
    &[1.0, 6.931_471_6e-1, 2.402_265e-1, 5.550_443_6e-2, 9.618_145e-3, 1.331_835e-3, 1.545_483_8e-4, 1.737_284_7e-5];
const EXP2_F64: &[f64] = &[
    1.0,
    0.693_147_180_559_945_6,
    0.240_226_506_959_100_83,
    0.055_504_108_664_808_66,
    0.009_618_129_107_628_346,
    0.001_333_355_814_828_230_8,
    0.000_154_035_303_854_774_03,
    1.525_273_271_482_398e-5,
    1.321_549_585_817_735_4e-6,
    1.017_835_296_787_386_5e-7,
    7.051_556_563_266_937e-9,
    4.428_547_883_579_001e-10,
    2.959_189_088_717_041_6e-11,
];
const LN2_F64: [f64; 2] = [std::f64::consts::LN_2, 2.3190468138462996e-17];
const LN2_F32: [f64; 2] = [0.693_147_182_464_599_6, -1.904_654_212_133_6e-9];
/// Below the first, f32's exp is subnormal; the second is the least number whose exp is infinite.
const EXP_LIMITS: [f64; 2] = [-88.0, 88.722_839_355_468_75];
const LOG2E_F32: [f64; 2] = [1.442_695_021_629_333_5, 1.925_963_033_500_011e-8];

/// x as n parts of a step and the rest.
struct Reduced {
    /// A number whose low bits are the exponent of a power of two that follows from n.
    shifted: Value,
    rest: Value,
}

impl Math<'_> {
    /// A number whose sum with n has n + `exponent` in its low bits.
    fn magic(&self, exponent: i64) -> f64 {
        (3 * (1i64 << (self.format().mantissa - 1)) + exponent) as f64
    }
    /// n where it is not more than the bias: the exponent of 2^n is in the low bits.
    fn at_most_bias(&mut self, shifted: Value) -> Value {
        let bias = self.format().bias;
        self.at_most(shifted, self.magic(2 * bias))
    }
    /// x / ln 2, with the exponent that n = 0 has; `limited`, where n is not to be more than the bias.
    fn reduce_by_ln2(&mut self, x: Value, exponent: i64, limited: bool) -> Reduced {
        let ln2 = if self.is_f64() { LN2_F64 } else { LN2_F32 };
        let (log2e, magic) = (self.c(std::f64::consts::LOG2_E), self.c(self.magic(exponent)));
        let shifted = self.fma(x, log2e, magic);
        let shifted = if limited { self.at_most_bias(shifted) } else { shifted };
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
    /// The power of two whose exponent is in the low bits.
    fn power(&mut self, shifted: Value) -> Value {
        let n = self.bits(shifted);
        let n = self.shl(n, self.format().mantissa);
        self.float(n)
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
            let Reduced { shifted, rest } = self.reduce_to_base_2(x);
            let (p, power) = (self.hardware("ex2", rest), self.power(shifted));
            return self.mul(p, power);
        }
        let reduced = self.reduce_by_ln2(x, self.format().bias, false);
        self.exp_of(&reduced)
    }
    fn exp_of(&mut self, reduced: &Reduced) -> Value {
        let p = self.polynomial(reduced.rest, if self.is_f64() { EXP_F64 } else { EXP_F32 });
        let power = self.power(reduced.shifted);
        self.mul(p, power)
    }
    /// f32: x / ln 2 as n and a rest.
    fn reduce_to_base_2(&mut self, x: Value) -> Reduced {
        let magic = self.c(self.magic(self.format().bias));
        let (high, low) = (self.c(LOG2E_F32[0]), self.c(LOG2E_F32[1]));
        let shifted = self.fma(x, high, magic);
        let n = self.sub(magic, shifted);
        let rest = self.fma(x, high, n);
        Reduced { shifted, rest: self.fma(x, low, rest) }
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
    /// Within 1 ulp; with hardware approximations 3.
    pub fn exp(&mut self, x: Value) -> Value {
        if self.approx {
            return self.exp_by_hardware(x);
        }
        let bias = self.format().bias;
        let x = self.at_least(x, -bias as f64 * std::f64::consts::LN_2);
        let reduced = self.reduce_by_ln2(x, bias, true);
        self.exp_of(&reduced)
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
    /// f32: 2^(high + low) within 1 ulp, where low is small beside high, from -190 to 128: that of a number nearer to 0, scaled, where the result is subnormal or
    /// near the greatest number.
    pub fn exp2_of_sum(&mut self, high: Value, low: Value) -> Value {
        let (size, far, zero, one) = (self.abs(high), self.c(100.0), self.c(0.0), self.c(1.0));
        let (far, negative) = (self.compare("gt", size, far), self.compare("lt", high, zero));
        let ([up, down], [less, more]) = ([80.0, -80.0].map(|n| self.c(n)), [-80, 80].map(|n| self.c(2f64.powi(n))));
        let (shift, factor) = (self.select(negative, up, down), self.select(negative, less, more));
        let (shift, factor) = (self.select(far, shift, zero), self.select(far, factor, one));
        let x = self.add(high, shift);
        let (power, f) = self.power_and_rest(x);
        let f = self.add(f, low);
        let p = self.polynomial(f, EXP2_F32);
        let value = self.mul(p, power);
        self.mul(value, factor)
    }
    /// As [`Math::exp2`] (PTX ISA on ex2: relative error 2^-22); subnormal results become zero.
    pub fn exp2_of_normal(&mut self, x: Value) -> Value {
        if self.approx {
            return self.hardware("ex2", x);
        }
        let bias = self.format().bias;
        let (x, magic) = (self.at_least(x, -bias as f64), self.c(self.magic(bias)));
        let shifted = self.add(x, magic);
        let shifted = self.at_most_bias(shifted);
        let n = self.sub(shifted, magic);
        let f = self.sub(x, n);
        let p = self.polynomial(f, if self.is_f64() { EXP2_F64 } else { EXP2_F32 });
        let power = self.power(shifted);
        self.mul(p, power)
    }
    /// f32: 2^n and x - n with the integer n that is nearest to x, from -126 to 127.
    pub fn power_and_rest(&mut self, x: Value) -> (Value, Value) {
        let magic = self.c(self.magic(self.format().bias));
        let shifted = self.add(x, magic);
        let n = self.sub(shifted, magic);
        (self.power(shifted), self.sub(x, n))
    }
    /// exp(x) - 1 where x is not NaN, not below -18 (f32) or -38 (f64) and does not overflow: 2 (2^(n-1) q + 2^(n-1) - 1/2).
    fn expm1_inside(&mut self, x: Value) -> Value {
        self.scaled_expm1(x, 1)
    }
    /// (exp(x) - 1) / 2 where x is not negative, up to the largest that is a number, and infinity a little beyond: as before, from a fourth.
    pub fn half_expm1_inside(&mut self, x: Value) -> Value {
        self.scaled_expm1(x, 2)
    }
    /// 2 (2^(n-s) q + 2^(n-s) - 2^-s) with s = `halvings`.
    fn scaled_expm1(&mut self, x: Value, halvings: i32) -> Value {
        let reduced = self.reduce_by_ln2(x, self.format().bias - i64::from(halvings), false);
        let q = self.expm1_rest(reduced.rest);
        let power = self.power(reduced.shifted);
        let one = self.c(0.5f64.powi(halvings));
        let less = self.sub(power, one);
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
