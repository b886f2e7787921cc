//! The two functions.

use super::Joint;
use crate::autodiff::{JOINT, set_results};
use crate::dce::erase_unused;
use crate::layout::attention::read_turned;
use crate::partition::RECOMPUTE;
use rc_dialects::func::{arg_dicts, symbols};
use rc_ir::{Attr, Body, Dim, Name, Op, Result, Type, Value};
use rustc_hash::FxHashSet;

/// The backward function's attribute that says what its first arguments are.
pub const SAVED: &str = "rc.saved";

/// The ops that both functions have: the backward one needs their results, and they are not kept.
pub fn recomputed(joint: &Joint, kept: &[Value]) -> Vec<Op> {
    let body = joint.body;
    let kept: FxHashSet<Value> = kept.iter().copied().collect();
    let mut needed: FxHashSet<Value> = body.operands(joint.end).skip(joint.results).collect();
    let mut forward: FxHashSet<Value> =
        body.operands(joint.end).take(joint.results).chain(kept.iter().copied()).collect();
    let mut again = Vec::new();
    for &op in joint.ops.iter().rev() {
        let is = |set: &FxHashSet<Value>| body.results(op).any(|v| set.contains(&v));
        let in_forward = is(&forward);
        let in_backward = body.results(op).any(|v| needed.contains(&v) && !kept.contains(&v));
        if in_forward {
            forward.extend(body.operands(op));
        }
        if in_backward {
            needed.extend(body.operands(op));
        }
        if in_forward && in_backward && body.operands(op).len() > 0 {
            again.push(op);
        }
    }
    again
}

/// The forward and the backward function, where these values are kept.
pub fn split(body: &Body, joint: &Joint, kept: &[Value]) -> (Body, Body) {
    let kept = with_sizes(body, joint, kept);
    let own: Vec<Value> = body.operands(joint.end).take(joint.results).collect();
    let mut results = own.clone();
    let mut saved = Vec::new();
    for &value in &kept {
        let argument = joint.arguments.iter().position(|&a| a == value);
        let number = argument.unwrap_or_else(|| {
            let at = results.iter().position(|&r| r == value).unwrap_or_else(|| {
                results.push(value);
                results.len() - 1
            });
            joint.arguments.len() + at
        });
        saved.push(number as i64);
    }
    (forward(body, joint, &results), backward(body, joint, &kept, &saved))
}

/// Keeps transposes instead of what they are of, which other operations have of them, turned back.
pub fn keep_turned(body: &mut Body, kept: &mut [Value], turned: &[(Value, Op)]) -> Result {
    for &(value, transpose) in turned {
        let others: Vec<(Op, usize)> = body.uses(value).filter(|&(user, _)| user != transpose).collect();
        read_turned(body, transpose, &others)?;
        let result = body.result(transpose, 0);
        kept.iter_mut().filter(|v| **v == value).for_each(|v| *v = result);
    }
    Ok(())
}

/// A symbol has its value from a dimension of an argument: one that nothing kept has comes with an argument of the forward one. Gradients may be absent.
fn with_sizes(body: &Body, joint: &Joint, kept: &[Value]) -> Vec<Value> {
    let mut out = kept.to_vec();
    let has = |v: &Value, name: Name| body.ty(*v).shape().contains(&Dim::symbol(name));
    for symbol in symbols(body) {
        if !out.iter().any(|v| has(v, symbol.name)) {
            let own = joint.arguments.iter().filter(|v| !joint.donated.contains(v));
            out.extend(own.copied().find(|v| has(v, symbol.name)));
        }
    }
    out
}

fn named(body: &mut Body, suffix: &str) {
    let name = format!("{}_{suffix}", body.symbol().unwrap_or_default());
    let root = body.root();
    body.set_attr(root, "sym_name", Attr::str(&name));
    body.remove_attr(root, JOINT);
    for op in body.walk() {
        body.remove_attr(op, RECOMPUTE);
    }
}

fn forward(body: &Body, joint: &Joint, results: &[Value]) -> Body {
    let mut new = body.clone();
    set_results(&mut new, results);
    erase_unused(&mut new);
    keep_args(&mut new, &(0..joint.arguments.len()).collect::<Vec<_>>());
    named(&mut new, "forward");
    new
}

fn backward(body: &Body, joint: &Joint, kept: &[Value], saved: &[i64]) -> Body {
    let mut new = body.clone();
    let gradients: Vec<Value> = body.operands(joint.end).skip(joint.results).collect();
    // What the function's own results are is not what the gradients are.
    let root = new.root();
    new.remove_attr(root, "res_attrs");
    set_results(&mut new, &gradients);
    let entry = new.entry().expect("checked");
    let count = new.block_args(entry).len();
    for &value in kept {
        let arg = new.add_block_arg(entry, new.ty(value));
        new.set_value_name(arg, new.value_name(value));
        new.replace_all_uses(value, arg);
    }
    erase_unused(&mut new);
    delay(&mut new, &joint.backward);
    let added = count..count + kept.len();
    keep_args(&mut new, &added.chain(joint.arguments.len()..count).collect::<Vec<_>>());
    new.set_attr(root, SAVED, Attr::i64s(saved));
    named(&mut new, "backward");
    new
}

/// Moves what is computed again, which does not follow the gradients, to where it is used first: at the function's start all of it would be held at once.
fn delay(body: &mut Body, follows: &FxHashSet<Value>) {
    let entry = body.entry().expect("checked");
    let end = body.terminator(entry).expect("checked");
    let ops: Vec<Op> = body.ops(entry).collect();
    let (mut seen, mut order) = (FxHashSet::default(), Vec::new());
    for &op in ops.iter().filter(|&&op| op == end || body.results(op).any(|v| follows.contains(&v))) {
        // Depth first: an op comes after those that it needs.
        let mut stack = vec![(op, 0)];
        while let Some((op, next)) = stack.pop() {
            let Some(operand) = body.operands(op).nth(next) else {
                order.push(op);
                continue;
            };
            stack.push((op, next + 1));
            stack.extend(body.defining_op(operand).filter(|&def| seen.insert(def)).map(|def| (def, 0)));
        }
        seen.insert(op);
    }
    for &op in order.iter().filter(|&&op| op != end) {
        body.move_before(end, op);
    }
}

/// The function takes these of its arguments, in this order; the others have no uses.
pub fn keep_args(body: &mut Body, wanted: &[usize]) {
    let entry = body.entry().expect("checked");
    let dicts = arg_dicts(body);
    let has_dicts = body.attr(body.root(), "arg_attrs").is_some();
    let before: Vec<Value> = body.block_args(entry).collect();
    for &i in wanted {
        let (old, ty, name) = (before[i], body.ty(before[i]), body.value_name(before[i]));
        let arg = body.add_block_arg(entry, ty);
        body.set_value_name(arg, name);
        body.replace_all_uses(old, arg);
    }
    for i in (0..before.len()).rev() {
        body.erase_block_arg(entry, i);
    }
    if has_dicts {
        let dicts: Vec<Attr> = wanted.iter().map(|&i| dicts.get(i).copied().unwrap_or_else(Attr::empty_dict)).collect();
        body.set_attr(body.root(), "arg_attrs", Attr::array(&dicts));
    }
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    let results: Vec<Type> =
        body.attr(body.root(), "function_type").and_then(|t| t.as_type()?.as_function()).expect("verified").1.to_vec();
    body.set_attr(body.root(), "function_type", Attr::ty(Type::function(&inputs, &results)));
}
