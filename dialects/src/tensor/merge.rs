//! Sorting long rows: short sorted runs, then pairs of runs merged until there is one.
//!
//! Each element of a merged run is found by itself: of the first p elements, as many come from the left run as a binary search along the
//! p-th diagonal says (Odeh, Green, Mwassi, Shmueli and Birk, "Merge Path", 2012). So a merge is a pass over all elements at once, on any
//! machine, and equal keys stay in their order.

use crate::builder::CoreBuilder;
use crate::core::sort::SORT;
use crate::op;
use rc_ir::{Attr, Builder, Dim, Type, Value};

/// For integer keys [.., n] the i32 places that they are sorted from, of n elements or more: what is beyond n stands at the end.
/// `greatest` is the greatest key, and runs of `run` elements, a power of two, are sorted by `core.sort`.
pub fn sorted(b: &mut Builder, keys: Value, greatest: Attr, run: i64) -> Value {
    let shape = b.ty(keys).shape().to_vec();
    let lead = &shape[..shape.len() - 1];
    let n = shape[lead.len()].as_static().expect("a fixed length");
    let runs = (n + run - 1) / run;
    let line = |m: i64| [lead, &[Dim::Static(m)]].concat();
    let padded = filled(b, keys, greatest, runs * run - n);
    let (mut keys, mut places) = sorted_runs(b, padded, lead, runs, run);
    let mut width = run;
    while width < n {
        let from = merge(b, keys, &line(runs * run), width);
        (keys, places) = (along(b, keys, from), along(b, places, from));
        width *= 2;
    }
    places
}

/// The keys with `count` of the greatest after them.
fn filled(b: &mut Builder, keys: Value, greatest: Attr, count: i64) -> Value {
    if count == 0 {
        return keys;
    }
    let ty = b.ty(keys);
    let mut shape = ty.shape().to_vec();
    *shape.last_mut().expect("a dimension") = Dim::Static(count);
    let fill = b.op(op::core::CONSTANT).attr("value", greatest).result(ty.elem()).value();
    let fill = b.broadcast(fill, &shape, &[]);
    b.concat(&[keys, fill], shape.len() as i64 - 1)
}

/// Sorts each run; gives the keys in that order and the places that they had.
fn sorted_runs(b: &mut Builder, keys: Value, lead: &[Dim], runs: i64, run: i64) -> (Value, Value) {
    let whole = b.ty(keys).shape().to_vec();
    let shape = [lead, &[Dim::Static(runs), Dim::Static(run)]].concat();
    let keys = b.reshape(keys, &shape);
    let sort = b.op(&SORT).operand(keys).build();
    let [sorted, at] = [0, 1].map(|i| b.body.result(sort, i));
    let at = b.convert(at, Type::int(32));
    let start = count(b, &shape, lead.len());
    let start = b.binary_scalar("mul", start, run as f64);
    let places = b.binary("add", at, start);
    (b.reshape(sorted, &whole), b.reshape(places, &whole))
}

/// For sorted runs of `width`, the last perhaps shorter, the place that each element of the merged pairs comes from.
fn merge(b: &mut Builder, keys: Value, shape: &[Dim], width: i64) -> Value {
    let last = shape.len() - 1;
    let size = shape[last].as_static().expect("a fixed length");
    let number = |b: &mut Builder, value: i64| constant(b, value, shape);
    let (zero, full, end) = (number(b, 0), number(b, width), number(b, size));
    let place = count(b, shape, last);
    let pair = number(b, !(2 * width - 1));
    let start = b.binary("and", place, pair);
    let p = b.binary("sub", place, start);
    // The lengths of the left and the right run, and where the right one starts.
    let rest = b.binary("sub", end, start);
    let left = b.binary("min", rest, full);
    let rest = b.binary("sub", rest, left);
    let right = b.binary("min", rest, full);
    let middle = b.binary("add", start, full);
    // How many of the first p come from the left run: the greatest number whose last element is not after what the rest would end with.
    let fewest = b.binary("sub", p, right);
    let mut taken = b.binary("max", fewest, zero);
    let most = b.binary("min", p, left);
    let before_start = b.binary_scalar("sub", start, 1.0);
    let right_p = b.binary("add", middle, p);
    let mut step = width;
    while step > 0 {
        let more = b.binary_scalar("add", taken, step as f64);
        let allowed = b.compare("le", more, most);
        let more = b.binary("min", more, most);
        let mine = b.binary("add", before_start, more);
        let mine = b.binary("max", mine, zero);
        let mine = along(b, keys, mine);
        let theirs = b.binary("sub", right_p, more);
        let theirs = element(b, keys, theirs, size);
        let not_after = b.compare("le", mine, theirs);
        let up = b.binary("and", allowed, not_after);
        taken = b.select(up, more, taken);
        step /= 2;
    }
    // The next of the left run, where there is one and the right run has none before it.
    let other = b.binary("sub", p, taken);
    let (from_left, from_right) = (b.binary("add", start, taken), b.binary("add", middle, other));
    let (mine, theirs) = (element(b, keys, from_left, size), element(b, keys, from_right, size));
    let not_after = b.compare("le", mine, theirs);
    let right_done = b.compare("ge", other, right);
    let first = b.binary("or", right_done, not_after);
    let left_open = b.compare("lt", taken, left);
    let first = b.binary("and", left_open, first);
    b.select(first, from_left, from_right)
}

/// The key at a place, or the last one where that is beyond.
fn element(b: &mut Builder, keys: Value, at: Value, size: i64) -> Value {
    let shape = b.ty(at).shape().to_vec();
    let last = constant(b, size - 1, &shape);
    let at = b.binary("min", at, last);
    along(b, keys, at)
}

/// Elements of the last dimension by their places in it.
pub fn along(b: &mut Builder, x: Value, at: Value) -> Value {
    let batch = b.ty(x).rank() as i64 - 1;
    let gather = b.op(op::core::GATHER).operands(&[x, at]);
    gather.attr("axis", Attr::i64(batch)).attr("batch", Attr::i64(batch)).value()
}

/// The i32 number of each element along a dimension.
pub fn count(b: &mut Builder, shape: &[Dim], dim: usize) -> Value {
    b.op(op::core::IOTA).attr("dim", Attr::i64(dim as i64)).result(Type::tensor(shape, Type::int(32))).value()
}

fn constant(b: &mut Builder, value: i64, shape: &[Dim]) -> Value {
    b.splat(value as f64, Type::tensor(shape, Type::int(32)))
}
