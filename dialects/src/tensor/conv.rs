//! Convolutions and their gradients: products of windows and weights.
//!
//! The windows of each image are a matrix, `[channels * window, places]`, that the weights are multiplied by, or with channels
//! last those of all images are one, `[images * places, window * channels]`; where a channel has weights of its own (depthwise) its
//! windows are multiplied and summed directly.

use super::spatial::{DILATIONS, GROUPS, PADDING, Remainders, STRIDES, Windows, groups_of, own_results, product};
use super::{channels_last, conv_derivative};
use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, NUMERIC_TENSOR, default_acc, one};
use crate::core::dot::PRECISION;
use crate::derivative::Derivative;
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, OpRef, Result, Type, Value};

pub static CONV: OpDef = OpDef {
    summary: "A convolution (cross-correlation) over any number of spatial dimensions.",
    doc: "x is [n, c, sizes..], w [o, c / groups, window..], the bias [o], the result [n, o, places..]: the sum over the window's \
          elements k and the group's channels of x[.., place * stride + k * dilation - padding] w[.., k], where x is 0 outside. \
          Sums are accumulated in f32 (f64 for f64), the bias is added there, and the result is rounded once.",
    example: "func.func @conv(%x: tensor<2x4x9x7xf32>, %w: tensor<6x2x3x2xf32>, %b: tensor<6xf32>) -> tensor<2x6x5x7xf32> {
  %y = tensor.conv %x, %w bias(%b) {strides = [2, 1], padding = [1, 1], dilations = [1, 2], groups = 2} : tensor<2x6x5x7xf32>
  func.return %y
}
",
    operands: &[operand("x", NUMERIC_TENSOR), operand("w", NUMERIC_TENSOR), optional("bias", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    attrs: &[STRIDES, PADDING, DILATIONS, GROUPS, PRECISION, ORDER, GROUP_CHANNELS, IN_PLANES],
    effects: Effects::Pure,
    infer: Some(infer_conv),
    interfaces: &[&Decompose(define_conv), &Derivative::Vjp(conv_derivative::conv_vjp)],
    ..OpDef::new("rc.tensor.conv")
};

pub static CONV_TRANSPOSE: OpDef = OpDef {
    summary: "The transpose of a convolution: its gradient for the operand x, and what PyTorch calls a transposed convolution.",
    doc: "y is [n, o, places..], w [o, c / groups, window..], the result [n, c, sizes..]. `sizes` are those that the convolution \
          with these weights and attributes has `places` for: (places - 1) * stride - 2 * padding + dilation * (window - 1) + 1, \
          or up to stride - 1 more. Accumulated and rounded as in tensor.conv.",
    example: "func.func @conv_transpose(%y: tensor<2x6x5x7xf32>, %w: tensor<6x2x3x2xf32>) -> tensor<2x4x9x7xf32> {
  %x = tensor.conv_transpose %y, %w {sizes = [9, 7], strides = [2, 1], padding = [1, 1], dilations = [1, 2], groups = 2} : tensor<2x4x9x7xf32>
  func.return %x
}
",
    operands: &[operand("y", NUMERIC_TENSOR), operand("w", NUMERIC_TENSOR), optional("bias", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    attrs: &[
        attr("sizes", AttrKind::Shape, "The spatial sizes of the result."),
        STRIDES,
        PADDING,
        DILATIONS,
        GROUPS,
        PRECISION,
        ORDER,
        GROUP_CHANNELS,
    ],
    effects: Effects::Pure,
    infer: Some(infer_transpose),
    interfaces: &[&Decompose(define_transpose), &Derivative::Vjp(conv_derivative::transpose_vjp)],
    ..OpDef::new("rc.tensor.conv_transpose")
};

pub static CONV_WEIGHT_GRAD: OpDef = OpDef {
    summary: "The gradient of a convolution for its weights.",
    doc: "x is [n, c, sizes..], y, the gradient of the convolution's result, [n, o, places..], the result [o, c / groups, window..]. \
          Accumulated and rounded as in tensor.conv.",
    example: "func.func @conv_weight_grad(%x: tensor<2x4x9x7xf32>, %y: tensor<2x6x5x7xf32>) -> tensor<6x2x3x2xf32> {
  %w = tensor.conv_weight_grad %x, %y {window = [3, 2], strides = [2, 1], padding = [1, 1], dilations = [1, 2], groups = 2} : tensor<6x2x3x2xf32>
  func.return %w
}
",
    operands: &[operand("x", NUMERIC_TENSOR), operand("y", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR)],
    attrs: &[
        attr("window", AttrKind::I64Array, "The window's sizes."),
        STRIDES,
        PADDING,
        DILATIONS,
        GROUPS,
        PRECISION,
        ORDER,
    ],
    effects: Effects::Pure,
    infer: Some(infer_weight_grad),
    interfaces: &[&Decompose(define_weight_grad), &Derivative::Vjp(conv_derivative::weight_grad_vjp)],
    ..OpDef::new("rc.tensor.conv_weight_grad")
};

/// In which order of dimensions a convolution is computed; its result is the same.
pub const ORDER: AttrDef = attr(
    "order",
    AttrKind::Enum(&["channels_first", "channels_last"]),
    "The order of dimensions that it is computed in.",
)
.default(AttrDefault::Str("channels_first"));

/// Channels of a group, at least, where it is computed with channels last.
pub const GROUP_CHANNELS: AttrDef = attr(
    "group_channels",
    AttrKind::I64,
    "Channels of a group at least where they come last: narrower groups are multiplied together, with zeros for the weights that they do not have.",
)
.default(AttrDefault::Int(64));

/// Whether a convolution with channels first multiplies and sums windows of the planes as they lie, without a product.
pub const IN_PLANES: AttrDef = attr(
    "in_planes",
    AttrKind::Bool,
    "With channels first: multiply and sum windows where they lie, for each result anew, instead of a product. For few results.",
)
.default(AttrDefault::Bool(false));

/// The attribute `group_channels`.
pub(super) fn least_channels(op: OpRef) -> i64 {
    op.int("group_channels").unwrap_or(64)
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&CONV, &CONV_TRANSPOSE, &CONV_WEIGHT_GRAD];

/// The sizes of weights that are windows.
pub(super) fn window_sizes(w: Type) -> std::result::Result<Vec<i64>, String> {
    let sizes: Option<Vec<i64>> = w.shape().iter().skip(2).map(|d| d.as_static()).collect();
    sizes
        .filter(|s| !s.is_empty())
        .ok_or_else(|| format!("needs weights [o, c, window..] with windows of fixed size, and has {w}"))
}

fn same_kind(x: Type, w: Type, rank: usize) -> std::result::Result<(), String> {
    if x.rank() == rank && w.rank() == rank && x.elem() == w.elem() {
        return Ok(());
    }
    Err(format!("needs operands of one element type and of one rank, 3 or more, and has {x} and {w}"))
}

/// How many channels a group has of `channels`.
fn per_group(args: &InferArgs, what: &str, channels: Dim) -> std::result::Result<Dim, String> {
    let groups = args.int("groups").unwrap_or(1);
    let each = (groups > 0).then(|| channels.floordiv(Dim::Static(groups)));
    each.filter(|&c| c * Dim::Static(groups) == channels)
        .ok_or_else(|| format!("cannot divide {channels} {what} into {groups} groups"))
}

fn check_bias(args: &InferArgs, x: Type, channels: Dim) -> std::result::Result<(), String> {
    let wanted = x.with_shape(&[channels]);
    match args.operands.get(2).filter(|b| **b != wanted) {
        Some(bias) => Err(format!("needs a bias of type {wanted}, and has {bias}")),
        None => Ok(()),
    }
}

fn infer_conv(args: &InferArgs) -> Inferred {
    let (x, w) = (args.operand(0)?, args.operand(1)?);
    let windows = Windows::infer(window_sizes(w)?, args)?;
    same_kind(x, w, windows.rank() + 2)?;
    let (xs, ws) = (x.shape(), w.shape());
    per_group(args, "results", ws[0])?;
    if per_group(args, "channels", xs[1])? != ws[1] {
        return Err(format!("has weights {w} for {} channels in {} groups", xs[1], args.int("groups").unwrap_or(1)));
    }
    check_bias(args, x, ws[0])?;
    let counts = windows.counts(&xs[2..])?;
    one(x.with_shape(&[&[xs[0], ws[0]], counts.as_slice()].concat()))
}

fn infer_transpose(args: &InferArgs) -> Inferred {
    let (y, w) = (args.operand(0)?, args.operand(1)?);
    let windows = Windows::infer(window_sizes(w)?, args)?;
    same_kind(y, w, windows.rank() + 2)?;
    let (ys, ws) = (y.shape(), w.shape());
    let sizes = args.attr("sizes").and_then(|a| a.as_shape()).ok_or("expects the shape attribute 'sizes'")?;
    per_group(args, "channels", ys[1])?;
    if ys[1] != ws[0] || sizes.len() != windows.rank() {
        return Err(format!("has weights {w} and sizes {sizes:?} for an operand {y}"));
    }
    let counts = windows.counts(sizes)?;
    if let Some(i) = (0..counts.len()).find(|&i| (counts[i] - ys[i + 2]).as_static().is_some_and(|n| n != 0)) {
        return Err(format!(
            "has {} places along dimension {} where a convolution of size {} has {}",
            ys[i + 2],
            i + 2,
            sizes[i],
            counts[i]
        ));
    }
    let channels = ws[1] * Dim::Static(args.int("groups").unwrap_or(1));
    check_bias(args, y, channels)?;
    one(y.with_shape(&[&[ys[0], channels], sizes].concat()))
}

fn infer_weight_grad(args: &InferArgs) -> Inferred {
    let (x, y) = (args.operand(0)?, args.operand(1)?);
    let windows = Windows::infer(args.ints("window")?, args)?;
    same_kind(x, y, windows.rank() + 2)?;
    let (xs, ys) = (x.shape(), y.shape());
    let counts = windows.counts(&xs[2..])?;
    per_group(args, "results", ys[1])?;
    let differs = |i: usize| (counts[i] - ys[i + 2]).as_static().is_some_and(|n| n != 0);
    if xs[0] != ys[0] || (0..counts.len()).any(differs) {
        return Err(format!("has a gradient {y} for {x}, which has {counts:?} windows"));
    }
    let each = per_group(args, "channels", xs[1])?;
    let window = windows.sizes.iter().map(|&s| Dim::Static(s));
    one(x.with_shape(&[ys[1], each].into_iter().chain(window).collect::<Vec<_>>()))
}

fn define_conv(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, w, groups) = (at.operand(0), at.operand(1), groups_of(at));
    let windows = Windows::of(window_sizes(b.ty(w)).expect("verified"), at);
    if at.str("order") == Some("channels_last") {
        return channels_last::define(b, op, &windows);
    }
    let taken = windows.take(b, x, 0.0, &[]);
    let y = match b.body.op_ref(op).bool(IN_PLANES.name) {
        true => weighted_in_planes(b, taken, w, windows.rank(), groups),
        false => weighted(b, taken, w, windows.rank(), groups),
    };
    Ok(vec![with_bias(b, op, y)])
}

fn define_transpose(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (y, w, groups) = (at.operand(0), at.operand(1), groups_of(at));
    let sizes = at.attr("sizes").and_then(|a| a.as_shape()).expect("verified").to_vec();
    let windows = Windows::of(window_sizes(b.ty(w)).expect("verified"), at);
    if at.str("order") == Some("channels_last") {
        return channels_last::define_transpose(b, op, &windows);
    }
    if let Some(x) = spread_by_channel(b, y, w, &windows, &sizes, groups) {
        return Ok(vec![with_bias(b, op, x)]);
    }
    let taken = windows.holders(b, y, &sizes, 0.0);
    // The holders' elements come from last to first, and what were results are channels.
    let dims = windows.last(b, w);
    let flipped = b.op(op::core::REVERSE).operand(w).attr("dims", Attr::i64s(&dims)).value();
    let shape = b.ty(w).shape().to_vec();
    let (groups_dim, per) = (Dim::Static(groups), shape[0].floordiv(Dim::Static(groups)));
    let split = b.reshape(flipped, &[&[groups_dim, per], &shape[1..]].concat());
    let perm: Vec<i64> = [0, 2, 1].into_iter().chain(3..shape.len() as i64 + 1).collect();
    let swapped = b.permute(split, &perm);
    let swapped = b.reshape(swapped, &[&[groups_dim * shape[1], per], &shape[2..]].concat());
    let x = weighted(b, taken, swapped, windows.rank(), groups);
    Ok(vec![with_bias(b, op, x)])
}

/// A transposed convolution of each channel alone with steps of several elements, in the type for sums. `None` for others, and where there are no
/// [`spread_weights`].
fn spread_by_channel(
    b: &mut Builder,
    y: Value,
    w: Value,
    windows: &Windows,
    sizes: &[Dim],
    groups: i64,
) -> Option<Value> {
    if windows.strides.iter().all(|&s| s == 1) {
        return None;
    }
    let (own, sizes) = spread_weights(b, w, windows, sizes, false)?;
    let taken = windows.near(b, y, 2, &sizes);
    let space = b.ty(taken).shape().to_vec();
    let taken = b.convert(taken, b.ty(own).elem());
    let own = b.broadcast(own, &space, &(1..space.len() as i64).collect::<Vec<_>>());
    let products = b.binary("mul", taken, own);
    let own = own_results(Dim::Static(groups), space[1]);
    let (rank, taps) = (windows.rank() as i64, (1 + own.len() + windows.rank()) as i64);
    let products = b.reshape(products, &[&space[..1], &own, &space[2..]].concat());
    Some(b.reduce("add", products, &(2..1 + own.len() as i64).chain(taps..taps + rank).collect::<Vec<_>>()))
}

/// Of a transposed convolution of each channel alone, the weights `[c, 1, window..]` by which each place's windows, as [`Windows::near`] gives them, are
/// multiplied: `[c, sizes.., taps..]` or `[sizes.., taps.., c]`, in the type for sums, and the sizes as integers. Neighbours from one step to the next have the same windows, each with weights of
/// its own, so that no zeros between steps are multiplied. `None` where channels are not alone, sizes symbolic, or both steps and dilation of several
/// elements.
pub(super) fn spread_weights(
    b: &mut Builder,
    w: Value,
    windows: &Windows,
    sizes: &[Dim],
    channels_last: bool,
) -> Option<(Value, Vec<i64>)> {
    let (rank, ws) = (windows.rank(), b.ty(w).shape().to_vec());
    let sizes: Vec<i64> = sizes.iter().map(|d| d.as_static()).collect::<Option<_>>()?;
    if !is_spread_evenly(windows) || ws[1] != Dim::Static(1) {
        return None;
    }
    let steps: Vec<Remainders> = (0..rank).map(|i| windows.remainders(i)).collect();
    // [c, taps, stride, taps, stride, ..], taps from last to first as the windows are.
    let none = vec![Dim::Static(0); 1 + rank];
    let short = |(i, s): (usize, &Remainders)| Dim::Static(s.taps * s.stride) - ws[2 + i];
    let high: Vec<Dim> = none[..1].iter().copied().chain(steps.iter().enumerate().map(short)).collect();
    let w = b.reshape(w, &[&ws[..1], &ws[2..]].concat());
    let w = b.pad_or_crop(w, 0.0, &none, &high);
    let split = steps.iter().flat_map(|s| [Dim::Static(s.taps), Dim::Static(s.stride)]);
    let w = b.reshape(w, &ws[..1].iter().copied().chain(split).collect::<Vec<_>>());
    let taps: Vec<i64> = (0..rank as i64).map(|i| 1 + 2 * i).collect();
    let w = b.op(op::core::REVERSE).operand(w).attr("dims", Attr::i64s(&taps)).value();
    let within = taps.iter().map(|d| d + 1);
    let (first, last): (&[i64], &[i64]) = if channels_last { (&[], &[0]) } else { (&[0], &[]) };
    let perm = [first, &within.collect::<Vec<_>>(), &taps, last].concat();
    let w = b.permute(w, &perm);
    let w = b.convert(w, default_acc(b.ty(w).elem()));
    // Of each place, which is a step's number and one within it.
    let number = |(s, &n): (&Remainders, &i64)| [s.count(Dim::Static(n)), Dim::Static(s.stride)];
    let places: Vec<[Dim; 2]> = steps.iter().zip(&sizes).map(number).collect();
    let windows: Vec<Dim> = steps.iter().map(|s| Dim::Static(s.taps)).collect();
    let wanted: Vec<Dim> = sizes.iter().map(|&n| Dim::Static(n)).collect();
    let with_channels = |places: &[Dim], channels: Dim| match channels_last {
        true => [places, &windows, &[channels]].concat(),
        false => [&[channels], places, &windows].concat(),
    };
    // The numbers of steps are where only the places have dimensions.
    let all = with_channels(&places.concat(), ws[0]);
    let numbers = (0..rank as i64).map(|i| first.len() as i64 + 2 * i);
    let own: Vec<i64> = (0..all.len() as i64).filter(|d| !numbers.clone().any(|n| n == *d)).collect();
    let w = b.broadcast(w, &all, &own);
    let w = b.reshape(w, &with_channels(&places.iter().map(|&[n, s]| n * s).collect::<Vec<_>>(), ws[0]));
    let mut start = vec![Dim::Static(0); all.len() - rank];
    steps.iter().enumerate().for_each(|(i, s)| start[first.len() + i] = Dim::Static(s.first));
    let w = b.slice(w, &start, &with_channels(&wanted, ws[0]));
    Some((w, sizes))
}

/// Whether [`spread_weights`] are for these windows.
pub(super) fn is_spread_evenly(windows: &Windows) -> bool {
    (0..windows.rank()).map(|i| windows.remainders(i)).all(|s| s.even && s.common == 1)
}

fn define_weight_grad(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, y, groups) = (at.operand(0), at.operand(1), groups_of(at));
    let windows = Windows::of(at.ints("window").expect("verified"), at);
    if at.str("order") == Some("channels_last") {
        return channels_last::define_weight_grad(b, op, &windows);
    }
    let (elem, ys) = (b.ty(y).elem(), b.ty(y).shape().to_vec());
    let result = b.ty(b.body.result(op, 0)).shape().to_vec();
    let taken = windows.take(b, x, 0.0, &[]);
    let g = Dim::Static(groups);
    if b.ty(x).shape()[1] == g && groups > 1 && is_turned(b, x) == is_turned(b, y) {
        let w = weight_grad_by_channel(b, taken, y, windows.rank());
        let w = b.reshape(w, &result);
        return Ok(vec![b.convert(w, elem)]);
    }
    let columns = columns(b, taken, windows.rank(), groups, &ys[2..]);
    let y = b.reshape(y, &[ys[0], g, ys[1].floordiv(g), product(&ys[2..])]);
    let w = b.contract(y, columns, [&[1], &[1]], [&[0, 3], &[0, 3]], elem);
    Ok(vec![b.reshape(w, &result)])
}

/// Rounds to the element type of the op's result, after its bias is added along dimension 1.
pub(super) fn with_bias(b: &mut Builder, op: Op, y: Value) -> Value {
    let elem = b.ty(b.body.result(op, 0)).elem();
    let bias = b.body.op_ref(op).group("bias").first().copied();
    let Some(bias) = bias else { return b.convert(y, elem) };
    let (shape, acc) = (b.ty(y).shape(), b.ty(y).elem());
    let bias = b.convert(bias, acc);
    let bias = b.broadcast(bias, &shape, &[1]);
    let sum = b.binary("add", y, bias);
    b.convert(sum, elem)
}

/// The weighted sums of windows `[n, c, places.., window..]`, in the type for sums: `[n, o, places..]`.
fn weighted(b: &mut Builder, windows: Value, w: Value, rank: usize, groups: i64) -> Value {
    let acc = default_acc(b.ty(w).elem());
    let (shape, ws) = (b.ty(windows).shape().to_vec(), b.ty(w).shape().to_vec());
    let places = shape[2..2 + rank].to_vec();
    let result = [&[shape[0], ws[0]], places.as_slice()].concat();
    if ws[1] == Dim::Static(1) && groups > 1 {
        let y = weighted_by_channel(b, windows, w, rank, acc);
        return b.reshape(y, &result);
    }
    let g = Dim::Static(groups);
    let columns = columns(b, windows, rank, groups, &places);
    let (per, length) = (ws[0].floordiv(g), product(&ws[1..]));
    let w = b.reshape(w, &[g, per, length]);
    let w = b.broadcast(w, &[shape[0], g, per, length], &[1, 2, 3]);
    let y = b.contract(w, columns, [&[0, 1], &[0, 1]], [&[3], &[2]], acc);
    b.reshape(y, &result)
}

/// The same as sums of the windows' elements times weights, without a product.
fn weighted_in_planes(b: &mut Builder, windows: Value, w: Value, rank: usize, groups: i64) -> Value {
    let acc = default_acc(b.ty(w).elem());
    let (shape, ws) = (b.ty(windows).shape().to_vec(), b.ty(w).shape().to_vec());
    let g = Dim::Static(groups);
    let (images, places, window) = (shape[0], &shape[2..2 + rank], &shape[2 + rank..]);
    // [n, groups, results, channels, places.., window..]
    let space = [&[images, g, ws[0].floordiv(g), ws[1]], places, window].concat();
    let all: Vec<i64> = (0..space.len() as i64).collect();
    let taken = b.reshape(windows, &[&[images, g, ws[1]], places, window].concat());
    let taken = b.convert(taken, acc);
    let taken = b.broadcast(taken, &space, &[&all[..2], &all[3..]].concat());
    let w = b.reshape(w, &[&[g, ws[0].floordiv(g)], &ws[1..]].concat());
    let w = b.convert(w, acc);
    let w = b.broadcast(w, &space, &[&all[1..4], &all[4 + rank..]].concat());
    let products = b.binary("mul", taken, w);
    let y = b.reduce("add", products, &[&all[3..4], &all[4 + rank..]].concat());
    b.reshape(y, &[&[images, ws[0]], places].concat())
}

/// Of windows `[n, c, counts.., window..]` the first `places` of `counts`.
fn at_places(b: &mut Builder, windows: Value, places: &[Dim]) -> Value {
    let mut shape = b.ty(windows).shape().to_vec();
    let counts = 2..2 + places.len();
    if shape[counts.clone()] == *places {
        return windows;
    }
    shape[counts].copy_from_slice(places);
    b.slice(windows, &vec![Dim::Static(0); shape.len()], &shape)
}

/// Whether a value is a transposed one, as images are that lie with channels last.
fn is_turned(b: &Builder, x: Value) -> bool {
    b.body.defining_op(x).is_some_and(|op| b.body.name(op) == op::core::TRANSPOSE)
}

/// Where every channel c of the windows has weights of its own, and `y` is `[n, c * m, places..]`: their gradient `[c, m, window..]`, in the type for sums, or
/// `[c, window..]` where m is 1.
fn weight_grad_by_channel(b: &mut Builder, windows: Value, y: Value, rank: usize) -> Value {
    let (ys, acc) = (b.ty(y).shape().to_vec(), default_acc(b.ty(y).elem()));
    let windows = at_places(b, windows, &ys[2..]);
    let shape = b.ty(windows).shape().to_vec();
    let own = own_results(shape[1], ys[1]);
    let space = [&shape[..1], &own, &shape[2..]].concat();
    let dims: Vec<i64> = (0..space.len() as i64).collect();
    let kept: Vec<i64> = [&dims[..2], &dims[1 + own.len()..]].concat();
    let windows = b.convert(windows, acc);
    let windows = b.broadcast(windows, &space, &kept);
    let y = b.reshape(y, &[&ys[..1], &own, &ys[2..]].concat());
    let y = b.convert(y, acc);
    let places = 1 + own.len()..1 + own.len() + rank;
    let y = b.broadcast(y, &space, &dims[..places.end]);
    let products = b.binary("mul", windows, y);
    b.reduce("add", products, &[&dims[..1], &dims[places]].concat())
}

/// The windows `[n, c, counts.., window..]` as matrices `[n, groups, c / groups * window, places]`, the first `places` of `counts`.
fn columns(b: &mut Builder, windows: Value, rank: usize, groups: i64, places: &[Dim]) -> Value {
    let windows = at_places(b, windows, places);
    let shape = b.ty(windows).shape().to_vec();
    let rank = rank as i64;
    let perm: Vec<i64> = [0, 1].into_iter().chain(2 + rank..2 + 2 * rank).chain(2..2 + rank).collect();
    let moved = b.permute(windows, &perm);
    let g = Dim::Static(groups);
    let each = shape[1].floordiv(g) * product(&shape[2 + rank as usize..]);
    b.reshape(moved, &[shape[0], g, each, product(places)])
}

/// Where every channel c of the windows has weights of its own, `w` is [c * m, 1, window..]: the result is [n, c, m, places..], or
/// [n, c, places..] where m is 1.
fn weighted_by_channel(b: &mut Builder, windows: Value, w: Value, rank: usize, acc: Type) -> Value {
    let (shape, ws) = (b.ty(windows).shape().to_vec(), b.ty(w).shape().to_vec());
    let own = own_results(shape[1], ws[0]);
    let space = [&shape[..1], &own, &shape[2..]].concat();
    let kept: Vec<i64> = (0..2).chain(1 + own.len() as i64..space.len() as i64).collect();
    let windows = b.convert(windows, acc);
    let windows = b.broadcast(windows, &space, &kept);
    let w = b.reshape(w, &[own.as_slice(), &ws[2..]].concat());
    let w = b.convert(w, acc);
    let window: Vec<i64> = (space.len() - rank..space.len()).map(|d| d as i64).collect();
    let weights: Vec<i64> = (1..=own.len() as i64).chain(window.iter().copied()).collect();
    let w = b.broadcast(w, &space, &weights);
    let products = b.binary("mul", windows, w);
    b.reduce("add", products, &window)
}
