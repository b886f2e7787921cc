//! |x|^y of f64: the logarithm as a sum of two numbers, exact to 2^-65, times y likewise, then `exp`.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::{Type, Value};

/// log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + s^5 P(s^2) on |s| <= 0.1717, relative error 2^-66.3.
const LOG: &[f64] = &[
    0.4000000000000228,
    0.28571428570087837,
    0.222222225221098,
    0.18181784168353282,
    0.15386766804415652,
    0.1325659028229985,
    0.131984995363515,
];
const TWO_THIRDS: [f64; 2] = [0.6666666666666666, 3.700743415417188e-17];
/// ln 2 in parts of which the first has 32 bits.
const LN2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];

/// A sum of two numbers, of which the second is small.
#[derive(Clone, Copy)]
pub struct Pair {
    pub high: Value,
    pub low: Value,
}

impl Math<'_> {
    /// a + b exactly, where a is not smaller than b.
    pub fn fast_sum(&mut self, a: Value, b: Value) -> Pair {
        let high = self.add(a, b);
        let part = self.sub(high, a);
        Pair { high, low: self.sub(b, part) }
    }
    /// a b exactly.
    pub fn exact_product(&mut self, a: Value, b: Value) -> Pair {
        let high = self.mul(a, b);
        let minus = self.neg(high);
        Pair { high, low: self.fma(a, b, minus) }
    }
    /// To about 2^-104.
    fn product(&mut self, a: Pair, b: Pair) -> Pair {
        let Pair { high, low } = self.exact_product(a.high, b.high);
        let low = self.fma(a.high, b.low, low);
        let low = self.fma(a.low, b.high, low);
        self.fast_sum(high, low)
    }
    fn sum(&mut self, a: Pair, b: Pair) -> Pair {
        let Pair { high, low } = self.fast_sum(a.high, b.high);
        let rest = self.add(a.low, b.low);
        let low = self.add(low, rest);
        self.fast_sum(high, low)
    }

    /// log x of a positive finite number.
    fn log_pair(&mut self, x: Value) -> Pair {
        let (least, up) = (self.c(f64::MIN_POSITIVE), self.c(2f64.powi(52)));
        let tiny = self.compare("lt", x, least);
        let raised = self.mul(x, up);
        let normal = self.select(tiny, raised, x);
        let bits = self.bits(normal);
        let e = self.exponent(bits);
        let shift = self.shl(e, 52);
        let m = self.sub(bits, shift);
        let m = self.float(m);
        let e = self.convert(e, Type::f64());
        let (down, zero, one, two) = (self.c(-52.0), self.c(0.0), self.c(1.0), self.c(2.0));
        let offset = self.select(tiny, down, zero);
        let e = self.add(e, offset);
        // s = (m - 1) / (m + 1)
        let a = self.sub(m, one);
        let b = self.fast_or_not(m, one);
        let high = self.div(a, b.high);
        let minus = self.neg(high);
        let rest = self.fma(minus, b.high, a);
        let rest = self.fma(minus, b.low, rest);
        let s = Pair { high, low: self.div(rest, b.high) };
        let square = self.product(s, s);
        let cube = self.product(square, s);
        let thirds = Pair { high: self.c(TWO_THIRDS[0]), low: self.c(TWO_THIRDS[1]) };
        let third = self.product(cube, thirds);
        let p = self.polynomial(square.high, LOG);
        let fifth = self.mul(cube.high, square.high);
        let tail = self.mul(fifth, p);
        let tail = Pair { high: tail, low: zero };
        let third = self.sum(third, tail);
        let double = Pair { high: self.mul(s.high, two), low: self.mul(s.low, two) };
        let log_m = self.sum(double, third);
        let (ln2_high, ln2_low) = (self.c(LN2[0]), self.c(LN2[1]));
        // The first product is exact: 11 and 32 bits.
        let whole = self.mul(e, ln2_high);
        let part = self.exact_product(e, ln2_low);
        let whole = self.fast_sum(whole, part.high);
        let whole = Pair { high: whole.high, low: self.add(whole.low, part.low) };
        // Of e = 0 the logarithm of m is all there is.
        let none = self.compare("eq", e, zero);
        let both = self.sum(whole, log_m);
        Pair { high: self.select(none, log_m.high, both.high), low: self.select(none, log_m.low, both.low) }
    }
    /// log x times a number given in two parts.
    pub fn log_times(&mut self, x: Value, factor: [f64; 2]) -> Value {
        let log = self.log_pair(x);
        let by = Pair { high: self.c(factor[0]), low: self.c(factor[1]) };
        let value = self.product(log, by);
        let value = self.add(value.high, value.low);
        self.log_cases(x, value, x)
    }
    /// a + b exactly, whichever is larger.
    fn fast_or_not(&mut self, a: Value, b: Value) -> Pair {
        let high = self.add(a, b);
        let of_b = self.sub(high, a);
        let of_a = self.sub(high, of_b);
        let (lost_a, lost_b) = (self.sub(a, of_a), self.sub(b, of_b));
        Pair { high, low: self.add(lost_a, lost_b) }
    }

    /// x^y for x >= 0, without the cases in which y log x is not a number.
    pub fn power_f64(&mut self, x: Value, y: Value) -> Value {
        let log = self.log_pair(x);
        let Pair { high, low } = self.exact_product(y, log.high);
        let low = self.fma(y, log.low, low);
        let sum = self.fast_sum(high, low);
        let power = self.exp(sum.high);
        let corrected = self.fma(power, sum.low, power);
        // Where the first part is everything: infinite, or so large that the result is 0 or infinite.
        let (size, limit) = (self.abs(high), self.c(700.0));
        let plain = self.compare("le", size, limit);
        let (zero, near) = (self.c(0.0), self.c(746.0));
        let inside = self.compare("lt", size, near);
        let scaled = self.power_at_the_ends(sum);
        let ends = self.select(inside, scaled, zero);
        let positive = self.compare("gt", high, zero);
        let infinity = self.c(f64::INFINITY);
        let beyond = self.select(positive, infinity, zero);
        let ends = self.select(inside, ends, beyond);
        let value = self.select(plain, corrected, ends);
        self.power_cases(x, y, value)
    }
    /// The value of x^y where x > 0 is finite and y a number. 0 and infinity have no logarithm that is a number.
    pub fn power_cases(&mut self, x: Value, y: Value, value: Value) -> Value {
        let (zero, infinity) = (self.c(0.0), self.c(f64::INFINITY));
        let (is_zero, is_infinite) = (self.compare("eq", x, zero), self.compare("eq", x, infinity));
        let upward = self.compare("gt", y, zero);
        let (of_zero, of_infinity) = (self.select(upward, zero, infinity), self.select(upward, infinity, zero));
        let value = self.select(is_zero, of_zero, value);
        let value = self.select(is_infinite, of_infinity, value);
        let (nan_x, nan_y) = (self.compare("ne", x, x), self.compare("ne", y, y));
        let (nan, sum) = (self.op(op::core::OR, &[nan_x, nan_y]), self.add(x, y));
        self.select(nan, sum, value)
    }
    /// exp(sum) as the square of exp(sum / 2), for results near the greatest number and subnormal ones.
    fn power_at_the_ends(&mut self, sum: Pair) -> Value {
        let half = self.c(0.5);
        let (high, low) = (self.mul(sum.high, half), self.mul(sum.low, half));
        let root = self.exp(high);
        // root (1 + low) twice: the second factor has the correction of both.
        let twice = self.add(low, low);
        let corrected = self.fma(root, twice, root);
        self.mul(root, corrected)
    }
}
