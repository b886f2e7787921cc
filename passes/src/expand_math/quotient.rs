//! Division where `div.rn` costs too much: it has its rare cases in a function, and a kernel that calls one has the assembler wait for each product of a
//! warpgroup before it starts the next. Nor need a quotient be exact that is rounded to 16 bits soon. Many quotients by one number are products with its reciprocal.

use super::emit::{Constants, Math};
use super::narrow::rounded;
use rc_dialects::op;
use rc_ir::{Body, Op, Type, Value};
use rustc_hash::FxHashMap;

/// Divisors beyond these, up or down, are scaled before the reciprocal is taken, which has no subnormal numbers.
const ORDINARY: f64 = 7.922_816_251_426_434e28; // 2^96
/// By how much.
const SCALE: f64 = 1_073_741_824.0; // 2^30

/// Elements that a thread divides by one number, from which on its reciprocal is taken once.
const COMMON: usize = 4;

/// The divisions in f32 that are expanded: all of a kernel whose warpgroups multiply, and on a GPU those that are rounded to 16 bits soon and those by a number
/// that divides others too, as a row's sum or scale does.
pub fn divisions(body: &Body) -> Vec<Op> {
    let multiplies = multiplies(body);
    let gpu = body.op_ref(body.root()).str("target") == Some("cuda");
    let divides = |op: Op| body.name(op) == op::core::DIV && body.ty(body.result(op, 0)).elem() == Type::f32();
    let expanded = |&op: &Op| {
        divides(op) && (multiplies || gpu && (is_rounded(body, op) || common(body, body.operand(op, 1)).is_some()))
    };
    body.walk().into_iter().filter(expanded).collect()
}

/// Whether warpgroups multiply.
fn multiplies(body: &Body) -> bool {
    body.walk().iter().any(|&op| body.name(op) == op::kernel::WGMMA)
}

fn is_rounded(body: &Body, op: Op) -> bool {
    rounded(body, body.result(op, 0)).is_some()
}

/// The number that a divisor is in all its lanes, if a thread divides enough elements by it.
fn common(body: &Body, divisor: Value) -> Option<Value> {
    let splat = body.defining_op(divisor).filter(|&op| body.name(op) == op::kernel::SPLAT);
    let number = splat.map_or(divisor, |op| body.operand(op, 0));
    if !body.ty(number).is_scalar() {
        return None;
    }
    let lanes = body.ty(divisor).static_shape().map_or(1, |shape| shape.iter().product::<i64>() as usize);
    let divided = body.uses(divisor).filter(|&(user, operand)| body.name(user) == op::core::DIV && operand == 1);
    // In a loop around them there are more.
    let loops = |&(user, _): &(Op, usize)| body.parent(user) != body.defining_block(number);
    let count: usize = divided.map(|user| if loops(&user) { COMMON } else { lanes }).sum();
    (count >= COMMON).then_some(number)
}

/// Expands these divisions, and those that functions were expanded to; gives their number.
pub fn expand_divisions(body: &mut Body, constants: &mut Constants, known: &[Op]) -> u64 {
    let mut ops: Vec<Op> = known.iter().copied().chain(divisions(body)).filter(|&op| !body.is_erased(op)).collect();
    ops.sort_unstable();
    ops.dedup();
    let mut reciprocals: FxHashMap<Value, Reciprocal> = FxHashMap::default();
    // A reciprocal that is rounded to nearest is a division.
    let divides = !multiplies(body);
    let divisors: Vec<Option<Value>> =
        ops.iter().map(|&op| common(body, body.operand(op, 1)).filter(|_| divides)).collect();
    for (&op, divisor) in ops.iter().zip(divisors) {
        let (a, b, ty) = (body.operand(op, 0), body.operand(op, 1), body.ty(body.result(op, 0)));
        let precise = !is_rounded(body, op);
        let reciprocal = divisor.map(|number| {
            *reciprocals.entry(number).or_insert_with(|| {
                let before = first_after(body, number);
                Math { body, constants, before, ty: Type::f32(), approx: true, rounded: false }
                    .reciprocal_of_divisor(number)
            })
        });
        let mut m = Math { body, constants, before: op, ty, approx: true, rounded: false };
        let value = match reciprocal {
            Some(reciprocal) => m.times(a, reciprocal, precise),
            None => m.quotient(a, b),
        };
        body.replace_op(op, &[value]);
    }
    ops.len() as u64
}

/// The first operation that may use a value.
fn first_after(body: &Body, value: Value) -> Op {
    let next = match body.defining_op(value) {
        Some(op) => body.next_op(op),
        None => body.defining_block(value).and_then(|block| body.first_op(block)),
    };
    next.expect("a block ends with a terminator")
}

/// What a number is divided by, as products.
#[derive(Clone, Copy)]
struct Reciprocal {
    /// A power of two that keeps the divisor's reciprocal normal.
    scale: Value,
    /// The scaled divisor, negative.
    negative: Value,
    of_scaled: Value,
}

impl Math<'_> {
    /// a / b within 4 ulp by the hardware's reciprocal, without a branch.
    pub fn quotient(&mut self, a: Value, b: Value) -> Value {
        let scale = self.scale_of_divisor(b);
        let (a, b) = (self.mul(a, scale), self.mul(b, scale));
        let reciprocal = self.hardware("rcp", b);
        self.mul(a, reciprocal)
    }

    fn scale_of_divisor(&mut self, b: Value) -> Value {
        let (size, low, high) = (self.abs(b), self.c(1.0 / ORDINARY), self.c(ORDINARY));
        let (up, down, one) = (self.c(SCALE), self.c(1.0 / SCALE), self.c(1.0));
        let (small, large) = (self.compare("lt", size, low), self.compare("gt", size, high));
        let scale = self.select(small, up, one);
        self.select(large, down, scale)
    }

    fn reciprocal_of_divisor(&mut self, b: Value) -> Reciprocal {
        let scale = self.scale_of_divisor(b);
        let (scaled, one) = (self.mul(b, scale), self.c(1.0));
        Reciprocal { scale, negative: self.neg(scaled), of_scaled: self.div(one, scaled) }
    }

    /// a / b by b's reciprocal. Where it is to be precise, the remainder is divided again: a normal quotient is then rounded to nearest (P. Markstein, "Computation
    /// of elementary functions on the IBM RISC System/6000 processor", 1990).
    fn times(&mut self, a: Value, b: Reciprocal, precise: bool) -> Value {
        let lanes = |m: &mut Self, x: Value| if m.ty.is_scalar() { x } else { m.splat(x) };
        let [scale, negative, reciprocal] = [b.scale, b.negative, b.of_scaled].map(|x| lanes(self, x));
        let a = self.mul(a, scale);
        let quotient = self.mul(a, reciprocal);
        if !precise {
            return quotient;
        }
        let rest = self.fma(negative, quotient, a);
        let (size, infinity) = (self.abs(rest), self.c(f64::INFINITY));
        // Of infinities and zeros there is no remainder.
        let finite = self.compare("lt", size, infinity);
        let corrected = self.fma(rest, reciprocal, quotient);
        self.select(finite, corrected, quotient)
    }
}
