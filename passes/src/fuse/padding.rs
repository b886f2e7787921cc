//! Paddings that a kernel need not compute: what of them lies outside of memory, and what windows make of it.

use super::reads::sources;
use super::{Class, classify};
use rc_dialects::op;
use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, Name, OpRef, Value};

/// Whether a padding is that of windows that overlap; with `clamps`, such that each window has the element inside that is nearest to any of
/// its elements outside.
pub fn pads_windows(pad: OpRef, clamps: bool) -> bool {
    let sides: Vec<i64> = ["low", "high"]
        .iter()
        .flat_map(|side| pad.attr(side).and_then(|a| a.as_shape()).unwrap_or_default())
        .map(|d| d.as_static().unwrap_or(i64::MAX))
        .collect();
    let rank = sides.len() / 2;
    let fits = |user: OpRef| {
        if !user.is(op::core::WINDOW) {
            return false;
        }
        let ints = |name: &str| user.ints(name).unwrap_or_default();
        let (dims, sizes, strides, dilations) = (ints("dims"), ints("sizes"), ints("strides"), ints("dilations"));
        let size = |d: usize| dims.iter().position(|&n| n == d as i64).map_or(1, |i| sizes[i]);
        let overlaps = sizes.iter().enumerate().any(|(i, &n)| n > strides.get(i).copied().unwrap_or(1));
        let near = dilations.iter().all(|&d| d == 1) && (0..2 * rank).all(|s| sides[s] < size(s % rank));
        overlaps && (!clamps || near)
    };
    pad.is(op::core::PAD) && pad.body.uses(pad.result(0)).all(|(user, _)| fits(pad.body.op_ref(user)))
}

/// The number that a padding is with, where it is a constant.
pub fn padding_value(pad: OpRef) -> Option<f64> {
    let value = pad.is(op::core::PAD).then(|| rc_ir::op_def::constant_of(pad.body, pad.operand(1))).flatten();
    value.and_then(|v| v.as_splat()).filter(|v| *v != 0.0 || v.is_sign_positive())
}

/// Whether it is a padding with zeros.
pub fn pads_with_zeros(op: OpRef) -> bool {
    padding_value(op) == Some(0.0)
}

/// Whether the elements of what is padded are those of memory, moved and converted, and every place outside of it is outside of memory too: what a
/// kernel reads there is zero then. A constant lies nowhere; a slice, a broadcast, or a reshape that joins dimensions leads back inside.
pub fn stays_outside(pad: OpRef, is_memory: &dyn Fn(Value) -> bool) -> bool {
    let Some(Under { memory, place, map }) = Under::of(pad, is_memory) else { return false };
    let shape = pad.body.ty(pad.operand(0)).shape();
    let memory = pad.body.ty(memory).shape();
    let follows = |d: usize| map.iter().zip(&memory).any(|(&at, &size)| leads_outside(place[d], shape[d], at, size));
    (0..shape.len()).filter(|&d| is_padded(pad, d)).all(follows)
}

/// Whether a CPU reads windows' padding in place, which takes masks: that of small windows with small steps, whose rows are those of memory. A side plus the
/// step is `rows` at most, and `lanes` where the last dimension is padded.
pub fn is_read_in_place(pad: OpRef, is_memory: &dyn Fn(Value) -> bool, [rows, lanes]: [i64; 2]) -> bool {
    let last = pad.body.ty(pad.operand(0)).shape().len() - 1;
    let most = if is_padded(pad, last) { lanes } else { rows };
    let small = |user: OpRef| {
        let [sizes, strides, dilations] =
            ["sizes", "strides", "dilations"].map(|name| user.ints(name).unwrap_or_default());
        sizes.iter().zip(strides).all(|(size, step)| size + step <= most) && dilations.iter().all(|&d| d == 1)
    };
    let in_rows = |under: Under| under.map.last() == under.place.last();
    pad.body.uses(pad.result(0)).all(|(user, _)| small(pad.body.op_ref(user)))
        && Under::of(pad, is_memory).is_some_and(in_rows)
}

fn is_padded(pad: OpRef, dim: usize) -> bool {
    let of_side = |side: &str| pad.attr(side).and_then(|a| a.as_shape()).unwrap_or_default();
    ["low", "high"].iter().any(|side| of_side(side)[dim] != Dim::Static(0))
}

/// The memory that a padded value is moved from, and where in it the element at `place` lies.
struct Under {
    memory: Value,
    place: Vec<Dim>,
    map: Vec<Dim>,
}

impl Under {
    fn of(pad: OpRef, is_memory: &dyn Fn(Value) -> bool) -> Option<Under> {
        let rank = pad.body.ty(pad.operand(0)).shape().len();
        let place: Vec<Dim> = (0..rank).map(|d| Dim::symbol(Name::new(&format!("_place{d}")))).collect();
        let (mut memory, mut map) = (pad.operand(0), place.clone());
        while !is_memory(memory) {
            let op = pad.body.defining_op(memory).map(|op| pad.body.op_ref(op));
            let op = op.filter(|&op| classify(op) != Class::Splat && op.operands().len() > 0)?;
            let (from, at) = sources(op, &map, &Ranges::new())?.into_iter().next()?;
            (memory, map) = (from, at?);
        }
        Some(Under { memory, place, map })
    }
}

/// Whether `at` is outside of `0..size` wherever `place` is outside of `0..extent`.
fn leads_outside(place: Dim, extent: Dim, at: Dim, size: Dim) -> bool {
    if let (Dim::Static(moved), Dim::Static(left)) = (at - place, extent - size) {
        return moved <= 0 && left + moved >= 0;
    }
    let parts = extent.floordiv(size);
    at == place.floordiv(parts) && parts * size == extent
}
