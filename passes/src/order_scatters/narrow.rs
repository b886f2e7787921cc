//! Sums of narrow floats that are formed in f32 and rounded once, as an embedding's gradients are: both orders accumulate those of a narrow scatter in f32 too, and
//! round them once, so that nobody stores wide updates or a wide table.

use rc_dialects::core::convert::CONVERT;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Builder, Op, Type, Value};

/// The narrow scatter that a wide one, which begins with zeros, was replaced by, if all its updates were narrow and all its uses are.
pub fn narrowed(body: &mut Body, scatter: Op) -> Option<Op> {
    let at = body.op_ref(scatter);
    let (updates, result) = (at.operand(2), at.result(0));
    let zero = constant_of(body, at.operand(0)).and_then(|x| x.as_splat()) == Some(0.0);
    let convert = |op: Op| body.name(op) == &CONVERT;
    let source = body.defining_op(updates).filter(|&op| convert(op)).map(|op| body.operand(op, 0))?;
    let elem = body.ty(source).elem();
    let narrow = (elem == Type::bf16() || elem == Type::f16()) && body.ty(result).elem() == Type::f32();
    let users: Vec<Op> = body.uses(result).map(|(user, _)| user).collect();
    let rounds = |&op: &Op| convert(op) && body.ty(body.result(op, 0)).elem() == elem;
    if !(zero && narrow && at.str("kind") == Some("add") && users.iter().all(rounds)) {
        return None;
    }
    let (indices, ty, attrs) = (at.operand(1), body.ty(result).with_elem(elem), body.attrs(scatter));
    let mut b = Builder::before(body, scatter);
    let x = b.op(op::core::CONSTANT).attr("value", Attr::splat(ty, 0.0)).value();
    let made = b.op(op::core::SCATTER).operands(&[x, indices, source]).attrs(attrs).build();
    let sums: Value = body.result(made, 0);
    users.into_iter().for_each(|user| body.replace_op(user, &[sums]));
    body.erase(scatter);
    Some(made)
}
