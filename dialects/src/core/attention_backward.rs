//! The derivative of attention as one op, so that scores and probabilities need not be stored for it.

use super::attention::check_mask;
use crate::constraints::{FLOAT_TENSOR, Inferred, MASK_TENSOR, default_acc};
use crate::derivative::Derivative;
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::rewrite::Canonicalize;
use rc_ir::{Dim, Effects, OpDef, Type};

pub static ATTENTION_BACKWARD: OpDef = OpDef {
    summary: "The gradients of attention's q, k and v.",
    doc: "Of y = core.attention(q, k, v, mask): `grad` is the gradient of y, [b…, s, e]. `sums`, [b…, s], are the logarithms of each query's \
          sum of exponentials, log Σ_j exp(scores_ij), -inf for a query that sees no key. `delta`, [b…, s], is the sum of grad · y over e. \
          Both are of the accumulation type (f32; f64 for f64). With scores = q · kᵀ · scale + mask, p = exp(scores - sums) and \
          ds = p · (grad · vᵀ - delta), the results are the gradients of q: ds · k · scale, of k: dsᵀ · q · scale, and of v: pᵀ · grad. \
          Products are added in the accumulation type; p and ds may be rounded to the operands' type before they are \
          multiplied; the results are rounded once. `causal`, `scale` and the mask are as in core.attention. What is hidden has p = 0, \
          and so has every key for a query whose sums, as exponents of two, are -inf: also one all of whose keys a bias of the lowest number hides, \
          next to which the sum is lost. Nothing of size [s, t] has to be stored. The method is \
          FlashAttention's (Dao et al., 2022).",
    example: "func.func @gradients(%q: tensor<2x7x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x3xf32>, %grad: tensor<2x7x3xf32>, %sums: tensor<2x7xf32>, %delta: tensor<2x7xf32>) -> (tensor<2x7x4xf32>, tensor<2x5x4xf32>, tensor<2x5x3xf32>) {
  %dq, %dk, %dv = core.attention_backward %q, %k, %v, %grad, %sums, %delta {scale = 0.5} : tensor<2x7x4xf32>, tensor<2x5x4xf32>, tensor<2x5x3xf32>
  func.return %dq, %dk, %dv
}
",
    operands: &[
        operand("q", FLOAT_TENSOR),
        operand("k", FLOAT_TENSOR),
        operand("v", FLOAT_TENSOR),
        operand("grad", FLOAT_TENSOR),
        operand("sums", FLOAT_TENSOR),
        operand("delta", FLOAT_TENSOR),
        optional("mask", MASK_TENSOR),
    ],
    results: &[result("dq", FLOAT_TENSOR), result("dk", FLOAT_TENSOR), result("dv", FLOAT_TENSOR)],
    attrs: &[
        attr("causal", AttrKind::Bool, "Hides keys after the query.").default(AttrDefault::Bool(false)),
        attr("scale", AttrKind::F64, "Multiplies the scores; absent: 1/sqrt(d).").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer),
    interfaces: &[
        &Derivative::Definition(super::attention_scores::define_backward),
        &Canonicalize(&[("gradients-of-one-batch", super::attention_batch::join_batches)]),
    ],
    ..OpDef::new("rc.core.attention_backward")
};

/// Up to where sums of type `ty` have no exponent of two: their queries have no probabilities.
pub fn lowest_sum(ty: Type) -> f64 {
    let most = if ty.elem() == Type::f64() { f64::MAX } else { f64::from(f32::MAX) };
    -most / std::f64::consts::LOG2_E
}

fn infer(args: &InferArgs) -> Inferred {
    let operands: Vec<Type> = (0..6).map(|i| args.operand(i)).collect::<Result<_, _>>()?;
    let [q, k, v, grad, sums, delta] = operands[..] else { unreachable!("six operands") };
    let rank = q.rank();
    if rank < 2 || [k, v, grad].iter().any(|t| t.rank() != rank) {
        return Err(format!("needs q, k, v and grad of one rank, at least 2, and has {q}, {k}, {v} and {grad}"));
    }
    if [k, v, grad].iter().any(|t| t.elem() != q.elem()) {
        return Err(format!("needs q, k, v and grad of one element type, and has {q}, {k}, {v} and {grad}"));
    }
    let (qs, ks, vs, gs) = (q.shape(), k.shape(), v.shape(), grad.shape());
    let agree = qs[..rank - 2] == ks[..rank - 2]
        && ks[..rank - 1] == vs[..rank - 1]
        && qs[rank - 1] == ks[rank - 1]
        && qs[..rank - 1] == gs[..rank - 1]
        && vs[rank - 1] == gs[rank - 1];
    if !agree {
        return Err(format!("has sizes that do not match: q {q}, k {k}, v {v}, grad {grad}"));
    }
    let rows = Type::tensor(&qs[..rank - 1], default_acc(q.elem()));
    if sums != rows || delta != rows {
        return Err(format!("needs sums and delta of type {rows}, and has {sums} and {delta}"));
    }
    if let Some(&mask) = args.operands.get(6) {
        let mut scores: Vec<Dim> = qs.to_vec();
        scores[rank - 1] = ks[rank - 2];
        check_mask(mask, &scores)?;
    }
    Ok(smallvec::smallvec![q, k, v])
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&ATTENTION_BACKWARD];
