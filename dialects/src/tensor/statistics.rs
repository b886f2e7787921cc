//! Reductions made of several steps, and those that give numbers of places or truth: var, std, logsumexp, prod, any, all, argmax, argmin.

use super::compute_type;
use super::reduce::{ATTRS, dims_of, infer_reduction, log_sum_exp, reduce_kept, shaped_as_result};
use super::spatial::product;
use crate::builder::CoreBuilder;
use crate::constraints::{BOOL_TENSOR, FLOAT_TENSOR, INT_TENSOR, Inferred, NUMERIC_TENSOR, one};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, Result, Type, Value};

macro_rules! reductions {
    ($($id:ident $name:literal on $set:ident $elem:literal gives $out:ident $out_elem:literal $attrs:expr, infer $infer:expr, $define:expr, $summary:literal, $doc:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: $summary,
                doc: $doc,
                example: concat!(
                    "func.func @", $name, "(%x: tensor<3x5x", $elem, ">) -> tensor<3x1x", $out_elem, "> {\n",
                    "  %y = tensor.", $name, " %x {dims = [-1], keepdim = true} : tensor<3x1x", $out_elem, ">\n",
                    "  func.return %y\n}\n",
                ),
                operands: &[operand("x", $set)],
                results: &[result("result", $out)],
                attrs: $attrs,
                effects: Effects::Pure,
                infer: Some($infer),
                interfaces: &[&Decompose($define)],
                ..OpDef::new(concat!("rc.tensor.", $name))
            };
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id,)*];
    };
}

const CORRECTION: AttrDef =
    attr("correction", AttrKind::I64, "Taken from the number of elements that the squares' sum is divided by.")
        .default(AttrDefault::Int(1));
const WITH_CORRECTION: &[AttrDef] = &[ATTRS[0], ATTRS[1], CORRECTION];

reductions! {
    PROD "prod" on NUMERIC_TENSOR "f32" gives NUMERIC_TENSOR "f32" ATTRS, infer infer_reduction, |b, op| reduce_kept(b, op, "mul"),
        "The product along dimensions.", "Accumulated in f32 for narrower floats, rounded once.";
    VAR "var" on FLOAT_TENSOR "f32" gives FLOAT_TENSOR "f32" WITH_CORRECTION, infer infer_reduction, |b, op| define_var(b, op, false),
        "The variance along dimensions.",
        "The sum of squared distances from the mean over the number of elements less `correction`; infinite or NaN where that is not positive. \
         Computed in f32 for narrower floats, rounded once.";
    STD "std" on FLOAT_TENSOR "f32" gives FLOAT_TENSOR "f32" WITH_CORRECTION, infer infer_reduction, |b, op| define_var(b, op, true),
        "The standard deviation along dimensions.", "The square root of what tensor.var gives, rounded once.";
    LOGSUMEXP "logsumexp" on FLOAT_TENSOR "f32" gives FLOAT_TENSOR "f32" ATTRS, infer infer_reduction, define_logsumexp,
        "log(sum(exp(x))) along dimensions.",
        "Without overflow: the greatest element is taken out. Infinite where that is. Computed in f32 for narrower floats, rounded once.";
    ANY "any" on BOOL_TENSOR "i1" gives BOOL_TENSOR "i1" ATTRS, infer infer_reduction, |b, op| reduce_kept(b, op, "or"),
        "Whether some element along dimensions is true.", "False of no elements.";
    ALL "all" on BOOL_TENSOR "i1" gives BOOL_TENSOR "i1" ATTRS, infer infer_reduction, |b, op| reduce_kept(b, op, "and"),
        "Whether all elements along dimensions are true.", "True of no elements.";
    ARGMAX "argmax" on NUMERIC_TENSOR "f32" gives INT_TENSOR "i64" ATTRS, infer infer_arg, |b, op| define_arg(b, op, "argmax"),
        "The i64 number of the first greatest element along dimensions.",
        "NaN counts as the greatest. Of several dimensions, the number in their row-major order.";
    ARGMIN "argmin" on NUMERIC_TENSOR "f32" gives INT_TENSOR "i64" ATTRS, infer infer_arg, |b, op| define_arg(b, op, "argmin"),
        "The i64 number of the first least element along dimensions.",
        "NaN counts as the least. Of several dimensions, the number in their row-major order.";
}

fn infer_arg(args: &InferArgs) -> Inferred {
    one(infer_reduction(args)?[0].with_elem(Type::i64()))
}

/// The number of elements along `dims`.
pub fn count(shape: &[Dim], dims: &[i64]) -> Dim {
    dims.iter().fold(Dim::Static(1), |n, &d| n * shape[d as usize])
}

fn define_var(b: &mut Builder, op: Op, root: bool) -> Result<Vec<Value>> {
    let (x, dims) = (b.body.operand(op, 0), dims_of(b, op));
    let correction = b.body.op_ref(op).int("correction").unwrap_or(1);
    let elem = b.ty(x).elem();
    let wide = b.convert(x, compute_type(elem));
    let (shape, compute) = (b.ty(wide).shape().to_vec(), b.ty(wide).elem());
    let size = count(&shape, &dims);
    let sum = b.reduce("add", wide, &dims);
    let rows = b.ty(sum).shape().to_vec();
    let n = b.size(size, compute, &rows);
    let mean = b.binary("div", sum, n);
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|d| !dims.contains(d)).collect();
    let mean = b.broadcast(mean, &shape, &kept);
    let centered = b.binary("sub", wide, mean);
    let squares = b.binary("mul", centered, centered);
    let sum = b.reduce("add", squares, &dims);
    let n = b.size(size - Dim::Static(correction), compute, &rows);
    let least = b.splat(0.0, b.ty(n));
    let n = b.binary("max", n, least);
    let mut value = b.binary("div", sum, n);
    if root {
        value = b.unary("sqrt", value);
    }
    let value = b.convert(value, elem);
    Ok(vec![shaped_as_result(b, op, value)])
}

fn define_logsumexp(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (x, dims) = (b.body.operand(op, 0), dims_of(b, op));
    let elem = b.ty(x).elem();
    let wide = b.convert(x, compute_type(elem));
    let shape = b.ty(wide).shape().to_vec();
    let greatest = b.reduce("max", wide, &dims);
    // An infinite one would leave inf - inf: nothing is taken out then.
    let finite = b.unary("is_finite", greatest);
    let zero = b.splat(0.0, b.ty(greatest));
    let taken = b.select(finite, greatest, zero);
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|d| !dims.contains(d)).collect();
    let all = b.broadcast(taken, &shape, &kept);
    let rest = b.binary("sub", wide, all);
    let log = log_sum_exp(b, rest, &dims);
    let value = b.binary("add", log, taken);
    let value = b.convert(value, elem);
    Ok(vec![shaped_as_result(b, op, value)])
}

fn define_arg(b: &mut Builder, op: Op, kind: &str) -> Result<Vec<Value>> {
    let (x, dims) = (b.body.operand(op, 0), dims_of(b, op));
    let shape = b.ty(x).shape().to_vec();
    // The reduced dimensions last, as one.
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|d| !dims.contains(d)).collect();
    let moved = b.permute(x, &[kept.as_slice(), &dims].concat());
    let rows: Vec<Dim> = kept.iter().map(|&d| shape[d as usize]).collect();
    let reduced: Vec<Dim> = dims.iter().map(|&d| shape[d as usize]).collect();
    let flat = b.reshape(moved, &[rows.as_slice(), &[product(&reduced)]].concat());
    let reduce = b.op(op::core::REDUCE).operand(flat).attr("dims", Attr::i64s(&[rows.len() as i64]));
    let value = reduce.attr("kind", Attr::str(kind)).value();
    Ok(vec![shaped_as_result(b, op, value)])
}
