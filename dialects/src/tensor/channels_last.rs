//! Convolutions and their gradients computed with channels last: every window is a row `[window, channels]` of contiguous pieces, and the
//! product with the weights has all images' places as its rows, `[images * places, o]`. What matrix units and copy engines want.

use super::conv::{is_spread_evenly, least_channels, spread_weights, window_sizes, with_bias};
use super::spatial::{Remainders, Windows, groups_of, iota, own_results, product};
use crate::builder::CoreBuilder;
use crate::constraints::default_acc;
use crate::core::dot::PRECISION;
use crate::op;
use rc_ir::{Attr, Body, Builder, Dim, Op, OpRef, Result, Traits, Type, Value};

/// Bytes that a GPU copies to shared memory at once, at least, for speed.
const COPIED: i64 = 8;

/// Channels that windows are multiplied by come in whole multiples of so many: [`COPIED`] bytes of 16-bit elements.
const CHANNELS: i64 = 4;

/// And of so many where there are more, since a GPU copies 16 bytes at once in the time of 8, if windows hold each channel this often.
const WIDE_CHANNELS: i64 = 8;
const OFTEN: i64 = 4;

/// Whether a convolution can be computed so: one group, or one for each channel, or groups whose channels come in whole multiples.
pub fn supports(op: OpRef) -> bool {
    let w = op.body.ty(op.operand(1));
    let (shape, groups) = (w.shape(), groups_of(op));
    let length = product(&shape[1..]).as_static();
    let depthwise = shape[1] == Dim::Static(1);
    let whole = |n: Dim| n.as_static().is_some_and(|n| n % CHANNELS == 0);
    let grouped = whole(shape[1]) && whole(shape[0].floordiv(Dim::Static(groups)));
    length.is_some() && (groups == 1 || depthwise || grouped)
}

/// Whether a gradient can be: of fixed sizes, in groups as above, and for `conv_transpose` where steps or
/// dilation are 1 once both are divided by what they have in common.
pub fn supports_gradient(op: OpRef) -> bool {
    let fits = |v: Value| op.body.ty(v).static_shape().is_some();
    let groups = groups_of(op);
    let whole = |n: Dim| groups == 1 || n.as_static().is_some_and(|n| n / groups % CHANNELS == 0);
    let channels = |i: usize| op.body.ty(op.operand(i)).shape()[1];
    if is_by_channel(op) {
        let weights = op.is(op::tensor::CONV_WEIGHT_GRAD);
        let even = || is_spread_evenly(&Windows::of(window_sizes(op.body.ty(op.operand(1))).unwrap_or_default(), op));
        let sizes = || op.result_types()[0].static_shape().is_some();
        return op.operands().take(2).all(fits) && (weights || even() && sizes());
    }
    if !op.operands().take(2).all(fits) || !whole(channels(0)) {
        return false;
    }
    if op.is(op::tensor::CONV_WEIGHT_GRAD) {
        return whole(channels(1));
    }
    let window = || op.body.ty(op.operand(1)).static_shape().map(|w| w[2..].to_vec());
    let even = |w: Vec<i64>| {
        let windows = Windows::of(w, op);
        (0..windows.rank()).all(|i| windows.remainders(i).even)
    };
    (groups == 1 || channels(1).as_static().is_some_and(|n| n % CHANNELS == 0)) && window().is_some_and(even)
}

/// Whether each channel of a gradient is alone, with weights of its own for one or several results.
pub fn is_by_channel(op: OpRef) -> bool {
    let groups = Dim::Static(groups_of(op));
    let alone = match op.is(op::tensor::CONV_WEIGHT_GRAD) {
        true => op.body.ty(op.operand(0)).shape()[1] == groups,
        false => op.body.ty(op.operand(1)).shape()[1] == Dim::Static(1),
    };
    groups != Dim::Static(1) && alone
}

/// What `tensor.conv` with order = channels_last is.
pub fn define(b: &mut Builder, op: Op, windows: &Windows) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    if !supports(at) {
        return Err(at.unsupported("with channels last in groups").help("leave the order to the compiler"));
    }
    let (x, w, groups, least) = (at.operand(0), at.operand(1), groups_of(at), least_channels(at));
    let depthwise = groups > 1 && b.ty(w).shape()[1] == Dim::Static(1);
    let rank = windows.rank();
    if has_patches(at) {
        return Ok(vec![of_patches(b, op, windows)]);
    }
    let (mut x, mut w) = (to_last(b, x, rank), to_last(b, w, rank));
    if groups == 1 && has_units(b, op) {
        let unit = channels_together(windows, b.ty(x));
        (x, w) = (whole_channels(b, x, unit), whole_channels(b, w, unit));
    }
    let x = if depthwise { for_results(b, x, w) } else { x };
    let taken = windows.take_at(b, x, 1, 0.0);
    let places = b.ty(taken).shape()[..=rank].to_vec();
    let taken = window_rows(b, taken, rank);
    let y = match depthwise {
        true => {
            let y = by_channel(b, taken, w, rank as i64);
            with_bias(b, op, y)
        }
        false => {
            let bias = b.body.op_ref(op).group("bias").first().copied();
            let elem = b.ty(b.body.result(op, 0)).elem();
            multiplied(b, taken, w, rank, [groups, least], bias, elem)
        }
    };
    let channels = *b.ty(y).shape().last().expect("has channels");
    let y = b.reshape(y, &[places.as_slice(), &[channels]].concat());
    Ok(vec![to_first(b, y, rank)])
}

/// Whether the windows of a convolution are patches, side by side, with rows of several elements and whole [`COPIED`] bytes, of an image that is given with channels
/// first: nothing needs to turn it.
pub fn has_patches(op: OpRef) -> bool {
    let windows = Windows::of(window_sizes(op.body.ty(op.operand(1))).expect("verified"), op);
    let side_by_side = windows.strides == windows.sizes && windows.dilations.iter().all(|&d| d == 1);
    let row = *windows.sizes.last().expect("windows have dimensions");
    let bytes = row * op.operand_types()[0].elem().byte_width().unwrap_or(1) as i64;
    let rows = row >= CHANNELS && bytes % COPIED == 0;
    groups_of(op) == 1 && is_given(op.body, op.operand(0)) && side_by_side && rows
}

/// Whether a value lies in memory as its type says: an argument, or what elementwise operations make of one. Others may be views, or be computed in
/// another order.
fn is_given(body: &Body, x: Value) -> bool {
    let Some(op) = body.defining_op(x).map(|op| body.op_ref(op)) else { return true };
    op.has(Traits::ELEMENTWISE) && op.operands().next().is_some_and(|from| is_given(body, from))
}

/// A convolution with patches: their rows are `[channels, window]`, as the weights' are.
fn of_patches(b: &mut Builder, op: Op, windows: &Windows) -> Value {
    let at = b.body.op_ref(op);
    let (x, w, bias, rank) = (at.operand(0), at.operand(1), at.group("bias").first().copied(), windows.rank());
    let elem = b.ty(at.result(0)).elem();
    let taken = windows.take(b, x, 0.0, &[]);
    let shape = b.ty(taken).shape().to_vec();
    let (places, window) = (2..rank as i64 + 2, rank as i64 + 2..shape.len() as i64);
    let perm: Vec<i64> = [0].into_iter().chain(places).chain([1]).chain(window).collect();
    let patches = b.permute(taken, &perm);
    let y = multiplied(b, patches, w, rank, [1, 1], bias, elem);
    let y = b.reshape(y, &[&shape[..1], &shape[2..rank + 2], &b.ty(w).shape()[..1]].concat());
    to_first(b, y, rank)
}

/// What `tensor.conv_transpose` with order = channels_last is. With steps of s, s results along each dimension have the same windows of y, each
/// with weights of its own: they are so many times the results of one product, without the zeros between the elements of y. Results that
/// no window holds are not computed.
pub fn define_transpose(b: &mut Builder, op: Op, windows: &Windows) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    if !supports_gradient(at) {
        return Err(at.unsupported("with channels last").help("leave the order to the compiler"));
    }
    let (y, w, groups, rank) = (at.operand(0), at.operand(1), groups_of(at), windows.rank());
    let least = least_channels(at);
    let bias = at.group("bias").first().copied();
    let result = b.ty(b.body.result(op, 0));
    let sizes = result.shape()[2..].to_vec();
    if is_by_channel(at) {
        let x = transpose_by_channel(b, y, w, windows, &sizes, groups);
        return Ok(vec![with_bias(b, op, x)]);
    }
    let classes = Classes((0..rank).map(|i| windows.remainders(i)).collect());
    let units = has_units(b, op);
    let y = to_last(b, y, rank);
    let y = if groups == 1 && units { whole_channels(b, y, CHANNELS) } else { y };
    let mut low = vec![Dim::Static(0); rank + 2];
    let mut high = low.clone();
    for i in 0..rank {
        (low[1 + i], high[1 + i]) = classes.0[i].padding(sizes[i], b.ty(y).shape()[1 + i]);
    }
    let y = b.pad_or_crop(y, 0.0, &low, &high);
    let dims: Vec<i64> = (1..=rank as i64).collect();
    let (taps, apart): (Vec<i64>, Vec<i64>) = classes.0.iter().map(|c| (c.taps, c.apart)).unzip();
    let taken = b.window(y, &dims, &taps, &vec![1; rank], &apart);
    let counts = b.ty(taken).shape()[..=rank].to_vec();
    let taken = window_rows(b, taken, rank);
    // Where no weights are, the bias is all there is: it is added to all results once they are in their places.
    let dense = classes.number() == windows.strides.iter().product::<i64>();
    let own = bias.filter(|_| dense).map(|bias| classes.bias(b, bias, groups));
    let elem = if dense || bias.is_none() { result.elem() } else { default_acc(result.elem()) };
    let x = if units || groups > 1 {
        let w = classes.weights(b, w, groups);
        let w = if groups == 1 { whole_channels(b, w, CHANNELS) } else { w };
        multiplied(b, taken, w, rank, [groups, least], own, elem)
    } else {
        let w = classes.columns(b, w);
        let rows = in_groups(b, taken, rank, 1);
        let acc = default_acc(b.ty(w).elem());
        let y = b.contract(rows, w, [&[], &[]], [&[1], &[0]], acc);
        finished(b, y, &[1], own, elem)
    };
    let x = classes.places(b, x, &counts, &sizes, groups);
    let x = to_first(b, x, rank);
    Ok(vec![if dense { x } else { with_bias(b, op, x) }])
}

/// What `tensor.conv_weight_grad` with order = channels_last is: a product whose sums go over all places of all images.
pub fn define_weight_grad(b: &mut Builder, op: Op, windows: &Windows) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    if !supports_gradient(at) {
        return Err(at.unsupported("with channels last").help("leave the order to the compiler"));
    }
    let (x, y, groups, rank) = (at.operand(0), at.operand(1), groups_of(at), windows.rank());
    let result = b.ty(b.body.result(op, 0));
    let (x, y) = (to_last(b, x, rank), to_last(b, y, rank));
    let units = has_units(b, op);
    let x = if groups == 1 && units { whole_channels(b, x, CHANNELS) } else { x };
    let ys = b.ty(y).shape().to_vec();
    let taken = windows.take_at(b, x, 1, 0.0);
    let mut shape = b.ty(taken).shape().to_vec();
    shape[1..=rank].copy_from_slice(&ys[1..=rank]);
    let taken = if b.ty(taken).shape().as_slice() == shape {
        taken
    } else {
        b.slice(taken, &vec![Dim::Static(0); shape.len()], &shape)
    };
    if is_by_channel(b.body.op_ref(op)) {
        let w = sums_by_channel(b, y, taken, rank);
        let w = b.reshape(w, result.shape().as_slice());
        return Ok(vec![b.convert(w, result.elem())]);
    }
    let taken = window_rows(b, taken, rank);
    let (outs, per) = (ys[rank + 1], shape[1 + rank].floordiv(Dim::Static(groups)));
    let w = match units {
        true => summed_rows(b, y, taken, rank, groups, result.elem()),
        false => summed_products(b, y, taken, rank, groups, result.elem()),
    };
    let window: Vec<Dim> = windows.sizes.iter().map(|&s| Dim::Static(s)).collect();
    let w = b.reshape(w, &[&[outs], window.as_slice(), &[per]].concat());
    let w = to_first(b, w, rank);
    let wanted = result.shape().to_vec();
    let zero = vec![Dim::Static(0); wanted.len()];
    Ok(vec![if b.ty(w).shape().as_slice() == wanted { w } else { b.slice(w, &zero, &wanted) }])
}

/// A transposed convolution of each channel alone, `y` being `[n, o, counts..]`: the result is `[n, c, sizes..]`, in the type for sums.
fn transpose_by_channel(b: &mut Builder, y: Value, w: Value, windows: &Windows, sizes: &[Dim], channels: i64) -> Value {
    let rank = windows.rank();
    let (own, sizes) = spread_weights(b, w, windows, sizes, true).expect("supported");
    let y = to_last(b, y, rank);
    let taken = windows.near(b, y, 1, &sizes);
    let taken = window_rows(b, taken, rank);
    let taken = b.convert(taken, b.ty(own).elem());
    let space = b.ty(taken).shape().to_vec();
    let own = b.broadcast(own, &space, &(1..space.len() as i64).collect::<Vec<_>>());
    let products = b.binary("mul", taken, own);
    let last = space.len() - 1;
    let own = [&space[..last], &own_results(Dim::Static(channels), space[last])].concat();
    let products = b.reshape(products, &own);
    let (taps, results) = (1 + rank as i64..last as i64, 1 + last as i64..own.len() as i64);
    let sums = b.reduce("add", products, &taps.chain(results).collect::<Vec<_>>());
    to_first(b, sums, rank)
}

/// The sums over all images and places of `y`, `[n, places.., o]`, times windows of its channel, `[n, places.., c, window..]`: `[c, o / c, window..]`, in the
/// type for sums.
fn sums_by_channel(b: &mut Builder, y: Value, taken: Value, rank: usize) -> Value {
    let (shape, acc) = (b.ty(taken).shape().to_vec(), default_acc(b.ty(y).elem()));
    let (places, window, each) =
        (&shape[..=rank], &shape[2 + rank..], own_results(shape[1 + rank], b.ty(y).shape()[1 + rank]));
    let space = [places, &each, window].concat();
    let (rank, given) = (rank as i64, (rank + 1 + each.len()) as i64);
    let taken = b.convert(taken, acc);
    let taken = b.broadcast(taken, &space, &(0..rank + 2).chain(given..space.len() as i64).collect::<Vec<_>>());
    let y = b.convert(y, acc);
    let y = b.reshape(y, &space[..given as usize]);
    let y = b.broadcast(y, &space, &(0..given).collect::<Vec<_>>());
    let products = b.binary("mul", taken, y);
    b.reduce("add", products, &(0..=rank).collect::<Vec<_>>())
}

/// The sums over all images and places of `y`, `[n, places.., o]`, times windows `[n, places.., window.., c]`: o, window and c / groups, by groups where there are
/// several. Matrix units sum in rows of all places.
fn summed_rows(b: &mut Builder, y: Value, taken: Value, rank: usize, groups: i64, elem: Type) -> Value {
    let (ys, g) = (b.ty(y).shape().to_vec(), Dim::Static(groups));
    let (rows, outs) = (product(&ys[..=rank]), ys[rank + 1].floordiv(g));
    let y = b.reshape(y, &[rows, g, outs]);
    let y = if groups > 1 { b.permute(y, &[1, 0, 2]) } else { b.reshape(y, &[rows, outs]) };
    let columns = in_groups(b, taken, rank, groups);
    let batch: &[i64] = if groups > 1 { &[0] } else { &[] };
    let down: &[i64] = if groups > 1 { &[1] } else { &[0] };
    b.contract(y, columns, [batch, batch], [down, down], elem)
}

/// The same for vectors: one is read where it is if the sum goes along each dimension of places.
fn summed_products(b: &mut Builder, y: Value, taken: Value, rank: usize, groups: i64, elem: Type) -> Value {
    let (ys, shape, g) = (b.ty(y).shape().to_vec(), b.ty(taken).shape().to_vec(), Dim::Static(groups));
    let (places, outs) = (&ys[..=rank], ys[rank + 1].floordiv(g));
    let y = b.reshape(y, &[places, &[g, outs]].concat());
    let (window, channels) = (&shape[..=2 * rank], shape[1 + 2 * rank].floordiv(g));
    let taken = b.reshape(taken, &[window, &[g, channels]].concat());
    let down: Vec<i64> = (0..=rank as i64).collect();
    b.contract(y, taken, [&[1 + rank as i64], &[1 + 2 * rank as i64]], [&down, &down], elem)
}

/// `[n, c, sizes..]` as `[n, sizes.., c]`.
fn to_last(b: &mut Builder, x: Value, rank: usize) -> Value {
    let perm: Vec<i64> = [0].into_iter().chain(2..2 + rank as i64).chain([1]).collect();
    b.permute(x, &perm)
}
/// `[n, sizes.., c]` as `[n, c, sizes..]`.
fn to_first(b: &mut Builder, x: Value, rank: usize) -> Value {
    let perm: Vec<i64> = [0, 1 + rank as i64].into_iter().chain(1..=rank as i64).collect();
    b.permute(x, &perm)
}
/// `[n, places.., c, window..]` as `[n, places.., window.., c]`.
fn window_rows(b: &mut Builder, taken: Value, rank: usize) -> Value {
    let rank = rank as i64;
    let perm: Vec<i64> = (0..=rank).chain(2 + rank..2 + 2 * rank).chain([1 + rank]).collect();
    b.permute(taken, &perm)
}

/// Whether matrix units multiply a convolution's elements: those of 16 bits, and f32 that may be rounded. They multiply by weights in rows, `[results, k]`; vectors by
/// columns side by side, `[k, results]`.
fn has_units(b: &Builder, op: Op) -> bool {
    b.ty(b.body.operand(op, 0)).elem().byte_width() == Some(2) || b.body.attr(op, PRECISION.name).is_some()
}

/// How many channels of `[n, sizes.., c]` come together. Those that are no multiple of four are copied in any case.
fn channels_together(windows: &Windows, x: Type) -> i64 {
    let shape = x.shape();
    let Some(channels) = shape.last().and_then(|c| c.as_static()).filter(|&c| c > CHANNELS) else { return CHANNELS };
    let often = windows.sizes.iter().product::<i64>() >= OFTEN * windows.strides.iter().product::<i64>();
    let narrow = x.elem().byte_width() == Some(2);
    if narrow && (channels % CHANNELS != 0 || often) { WIDE_CHANNELS } else { CHANNELS }
}

/// The tensor with zeros after the channels, its last dimension, to a multiple of `unit`.
fn whole_channels(b: &mut Builder, x: Value, unit: i64) -> Value {
    let rank = b.ty(x).rank();
    let channels = b.ty(x).shape()[rank - 1].as_static().unwrap_or(0);
    let mut more = vec![Dim::Static(0); rank];
    more[rank - 1] = Dim::Static((unit - channels % unit) % unit);
    b.pad_or_crop(x, 0.0, &vec![Dim::Static(0); rank], &more)
}

/// Windows `[n, places.., window.., c]` as a matrix `[rows, window * c]`, or one for each group.
fn in_groups(b: &mut Builder, taken: Value, rank: usize, groups: i64) -> Value {
    let shape = b.ty(taken).shape().to_vec();
    let (rows, window) = (product(&shape[..=rank]), product(&shape[1 + rank..1 + 2 * rank]));
    let channels = shape[1 + 2 * rank];
    if groups == 1 {
        return b.reshape(taken, &[rows, window * channels]);
    }
    let (g, each) = (Dim::Static(groups), channels.floordiv(Dim::Static(groups)));
    let split = b.reshape(taken, &[rows, window, g, each]);
    let split = b.permute(split, &[2, 0, 1, 3]);
    b.reshape(split, &[g, rows, window * each])
}

/// The product of windows `[n, places.., window.., c]` with weights `[o, window.., c / groups]`, and the bias: `[n * places, o]`, rounded.
/// `groups` are how many there are, and how many channels one has at least.
fn multiplied(
    b: &mut Builder,
    taken: Value,
    w: Value,
    rank: usize,
    [groups, least]: [i64; 2],
    bias: Option<Value>,
    elem: Type,
) -> Value {
    let acc = default_acc(b.ty(w).elem());
    let (w, groups) = wide_groups(b, w, groups, least);
    let ws = b.ty(w).shape().to_vec();
    let rows = in_groups(b, taken, rank, groups);
    let (g, length) = (Dim::Static(groups), product(&ws[1..]));
    let each = ws[0].floordiv(g);
    let y = if groups == 1 {
        let w = b.reshape(w, &[ws[0], length]);
        b.contract(rows, w, [&[], &[]], [&[1], &[1]], acc)
    } else {
        let w = b.reshape(w, &[g, each, length]);
        b.contract(rows, w, [&[0], &[0]], [&[2], &[2]], acc)
    };
    let y = finished(b, y, if groups == 1 { &[1] } else { &[0, 2] }, bias, elem);
    if groups == 1 {
        return y;
    }
    let rows = b.ty(y).shape()[1];
    let y = b.permute(y, &[1, 0, 2]);
    b.reshape(y, &[rows, ws[0]])
}

/// The sums with the bias, whose elements lie along these dimensions, rounded.
fn finished(b: &mut Builder, sums: Value, along: &[i64], bias: Option<Value>, elem: Type) -> Value {
    let y = match bias {
        None => sums,
        Some(bias) => {
            let (whole, acc) = (b.ty(sums).shape().to_vec(), b.ty(sums).elem());
            let shape: Vec<Dim> = along.iter().map(|&d| whole[d as usize]).collect();
            let bias = b.reshape(bias, &shape);
            let bias = b.convert(bias, acc);
            let bias = b.broadcast(bias, &whole, along);
            b.binary("add", sums, bias)
        }
    };
    b.convert(y, elem)
}

/// Weights `[o, window.., c]` of groups with fewer than `least` channels as those of fewer groups with more, and how many these are.
fn wide_groups(b: &mut Builder, w: Value, groups: i64, least: i64) -> (Value, i64) {
    let shape = b.ty(w).shape().to_vec();
    let (last, each) = (shape.len() - 1, shape[shape.len() - 1].as_static().unwrap_or(least));
    let joined = (1..=groups).find(|&n| groups % n == 0 && n * each >= least).unwrap_or(groups);
    if groups == 1 || joined == 1 {
        return (w, groups);
    }
    let (left, n) = (Dim::Static(groups / joined), Dim::Static(joined));
    let outs = shape[0].floordiv(Dim::Static(groups));
    // [left, n, outs, window.., c] to [left, n, outs, window.., n, c], zero where both n differ.
    let window = &shape[1..last];
    let split = b.reshape(w, &[&[left, n, outs], window, &[shape[last]]].concat());
    let wide = [&[left, n, outs], window, &[n, shape[last]]].concat();
    let kept: Vec<i64> = (0..wide.len() as i64).filter(|&d| d != wide.len() as i64 - 2).collect();
    let split = b.broadcast(split, &wide, &kept);
    let (own, other) = (iota(b, &wide, 1), iota(b, &wide, wide.len() - 2));
    let same = b.op(op::core::COMPARE).operands(&[own, other]).attr("kind", Attr::str("eq")).value();
    let ty = b.ty(split);
    let zero = b.splat(0.0, ty);
    let w = b.op(op::core::SELECT).operands(&[same, split, zero]).value();
    let w = b.reshape(w, &[&[shape[0]], window, &[n * shape[last]]].concat());
    (w, groups / joined)
}

/// Channels, the last dimension, repeated for as many results as the weights `[o, window.., 1]` give each of them.
fn for_results(b: &mut Builder, x: Value, w: Value) -> Value {
    let (mut shape, results) = (b.ty(x).shape().to_vec(), b.ty(w).shape()[0]);
    let rank = shape.len();
    let channels = shape[rank - 1];
    if channels == results {
        return x;
    }
    shape.push(results.floordiv(channels));
    let x = b.broadcast(x, &shape, &(0..rank as i64).collect::<Vec<_>>());
    shape.truncate(rank - 1);
    b.reshape(x, &[shape.as_slice(), &[results]].concat())
}

/// Where every channel has weights of its own, windows `[n, places.., window.., c]` and weights `[c, window.., 1]`.
fn by_channel(b: &mut Builder, taken: Value, w: Value, rank: i64) -> Value {
    let (shape, ws) = (b.ty(taken).shape().to_vec(), b.ty(w).shape().to_vec());
    let acc = default_acc(b.ty(w).elem());
    let w = b.reshape(w, &ws[..=rank as usize]);
    let w = b.permute(w, &(1..=rank).chain([0]).collect::<Vec<_>>());
    let w = b.convert(w, acc);
    let w = b.broadcast(w, &shape, &(1 + rank..2 + 2 * rank).collect::<Vec<_>>());
    let taken = b.convert(taken, acc);
    let products = b.binary("mul", taken, w);
    let sums = b.reduce("add", products, &(1 + rank..1 + 2 * rank).collect::<Vec<_>>());
    let rows = product(&shape[..=rank as usize]);
    b.reshape(sums, &[rows, ws[0]])
}

/// The results of a transposed convolution by their remainders, along each dimension.
struct Classes(Vec<Remainders>);

impl Classes {
    fn number(&self) -> i64 {
        self.0.iter().map(|c| c.classes).product()
    }
    /// Weights `[o, c / groups, window..]` as `[groups * classes * c / groups, taps.., o / groups]`, taps from last to first.
    fn weights(&self, b: &mut Builder, w: Value, groups: i64) -> Value {
        let [g, outs, c] = [Dim::Static(groups), b.ty(w).shape()[0].floordiv(Dim::Static(groups)), b.ty(w).shape()[1]];
        let (w, taps, own) = self.split(b, w, groups);
        let perm = [&[0], own.as_slice(), &[2], taps.as_slice(), &[1]].concat();
        let w = b.permute(w, &perm);
        b.reshape(w, &[&[g * Dim::Static(self.number()) * c], self.taps().as_slice(), &[outs]].concat())
    }
    /// The same of one group as a matrix `[taps * o, classes * c]`.
    fn columns(&self, b: &mut Builder, w: Value) -> Value {
        let [outs, c] = [b.ty(w).shape()[0], b.ty(w).shape()[1]];
        let (w, taps, own) = self.split(b, w, 1);
        let perm = [taps.as_slice(), &[0, 1], own.as_slice(), &[2]].concat();
        let w = b.permute(w, &perm);
        b.reshape(w, &[product(&self.taps()) * outs, Dim::Static(self.number()) * c])
    }
    fn taps(&self) -> Vec<Dim> {
        self.0.iter().map(|c| Dim::Static(c.taps)).collect()
    }
    /// Weights as `[groups, o / groups, c / groups, taps, classes, ..]`, taps from last to first, and which dimensions taps and classes are.
    fn split(&self, b: &mut Builder, w: Value, groups: i64) -> (Value, Vec<i64>, Vec<i64>) {
        let (rank, shape) = (self.0.len(), b.ty(w).shape().to_vec());
        let mut high = vec![Dim::Static(0); rank + 2];
        for (i, c) in self.0.iter().enumerate() {
            high[2 + i] = Dim::Static(c.taps * c.classes) - shape[2 + i];
        }
        let w = b.pad_or_crop(w, 0.0, &vec![Dim::Static(0); rank + 2], &high);
        let (g, outs) = (Dim::Static(groups), shape[0].floordiv(Dim::Static(groups)));
        let split = self.0.iter().flat_map(|c| [Dim::Static(c.taps), Dim::Static(c.classes)]);
        let split: Vec<Dim> = [g, outs, shape[1]].into_iter().chain(split).collect();
        let w = b.reshape(w, &split);
        let [taps, own] = [3, 4].map(|first| (0..rank as i64).map(|i| first + 2 * i).collect::<Vec<_>>());
        let w = b.op(op::core::REVERSE).operand(w).attr("dims", Attr::i64s(&taps)).value();
        (w, taps, own)
    }
    /// The bias of all classes.
    fn bias(&self, b: &mut Builder, bias: Value, groups: i64) -> Value {
        let (g, each) = (Dim::Static(groups), b.ty(bias).shape()[0].floordiv(Dim::Static(groups)));
        let number = Dim::Static(self.number());
        let split = b.reshape(bias, &[g, each]);
        let all = b.broadcast(split, &[g, number, each], &[0, 2]);
        b.reshape(all, &[g * number * each])
    }
    /// `[rows, groups * classes * each]` as `[n, sizes.., channels]`, `counts` are n and how many rows there are along each dimension. Zero where
    /// no class is.
    fn places(&self, b: &mut Builder, x: Value, counts: &[Dim], sizes: &[Dim], groups: i64) -> Value {
        let rank = self.0.len();
        let g = Dim::Static(groups);
        let each = b.ty(x).shape()[1].floordiv(g * Dim::Static(self.number()));
        let classes: Vec<Dim> = self.0.iter().map(|c| Dim::Static(c.classes)).collect();
        let x = b.reshape(x, &[counts, &[g], classes.as_slice(), &[each]].concat());
        let mut perm: Vec<i64> = vec![0];
        (0..rank as i64).for_each(|i| perm.extend([1 + i, 2 + rank as i64 + i]));
        perm.extend([1 + rank as i64, 2 + 2 * rank as i64]);
        let x = if self.number() > 1 { b.permute(x, &perm) } else { x };
        // [n, count, classes, 1, count, .., channels]; after a class come places without any, and after the last one, too.
        let split = self.0.iter().zip(&counts[1..]).flat_map(|(c, &n)| [n, Dim::Static(c.classes), Dim::Static(1)]);
        let split: Vec<Dim> = [counts[0]].into_iter().chain(split).chain([g * each]).collect();
        let x = b.reshape(x, &split);
        let mut high = vec![Dim::Static(0); split.len()];
        for (i, c) in self.0.iter().enumerate() {
            high[2 + 3 * i] = Dim::Static(c.stride / c.common - c.classes);
            high[3 + 3 * i] = Dim::Static(c.common - 1);
        }
        let x = b.pad_or_crop(x, 0.0, &vec![Dim::Static(0); split.len()], &high);
        let all = self.0.iter().zip(&counts[1..]).map(|(c, &n)| n * Dim::Static(c.stride));
        let wide: Vec<Dim> = [counts[0]].into_iter().chain(all).chain([g * each]).collect();
        let x = b.reshape(x, &wide);
        let zero = Dim::Static(0);
        let first: Vec<Dim> =
            [zero].into_iter().chain(self.0.iter().map(|c| Dim::Static(c.first))).chain([zero]).collect();
        let shape = [&counts[..1], sizes, &[g * each]].concat();
        if wide == shape { x } else { b.slice(x, &first, &shape) }
    }
}
