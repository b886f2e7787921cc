//! `tan`, `asin`, `acos`, `atan`; `sinh`, `cosh` and their inverses; `log2`, `log10`: made of the functions that have polynomials.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::{Type, Value};

impl Math<'_> {
    pub fn atan(&mut self, x: Value) -> Value {
        let one = self.c(1.0);
        self.atan2(x, one)
    }
    /// sqrt(1 - x^2), without cancellation.
    fn other_leg(&mut self, x: Value) -> Value {
        let one = self.c(1.0);
        let (less, more) = (self.sub(one, x), self.add(one, x));
        let square = self.mul(less, more);
        self.op(op::core::SQRT, &[square])
    }
    pub fn asin(&mut self, x: Value) -> Value {
        let leg = self.other_leg(x);
        self.atan2(x, leg)
    }
    pub fn acos(&mut self, x: Value) -> Value {
        let leg = self.other_leg(x);
        self.atan2(leg, x)
    }

    /// exp(x) / 2 as a square, which overflows no earlier than it.
    fn half_exp(&mut self, x: Value) -> Value {
        let (half, one) = (self.c(0.5), self.c(1.0));
        let middle = self.mul(x, half);
        // Squared, an approximation by hardware would be too far off.
        let root = self.expm1(middle);
        let root = self.add(root, one);
        let scaled = self.mul(root, half);
        self.mul(scaled, root)
    }
    pub fn sinh(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let (one, half, limit) = (self.c(1.0), self.c(0.5), self.c(20.0));
        // (e + e / (e + 1)) / 2 with e = exp(a) - 1
        let e = self.expm1(a);
        let next = self.add(e, one);
        let inverse = self.div(e, next);
        let sum = self.add(e, inverse);
        let near = self.mul(sum, half);
        let (far, is_far) = (self.half_exp(a), self.compare("gt", a, limit));
        let value = self.select(is_far, far, near);
        self.with_sign_of(value, x)
    }
    pub fn cosh(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let (one, half, limit) = (self.c(1.0), self.c(0.5), self.c(20.0));
        // An approximation of exp by hardware would be too far off.
        let e = self.expm1(a);
        let e = self.add(e, one);
        let inverse = self.div(one, e);
        let sum = self.add(e, inverse);
        let near = self.mul(sum, half);
        let (far, is_far) = (self.half_exp(a), self.compare("gt", a, limit));
        self.select(is_far, far, near)
    }
    /// log(2 x), for large numbers.
    fn log_of_twice(&mut self, x: Value) -> Value {
        let (log, ln2) = (self.log(x), self.c(std::f64::consts::LN_2));
        self.add(log, ln2)
    }
    /// Numbers whose square leaves no trace of a one that is added.
    fn large(&self) -> f64 {
        if self.is_f64() { 2f64.powi(28) } else { 2f64.powi(14) }
    }
    pub fn asinh(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let (one, limit) = (self.c(1.0), self.c(self.large()));
        // log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1)))
        let square = self.mul(a, a);
        let next = self.add(square, one);
        let root = self.op(op::core::SQRT, &[next]);
        let below = self.add(root, one);
        let rest = self.div(square, below);
        let sum = self.add(a, rest);
        let near = self.log1p(sum);
        let (far, is_far) = (self.log_of_twice(a), self.compare("gt", a, limit));
        let value = self.select(is_far, far, near);
        self.with_sign_of(value, x)
    }
    pub fn acosh(&mut self, x: Value) -> Value {
        let (one, two, limit, nan) = (self.c(1.0), self.c(2.0), self.c(self.large()), self.c(f64::NAN));
        // log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t (t + 2))) with t = x - 1
        let t = self.sub(x, one);
        let next = self.add(t, two);
        let square = self.mul(t, next);
        let root = self.op(op::core::SQRT, &[square]);
        let sum = self.add(t, root);
        let near = self.log1p(sum);
        let (far, is_far) = (self.log_of_twice(x), self.compare("gt", x, limit));
        let value = self.select(is_far, far, near);
        let outside = self.compare("lt", x, one);
        self.select(outside, nan, value)
    }
    pub fn atanh(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let (one, half) = (self.c(1.0), self.c(0.5));
        // log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2
        let (twice, less) = (self.add(a, a), self.sub(one, a));
        let ratio = self.div(twice, less);
        let log = self.log1p(ratio);
        let value = self.mul(log, half);
        self.with_sign_of(value, x)
    }

    /// The logarithm for a base whose natural one is 1 / `factor`: exact for whole powers of the base.
    pub fn log_to_base(&mut self, x: Value, factor: [f64; 2]) -> Value {
        if self.is_f64() {
            return self.log_times(x, factor);
        }
        let wide = self.convert(x, Type::f64());
        let mut m = self.in_f64();
        let (log, by) = (m.log(wide), m.c(factor[0]));
        let value = m.mul(log, by);
        self.convert(value, Type::f32())
    }
}
