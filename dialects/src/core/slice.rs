//! Parts of tensors and tensors of parts: slice, pad, concat.

use super::shape::fold_splat;
use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, SCALAR, SHAPED, dim_attr, one, reshaped, shape_attr};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrKind, InferArgs, attr, operand, result, variadic};
use rc_ir::{Builder, Dim, Effects, OpDef, Result, Type, Value};

pub static SLICE: OpDef = OpDef {
    summary: "A part of a tensor, with steps.",
    doc: "Element `i` of the result is element `starts + i * strides` of the operand; the result's shape is `sizes`. Starts \
          and sizes may be expressions over the symbols; strides are positive integers, 1 where the attribute is absent. \
          Every element lies inside of the operand.",
    example: "func.func @slice(%x: tensor<4x10xf32>) -> tensor<4x3xf32> {
  %y = core.slice %x {starts = [0, 2], sizes = [4, 3], strides = [1, 3]} : tensor<4x3xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("starts", AttrKind::Shape, "The first element along each dimension."),
        attr("sizes", AttrKind::Shape, "The shape of the result."),
        attr("strides", AttrKind::I64Array, "Steps between elements; absent: 1 everywhere.").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_slice),
    fold: Some(fold_splat),
    interfaces: &[&super::reindex::SLICE, &Derivative::Vjp(slice_vjp)],
    ..OpDef::new("rc.core.slice")
};

pub static PAD: OpDef = OpDef {
    summary: "Adds elements before and after, along each dimension.",
    doc: "The result has `low` elements equal to `value` before the operand's and `high` after. Neither is negative.",
    example: "func.func @pad(%x: tensor<3x5xf32>) -> tensor<4x8xf32> {
  %zero = core.constant {value = 0.0 : f32} : f32
  %y = core.pad %x, %zero {low = [1, 0], high = [0, 3]} : tensor<4x8xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED), operand("value", SCALAR)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("low", AttrKind::Shape, "Elements added before, for each dimension."),
        attr("high", AttrKind::Shape, "Elements added after, for each dimension."),
    ],
    effects: Effects::Pure,
    infer: Some(infer_pad),
    interfaces: &[&Derivative::Vjp(pad_vjp)],
    ..OpDef::new("rc.core.pad")
};

pub static CONCAT: OpDef = OpDef {
    summary: "Joins tensors along a dimension.",
    doc: "All other sizes are equal. At least one operand.",
    example: "func.func @concat(%x: tensor<3x2xf32>, %y: tensor<3x5xf32>) -> tensor<3x7xf32> {
  %z = core.concat %x, %y {dim = 1} : tensor<3x7xf32>
  func.return %z
}
",
    operands: &[variadic("xs", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension along which the operands follow one another.")],
    effects: Effects::Pure,
    infer: Some(infer_concat),
    interfaces: &[&Derivative::Vjp(concat_vjp)],
    ..OpDef::new("rc.core.concat")
};

/// Whether a dimension is an integer below zero.
fn negative(dim: Dim) -> bool {
    dim.as_static().is_some_and(|n| n < 0)
}

fn infer_slice(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let rank = x.rank();
    let (starts, sizes) = (shape_attr(args, "starts", rank)?, shape_attr(args, "sizes", rank)?);
    let strides = match args.attr("strides") {
        Some(_) => args.ints("strides")?,
        None => vec![1; rank],
    };
    if strides.len() != rank || strides.iter().any(|&s| s < 1) {
        return Err(format!("needs {rank} positive 'strides'"));
    }
    for (i, &size) in x.shape().iter().enumerate() {
        // One past the last element that is read, where any is.
        let end = starts[i] + (sizes[i] - 1.into()) * strides[i].into() + 1.into();
        let outside = sizes[i] != Dim::Static(0) && negative(size - end);
        if negative(starts[i]) || negative(sizes[i]) || outside {
            return Err(format!(
                "reads outside of dimension {i} of size {size}: start {}, size {}, stride {}",
                starts[i], sizes[i], strides[i]
            ));
        }
    }
    one(reshaped(x, &sizes)?)
}

fn infer_pad(args: &InferArgs) -> Inferred {
    let (x, value) = (args.operand(0)?, args.operand(1)?);
    if value != x.elem() {
        return Err(format!("needs a value of type {}, and has {value}", x.elem()));
    }
    let (low, high) = (shape_attr(args, "low", x.rank())?, shape_attr(args, "high", x.rank())?);
    if low.iter().chain(&high).any(|&d| negative(d)) {
        return Err("cannot remove elements; core.slice does".into());
    }
    let shape: Vec<Dim> = x.shape().iter().zip(low.iter().zip(&high)).map(|(&d, (&l, &h))| l + d + h).collect();
    one(reshaped(x, &shape)?)
}

fn infer_concat(args: &InferArgs) -> Inferred {
    joined(args.operands, dim_attr(args, "dim", args.operand(0)?.rank())?)
}

/// The type of tensors joined along `dim`, which is a dimension of the first.
pub fn joined(types: &[Type], dim: usize) -> Inferred {
    let (&first, rest) = types.split_first().ok_or("expects at least one operand")?;
    let mut shape = first.shape();
    for &ty in rest {
        let mut other = ty.shape();
        if other.len() != shape.len() || ty.elem() != first.elem() {
            return Err(format!("cannot join {ty} to {first}"));
        }
        let total = shape[dim] + std::mem::replace(&mut other[dim], shape[dim]);
        if other != shape {
            return Err(format!("cannot join {ty} to {first} along dimension {dim}: other sizes differ"));
        }
        shape[dim] = total;
    }
    one(first.with_shape(&shape))
}

/// Zeros around, and between for steps.
fn slice_vjp(v: &mut Vjp) -> Result {
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    let starts = v.at().attr("starts").and_then(|a| a.as_shape()).unwrap_or_default().to_vec();
    let strides = v.at().ints("strides").unwrap_or_else(|| vec![1; starts.len()]);
    if v.ty(g).num_elements() == Dim::Static(0) {
        let ty = v.ty(v.operand(0));
        v.give_with(0, |v| v.splat(0.0, ty));
        return Ok(());
    }
    v.give_with(0, |v| {
        let spread = (0..strides.len()).fold(g, |g, d| spread(v, g, d, strides[d]));
        let sizes = v.ty(spread).shape();
        let after: Vec<Dim> = (0..sizes.len()).map(|d| shape[d] - starts[d] - sizes[d]).collect();
        v.pad_or_crop(spread, 0.0, &starts, &after)
    });
    Ok(())
}

/// Elements `stride` apart along a dimension, of one or more, with zeros between them.
pub fn spread(b: &mut Builder, x: Value, dim: usize, stride: i64) -> Value {
    let shape = b.ty(x).shape();
    if stride == 1 || shape[dim] == Dim::Static(1) {
        return x;
    }
    let (zero, one, step) = (Dim::Static(0), Dim::Static(1), Dim::Static(stride));
    let apart = [&shape[..=dim], &[one], &shape[dim + 1..]].concat();
    let x = b.reshape(x, &apart);
    let mut after = vec![zero; apart.len()];
    after[dim + 1] = step - one;
    let padded = b.pad_or_crop(x, 0.0, &vec![zero; apart.len()], &after);
    let mut sizes = shape.to_vec();
    sizes[dim] = shape[dim] * step;
    let flat = b.reshape(padded, &sizes);
    sizes[dim] = sizes[dim] - step + one;
    b.slice(flat, &vec![zero; sizes.len()], &sizes)
}

fn pad_vjp(v: &mut Vjp) -> Result {
    if v.wants(1) {
        return Err(v.at().unsupported("the derivative of a padding value").help("pad with a constant"));
    }
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    let low = v.at().attr("low").and_then(|a| a.as_shape()).unwrap_or_default().to_vec();
    v.give_with(0, |v| v.slice(g, &low, &shape));
    Ok(())
}

fn concat_vjp(v: &mut Vjp) -> Result {
    let (g, dim) = (v.g(), v.at().int("dim").unwrap_or(0) as usize);
    let shapes: Vec<_> = v.at().operand_types().iter().map(|t| t.shape()).collect();
    let mut starts = vec![Dim::Static(0); shapes[0].len()];
    for (i, shape) in shapes.iter().enumerate() {
        v.give_with(i, |v| v.slice(g, &starts, shape));
        starts[dim] = starts[dim] + shape[dim];
    }
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&SLICE, &PAD, &CONCAT];
