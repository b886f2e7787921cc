//! Activation functions.

use super::compute_type;
use crate::builder::CoreBuilder;
use crate::constraints::FLOAT_TENSOR;
use crate::derivative::{Derivative, Vjp, zeros_like};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDefault, AttrKind, OperandDef, ResultDef, attr, infer_same, operand, result};
use rc_ir::{Builder, Effects, Op, OpDef, Result, Value};

pub static RELU: OpDef = OpDef {
    summary: "max(x, 0), NaN of NaN.",
    doc: "Its slope at 0 is 0.",
    example: "func.func @relu(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.relu %x : tensor<3x5xf32>
  func.return %y
}
",
    interfaces: &[
        &Decompose(|b, op| {
            let x = b.body.operand(op, 0);
            Ok(vec![b.binary_scalar("max", x, 0.0)])
        }),
        &Derivative::Vjp(relu_vjp),
    ],
    ..activation(op::tensor::RELU)
};

pub static GELU: OpDef = OpDef {
    summary: "x Φ(x), with the normal distribution's Φ by erf or by tanh.",
    doc: "`none`: x (1 + erf(x / √2)) / 2. `tanh`: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (Hendrycks and Gimpel, 2016). \
          Computed in f32 for narrower types.",
    example: "func.func @gelu(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.gelu %x {approximate = tanh} : tensor<3x5xf32>
  func.return %y
}
",
    attrs: &[
        attr("approximate", AttrKind::Enum(&["none", "tanh"]), "How Φ is computed.").default(AttrDefault::Str("none"))
    ],
    interfaces: &[&Decompose(define_gelu)],
    ..activation(op::tensor::GELU)
};

pub static SILU: OpDef = OpDef {
    summary: "x / (1 + exp(-x)).",
    doc: "Computed in f32 for narrower types.",
    example: "func.func @silu(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.silu %x : tensor<3x5xf32>
  func.return %y
}
",
    interfaces: &[&Decompose(|b, op| {
        in_compute_type(b, op, |b, x| {
            let s = b.unary("logistic", x);
            b.binary("mul", x, s)
        })
    })],
    ..activation(op::tensor::SILU)
};

const X: &[OperandDef] = &[operand("x", FLOAT_TENSOR)];
const RESULT: &[ResultDef] = &[result("result", FLOAT_TENSOR)];

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&RELU, &GELU, &SILU];

const fn activation(name: &'static str) -> OpDef {
    OpDef { operands: X, results: RESULT, effects: Effects::Pure, infer: Some(infer_same), ..OpDef::new(name) }
}

/// By the result, which may be kept anyway. NaN passes the gradient on.
fn relu_vjp(v: &mut Vjp) -> Result {
    let (g, y) = (v.g(), v.result(0));
    v.give_with(0, |v| {
        let zero = zeros_like(v, y);
        let flat = v.compare("le", y, zero);
        v.select(flat, zero, g)
    });
    Ok(())
}

/// Computes a function of operand 0 in the type for it, and rounds to the operand's.
fn in_compute_type(b: &mut Builder, op: Op, f: impl FnOnce(&mut Builder, Value) -> Value) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let elem = b.ty(x).elem();
    let wide = b.convert(x, compute_type(elem));
    let y = f(b, wide);
    Ok(vec![b.convert(y, elem)])
}

fn define_gelu(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    if b.body.op_ref(op).str("approximate") == Some("tanh") {
        // x/2 (1 + tanh(u)) is x logistic(2u), which does not cancel where tanh(u) is near -1.
        return in_compute_type(b, op, |b, x| {
            let square = b.binary("mul", x, x);
            let scale = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
            let scaled = b.binary_scalar("mul", square, 0.044715 * scale);
            let factor = b.binary_scalar("add", scaled, scale);
            let argument = b.binary("mul", x, factor);
            let gate = b.unary("logistic", argument);
            b.binary("mul", x, gate)
        });
    }
    in_compute_type(b, op, |b, x| {
        let argument = b.binary_scalar("mul", x, std::f64::consts::FRAC_1_SQRT_2);
        let inner = b.unary("erf", argument);
        let one_plus = b.binary_scalar("add", inner, 1.0);
        let half = b.binary_scalar("mul", x, 0.5);
        b.binary("mul", half, one_plus)
    })
}
