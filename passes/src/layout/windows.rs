//! Products of windows, as convolutions are.

use crate::fuse::overlaps;
use rc_dialects::core::dot::DOT;
use rc_dialects::core::shape::{RESHAPE, TRANSPOSE};
use rc_dialects::core::window::WINDOW;
use rc_ir::{Body, Op, Value};

/// Whether an operation is of a product whose left operand is windows that overlap.
pub fn is_of_product(body: &Body, op: Op) -> bool {
    let product = body.operands(op).next().and_then(|v| body.defining_op(v)).filter(|&op| body.name(op) == &DOT);
    product.is_some_and(|product| are_windows(body, body.operand(product, 0)))
}

/// Whether a value is windows that overlap, moved at most.
fn are_windows(body: &Body, mut value: Value) -> bool {
    while let Some(op) = body.defining_op(value) {
        if body.name(op) != &TRANSPOSE && body.name(op) != &RESHAPE {
            return body.name(op) == &WINDOW && overlaps(body.op_ref(op));
        }
        value = body.operand(op, 0);
    }
    false
}
