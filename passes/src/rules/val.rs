//! What variables and expressions of rules hold.

use rc_dialects::core::scalar::{Scalar, splat_attr};
use rc_ir::op_def::AttrKind;
use rc_ir::{Attr, Dim, OpName, Type, Value};
use smallvec::SmallVec;
use std::fmt;

/// Several integers: a permutation, the sizes of a shape.
pub type Ints = SmallVec<[Dim; 6]>;

/// A value of an expression. Integers are those of the index arithmetic, symbolic sizes among them.
#[derive(Clone, PartialEq, Debug)]
pub enum Val {
    Int(Dim),
    Ints(Ints),
    Bool(bool),
    Bools(SmallVec<[bool; 6]>),
    /// A number of an element type.
    Number(Scalar),
    /// A word of an attribute, or a string.
    Word(&'static str),
    Type(Type),
    /// The name of an operation.
    Op(OpName),
    /// An attribute that rules do not look into.
    Attr(Attr),
    /// A value of the matched graph.
    Value(Value),
    /// Of an attribute: that there is none.
    Absent,
}

/// What is known of an expression before it has a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Int,
    Ints,
    Bool,
    Number,
    Word,
    Type,
    Op,
    Attr,
    Value,
}

/// The words for what a form takes and gives.
pub const KIND_WORDS: [(&str, Kind); 6] = [
    ("int", Kind::Int),
    ("ints", Kind::Ints),
    ("bool", Kind::Bool),
    ("number", Kind::Number),
    ("word", Kind::Word),
    ("type", Kind::Type),
];

impl Kind {
    pub fn describe(self) -> &'static str {
        match self {
            Kind::Int => "an integer",
            Kind::Ints => "a list of integers",
            Kind::Bool => "true or false",
            Kind::Number => "a number",
            Kind::Word => "a word",
            Kind::Type => "a type",
            Kind::Op => "the name of an operation",
            Kind::Attr => "an attribute",
            Kind::Value => "a value of the graph",
        }
    }
    /// What attributes of this declared kind hold.
    pub fn of_attr(kind: AttrKind) -> Kind {
        match kind {
            AttrKind::I64 | AttrKind::I32 => Kind::Int,
            AttrKind::I64Array | AttrKind::I32Array | AttrKind::Shape => Kind::Ints,
            AttrKind::Bool => Kind::Bool,
            AttrKind::F32 | AttrKind::F64 => Kind::Number,
            AttrKind::Str | AttrKind::Enum(_) => Kind::Word,
            AttrKind::Type => Kind::Type,
            _ => Kind::Attr,
        }
    }
}

/// What an attribute holds, for expressions.
pub fn decode(kind: AttrKind, attr: Attr) -> Option<Val> {
    Some(match Kind::of_attr(kind) {
        Kind::Int => Val::Int(Dim::Static(attr.as_int()?)),
        Kind::Ints => match attr.as_shape() {
            Some(dims) => Val::Ints(dims.iter().copied().collect()),
            None => Val::Ints(attr.as_ints()?.into_iter().map(Dim::Static).collect()),
        },
        Kind::Bool => Val::Bool(attr.as_bool()?),
        Kind::Number => Val::Number(Scalar::Float(attr.as_float()?)),
        Kind::Word => Val::Word(attr.as_str()?),
        Kind::Type => Val::Type(attr.as_type()?),
        _ => Val::Attr(attr),
    })
}

/// The attribute of a declared kind that holds a value. An element's number becomes a constant of the type `result`, of fixed sizes.
pub fn encode(kind: AttrKind, value: &Val, result: Option<Type>) -> Option<Attr> {
    let fixed = |list: &Ints| list.iter().map(|d| d.as_static()).collect::<Option<Vec<i64>>>();
    Some(match (kind, value) {
        (_, Val::Attr(attr)) => *attr,
        (AttrKind::I64, Val::Int(n)) => Attr::i64(n.as_static()?),
        (AttrKind::I32, Val::Int(n)) => Attr::int(n.as_static()?, Type::i32()),
        (AttrKind::I64Array, Val::Ints(list)) => Attr::i64s(&fixed(list)?),
        (AttrKind::I32Array, Val::Ints(list)) => Attr::i32s(&fixed(list)?),
        (AttrKind::Shape, Val::Ints(list)) => Attr::shape(list),
        (AttrKind::Bool, Val::Bool(b)) => Attr::bool(*b),
        (AttrKind::F32, Val::Number(x)) => Attr::float(x.float(), Type::f32()),
        (AttrKind::F64, Val::Number(x)) => Attr::float(x.float(), Type::f64()),
        (AttrKind::Str | AttrKind::Enum(_), Val::Word(word)) => Attr::str(word),
        (AttrKind::Type, Val::Type(ty)) => Attr::ty(*ty),
        (AttrKind::Elements, Val::Number(x)) => splat_attr(result?, x.convert(result?.elem())?)?,
        _ => return None,
    })
}

/// As a remark says it.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, all: Vec<String>| write!(f, "[{}]", all.join(", "));
        match self {
            Val::Int(n) => write!(f, "{n}"),
            Val::Ints(all) => list(f, all.iter().map(Dim::to_string).collect()),
            Val::Bool(b) => write!(f, "{b}"),
            Val::Bools(all) => list(f, all.iter().map(bool::to_string).collect()),
            Val::Number(Scalar::Int(n)) => write!(f, "{n}"),
            Val::Number(x) => write!(f, "{:?}", x.float()),
            Val::Word(word) => f.write_str(word),
            Val::Type(ty) => write!(f, "{ty}"),
            Val::Op(name) => f.write_str(name.pretty()),
            Val::Attr(attr) => write!(f, "{attr}"),
            Val::Value(_) | Val::Absent => Ok(()),
        }
    }
}

/// Whether two numbers are the same one: 0.0 and -0.0 are two, and an integer literal is also the float that it is.
pub fn same_number(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => a == b,
        (a, b) => a.float() == b.float() && a.float().is_sign_negative() == b.float().is_sign_negative(),
    }
}
