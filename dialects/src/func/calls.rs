//! What a call and its callee must agree on, which takes the module to see.

use super::ops::CALL;
use super::symbols::{bindings, symbols_of};
use crate::core::call::CALL as BINDING_CALL;
use rc_ir::{Diagnostic, Module, Name, OpRef, Result, Traits, Type};

/// Checks every call of a module against its callee: that it exists, and that types agree after binding its symbols.
pub fn verify_calls(module: &Module) -> Vec<Box<Diagnostic>> {
    let mut errors = Vec::new();
    for body in &module.bodies {
        for op in body.walk() {
            if let Some(callee) = callee(body.op_ref(op)) {
                errors.extend(check(module, body.op_ref(op), callee).err());
            }
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

fn check(module: &Module, call: OpRef, name: Name) -> Result {
    let callee = module.symbol(name).map(|b| b.op_ref(b.root())).filter(|f| f.has(Traits::FUNCTION));
    let callee = callee.ok_or_else(|| call.error(format!("calls '@{name}', and there is no function of that name")))?;
    let Some(ty) = callee.attr("function_type").and_then(|a| a.as_type()) else { return Ok(()) };
    let (bound, declared) = (bindings(call), symbols_of(callee)?);
    if let Some(symbol) = declared.iter().find(|d| !bound.iter().any(|b| b.0 == d.name)) {
        let error = call.error(format!("does not bind the symbol '{}' of '@{name}'", symbol.name));
        return Err(error.help(format!("write core.call … {{callee = \"{name}\", bind = <{} = …>}}", symbol.name)));
    }
    if let Some((symbol, _)) = bound.iter().find(|b| !declared.iter().any(|d| d.name == b.0)) {
        return Err(call.error(format!("binds '{symbol}', and '@{name}' has no such symbol")));
    }
    let lookup = |symbol: Name| bound.iter().find(|b| b.0 == symbol).map(|b| b.1);
    let expected = ty.map_dims(&|dim| dim.substitute(&lookup));
    let actual = Type::function(&call.operand_types(), &call.result_types());
    if expected == actual {
        return Ok(());
    }
    Err(call
        .error(format!("has the type {actual} and calls '@{name}' of type {expected}"))
        .note(callee.loc(), "declared here"))
}
