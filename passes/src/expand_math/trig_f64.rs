//! `sin`, `cos` and `atan2` of f64, with arguments of any size.
//!
//! x = m 2^e with an integer m of 53 bits. Of 2/pi only the 192 bits matter that m 2^e moves to between 2 and 2^-190: they are
//! shifted out of a table by selects, and multiplied by m in integers. What is left is exact to 2^-126 of a quadrant.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::Value;

/// 64 zeros, then the bits of 2/pi.
const TWO_OVER_PI: [u64; 20] = [
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
];
/// sin(r) = r + r^3 S(r^2) and cos(r) = 1 - r^2 / 2 + r^4 C(r^2) on |r| <= pi/4, relative error 2^-58.0 and 2^-64.2.
const SIN: &[f64] = &[
    -0.16666666666666632,
    0.00833333333332242,
    -0.00019841269829812527,
    2.7557313693582635e-06,
    -2.5050758381425093e-08,
    1.589681144144466e-10,
];
const COS: &[f64] = &[
    0.0416666666666666,
    -0.0013888888888874133,
    2.4801587289487815e-05,
    -2.755731435403184e-07,
    2.0875723513402782e-09,
    -1.1359660682747183e-11,
];
/// atan(z) = z + z^3 A(z^2) on [0, tan(pi/8)], relative error 2^-64.3.
const ATAN: &[f64] = &[
    -0.33333333333333326,
    0.1999999999999769,
    -0.1428571428539039,
    0.11111111088327051,
    -0.09090908149936643,
    0.07692282881413573,
    -0.06666228576237718,
    0.05877039663440665,
    -0.05218519711491638,
    0.045040195558178765,
    -0.03348542829848968,
    0.01520632143650483,
];
const TAN_PI_8: f64 = std::f64::consts::SQRT_2 - 1.0;
/// What pi/2 has beyond its f64.
const HALF_PI_LOW: f64 = 6.123233995736766e-17;

impl Math<'_> {
    /// sin(x + quadrants pi / 2), within 4 ulp.
    pub fn sine_f64(&mut self, x: Value, quadrants: i64) -> Value {
        let (turned, rest) = self.quadrant_f64(x);
        // Within pi / 4 the rest is x itself.
        let (size, limit, zero) = (self.abs(x), self.c(std::f64::consts::FRAC_PI_4), self.i(0));
        let small = self.compare("le", size, limit);
        let (quadrant, r) = (self.select(small, zero, turned), self.select(small, x, rest));
        let shift = self.i(quadrants);
        let quadrant = self.add(quadrant, shift);
        let value = self.sine_of_quadrant_f64(quadrant, r);
        // Of infinities, NaN.
        let (infinity, nan) = (self.c(f64::INFINITY), self.c(f64::NAN));
        let finite = self.compare("lt", size, infinity);
        self.select(finite, value, nan)
    }
    fn sine_of_quadrant_f64(&mut self, quadrant: Value, r: Value) -> Value {
        let square = self.mul(r, r);
        let (s, c) = (self.polynomial(square, SIN), self.polynomial(square, COS));
        let cube = self.mul(square, r);
        let sine = self.fma(cube, s, r);
        let (half, one) = (self.c(0.5), self.c(1.0));
        // 1 - r^2 / 2 and what its rounding loses.
        let halved = self.mul(square, half);
        let main = self.sub(one, halved);
        let lost = self.sub(one, main);
        let lost = self.sub(lost, halved);
        let fourth = self.mul(square, square);
        let small = self.fma(fourth, c, lost);
        let cosine = self.add(main, small);
        let odd = self.bit(quadrant, 1);
        let value = self.select(odd, cosine, sine);
        let (negative, minus) = (self.bit(quadrant, 2), self.neg(value));
        self.select(negative, minus, value)
    }
    /// Whether a bit of an integer is set.
    pub fn bit(&mut self, x: Value, bit: i64) -> Value {
        let (mask, zero) = (self.i(bit), self.i(0));
        let bits = self.op(op::core::AND, &[x, mask]);
        self.compare("ne", bits, zero)
    }

    /// The integer nearest to x 2/pi, modulo 4, and the rest in radians, for |x| from pi/4 to the greatest number.
    fn quadrant_f64(&mut self, x: Value) -> (Value, Value) {
        let bits = self.bits(x);
        let magnitude = self.op_with(op::core::AND, bits, i64::MAX);
        let biased = self.shr(magnitude, 52);
        let mantissa = self.op_with(op::core::AND, bits, (1 << 52) - 1);
        let m = self.op_with(op::core::OR, mantissa, 1 << 52);
        // The first bit of the window has the weight 2 after the product: number e + 62 of the table, e = biased - 1075.
        let first = self.op_with(op::core::SUB, biased, 1075 - 62);
        let first = self.op_with(op::core::MAX, first, 0);
        let window = self.window(first);
        // (m * window) mod 2^192, without its lowest word.
        let (_, high2) = self.product_128(m, window[2]);
        let (low1, high1) = self.product_128(m, window[1]);
        let low0 = self.mul(m, window[0]);
        let middle = self.add(low1, high2);
        let carry = self.below_unsigned(middle, low1);
        let top = self.add(low0, high1);
        let top = self.add(top, carry);
        // Two bits of quadrant, then a fraction whose first bit says to round up.
        let quadrant = self.shr(top, 62);
        let (shifted, from_middle) = (self.shl(top, 2), self.shift_right_unsigned(middle, 62));
        let fraction = self.op(op::core::OR, &[shifted, from_middle]);
        let rest = self.shl(middle, 2);
        let up = self.shift_right_unsigned(fraction, 63);
        let quadrant = self.add(quadrant, up);
        // fraction / 2^64 in [-1/2, 1/2) as the sum of signed parts of 32 bits, that cannot cancel.
        let low = self.shl(fraction, 32);
        let low = self.shr(low, 32);
        let high = self.sub(fraction, low);
        let high = self.shr(high, 32);
        let tail = self.shift_right_unsigned(rest, 32);
        let mut sum = self.c(0.0);
        for (part, weight) in [(tail, -96), (low, -64), (high, -32)] {
            let (part, weight) = (self.convert(part, rc_ir::Type::f64()), self.c(2f64.powi(weight)));
            sum = self.fma(part, weight, sum);
        }
        let half_pi = self.c(std::f64::consts::FRAC_PI_2);
        let r = self.mul(sum, half_pi);
        // Where x is negative, so are quadrant and rest.
        let zero = self.c(0.0);
        let negative = self.compare("lt", x, zero);
        let (none, minus) = (self.i(0), self.neg(r));
        let opposite = self.sub(none, quadrant);
        (self.select(negative, opposite, quadrant), self.select(negative, minus, r))
    }
    fn op_with(&mut self, name: &str, x: Value, n: i64) -> Value {
        let n = self.i(n);
        self.op(name, &[x, n])
    }
    fn shift_right_unsigned(&mut self, x: Value, bits: i64) -> Value {
        let shifted = self.shr(x, bits);
        self.op_with(op::core::AND, shifted, (1i64 << (64 - bits)).wrapping_sub(1))
    }
    /// 1 where a < b as unsigned integers, else 0.
    fn below_unsigned(&mut self, a: Value, b: Value) -> Value {
        let (a, b) = (self.op_with(op::core::XOR, a, i64::MIN), self.op_with(op::core::XOR, b, i64::MIN));
        let (one, zero) = (self.i(1), self.i(0));
        let below = self.compare("lt", a, b);
        self.select(below, one, zero)
    }
    /// The 192 bits of the table from bit `first` on.
    fn window(&mut self, first: Value) -> [Value; 3] {
        let mut words: Vec<Value> = TWO_OVER_PI.iter().map(|&w| self.i(w as i64)).collect();
        let whole = self.shr(first, 6);
        for step in [16, 8, 4, 2, 1] {
            // Four words are needed in the end, and as many more as the steps to come may skip.
            let keep = 4 + step - 1;
            let take = self.bit(whole, step as i64);
            let choose = |m: &mut Self, i: usize| match (words.get(i), words.get(i + step)) {
                (Some(&a), Some(&b)) => m.select(take, b, a),
                (Some(&a), None) => a,
                _ => m.i(0),
            };
            words = (0..keep.min(words.len())).map(|i| choose(self, i)).collect();
        }
        let rest = self.op_with(op::core::AND, first, 63);
        let back = self.i(64);
        let back = self.sub(back, rest);
        [0, 1, 2].map(|i| {
            let high = self.op(op::core::SHL, &[words[i], rest]);
            // A shift by 64 gives 0, as it should; the sign must not come in.
            let half = self.shift_right_unsigned(words[i + 1], 1);
            let less = self.op_with(op::core::SUB, back, 1);
            let low = self.op(op::core::SHR, &[half, less]);
            self.op(op::core::OR, &[high, low])
        })
    }
    /// The low and the high word of m w, of an m below 2^53 and an unsigned w.
    fn product_128(&mut self, m: Value, w: Value) -> (Value, Value) {
        const WORD: i64 = 0xFFFF_FFFF;
        let low = self.mul(m, w);
        let (ml, mh) = (self.op_with(op::core::AND, m, WORD), self.shr(m, 32));
        let (wl, wh) = (self.op_with(op::core::AND, w, WORD), self.shift_right_unsigned(w, 32));
        let t = self.mul(ml, wl);
        let t = self.shift_right_unsigned(t, 32);
        let u = self.mul(mh, wl);
        let u = self.add(u, t);
        let (u_low, u_high) = (self.op_with(op::core::AND, u, WORD), self.shift_right_unsigned(u, 32));
        let v = self.mul(ml, wh);
        let v = self.add(v, u_low);
        let v_high = self.shift_right_unsigned(v, 32);
        let high = self.mul(mh, wh);
        let high = self.add(high, u_high);
        (low, self.add(high, v_high))
    }

    /// The angle in [0, pi/2] of the point (`high`, `low`), 0 <= low <= high, neither 0/0 nor inf/inf.
    pub fn atan_ratio_f64(&mut self, low: Value, high: Value) -> Value {
        // So that their sum is finite.
        let (huge, down, one) = (self.c(2f64.powi(1000)), self.c(2f64.powi(-100)), self.c(1.0));
        let above = self.compare("gt", high, huge);
        let factor = self.select(above, down, one);
        let (low, high) = (self.mul(low, factor), self.mul(high, factor));
        let limit = self.c(TAN_PI_8);
        let border = self.mul(high, limit);
        let far = self.compare("gt", low, border);
        let (less, sum) = (self.sub(low, high), self.add(low, high));
        let (numerator, denominator) = (self.select(far, less, low), self.select(far, sum, high));
        let z = self.div(numerator, denominator);
        let square = self.mul(z, z);
        let p = self.polynomial(square, ATAN);
        let cube = self.mul(square, z);
        let (base, base_low, zero) = (self.c(std::f64::consts::FRAC_PI_4), self.c(HALF_PI_LOW / 2.0), self.c(0.0));
        let (base, base_low) = (self.select(far, base, zero), self.select(far, base_low, zero));
        let small = self.fma(cube, p, base_low);
        let angle = self.add(z, small);
        self.add(base, angle)
    }
}
