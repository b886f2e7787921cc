//! Functions of f64 that no library at hand has, the meaning of `core.erfinv` and `core.digamma`, and the derivative of the latter.

use crate::builder::CoreBuilder;
use rc_ir::{Builder, Value};
use std::f64::consts::PI;

/// The inverse of the error function: infinite at 1 and -1, NaN beyond.
pub fn erfinv(y: f64) -> f64 {
    let a = y.abs();
    if a.is_nan() || a >= 1.0 {
        return if a == 1.0 { f64::INFINITY.copysign(y) } else { f64::NAN };
    }
    // Winitzki's approximation, then Halley's steps; near 1 of the complement, which keeps its digits.
    let log = ((1.0 - a) * (1.0 + a)).ln();
    let c = 2.0 / (PI * 0.147) + log / 2.0;
    let mut x = ((c * c - log / 0.147).sqrt() - c).max(0.0).sqrt();
    for _ in 0..4 {
        let off = if a < 0.5 { libm::erf(x) - a } else { (1.0 - a) - libm::erfc(x) };
        let step = off * (PI.sqrt() / 2.0) * (x * x).exp();
        x -= step / (1.0 + x * step);
    }
    x.copysign(y)
}

/// The logarithmic derivative of the gamma function: infinite at 0 with the sign opposite to the zero's, NaN at the negative integers.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY.copysign(x);
    }
    if x < 0.0 {
        let rest = x - x.round_ties_even();
        return if rest == 0.0 || x.is_infinite() { f64::NAN } else { digamma(1.0 - x) - PI / (PI * rest).tan() };
    }
    let (mut z, mut sum) = (x, 0.0);
    while z < 16.0 {
        sum += 1.0 / z;
        z += 1.0;
    }
    let s = 1.0 / (z * z);
    let series = s
        * (1.0 / 12.0
            - s * (1.0 / 120.0 - s * (1.0 / 252.0 - s * (1.0 / 240.0 - s * (1.0 / 132.0 - s * (691.0 / 32760.0))))));
    z.ln() - 0.5 / z - series - sum
}

/// Ops that compute the derivative of digamma: by the recurrence up from x, or from 1 - x where x < 1/2 (the reflection formula), then by the
/// asymptotic series (Abramowitz and Stegun, 6.4.6, 6.4.7 and 6.4.12).
pub fn trigamma(b: &mut Builder, x: Value) -> Value {
    let one = b.splat(1.0, b.ty(x));
    let half = b.splat(0.5, b.ty(x));
    let left = b.compare("lt", x, half);
    let mirrored = b.binary("sub", one, x);
    let mut z = b.select(left, mirrored, x);
    let mut sum = b.splat(0.0, b.ty(x));
    for _ in 0..10 {
        let square = b.binary("mul", z, z);
        let term = b.binary("div", one, square);
        sum = b.binary("add", sum, term);
        z = b.binary("add", z, one);
    }
    // 1/z + 1/(2 z²) + s/z (1/6 - s (1/30 - s (1/42 - s (1/30 - s (5/66 - s 691/2730))))) with s = 1/z².
    let inverse = b.binary("div", one, z);
    let s = b.binary("mul", inverse, inverse);
    let mut series = b.splat(691.0 / 2730.0, b.ty(x));
    for coefficient in [5.0 / 66.0, 1.0 / 30.0, 1.0 / 42.0, 1.0 / 30.0, 1.0 / 6.0] {
        let term = b.binary("mul", s, series);
        let coefficient = b.splat(coefficient, b.ty(x));
        series = b.binary("sub", coefficient, term);
    }
    let series = b.binary("mul", s, series);
    let series = b.binary_scalar("add", series, 1.0);
    let series = b.binary("mul", inverse, series);
    let halved = b.binary_scalar("mul", s, 0.5);
    let series = b.binary("add", series, halved);
    let direct = b.binary("add", sum, series);
    let angle = b.binary_scalar("mul", x, PI);
    let sine = b.unary("sin", angle);
    let ratio = b.splat(PI, b.ty(x));
    let ratio = b.binary("div", ratio, sine);
    let square = b.binary("mul", ratio, ratio);
    let reflected = b.binary("sub", square, direct);
    b.select(left, reflected, direct)
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_values() {
        let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-14 * want.abs(), "{got} for {want}");
        close(super::erfinv(0.5), 0.476_936_276_204_469_9);
        close(super::erfinv(-0.999_999), -3.458_910_737_275_499);
        close(super::digamma(1.0), -0.577_215_664_901_532_9);
        close(super::digamma(0.1), -10.423_754_940_411_076);
        close(super::digamma(-1.5), 0.703_156_640_645_243_2);
        close(super::digamma(100.0), 4.600_161_852_738_087);
    }
}
