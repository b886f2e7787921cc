//! `loop.attention_backward`: gradients of attention over its whole iteration space.

use crate::constraints::TENSOR;
use rc_ir::op_def::*;
use rc_ir::{OpRef, Result, Traits};

pub static ATTENTION_BACKWARD: OpDef = OpDef {
    summary: "Gradients of attention: of q with the keys as the loop, of k and v with the queries.",
    doc: "The operands are q [b, h, m, d], k [b, h, n, d], v [b, h, n, e], the result's gradient [b, h, m, e], the logarithms of the sums \
of exponentials [b, h, m], delta [b, h, m] (the sums of result times gradient) and perhaps what is added to the scores [b, h, m, n], each read \
through its index map over the iterators b, h, m, n, d, e. `of` names the gradients that are computed, `q`, `k` or `v`; each is a \
result [b, h, m, d], [b, h, n, d] or [b, h, n, e], through its map in `out_maps`. With p = exp(q kᵀ scale + bias - sums), 0 where `causal` hides a key (n > m) \
or the sums are minus infinity, and ds = p (grad vᵀ - delta): q's gradient is ds k scale, k's dsᵀ q scale, v's pᵀ grad. \
Products are accumulated in f32 (f64 for f64); p and ds are rounded to the operands' type before they are multiplied. Nothing of size m n is stored.",
    example: r#"
loop.kernel @keys(%q: tensor<2 x 6 x s x 8 x f32>, %k: tensor<2x6x5x8xf32>, %v: tensor<2x6x5x4xf32>, %grad: tensor<2 x 6 x s x 4 x f32>, %sums: tensor<2 x 6 x s x f32>, %delta: tensor<2 x 6 x s x f32>) -> (tensor<2x6x5x8xf32>, tensor<2x6x5x4xf32>) attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %dk, %dv = loop.attention_backward %q[b, h, m, d], %k[b, h, n, d], %v[b, h, n, e], %grad[b, h, m, e], %sums[b, h, m], %delta[b, h, m] {of = [k, v], iters = [b, h, m, n, d, e], extents = [2, 6, s, 5, 8, 4], out_maps = [[b, h, n, d], [b, h, n, e]], scale = 0.5} : tensor<2x6x5x8xf32>, tensor<2x6x5x4xf32>
  loop.return %dk, %dv
}
"#,
    operands: &[variadic("inputs", TENSOR)],
    results: &[variadic_result("gradients", TENSOR)],
    attrs: &[
        attr("of", AttrKind::StrArray, "Whose gradients: [q], [k, v], [k], [v] or, on a CPU, [q, k, v]."),
        attr("iters", AttrKind::StrArray, "b, h, m, n, d, e."),
        attr("extents", AttrKind::Shape, "Each iterator's extent."),
        attr("maps", AttrKind::ShapeArray, "Where each operand is read."),
        attr("out_maps", AttrKind::ShapeArray, "Where each result is written."),
        attr("scale", AttrKind::F64, "Factor of the scores."),
        attr("causal", AttrKind::Bool, "Whether later keys are masked.").default(AttrDefault::Bool(false)),
        attr("schedule", AttrKind::Dialect("schedule"), "How to run it.").optional(),
    ],
    traits: Traits::INDEXED,
    effects: Effects::Pure,
    verify: Some(verify),
    ..OpDef::new("rc.loop.attention_backward")
};

/// Whose gradients a `loop.attention_backward` computes.
pub fn gradients_of(op: OpRef) -> Vec<&'static str> {
    let words = op.attr("of").and_then(|a| a.as_array()).unwrap_or_default();
    words.iter().filter_map(|w| w.as_str()).collect()
}

fn verify(op: OpRef) -> Result {
    let n = op.operands().len();
    if n != 6 && n != 7 {
        return Err(op.error(format!("expects q, k, v, grad, sums, delta and at most a bias, got {n} operands")));
    }
    let of = gradients_of(op);
    if !matches!(of[..], ["q"] | ["k", "v"] | ["k"] | ["v"] | ["q", "k", "v"]) {
        return Err(op
            .error(format!("has the gradients {of:?} in 'of'"))
            .help("one of [q], [k, v], [k], [v], [q, k, v]"));
    }
    let outs = op.attr("out_maps").and_then(|a| a.as_array()).unwrap_or_default().len();
    if op.results().len() != of.len() || outs != of.len() {
        let results = op.results().len();
        return Err(op.error(format!("has {} gradients, {results} results and {outs} maps for them", of.len())));
    }
    Ok(())
}
