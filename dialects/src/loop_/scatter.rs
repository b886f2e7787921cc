//! `loop.scatter`: updates of slices that an array of indices names.

use crate::constraints::{INT_TENSOR, TENSOR};
use crate::core::gather::SCATTER_KINDS;
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result};

pub static SCATTER: OpDef = OpDef {
    summary: "A tensor with slices updated where an array of indices says.",
    doc: "As core.scatter, one update after the other in the indices' order, in the element type of the result: x and the updates are \
converted to it, and for sums of narrow floats it is f32, which a nest rounds afterwards. With `order` and `starts` a GPU's program \
takes the updates of its own places alone. The iterators are, in order, \
the slices before the axis, the places along it, and the elements of a slice after it.",
    example: r#"
loop.kernel @scatter(%x: tensor<10x4xf32>, %ids: tensor<s x i64>, %u: tensor<s x 4 x f32>) -> tensor<10x4xf32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.scatter %x, %ids, %u {axis = 0, kind = add, iters = [o, a, l]} : tensor<10x4xf32>
  loop.return %r
}
"#,
    operands: &[
        operand("x", TENSOR),
        operand("indices", INT_TENSOR),
        operand("updates", TENSOR),
        optional("order", INT_TENSOR),
        optional("starts", INT_TENSOR),
    ],
    results: &[result("result", TENSOR)],
    attrs: &[
        attr("axis", AttrKind::I64, "The dimension of `x` that the indices are positions in."),
        attr("kind", AttrKind::Enum(SCATTER_KINDS), "How an update and the element that is there combine."),
        attr("batch", AttrKind::I64, "How many first dimensions x and indices have in common.")
            .default(AttrDefault::Int(0)),
        attr("any_order", AttrKind::Bool, "Updates of a place need not follow their order, which spares sorting them: for exact combinations, or where results may differ from run to run.")
            .default(AttrDefault::Bool(false)),
        attr("iters", AttrKind::StrArray, "The iterators' names."),
        attr("schedule", AttrKind::Dialect("schedule"), "How to run it.").optional(),
    ],
    effects: Effects::Pure,
    verify: Some(verify_scatter),
    ..OpDef::new("rc.loop.scatter")
};

fn verify_scatter(op: OpRef) -> Result {
    let ty = |i: usize| op.body.ty(op.operand(i));
    let (x, indices, updates, out) = (ty(0), ty(1), ty(2), op.result_types()[0]);
    let (axis, batch) = (op.int("axis").unwrap_or(-1), op.int("batch").unwrap_or(0));
    let places = usize::try_from(axis).ok().filter(|&a| a < x.rank());
    let batch = usize::try_from(batch).ok().filter(|&b| b <= indices.rank() && places.is_some_and(|a| b <= a));
    let (Some(axis), Some(batch)) = (places, batch) else {
        return Err(op.error(format!("has no axis {axis} in {x}, or more batch dimensions than it has before that")));
    };
    let mut shape = x.shape();
    shape.remove(axis);
    shape.insert_many(axis, indices.shape()[batch..].iter().copied());
    if updates.shape() != shape || out.shape() != x.shape() {
        return Err(op.error(format!("scatters {updates} to {x} by {indices}, giving {out}")));
    }
    match op.attr("iters").and_then(|a| a.as_array()).is_some_and(|names| names.len() == 3) {
        true => Ok(()),
        false => Err(op.error("expects three names in 'iters'")),
    }
}
