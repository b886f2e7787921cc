//! Convolutions computed with channels last: every window is a row `[window, channels]` of contiguous pieces, and the product with
//! the weights has all images' places as its rows, `[images * places, o]`. What matrix units and copy engines want.

use super::conv::with_bias;
use super::spatial::{Windows, groups_of, product};
use crate::builder::CoreBuilder;
use crate::constraints::default_acc;
use rc_ir::{Builder, Dim, Op, OpRef, Result, Value};

/// Rows are padded to whole multiples of so many elements, as copy engines take rows of 16 bytes only.
const ALIGNMENT: i64 = 8;

/// Whether a convolution can be computed so: one group, or one for each channel with one result each.
pub fn supports(op: OpRef) -> bool {
    let w = op.body.ty(op.operand(1)).shape();
    let groups = groups_of(op);
    let length = product(&w[1..]).as_static();
    length.is_some() && (groups == 1 || w[1] == Dim::Static(1) && w[0] == Dim::Static(groups))
}

/// What `tensor.conv` with order = channels_last is.
pub fn define(b: &mut Builder, op: Op, windows: &Windows) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    if !supports(at) {
        return Err(at.unsupported("with channels last in groups").help("leave the order to the compiler"));
    }
    let (x, w, depthwise) = (at.operand(0), at.operand(1), groups_of(at) > 1);
    let rank = windows.rank() as i64;
    let last: Vec<i64> = [0].into_iter().chain(2..2 + rank).chain([1]).collect();
    let x = b.permute(x, &last);
    let taken = windows.take_at(b, x, 1, 0.0);
    // [n, places.., c, window..] to [n, places.., window.., c].
    let perm: Vec<i64> = (0..=rank).chain(2 + rank..2 + 2 * rank).chain([1 + rank]).collect();
    let taken = b.permute(taken, &perm);
    let w = b.permute(w, &last);
    let y = if depthwise { by_channel(b, taken, w, rank) } else { multiplied(b, taken, w, rank) };
    let y = with_bias(b, op, y);
    let shape = b.ty(taken).shape()[..=rank as usize].to_vec();
    let channels = *b.ty(y).shape().last().expect("has channels");
    let y = b.reshape(y, &[shape.as_slice(), &[channels]].concat());
    let first: Vec<i64> = [0, 1 + rank].into_iter().chain(1..=rank).collect();
    Ok(vec![b.permute(y, &first)])
}

/// The product of windows `[n, places.., window.., c]` with weights `[o, window.., c]`: `[n * places, o]`, in the type for sums.
fn multiplied(b: &mut Builder, taken: Value, w: Value, rank: i64) -> Value {
    let (shape, ws) = (b.ty(taken).shape().to_vec(), b.ty(w).shape().to_vec());
    let acc = default_acc(b.ty(w).elem());
    let (rows, length) = (product(&shape[..=rank as usize]), product(&ws[1..]));
    let rows = b.reshape(taken, &[rows, length]);
    let w = b.reshape(w, &[ws[0], length]);
    let short = length.as_static().map_or(0, |n| (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT);
    let (zero, more) = (Dim::Static(0), Dim::Static(short));
    let rows = b.pad_or_crop(rows, 0.0, &[zero, zero], &[zero, more]);
    let w = b.pad_or_crop(w, 0.0, &[zero, zero], &[zero, more]);
    b.contract(rows, w, [&[], &[]], [&[1], &[1]], acc)
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
