//! Moves a group of operations into a `core.fusion`.

use super::reads::tensor_bytes;
use super::{Order, classify, is_splat};
use rc_dialects::core::fusion::{FUSION, YIELD};
use rc_ir::dim_range::Ranges;
use rc_ir::{Attr, Block, Body, Diagnostic, Loc, Mapping, Name, Op, OpState, Type, Value};
use rustc_hash::FxHashSet;

/// Replaces the operations of a group by one `core.fusion`, placed where the last of them was:
/// only that one has users elsewhere, apart from terminators. Gives a remark on groups of several.
pub fn outline(body: &mut Body, ops: &FxHashSet<Op>, symbols: &Ranges, order: &Order) -> Vec<Diagnostic> {
    let sorted = order.sorted(ops);
    let Some(&last) = sorted.last() else { return Vec::new() };
    let outputs = order.outputs(body, ops);
    let inputs = inputs(body, &sorted, ops);
    let loc = Loc::fused(&sorted.iter().map(|&op| body.loc(op)).collect::<Vec<_>>());
    let kind = kind(body, &sorted);
    let remark = remark(body, &sorted, &outputs, &kind, symbols);

    let mut state = OpState::new(&FUSION, loc);
    state.operands = inputs.iter().copied().collect();
    state.results = outputs.iter().map(|&v| body.ty(v)).collect();
    state.attrs = Attr::dict([(Name::new("kind"), Attr::str(&kind))]);
    state.regions = 1;
    let fusion = body.create(state);
    let region = body.regions(fusion)[0];
    let types: Vec<Type> = inputs.iter().map(|&v| body.ty(v)).collect();
    let entry = body.add_block(region, &types);

    let mut map = Mapping::new();
    for (i, &input) in inputs.iter().enumerate() {
        let arg = body.block_arg(entry, i);
        body.set_value_name(arg, body.value_name(input));
        map.map(input, arg);
    }
    for &op in &sorted {
        copy_splats(body, op, entry, &mut map);
        let copy = body.clone_op(op, &mut map);
        body.append(entry, copy);
    }
    let mut end = OpState::new(&YIELD, loc);
    end.operands = outputs.iter().map(|&v| map.lookup(v)).collect();
    let end = body.create(end);
    body.append(entry, end);

    body.insert_after(last, fusion);
    let results: Vec<Value> = body.results(fusion).collect();
    for (&old, &new) in outputs.iter().zip(&results) {
        body.set_value_name(new, body.value_name(old));
        body.replace_all_uses(old, new);
    }
    for &op in sorted.iter().rev() {
        body.erase(op);
    }
    remark.into_iter().collect()
}

/// Values from outside that the group uses, in order of use; splat constants are copied in instead.
fn inputs(body: &Body, sorted: &[Op], ops: &FxHashSet<Op>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for &op in sorted {
        for value in body.operands(op) {
            let def = body.defining_op(value);
            let inside = def.is_some_and(|d| ops.contains(&d) || is_splat(body, d));
            if !inside && !out.contains(&value) {
                out.push(value);
            }
        }
    }
    out
}

/// Copies the numbers that an operation uses, and what they are made of: chains of them may be long.
fn copy_splats(body: &mut Body, op: Op, entry: Block, map: &mut Mapping) {
    let missing = |body: &Body, op: Op, map: &Mapping| {
        let mut made = body.operands(op).filter(|&v| map.get(v).is_none()).filter_map(|v| body.defining_op(v));
        made.find(|&d| is_splat(body, d))
    };
    let mut stack = vec![op];
    while let Some(&user) = stack.last() {
        match missing(body, user, map) {
            Some(splat) => stack.push(splat),
            None => {
                stack.pop();
                if user != op {
                    let copy = body.clone_op(user, map);
                    body.append(entry, copy);
                }
            }
        }
    }
}

/// `dot+add+tanh`: the operations that compute, at most six names.
fn kind(body: &Body, sorted: &[Op]) -> String {
    let names: Vec<&str> = sorted
        .iter()
        .filter(|&&op| classify(body.op_ref(op)) != super::Class::Reindex || sorted.len() == 1)
        .map(|&op| body.name(op).pretty().trim_start_matches("core."))
        .collect();
    match names.len() {
        0 => "move".into(),
        n if n > 6 => format!("{}+{}more", names[..6].join("+"), n - 6),
        _ => names.join("+"),
    }
}

fn remark(body: &Body, sorted: &[Op], outputs: &[Value], kind: &str, symbols: &Ranges) -> Option<Diagnostic> {
    if sorted.len() < 2 {
        return None;
    }
    let inner = sorted.iter().flat_map(|&op| body.results(op)).filter(|v| !outputs.contains(v));
    let bytes = inner.fold(0i64, |sum, v| sum.saturating_add(tensor_bytes(body.ty(v), symbols)));
    let message =
        format!("fused {} operations, {kind}: {bytes} bytes of intermediate results are not stored", sorted.len());
    Some(*Diagnostic::remark(body.loc(sorted[0]), message))
}

/// Erases pure operations that nothing uses any more, in whatever order they stand.
pub fn erase_dead(body: &mut Body, block: Block) {
    let mut left: Vec<Op> = body.ops(block).collect();
    while let Some(op) = left.pop() {
        if body.parent(op) != Some(block) || !rc_ir::effects::is_dead(body, op) {
            continue;
        }
        let operands: Vec<Value> = body.operands(op).collect();
        body.erase(op);
        left.extend(operands.into_iter().filter_map(|v| body.defining_op(v)));
    }
}
