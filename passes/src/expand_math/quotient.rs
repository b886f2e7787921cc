//! Division where a call would cost more than the division: `div.rn` has its rare cases in a function, and a kernel that calls one
//! has the assembler wait for each product of a warpgroup before it starts the next.

use super::emit::{Constants, Math};
use rc_dialects::op;
use rc_ir::{Body, Op, Type, Value};

/// Divisors beyond these, up or down, are scaled before the reciprocal is taken, which has no subnormal numbers.
const ORDINARY: f64 = 7.922_816_251_426_434e28; // 2^96
/// By how much.
const SCALE: f64 = 1_073_741_824.0; // 2^30

/// The divisions in f32 of a kernel whose warpgroups multiply.
pub fn divisions(body: &Body) -> Vec<Op> {
    let ops = body.walk();
    let divides = |op: Op| body.name(op) == op::core::DIV && body.ty(body.result(op, 0)).elem() == Type::f32();
    match ops.iter().any(|&op| body.name(op) == op::kernel::WGMMA) {
        true => ops.into_iter().filter(|&op| divides(op)).collect(),
        false => Vec::new(),
    }
}

/// Expands them; gives their number.
pub fn expand_divisions(body: &mut Body, constants: &mut Constants) -> u64 {
    let ops = divisions(body);
    for &op in &ops {
        let (a, b, ty) = (body.operand(op, 0), body.operand(op, 1), body.ty(body.result(op, 0)));
        let value = Math { body, constants, before: op, ty, approx: true, rounded: false }.quotient(a, b);
        body.replace_op(op, &[value]);
    }
    ops.len() as u64
}

impl Math<'_> {
    /// a / b within 4 ulp by the hardware's reciprocal, without a branch.
    pub fn quotient(&mut self, a: Value, b: Value) -> Value {
        let (size, low, high) = (self.abs(b), self.c(1.0 / ORDINARY), self.c(ORDINARY));
        let (up, down, one) = (self.c(SCALE), self.c(1.0 / SCALE), self.c(1.0));
        let (small, large) = (self.compare("lt", size, low), self.compare("gt", size, high));
        let scale = self.select(small, up, one);
        let scale = self.select(large, down, scale);
        let (a, b) = (self.mul(a, scale), self.mul(b, scale));
        let reciprocal = self.hardware("rcp", b);
        self.mul(a, reciprocal)
    }
}
