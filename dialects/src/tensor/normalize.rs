//! `tensor.normalize`: what batch, group and instance norms have in common, and its derivative.

use super::compute_type;
use super::norm::eps_of;
use super::reduce::reduced_dims;
use super::statistics::count;
use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, Inferred};
use crate::derivative::{Derivative, Vjp};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::rewrite::Rewriter;
use rc_ir::{Attr, Body, Builder, Dim, Effects, Op, OpDef, OpRef, Result, Type, Value};
use smallvec::smallvec;

pub static NORMALIZE: OpDef = OpDef {
    summary: "(x - mean) / sqrt(variance + eps) over dimensions, scaled and shifted, with mean and variance.",
    doc: "Mean and variance (of the whole population) are taken over `dims`, and have the other dimensions: all but the channels for a batch norm, a group's \
          channels and places for a group norm. Weight and bias have one shape, of x's rank: in each dimension x's size or 1. \
          Computed in f32 for narrower types, weight and bias included, and rounded once; mean and variance are not rounded. NaN where `dims` has no elements. \
          The derivative has two sums over `dims`, of the gradient and of its product with the normalized elements, and one pass. (Ioffe and Szegedy, 2015.)",
    example: "func.func @batch_norm(%x: tensor<3x2x5xf32>, %w: tensor<1x2x1xf32>, %b: tensor<1x2x1xf32>) -> tensor<3x2x5xf32> {
  %y, %mean, %variance = tensor.normalize %x weight(%w) bias(%b) {dims = [0, 2], eps = 1.0e-05} : tensor<3x2x5xf32>, tensor<2xf32>, tensor<2xf32>
  func.return %y
}
",
    operands: &[operand("x", FLOAT_TENSOR), optional("weight", FLOAT_TENSOR), optional("bias", FLOAT_TENSOR)],
    results: &[result("y", FLOAT_TENSOR), result("mean", FLOAT_TENSOR), result("variance", FLOAT_TENSOR)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The dimensions that are normalized over; negative ones count from the end."),
        attr("eps", AttrKind::F64, "Added to the variance.").default(AttrDefault::Float(1e-5)),
    ],
    effects: Effects::Pure,
    infer: Some(infer),
    verify: Some(verify),
    interfaces: &[&Decompose(define), &Derivative::Vjp(vjp)],
    ..OpDef::new(op::tensor::NORMALIZE)
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&NORMALIZE];

/// Has each normalization of a function read images and channels as they lie: see [`keep_instances`].
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn normalize_instances(body: &mut Body) -> Result {
    for op in body.walk() {
        if body.name(op) == &NORMALIZE {
            keep_instances(op, &mut Rewriter::new(body))?;
        }
    }
    Ok(())
}

/// Images and channels stay dimensions of their own where each channel of each image is normalized, which is a batch norm of a view of both in one: what lies
/// with channels last is then read so.
fn keep_instances(op: Op, rw: &mut Rewriter) -> Result {
    let body = &rw.body;
    let (x, rank) = (body.operand(op, 0), body.ty(body.operand(op, 0)).rank());
    let view = body.defining_op(x).map(|def| body.op_ref(def)).filter(|def| def.is(op::core::RESHAPE));
    let Some(source) = view.map(|view| view.operand(0)).filter(|&v| body.ty(v).rank() == rank && rank > 2) else {
        return Ok(());
    };
    let (own, joined) = (body.ty(source).shape(), body.ty(x).shape());
    let one = Dim::Static(1);
    let joins = joined[0] == one && own[0] != one && own[0] * own[1] == joined[1] && own[2..] == joined[2..];
    let dims = reduced_dims(body.op_ref(op).ints("dims"), rank).unwrap_or_default();
    if !joins || dims.len() + 1 != rank || dims.contains(&1) {
        return Ok(());
    }
    let statistics = body.op_ref(op).result_types().to_vec();
    let mut state = body.state(op);
    let mut b = rw.before(op);
    state.operands[0] = source;
    for scale in &mut state.operands[1..] {
        let mut shape = b.ty(*scale).shape().to_vec();
        if shape[1] != one {
            shape[..2].copy_from_slice(&own[..2]);
        }
        *scale = b.reshape(*scale, &shape);
    }
    state.results[0] = statistics[0].with_shape(&own);
    for (result, of) in state.results[1..].iter_mut().zip(&statistics[1..]) {
        *result = of.with_shape(&own[..2]);
    }
    let made = rw.body.create(state);
    rw.body.insert_before(op, made);
    rw.set_attr(made, "dims", Attr::i64s(&(2..rank as i64).collect::<Vec<_>>()));
    let results: Vec<Value> = rw.body.results(made).collect();
    let mut b = rw.before(op);
    let values: Vec<Value> = results.iter().zip(&statistics).map(|(&v, ty)| b.reshape(v, &ty.shape())).collect();
    rw.replace(op, &values);
    Ok(())
}

fn infer(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims = reduced_dims(args.attr("dims").and_then(Attr::as_ints), x.rank())?;
    let shape = x.shape();
    let rest: Vec<Dim> = others(&dims, x.rank()).iter().map(|&d| shape[d as usize]).collect();
    let statistic = x.with_shape(&rest).with_elem(compute_type(x.elem()));
    Ok(smallvec![x, statistic, statistic])
}

fn verify(op: OpRef) -> Result {
    let x = op.body.ty(op.operand(0));
    let scales: Vec<Type> = ["weight", "bias"].iter().flat_map(|name| op.group(name)).map(|v| op.body.ty(v)).collect();
    for ty in &scales {
        let (own, all) = (ty.shape(), x.shape());
        if own.len() != all.len() || own.iter().zip(&all).any(|(d, of_x)| d != of_x && *d != Dim::Static(1)) {
            return Err(op.error(format!("has a weight or bias of type {ty}, which needs the sizes of {x}, or 1")));
        }
    }
    match scales.as_slice() {
        [a, b] if a.shape() != b.shape() => Err(op.error(format!("has a weight of type {a}, but a bias of type {b}"))),
        _ => Ok(()),
    }
}

/// The dimensions that are not in `dims`.
fn others(dims: &[i64], rank: usize) -> Vec<i64> {
    (0..rank as i64).filter(|d| !dims.contains(d)).collect()
}

fn define(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let x = at.operand(0);
    let [weight, bias] = ["weight", "bias"].map(|name| at.group(name).first().copied());
    let elem = b.ty(x).elem();
    let over = Over::of(b, op);
    let wide = b.convert(x, compute_type(elem));
    let mean = over.mean(b, wide);
    let spread = over.spread(b, mean);
    let centered = b.binary("sub", wide, spread);
    let squares = b.binary("mul", centered, centered);
    let variance = over.mean(b, squares);
    let inverse = over.inverse(b, variance);
    let inverse = over.spread(b, inverse);
    let mut y = b.binary("mul", centered, inverse);
    for (row, core) in [(weight, "mul"), (bias, "add")] {
        if let Some(row) = row {
            let row = b.convert(row, b.ty(y).elem());
            let row = b.broadcast_to(row, &over.shape);
            y = b.binary(core, y, row);
        }
    }
    Ok(vec![b.convert(y, elem), mean, variance])
}

/// What an op normalizes over.
struct Over {
    dims: Vec<i64>,
    others: Vec<i64>,
    shape: Vec<Dim>,
    eps: f64,
}

impl Over {
    fn of(b: &Builder, op: Op) -> Over {
        let at = b.body.op_ref(op);
        let shape = b.ty(at.operand(0)).shape().to_vec();
        let dims = reduced_dims(at.ints("dims"), shape.len()).expect("verified");
        Over { others: others(&dims, shape.len()), dims, shape, eps: eps_of(b, op) }
    }
    /// A sum over `dims`, divided by the number of its elements.
    fn over_count(&self, b: &mut Builder, sum: Value) -> Value {
        let ty = b.ty(sum);
        let n = b.size(count(&self.shape, &self.dims), ty.elem(), &ty.shape());
        b.binary("div", sum, n)
    }
    fn mean(&self, b: &mut Builder, x: Value) -> Value {
        let sum = b.reduce("add", x, &self.dims);
        self.over_count(b, sum)
    }
    /// One number of each mean, in x's shape.
    fn spread(&self, b: &mut Builder, x: Value) -> Value {
        b.broadcast(x, &self.shape, &self.others)
    }
    /// 1/sqrt(variance + eps).
    fn inverse(&self, b: &mut Builder, variance: Value) -> Value {
        let shifted = b.binary_scalar("add", variance, self.eps);
        b.unary("rsqrt", shifted)
    }
}

/// With n = (x - mean) / deviation and h = g weight: (h - mean h - n mean(h n)) / deviation. Sums of g and g n run first over those of `dims` in which the weight has
/// one element: they give the gradients of weight and bias too. What is left of `dims` is summed with the weight.
fn vjp(v: &mut Vjp) -> Result {
    let (op, x) = (v.at().op, v.operand(0));
    let over = Over::of(v, op);
    let (elem, wide) = (v.ty(x).elem(), compute_type(v.ty(x).elem()));
    let x = v.convert(x, wide);
    let mean = v.result(1);
    let mean = over.spread(v, mean);
    let centered = v.binary("sub", x, mean);
    let mut of_x = Vec::new();
    if let Some(g) = v.gradient(0) {
        let g = v.convert(g, wide);
        of_x.extend(of_result(v, &over, centered, g));
    }
    if let Some(g) = v.gradient(1) {
        let share = over.over_count(v, g);
        of_x.push(over.spread(v, share));
    }
    if let Some(g) = v.gradient(2) {
        let share = over.over_count(v, g);
        let share = v.binary_scalar("mul", share, 2.0);
        let share = over.spread(v, share);
        of_x.push(v.binary("mul", share, centered));
    }
    v.give_with(0, |v| {
        let sum = of_x.into_iter().reduce(|a, b| v.binary("add", a, b)).expect("a result has a gradient");
        v.convert(sum, elem)
    });
    Ok(())
}

/// What comes of the gradient of `y`: gives those of weight and bias, and returns that of x where it is wanted.
fn of_result(v: &mut Vjp, over: &Over, centered: Value, g: Value) -> Option<Value> {
    let [weight, bias] =
        ["weight", "bias"].map(|name| v.at().group_range(name).filter(|r| !r.is_empty()).map(|r| r.start));
    let row = weight.or(bias).map(|i| v.ty(v.operand(i)));
    let one = |d: i64| row.is_none_or(|row| row.shape()[d as usize] == Dim::Static(1));
    let (first, rest): (Vec<i64>, Vec<i64>) = over.dims.iter().partition(|&&d| one(d));
    let variance = v.result(2);
    let inverse = over.inverse(v, variance);
    let spread = over.spread(v, inverse);
    let normal = v.binary("mul", centered, spread);
    let product = v.binary("mul", g, normal);
    let sums = [product, g].map(|x| sum_over(v, x, &first));
    let left = others(&first, over.shape.len());
    // A dimension of x's among those of the sums.
    let at = |d: &i64| left.iter().position(|l| l == d).expect("left") as i64;
    for (operand, sum) in [weight, bias].into_iter().zip(sums) {
        let Some(operand) = operand else { continue };
        v.give_with(operand, |v| {
            let ty = v.ty(v.operand(operand));
            let along: Vec<i64> = left.iter().filter(|&&d| one(d)).map(at).collect();
            let sum = sum_over(v, sum, &along);
            let sum = v.reshape(sum, &ty.shape());
            v.convert(sum, ty.elem())
        });
    }
    if !v.wants(0) {
        return None;
    }
    let mut scaled = g;
    let (mut sums, mut inverse) = (sums, inverse);
    if let Some(weight) = weight {
        let (row, wide) = (v.operand(weight), v.ty(g).elem());
        let row = v.convert(row, wide);
        if rest.is_empty() {
            // The weight is one number of each mean: it goes with the deviation.
            inverse = times_row(v, inverse, row, &left);
        } else {
            sums = sums.map(|sum| times_row(v, sum, row, &left));
            let row = v.broadcast_to(row, &over.shape);
            scaled = v.binary("mul", g, row);
        }
    }
    let along: Vec<i64> = rest.iter().map(at).collect();
    let [along, shift] = sums.map(|sum| {
        let sum = sum_over(v, sum, &along);
        let mean = over.over_count(v, sum);
        over.spread(v, mean)
    });
    let along = v.binary("mul", normal, along);
    let centered = v.binary("sub", scaled, shift);
    let centered = v.binary("sub", centered, along);
    let inverse = over.spread(v, inverse);
    Some(v.binary("mul", centered, inverse))
}

fn sum_over(v: &mut Vjp, x: Value, dims: &[i64]) -> Value {
    if dims.is_empty() { x } else { v.reduce("add", x, dims) }
}

/// The product of what has x's dimensions `left` and of a weight, which has one element in the others.
fn times_row(v: &mut Vjp, x: Value, row: Value, left: &[i64]) -> Value {
    let (of_row, shape) = (v.ty(row).shape(), v.ty(x).shape());
    let of_row: Vec<Dim> = left.iter().map(|&d| of_row[d as usize]).collect();
    let row = v.reshape(row, &of_row);
    let row = v.broadcast_to(row, &shape);
    v.binary("mul", x, row)
}
