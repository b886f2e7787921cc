//! `sin`, `cos`, `atan2` and `pow`, with arguments of any size; what is only for f64 is in files of its own.
//!
//! sin and cos of f32: x 2/pi mod 4 is found exactly enough in f64: 2/pi in pieces of 29 bits, whose products with the 24 bits of x are
//! exact, as are these modulo 4; their sum is compensated. The quadrant and a rest within 1/2 remain.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::{Type, Value};

/// 2/pi, 29 bits each.
const TWO_OVER_PI: [f64; 8] = [
    0.636619770899415,
    1.4681663246252086e-09,
    2.2760100671971816e-18,
    5.8812147387730434e-27,
    1.0346868700836215e-35,
    3.783256351091319e-45,
    3.720474878517739e-53,
    4.227114694466663e-62,
];
/// sin(r) = r + r^3 S(r^2) and cos(r) = 1 - r^2 / 2 + r^4 C(r^2) on |r| <= pi/4, relative error 2^-37.5 and 2^-33.0.
const SIN: &[f64] = &[-1.666666716e-01, 8.333329111e-03, -1.983930269e-04, 2.718025826e-06];
const COS: &[f64] = &[4.166664556e-02, -1.388730831e-03, 2.443221092e-05];
/// atan(z) = z + z^3 A(z^2) on [0, 1], relative error 2^-28.5.
const ATAN: &[f64] = &[
    -3.333329856e-01,
    1.999854892e-01,
    -1.426424235e-01,
    1.095218658e-01,
    -8.403453231e-02,
    5.795763806e-02,
    -3.117788583e-02,
    1.091462560e-02,
    -1.793625648e-03,
];

impl Math<'_> {
    /// Within 4 ulp.
    pub fn sin(&mut self, x: Value) -> Value {
        let value = self.sine_from(x, 0.0);
        // The sum of pieces loses the sign of zero.
        let zero = self.c(0.0);
        let is_zero = self.compare("eq", x, zero);
        self.select(is_zero, x, value)
    }
    /// Within 4 ulp.
    pub fn cos(&mut self, x: Value) -> Value {
        self.sine_from(x, 1.0)
    }
    /// sin(x + quadrants pi / 2).
    fn sine_from(&mut self, x: Value, quadrants: f64) -> Value {
        if self.is_f64() {
            return self.sine_f64(x, quadrants as i64);
        }
        let wide = self.convert(x, Type::f64());
        let (quadrant, rest) = self.in_f64().quadrant(wide);
        let mut m = self.in_f64();
        let shift = m.c(quadrants);
        let quadrant = m.add(quadrant, shift);
        // The quadrant mod 4, as 0 to 3.
        let (quarter, four) = (m.c(0.25), m.c(-4.0));
        let turns = m.mul(quadrant, quarter);
        let turns = m.op(op::core::FLOOR, &[turns]);
        let quadrant = m.fma(turns, four, quadrant);
        let (quadrant, rest) = (self.convert(quadrant, Type::f32()), self.convert(rest, Type::f32()));
        self.sine_of_quadrant(quadrant, rest)
    }
    /// f64: the nearest integer q to x 2 / pi, less a multiple of 4, and (x 2 / pi - q) pi / 2.
    fn quadrant(&mut self, x: Value) -> (Value, Value) {
        let (quarter, minus_four) = (self.c(0.25), self.c(-4.0));
        let (mut sum, mut error) = (self.c(0.0), self.c(0.0));
        for piece in TWO_OVER_PI {
            let piece = self.c(piece);
            let product = self.mul(x, piece);
            let turns = self.mul(product, quarter);
            // The nearest number of turns, so that what is small stays exact.
            let turns = self.op(op::core::ROUND, &[turns]);
            let part = self.fma(turns, minus_four, product);
            // sum + part, and what that rounds away.
            let next = self.add(sum, part);
            let virtual_part = self.sub(next, sum);
            let virtual_sum = self.sub(next, virtual_part);
            let (lost_sum, lost_part) = (self.sub(sum, virtual_sum), self.sub(part, virtual_part));
            let lost = self.add(lost_sum, lost_part);
            error = self.add(error, lost);
            sum = next;
        }
        let quadrant = self.op(op::core::ROUND, &[sum]);
        let rest = self.sub(sum, quadrant);
        let rest = self.add(rest, error);
        let half_pi = self.c(std::f64::consts::FRAC_PI_2);
        (quadrant, self.mul(rest, half_pi))
    }
    /// f32: sin(r) in quadrant 0, cos(r) in 1, -sin(r) in 2, -cos(r) in 3.
    fn sine_of_quadrant(&mut self, quadrant: Value, r: Value) -> Value {
        let square = self.mul(r, r);
        let (s, c) = (self.polynomial(square, SIN), self.polynomial(square, COS));
        let cube = self.mul(square, r);
        let sine = self.fma(cube, s, r);
        let (minus_half, one) = (self.c(-0.5), self.c(1.0));
        let low = self.fma(square, minus_half, one);
        let fourth = self.mul(square, square);
        let cosine = self.fma(fourth, c, low);
        let (first, third) = (self.c(1.0), self.c(3.0));
        let (is_first, is_third) = (self.compare("eq", quadrant, first), self.compare("eq", quadrant, third));
        let odd = self.op(op::core::OR, &[is_first, is_third]);
        let value = self.select(odd, cosine, sine);
        let two = self.c(2.0);
        let (negative, minus) = (self.compare("ge", quadrant, two), self.neg(value));
        self.select(negative, minus, value)
    }

    /// Within 4 ulp.
    pub fn atan2(&mut self, y: Value, x: Value) -> Value {
        let (a, b) = (self.abs(y), self.abs(x));
        let steep = self.compare("gt", a, b);
        let (low, high) = (self.select(steep, b, a), self.select(steep, a, b));
        let (zero, one) = (self.c(0.0), self.c(1.0));
        // 0/0 is 0, inf/inf is 1.
        let (nothing, equal) = (self.compare("eq", high, zero), self.compare("eq", low, high));
        let angle = if self.is_f64() {
            let angle = self.atan_ratio_f64(low, high);
            let diagonal = self.c(std::f64::consts::FRAC_PI_4);
            let angle = self.select(equal, diagonal, angle);
            self.select(nothing, zero, angle)
        } else {
            let quotient = self.div(low, high);
            let quotient = self.select(equal, one, quotient);
            let z = self.select(nothing, zero, quotient);
            let square = self.mul(z, z);
            let p = self.polynomial(square, ATAN);
            let cube = self.mul(square, z);
            self.fma(cube, p, z)
        };
        let (half_pi, pi) = (self.c(std::f64::consts::FRAC_PI_2), self.c(std::f64::consts::PI));
        let turned = self.sub(half_pi, angle);
        let angle = self.select(steep, turned, angle);
        // x is negative, zero included, where its sign bit is set.
        let sign = self.with_sign_of(one, x);
        let (negative, turned) = (self.compare("lt", sign, zero), self.sub(pi, angle));
        let angle = self.select(negative, turned, angle);
        let angle = self.with_sign_of(angle, y);
        let (nan_y, nan_x) = (self.compare("ne", y, y), self.compare("ne", x, x));
        let (sum, nan) = (self.add(y, x), self.op(op::core::OR, &[nan_y, nan_x]));
        self.select(nan, sum, angle)
    }

    /// f32: x^y for x >= 0 as exp(y log x) in f64.
    fn power_in_f64(&mut self, x: Value, y: Value) -> Value {
        let (wide_x, wide_y) = (self.convert(x, Type::f64()), self.convert(y, Type::f64()));
        let mut m = self.in_f64();
        let log = m.log(wide_x);
        let product = m.mul(wide_y, log);
        let power = m.exp(product);
        self.convert(power, Type::f32())
    }
    /// Within 2 ulp, in f64 within 8.
    pub fn pow(&mut self, x: Value, y: Value) -> Value {
        let magnitude = self.abs(x);
        let mut value = if self.is_f64() { self.power_f64(magnitude, y) } else { self.power_in_f64(magnitude, y) };
        // 1 where log |x| y is 0 inf or inf 0: for y = 0, for |x| = 1 with y infinite, for x = 1.
        let (zero, one, minus_one, infinity) = (self.c(0.0), self.c(1.0), self.c(-1.0), self.c(f64::INFINITY));
        let size = self.abs(y);
        let (is_one, is_minus_one) = (self.compare("eq", x, one), self.compare("eq", x, minus_one));
        let (no_power, endless) = (self.compare("eq", y, zero), self.compare("eq", size, infinity));
        let alternating = self.op(op::core::AND, &[is_minus_one, endless]);
        // Negative bases: the sign of odd powers; no powers that are not integers.
        let whole = self.op(op::core::FLOOR, &[y]);
        let is_whole = self.compare("eq", whole, y);
        let half = self.c(0.5);
        let halves = self.mul(y, half);
        let floor = self.op(op::core::FLOOR, &[halves]);
        let even = self.compare("eq", floor, halves);
        let signed = self.with_sign_of(value, x);
        let odd = self.select(even, zero, one);
        let is_odd = self.compare("eq", odd, one);
        let odd_whole = self.op(op::core::AND, &[is_odd, is_whole]);
        value = self.select(odd_whole, signed, value);
        let (negative, lowest) = (self.compare("lt", x, zero), self.c(f64::NEG_INFINITY));
        let finite = self.compare("gt", x, lowest);
        let negative = self.op(op::core::AND, &[negative, finite]);
        let nan = self.c(f64::NAN);
        let broken = self.select(is_whole, value, nan);
        value = self.select(negative, broken, value);
        for is_unit in [is_one, no_power, alternating] {
            value = self.select(is_unit, one, value);
        }
        value
    }
}
