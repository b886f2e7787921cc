//! `func.func`, `func.return`, `func.call`.

use super::symbols::{BINDINGS, bindings, symbols_of};
use rc_ir::op_def::{ANY, AttrKind, Regions, attr, variadic, variadic_result};
use rc_ir::{Attr, Body, Builder, Diagnostic, Effects, Module, Name, Op, OpDef, OpRef, Result, Traits, Type, Value};

pub static FUNC: OpDef = OpDef {
    summary: "A function.",
    doc: "Symbolic sizes in its types are expressions over the symbols that `rc.symbols` declares, each with its least and \
          greatest value and a divisor; a call or the caller of the compiled module decides what they are. An argument's \
          attribute `rc.name` is its name outside (of a weight, the one in the checkpoint). A function without a body is \
          declared only.",
    example: "func.func @scale(%x: tensor<s x 4 x f32> {rc.name = \"x\"}) -> tensor<s x 4 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 1024, 1]>} {
  %y = core.add %x, %x : tensor<s x 4 x f32>
  func.return %y
}
",
    attrs: &[
        attr("sym_name", AttrKind::Str, "The function's name."),
        attr("function_type", AttrKind::Type, "The types of arguments and results."),
        attr("arg_attrs", AttrKind::Array, "A dictionary for each argument.").optional(),
        attr("res_attrs", AttrKind::Array, "A dictionary for each result.").optional(),
        attr("sym_visibility", AttrKind::Str, "`private`, `nested` or `public`; absent: public.").optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::FUNCTION.union(Traits::SYMBOL).union(Traits::ISOLATED),
    effects: Effects::Pure,
    verify: Some(verify_func),
    ..OpDef::new("func.func")
};

pub static RETURN: OpDef = OpDef {
    summary: "Ends a function and gives its results.",
    doc: "",
    example: FUNC.example,
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    verify: Some(verify_return),
    ..OpDef::new("func.return")
};

pub static CALL: OpDef = OpDef {
    summary: "Calls a function.",
    doc: "Operand and result types are those of the callee exactly, with its symbols replaced by what the attribute `rc.bind` \
          says: a dictionary from the callee's symbols to expressions over the caller's. A callee without symbols needs none.",
    example: "func.func private @twice(%x: tensor<n x f32>) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [1, 1024, 1]>} {
  %y = core.add %x, %x : tensor<n x f32>
  func.return %y
}
func.func @call(%x: tensor<n x f32>) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [1, 64, 1]>} {
  %y = func.call %x {callee = @twice, rc.bind = {n = #rc.shape<[n]>}} : tensor<n x f32>
  func.return %y
}
",
    operands: &[variadic("args", ANY)],
    results: &[variadic_result("results", ANY)],
    attrs: &[attr("callee", AttrKind::Symbol, "The function that is called.")],
    verify: Some(verify_call),
    ..OpDef::new("func.call")
};

fn verify_func(op: OpRef) -> Result {
    let ty = op.attr("function_type").and_then(|a| a.as_type());
    let Some((inputs, results)) = ty.and_then(Type::as_function) else {
        return Err(op.error("needs a function type in 'function_type'"));
    };
    verify_dicts(op, "arg_attrs", inputs.len())?;
    verify_dicts(op, "res_attrs", results.len())?;
    let declared = symbols_of(op)?;
    let check = |ty: Type| undeclared(ty, &|name| declared.iter().any(|d| d.name == name));
    if let Some((ty, name)) = inputs.iter().chain(results).find_map(|&t| Some((t, check(t)?))) {
        let error = op.error(format!("has the type {ty} over the symbol '{name}', which it does not declare"));
        return Err(error.help(format!("declare it: attributes {{rc.symbols = #rc.symbols<{name} = [1, 1024, 1]>}}")));
    }
    let Some(entry) = op.entry(0) else { return Ok(()) };
    let args: Vec<Type> = op.body.block_args(entry).map(|v| op.body.ty(v)).collect();
    if args != inputs {
        return Err(op.error(format!("has the type {} and arguments of types {args:?}", Type::function(inputs, results))));
    }
    for inner in op.body.walk_from(op.op).into_iter().skip(1) {
        let inner = op.body.op_ref(inner);
        if let Some((ty, name)) = inner.result_types().into_iter().find_map(|t| Some((t, check(t)?))) {
            return Err(inner.error(format!("has the type {ty} over the symbol '{name}', which the function does not declare")));
        }
    }
    Ok(())
}

fn verify_dicts(op: OpRef, name: &str, count: usize) -> Result {
    let Some(list) = op.attr(name) else { return Ok(()) };
    let fits = list.as_array().is_some_and(|a| a.len() == count && a.iter().all(|d| d.as_dict().is_some()));
    if fits { Ok(()) } else { Err(op.error(format!("needs {count} dictionaries in '{name}'"))) }
}

/// The first symbol in a type's sizes that is not declared.
fn undeclared(ty: Type, declared: &dyn Fn(Name) -> bool) -> Option<Name> {
    let missing = std::cell::Cell::new(None);
    ty.map_dims(&|dim| {
        dim.for_each_symbol(&mut |name| {
            if missing.get().is_none() && !declared(name) {
                missing.set(Some(name));
            }
        });
        dim
    });
    missing.get()
}

/// The verifier of a function's terminator: the values have the types of the function's results.
pub fn verify_return(op: OpRef) -> Result {
    let Some(func) = op.body.parent_op(op.op).map(|f| op.body.op_ref(f)).filter(|f| f.has(Traits::FUNCTION)) else {
        return Err(op.error("needs to be directly in a function"));
    };
    let ty = func.attr("function_type").and_then(|a| a.as_type());
    let Some((_, results)) = ty.and_then(Type::as_function) else { return Ok(()) };
    let values = op.operand_types();
    if values.as_slice() == results {
        return Ok(());
    }
    Err(op.error(format!("returns {values:?} from a function with results {results:?}")).note(func.loc(), "declared here"))
}

/// What can be seen without the module; [`verify_calls`] checks the rest.
fn verify_call(op: OpRef) -> Result {
    let Some(attr) = op.attr(BINDINGS) else { return Ok(()) };
    let entries = attr.as_dict().ok_or_else(|| op.error("needs a dictionary in 'rc.bind'"))?;
    match entries.iter().find(|e| e.1.as_shape().is_none_or(|s| s.len() != 1)) {
        Some((name, _)) => Err(op.error(format!("needs one size for '{name}' in 'rc.bind'"))),
        None => Ok(()),
    }
}

/// Checks every call of a module against its callee: that it exists, and that types agree after binding its symbols.
pub fn verify_calls(module: &Module) -> Vec<Box<Diagnostic>> {
    let mut errors = Vec::new();
    for body in &module.bodies {
        for op in body.walk().into_iter().filter(|&op| body.name(op) == &CALL) {
            errors.extend(check_call(module, body.op_ref(op)).err());
        }
    }
    errors
}

fn check_call(module: &Module, call: OpRef) -> Result {
    let Some(name) = call.attr("callee").and_then(|a| a.as_symbol()) else { return Ok(()) };
    let callee = module.symbol(name).map(|b| b.op_ref(b.root())).filter(|f| f.has(Traits::FUNCTION));
    let callee = callee.ok_or_else(|| call.error(format!("calls '@{name}', and there is no function of that name")))?;
    let Some(ty) = callee.attr("function_type").and_then(|a| a.as_type()) else { return Ok(()) };
    let (bound, declared) = (bindings(call), symbols_of(callee)?);
    if let Some(symbol) = declared.iter().find(|d| !bound.iter().any(|b| b.0 == d.name)) {
        let error = call.error(format!("does not bind the symbol '{}' of '@{name}'", symbol.name));
        return Err(error.help(format!("add rc.bind = {{{} = #rc.shape<[…]>}}", symbol.name)));
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
    Err(call.error(format!("has the type {actual} and calls '@{name}' of type {expected}")).note(callee.loc(), "declared here"))
}

/// The `rc.name` of each argument, where it has one; else the name it has in the text, which may be empty.
pub fn arg_names(body: &Body) -> Vec<Name> {
    let dicts = body.attr(body.root(), "arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let Some(entry) = body.entry() else {
        return dicts.iter().map(|d| d.get("rc.name").and_then(Attr::as_str).map(Name::new).unwrap_or_default()).collect();
    };
    let given = |i: usize| dicts.get(i)?.get("rc.name")?.as_str().map(Name::new);
    body.block_args(entry).enumerate().map(|(i, v)| given(i).unwrap_or_else(|| body.value_name(v))).collect()
}

/// Ends a function with these results.
pub fn return_op(b: &mut Builder, values: &[Value]) -> Op {
    b.op(&RETURN).operands(values).build()
}
