//! `func.func`, `func.return`, `func.call`.

use super::symbols::symbols_of;
use super::updates::verify_updates;
use rc_ir::op_def::{ANY, AttrKind, Regions, attr, variadic, variadic_result};
use rc_ir::{Attr, Body, Builder, Dim, Effects, Name, Op, OpDef, OpRef, Result, Traits, Type, Value};
use rustc_hash::FxHashSet;

pub static FUNC: OpDef = OpDef {
    summary: "A function.",
    doc: "Symbolic sizes in its types are expressions over the symbols that `rc.symbols` declares, each with its least and \
          greatest value and a divisor; a call or the caller of the compiled module decides what they are. An argument's \
          attribute `rc.name` is its name outside (of a weight, the one in the checkpoint), and `rc.constant` says that the caller \
          gives the same values at every call. `rc.donated` lets the function write to an argument's memory, once it is \
          read no more. A result's `rc.updates` is the number of a donated argument of the same type, whose memory it is left in: no call \
          makes memory for it. A function with donated arguments is called from outside of the module only. `rc.init` names the function that computes the last arguments, once, of such \
          arguments. A function without a body is \
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
    doc: "Operand and result types are those of the callee exactly, as MLIR has it. A callee whose sizes are symbolic is called by \
          `core.call`, which says what its symbols are.",
    example: "func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = core.add %x, %x : tensor<8xf32>
  func.return %y
}
func.func @call(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = func.call %x {callee = @twice} : tensor<8xf32>
  func.return %y
}
",
    operands: &[variadic("args", ANY)],
    results: &[variadic_result("results", ANY)],
    attrs: &[attr("callee", AttrKind::Symbol, "The function that is called.")],
    interfaces: &[&crate::derivative::Derivative::Calls],
    ..OpDef::new("func.call")
};

/// Whether a function is only carried: it is declared alone, or has operations of dialects that are not registered.
fn is_foreign(op: OpRef) -> bool {
    op.entry(0).is_none() || op.body.walk_from(op.op).into_iter().any(|inner| op.body.name(inner).def().is_none())
}

fn verify_func(op: OpRef) -> Result {
    let ty = op.attr("function_type").and_then(|a| a.as_type());
    let Some((inputs, results)) = ty.and_then(Type::as_function) else {
        return Err(op.error("needs a function type in 'function_type'"));
    };
    verify_dicts(op, "arg_attrs", inputs.len())?;
    verify_dicts(op, "res_attrs", results.len())?;
    verify_updates(op, inputs, results)?;
    let declared = symbols_of(op)?;
    let check = |ty: Type| undeclared(ty, &|name| declared.iter().any(|d| d.name == name));
    if let Some((ty, name)) = inputs.iter().chain(results).find_map(|&t| Some((t, check(t)?))) {
        let error = op.error(format!("has the type {ty} over the symbol '{name}', which it does not declare"));
        return Err(error.help(format!("declare it: attributes {{rc.symbols = #rc.symbols<{name} = [1, 1024, 1]>}}")));
    }
    let nameless = inputs.iter().chain(results).find(|t| t.is_tensor() && t.shape().contains(&Dim::Dynamic));
    if let Some(ty) = nameless.filter(|_| !is_foreign(op)) {
        let error = op.error(format!("has the type {ty}, whose size '?' has no name"));
        return Err(
            error.help("name it: tensor<s x f32>, with attributes {rc.symbols = #rc.symbols<s = [1, 1024, 1]>}")
        );
    }
    let Some(entry) = op.entry(0) else { return Ok(()) };
    let args: Vec<Type> = op.body.block_args(entry).map(|v| op.body.ty(v)).collect();
    if args != inputs {
        return Err(
            op.error(format!("has the type {} and arguments of types {args:?}", Type::function(inputs, results)))
        );
    }
    // Types repeat.
    let mut right: FxHashSet<Type> = FxHashSet::default();
    for inner in op.body.walk_from(op.op).into_iter().skip(1) {
        let inner = op.body.op_ref(inner);
        let mut new = inner.results().map(|v| op.body.ty(v)).filter(|&ty| right.insert(ty));
        if let Some((ty, name)) = new.find_map(|ty| Some((ty, check(ty)?))) {
            return Err(
                inner.error(format!("has the type {ty} over the symbol '{name}', which the function does not declare"))
            );
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
    Err(op
        .error(format!("returns {values:?} from a function with results {results:?}"))
        .note(func.loc(), "declared here"))
}

/// The dictionary of each argument, empty where it has none.
pub fn arg_dicts(body: &Body) -> Vec<Attr> {
    let dicts = body.attr(body.root(), "arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let count = body.entry().map_or(dicts.len(), |entry| body.block_args(entry).len());
    filled(dicts, count)
}

/// The dictionary of each result, empty where it has none.
pub fn res_dicts(body: &Body) -> Vec<Attr> {
    let root = body.op_ref(body.root());
    let count = root.attr("function_type").and_then(|t| t.as_type()?.as_function()).map_or(0, |f| f.1.len());
    filled(root.attr("res_attrs").and_then(Attr::as_array).unwrap_or_default(), count)
}

fn filled(dicts: &[Attr], count: usize) -> Vec<Attr> {
    (0..count).map(|i| dicts.get(i).copied().unwrap_or_else(Attr::empty_dict)).collect()
}

/// The `rc.name` of each argument, where it has one, or what `names` of a planned function says; else the name it has in the text, which may be
/// empty.
pub fn arg_names(body: &Body) -> Vec<Name> {
    if let (Some(entry), Some(names)) = (body.entry(), body.attr(body.root(), "names").and_then(Attr::as_array)) {
        let given = |i: usize| names.get(i).and_then(|name| name.as_str()).map(Name::new);
        let args = body.block_args(entry).enumerate();
        return args.map(|(i, v)| given(i).unwrap_or_else(|| body.value_name(v))).collect();
    }
    let given = |d: &Attr| d.get("rc.name").and_then(Attr::as_str).map(Name::new);
    let dicts = arg_dicts(body);
    let Some(entry) = body.entry() else { return dicts.iter().map(|d| given(d).unwrap_or_default()).collect() };
    let args = dicts.iter().zip(body.block_args(entry));
    args.map(|(d, v)| given(d).unwrap_or_else(|| body.value_name(v))).collect()
}

/// Ends a function with these results.
pub fn return_op(b: &mut Builder, values: &[Value]) -> Op {
    b.op(&RETURN).operands(values).build()
}
