//! `lgamma`, `digamma`, `erfc` and `erfinv` of f64.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;
use std::f64::consts::PI;

/// erfc(y) = t exp(P(t - 8/15) - y^2) with t = 2 / (2 + y), y in [0, 28], relative error 2^-54.3.
const ERFC: &[f64] = &[
    -0.6267548660108485,
    1.3566391463443248,
    0.15091006847812286,
    -0.3930184982707672,
    -0.10941120600628339,
    0.2978810157198062,
    0.04238718498311822,
    -0.2970127972638608,
    0.05924761628630447,
    0.29368533469650454,
    -0.20327808969622682,
    -0.2240066219070971,
    0.35637745938138277,
    0.040016037720434196,
    -0.4282828945102491,
    0.24004581324280663,
    0.3082343048646408,
    -0.4851437989202378,
    0.02027353506255332,
    0.5132967578360877,
    -0.36896121873953314,
    -0.29706142282904324,
    0.4448728839636525,
    0.06457009349765805,
    -0.2089745707869825,
];
/// Stirling's series: log gamma(z) - (z - 1/2) log z + z - log(2 pi) / 2 = S(1 / z^2) / z.
const STIRLING: &[f64] = &[
    1.0 / 12.0,
    -1.0 / 360.0,
    1.0 / 1260.0,
    -1.0 / 1680.0,
    1.0 / 1188.0,
    -691.0 / 360360.0,
    1.0 / 156.0,
    -3617.0 / 122400.0,
];
/// log z - 1 / (2 z) - digamma(z) = D(1 / z^2) / z^2.
const DIGAMMA: &[f64] =
    &[1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0, -3617.0 / 8160.0];
/// From here on the series hold; smaller numbers are raised by as much.
const SHIFT: i32 = 10;

impl Math<'_> {
    pub fn erfc_f64(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let y = self.at_most(a, 28.0);
        let two = self.c(2.0);
        let below = self.add(y, two);
        let t = self.div(two, below);
        let middle = self.c(0.5333333333333333);
        let from_middle = self.sub(t, middle);
        let p = self.polynomial(from_middle, ERFC);
        // y^2 in two parts: its rounding would cost as many digits as it has before the point.
        let minus = self.neg(y);
        let high = self.mul(minus, y);
        let less = self.neg(high);
        let low = self.fma(minus, y, less);
        let exponent = self.add(p, low);
        let (e, rest) = (self.exp(high), self.exp(exponent));
        let value = self.mul(e, rest);
        let value = self.mul(value, t);
        let (zero, other) = (self.c(0.0), self.sub(two, value));
        let negative = self.compare("lt", x, zero);
        self.select(negative, other, value)
    }

    pub fn erfinv_f64(&mut self, y: Value) -> Value {
        let a = self.abs(y);
        let (one, half, zero) = (self.c(1.0), self.c(0.5), self.c(0.0));
        let (less, more) = (self.sub(one, a), self.add(one, a));
        let product = self.mul(less, more);
        let log = self.log(product);
        // Winitzki's approximation, within 2^-9.
        let (first, inverse) = (self.c(2.0 / (PI * 0.147)), self.c(1.0 / 0.147));
        let c = self.fma(log, half, first);
        let scaled = self.mul(log, inverse);
        let square = self.mul(c, c);
        let inner = self.sub(square, scaled);
        let root = self.op(op::core::SQRT, &[inner]);
        let square = self.sub(root, c);
        let square = self.op(op::core::MAX, &[square, zero]);
        let mut x = self.op(op::core::SQRT, &[square]);
        // Each of Halley's steps has three times as many digits. Near 1 the complement keeps them.
        let small = self.compare("lt", a, half);
        let scale = self.c(PI.sqrt() / 2.0);
        for _ in 0..2 {
            let (erf, erfc) = (self.erf(x), self.erfc_f64(x));
            let (near, far) = (self.sub(erf, a), self.sub(less, erfc));
            let off = self.select(small, near, far);
            let square = self.mul(x, x);
            let e = self.exp(square);
            let off = self.mul(off, scale);
            let step = self.mul(off, e);
            let slope = self.fma(x, step, one);
            let step = self.div(step, slope);
            x = self.sub(x, step);
        }
        let (infinity, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let (end, inside) = (self.compare("eq", a, one), self.compare("lt", a, one));
        let outside = self.select(end, infinity, nan);
        let value = self.select(inside, x, outside);
        let value = self.with_sign_of(value, y);
        let none = self.compare("eq", y, zero);
        self.select(none, y, value)
    }

    /// x where it is at least `SHIFT`, else x + `SHIFT`, and whether it is below.
    fn raised(&mut self, x: Value) -> (Value, Value) {
        let shift = self.c(f64::from(SHIFT));
        let low = self.compare("lt", x, shift);
        let more = self.add(x, shift);
        (self.select(low, more, x), low)
    }
    /// 1 - x for a negative x, else x; whether it is negative; and x less the nearest integer.
    fn reflected(&mut self, x: Value) -> (Value, Value, Value) {
        let (zero, one) = (self.c(0.0), self.c(1.0));
        let negative = self.compare("lt", x, zero);
        let other = self.sub(one, x);
        let whole = self.op(op::core::ROUND, &[x]);
        let rest = self.sub(x, whole);
        (self.select(negative, other, x), negative, rest)
    }

    pub fn lgamma_f64(&mut self, x: Value) -> Value {
        let (positive, negative, rest) = self.reflected(x);
        let (z, low) = self.raised(positive);
        let one = self.c(1.0);
        let mut product = positive;
        for i in 1..SHIFT {
            let i = self.c(f64::from(i));
            let factor = self.add(positive, i);
            product = self.mul(product, factor);
        }
        let product = self.select(low, product, one);
        let (log, below) = (self.log(z), self.log(product));
        let inverse = self.div(one, z);
        let square = self.mul(inverse, inverse);
        let series = self.polynomial(square, STIRLING);
        let (half, constant) = (self.c(0.5), self.c(0.5 * (2.0 * PI).ln() - 0.5));
        let (power, less) = (self.sub(z, half), self.sub(log, one));
        let rest_of_it = self.fma(series, inverse, constant);
        let rest_of_it = self.sub(rest_of_it, below);
        let value = self.fma(power, less, rest_of_it);
        // log(pi / |sin(pi x)|) - log gamma(1 - x)
        let pi = self.c(PI);
        let angle = self.mul(rest, pi);
        let sine = self.sine_f64(angle, 0);
        let sine = self.abs(sine);
        let ratio = self.div(pi, sine);
        let mirror = self.log(ratio);
        let mirror = self.sub(mirror, value);
        let value = self.select(negative, mirror, value);
        // Its roots are exact.
        let (zero, two) = (self.c(0.0), self.c(2.0));
        let (first, second) = (self.compare("eq", x, one), self.compare("eq", x, two));
        let root = self.op(op::core::OR, &[first, second]);
        let value = self.select(root, zero, value);
        let (a, infinity) = (self.abs(x), self.c(f64::INFINITY));
        let endless = self.compare("eq", a, infinity);
        self.select(endless, infinity, value)
    }

    pub fn digamma_f64(&mut self, x: Value) -> Value {
        let (positive, negative, rest) = self.reflected(x);
        let (z, low) = self.raised(positive);
        let (one, zero) = (self.c(1.0), self.c(0.0));
        let mut sum = zero;
        for i in (0..SHIFT).rev() {
            let i = self.c(f64::from(i));
            let term = self.add(positive, i);
            let term = self.div(one, term);
            sum = self.add(sum, term);
        }
        let sum = self.select(low, sum, zero);
        let inverse = self.div(one, z);
        let square = self.mul(inverse, inverse);
        let series = self.polynomial(square, DIGAMMA);
        let minus_half = self.c(-0.5);
        let log = self.log(z);
        let small = self.mul(series, square);
        let small = self.add(small, sum);
        let value = self.fma(inverse, minus_half, log);
        let value = self.sub(value, small);
        // digamma(1 - x) - pi / tan(pi x)
        let pi = self.c(PI);
        let angle = self.mul(rest, pi);
        let tangent = self.tan(angle);
        let ratio = self.div(pi, tangent);
        let mirror = self.sub(value, ratio);
        let (whole, nan) = (self.compare("eq", rest, zero), self.c(f64::NAN));
        let mirror = self.select(whole, nan, mirror);
        let value = self.select(negative, mirror, value);
        let (is_zero, infinity) = (self.compare("eq", x, zero), self.c(f64::INFINITY));
        let minus = self.neg(x);
        let pole = self.with_sign_of(infinity, minus);
        self.select(is_zero, pole, value)
    }
}
