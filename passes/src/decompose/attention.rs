//! Softmaxes between two products as attention, and attention that no kernel holds as products.

use crate::rules::attentions;
use crate::schedule::Target;
use rc_dialects::core::attention::ATTENTION;
use rc_dialects::core::attention_backward::ATTENTION_BACKWARD;
use rc_dialects::core::attention_scores::{define_attention, define_backward};
use rc_dialects::core::dot::DOT;
use rc_dialects::op;
use rc_ir::effects::is_dead;
use rc_ir::pass::SymbolContext;
use rc_ir::{Body, Builder, Op, Result, Value};

/// Makes a softmax between two products one operation.
pub fn recognize(body: &mut Body, cx: &mut SymbolContext) -> Result {
    let ops = body.walk();
    if !ops.iter().any(|&op| body.name(op) == op::tensor::SOFTMAX) {
        return Ok(());
    }
    for &op in ops.iter().filter(|&&op| body.name(op) == &DOT).collect::<Vec<_>>() {
        attentions().apply_at(body, op, None, cx)?;
    }
    for op in ops.into_iter().rev() {
        if !body.is_erased(op) && is_dead(body, op) {
            body.erase(op);
        }
    }
    Ok(())
}

/// What puts an operation's definition in front of it.
type Define = fn(&mut Builder, Op) -> Result<Vec<Value>>;

/// Has attention of rows that are too wide for a kernel store its scores; how many there were.
pub fn store_scores(body: &mut Body, target: &Target) -> Result<u64> {
    let gpu = target.gpu();
    let mut stored = 0;
    for op in body.walk() {
        let (define, widest) = match body.name(op) {
            name if name == &ATTENTION => (define_attention as Define, gpu.attention.widest),
            name if name == &ATTENTION_BACKWARD => (define_backward as Define, gpu.gradients.widest),
            _ => continue,
        };
        let width = |i: usize| body.ty(body.operand(op, i)).shape().last().and_then(|d| d.as_static());
        if width(0).max(width(2)) > Some(widest) {
            let values = define(&mut Builder::before(body, op), op)?;
            body.replace_op(op, &values);
            stored += 1;
        }
    }
    Ok(stored)
}
