//! Division where `div.rn` costs too much: it has its rare cases in a function, and a kernel that calls one has the assembler wait for each product of a
//! warpgroup before it starts the next. Nor need a quotient be exact that is rounded to 16 bits soon.

use super::emit::{Constants, Math};
use super::narrow::rounded;
use rc_dialects::op;
use rc_ir::{Body, Op, Type, Value};

/// Divisors beyond these, up or down, are scaled before the reciprocal is taken, which has no subnormal numbers.
const ORDINARY: f64 = 7.922_816_251_426_434e28; // 2^96
/// By how much.
const SCALE: f64 = 1_073_741_824.0; // 2^30

/// The divisions in f32 that are expanded: all of a kernel whose warpgroups multiply, and on a GPU those that are rounded to 16 bits soon.
pub fn divisions(body: &Body) -> Vec<Op> {
    let ops = body.walk();
    let multiplies = ops.iter().any(|&op| body.name(op) == op::kernel::WGMMA);
    let gpu = body.op_ref(body.root()).str("target") == Some("cuda");
    let divides = |op: Op| body.name(op) == op::core::DIV && body.ty(body.result(op, 0)).elem() == Type::f32();
    let expanded = |&op: &Op| divides(op) && (multiplies || gpu && rounded(body, body.result(op, 0)).is_some());
    ops.into_iter().filter(expanded).collect()
}

/// Expands these divisions, and those that functions were expanded to; gives their number.
pub fn expand_divisions(body: &mut Body, constants: &mut Constants, known: &[Op]) -> u64 {
    let mut ops: Vec<Op> = known.iter().copied().chain(divisions(body)).filter(|&op| !body.is_erased(op)).collect();
    ops.sort_unstable();
    ops.dedup();
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
