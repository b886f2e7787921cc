//! Arguments and results added to functions.

use super::end_of;
use super::request::signature;
use rc_dialects::func::arg_dicts;
use rc_ir::{Attr, Body, Name, Type, Value};

/// A further argument of a function.
pub fn add_arg(body: &mut Body, ty: Type, name: &str) -> Value {
    let mut dicts = arg_dicts(body);
    let entry = body.entry().expect("a function with a body");
    let arg = body.add_block_arg(entry, ty);
    body.set_value_name(arg, Name::new(name));
    dicts.push(Attr::empty_dict());
    if body.attr(body.root(), "arg_attrs").is_some() {
        body.set_attr(body.root(), "arg_attrs", Attr::array(&dicts));
    }
    let results = signature(body).1;
    set_type(body, results);
    arg
}

/// The function gives these values; attributes of results that it had before stay.
pub fn set_results(body: &mut Body, values: &[Value]) {
    let end = end_of(body);
    body.set_operands(end, values);
    let results: Vec<Type> = values.iter().map(|&v| body.ty(v)).collect();
    set_type(body, &results);
    if let Some(dicts) = body.attr(body.root(), "res_attrs").and_then(|a| a.as_array()) {
        let mut dicts = dicts.to_vec();
        dicts.resize(values.len(), Attr::empty_dict());
        body.set_attr(body.root(), "res_attrs", Attr::array(&dicts));
    }
}

fn set_type(body: &mut Body, results: &[Type]) {
    let entry = body.entry().expect("a function with a body");
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    body.set_attr(body.root(), "function_type", Attr::ty(Type::function(&inputs, results)));
}
