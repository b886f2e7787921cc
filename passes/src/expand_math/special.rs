//! `rsqrt` and `erf`.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;

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

/// For f64: the same on |x| < 0.875, relative error 2^-61.4; Q(x) of x - 1.5625 on [0.875, 2.25], 2^-61.1, and of x - 4.125 on [2.25, 6], 2^-59.2.
const ERF_NEAR_F64: &[f64] = &[
    0.1283791670955126,
    -0.3761263890318374,
    0.11283791670954368,
    -0.026866170644945554,
    0.005223977623090371,
    -0.0008548326847575023,
    0.00012055324633300542,
    -1.4925388948232012e-05,
    1.645663496598704e-06,
    -1.628950890693101e-07,
    1.4124241914259163e-08,
    -8.669753366413433e-10,
];
const ERF_MIDDLE_F64: &[f64] = &[
    3.6072852302065836,
    3.6206776984829094,
    0.8973445942662067,
    0.024370521687656514,
    -0.005626325683635175,
    0.0011781058117978059,
    -0.00020588764876291752,
    2.3486756532422474e-05,
    1.4496163491452886e-06,
    -1.8990603827886828e-06,
    6.935331013041469e-07,
    -1.713281520928639e-07,
    2.81684976028745e-08,
    -1.0473694140560275e-09,
    -1.915110330357245e-09,
    1.0242694295078079e-09,
];
const ERF_FAR_F64: &[f64] = &[
    19.03254276470786,
    8.47991140700694,
    0.9748141784713535,
    0.0035157553824275013,
    -0.0005285231080399686,
    8.081991378603558e-05,
    -1.280699822374584e-05,
    1.4644123323897827e-06,
    -5.048416524670429e-07,
    -5.244065741515037e-08,
    -2.4052645993770546e-08,
    -1.16145008113922e-09,
];

impl Math<'_> {
    /// Within 2 ulp.
    pub fn rsqrt(&mut self, x: Value) -> Value {
        if !self.approx {
            let root = self.op(op::core::SQRT, &[x]);
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
    /// Within 4 ulp.
    pub fn erf(&mut self, x: Value) -> Value {
        let square = self.mul(x, x);
        let p = self.polynomial(square, if self.is_f64() { ERF_NEAR_F64 } else { ERF_NEAR });
        let near = self.fma(p, x, x);
        let magnitude = self.abs(x);
        // Beyond, it is 1 to the last place.
        let clipped = self.at_most(magnitude, if self.is_f64() { 6.0 } else { 3.95 });
        let q = if self.is_f64() { self.erf_exponent_f64(clipped) } else { self.polynomial(clipped, ERF_FAR) };
        let minus = self.neg(q);
        let (e, one) = (self.exp_inside(minus), self.c(1.0));
        let far = self.sub(one, e);
        let far = self.with_sign_of(far, x);
        // NaN takes the near side: the far one computes with the bits of the number, which a NaN's would disturb.
        let limit = self.c(0.875);
        let is_far = self.compare("ge", magnitude, limit);
        self.select(is_far, far, near)
    }
    /// Q(x) on [0.875, 6].
    fn erf_exponent_f64(&mut self, x: Value) -> Value {
        let (middle, far, limit) = (self.c(1.5625), self.c(4.125), self.c(2.25));
        let (from_middle, from_far) = (self.sub(x, middle), self.sub(x, far));
        let (low, high) = (self.polynomial(from_middle, ERF_MIDDLE_F64), self.polynomial(from_far, ERF_FAR_F64));
        let below = self.compare("lt", x, limit);
        self.select(below, low, high)
    }
}
