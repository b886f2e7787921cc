//! The remainder of floats, exact: long division in steps of 48 bits of the quotient, from the highest; of a short quotient in one.

use super::emit::Math;
use rc_dialects::op;
use rc_ir::{Type, Value};

/// Bits of the quotient that a step finds.
const STEP: i32 = 48;
/// Steps in a power of two that is a number.
const AT_ONCE: i32 = 21;

impl Math<'_> {
    /// x - y trunc(x / y), with the sign of x; exact. NaN where x is infinite or y is 0; x where y is infinite.
    pub fn rem(&mut self, x: Value, y: Value) -> Value {
        let (a, b) = (self.abs(x), self.abs(y));
        let is_short = |m: &mut Math| {
            let most = m.c(2f64.powi(if m.is_f64() { STEP } else { 22 }));
            let most = m.mul(b, most);
            m.compare("lt", a, most)
        };
        let [rest] = self.usually([self.ty], is_short, |m| [m.rem_step(a, b)], |m| [m.rem_in_steps(a, b)]);
        let value = self.with_sign_of(rest, x);
        let (infinity, zero, nan) = (self.c(f64::INFINITY), self.c(0.0), self.c(f64::NAN));
        let endless = self.compare("eq", b, infinity);
        let value = self.select(endless, x, value);
        let (finite, some) = (self.compare("lt", a, infinity), self.compare("gt", b, zero));
        let defined = self.op(op::core::AND, &[finite, some]);
        let value = self.select(defined, value, nan);
        // A NaN operand stays one: `endless` has kept x.
        let known = self.compare("eq", y, y);
        self.select(known, value, y)
    }

    fn rem_in_steps(&mut self, a: Value, b: Value) -> Value {
        if self.is_f64() {
            return self.rem_of_magnitudes(a, b, 1024 + 1074);
        }
        let (a, b) = (self.convert(a, Type::f64()), self.convert(b, Type::f64()));
        let rest = self.in_f64().rem_of_magnitudes(a, b, 128 + 149);
        self.convert(rest, Type::f32())
    }
    /// f64: a mod b of numbers that are not negative, whose quotient is below 2^`bits`.
    fn rem_of_magnitudes(&mut self, a: Value, b: Value, bits: i32) -> Value {
        let mut rest = a;
        let steps = bits / STEP;
        // b times 2^1008, again and again: a factor beyond 2^1023 is no number.
        let far = self.c(2f64.powi(STEP * AT_ONCE));
        let mut bases = vec![b];
        for i in 0..(steps / AT_ONCE) as usize {
            bases.push(self.mul(bases[i], far));
        }
        for step in (0..=steps).rev() {
            let scale = self.c(2f64.powi(STEP * (step % AT_ONCE)));
            let divisor = self.mul(bases[(step / AT_ONCE) as usize], scale);
            rest = self.rem_step(rest, divisor);
        }
        rest
    }
    /// a mod d, where a / d has two bits less than the format; a where d is infinite.
    fn rem_step(&mut self, a: Value, d: Value) -> Value {
        let quotient = self.div(a, d);
        let whole = self.op(op::core::FLOOR, &[quotient]);
        let minus = self.neg(whole);
        let rest = self.fma(minus, d, a);
        // The quotient may have been rounded up to an integer.
        let (zero, next) = (self.c(0.0), self.add(rest, d));
        let negative = self.compare("lt", rest, zero);
        let rest = self.select(negative, next, rest);
        let infinity = self.c(f64::INFINITY);
        let finite = self.compare("lt", d, infinity);
        self.select(finite, rest, a)
    }
}
