//! `asin`, `acos` and `atan`.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;
use std::f64::consts::{FRAC_PI_2, PI};

/// asin(s) = s + s^3 P(s^2) on |s| <= 1/2, relative error 2^-27.6, and for results that are rounded to 16 bits 2^-19.1.
const ASIN: &[f64] =
    &[0.1666675262606819, 0.07495291715142852, 0.04547112056458457, 0.02417586787226056, 0.04217242350375094];
const ASIN_NARROW: &[f64] = &[0.16680145501707627, 0.0718971178707065, 0.06411526231733082];

impl Math<'_> {
    pub fn atan(&mut self, x: Value) -> Value {
        let one = self.c(1.0);
        if !self.approx {
            return self.atan2(x, one);
        }
        let (a, half_pi) = (self.abs(x), self.c(FRAC_PI_2));
        let (steep, inverse) = (self.compare("gt", a, one), self.hardware("rcp", a));
        let z = self.select(steep, inverse, a);
        let angle = self.atan_of_ratio(z);
        let turned = self.sub(half_pi, angle);
        let angle = self.select(steep, turned, angle);
        self.with_sign_of(angle, x)
    }
    /// sqrt(1 - x^2), without cancellation.
    fn other_leg(&mut self, x: Value) -> Value {
        let one = self.c(1.0);
        let (less, more) = (self.sub(one, x), self.add(one, x));
        let square = self.mul(less, more);
        self.op(op::core::SQRT, &[square])
    }
    /// The square root of 0 or of a number from 2^-60 on.
    pub fn root(&mut self, x: Value) -> Value {
        if !self.approx {
            return self.op(op::core::SQRT, &[x]);
        }
        // What the inverse root of 0 is multiplied by 0 must be finite.
        let little = self.c(2f64.powi(-100));
        let some = self.add(x, little);
        let inverse = self.hardware("rsqrt", some);
        self.mul(x, inverse)
    }
    /// f32: whether |x| <= 1/2; there asin |x|, else (pi / 2 - asin |x|) / 2, which is asin(sqrt((1 - |x|) / 2)).
    fn arcsine_or_rest(&mut self, x: Value) -> (Value, Value) {
        let (a, half, minus_half) = (self.abs(x), self.c(0.5), self.c(-0.5));
        let (square, other) = (self.mul(x, x), self.fma(a, minus_half, half));
        let (near, root) = (self.compare("le", a, half), self.root(other));
        let (z, s) = (self.select(near, square, other), self.select(near, a, root));
        let (p, cube) = (self.polynomial(z, if self.rounded { ASIN_NARROW } else { ASIN }), self.mul(z, s));
        (near, self.fma(cube, p, s))
    }
    pub fn asin(&mut self, x: Value) -> Value {
        if self.is_f64() {
            let leg = self.other_leg(x);
            return self.atan2(x, leg);
        }
        let (near, part) = self.arcsine_or_rest(x);
        let (minus_two, half_pi) = (self.c(-2.0), self.c(FRAC_PI_2));
        let far = self.fma(part, minus_two, half_pi);
        let value = self.select(near, part, far);
        self.with_sign_of(value, x)
    }
    pub fn acos(&mut self, x: Value) -> Value {
        if self.is_f64() {
            let leg = self.other_leg(x);
            return self.atan2(leg, x);
        }
        let (near, part) = self.arcsine_or_rest(x);
        let part = self.with_sign_of(part, x);
        // pi / 2 - part, or twice the part, from pi on where x is negative.
        let (zero, pi, half_pi) = (self.c(0.0), self.c(PI), self.c(FRAC_PI_2));
        let (two, minus_one, negative) = (self.c(2.0), self.c(-1.0), self.compare("lt", x, zero));
        let end = self.select(negative, pi, zero);
        let (from, factor) = (self.select(near, half_pi, end), self.select(near, minus_one, two));
        self.fma(part, factor, from)
    }
}
