//! What can be asked of the root alone, before anything is bound: most operations of a name do not match, and cost no more than this.

use super::code::Code;
use super::rule::{Condition, Rule};
use rc_dialects::core::fold::uniform;
use rc_ir::{Body, Op, OpName};
use rc_parser::rules::ast::Binary;

/// Something that must hold of the root's operands, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// An operation of this name makes it.
    Made(usize, OpName),
    /// One of two is made by such an operation.
    MadeEither(OpName),
    /// Two are one value.
    Same(usize, usize),
    /// It is one number everywhere.
    Number(usize),
    /// One of two is.
    NumberEither,
    /// It has the type of the first result.
    Type(usize),
}

impl Gate {
    #[inline]
    pub fn is_open(self, body: &Body, op: Op) -> bool {
        let made = |i: usize, name: OpName| {
            body.defining_op(body.operand(op, i)).is_some_and(|maker| body.name(maker) == name)
        };
        match self {
            Gate::Made(i, name) => made(i, name),
            Gate::MadeEither(name) => made(0, name) || made(1, name),
            Gate::Same(i, j) => body.operand(op, i) == body.operand(op, j),
            Gate::Number(i) => uniform(body, body.operand(op, i)).is_some(),
            Gate::NumberEither => {
                uniform(body, body.operand(op, 1)).is_some() || uniform(body, body.operand(op, 0)).is_some()
            }
            Gate::Type(i) => body.ty(body.operand(op, i)) == body.ty(body.result(op, 0)),
        }
    }
}

/// The gates of a rule whose root has a fixed number of operands.
pub fn gates(rule: &Rule) -> Vec<Gate> {
    let root = &rule.ops[0];
    let slots: Vec<usize> = root.operands.groups.iter().flatten().map(|s| s.value).collect();
    if root.operands.segments || root.operands.groups.iter().any(|g| !matches!(g[..], [s] if !s.many)) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (i, slot) in slots.iter().enumerate() {
        if let Some(first) = slots[..i].iter().position(|s| s == slot) {
            out.push(Gate::Same(first, i));
        }
        if let Some(maker) = rule.ops[1..].iter().find(|op| op.results.contains(slot)) {
            out.push(if root.commutes { Gate::MadeEither(maker.name) } else { Gate::Made(i, maker.name) });
        }
        if rule.conditions.iter().any(|condition| needs_number(condition, *slot)) {
            out.push(if root.commutes { Gate::NumberEither } else { Gate::Number(i) });
        }
        if !root.commutes && rule.conditions.iter().any(|condition| is_typed(condition, *slot, root.results[0])) {
            out.push(Gate::Type(i));
        }
    }
    out
}

/// Whether a condition fails where a value is not one number everywhere.
fn needs_number(condition: &Condition, value: usize) -> bool {
    let number = |code: &Code| matches!(code, Code::Call(function, args) if function.name == "splat" && matches!(args[..], [Code::Value(v)] if v == value));
    match condition {
        Condition::Let(_, code) => number(code),
        Condition::Holds(Code::Binary(op, a, b)) if !matches!(op, Binary::And | Binary::Or) => number(a) || number(b),
        Condition::Holds(_) => false,
    }
}

/// Whether a condition asks for the type of the root's result.
fn is_typed(condition: &Condition, value: usize, result: usize) -> bool {
    let of = |code: &Code, value: usize| matches!(code, Code::Call(function, args) if function.name == "type" && matches!(args[..], [Code::Value(v)] if v == value));
    match condition {
        Condition::Holds(Code::Binary(Binary::Eq, a, b)) => {
            of(a, value) && of(b, result) || of(b, value) && of(a, result)
        }
        _ => false,
    }
}
