//! Whether an operation can be printed in the pretty form, so that it parses back to the same one.
//! An op that its declaration does not describe (malformed, or of another version) prints in the generic form.

use super::implicit_terminator;
use crate::attr::{Attr, AttrData};
use crate::body::{Body, Op, Value, ValueDef};
use crate::op_def::{self, Arity, AttrKind, GroupSyntax, OpDef, OpName, Traits};
use std::ops::Range;

/// How the operands of an op are grouped.
pub(super) struct Layout {
    pub def: Option<&'static OpDef>,
    pub groups: Vec<Range<usize>>,
}

impl Layout {
    /// `None` for an op that must print in the generic form.
    pub fn of(body: &Body, op: Op) -> Option<Layout> {
        let Some(def) = body.name(op).def() else {
            return Some(Layout { def: None, groups: Vec::new() });
        };
        if body.props(op).is_some() || !attributes_fit(body, op, def) || !terminators_fit(body, op, def) {
            return None;
        }
        if def.has(Traits::FUNCTION) {
            return function_fits(body, op, def).then_some(Layout { def: Some(def), groups: Vec::new() });
        }
        let groups = groups_of(body, op, def)?;
        (!is_ambiguous(def, &groups) && carried_fit(body, op, def, &groups))
            .then_some(Layout { def: Some(def), groups })
    }
}

fn groups_of(body: &Body, op: Op, def: &OpDef) -> Option<Vec<Range<usize>>> {
    let written = body.attr(op, "operandSegmentSizes");
    let segments = written.and_then(|a| a.as_ints());
    let groups = def.operand_groups(body.operand_count(op), segments.as_deref())?;
    let sizes: Vec<i64> = groups.iter().map(|g| g.len() as i64).collect();
    let fits = |(group, range): (&op_def::OperandDef, &Range<usize>)| match group.arity {
        Arity::One => range.len() == 1,
        Arity::Optional => range.len() <= 1,
        Arity::Variadic => true,
    };
    let exact = !def.has_segments() || written == Some(Attr::i32s(&sizes));
    (exact && def.operands.iter().zip(&groups).all(fits)).then_some(groups)
}

/// Whether the text would not say which group an operand is in.
fn is_ambiguous(def: &OpDef, groups: &[Range<usize>]) -> bool {
    let loose = def.operands.iter().filter(|o| o.syntax == GroupSyntax::Plain && o.arity != Arity::One).count();
    let orphan = def.operands.windows(2).zip(groups).any(|(pair, before)| {
        pair[1].syntax == GroupSyntax::Bracketed && pair[0].arity != Arity::One && before.is_empty()
    });
    loose > 1 || orphan
}

fn attributes_fit(body: &Body, op: Op, def: &OpDef) -> bool {
    let entries = body.attrs(op).as_dict().unwrap_or_default();
    let symbol = !def.has(Traits::SYMBOL) || body.attr(op, "sym_name").is_none_or(|n| n.as_str().is_some());
    symbol
        && entries.iter().all(|(key, value)| {
            let declared = def.attr_def(key.as_str());
            let kind = declared.map_or(AttrKind::Any, |d| d.kind);
            let known = declared.is_some() || key.as_str().contains('.') || super::is_inherent(def, key.as_str());
            known && kind.accepts(*value) && !(kind == AttrKind::Bool && matches!(value.data(), AttrData::Unit))
        })
}

/// Where the terminator may be left out, each region must end with one.
fn terminators_fit(body: &Body, op: Op, def: &OpDef) -> bool {
    if implicit_terminator(def).is_none() || (def.has(Traits::FUNCTION) && body.op_ref(op).entry(0).is_none()) {
        return true;
    }
    body.regions(op).into_iter().all(|region| {
        let mut blocks = body.blocks(region);
        match (blocks.len(), blocks.next()) {
            (1, Some(block)) => body.terminator(block).is_some(),
            (n, _) => n > 1,
        }
    })
}

/// Whether the loop-carried values are the last entry arguments, and are defined before the op in the text.
fn carried_fit(body: &Body, op: Op, def: &OpDef, groups: &[Range<usize>]) -> bool {
    let Some(group) = def.operands.iter().position(|o| o.syntax == GroupSyntax::Iter) else {
        return true;
    };
    let inits: Vec<Value> = body.operands(op).skip(groups[group].start).take(groups[group].len()).collect();
    if inits.is_empty() {
        return true;
    }
    let Some(entry) = body.op_ref(op).entry(0) else { return false };
    let args: Vec<Value> = body.block_args(entry).collect();
    let Some(first) = args.len().checked_sub(inits.len()) else { return false };
    let same = args[first..].iter().zip(&inits).all(|(&arg, &init)| body.ty(arg) == body.ty(init));
    same && !is_target(body, entry) && inits.iter().all(|&v| is_above(body, v, op))
}

/// Whether an op branches to the block.
fn is_target(body: &Body, block: crate::body::Block) -> bool {
    let Some(region) = body.block_region(block) else { return false };
    body.blocks(region).any(|b| body.last_op(b).is_some_and(|op| body.successors(op).contains(&block)))
}

/// Whether `value` is defined in a block that does not come after that of `op` in the text.
fn is_above(body: &Body, value: Value, op: Op) -> bool {
    let (block, is_arg) = match body.def(value) {
        ValueDef::Argument(block, _) => (block, true),
        ValueDef::Result(def, _) => match body.parent(def) {
            Some(block) => (block, false),
            None => return false,
        },
    };
    let region = body.block_region(block);
    let mut user = op;
    loop {
        let Some(parent) = body.parent(user) else { return false };
        if parent == block {
            return is_arg || body.defining_op(value) != Some(user);
        }
        if body.block_region(parent) == region {
            let order = region.map(|r| body.blocks(r).position(|b| b == block || b == parent));
            return order.flatten().is_some_and(|i| region.and_then(|r| body.blocks(r).nth(i)) == Some(block));
        }
        let Some(owner) = body.parent_op(user) else { return false };
        user = owner;
    }
}

fn function_fits(body: &Body, op: Op, def: &OpDef) -> bool {
    let signature = body.attr(op, "function_type").and_then(|t| t.as_type()).and_then(|t| t.as_function());
    let regions = body.regions(op);
    let (Some((inputs, results)), [region]) = (signature, regions.as_slice()) else {
        return false;
    };
    let named = body.attr(op, "sym_name").is_some_and(|n| n.as_str().is_some());
    let plain = body.operand_count(op) == 0 && body.result_count(op) == 0 && body.successors(op).is_empty();
    let dicts = |key: &str, count: usize| match body.attr(op, key).map(|a| a.data()) {
        None => true,
        // Dictionaries that are all empty are not written, so would not come back.
        Some(AttrData::Array(items)) => {
            items.len() == count
                && items.iter().all(|i| i.as_dict().is_some())
                && items.iter().any(|i| i.as_dict().is_some_and(|d| !d.is_empty()))
        }
        Some(_) => false,
    };
    let arguments = body.first_block(*region).is_none_or(|entry| {
        let types: Vec<_> = body.block_args(entry).map(|a| body.ty(a)).collect();
        types == inputs && !is_target(body, entry)
    });
    named
        && plain
        && arguments
        && dicts("arg_attrs", inputs.len())
        && dicts("res_attrs", results.len())
        && def.operands.is_empty()
}

/// Whether the op's name can be written without quotes. `"tensor.extract"` of MLIR's dialect cannot: bare, it
/// would be an op of rc's.
pub fn is_bare_op_name(name: OpName) -> bool {
    let text = if name.def().is_some() { name.pretty() } else { name.as_str() };
    let Some((dialect, _)) = text.rsplit_once('.') else { return false };
    let of_rc = || op_def::registered().iter().any(|d| dialect_of(d.name).strip_prefix("rc.") == Some(dialect));
    super::types::is_identifier(text) && op_def::resolve_pretty(text) == name && (name.def().is_some() || !of_rc())
}

fn dialect_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |p| p.0)
}
