//! Changes of the element type.

use crate::builder::CoreBuilder;
use crate::constraints::{SCALAR_LIKE, fail};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrKind, attr, operand, result};
use rc_ir::{Effects, OpDef, OpRef, Result, Traits};

pub static CONVERT: OpDef = OpDef {
    summary: "Elementwise conversion to the element type of the result.",
    doc: "Float to float and integer to float: to nearest, ties to even; what is too large is infinite, of \
          f8E4M3FN, which has no infinity, the largest number, as GPUs and PyTorch have it. Float to integer: truncates toward zero, what is \
          out of range saturates, NaN gives 0. Integer to integer: truncates, or extends by zeros (i1 and unsigned types) \
          or by the sign. To i1: whether the element is not zero (of NaN, true). From i1: 0 or 1. In a module with \
          `rc.excess_precision` a kernel may keep a float's precision where it converts it to 16 bits and back to f32, unless \
          the first of them is `exact`.",
    example: "func.func @convert(%x: tensor<7xf32>) -> tensor<7xbf16> {
  %y = core.convert %x : tensor<7xbf16>
  func.return %y
}
",
    operands: &[operand("x", SCALAR_LIKE)],
    results: &[result("result", SCALAR_LIKE)],
    attrs: &[attr(
        "exact",
        AttrKind::Bool,
        "Whether the rounding is wanted, and not only what an element type asks for.",
    )
    .optional()],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    verify: Some(verify_same_shape),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[&Derivative::Vjp(convert_vjp)],
    ..OpDef::new("rc.core.convert")
};

pub static BITCAST: OpDef = OpDef {
    summary: "Elementwise reinterpretation of the bits as the element type of the result.",
    doc: "Both element types have the same number of bits.",
    example: "func.func @bitcast(%x: tensor<7xf32>) -> tensor<7xi32> {
  %y = core.bitcast %x : tensor<7xi32>
  func.return %y
}
",
    operands: &[operand("x", SCALAR_LIKE)],
    results: &[result("result", SCALAR_LIKE)],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    verify: Some(verify_bitcast),
    fold: Some(super::fold::fold_elementwise),
    interfaces: &[&Derivative::Missing("the bits of a number do not follow it smoothly")],
    ..OpDef::new("rc.core.bitcast")
};

/// Of floats; integers have none.
fn convert_vjp(v: &mut Vjp) -> Result {
    let (g, elem) = (v.g(), v.ty(v.operand(0)).elem());
    v.give_with(0, |v| v.convert(g, elem));
    Ok(())
}

fn verify_same_shape(op: OpRef) -> Result {
    let (from, to) = (op.body.ty(op.operand(0)), op.body.ty(op.result(0)));
    let expected = from.with_elem(to.elem());
    fail(op, if expected == to { Ok(()) } else { Err(format!("converts {from} to {expected}, not to {to}")) })
}

fn verify_bitcast(op: OpRef) -> Result {
    verify_same_shape(op)?;
    let (from, to) = (op.body.ty(op.operand(0)).elem(), op.body.ty(op.result(0)).elem());
    let same = from.bit_width() == to.bit_width();
    fail(op, if same { Ok(()) } else { Err(format!("needs elements of one width, and has {from} and {to}")) })
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&CONVERT, &BITCAST];
