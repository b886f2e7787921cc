//! Comparison and choice.

use super::scalar::{self, Scalar};
use crate::builder::CoreBuilder;
use crate::constraints::{BOOL, Inferred, SCALAR_LIKE, infer_predicate, one};
use crate::derivative::{Derivative, Vjp, zeros_like};
use rc_ir::op_def::{AttrKind, Fold, FoldArgs, InferArgs, attr, operand, result};
use rc_ir::{Effects, OpDef, Result, Traits};

/// The words of `core.compare`'s `kind`.
pub const KINDS: &[&str] = &["eq", "ne", "lt", "le", "gt", "ge"];

pub static COMPARE: OpDef = OpDef {
    summary: "Elementwise comparison, giving i1.",
    doc: "Floats compare as in IEEE 754: with a NaN only `ne` holds; -0 equals +0. Signless integers compare as signed.",
    example: "func.func @compare(%x: tensor<7xf32>, %y: tensor<7xf32>) -> tensor<7xi1> {
  %z = core.compare %x, %y {kind = lt} : tensor<7xi1>
  func.return %z
}
",
    operands: &[operand("lhs", SCALAR_LIKE), operand("rhs", SCALAR_LIKE)],
    results: &[result("result", BOOL)],
    attrs: &[attr("kind", AttrKind::Enum(KINDS), "The relation that is tested.")],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer_predicate),
    fold: Some(fold_compare),
    interfaces: &[&Derivative::Zero],
    ..OpDef::new("rc.core.compare")
};

/// Of numbers, or of integers whose ranges say it.
fn fold_compare(args: &FoldArgs) -> Option<Fold> {
    super::fold::fold_elementwise(args).or_else(|| {
        let op = args.op;
        let known = super::value_range::decided(op.body, op.str("kind")?, [op.operand(0), op.operand(1)])?;
        scalar::splat_attr(op.result_types()[0], Scalar::Int(i128::from(known))).map(Fold::Attr)
    })
}

pub static SELECT: OpDef = OpDef {
    summary: "Elementwise choice: `on_true` where `cond`, else `on_false`.",
    doc: "The condition has the shape of the alternatives. An element that is not chosen has no effect, be it NaN.",
    example: "func.func @select(%c: tensor<7xi1>, %x: tensor<7xf32>, %y: tensor<7xf32>) -> tensor<7xf32> {
  %z = core.select %c, %x, %y : tensor<7xf32>
  func.return %z
}
",
    operands: &[operand("cond", BOOL), operand("on_true", SCALAR_LIKE), operand("on_false", SCALAR_LIKE)],
    results: &[result("result", SCALAR_LIKE)],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    infer: Some(infer_select),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[&Derivative::Vjp(select_vjp)],
    ..OpDef::new("rc.core.select")
};

fn select_vjp(v: &mut Vjp) -> Result {
    let (condition, g) = (v.operand(0), v.g());
    let zero = zeros_like(v, g);
    v.give_with(1, |v| v.select(condition, g, zero));
    v.give_with(2, |v| v.select(condition, zero, g));
    Ok(())
}

fn infer_select(args: &InferArgs) -> Inferred {
    let (cond, a, b) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    if a != b {
        return Err(format!("needs alternatives of one type, and has {a} and {b}"));
    }
    if cond != a.with_elem(cond.elem()) {
        return Err(format!("needs a condition of type {}, and has {cond}", a.with_elem(cond.elem())));
    }
    one(a)
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&COMPARE, &SELECT];
