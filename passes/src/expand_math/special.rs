//! `rsqrt` and `erf`.

use super::emit::Math;
use rc_ir::{Type, Value};

/// erf(x) = x + x P(x^2) on |x| < 0.875, relative error 2^-26.8.
const ERF_NEAR: &[f64] =
    &[1.283791512e-01, -3.761255145e-01, 1.128245518e-01, -2.679146267e-02, 5.032181274e-03, -6.203253870e-04];
/// erf(x) = 1 - exp(-Q(x)) on [0.875, 3.95], relative error 2^-33.5.
const ERF_FAR: &[f64] = &[
    -1.620243129e-04,
    1.129453182e+00,
    6.334734559e-01,
    1.081390306e-01,
    -2.502714284e-02,
    4.135645926e-03,
    -4.270833160e-04,
    2.045140172e-05,
];

impl Math<'_> {
    /// Within 2 ulp.
    pub fn rsqrt(&mut self, x: Value) -> Value {
        if !self.approx {
            let root = self.op("rc.core.sqrt", &[x]);
            return self.reciprocal(root);
        }
        // The hardware takes subnormal numbers for zero.
        let (least, up) = (self.c(f64::from(f32::MIN_POSITIVE)), self.c(2f64.powi(24)));
        let tiny = self.compare("lt", x, least);
        let raised = self.mul(x, up);
        let normal = self.select(tiny, raised, x);
        let value = self.hardware("rsqrt", normal);
        let down = self.c(2f64.powi(12));
        let raised = self.mul(value, down);
        self.select(tiny, raised, value)
    }
    /// f32: within 4 ulp.
    pub fn erf(&mut self, x: Value) -> Option<Value> {
        if self.ty.elem() != Type::f32() {
            return None;
        }
        let square = self.mul(x, x);
        let p = self.polynomial(square, ERF_NEAR);
        let near = self.fma(p, x, x);
        let magnitude = self.abs(x);
        // Beyond, it is 1 to the last place.
        let clipped = self.at_most(magnitude, 3.95);
        let q = self.polynomial(clipped, ERF_FAR);
        let minus = self.neg(q);
        let (e, one) = (self.exp_inside(minus), self.c(1.0));
        let far = self.sub(one, e);
        let far = self.with_sign_of(far, x);
        // NaN takes the near side: the far one computes with the bits of the number, which a NaN's would disturb.
        let limit = self.c(0.875);
        let is_far = self.compare("ge", magnitude, limit);
        Some(self.select(is_far, far, near))
    }
}
