//! Products of windows, as convolutions are.

use crate::fuse::{Class, classify, overlaps};
use rc_dialects::core::dot::DOT;
use rc_dialects::core::window::WINDOW;
use rc_ir::{Body, Op, Value};

/// The operation whose windows a value is, at most moved.
pub fn windows_of(body: &Body, value: Value) -> Option<Op> {
    let moved = |&op: &Op| classify(body.op_ref(op)) == Class::Reindex;
    let mut before = std::iter::successors(body.defining_op(value).filter(moved), |&op| {
        body.defining_op(body.operand(op, 0)).filter(moved)
    });
    before.by_ref().take(16).find(|&op| body.name(op) == &WINDOW)
}

/// Whether an operation is of a product whose left operand is windows that overlap.
pub fn follows_product(body: &Body, op: Op) -> bool {
    let product = body.operands(op).next().and_then(|v| body.defining_op(v)).filter(|&op| body.name(op) == &DOT);
    let windows = product.and_then(|product| windows_of(body, body.operand(product, 0)));
    windows.is_some_and(|windows| overlaps(body.op_ref(windows)))
}
