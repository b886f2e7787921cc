//! Windows that slide over dimensions: what convolutions and pooling read.

use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, SHAPED, dims_attr, one, reshaped};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrKind, InferArgs, attr, operand, result};
use rc_ir::rewrite::{Canonicalize, Rewriter};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Value};

pub static WINDOW: OpDef = OpDef {
    summary: "Every window of a tensor: windows slide along dimensions, and their elements are new last dimensions.",
    doc: "Along dimension `dims[i]` windows of `sizes[i]` elements, `dilations[i]` apart, start at each multiple of \
          `strides[i]`, as long as they lie inside. That dimension counts windows in the result, and the elements of \
          the windows are new dimensions at the end, in the order of `dims`. Element `[.., o, .., k]` of the result is element \
          `[.., o * stride + k * dilation, ..]` of the operand. A product of windows and weights over the new dimensions is a \
          convolution, a reduction over them a pooling; `core.pad` comes before.",
    example: "func.func @window(%x: tensor<2x9x7xf32>) -> tensor<2x4x5x3x2xf32> {
  %y = core.window %x {dims = [1, 2], sizes = [3, 2], strides = [2, 1], dilations = [1, 2]} : tensor<2x4x5x3x2xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The dimensions along which windows slide."),
        attr("sizes", AttrKind::I64Array, "The elements of a window along each."),
        attr("strides", AttrKind::I64Array, "Steps from window to window; absent: 1 everywhere.").optional(),
        attr("dilations", AttrKind::I64Array, "Steps from element to element; absent: 1 everywhere.").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_window),
    interfaces: &[
        &super::reindex::WINDOW,
        &Derivative::Vjp(window_vjp),
        &Canonicalize(&[("window-of-one", reshape_elements)]),
    ],
    ..OpDef::new("rc.core.window")
};

/// The positive integers of an attribute, one for each of `count` dimensions; ones where it is absent.
fn steps(args: &InferArgs, name: &str, count: usize) -> std::result::Result<Vec<i64>, String> {
    let steps = if args.attr(name).is_some() { args.ints(name)? } else { vec![1; count] };
    let good = steps.len() == count && steps.iter().all(|&s| s > 0);
    if good { Ok(steps) } else { Err(format!("needs {count} positive '{name}', and has {steps:?}")) }
}

fn infer_window(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims = dims_attr(args, "dims", x.rank())?;
    let sizes = steps(args, "sizes", dims.len())?;
    let (strides, dilations) = (steps(args, "strides", dims.len())?, steps(args, "dilations", dims.len())?);
    let mut shape = x.shape().to_vec();
    for (i, &d) in dims.iter().enumerate() {
        let span = dilations[i] * (sizes[i] - 1) + 1;
        let count = windows(shape[d], span, strides[i]);
        shape[d] = count.ok_or_else(|| {
            format!("has windows that span {span} elements of dimension {d}, whose size is {}", shape[d])
        })?;
    }
    shape.extend(sizes.into_iter().map(Dim::Static));
    one(reshaped(x, &shape)?)
}

/// How many windows of `span` elements lie inside of `size`; `None` where it is an integer and too small.
pub fn windows(size: Dim, span: i64, stride: i64) -> Option<Dim> {
    let room = size - Dim::Static(span);
    match room.as_static() {
        Some(n) if n < 0 => None,
        _ => Some(room.floordiv(Dim::Static(stride)) + Dim::Static(1)),
    }
}

/// Each element's sum over the windows that it is in, one dimension after the other, the last first.
fn window_vjp(v: &mut Vjp) -> Result {
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    let at = v.at();
    let dims = at.ints("dims").unwrap_or_default();
    let steps = |name: &str| at.ints(name).unwrap_or_else(|| vec![1; dims.len()]);
    let (strides, dilations) = (steps("strides"), steps("dilations"));
    v.give_with(0, |v| {
        (0..dims.len()).rev().fold(g, |g, i| {
            let dim = dims[i] as usize;
            fold_windows(v, g, dim, shape[dim], strides[i], dilations[i])
        })
    });
    Ok(())
}

/// Windows along `dim`, whose elements are the last dimension, added where they came from.
fn fold_windows(b: &mut Builder, g: Value, dim: usize, size: Dim, stride: i64, dilation: i64) -> Value {
    let shape = b.ty(g).shape().to_vec();
    let (last, outer) = (shape.len() - 1, &shape[..shape.len() - 1]);
    let taps = shape[last].as_static().expect("windows have fixed sizes");
    let (zero, one) = (Dim::Static(0), Dim::Static(1));
    let mut sum: Option<Value> = None;
    for tap in 0..taps {
        let (mut starts, mut sizes) = (vec![zero; last + 1], shape.clone());
        (starts[last], sizes[last]) = (Dim::Static(tap), one);
        let part = b.slice(g, &starts, &sizes);
        let part = b.reshape(part, outer);
        let part = super::slice::spread(b, part, dim, stride);
        let (mut low, mut high) = (vec![zero; last], vec![zero; last]);
        low[dim] = Dim::Static(tap * dilation);
        high[dim] = size - low[dim] - b.ty(part).shape()[dim];
        let placed = b.pad_or_crop(part, 0.0, &low, &high);
        sum = Some(sum.map_or(placed, |sum| b.binary("add", sum, placed)));
    }
    sum.expect("windows have elements")
}

/// Windows of one element at every place are a reshape.
fn reshape_elements(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let ones = |name: &str| at.ints(name).is_none_or(|n| n.iter().all(|&n| n == 1));
    if ones("sizes") && ones("strides") { super::shape::as_reshape(op, rw) } else { Ok(false) }
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&WINDOW];
