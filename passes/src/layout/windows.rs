//! Padding, windows, slices, reductions and concatenations of what is transposed to channels first, views of a window's elements as one dimension, and of
//! places in more or fewer dimensions: they work on channels last too, so that what lies between two convolutions moves nothing.

use super::channels::{brings_channels_first, transposed};
use super::reshape::replace;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{RESHAPE, TRANSPOSE};
use rc_dialects::core::slice::{CONCAT, PAD, SLICE};
use rc_dialects::core::window::WINDOW;
use rc_ir::{Attr, Body, Dim, Op, OpDef, Result, Value};

/// Moves a transpose to channels first behind one of these operations; whether it did.
pub fn behind_windows(body: &mut Body, op: Op) -> Result<bool> {
    let name = body.name(op);
    if ![&PAD, &WINDOW, &SLICE, &REDUCE, &CONCAT, &RESHAPE].iter().any(|def| name == *def) {
        return Ok(false);
    }
    let count = if name == &CONCAT { body.operands(op).count() } else { 1 };
    let operands: Vec<Value> = body.operands(op).take(count).collect();
    let Some((_, perm)) = operands.first().and_then(|&v| transposed(body, v)) else { return Ok(false) };
    let sources = operands.iter().map(|&v| transposed(body, v).filter(|(_, p)| *p == perm).map(|t| t.0));
    let Some(sources) = sources.collect::<Option<Vec<Value>>>().filter(|_| brings_channels_first(&perm)) else {
        return Ok(false);
    };
    if name == &RESHAPE && !views_elements(body, op, &perm) && !views_places(body, op, &perm) {
        return Ok(false);
    }
    let innermost = perm.iter().max().copied();
    if acts_on(body, op).iter().any(|&d| perm.get(d).copied() == innermost) {
        return Ok(false);
    }
    let (attrs, back) = numbered(body, op, &perm);
    let old = body.ty(body.result(op, 0));
    let mut state = body.state(op);
    state.operands.iter_mut().zip(sources).for_each(|(slot, source)| *slot = source);
    state.results[0] = old.with_shape(&permuted(&old.shape(), &inverse(&back)));
    let made = body.create(state);
    for (name, value) in attrs {
        body.set_attr(made, name, value);
    }
    replace(body, op, made, |b, value| {
        if back.is_sorted() {
            return Ok(value);
        }
        b.op(&TRANSPOSE).operand(value).attr("perm", Attr::i64s(&back)).result(old).try_value()
    })
}

/// Whether a reshape leaves images, channels and places as they are, and has others after them.
fn views_elements(body: &Body, op: Op, perm: &[i64]) -> bool {
    let (from, to) = (body.ty(body.operand(op, 0)).shape(), body.ty(body.result(op, 0)).shape());
    let kept = places_end(perm);
    from.len() > kept && to.len() > kept && from[..kept] == to[..kept]
}

/// Whether a reshape leaves images and channels as they are, and has places in other dimensions after them, and nothing else.
fn views_places(body: &Body, op: Op, perm: &[i64]) -> bool {
    let (from, to) = (body.ty(body.operand(op, 0)).shape(), body.ty(body.result(op, 0)).shape());
    places_end(perm) == from.len() && to.len() > 2 && from[..2] == to[..2]
}

/// How many dimensions are images, channels and places: those that a transpose to channels first moves, and the first.
fn places_end(perm: &[i64]) -> usize {
    perm[1] as usize + 1
}

/// The dimensions that padding is added to, or that windows slide along. With channels last no innermost one is among them: of three dimensions the
/// transpose to channels first is also the one to channels last, and what is stored as it is read by windows is to stay so.
fn acts_on(body: &Body, op: Op) -> Vec<usize> {
    let at = body.op_ref(op);
    if body.name(op) == &WINDOW {
        return at.ints("dims").unwrap_or_default().iter().map(|&d| d as usize).collect();
    }
    let padded = |name: &str| at.attr(name).and_then(|a| a.as_shape()).unwrap_or_default().to_vec();
    let (low, high) = (padded("low"), padded("high"));
    let some = |sizes: &[Dim], d: usize| sizes.get(d).is_some_and(|&n| n != Dim::Static(0));
    (0..low.len()).filter(|&d| some(&low, d) || some(&high, d)).collect()
}

/// The attributes that number dimensions, for an operand that is transposed by `perm` no more, and the permutation of the result.
fn numbered(body: &Body, op: Op, perm: &[i64]) -> (Vec<(&'static str, Attr)>, Vec<i64>) {
    let at = body.op_ref(op);
    let source = |d: &i64| perm[*d as usize];
    let dims = || -> Vec<i64> { at.ints("dims").unwrap_or_default().iter().map(source).collect() };
    let is = |def: &'static OpDef| body.name(op) == def;
    if is(&PAD) {
        let side = |name: &'static str| {
            let sizes = at.attr(name).and_then(|a| a.as_shape()).unwrap_or_default();
            (name, Attr::shape(&permuted(sizes, &inverse(perm))))
        };
        return (vec![side("low"), side("high")], perm.to_vec());
    }
    if is(&CONCAT) {
        let dim = at.int("dim").unwrap_or_default();
        return (vec![("dim", Attr::i64(source(&dim)))], perm.to_vec());
    }
    if is(&SLICE) {
        let back = inverse(perm);
        let sizes = |name: &'static str| {
            let sizes = at.attr(name).and_then(|a| a.as_shape()).unwrap_or_default();
            (name, Attr::shape(&permuted(sizes, &back)))
        };
        let steps =
            at.ints("strides").map(|steps| Attr::i64s(&back.iter().map(|&d| steps[d as usize]).collect::<Vec<_>>()));
        let steps = steps.map(|steps| ("strides", steps));
        return ([sizes("starts"), sizes("sizes")].into_iter().chain(steps).collect(), perm.to_vec());
    }
    if is(&RESHAPE) && views_places(body, op, perm) {
        let rank = body.ty(body.result(op, 0)).rank() as i64;
        return (Vec::new(), [0, rank - 1].into_iter().chain(1..rank - 1).collect());
    }
    if is(&RESHAPE) {
        let elements = places_end(perm)..body.ty(body.result(op, 0)).rank();
        return (Vec::new(), perm[..elements.start].iter().copied().chain(elements.map(|d| d as i64)).collect());
    }
    if is(&WINDOW) {
        let rank = perm.len() as i64;
        let elements = rank..rank + dims().len() as i64;
        return (vec![("dims", Attr::i64s(&dims()))], perm.iter().copied().chain(elements).collect());
    }
    let mut reduced = dims();
    reduced.sort_unstable();
    let before = |d: &i64| reduced.iter().filter(|r| *r < d).count() as i64;
    let kept: Vec<i64> = perm.iter().filter(|d| !reduced.contains(d)).map(|d| d - before(d)).collect();
    (vec![("dims", Attr::i64s(&reduced))], kept)
}

/// `sizes` in the order that a transpose by `perm` gives.
fn permuted(sizes: &[Dim], perm: &[i64]) -> Vec<Dim> {
    perm.iter().map(|&d| sizes[d as usize]).collect()
}

fn inverse(perm: &[i64]) -> Vec<i64> {
    (0..perm.len() as i64).map(|d| perm.iter().position(|&p| p == d).expect("a permutation") as i64).collect()
}
