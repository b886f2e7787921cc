//! The declarations of operations, for `rc.ops`: what Python's functions take is what the ops declare.

use pyo3::prelude::*;
use rc_ir::op_def::{Arity, AttrDefault, AttrKind, registered};
use rc_ir::{OpDef, OpName};

/// An operation: its name without `rc.`, what it says of itself, groups of operands (name, arity), attributes, whether it infers its results'
/// types, and how many results it has (`None`: any number).
type Operation = (&'static str, &'static str, &'static str, Vec<Group>, Vec<Attribute>, bool, Option<usize>);

/// A group of operands: its name, and `one`, `optional` or `variadic`.
type Group = (&'static str, &'static str);

/// An attribute: its name, Python's type of it, its default as Python writes it (`None`: it has to be given) and what it means.
type Attribute = (&'static str, String, Option<String>, &'static str);

/// The operations of a dialect that a function is built of.
#[pyfunction]
pub fn operations(dialect: &str) -> Vec<Operation> {
    let wanted = |def: &&OpDef| OpName::new(def.name).dialect() == dialect && is_built(def);
    registered().into_iter().filter(wanted).map(operation).collect()
}

/// Whether operands and attributes are all that the op is made of, and Python can give them.
fn is_built(def: &OpDef) -> bool {
    def.regions == rc_ir::op_def::Regions::Exactly(0)
        && def.successors == 0
        && def.attrs.iter().all(|attr| python_type(attr.kind).is_some())
}

fn operation(def: &'static OpDef) -> Operation {
    let group = |operand: &rc_ir::op_def::OperandDef| (operand.name, word(operand.arity));
    let attribute = |attr: &rc_ir::op_def::AttrDef| {
        (attr.name, python_type(attr.kind).unwrap_or_default(), default(attr.default), attr.doc)
    };
    let fixed = def.results.iter().all(|result| result.arity == Arity::One);
    (
        def.name.strip_prefix("rc.").unwrap_or(def.name),
        def.summary,
        def.doc,
        def.operands.iter().map(group).collect(),
        def.attrs.iter().map(attribute).collect(),
        def.infer.is_some(),
        fixed.then_some(def.results.len()),
    )
}

fn word(arity: Arity) -> &'static str {
    match arity {
        Arity::One => "one",
        Arity::Optional => "optional",
        Arity::Variadic => "variadic",
    }
}

/// The type of the Python values that [`crate::attrs::attribute`] makes an attribute of.
fn python_type(kind: AttrKind) -> Option<String> {
    Some(match kind {
        AttrKind::Bool => "bool".into(),
        AttrKind::I64 | AttrKind::I32 => "int".into(),
        AttrKind::F32 | AttrKind::F64 => "float".into(),
        AttrKind::Str | AttrKind::Type => "str".into(),
        AttrKind::Enum(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!("Literal[{}]", words.join(", "))
        }
        AttrKind::I64Array | AttrKind::I32Array => "Sequence[int]".into(),
        AttrKind::Shape => "Shape".into(),
        AttrKind::Dialect("bind") => "Mapping[str, Size]".into(),
        _ => return None,
    })
}

fn default(default: AttrDefault) -> Option<String> {
    match default {
        AttrDefault::Required => None,
        AttrDefault::Optional => Some("None".into()),
        AttrDefault::Int(n) => Some(n.to_string()),
        AttrDefault::Bool(truth) => Some(if truth { "True" } else { "False" }.into()),
        AttrDefault::Float(x) => Some(format!("{x:?}")),
        AttrDefault::Str(text) => Some(format!("\"{text}\"")),
    }
}
