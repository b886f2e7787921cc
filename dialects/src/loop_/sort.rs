//! `loop.sort`: rows in order.

use crate::constraints::{INT_TENSOR, TENSOR};
use crate::core::sort::BELOW;
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result};

pub static SORT: OpDef = OpDef {
    summary: "The first elements of each row in order, and where each was.",
    doc: "As core.sort. The iterators are, in order, the rows and the elements of one.",
    example: r#"
loop.kernel @sort(%x: tensor<s x 7 x f32>) -> (tensor<s x 2 x f32>, tensor<s x 2 x i64>) attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %y, %at = loop.sort %x {descending = true, count = 2, iters = [o, j]} : tensor<s x 2 x f32>, tensor<s x 2 x i64>
  loop.return %y, %at
}
"#,
    operands: &[operand("x", TENSOR), optional("places", INT_TENSOR)],
    results: &[result("result", TENSOR), result("indices", INT_TENSOR)],
    attrs: &[
        attr("descending", AttrKind::Bool, "From the greatest to the least.").default(AttrDefault::Bool(false)),
        attr("count", AttrKind::I64, "How many; all without it.").optional(),
        BELOW,
        attr("iters", AttrKind::StrArray, "The iterators' names."),
        attr("schedule", AttrKind::Dialect("schedule"), "How to run it.").optional(),
    ],
    effects: Effects::Pure,
    verify: Some(verify_sort),
    ..OpDef::new("rc.loop.sort")
};

fn verify_sort(op: OpRef) -> Result {
    let (x, results) = (op.body.ty(op.operand(0)), op.result_types());
    let mut shape = x.shape();
    match (shape.last_mut(), op.int("count")) {
        (None, _) => return Err(op.error("expects a dimension to sort along")),
        (Some(last), Some(count)) => *last = rc_ir::Dim::Static(count),
        (Some(_), None) => {}
    }
    let places = op.operands().nth(1).is_none_or(|places| op.body.ty(places).shape() == x.shape());
    if !places || results[0] != x.with_shape(&shape) || results[1].shape() != shape {
        return Err(op.error(format!("sorts {x}, giving {} and {}", results[0], results[1])));
    }
    match op.attr("iters").and_then(|a| a.as_array()).is_some_and(|names| names.len() == 2) {
        true => Ok(()),
        false => Err(op.error("expects two names in 'iters'")),
    }
}
