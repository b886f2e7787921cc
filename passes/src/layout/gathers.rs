//! Gathers of a few elements of what elementwise operations compute: which of them move, in which order. `layout.rules` says how.

use crate::rules::moves;
use rc_dialects::core::gather::GATHER;
use rc_dialects::core::gather_broadcast;
use rc_ir::effects::is_dead;
use rc_ir::op_def::OpName;
use rc_ir::pass::SymbolContext;
use rc_ir::rewrite::{Anchor, PatternSet, RewriteConfig, apply_patterns};
use rc_ir::{Body, Op, Result};

/// Moves gathers before elementwise operations, where what is gathered is at most one in `few` elements; how many.
///
/// # Errors
/// If an operation that is made is refused by its declaration.
pub fn move_gathers(body: &mut Body, few: i64, cx: &mut SymbolContext) -> Result<u64> {
    let mut left: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &GATHER).collect();
    let mut moved = 0;
    while let Some(gather) = left.pop() {
        let chosen = if is_few(body, gather, few) { vec![body.result(gather, 0)] } else { Vec::new() };
        let Some(applied) = moves().apply_at(body, gather, Some(&chosen), cx)? else { continue };
        let made = body.defining_op(applied.values[0]).expect("a rule's operation");
        let gathers = body.operands(made).filter_map(|v| body.defining_op(v)).chain([made]);
        left.extend(gathers.filter(|&op| body.name(op) == &GATHER));
        moved += 1;
    }
    if moved > 0 {
        apply_patterns(body, &without_tables(), &RewriteConfig::patterns_only())?;
    }
    for op in body.walk().into_iter().rev() {
        if moved > 0 && is_dead(body, op) {
            body.erase(op);
        }
    }
    Ok(moved)
}

/// Gathers of operands that repeat along the gathered dimension, or count it, look nothing up.
fn without_tables() -> PatternSet {
    let (mut patterns, gathers) = (PatternSet::new(), || Anchor::Op(OpName::new(GATHER.name)));
    patterns.add_fn("gather-of-repeated", gathers(), gather_broadcast::of_repeated);
    patterns.add_fn("gather-of-counters", gathers(), gather_broadcast::of_counters);
    patterns
}

/// Whether what is gathered has at most one in `few` of the table's elements: less than what the whole table would take to store.
fn is_few(body: &Body, gather: Op, few: i64) -> bool {
    let elements = |v| {
        let shape = body.ty(v).static_shape()?;
        shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d))
    };
    let (table, result) = (elements(body.operand(gather, 0)), elements(body.result(gather, 0)));
    table.zip(result).is_some_and(|(table, result)| result.saturating_mul(few) <= table)
}
