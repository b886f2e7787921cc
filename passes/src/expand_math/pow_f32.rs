//! |x|^y of f32: log2 x as a sum of two numbers, exact to about 2^-35, times y likewise, then 2 to that power.

use super::emit::Math;
use super::pow_f64::Pair;
use rc_dialects::op;
use rc_ir::Value;

/// With s = f / (2 + f), log(1 + f) = 2 s (1 + s^2 (1/3 + s^2 P(s^2))): the series of the inverse hyperbolic tangent, of which the rest is less than 2^-40 for
/// |s| <= 1/5.
const REST: &[f64] = &[1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0];
/// Beyond these, 2 to a power is 0 and infinite.
const LIMITS: [f64; 2] = [-190.0, 128.0];

impl Math<'_> {
    /// A constant in two parts.
    fn constant_pair(&mut self, value: f64) -> Pair {
        let high = f64::from(value as f32);
        Pair { high: self.c(high), low: self.c(value - high) }
    }
    /// a b, where the second number may be as large as the first one's last places.
    fn rough_product(&mut self, a: Pair, b: Pair) -> Pair {
        let Pair { high, low } = self.exact_product(a.high, b.high);
        let low = self.fma(a.high, b.low, low);
        Pair { high, low: self.fma(a.low, b.high, low) }
    }
    /// a + b, where a is not smaller.
    fn rough_sum(&mut self, a: Pair, b: Pair) -> Pair {
        let Pair { high, low } = self.fast_sum(a.high, b.high);
        let rest = self.add(a.low, b.low);
        Pair { high, low: self.add(low, rest) }
    }
    /// log2 x of a positive finite number.
    fn log2_pair(&mut self, x: Value) -> Pair {
        let (f, e) = self.parts_of_any(x);
        let (zero, two) = (self.c(0.0), self.c(2.0));
        // 2 + f loses what f has below its last place.
        let sum = self.fast_sum(two, f);
        let inverse = self.reciprocal(sum.high);
        let high = self.mul(f, inverse);
        let minus = self.neg(high);
        let rest = self.fma(minus, sum.high, f);
        let rest = self.fma(minus, sum.low, rest);
        let s = Pair { high, low: self.mul(rest, inverse) };
        let square = self.rough_product(s, s);
        let p = self.polynomial(square.high, REST);
        let rest = Pair { high: self.mul(square.high, p), low: zero };
        let third = self.constant_pair(1.0 / 3.0);
        let series = self.rough_sum(third, rest);
        let series = self.rough_product(square, series);
        let series = self.rough_product(series, s);
        let sum = self.rough_sum(s, series);
        let by = self.constant_pair(2.0 * std::f64::consts::LOG2_E);
        let log = self.rough_product(sum, by);
        // e is 0 or larger than the logarithm of 1 + f.
        self.rough_sum(Pair { high: e, low: zero }, log)
    }
    /// x^y for x >= 0, without the cases in which y log x is not a number.
    pub fn power_f32(&mut self, x: Value, y: Value) -> Value {
        let log = self.log2_pair(x);
        let Pair { high, low } = self.exact_product(y, log.high);
        let low = self.fma(y, log.low, low);
        let [least, most] = LIMITS.map(|limit| self.c(limit));
        let (above, below) = (self.compare("gt", high, least), self.compare("le", high, most));
        let inside = self.op(op::core::AND, &[above, below]);
        let zero = self.c(0.0);
        let low = self.select(inside, low, zero);
        let high = self.op(op::core::MAX, &[high, least]);
        let high = self.op(op::core::MIN, &[high, most]);
        let value = self.exp2_of_sum(high, low);
        self.power_cases(x, y, value)
    }
}
