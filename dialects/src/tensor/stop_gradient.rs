//! What derivatives end at.

use crate::constraints::TENSOR;
use crate::derivative::Derivative;
use crate::interfaces::Decompose;
use rc_ir::op_def::{infer_same, operand, result};
use rc_ir::{Effects, OpDef};

pub static STOP_GRADIENT: OpDef = OpDef {
    summary: "Its operand, with the derivative 0.",
    doc: "As PyTorch's `detach` and JAX's `stop_gradient`. It computes nothing.",
    example: "func.func @stop_gradient(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.stop_gradient %x : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    effects: Effects::Pure,
    infer: Some(infer_same),
    interfaces: &[&Decompose(|b, op| Ok(vec![b.body.operand(op, 0)])), &Derivative::Zero],
    ..OpDef::new("rc.tensor.stop_gradient")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&STOP_GRADIENT];
