//! Takes the computation of some values out of a function.

use super::Initializer;
use rc_dialects::func::{FUNC, INIT, arg_dicts, return_op};
use rc_ir::builder::new_function;
use rc_ir::effects::is_dead;
use rc_ir::{Attr, Block, Body, Builder, Mapping, Name, Op, Type, Value};
use rustc_hash::FxHashSet;

/// Makes `roots`, which depend on the constant `args` alone, the results of a new function `name` and the last arguments of `body`.
pub fn split(body: &mut Body, entry: Block, name: Name, args: &[usize], roots: &[Value]) -> Body {
    let ops = needed(body, entry, roots);
    let read: FxHashSet<Value> = ops.iter().flat_map(|&op| body.operands(op)).collect();
    let args: Vec<usize> = args.iter().copied().filter(|&i| read.contains(&body.block_arg(entry, i))).collect();
    let init = initializer(body, entry, name, &args, &ops, roots);
    take(body, entry, roots);
    let attr = Initializer { function: name, args, results: roots.len() }.attr();
    body.set_attr(body.root(), INIT, attr);
    for &op in ops.iter().rev() {
        if is_dead(body, op) {
            body.erase(op);
        }
    }
    init
}

/// The operations that `roots` are computed by, in program order.
fn needed(body: &Body, entry: Block, roots: &[Value]) -> Vec<Op> {
    let mut found = FxHashSet::default();
    let mut stack: Vec<Value> = roots.to_vec();
    while let Some(op) = stack.pop().map(|v| body.defining_op(v)) {
        if let Some(op) = op.filter(|&op| found.insert(op)) {
            stack.extend(body.operands(op));
        }
    }
    body.ops(entry).filter(|op| found.contains(op)).collect()
}

fn initializer(body: &Body, entry: Block, name: Name, args: &[usize], ops: &[Op], roots: &[Value]) -> Body {
    let from: Vec<Value> = args.iter().map(|&i| body.block_arg(entry, i)).collect();
    let types: Vec<Type> = from.iter().map(|&v| body.ty(v)).collect();
    let results: Vec<Type> = roots.iter().map(|&v| body.ty(v)).collect();
    let mut new = new_function(&FUNC, name.as_str(), &types, &results, body.loc(body.root()));
    let dicts = arg_dicts(body);
    let dicts: Vec<Attr> = args.iter().map(|&i| dicts[i]).collect();
    new.body.set_attr(new.body.root(), "arg_attrs", Attr::array(&dicts));
    let mut map = Mapping::new();
    for (&old, &arg) in from.iter().zip(&new.args) {
        new.body.set_value_name(arg, body.value_name(old));
        map.map(old, arg);
    }
    for &op in ops {
        let copy = new.body.clone_from_body(body, op, &mut map);
        new.body.append(new.entry, copy);
    }
    let values: Vec<Value> = roots.iter().map(|&v| map.lookup(v)).collect();
    return_op(&mut Builder::at_end(&mut new.body, new.entry), &values);
    new.body
}

/// Makes `roots` arguments of the function.
fn take(body: &mut Body, entry: Block, roots: &[Value]) {
    let mut dicts = arg_dicts(body);
    for &root in roots {
        let arg = body.add_block_arg(entry, body.ty(root));
        body.set_value_name(arg, body.value_name(root));
        body.replace_all_uses(root, arg);
        dicts.push(Attr::empty_dict());
    }
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    let ty = body.attr(body.root(), "function_type").and_then(|t| t.as_type());
    let results = ty.and_then(Type::as_function).expect("verified").1;
    body.set_attr(body.root(), "function_type", Attr::ty(Type::function(&inputs, results)));
    body.set_attr(body.root(), "arg_attrs", Attr::array(&dicts));
}
