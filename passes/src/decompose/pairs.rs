//! Convolutions of images, three or four channels, with steps of two along the last dimension: neighbours along it are one place of twice the channels, so
//! that what a GPU copies at once has 16 bytes and not 8.

use rc_dialects::builder::CoreBuilder;
use rc_ir::{Attr, Body, Builder, Dim, Op};

/// Channels of a place, with zeros after an image's.
const CHANNELS: i64 = 4;

/// A window's elements along the last dimension, by pairs. With `odd`, windows start with the second of one.
struct Pairs {
    odd: i64,
    taps: i64,
    /// Pairs of zeros before and after.
    low: i64,
    high: i64,
}

impl Pairs {
    /// Of windows of `size` elements with steps of two over `width` elements and `padding` on both sides.
    fn of(size: i64, width: i64, padding: i64) -> Pairs {
        let odd = padding % 2;
        let (low, taps) = ((padding + odd) / 2, (size + odd + 1) / 2);
        let count = (width + 2 * padding - size) / 2 + 1;
        Pairs { odd, taps, low, high: count - 1 + taps - width / 2 - low }
    }
}

/// Makes a convolution one over pairs, where it has 16-bit elements and fixed sizes; whether it did.
pub fn take_pairs(body: &mut Body, op: Op) -> bool {
    let at = body.op_ref(op);
    let (x, w) = (at.operand(0), at.operand(1));
    let [Some(from), Some(weights)] = [x, w].map(|v| body.ty(v).static_shape()) else { return false };
    let rank = from.len() - 2;
    let ints = |name: &str, default: i64| at.ints(name).unwrap_or_else(|| vec![default; rank]);
    let (mut steps, padding, dilations) = (ints("strides", 1), ints("padding", 0), ints("dilations", 1));
    let [channels, width, size] = [weights[1], from[rank + 1], weights[rank + 1]];
    let fits = body.ty(x).elem().byte_width() == Some(2) && at.int("groups").unwrap_or(1) == 1;
    let few = channels == CHANNELS || channels == CHANNELS - 1;
    let halves = steps[rank - 1] == 2 && dilations[rank - 1] == 1 && size > 1 && width % 2 == 0;
    if !fits || !few || !halves || padding.iter().any(|&p| p < 0) {
        return false;
    }
    let pairs = Pairs::of(size, width, padding[rank - 1]);
    steps[rank - 1] = 1;
    let last: Vec<i64> = [0].into_iter().chain(2..2 + rank as i64).chain([1]).collect();
    let first: Vec<i64> = [0, 1 + rank as i64].into_iter().chain(1..=rank as i64).collect();
    let mut b = Builder::before(body, op);
    let none = || vec![0; rank + 2];
    let mut in_pairs = |value, low: i64, high: i64| {
        let value = b.permute(value, &last);
        let (mut before, mut after) = (none(), none());
        (before[rank], after[rank], after[rank + 1]) = (low, high, CHANNELS - channels);
        let value = b.pad_or_crop(value, 0.0, &sizes(&before), &sizes(&after));
        let mut shape = b.ty(value).shape().to_vec();
        shape[rank] = shape[rank].floordiv(Dim::Static(2));
        shape[rank + 1] = Dim::Static(2 * CHANNELS);
        b.reshape(value, &shape)
    };
    let (x, w) = (in_pairs(x, 0, 0), in_pairs(w, pairs.odd, 2 * pairs.taps - size - pairs.odd));
    let (mut before, mut after) = (none(), none());
    before[1..=rank].copy_from_slice(&padding);
    after[1..=rank].copy_from_slice(&padding);
    (before[rank], after[rank]) = (pairs.low, pairs.high);
    let x = b.pad_or_crop(x, 0.0, &sizes(&before), &sizes(&after));
    let (x, w) = (b.permute(x, &first), b.permute(w, &first));
    body.set_operand(op, 0, x);
    body.set_operand(op, 1, w);
    body.set_attr(op, "strides", Attr::i64s(&steps));
    body.set_attr(op, "padding", Attr::i64s(&vec![0; rank]));
    true
}

fn sizes(of: &[i64]) -> Vec<Dim> {
    of.iter().map(|&n| Dim::Static(n)).collect()
}
