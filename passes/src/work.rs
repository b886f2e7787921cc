//! What operations cost on one element, in multiply-adds: one table for all models of time.

use rc_dialects::op;
use rc_ir::{Body, Op, OpRef};

/// An elementary function: about as many instructions as `expand-math` makes of one in f32.
pub const FUNCTION: f64 = 8.0;

/// Whether it is an elementary function, which takes tens of instructions.
pub fn is_function(op: OpRef) -> bool {
    crate::expand_math::FUNCTIONS.contains(&op.name().as_str())
}

/// What an elementwise operation costs.
pub fn work(op: OpRef) -> f64 {
    match op.name().as_str() {
        op::core::PHILOX => 60.0,
        op::core::PHILOX_WORD => 20.0,
        op::core::DIV | op::core::SQRT => 4.0,
        _ if is_function(op) => FUNCTION,
        _ => 1.0,
    }
}

/// What a region's operations on floats cost together. Arithmetic on places runs beside them.
pub fn work_of_floats(body: &Body, ops: impl Iterator<Item = Op>) -> f64 {
    let floats =
        ops.map(|op| body.op_ref(op)).filter(|op| op.results().len() == 1 && op.result_types()[0].elem().is_float());
    floats.map(work).sum()
}
