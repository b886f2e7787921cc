//! Folding shared by the elementwise ops: constants of constants. What returns an operand is a rule of `canonicalize`.

use super::scalar::{self, Scalar};
use crate::op;
use rc_ir::op_def::{Fold, FoldArgs, constant_of};
use rc_ir::{Body, OpName, Value};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// The element that `value` is everywhere, seen through broadcasts and reshapes of constants.
pub fn uniform(body: &Body, mut value: Value) -> Option<Scalar> {
    static TRANSPARENT: LazyLock<[OpName; 3]> =
        LazyLock::new(|| [op::core::BROADCAST, op::core::RESHAPE, op::core::TRANSPOSE].map(OpName::new));
    loop {
        let op = body.defining_op(value)?;
        if !TRANSPARENT.contains(&body.name(op)) {
            return scalar::splat_of(constant_of(body, value)?);
        }
        value = body.operand(op, 0);
    }
}

/// A constant, where all operands are the same number everywhere.
pub fn fold_elementwise(args: &FoldArgs) -> Option<Fold> {
    let op = args.op;
    let all: SmallVec<[Scalar; 3]> = op.operands().map(|v| uniform(op.body, v)).collect::<Option<_>>()?;
    let result = op.body.ty(op.result(0));
    let operand = op.body.ty(op.operands().next_back()?).elem();
    let value = scalar::eval(op.def()?, op.body.attrs(op.op), operand, result.elem(), &all)?;
    scalar::splat_attr(result, value).map(Fold::Attr)
}
