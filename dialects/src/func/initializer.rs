//! What a function computes once, from arguments that are the same at every call.

use super::ops::arg_dicts;
use crate::op;
use rc_ir::{Attr, Body, Diagnostic, Module, Name, OpRef, Result, Type};

/// An argument's attribute: the caller gives the same values at every call, as of a model's weights.
pub const CONSTANT: &str = "rc.constant";

/// The function's attribute that names its initializer: `rc.init = #rc.init<function = "main_init", args = [1, 2], results = 1>`.
pub const INIT: &str = "rc.init";

/// The function that computes, once, what the last arguments of another one are at every call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Initializer {
    pub function: Name,
    /// The constant arguments of the function that are the initializer's.
    pub args: Vec<usize>,
    /// Its results: the function's last inputs, which no caller gives.
    pub results: usize,
}

impl Initializer {
    /// The initializer that a function, planned or not, names; none where it has none, or its attribute is malformed, which the verifier reports.
    pub fn of(function: OpRef) -> Option<Initializer> {
        let attr = function.attr(INIT)?;
        attr.as_dialect("init")?;
        let args = attr.get("args")?.as_ints()?.into_iter().map(|n| usize::try_from(n).ok());
        Some(Initializer {
            function: Name::new(attr.get("function")?.as_str()?),
            args: args.collect::<Option<_>>()?,
            results: usize::try_from(attr.get("results")?.as_int()?).ok()?,
        })
    }
    pub fn attr(&self) -> Attr {
        let args: Vec<i64> = self.args.iter().map(|&n| n as i64).collect();
        let results = Attr::i64(self.results as i64);
        Attr::dialect(
            "init",
            &[("function", Attr::str(self.function.as_str())), ("args", Attr::i64s(&args)), ("results", results)],
        )
    }
}

/// How many inputs a caller gives: all but those that an initializer computes.
pub fn given_inputs(function: OpRef) -> usize {
    let inputs = function.attr("function_type").and_then(|t| t.as_type()?.as_function()).map_or(0, |f| f.0.len());
    // A planned function lists its results and the arena after its inputs.
    let planned = function.int("inputs").and_then(|n| usize::try_from(n).ok());
    planned.unwrap_or(inputs).min(inputs).saturating_sub(Initializer::of(function).map_or(0, |i| i.results))
}

/// The numbers of the arguments that are the same at every call.
pub fn constant_args(body: &Body) -> Vec<usize> {
    args_with(body, CONSTANT)
}
/// Declares that these arguments are the same at every call.
pub fn set_constant_args(body: &mut Body, args: impl IntoIterator<Item = usize>) {
    mark_args(body, args, CONSTANT);
}

/// The numbers of the arguments that have a flag.
pub(super) fn args_with(body: &Body, flag: &str) -> Vec<usize> {
    let has = |dict: &Attr| dict.get(flag).and_then(Attr::as_bool) == Some(true);
    arg_dicts(body).iter().enumerate().filter(|(_, dict)| has(dict)).map(|(i, _)| i).collect()
}
/// Gives arguments a flag.
pub(super) fn mark_args(body: &mut Body, args: impl IntoIterator<Item = usize>, flag: &str) {
    let mut dicts = arg_dicts(body);
    for i in args {
        if let Some(dict) = dicts.get_mut(i) {
            *dict = dict.with(Name::new(flag), Some(Attr::bool(true)));
        }
    }
    body.set_attr(body.root(), "arg_attrs", Attr::array(&dicts));
}

/// Checks every initializer against the function that names it: that it exists, and that types agree.
pub fn verify_initializers(module: &Module) -> Vec<Box<Diagnostic>> {
    module.bodies.iter().filter_map(|body| verify(module, body.op_ref(body.root())).err()).collect()
}

fn verify(module: &Module, function: OpRef) -> Result {
    if function.attr(INIT).is_none() {
        return Ok(());
    }
    let Some(init) = Initializer::of(function) else {
        let error = function.error("has a malformed 'rc.init'");
        return Err(error.help("write #rc.init<function = \"main_init\", args = [1, 2], results = 1>"));
    };
    let callee = module.symbol(init.function).map(|b| b.op_ref(b.root()));
    let callee = callee.ok_or_else(|| {
        function.error(format!("has the initializer '@{}', and there is no function of that name", init.function))
    })?;
    // Planned functions were unplanned ones, whose types were checked.
    let (Some((inputs, _)), Some((args, results))) = (signature(function), signature(callee)) else { return Ok(()) };
    let taken: Option<Vec<Type>> = init.args.iter().map(|&i| inputs.get(i).copied()).collect();
    let given = inputs.len().checked_sub(init.results).map(|first| &inputs[first..]);
    if taken.as_deref() == Some(args) && given == Some(results) {
        return Ok(());
    }
    Err(function
        .error(format!(
            "names arguments that do not fit the type of its initializer, {}",
            Type::function(args, results)
        ))
        .note(callee.loc(), "declared here"))
}

/// The type of a function that is not planned yet.
fn signature(function: OpRef) -> Option<(&'static [Type], &'static [Type])> {
    if !function.is(op::func::FUNC) {
        return None;
    }
    function.attr("function_type")?.as_type()?.as_function()
}
