//! What a call and its callees must agree on, which takes the module to see.

use super::ops::CALL;
use super::symbols::{bindings, symbols_of};
use super::updates::donated_args;
use crate::core::call::CALL as BINDING_CALL;
use crate::core::control::{FOR, IF, WHILE, slice_of};
use crate::op;
use rc_ir::{Body, Diagnostic, Module, Name, OpDef, OpRef, Result, Traits, Type, Value};

/// A function that an op calls, with the types of what it passes and expects.
pub struct Call {
    pub callee: Name,
    pub args: Vec<Type>,
    pub results: Vec<Type>,
}

/// Checks every call of a module against its callee: that it exists, and that types agree after binding its symbols.
pub fn verify_calls(module: &Module) -> Vec<Box<Diagnostic>> {
    let mut errors = Vec::new();
    let has_calls = |body: &Body| body.ops_since(0).any(|op| may_call(body.op_ref(op)));
    for body in module.bodies.iter().filter(|body| has_calls(body)) {
        for op in body.walk() {
            let op = body.op_ref(op);
            let calls = calls(op);
            errors.extend(calls.iter().filter_map(|call| check(module, op, call).err()));
        }
    }
    errors
}

/// The function that an op calls, if it is a call: `func.call` or `core.call`.
pub fn callee(op: OpRef) -> Option<Name> {
    match op.name() {
        name if name == &CALL => op.attr("callee")?.as_symbol(),
        name if name == &BINDING_CALL => op.str("callee").map(Name::new),
        _ => None,
    }
}

/// Whether an op is one of those that call functions.
fn may_call(op: OpRef) -> bool {
    const CALLS: [&OpDef; 5] = [&IF, &WHILE, &FOR, &CALL, &BINDING_CALL];
    op.def().is_some() && CALLS.iter().any(|def| op.name() == *def)
}

/// The functions that an op calls: one of a call, two of a choice, those of a loop.
pub fn calls(op: OpRef) -> Vec<Call> {
    if !may_call(op) {
        return Vec::new();
    }
    let types = |values: &[Value]| values.iter().map(|&v| op.body.ty(v)).collect::<Vec<Type>>();
    let results: Vec<Type> = op.result_types().to_vec();
    let call = |attr: &str, args: &[Type], results: &[Type]| {
        let call = |name| Call { callee: Name::new(name), args: args.to_vec(), results: results.to_vec() };
        op.str(attr).map(call)
    };
    let found = match op.name() {
        name if name == &IF => {
            let args = &op.operand_types()[1..];
            vec![call("then", args, &results), call("else", args, &results)]
        }
        name if name == &WHILE => {
            let args = op.operand_types();
            let condition = Type::tensor(&[], Type::i1());
            vec![call("condition", &args, &[condition]), call("body", &args, &results)]
        }
        name if name == &FOR => {
            let (init, args) = (types(&op.group("init")), types(&op.group("args")));
            let slices: Vec<Type> = types(&op.group("slices")).into_iter().map(slice_of).collect();
            let given: Vec<Type> =
                results.iter().enumerate().map(|(i, &ty)| if i < init.len() { ty } else { slice_of(ty) }).collect();
            vec![call("body", &[init, slices, args].concat(), &given)]
        }
        _ => vec![callee(op).map(|callee| Call { callee, args: op.operand_types().to_vec(), results })],
    };
    found.into_iter().flatten().collect()
}

/// The symbol that `name` means at an op: of the nearest region around it that has one of this name, else of the module.
fn symbol_seen_from<'m>(module: &'m Module, op: OpRef<'m>, name: Name) -> Option<OpRef<'m>> {
    let body = op.body;
    let is_it = |op: &OpRef| op.has(Traits::SYMBOL) && op.str("sym_name").is_some_and(|s| name == s);
    let mut around = body.parent(op.op);
    while let Some(block) = around {
        let owner = body.block_region(block).map(|region| body.region_owner(region));
        if let Some(found) = body.ops(block).map(|op| body.op_ref(op)).find(is_it) {
            return Some(found);
        }
        around = owner.and_then(|owner| body.parent(owner));
    }
    module.symbol(name).map(|body| body.op_ref(body.root()))
}

fn check(module: &Module, op: OpRef, call: &Call) -> Result {
    let name = call.callee;
    let callee = symbol_seen_from(module, op, name).filter(|f| f.has(Traits::FUNCTION));
    let callee = callee.ok_or_else(|| op.error(format!("calls '@{name}', and there is no function of that name")))?;
    let Some(ty) = callee.attr("function_type").and_then(|a| a.as_type()) else { return Ok(()) };
    let (bound, declared) = (bindings(op), symbols_of(callee)?);
    if let Some(symbol) = declared.iter().find(|d| !bound.iter().any(|b| b.0 == d.name)) {
        let error = op.error(format!("does not bind the symbol '{}' of '@{name}'", symbol.name));
        return Err(error.help(format!("write {} … {{…, bind = <{} = …>}}", op.name().pretty(), symbol.name)));
    }
    if let Some((symbol, _)) = bound.iter().find(|b| !declared.iter().any(|d| d.name == b.0)) {
        return Err(op.error(format!("binds '{symbol}', and '@{name}' has no such symbol")));
    }
    if let Some(&arg) = donated_args(callee.body).first() {
        let error = op.error(format!("calls '@{name}', to which argument {arg} is donated"));
        return Err(error.help("memory is donated from outside of the module: leave out rc.donated and rc.updates"));
    }
    let lookup = |symbol: Name| bound.iter().find(|b| b.0 == symbol).map(|b| b.1);
    let expected = ty.map_dims(&|dim| dim.substitute(&lookup));
    let actual = Type::function(&call.args, &call.results);
    if expected == actual || callee.is(op::host::FUNC) {
        return Ok(());
    }
    Err(op
        .error(format!("has the type {actual} and calls '@{name}' of type {expected}"))
        .note(callee.loc(), "declared here"))
}
