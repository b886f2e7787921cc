//! Fewer operations. What is left of a function stands alone: values whose operations went become arguments, values whose uses went are
//! returned. Where a signature cannot change, another value or a zero takes the place of what went.

use super::Search;
use super::minimize::minimize;
use rc_dialects::op;
use rc_ir::attr::{AttrData, DenseData, scalar_bytes};
use rc_ir::{Attr, Body, Builder, Module, Name, Op, Traits, Type, Value};
use rustc_hash::FxHashSet;

/// What takes the place of a value whose operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// A new argument of the function.
    Argument,
    /// An operand of the operation, an argument or a zero, of the same type.
    Value,
}

/// Takes operations away, those of functions first, then those in their regions.
pub fn reduce(module: Module, search: &mut Search) -> Module {
    let outer = take_away(module, search, Cut::Argument, false);
    take_away(outer, search, Cut::Argument, true)
}

/// Takes operations away and leaves the signatures of functions as they are.
pub fn cut(module: Module, search: &mut Search) -> Module {
    take_away(module, search, Cut::Value, true)
}

fn take_away(module: Module, search: &mut Search, cut: Cut, nested: bool) -> Module {
    let parts: Vec<(usize, Op)> = (0..module.bodies.len())
        .flat_map(|at| removable(&module.bodies[at], nested).into_iter().map(move |op| (at, op)))
        .collect();
    minimize(&parts, search, |gone| without(&module, gone, cut)).1.unwrap_or(module)
}

/// The operations that may go: all but terminators, and those directly in the root's blocks alone unless `nested`.
fn removable(body: &Body, nested: bool) -> Vec<Op> {
    let may_go = |&op: &Op| {
        let depth = body.parent_op(op).is_some_and(|parent| nested || parent == body.root());
        depth && !body.op_ref(op).has(Traits::TERMINATOR) && body.successors(op).is_empty()
    };
    body.walk().into_iter().filter(may_go).collect()
}

/// The module without these operations. `None` where nothing can take the place of a value.
fn without(module: &Module, gone: &[(usize, Op)], cut: Cut) -> Option<Module> {
    let mut fewer = module.clone();
    for (at, body) in fewer.bodies.iter_mut().enumerate() {
        let ops: FxHashSet<Op> = gone.iter().filter(|g| g.0 == at).map(|g| g.1).collect();
        if !ops.is_empty() {
            take_from(body, &ops, cut)?;
        }
    }
    super::symbols::drop_unused_resources(&mut fewer);
    Some(fewer)
}

fn take_from(body: &mut Body, gone: &FxHashSet<Op>, cut: Cut) -> Option<()> {
    let outermost: Vec<Op> =
        body.walk().into_iter().filter(|op| gone.contains(op) && !is_inside(body, *op, gone)).collect();
    let unused = unused_results(body);
    if cut == Cut::Argument {
        drop_returned(body, gone);
    }
    for op in outermost.into_iter().rev() {
        let results: Vec<Value> = body.results(op).collect();
        for value in results.into_iter().filter(|&v| body.has_uses(v)).collect::<Vec<_>>() {
            let argument = (cut == Cut::Argument).then(|| argument_for(body, op, value)).flatten();
            let other = argument.or_else(|| other_value(body, op, value))?;
            body.replace_all_uses(value, other);
        }
        body.erase(op);
    }
    if cut == Cut::Argument {
        return_unused(body, &unused);
        drop_unused_arguments(body);
        set_function_type(body);
    }
    Some(())
}

fn is_inside(body: &Body, op: Op, gone: &FxHashSet<Op>) -> bool {
    std::iter::successors(body.parent_op(op), |&o| body.parent_op(o)).any(|o| gone.contains(&o))
}

/// Results of the function's own operations that nothing uses.
fn unused_results(body: &Body) -> FxHashSet<Value> {
    let Some(entry) = body.entry() else { return FxHashSet::default() };
    body.ops(entry).flat_map(|op| body.results(op)).filter(|&v| !body.has_uses(v)).collect()
}

/// The `func.return` of a function of one block.
fn return_of(body: &Body) -> Option<Op> {
    let entry = body.entry()?;
    body.terminator(entry).filter(|&op| body.name(op) == op::func::RETURN)
}

/// Returns no values whose operations go.
fn drop_returned(body: &mut Body, gone: &FxHashSet<Op>) {
    let Some(end) = return_of(body) else { return };
    let stays = |v: &Value| body.defining_op(*v).is_none_or(|op| !gone.contains(&op));
    let kept: Vec<usize> = body.operands(end).enumerate().filter(|(_, v)| stays(v)).map(|(i, _)| i).collect();
    keep_returned(body, end, &kept);
}

/// Returns the values of these numbers alone.
pub fn keep_returned(body: &mut Body, end: Op, kept: &[usize]) {
    let values: Vec<Value> = kept.iter().map(|&i| body.operand(end, i)).collect();
    keep_dicts(body, "res_attrs", kept);
    body.set_operands(end, &values);
}

/// Keeps the entries of these numbers of `arg_attrs` or `res_attrs`.
fn keep_dicts(body: &mut Body, name: &str, kept: &[usize]) {
    let root = body.root();
    if let Some(dicts) = body.attr(root, name).and_then(Attr::as_array) {
        let left: Vec<Attr> = kept.iter().filter_map(|&i| dicts.get(i).copied()).collect();
        body.set_attr(root, name, Attr::array(&left));
    }
}

/// Returns what nothing uses any more, so that it stays alive.
fn return_unused(body: &mut Body, before: &FxHashSet<Value>) {
    let Some(end) = return_of(body) else { return };
    let mut values: Vec<Value> = body.operands(end).collect();
    let mut new: Vec<Value> = unused_results(body).into_iter().filter(|v| !before.contains(v)).collect();
    new.sort();
    values.extend(new);
    body.set_operands(end, &values);
}

/// A new argument of the function for a value of `op`, unless an operation in between hides it.
fn argument_for(body: &mut Body, op: Op, value: Value) -> Option<Value> {
    let root = body.root();
    let visible = std::iter::successors(body.parent_op(op), |&o| body.parent_op(o))
        .take_while(|&o| o != root)
        .all(|o| !body.op_ref(o).has(Traits::ISOLATED));
    let entry = body.entry().filter(|_| visible && body.op_ref(root).has(Traits::FUNCTION))?;
    let name = body.value_name(value);
    let new = body.add_block_arg(entry, body.ty(value));
    body.set_value_name(new, name);
    Some(new)
}

/// An operand of `op`, an argument of a block around it or a zero, of the type of its result.
fn other_value(body: &mut Body, op: Op, value: Value) -> Option<Value> {
    let ty = body.ty(value);
    let own = body.operands(op).find(|&v| body.ty(v) == ty);
    let block = body.parent(op)?;
    let argument = || body.block_args(block).find(|&v| body.ty(v) == ty);
    match own.or_else(argument) {
        Some(value) => Some(value),
        None => {
            let attr = zero(ty)?;
            Builder::before(body, op).op(op::core::CONSTANT).attr("value", attr).result(ty).try_value().ok()
        }
    }
}

/// A constant attribute of zeros.
pub fn zero(ty: Type) -> Option<Attr> {
    let elem = ty.elem();
    if ty.is_float() {
        return Some(Attr::float(0.0, ty));
    }
    if ty.is_scalar() {
        return Some(if ty == Type::i1() { Attr::bool(false) } else { Attr::int(0, ty) });
    }
    elem.byte_width().filter(|_| ty.is_tensor() && elem.is_scalar() && !elem.is_index())?;
    Some(Attr::new(AttrData::Dense { ty, data: DenseData { splat: true, bytes: scalar_bytes(elem, 0.0) } }))
}

/// Drops arguments that nothing uses, where no attribute counts arguments.
fn drop_unused_arguments(body: &mut Body) {
    let root = body.root();
    let counted = ["rc.init", "rc.joint"].iter().any(|name| body.attr(root, name).is_some())
        || body.attr(root, "res_attrs").is_some_and(|a| a.to_string().contains("rc.updates"));
    let Some(entry) = body.entry().filter(|_| !counted && body.op_ref(root).has(Traits::FUNCTION)) else { return };
    let args: Vec<Value> = body.block_args(entry).collect();
    let kept: Vec<usize> = (0..args.len()).filter(|&i| body.has_uses(args[i])).collect();
    keep_dicts_of_arguments(body, &kept, args.len());
    for i in (0..args.len()).rev().filter(|i| !kept.contains(i)) {
        body.erase_block_arg(entry, i);
    }
}

/// New arguments have no attributes.
fn keep_dicts_of_arguments(body: &mut Body, kept: &[usize], count: usize) {
    let root = body.root();
    let Some(dicts) = body.attr(root, "arg_attrs").and_then(Attr::as_array) else { return };
    let mut all = dicts.to_vec();
    all.resize(count, Attr::empty_dict());
    let left: Vec<Attr> = kept.iter().map(|&i| all[i]).collect();
    if left.iter().all(|&d| d == Attr::empty_dict()) {
        body.remove_attr(root, "arg_attrs");
    } else {
        body.set_attr(root, "arg_attrs", Attr::array(&left));
    }
}

/// Makes `function_type` what the arguments and the returned values are.
pub fn set_function_type(body: &mut Body) {
    let root = body.root();
    let old = body.attr(root, "function_type").and_then(|a| a.as_type()).and_then(Type::as_function);
    let (Some(entry), Some((_, results))) = (body.entry(), old) else { return };
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    let results = match return_of(body) {
        Some(end) => body.operands(end).map(|v| body.ty(v)).collect(),
        None => results.to_vec(),
    };
    if let Some(dicts) = body.attr(root, "res_attrs").and_then(Attr::as_array) {
        let mut dicts = dicts.to_vec();
        dicts.resize(results.len(), Attr::empty_dict());
        body.set_attr(root, "res_attrs", Attr::array(&dicts));
    }
    let ty = Attr::ty(Type::function(&inputs, &results));
    let dict = body.attrs(root).with(Name::new("function_type"), Some(ty));
    body.set_attrs(root, dict);
}

/// Drops arguments that nothing uses, and says so in the function's type.
pub fn drop_unused(body: &mut Body) {
    drop_unused_arguments(body);
    set_function_type(body);
}
