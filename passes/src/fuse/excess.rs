//! Excess precision: inside of a kernel a float that is rounded to 16 bits and widened again keeps its precision, as in XLA and
//! Inductor, where the module allows it (`rc.excess_precision`). What is stored is rounded as ever.

use rc_dialects::op;
use rc_ir::{Body, Op, OpRef, Type};

/// Lets what computes on in f32 read the number from before the rounding, in every fusion of the body.
pub fn keep(body: &mut Body) {
    let widened: Vec<Op> = body.walk().into_iter().filter(|&op| widens(body.op_ref(op))).collect();
    for op in widened {
        let Some(rounding) = body.defining_op(body.operand(op, 0)) else { continue };
        if !rounds(body.op_ref(rounding)) || body.parent(rounding) != body.parent(op) {
            continue;
        }
        let wide = body.operand(rounding, 0);
        body.replace_op(op, &[wide]);
        if !body.has_uses(body.result(rounding, 0)) {
            body.erase(rounding);
        }
    }
}

fn is_narrow(ty: Type) -> bool {
    [Type::bf16(), Type::f16()].contains(&ty.elem())
}

/// A conversion from 16 bits to f32 in a fusion.
fn widens(op: OpRef) -> bool {
    op.is(op::core::CONVERT)
        && is_narrow(op.operand_types()[0])
        && op.body.ty(op.result(0)).elem() == Type::f32()
        && op.body.parent_op(op.op).is_some_and(|parent| op.body.op_ref(parent).is(op::core::FUSION))
}

/// One from f32 to 16 bits that only the element type asks for.
fn rounds(op: OpRef) -> bool {
    op.is(op::core::CONVERT)
        && op.operand_types()[0].elem() == Type::f32()
        && is_narrow(op.body.ty(op.result(0)))
        && !op.bool("exact")
}
