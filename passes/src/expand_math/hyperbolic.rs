//! `sinh`, `cosh` and their inverses; `log2`, `log10`: made of the functions that have polynomials.

use super::emit::Math;
use rc_ir::Value;

impl Math<'_> {
    /// h = (exp |x| - 1) / 2, and exp |x| = 2 h + 1, which may be infinite where h is not.
    fn half_expm1_and_exp(&mut self, x: Value) -> [Value; 2] {
        let (a, two, one) = (self.abs(x), self.c(2.0), self.c(1.0));
        // Beyond, both functions are infinite.
        let a = self.at_most(a, if self.is_f64() { 710.6 } else { 89.5 });
        let h = self.half_expm1_inside(a);
        [h, self.fma(h, two, one)]
    }
    /// h + h / (2 h + 1).
    pub fn sinh(&mut self, x: Value) -> Value {
        let [h, e] = self.half_expm1_and_exp(x);
        let inverse = self.reciprocal(e);
        let value = self.fma(h, inverse, h);
        // An inverse of 0 times an infinite h is no number.
        let infinity = self.c(f64::INFINITY);
        let is_infinite = self.compare("eq", h, infinity);
        let value = self.select(is_infinite, infinity, value);
        self.with_sign_of(value, x)
    }
    /// h + 1 / 2 + 1 / (4 h + 2).
    pub fn cosh(&mut self, x: Value) -> Value {
        let [h, e] = self.half_expm1_and_exp(x);
        let (half, inverse) = (self.c(0.5), self.reciprocal(e));
        let sum = self.add(h, half);
        self.fma(inverse, half, sum)
    }
    /// a / b of numbers whose inverses are normal.
    fn over(&mut self, a: Value, b: Value) -> Value {
        if !self.approx {
            return self.div(a, b);
        }
        let inverse = self.hardware("rcp", b);
        self.mul(a, inverse)
    }
    /// log(1 + `sum`), or the logarithm of twice `x` where that is so large that nothing else counts: of x / 4 and 8, which are finite.
    fn log_of_sum(&mut self, sum: Value, x: Value) -> Value {
        let limit = self.c(2f64.powi(if self.is_f64() { 56 } else { 28 }));
        let (quarter, zero, log8) = (self.c(0.25), self.c(0.0), self.c(3.0 * std::f64::consts::LN_2));
        let (is_far, part) = (self.compare("gt", x, limit), self.mul(x, quarter));
        let (sum, rest) = (self.select(is_far, part, sum), self.select(is_far, log8, zero));
        let log = self.log1p_of_positive(sum);
        self.add(log, rest)
    }
    pub fn asinh(&mut self, x: Value) -> Value {
        if self.rounded {
            return self.asinh_narrow(x);
        }
        let (a, one) = (self.abs(x), self.c(1.0));
        // log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1)))
        let square = self.mul(a, a);
        let next = self.add(square, one);
        let root = self.root(next);
        let below = self.add(root, one);
        let rest = self.over(square, below);
        let sum = self.add(a, rest);
        let value = self.log_of_sum(sum, a);
        self.with_sign_of(value, x)
    }
    pub fn acosh(&mut self, x: Value) -> Value {
        let (one, two, nan) = (self.c(1.0), self.c(2.0), self.c(f64::NAN));
        // log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t (t + 2))) with t = x - 1
        let t = self.sub(x, one);
        let next = self.add(t, two);
        let square = self.mul(t, next);
        let root = self.root(square);
        let sum = self.add(t, root);
        let value = if self.rounded { self.log_of_sum_narrow(sum, x) } else { self.log_of_sum(sum, x) };
        let outside = self.compare("lt", x, one);
        self.select(outside, nan, value)
    }
    pub fn atanh(&mut self, x: Value) -> Value {
        let (a, one, half, nan) = (self.abs(x), self.c(1.0), self.c(0.5), self.c(f64::NAN));
        // log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2
        let (twice, less) = (self.add(a, a), self.sub(one, a));
        let ratio = self.over(twice, less);
        let log = if self.rounded { self.log1p_narrow(ratio) } else { self.log1p_of_positive(ratio) };
        let value = self.mul(log, half);
        let value = self.with_sign_of(value, x);
        let inside = self.compare("le", a, one);
        self.select(inside, value, nan)
    }

    /// The logarithm for a base whose natural one is 1 / `factor`: exact for whole powers of the base.
    pub fn log_to_base(&mut self, x: Value, factor: [f64; 2]) -> Value {
        if self.is_f64() {
            return self.log_times(x, factor);
        }
        self.log_times_f32(x, factor[0])
    }
}
