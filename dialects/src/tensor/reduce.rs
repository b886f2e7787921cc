//! Reductions with PyTorch's `dim` and `keepdim`, and cross entropy.

use super::compute_type;
use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, INT_TENSOR, Inferred, NUMERIC_TENSOR, one};
use crate::derivative::{Derivative, Vjp, where_or_zero};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, Result, Type, Value};

pub const ATTRS: &[AttrDef] = &[
    attr("dims", AttrKind::I64Array, "The dimensions that are reduced, negative ones from the end; absent: all.")
        .optional(),
    attr("keepdim", AttrKind::Bool, "Whether reduced dimensions stay, with size 1.").default(AttrDefault::Bool(false)),
];

macro_rules! reduction {
    ($($id:ident $name:literal on $set:ident $define:expr, $summary:literal, $doc:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: $summary,
                doc: $doc,
                example: concat!(
                    "func.func @", $name, "(%x: tensor<3x5xf32>) -> tensor<3x1xf32> {\n",
                    "  %y = tensor.", $name, " %x {dims = [-1], keepdim = true} : tensor<3x1xf32>\n",
                    "  func.return %y\n}\n",
                ),
                operands: &[operand("x", $set)],
                results: &[result("result", $set)],
                attrs: ATTRS,
                effects: Effects::Pure,
                infer: Some(infer_reduction),
                interfaces: &[&Decompose($define)],
                ..OpDef::new(concat!("rc.tensor.", $name))
            };
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id,)* &CROSS_ENTROPY];
    };
}

reduction! {
    SUM "sum" on NUMERIC_TENSOR |b, op| reduce_kept(b, op, "add"),
        "The sum along dimensions.", "Accumulated in f32 for narrower floats, rounded once.";
    MEAN "mean" on FLOAT_TENSOR define_mean,
        "The mean along dimensions.", "Accumulated and divided in f32 for narrower floats, rounded once. NaN of no elements.";
    AMAX "amax" on NUMERIC_TENSOR |b, op| reduce_kept(b, op, "max"),
        "The maximum along dimensions.", "NaN where an element is NaN.";
    AMIN "amin" on NUMERIC_TENSOR |b, op| reduce_kept(b, op, "min"),
        "The minimum along dimensions.", "NaN where an element is NaN.";
}

pub static CROSS_ENTROPY: OpDef = OpDef {
    summary: "The mean over rows of -log softmax(logits) at the target.",
    doc: "logits [n, classes], target [n] of class numbers; the result is of rank 0, with the element type of the logits. Rows whose \
          target is `ignore_index` do not count; where none counts, the result is NaN. Any other target outside of \
          [0, classes) gives a loss of 0 for its row, which counts. Computed in f32 for narrower types, rounded once.",
    example: "func.func @cross_entropy(%logits: tensor<3x5xf32>) -> tensor<f32> {
  %target = core.constant {value = dense<[4, 0, -100]> : tensor<3xi64>} : tensor<3xi64>
  %loss = tensor.cross_entropy %logits, %target : tensor<f32>
  func.return %loss
}
",
    operands: &[operand("logits", FLOAT_TENSOR), operand("target", INT_TENSOR)],
    results: &[result("loss", FLOAT_TENSOR)],
    attrs: &[
        attr("ignore_index", AttrKind::I64, "The target of rows that do not count.").default(AttrDefault::Int(-100))
    ],
    effects: Effects::Pure,
    infer: Some(infer_cross_entropy),
    interfaces: &[&Decompose(define_cross_entropy), &Derivative::Vjp(cross_entropy_vjp)],
    ..OpDef::new("rc.tensor.cross_entropy")
};

/// The reduced dimensions, from 0 and in order.
pub fn reduced_dims(dims: Option<Vec<i64>>, rank: usize) -> std::result::Result<Vec<i64>, String> {
    let rank = rank as i64;
    let Some(dims) = dims else { return Ok((0..rank).collect()) };
    let mut out = Vec::with_capacity(dims.len());
    for &d in &dims {
        let at = if d < 0 { d + rank } else { d };
        if !(0..rank).contains(&at) || out.contains(&at) {
            return Err(format!("has dimension {d} in 'dims', twice or outside of rank {rank}"));
        }
        out.push(at);
    }
    out.sort();
    Ok(out)
}

pub fn infer_reduction(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims = reduced_dims(args.attr("dims").and_then(|a| a.as_ints()), x.rank())?;
    let keep = args.attr("keepdim").and_then(|a| a.as_bool()).unwrap_or(false);
    let sizes = x.shape().into_iter().enumerate().filter_map(|(d, size)| match dims.contains(&(d as i64)) {
        true => keep.then_some(Dim::Static(1)),
        false => Some(size),
    });
    one(x.with_shape(&sizes.collect::<Vec<_>>()))
}

pub fn dims_of(b: &Builder, op: Op) -> Vec<i64> {
    let op = b.body.op_ref(op);
    let rank = op.body.ty(op.operand(0)).rank();
    reduced_dims(op.ints("dims"), rank).expect("verified")
}

/// Gives the reduced value the shape of the op's result: size 1 where dimensions are kept.
pub fn shaped_as_result(b: &mut Builder, op: Op, value: Value) -> Value {
    let shape = b.ty(b.body.result(op, 0)).shape();
    b.reshape(value, &shape)
}

pub fn reduce_kept(b: &mut Builder, op: Op, kind: &str) -> Result<Vec<Value>> {
    let (x, dims) = (b.body.operand(op, 0), dims_of(b, op));
    let reduced = b.reduce(kind, x, &dims);
    Ok(vec![shaped_as_result(b, op, reduced)])
}

fn define_mean(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (x, dims) = (b.body.operand(op, 0), dims_of(b, op));
    let elem = b.ty(x).elem();
    let wide = b.convert(x, compute_type(elem));
    let sum = b.reduce("add", wide, &dims);
    let shape = b.ty(wide).shape();
    let count = dims.iter().fold(Dim::Static(1), |n, &d| n * shape[d as usize]);
    let rows = b.ty(sum).shape();
    let count = b.size(count, b.ty(wide).elem(), &rows);
    let mean = b.binary("div", sum, count);
    let mean = b.convert(mean, elem);
    Ok(vec![shaped_as_result(b, op, mean)])
}

fn infer_cross_entropy(args: &InferArgs) -> Inferred {
    let (logits, target) = (args.operand(0)?, args.operand(1)?);
    match (logits.shape().as_slice(), target.shape().as_slice()) {
        (&[n, _], &[m]) if n == m => one(logits.with_shape(&[])),
        _ => Err(format!("needs logits [n, classes] and a target [n], and has {logits} and {target}")),
    }
}

/// log of the sum over `dims` of exp(x), where the greatest x is 0. As 2^(x / ln 2): that product's rounding moves a term by
/// x epsilon / 2 of itself, and the whole sum by the terms' mean of it, which the entropy bounds: by less than ln(n) epsilon / 2
/// of itself for n terms, as much as adding them does.
pub fn log_sum_exp(b: &mut Builder, x: Value, dims: &[i64]) -> Value {
    let log2e = b.splat(std::f64::consts::LOG2_E, b.ty(x));
    let scaled = b.binary("mul", x, log2e);
    let exp = b.unary("exp2", scaled);
    let sum = b.reduce("add", exp, dims);
    b.unary("log", sum)
}

/// The target's logit is picked by comparing class numbers, so that the loss is one pass of reductions over the logits.
/// log softmax of each row at its target; targets outside of the classes stand for the nearest class.
fn log_probability_of(b: &mut Builder, logits: Value, target: Value, wide: Type) -> Value {
    let (wanted, ty) = (b.convert(logits, wide), b.ty(target));
    let max = b.reduce("max", wanted, &[1]);
    let shape = b.ty(wanted).shape();
    let all_max = b.broadcast(max, &shape, &[0]);
    let shifted = b.binary("sub", wanted, all_max);
    let log = log_sum_exp(b, shifted, &[1]);
    let (zero, last) = (b.splat(0.0, ty), class_count(b, logits, target));
    let one = b.splat(1.0, ty);
    let last = b.binary("sub", last, one);
    let at = b.binary("min", target, last);
    let at = b.binary("max", at, zero);
    let picked =
        b.op(op::core::GATHER).operands(&[logits, at]).attr("axis", Attr::i64(1)).attr("batch", Attr::i64(1)).value();
    let picked = b.convert(picked, wide);
    let picked = b.binary("sub", picked, max);
    b.binary("sub", picked, log)
}

/// The number of classes, for each target.
fn class_count(b: &mut Builder, logits: Value, target: Value) -> Value {
    let ty = b.ty(target);
    match b.ty(logits).shape()[1].as_static() {
        Some(n) => b.splat(n as f64, ty),
        None => {
            let size = b.op(op::core::DIM).operand(logits).attr("dim", Attr::i64(1)).value();
            let size = b.op(op::core::CONVERT).operand(size).result(ty.elem()).value();
            b.broadcast(size, &ty.shape(), &[])
        }
    }
}

fn define_cross_entropy(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let (logits, target) = (b.body.operand(op, 0), b.body.operand(op, 1));
    let ignored = b.body.op_ref(op).int("ignore_index").unwrap_or(-100);
    let (elem, shape) = (b.ty(logits).elem(), b.ty(logits).shape());
    let wide = compute_type(elem);
    // In i64 every class number is itself, whatever `ignore_index` is.
    let target = b.convert(target, Type::i64());
    let zero = b.splat(0.0, b.ty(target).with_elem(wide));
    let picked = if shape[1] == Dim::Static(0) {
        zero
    } else {
        let log_p = log_probability_of(b, logits, target, wide);
        let (none, count) = (b.splat(0.0, b.ty(target)), class_count(b, logits, target));
        let (natural, below) = (b.compare("ge", target, none), b.compare("lt", target, count));
        let inside = b.binary("and", natural, below);
        b.select(inside, log_p, zero)
    };
    let marker = b.splat(ignored as f64, b.ty(target));
    let counts = b.compare("ne", target, marker);
    let picked = b.select(counts, picked, zero);
    // In another form than for the rows: those go with the logits, this goes with the sum.
    let ignored = b.compare("eq", target, marker);
    let one = b.splat(1.0, b.ty(zero));
    let counted = b.select(ignored, zero, one);
    let (sum, count) = (b.reduce("add", picked, &[0]), b.reduce("add", counted, &[0]));
    let mean = b.binary("div", sum, count);
    let loss = b.unary("neg", mean);
    Ok(vec![b.convert(loss, elem)])
}

/// For a row that counts, with n of them and p its softmax: g (p - 1 at the target) / n; for a target outside of the classes 0.
fn cross_entropy_vjp(v: &mut Vjp) -> Result {
    let (logits, target, g) = (v.operand(0), v.operand(1), v.g());
    let ignored = v.at().int("ignore_index").unwrap_or(-100);
    let (elem, shape) = (v.ty(logits).elem(), v.ty(logits).shape());
    let wide = compute_type(elem);
    let target = v.convert(target, Type::i64());
    let x = v.convert(logits, wide);
    let all_max = v.reduce_and_broadcast("max", x, &[1]);
    let shifted = v.binary("sub", x, all_max);
    let log = log_sum_exp(v, shifted, &[1]);
    let log = v.broadcast(log, &shape, &[0]);
    let log_p = v.binary("sub", shifted, log);
    let p = v.unary("exp", log_p);
    let class = v.op(op::core::IOTA).attr("dim", Attr::i64(1)).result(Type::tensor(&shape, Type::i64())).value();
    let wanted = v.broadcast(target, &shape, &[0]);
    let hit = v.compare("eq", class, wanted);
    let less = v.binary_scalar("sub", p, 1.0);
    let distance = v.select(hit, less, p);
    // The share of each row that has a slope, in the loss's gradient.
    let rows = v.ty(target).shape();
    let (marker, none) =
        (crate::derivative::splat_like(v, ignored as f64, target), crate::derivative::zeros_like(v, target));
    let classes = class_count(v, logits, target);
    let counts = v.compare("ne", target, marker);
    let (natural, below) = (v.compare("ge", target, none), v.compare("lt", target, classes));
    let inside = v.binary("and", natural, below);
    let sloped = v.binary("and", counts, inside);
    let counted = v.convert(counts, wide);
    let count = v.reduce("add", counted, &[0]);
    let g = v.convert(g, wide);
    let share = v.binary("div", g, count);
    let share = v.broadcast(share, &rows, &[]);
    let share = where_or_zero(v, sloped, share);
    v.give_with(0, |v| {
        let share = v.broadcast(share, &shape, &[0]);
        let gradient = v.binary("mul", share, distance);
        v.convert(gradient, elem)
    });
    Ok(())
}
