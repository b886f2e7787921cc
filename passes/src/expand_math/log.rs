//! `log` and `log1p`: x = 2^e m with m near 1, log x = e ln 2 + log m, log m a minimax polynomial of f = m - 1.

use super::emit::Math;
use rc_ir::Value;

/// log(1 + f) = f - f^2 / 2 + f^3 P(f) on |f| <= 1/3, relative error 2^-27.7.
const LOG_F32: &[f64] = &[
    3.333321512e-01,
    -2.499979734e-01,
    2.001041919e-01,
    -1.668050587e-01,
    1.400562078e-01,
    -1.218397841e-01,
    1.398577690e-01,
    -1.289305389e-01,
];
/// log(1 + f) = f + f^2 P(f) there, relative error 2^-27.7.
const LOG_F32_LONG: [f64; 9] = [
    -0.5000000121112919,
    0.3333320809460239,
    -0.24999716793553786,
    0.2001076867015686,
    -0.16682334090092768,
    0.14000779347514195,
    -0.12166736708014393,
    0.14006796889975917,
    -0.12950934357378252,
];
/// log((1 + s) / (1 - s)) = 2 s + s^3 R(s^2) on |s| <= 0.1717, relative error 2^-59.5.
const LOG_F64: &[f64] = &[
    0.6666666666666735,
    0.3999999999941107,
    0.28571428743310784,
    0.2222219846686385,
    0.18183570422923087,
    0.1531388063730306,
    0.14797783233886844,
];
const LN2_LOW: f64 = 2.3190468138462996e-17;

impl Math<'_> {
    /// The exponent, as an integer, of the bits `x` of a positive normal number, such that m is in [2/3, 4/3) (f32) or
    /// [sqrt(1/2), sqrt(2)) (f64).
    pub fn exponent(&mut self, bits: Value) -> Value {
        let least = if self.is_f64() { std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64 } else { 0x3f2a_aaab };
        let least = self.i(least);
        let above = self.sub(bits, least);
        self.shr(above, self.format().mantissa)
    }
    /// log(1 + f) + e ln 2.
    fn log_of_parts(&mut self, f: Value, e: Value) -> Value {
        let half = self.c(0.5);
        let square = self.mul(f, f);
        if self.is_f64() {
            // With s = f / (2 + f): log(1 + f) = f - (h - s (h + s^2 R)), h = f^2 / 2.
            let (two, h) = (self.c(2.0), self.mul(square, half));
            let sum = self.add(f, two);
            let s = self.div(f, sum);
            let s2 = self.mul(s, s);
            let r = self.polynomial(s2, LOG_F64);
            let r = self.fma(s2, r, h);
            let (high, low) = (self.c(std::f64::consts::LN_2), self.c(LN2_LOW));
            let rest = self.mul(e, low);
            let rest = self.fma(s, r, rest);
            let rest = self.sub(h, rest);
            let value = self.sub(f, rest);
            return self.fma(e, high, value);
        }
        let (p, cube) = (self.polynomial(f, LOG_F32), self.mul(square, f));
        let minus_half = self.c(-0.5);
        let rest = self.mul(square, minus_half);
        let rest = self.fma(cube, p, rest);
        let (value, ln2) = (self.add(f, rest), self.c(std::f64::consts::LN_2));
        self.fma(e, ln2, value)
    }
    /// The value where 0 < `x` < infinity; -inf at 0, NaN below, infinity and NaN themselves.
    pub fn log_cases(&mut self, x: Value, value: Value, infinite: Value) -> Value {
        let (zero, infinity) = (self.c(0.0), self.c(f64::INFINITY));
        let finite = self.compare("lt", x, infinity);
        let value = self.select(finite, value, infinite);
        let (low, nan) = (self.c(f64::NEG_INFINITY), self.c(f64::NAN));
        let is_zero = self.compare("eq", x, zero);
        let bad = self.select(is_zero, low, nan);
        let positive = self.compare("gt", x, zero);
        self.select(positive, value, bad)
    }
    /// Within 2 ulp.
    pub fn log(&mut self, x: Value) -> Value {
        let (f, e) = self.parts_of_any(x);
        let value = self.log_of_parts(f, e);
        self.log_cases(x, value, x)
    }
    /// f32: log(x) `factor`, within 2 ulp: f `factor` + (f^2 P(f) + what the numbers before lose) + e (ln 2 `factor`).
    pub fn log_times_f32(&mut self, x: Value, factor: f64) -> Value {
        let (f, e) = self.parts_of_any(x);
        let value = self.log_times_of_parts(f, e, factor);
        self.log_cases(x, value, x)
    }
    /// The same of a positive normal number.
    pub fn log_times_inside(&mut self, x: Value, factor: f64) -> Value {
        let (f, e) = self.parts(x);
        self.log_times_of_parts(f, e, factor)
    }
    fn log_times_of_parts(&mut self, f: Value, e: Value, factor: f64) -> Value {
        let p = LOG_F32_LONG.map(|c| c * factor);
        let (p, square) = (self.polynomial(f, &p), self.mul(f, f));
        let mut sum = self.mul(square, p);
        let rounded = |x: f64| f64::from(x as f32);
        let step = std::f64::consts::LN_2 * factor;
        for (part, by) in [(f, factor - rounded(factor)), (e, step - rounded(step)), (f, factor), (e, step)] {
            // The whole powers of 2 have no step to lose.
            if by.abs() > 1e-15 {
                let by = self.c(by);
                sum = self.fma(part, by, sum);
            }
        }
        sum
    }
    /// A positive number, subnormal ones included, as (1 + f) 2^e.
    pub fn parts_of_any(&mut self, x: Value) -> (Value, Value) {
        let format = self.format();
        // Subnormal numbers become normal.
        let (least, up) = if self.is_f64() {
            (f64::MIN_POSITIVE, 2f64.powi(52))
        } else {
            (f64::from(f32::MIN_POSITIVE), 2f64.powi(23))
        };
        let (least, up) = (self.c(least), self.c(up));
        let tiny = self.compare("lt", x, least);
        let raised = self.mul(x, up);
        let normal = self.select(tiny, raised, x);
        let (down, zero) = (self.c(-(format.mantissa as f64)), self.c(0.0));
        let offset = self.select(tiny, down, zero);
        let (f, e) = self.parts(normal);
        (f, self.add(e, offset))
    }
    /// A positive normal number as (1 + f) 2^e.
    fn parts(&mut self, x: Value) -> (Value, Value) {
        let bits = self.bits(x);
        let e = self.exponent(bits);
        let shift = self.shl(e, self.format().mantissa);
        let m = self.sub(bits, shift);
        let (m, one) = (self.float(m), self.c(1.0));
        let f = self.sub(m, one);
        (f, self.convert(e, self.ty.elem()))
    }
    /// The logarithm of a positive normal number, within 2 ulp.
    pub fn log_inside(&mut self, x: Value) -> Value {
        let (f, e) = self.parts(x);
        self.log_of_parts(f, e)
    }
    /// log(1 + x) of a number that is not negative; in f32 infinity, or less than 2^126.
    pub fn log1p_of_positive(&mut self, x: Value) -> Value {
        if self.is_f64() {
            return self.log1p(x);
        }
        let (one, mantissa, bias) = (self.c(1.0), self.format().mantissa, self.format().bias);
        let sum = self.add(x, one);
        let bits = self.bits(sum);
        let e = self.exponent(bits);
        let (shift, bias) = (self.shl(e, mantissa), self.i(bias << mantissa));
        let power = self.sub(bias, shift);
        let power = self.float(power);
        let less = self.sub(power, one);
        let (f, e) = (self.fma(x, power, less), self.convert(e, self.ty.elem()));
        let (value, infinity) = (self.log_of_parts(f, e), self.c(f64::INFINITY));
        let finite = self.compare("lt", x, infinity);
        self.select(finite, value, x)
    }
    /// log(1 + x), within 4 ulp. With 1 + x about 2^e: f = 2^-e x + (2^-e - 1), where 2^-e is applied in two steps.
    pub fn log1p(&mut self, x: Value) -> Value {
        let format = self.format();
        let one = self.c(1.0);
        let sum = self.add(x, one);
        let bits = self.bits(sum);
        let e = self.exponent(bits);
        let half = self.shr(e, 1);
        let other = self.sub(e, half);
        let powers: Vec<Value> = [half, other]
            .into_iter()
            .map(|e| {
                let shift = self.shl(e, format.mantissa);
                let bias = self.i(format.bias << format.mantissa);
                let bits = self.sub(bias, shift);
                self.float(bits)
            })
            .collect();
        let scaled = self.mul(x, powers[0]);
        let minus_one = self.c(-1.0);
        let less = self.fma(powers[0], powers[1], minus_one);
        let f = self.fma(scaled, powers[1], less);
        let e = self.convert(e, self.ty.elem());
        let value = self.log_of_parts(f, e);
        let value = self.log_cases(sum, value, sum);
        let zero = self.c(0.0);
        let is_zero = self.compare("eq", x, zero);
        self.select(is_zero, x, value)
    }
}
