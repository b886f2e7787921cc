//! The derivatives of `core.reduce` and `core.scan`.

use super::reduce::SCAN;
use super::shape::inverse;
use crate::builder::CoreBuilder;
use crate::derivative::{Vjp, splat_like, where_or_zero, wide, zeros_like};
use crate::op;
use rc_ir::{Attr, Builder, Dim, Result, Type, Value};

pub fn reduce_vjp(v: &mut Vjp) -> Result {
    let (g, x, y) = (v.g(), v.operand(0), v.result(0));
    let (shape, dims) = (v.ty(x).shape(), v.at().ints("dims").unwrap_or_default());
    let kept: Vec<i64> = (0..shape.len() as i64).filter(|d| !dims.contains(d)).collect();
    match v.at().str("kind").unwrap_or_default() {
        "add" => v.give_with(0, |v| v.broadcast(g, &shape, &kept)),
        "mul" => v.give_with(0, |v| of_product(v, &dims, &kept)),
        _ => v.give_with(0, |v| {
            let reached = v.broadcast(y, &shape, &kept);
            let equal = v.compare("eq", x, reached);
            let wide = wide(v.ty(x));
            let count = v.convert(equal, wide);
            let count = v.reduce("add", count, &dims);
            let (g, elem) = (v.convert(g, wide), v.ty(g).elem());
            let share = v.binary("div", g, count);
            let share = v.convert(share, elem);
            let share = v.broadcast(share, &shape, &kept);
            where_or_zero(v, equal, share)
        }),
    }
    Ok(())
}

/// g times the product of the other factors: with one zero among them the product of the rest, with more zero.
fn of_product(v: &mut Vjp, dims: &[i64], kept: &[i64]) -> Value {
    let (x, elem) = (v.operand(0), v.ty(v.operand(0)).elem());
    let (shape, wide) = (v.ty(x).shape(), wide(v.ty(x)));
    let g = v.g();
    let g = v.convert(g, wide);
    let x = v.convert(x, wide);
    let (one, zero) = (splat_like(v, 1.0, x), zeros_like(v, x));
    let is_zero = v.compare("eq", x, zero);
    let filled = v.select(is_zero, one, x);
    let own = v.convert(is_zero, Type::i64());
    let (rest, zeros) = (v.reduce("mul", filled, dims), v.reduce("add", own, dims));
    let rest = v.binary("mul", g, rest);
    let (rest, zeros) = (v.broadcast(rest, &shape, kept), v.broadcast(zeros, &shape, kept));
    let others = v.compare("eq", zeros, own);
    let rest = v.binary("div", rest, filled);
    let gradient = where_or_zero(v, others, rest);
    v.convert(gradient, elem)
}

/// A scan's attributes, and scans of other values along the same dimension.
#[derive(Clone, Copy)]
struct Scan {
    dim: usize,
    reverse: bool,
    acc: Option<Attr>,
}

impl Scan {
    fn of(self, b: &mut Builder, kind: &str, x: Value, reverse: bool) -> Value {
        let acc = self.acc.filter(|_| b.ty(x).elem().is_float());
        let op = b.op(&SCAN).operand(x).attr("dim", Attr::i64(self.dim as i64)).attr("kind", Attr::str(kind));
        op.attr("reverse", Attr::bool(reverse)).maybe_attr("acc", acc).value()
    }
    /// Everything one place further along the scan, the first place filled with `value`; or, `back`, one place back and the last place filled.
    fn shift(self, b: &mut Builder, x: Value, value: f64, back: bool) -> Value {
        let (one, rank) = (Dim::Static(1), b.ty(x).rank());
        let (mut low, mut high) = (vec![Dim::Static(0); rank], vec![Dim::Static(0); rank]);
        let step = if self.reverse == back { one } else { Dim::Static(-1) };
        (low[self.dim], high[self.dim]) = (step, Dim::Static(0) - step);
        b.pad_or_crop(x, value, &low, &high)
    }
}

/// A scan that leaves out each element itself is one of the elements moved one place on.
pub fn scan_vjp(v: &mut Vjp) -> Result {
    let (x, g) = (v.operand(0), v.g());
    let at = v.at();
    let scan = Scan { dim: at.int("dim").unwrap_or(0) as usize, reverse: at.bool("reverse"), acc: at.attr("acc") };
    let (kind, exclusive) = (at.str("kind").unwrap_or_default().to_string(), at.bool("exclusive"));
    if !v.wants(0) || v.ty(x).shape()[scan.dim] == Dim::Static(0) {
        let none = zeros_like(v, x);
        v.give_with(0, |_| none);
        return Ok(());
    }
    if kind == "add" {
        let sums = scan.of(v, "add", g, !scan.reverse);
        let gradient = if exclusive { scan.shift(v, sums, 0.0, true) } else { sums };
        v.give(0, gradient);
        return Ok(());
    }
    let least = if kind == "max" { f64::NEG_INFINITY } else { f64::INFINITY };
    let fill = if kind == "mul" { 1.0 } else { least };
    let moved = if exclusive { scan.shift(v, x, fill, false) } else { x };
    let y = v.result(0);
    let gradient = match kind.as_str() {
        "mul" => products(v, scan, moved, y, g),
        _ => extremes(v, scan, moved, y, g),
    };
    let gradient = if exclusive { scan.shift(v, gradient, 0.0, true) } else { gradient };
    v.give(0, gradient);
    Ok(())
}

/// Before the first zero: the sum of what follows of g y, over x, up to that zero. At the first zero: the sum of what follows of g times the products
/// without it, up to the second. After it: zero. NaN and infinities behind a zero are in no product before it.
fn products(b: &mut Builder, scan: Scan, x: Value, y: Value, g: Value) -> Value {
    let (one, zero) = (b.splat(1.0, b.ty(x)), zeros_like(b, x));
    let is_zero = b.compare("eq", x, zero);
    let flag = b.convert(is_zero, Type::i64());
    let zeros = scan.of(b, "add", flag, scan.reverse);
    let (no_zeros, one_zero) = (zeros_like(b, zeros), b.splat(1.0, b.ty(zeros)));
    let before = b.compare("eq", zeros, no_zeros);
    let counted = b.compare("eq", zeros, one_zero);
    let first = b.binary("and", is_zero, counted);
    let filled = b.select(is_zero, one, x);
    let weighted = b.binary("mul", g, y);
    let weighted = where_or_zero(b, before, weighted);
    let sums = scan.of(b, "add", weighted, !scan.reverse);
    let sums = b.binary("div", sums, filled);
    let in_products = b.compare("le", zeros, one_zero);
    let skipping = b.select(in_products, x, one);
    let skipping = b.select(first, one, skipping);
    let skipping = scan.of(b, "mul", skipping, scan.reverse);
    let g = where_or_zero(b, counted, g);
    let weighted = b.binary("mul", g, skipping);
    let at_first = scan.of(b, "add", weighted, !scan.reverse);
    let later = where_or_zero(b, first, at_first);
    b.select(before, sums, later)
}

/// The gradient of each place goes to the latest element that equals the extreme so far.
fn extremes(b: &mut Builder, scan: Scan, x: Value, y: Value, g: Value) -> Value {
    let shape = b.ty(x).shape().to_vec();
    let last = shape.len() as i64 - 1;
    let number =
        b.op(op::core::IOTA).attr("dim", Attr::i64(scan.dim as i64)).result(Type::tensor(&shape, Type::i64())).value();
    let record = b.compare("eq", x, y);
    // The first place is always a record, but for NaN, whose gradient is nobody's.
    let none = if scan.reverse {
        b.size(shape[scan.dim] - Dim::Static(1), Type::i64(), &shape)
    } else {
        zeros_like(b, number)
    };
    let places = b.select(record, number, none);
    let from = scan.of(b, if scan.reverse { "min" } else { "max" }, places, scan.reverse);
    // Scatters along the last dimension, whose rows have indices of their own.
    let mut perm: Vec<i64> = (0..=last).filter(|&d| d != scan.dim as i64).collect();
    perm.push(scan.dim as i64);
    let [from, g] = [from, g].map(|value| b.permute(value, &perm));
    let zeros = zeros_like(b, g);
    let op = b.op(op::core::SCATTER).operand(zeros).operand(from).operand(g);
    let op = op.attr("axis", Attr::i64(last)).attr("batch", Attr::i64(last)).attr("kind", Attr::str("add"));
    let sums = op.value();
    b.permute(sums, &inverse(&perm))
}
