//! Folding shared by the elementwise and shape ops.

use super::scalar::{self, Scalar};
use rc_ir::op_def::{Fold, FoldArgs, constant_of};
use rc_ir::{Body, Value};

/// The element that `value` is everywhere, seen through broadcasts and reshapes of constants.
pub fn uniform(body: &Body, value: Value) -> Option<Scalar> {
    if let Some(constant) = constant_of(body, value) {
        return scalar::splat_of(constant);
    }
    let op = body.defining_op(value)?;
    let transparent = ["rc.core.broadcast", "rc.core.reshape", "rc.core.transpose"];
    if transparent.contains(&body.name(op).as_str()) { uniform(body, body.operand(op, 0)) } else { None }
}

/// Constants where all operands are the same number everywhere, and identities that hold exactly.
pub fn fold_elementwise(args: &FoldArgs) -> Option<Fold> {
    let op = args.op;
    let uniforms: Vec<Option<Scalar>> = op.operands().map(|v| uniform(op.body, v)).collect();
    if let Some(all) = uniforms.iter().copied().collect::<Option<Vec<Scalar>>>() {
        let result = op.body.ty(op.result(0));
        let operand = op.body.ty(op.operands().next_back()?).elem();
        let value = scalar::eval(op.def()?, op.body.attrs(op.op), operand, result.elem(), &all);
        if let Some(folded) = value.and_then(|v| scalar::splat_attr(result, v)) {
            return Some(Fold::Attr(folded));
        }
    }
    identity(args, &uniforms).map(Fold::Value)
}

/// An operand that the op returns unchanged, whatever the other elements are (signed zeros and NaN included).
fn identity(args: &FoldArgs, uniforms: &[Option<Scalar>]) -> Option<Value> {
    let op = args.op;
    let name = op.name().as_str();
    if let ("rc.core.neg" | "rc.core.not", Some(inner)) = (name, op.body.defining_op(op.operand(0))) {
        return (op.body.name(inner) == name).then(|| op.body.operand(inner, 0));
    }
    let &[left, right] = uniforms else { return None };
    let (a, b) = (op.operand(0), op.operand(1));
    if a == b && matches!(name, "rc.core.max" | "rc.core.min" | "rc.core.and" | "rc.core.or") {
        return Some(a);
    }
    if right.is_some_and(|r| is_right_identity(name, r, op.body.ty(b).elem())) {
        return Some(a);
    }
    let commutes = op.has(rc_ir::Traits::COMMUTATIVE);
    (commutes && left.is_some_and(|l| is_right_identity(name, l, op.body.ty(a).elem()))).then_some(b)
}

/// Whether `x op r` is `x` for every x.
fn is_right_identity(name: &str, r: Scalar, elem: rc_ir::Type) -> bool {
    match (name, r) {
        // x + 0.0 is not x for x = -0.0, and x - (-0.0) neither.
        ("rc.core.add", Scalar::Float(x)) => x == 0.0 && x.is_sign_negative(),
        ("rc.core.sub", Scalar::Float(x)) => x == 0.0 && x.is_sign_positive(),
        ("rc.core.mul" | "rc.core.div" | "rc.core.pow", Scalar::Float(x)) => x == 1.0,
        ("rc.core.mul" | "rc.core.div", Scalar::Int(n)) => n == 1,
        (
            "rc.core.add" | "rc.core.sub" | "rc.core.or" | "rc.core.xor" | "rc.core.shl" | "rc.core.shr",
            Scalar::Int(n),
        ) => n == 0,
        ("rc.core.and", Scalar::Int(n)) => n == if elem == rc_ir::Type::i1() { 1 } else { -1 },
        _ => false,
    }
}
