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
    /// One of several is made by such an operation.
    MadeAny(OpName),
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
            Gate::MadeAny(name) => (0..body.operand_count(op)).any(|i| made(i, name)),
            Gate::Same(i, j) => body.operand(op, i) == body.operand(op, j),
            Gate::Number(i) => uniform(body, body.operand(op, i)).is_some(),
            Gate::NumberEither => {
                uniform(body, body.operand(op, 1)).is_some() || uniform(body, body.operand(op, 0)).is_some()
            }
            Gate::Type(i) => body.ty(body.operand(op, i)) == body.ty(body.result(op, 0)),
        }
    }
}

/// The gates of a rule whose root has a fixed number of operands, or is any elementwise operation.
pub fn gates(rule: &Rule) -> Vec<Gate> {
    let Some(root) = rule.ops.first() else { return Vec::new() };
    if root.any.is_some() {
        let singles = root.operands.groups.iter().flatten().filter(|s| !s.many);
        return singles.filter_map(|slot| maker(rule, slot.value)).map(Gate::MadeAny).collect();
    }
    let slots: Vec<usize> = root.operands.groups.iter().flatten().map(|s| s.value).collect();
    if root.operands.segments || root.operands.groups.iter().any(|g| !matches!(g[..], [s] if !s.many)) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (i, slot) in slots.iter().enumerate() {
        if let Some(first) = slots[..i].iter().position(|s| s == slot) {
            out.push(Gate::Same(first, i));
        }
        if let Some(name) = maker(rule, *slot) {
            out.push(if root.commutes { Gate::MadeAny(name) } else { Gate::Made(i, name) });
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

/// What must make a value: an operation of the pattern, or the one that all cases of a form have, which it is asked to fit.
fn maker(rule: &Rule, value: usize) -> Option<OpName> {
    if let Some(op) = rule.ops[1..].iter().find(|op| op.results.contains(&value)) {
        return op.any.is_none().then_some(op.name);
    }
    rule.conditions.iter().find_map(|condition| match condition {
        Condition::Form(asked) if asked.value.value == value => {
            let mut names =
                asked.form.cases.iter().map(|case| case.ops.first().filter(|op| op.any.is_none()).map(|op| op.name));
            let first = names.next()??;
            names.all(|name| name == Some(first)).then_some(first)
        }
        _ => None,
    })
}

/// Whether a condition fails where a value is not one number everywhere.
fn needs_number(condition: &Condition, value: usize) -> bool {
    let number = |code: &Code| matches!(code, Code::Call(function, args) if function.name == "splat" && matches!(args[..], [Code::Value(v)] if v == value));
    match condition {
        Condition::Let(_, code) => number(code),
        Condition::Holds(Code::Binary(op, a, b), _) if !matches!(op, Binary::And | Binary::Or) => {
            number(a) || number(b)
        }
        Condition::Holds(..) | Condition::Form(_) => false,
    }
}

/// Whether a condition asks for the type of the root's result.
fn is_typed(condition: &Condition, value: usize, result: usize) -> bool {
    let of = |code: &Code, value: usize| matches!(code, Code::Call(function, args) if function.name == "type" && matches!(args[..], [Code::Value(v)] if v == value));
    match condition {
        Condition::Holds(Code::Binary(Binary::Eq, a, b), _) => {
            of(a, value) && of(b, result) || of(b, value) && of(a, result)
        }
        _ => false,
    }
}
