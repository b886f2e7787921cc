//! Windows that are turned to planes: a kernel that sums them along rows would read an image with channels last element by element, once for each window.

use super::erase_dead;
use crate::fuse::overlaps;
use rc_dialects::op;
use rc_ir::{Attr, Body, Builder, Op};

/// Turns the images instead, before they are padded. Gives how many there are.
pub fn turn_images(body: &mut Body) -> u64 {
    let turned: Vec<(Op, Op)> =
        body.walk().into_iter().filter_map(|op| Some((op, turned_windows(body, op)?))).collect();
    for &(transpose, window) in &turned {
        take_of_turned(body, transpose, window);
    }
    erase_dead(body);
    turned.len() as u64
}

/// The windows that an operation turns: overlapping ones over dimensions before the last, of which one comes last.
fn turned_windows(body: &Body, op: Op) -> Option<Op> {
    let perm = body.op_ref(op).ints("perm").filter(|_| body.name(op) == op::core::TRANSPOSE)?;
    let window = body.defining_op(body.operand(op, 0)).filter(|&op| body.name(op) == op::core::WINDOW)?;
    let rank = body.ty(body.operand(window, 0)).rank();
    let dims = body.op_ref(window).ints("dims")?;
    let elements_stay = (rank..perm.len()).all(|d| perm[d] == d as i64);
    let row_last = dims.contains(&perm[rank - 1]) && !dims.contains(&(rank as i64 - 1));
    (elements_stay && row_last && overlaps(body.op_ref(window))).then_some(window)
}

/// Replaces turned windows by those of the turned image.
fn take_of_turned(body: &mut Body, transpose: Op, window: Op) {
    let padded = body.operand(window, 0);
    let mut perm = body.op_ref(transpose).ints("perm").expect("a transpose");
    perm.truncate(body.ty(padded).rank());
    let pad = body.defining_op(padded).filter(|&op| body.name(op) == op::core::PAD);
    let image = pad.map_or(padded, |pad| body.operand(pad, 0));
    let mut b = Builder::before(body, transpose);
    let mut turned = b.op(op::core::TRANSPOSE).operand(image).attr("perm", Attr::i64s(&perm)).value();
    if let Some(pad) = pad {
        let side = |name: &str| {
            let sizes = b.body.attr(pad, name).and_then(|a| a.as_shape()).unwrap_or_default();
            Attr::shape(&perm.iter().map(|&d| sizes[d as usize]).collect::<Vec<_>>())
        };
        let (low, high, with) = (side("low"), side("high"), b.body.operand(pad, 1));
        turned = b.op(op::core::PAD).operands(&[turned, with]).attr("low", low).attr("high", high).value();
    }
    let place = |d: i64| perm.iter().position(|&p| p == d).expect("a dimension") as i64;
    let dims: Vec<i64> = b.body.op_ref(window).ints("dims").unwrap_or_default().into_iter().map(place).collect();
    let attrs = b.body.attrs(window);
    let windows = b.op(op::core::WINDOW).operand(turned).attrs(attrs).attr("dims", Attr::i64s(&dims)).value();
    body.replace_op(transpose, &[windows]);
}
