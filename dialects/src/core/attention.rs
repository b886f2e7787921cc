//! Scaled dot-product attention as one op, so that its online form is a choice of the schedule.

use crate::constraints::{FLOAT_TENSOR, Inferred, MASK_OR_COUNTS, default_acc};
use crate::derivative::Derivative;
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, variadic, variadic_result};
use rc_ir::rewrite::Canonicalize;
use rc_ir::{Dim, Effects, OpDef, Type};

pub static ATTENTION: OpDef = OpDef {
    summary: "softmax(q · kᵀ · scale + mask) · v.",
    doc: "q is [b…, s, d], k is [b…, t, d], v is [b…, t, e], the result [b…, s, e], for any number of batch dimensions b (batch \
          and heads), with the element type of q. Products are added and the softmax is computed in f32 (f64 for f64); the \
          probabilities may be rounded to v's element type before the second product; the result is rounded once. \
          The online form (running maximum and sum) is allowed. \
          `scale` is 1/sqrt(d) where absent. `causal`: query i sees key j where j <= i, as in PyTorch. A mask has the \
          rank of q and dimensions of [b…, s, t] or 1: one of floats is added to the scaled scores, one of i1 hides a key where it is false. \
          Behind a mask of i1 may stand, for each element of the first dimension or for all, a number of keys past which the mask shows none: they need not be read. \
          A query that sees no key (every score -inf) gives 0. \
          Where q has more heads (dimension -3) than k and v, by a whole factor, so many heads of q one after the other share a head of these. \
          With `sums` a second result [b…, s] has the logarithm of each query's sum of exponentials of the scaled and masked scores, in f32 \
          (f64 for f64), -inf for a query that sees no key: what a backward pass starts from.",
    example: "func.func @attention(%q: tensor<1x2x7x4xf32>, %k: tensor<1x2x7x4xf32>, %v: tensor<1x2x7x4xf32>) -> tensor<1x2x7x4xf32> {
  %y = core.attention %q, %k, %v {causal = true, scale = 0.5} : tensor<1x2x7x4xf32>
  func.return %y
}
",
    operands: &[operand("q", FLOAT_TENSOR), operand("k", FLOAT_TENSOR), operand("v", FLOAT_TENSOR), variadic("mask", MASK_OR_COUNTS).named()],
    results: &[variadic_result("results", FLOAT_TENSOR)],
    attrs: &[
        attr("causal", AttrKind::Bool, "Hides keys after the query.").default(AttrDefault::Bool(false)),
        attr("sums", AttrKind::Bool, "Whether the logarithms of the sums are a second result.").default(AttrDefault::Bool(false)),
        attr("scale", AttrKind::F64, "Multiplies the scores; absent: 1/sqrt(d).").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_attention),
    interfaces: &[
        &Derivative::Vjp(super::attention_derivative::attention_vjp),
        &super::attention_derivative::SUMS,
        &Canonicalize(&[("attention-of-one-batch", super::attention_batch::join_batches)]),
    ],
    ..OpDef::new("rc.core.attention")
};

/// The result type of attention, for `core.attention` and `tensor.sdpa`.
pub fn infer_attention(args: &InferArgs) -> Inferred {
    let (q, k, v) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let rank = q.rank();
    if rank < 2 || k.rank() != rank || v.rank() != rank {
        return Err(format!("needs q, k and v of one rank, at least 2, and has {q}, {k} and {v}"));
    }
    if q.elem() != k.elem() || q.elem() != v.elem() {
        return Err(format!(
            "needs q, k and v of one element type, and has {}, {} and {}",
            q.elem(),
            k.elem(),
            v.elem()
        ));
    }
    let (qs, mut ks, mut vs) = (q.shape(), k.shape(), v.shape());
    let group = shared_heads(q, k)?;
    for shape in [&mut ks, &mut vs].into_iter().filter(|_| group > 1) {
        shape[rank - 3] = shape[rank - 3] * Dim::Static(group);
    }
    if qs[..rank - 2] != ks[..rank - 2] || ks[..rank - 1] != vs[..rank - 1] || qs[rank - 1] != ks[rank - 1] {
        return Err(format!("has sizes that do not match: q {q}, k {k}, v {v}"));
    }
    if let Some(&mask) = args.operands.get(3) {
        let mut scores = qs.clone();
        scores[rank - 1] = ks[rank - 2];
        check_mask(mask, &scores)?;
        check_counts(&args.operands[3..], scores[0])?;
    }
    let mut shape = qs;
    shape[rank - 1] = vs[rank - 1];
    let mut types = smallvec::smallvec![q.with_shape(&shape)];
    if args.attr("sums").and_then(|a| a.as_bool()) == Some(true) {
        types.push(Type::tensor(&shape[..rank - 1], default_acc(q.elem())));
    }
    Ok(types)
}

/// How many heads (dimension -3) of q share one of k: 1 where they have as many.
pub fn shared_heads(q: Type, k: Type) -> std::result::Result<i64, String> {
    let heads = |t: Type| t.rank().checked_sub(3).and_then(|d| t.shape()[d].as_static());
    match (heads(q), heads(k)) {
        (Some(q), Some(k)) if k > 0 && q > k && q % k == 0 => Ok(q / k),
        (Some(q), Some(k)) if q != k => Err(format!("has {q} heads in q, no multiple of the {k} in k")),
        _ => Ok(1),
    }
}

pub(super) fn check_mask(mask: Type, scores: &[Dim]) -> std::result::Result<(), String> {
    let fits = |(&m, &s): (&Dim, &Dim)| m == s || m == Dim::Static(1);
    if mask.rank() == scores.len() && mask.shape().iter().zip(scores).all(fits) {
        return Ok(());
    }
    Err(format!("needs a mask of dimensions {} or 1, and has {mask}", crate::constraints::shape_text(scores)))
}

/// A mask, and perhaps the numbers of keys past which it shows none.
fn check_counts(masks: &[Type], batch: Dim) -> std::result::Result<(), String> {
    match *masks {
        [mask] if mask.elem() == Type::i1() || mask.elem().is_float() => Ok(()),
        [mask, counts] if mask.elem() == Type::i1() && counts.elem().is_int() && counts.elem() != Type::i1() => {
            match counts.shape().as_slice() {
                [n] if *n == batch || *n == Dim::Static(1) => Ok(()),
                _ => Err(format!("needs a number of keys for each of {batch} or for all, and has {counts}")),
            }
        }
        _ => Err("needs a mask of i1 or floats, and behind one of i1 at most one tensor of integers".into()),
    }
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&ATTENTION];
