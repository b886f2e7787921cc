//! `sin`, `cos`, `atan2` and `pow`, with arguments of any size; what is only for f64 is in files of its own.
//!
//! sin and cos of f32: of small x multiples of pi/2 are subtracted in f32. Of others x 2/pi mod 4 is found exactly enough in f64: 2/pi in pieces of 29 bits, whose products with the 24 bits of x are
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
/// The sum with a number below 2^22 has its nearest integer in the low bits.
const MAGIC: f64 = 12_582_912.0;
/// pi/2 in three numbers of 24 bits, which suffice below this limit.
const HALF_PI: [f64; 3] = [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8, -1.715_124_510_005_881_9e-15];
const NEAR: f64 = 8192.0;
/// sin(r) = r + r^3 S(r^2) and cos(r) = 1 - r^2 / 2 + r^4 C(r^2) on |r| <= pi/4, relative error 2^-37.5 and 2^-33.0.
const SIN: &[f64] = &[-1.666666716e-01, 8.333329111e-03, -1.983930269e-04, 2.718025826e-06];
const COS: &[f64] = &[4.166664556e-02, -1.388730831e-03, 2.443221092e-05];
/// sin(r) = r + r^3 S(r^2) on |r| <= pi/2, relative error 2^-27.3.
const SIN_HALF_TURN: &[f64] =
    &[-0.16666659544429674, 0.008333066079814285, -0.00019809589923422898, 2.605750352968224e-06];
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

/// The same for results that are rounded to 16 bits: 2^-17.6, of sin 2^-19.8.
const ATAN_NARROW: &[f64] =
    &[-0.3330889842513922, 0.19618294358911567, -0.12251456859501847, 0.0587697331309454, -0.013954888905214229];
const SIN_NARROW: &[f64] = &[-0.1666585273743143, 0.008314266857668813, -0.00018541959474228237];
/// tan(r) = r + r^3 T(r^2) on |r| <= pi/4, relative error 2^-25.7, and for results that are rounded to 16 bits 2^-18.1.
const TAN: &[f64] = &[
    0.3333315606986749,
    0.13338820194879852,
    0.053409524076934146,
    0.024436524724079544,
    0.0031094910199901864,
    0.009391678788400191,
];
const TAN_NARROW: &[f64] = &[0.3331538204304152, 0.13607118699677995, 0.04137838107362157, 0.04310839059849156];

impl Math<'_> {
    /// Within 4 ulp.
    pub fn sin(&mut self, x: Value) -> Value {
        if self.rounded {
            return self.sine_narrow(x, 0);
        }
        let value = self.sine_from(x, 0);
        // The sum of pieces loses the sign of zero.
        let zero = self.c(0.0);
        let is_zero = self.compare("eq", x, zero);
        self.select(is_zero, x, value)
    }
    /// Within 4 ulp.
    pub fn cos(&mut self, x: Value) -> Value {
        if self.rounded {
            return self.sine_narrow(x, 1);
        }
        self.sine_from(x, 1)
    }
    /// sin(x + quadrants pi / 2) within 2^-16, with one quadrant or none: of a sine or cosine on half a turn the sign alone depends on n.
    fn sine_narrow(&mut self, x: Value, quadrants: i64) -> Value {
        let far = |m: &mut Math| {
            let [quadrant, rest] = m.quadrant_of_any(x);
            [m.sine_of_quadrant(quadrant, rest, quadrants)]
        };
        let near = |m: &mut Math| {
            let (per_turn, magic) = (m.c(std::f64::consts::FRAC_1_PI), m.c(MAGIC));
            // x = n pi + rest, or n pi + pi / 2 - rest.
            let (shifted, rest) = if quadrants == 0 {
                let shifted = m.fma(x, per_turn, magic);
                let minus = m.sub(magic, shifted);
                (shifted, m.plus_half_turns(x, minus))
            } else {
                let minus_half = m.c(-0.5);
                let turns = m.fma(x, per_turn, minus_half);
                let shifted = m.add(turns, magic);
                let (n, minus) = (m.sub(shifted, magic), m.neg(x));
                let n = m.sub(n, minus_half);
                (shifted, m.plus_half_turns(minus, n))
            };
            let (square, one) = (m.mul(rest, rest), m.c(1.0));
            let p = m.polynomial(square, SIN_NARROW);
            let factor = m.fma(square, p, one);
            let (value, bits) = (m.mul(rest, factor), m.bits(shifted));
            let (bits, value) = (m.shl(bits, 31), m.bits(value));
            let value = m.op(op::core::XOR, &[value, bits]);
            [m.float(value)]
        };
        let [value] = self.usually([self.ty], |m| m.is_near(x), near, far);
        value
    }
    /// x + n pi, of an n below 2^12.
    fn plus_half_turns(&mut self, x: Value, n: Value) -> Value {
        let mut sum = x;
        for part in HALF_PI {
            let part = self.c(2.0 * part);
            sum = self.fma(n, part, sum);
        }
        sum
    }
    /// sin(x + quadrants pi / 2).
    fn sine_from(&mut self, x: Value, quadrants: i64) -> Value {
        if self.is_f64() {
            return self.sine_f64(x, quadrants);
        }
        let [quadrant, rest] = self.quadrant_and_rest(x);
        self.sine_of_quadrant(quadrant, rest, quadrants)
    }
    fn sine_of_quadrant(&mut self, quadrant: Value, rest: Value, quadrants: i64) -> Value {
        let shift = self.i(quadrants);
        let quadrant = self.add(quadrant, shift);
        let [sine, cosine] = self.sine_and_cosine(rest);
        let odd = self.bit(quadrant, 1);
        let value = self.select(odd, cosine, sine);
        let (negative, minus) = (self.bit(quadrant, 2), self.neg(value));
        self.select(negative, minus, value)
    }
    /// Within 8 ulp.
    pub fn tan(&mut self, x: Value) -> Value {
        if self.is_f64() {
            let (sine, cosine) = (self.sin(x), self.cos(x));
            return self.div(sine, cosine);
        }
        let [quadrant, rest] = self.quadrant_and_rest(x);
        let (square, one, minus_one) = (self.mul(rest, rest), self.c(1.0), self.c(-1.0));
        let p = self.polynomial(square, if self.rounded { TAN_NARROW } else { TAN });
        let factor = self.fma(square, p, one);
        let (near, odd) = (self.mul(rest, factor), self.bit(quadrant, 1));
        let far = if self.approx {
            let inverse = self.hardware("rcp", near);
            self.neg(inverse)
        } else {
            self.div(minus_one, near)
        };
        let (value, zero) = (self.select(odd, far, near), self.c(0.0));
        // The sum of pieces loses the sign of zero.
        let is_zero = self.compare("eq", x, zero);
        self.select(is_zero, x, value)
    }
    fn is_near(&mut self, x: Value) -> Value {
        let (magnitude, limit) = (self.abs(x), self.c(NEAR));
        self.compare("lt", magnitude, limit)
    }
    /// f32: an integer that is modulo 4 the nearest one to x 2 / pi, and the rest in radians.
    fn quadrant_and_rest(&mut self, x: Value) -> [Value; 2] {
        let types = [self.int_ty(), self.ty];
        self.usually(types, |m| m.is_near(x), |m| m.quadrant_near(x), |m| m.quadrant_of_any(x))
    }
    /// For |x| < NEAR. The parts of pi / 2 have 24 bits; what is left after the first one is exact.
    fn quadrant_near(&mut self, x: Value) -> [Value; 2] {
        let (two_over_pi, magic) = (self.c(std::f64::consts::FRAC_2_PI), self.c(MAGIC));
        let shifted = self.fma(x, two_over_pi, magic);
        let n = self.sub(shifted, magic);
        let (minus, mut rest) = (self.neg(n), x);
        for part in HALF_PI {
            let part = self.c(part);
            rest = self.fma(minus, part, rest);
        }
        [self.bits(shifted), rest]
    }
    /// For any x.
    fn quadrant_of_any(&mut self, x: Value) -> [Value; 2] {
        let wide = self.convert(x, Type::f64());
        let (quadrant, rest) = self.in_f64().quadrant(wide);
        let (quadrant, rest) = (self.convert(quadrant, Type::f32()), self.convert(rest, Type::f32()));
        let magic = self.c(MAGIC);
        let shifted = self.add(quadrant, magic);
        [self.bits(shifted), rest]
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
    /// f32: sin(r) of |r| <= pi/2, within 3 ulp.
    pub fn sine_of_half_turn(&mut self, r: Value) -> Value {
        let square = self.mul(r, r);
        let (p, cube) = (self.polynomial(square, SIN_HALF_TURN), self.mul(square, r));
        self.fma(cube, p, r)
    }
    /// f32: those of |r| <= pi/4.
    fn sine_and_cosine(&mut self, r: Value) -> [Value; 2] {
        let square = self.mul(r, r);
        let (s, c) = (self.polynomial(square, SIN), self.polynomial(square, COS));
        let cube = self.mul(square, r);
        let sine = self.fma(cube, s, r);
        let (minus_half, one) = (self.c(-0.5), self.c(1.0));
        let low = self.fma(square, minus_half, one);
        let fourth = self.mul(square, square);
        [sine, self.fma(fourth, c, low)]
    }

    /// f32: atan(z) of z in [0, 1].
    pub fn atan_of_ratio(&mut self, z: Value) -> Value {
        let square = self.mul(z, z);
        let (p, cube) = (self.polynomial(square, if self.rounded { ATAN_NARROW } else { ATAN }), self.mul(square, z));
        self.fma(cube, p, z)
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
            let quotient = if self.approx { self.quotient(low, high) } else { self.div(low, high) };
            let quotient = self.select(equal, one, quotient);
            let z = self.select(nothing, zero, quotient);
            self.atan_of_ratio(z)
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

    /// f32: x^y for x >= 0 as 2^(y log2 x), within 2^-15.
    fn power_narrow(&mut self, x: Value, y: Value) -> Value {
        let log = self.log_times_f32(x, std::f64::consts::LOG2_E);
        let exponent = self.mul(log, y);
        self.hardware("ex2", exponent)
    }
    /// Within 2 ulp, in f64 within 8.
    pub fn pow(&mut self, x: Value, y: Value) -> Value {
        if !self.rounded {
            return self.pow_of_any(x, y);
        }
        // Powers of positive normal numbers are powers of two.
        let usual = |m: &mut Math| {
            let (least, infinity, size) = (m.c(f64::from(f32::MIN_POSITIVE)), m.c(f64::INFINITY), m.abs(y));
            let (normal, finite) = (m.compare("ge", x, least), m.compare("lt", x, infinity));
            let (inside, some) = (m.op(op::core::AND, &[normal, finite]), m.compare("lt", size, infinity));
            m.op(op::core::AND, &[inside, some])
        };
        let short = |m: &mut Math| {
            let log = m.log_times_inside(x, std::f64::consts::LOG2_E);
            let exponent = m.mul(log, y);
            [m.hardware("ex2", exponent)]
        };
        let [value] = self.usually([self.ty], usual, short, |m| [m.pow_of_any(x, y)]);
        value
    }
    fn pow_of_any(&mut self, x: Value, y: Value) -> Value {
        let magnitude = self.abs(x);
        let mut value = match (self.is_f64(), self.rounded) {
            (true, _) => self.power_f64(magnitude, y),
            (false, true) => self.power_narrow(magnitude, y),
            (false, false) => self.power_f32(magnitude, y),
        };
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
