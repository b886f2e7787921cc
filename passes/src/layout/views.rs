//! Transposes and reshapes move by `layout.rules`, once over the program: frontends view `[batch, length, n]` as `[batch * length, n]` for a product and back,
//! and convolutions are products with channels last. Which views of products' results are worth it is decided here.

use crate::rules::{RuleSet, canonicalizations, moves};
use rc_dialects::core::convert::CONVERT;
use rc_dialects::core::dot::DOT;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::core::shape::{BROADCAST, RESHAPE, TRANSPOSE};
use rc_ir::pass::SymbolContext;
use rc_ir::{Body, Op, Result, Traits, Value};
use rustc_hash::FxHashSet;
use std::sync::LazyLock;

/// Operations that make a row's numbers of its sums, at most.
const FINISH: usize = 32;

/// Views that meet.
static CANCEL: LazyLock<RuleSet> =
    LazyLock::new(|| canonicalizations().only(&["reshape-and-back", "transpose-and-back"]));

/// Views of views.
static MERGE: LazyLock<RuleSet> = LazyLock::new(|| {
    canonicalizations().only(&[
        "reshape-of-reshape",
        "reshape-to-the-same",
        "transpose-and-back",
        "transpose-of-transpose",
    ])
});

/// Makes an operation that is a view of a view one view.
///
/// # Errors
/// As [`move_views`].
pub fn merge(body: &mut Body, op: Op, cx: &mut SymbolContext) -> Result {
    if !body.is_erased(op) && (body.name(op) == &RESHAPE || body.name(op) == &TRANSPOSE) {
        MERGE.apply_at(body, op, None, cx)?;
    }
    Ok(())
}

/// Moves transposes and reshapes behind the operations that read them, in program order; how many.
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn move_views(body: &mut Body, cx: &mut SymbolContext) -> Result<u64> {
    let mut moved = 0;
    let mut shaped = FxHashSet::default();
    for op in body.walk() {
        if body.is_erased(op) {
            continue;
        }
        let done = match body.op_ref(op).has(Traits::ELEMENTWISE) {
            true => elementwise(body, op, &mut shaped, cx)?,
            false => {
                CANCEL.apply_at(body, op, None, cx)?.is_some() || moves().apply_at(body, op, Some(&[]), cx)?.is_some()
            }
        };
        moved += u64::from(done);
    }
    if moved > 0 {
        super::erase_dead(body);
    }
    Ok(moved)
}

/// An elementwise operation on a view of a product's result, or of what such operations made of one or of rows (`shaped`), moves to that. Not where it ends
/// another product in that one's own shape, as the sum of a residual does: what else is read lies in memory, of which any view will do.
fn elementwise(body: &mut Body, op: Op, shaped: &mut FxHashSet<Value>, cx: &mut SymbolContext) -> Result<bool> {
    let ends_product = body.operands(op).any(|v| ends_product(body, v));
    let may_move = |v: &Value| !ends_product || is_read_once(body, *v);
    let views = body.operands(op).filter(may_move).filter_map(|v| viewed(body, v));
    let chosen: Option<Value> = views.into_iter().find(|&source| is_of_product(body, source, shaped));
    if let Some(applied) = moves().apply_at(body, op, Some(chosen.as_slice()), cx)? {
        let back = body.defining_op(applied.values[0]).expect("a rule's operation");
        if body.op_ref(back).has(Traits::ELEMENTWISE) {
            shaped.insert(applied.values[0]);
            return Ok(true);
        }
        let made = body.operand(back, 0);
        let shape = body.ty(made).shape();
        let follows =
            || chosen.is_some_and(|v| body.ty(v).shape() == shape) && is_read_once(body, body.result(back, 0));
        if moves().rules[applied.rule].name == "elementwise-of-view" || follows() {
            shaped.insert(made);
        }
        if body.name(back) == &TRANSPOSE
            && let Some(op) = body.defining_op(made)
        {
            elementwise(body, op, shaped, cx)?;
        }
        return Ok(true);
    }
    let shape = body.ty(body.result(op, 0)).shape();
    let shapes = |v: Value| is_of_product(body, v, shaped) || is_of_rows(body, v);
    if body.operands(op).any(|v| body.ty(v).shape() == shape && shapes(v)) {
        shaped.insert(body.result(op, 0));
    }
    Ok(false)
}

/// Whether it is a product's result, or what elementwise operations made of one (`shaped`).
fn is_of_product(body: &Body, value: Value, shaped: &FxHashSet<Value>) -> bool {
    shaped.contains(&value) || body.defining_op(value).is_some_and(|def| body.name(def) == &DOT)
}

/// Whether it repeats what was computed from reductions of rows, along these rows.
fn is_of_rows(body: &Body, value: Value) -> bool {
    let shape = body.ty(value).shape();
    let Some(repeat) = body.defining_op(value).filter(|&op| body.name(op) == &BROADCAST) else { return false };
    let (mut stack, mut seen) = (vec![body.operand(repeat, 0)], FxHashSet::default());
    while let Some(op) = stack.pop().and_then(|v| body.defining_op(v)) {
        if body.name(op) == &REDUCE {
            return body.ty(body.operand(op, 0)).shape() == shape;
        }
        let moves = body.op_ref(op).has(Traits::ELEMENTWISE) || body.name(op) == &RESHAPE;
        if moves && seen.len() < FINISH && seen.insert(op) {
            stack.extend(body.operands(op).filter(|&v| body.defining_op(v).is_some()));
        }
    }
    false
}

/// Whether a value is computed from a product of its shape, element by element, and nothing but one operation reads what lies between.
fn ends_product(body: &Body, value: Value) -> bool {
    let shape = body.ty(value).shape();
    let (mut stack, mut seen) = (vec![value], 0);
    while let Some(value) = stack.pop() {
        let Some(op) = body.defining_op(value).filter(|_| body.ty(value).shape() == shape && reads(body, value) == 1)
        else {
            continue;
        };
        if body.name(op) == &DOT {
            return true;
        }
        seen += 1;
        if seen < FINISH && body.op_ref(op).has(Traits::ELEMENTWISE) {
            stack.extend(body.operands(op));
        }
    }
    false
}

/// Whether one operation alone reads a value, be it converted or viewed on the way there.
fn is_read_once(body: &Body, value: Value) -> bool {
    let before = |&v: &Value| {
        let op = body.defining_op(v).filter(|&op| body.name(op) == &CONVERT || body.name(op) == &RESHAPE)?;
        Some(body.operand(op, 0))
    };
    std::iter::successors(Some(value), before).all(|v| reads(body, v) == 1)
}

/// How often a value is read by what is not left over from a move.
fn reads(body: &Body, value: Value) -> usize {
    body.uses(value).filter(|&(user, _)| !rc_ir::effects::is_dead(body, user)).count()
}

/// What a reshape is of.
fn viewed(body: &Body, value: Value) -> Option<Value> {
    let reshape = body.defining_op(value).filter(|&op| body.name(op) == &RESHAPE)?;
    Some(body.operand(reshape, 0))
}
