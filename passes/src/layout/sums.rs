//! Reductions of views: a reduction works on what its operand is a view of, where no run of dimensions that the view puts together or
//! takes apart is reduced in part. Places that divide (`[i floordiv 12, i mod 12]`) would leave it nothing to read side by side.

use super::reshape::replace;
use super::segments::Segments;
use rc_dialects::core::convert::CONVERT;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::RESHAPE;
use rc_ir::{Attr, Body, Builder, Dim, Op, Result};

/// Reduces what a reshape is of, converted if the reshape is; whether it did. Reductions along the last dimension stay, as they go with
/// others of the same rows, but for those of a view that only has other dimensions of one element and is read by nothing else.
pub fn behind_reshape(body: &mut Body, op: Op) -> Result<bool> {
    if body.name(op) != &REDUCE {
        return Ok(false);
    }
    let operand = body.operand(op, 0);
    let convert = body.defining_op(operand).filter(|&def| body.name(def) == &CONVERT);
    let view = convert.map_or(operand, |def| body.operand(def, 0));
    let Some(reshape) = body.defining_op(view).filter(|&def| body.name(def) == &RESHAPE) else { return Ok(false) };
    let source = body.operand(reshape, 0);
    let (from, to) = (body.ty(operand).shape(), body.ty(source).shape());
    let at = body.op_ref(op);
    let dims = at.ints("dims").unwrap_or_default();
    // What this alone reads in another shape with the same rows goes with what is read in its own.
    let many = |shape: &[Dim]| shape.iter().copied().filter(|d| *d != Dim::Static(1)).collect::<Vec<_>>();
    let alone = convert.is_none() && body.uses(operand).count() == 1 && many(&from) == many(&to);
    let along_last = dims.contains(&(from.len() as i64 - 1)) && !alone;
    if along_last || from.is_empty() || at.str("kind").is_none_or(|kind| kind.starts_with("arg")) {
        return Ok(false);
    }
    let reduced = Segments::between(&to, &from).and_then(|s| s.reduced(&from, &dims));
    // What reduces dimensions of one element alone is no reduction of anything else.
    let Some(reduced) = reduced.filter(|reduced| !reduced.is_empty()) else { return Ok(false) };
    let source = match convert {
        Some(_) => {
            let ty = body.ty(operand).with_shape(&to);
            Builder::before(body, op).op(&CONVERT).operand(source).result(ty).try_value()?
        }
        None => source,
    };
    let old = body.ty(body.result(op, 0));
    let kept: Vec<_> = (0..to.len()).filter(|&d| !reduced.contains(&(d as i64))).map(|d| to[d]).collect();
    let mut state = body.state(op);
    state.operands[0] = source;
    state.results[0] = old.with_shape(&kept);
    let made = body.create(state);
    body.set_attr(made, "dims", Attr::i64s(&reduced));
    replace(body, op, made, |b, value| {
        if kept.as_slice() == old.shape().as_slice() {
            return Ok(value);
        }
        b.op(&RESHAPE).operand(value).result(old).try_value()
    })
}
