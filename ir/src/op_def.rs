//! Declarations of operations. An op is declared once, as one [`OpDef`] in a `static`: what it is
//! called, its operands, results and attributes, its meaning for generic passes, its documentation.
//!
//! ```
//! use rc_ir::op_def::*;
//! static NEG: OpDef = OpDef {
//!     summary: "Elementwise negation.",
//!     operands: &[operand("x", ANY)],
//!     results: &[result("result", ANY)],
//!     traits: Traits::ELEMENTWISE,
//!     effects: Effects::Pure,
//!     infer: Some(infer_same),
//!     ..OpDef::new("rc.doc.neg")
//! };
//! rc_ir::op_def::register(&[&NEG]);
//! assert!(rc_ir::OpName::new("rc.doc.neg").def().is_some());
//! ```

use crate::attr::{Attr, AttrData};
use crate::body::{Body, OpRef, Value};
use crate::diag::Result;
use crate::intern::Interner;
use crate::types::Type;
use bitflags::bitflags;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{LazyLock, OnceLock};

/// Types inferred for an op's results.
pub type Types = SmallVec<[Type; 2]>;

/// An operation's declaration. Every field but the name has a default, see [`OpDef::new`].
pub struct OpDef {
    /// The generic form's name, `rc.core.add`. The pretty form drops `rc.`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Exact meaning: shapes, dtypes, rounding, errors.
    pub doc: &'static str,
    /// A module (or the body of one) in pretty form that shows the op; a test parses, verifies, round-trips and runs it.
    pub example: &'static str,
    pub operands: &'static [OperandDef],
    pub results: &'static [ResultDef],
    pub attrs: &'static [AttrDef],
    pub regions: Regions,
    /// Number of successor blocks.
    pub successors: u32,
    pub traits: Traits,
    pub effects: Effects,
    /// What must hold beyond the declared operand, result and attribute kinds.
    pub verify: Option<fn(OpRef) -> Result>,
    /// The result types, from operand types and attributes. An `Err` says why the operands do not fit.
    /// The verifier checks that the written types are the inferred ones.
    pub infer: Option<fn(&InferArgs) -> std::result::Result<Types, String>>,
    /// The op's single result as an existing value or a constant, where it is one.
    pub fold: Option<fn(&FoldArgs) -> Option<Fold>>,
    /// Implementations of interfaces: statics of types that passes know. See [`OpDef::interface`].
    pub interfaces: &'static [&'static (dyn Any + Send + Sync)],
}

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Traits: u32 {
        /// Ends a block.
        const TERMINATOR = 1;
        /// Defines the symbol named by its `sym_name` attribute.
        const SYMBOL = 1 << 1;
        /// A symbol with a `function_type`, whose pretty form is a signature and a body.
        const FUNCTION = 1 << 2;
        /// Its regions use no value from outside.
        const ISOLATED = 1 << 3;
        const COMMUTATIVE = 1 << 4;
        /// Element i of the result depends on element i of each operand only; works on tensors, tiles, vectors and scalars.
        const ELEMENTWISE = 1 << 5;
        /// Its one region is one block.
        const SINGLE_BLOCK = 1 << 6;
        /// Operand `i` prints with index map `i` of the attribute `maps`: `%a[m, k + 1]`.
        const INDEXED = 1 << 7;
        /// A constant: its `value` attribute is its result.
        const CONSTANT = 1 << 8;
        /// Region operations may be used before they are defined (no dominance).
        const GRAPH_REGION = 1 << 9;
        /// The region's terminator may be left out where it yields nothing.
        const IMPLICIT_TERMINATOR = 1 << 10;
    }
}

/// What executing an op does besides computing its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effects {
    /// Nothing: unused, it can go; equal ones are one.
    Pure,
    /// Reads memory.
    Read,
    /// Writes memory, and may read it.
    Write,
    /// Ordered among the ops of the same channel.
    Channel(&'static str),
    /// Those of the ops in its regions.
    Recursive,
    /// What the op's attribute `effects` says: `none`, or `ordered` among the ops that say so.
    Declared,
    /// Not known: anything may happen. The default, and that of unregistered ops.
    Unknown,
}

/// A set of types with a name.
#[derive(Clone, Copy)]
pub struct TypeConstraint {
    pub desc: &'static str,
    pub check: fn(Type) -> bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    One,
    Optional,
    Variadic,
}

/// How an operand group is written in the pretty form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupSyntax {
    /// `%a, %b`
    Plain,
    /// `name(%a, %b)`
    Named,
    /// `[%i, %j]`, right after the operand before it
    Bracketed,
    /// `iter(%acc = %init)`: initial values of the region's trailing entry arguments
    Iter,
}

/// One operand, or a group. With several optional or variadic groups the op carries MLIR's
/// `operandSegmentSizes` attribute, which builder and parser maintain.
#[derive(Clone, Copy)]
pub struct OperandDef {
    pub name: &'static str,
    pub constraint: TypeConstraint,
    pub arity: Arity,
    pub syntax: GroupSyntax,
}

#[derive(Clone, Copy)]
pub struct ResultDef {
    pub name: &'static str,
    pub constraint: TypeConstraint,
    pub arity: Arity,
}

#[derive(Clone, Copy)]
pub struct AttrDef {
    pub name: &'static str,
    pub kind: AttrKind,
    pub default: AttrDefault,
    pub doc: &'static str,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AttrDefault {
    Required,
    /// May be absent, which means something of its own.
    Optional,
    Int(i64),
    Bool(bool),
    Float(f64),
    Str(&'static str),
}

/// What an attribute holds. The pretty form leaves out what the kind says: an `I64` prints `3`, not `3 : i64`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AttrKind {
    Any,
    Unit,
    Bool,
    I64,
    I32,
    F32,
    F64,
    Str,
    /// A string out of a list, a bare word in the pretty form.
    Enum(&'static [&'static str]),
    /// `array<i64: …>`, `[1, 2]` in the pretty form.
    I64Array,
    I32Array,
    /// An array of attributes.
    Array,
    /// An array of strings, of bare words in the pretty form.
    StrArray,
    Dict,
    Type,
    Symbol,
    /// `#rc.shape<[…]>`, `[s, 768]` in the pretty form.
    Shape,
    /// An array of `#rc.shape`.
    ShapeArray,
    /// A number, a dense constant or a resource: what `core.constant` holds.
    Elements,
    /// `#rc.name<…>`
    Dialect(&'static str),
}

/// How many regions an op has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regions {
    Exactly(u32),
    Any,
}

pub struct InferArgs<'a> {
    pub operands: &'a [Type],
    /// The dictionary of attributes.
    pub attrs: Attr,
    pub def: &'static OpDef,
}

pub struct FoldArgs<'a> {
    pub op: OpRef<'a>,
    /// The constant behind each operand, where there is one.
    pub constants: &'a [Option<Attr>],
}

pub enum Fold {
    Value(Value),
    /// A constant of the result's type.
    Attr(Attr),
}

pub const ANY: TypeConstraint = TypeConstraint { desc: "any type", check: |_| true };

/// One operand.
pub const fn operand(name: &'static str, constraint: TypeConstraint) -> OperandDef {
    OperandDef { name, constraint, arity: Arity::One, syntax: GroupSyntax::Plain }
}
/// Any number of operands; several such groups in one op need [`OperandDef::named`] syntax.
pub const fn variadic(name: &'static str, constraint: TypeConstraint) -> OperandDef {
    OperandDef { name, constraint, arity: Arity::Variadic, syntax: GroupSyntax::Plain }
}
/// One operand or none, written `name(%x)`.
pub const fn optional(name: &'static str, constraint: TypeConstraint) -> OperandDef {
    OperandDef { name, constraint, arity: Arity::Optional, syntax: GroupSyntax::Named }
}
impl OperandDef {
    pub const fn named(mut self) -> Self {
        self.syntax = GroupSyntax::Named;
        self
    }
    pub const fn bracketed(mut self) -> Self {
        self.syntax = GroupSyntax::Bracketed;
        self
    }
    pub const fn iter(mut self) -> Self {
        self.syntax = GroupSyntax::Iter;
        self
    }
}
pub const fn result(name: &'static str, constraint: TypeConstraint) -> ResultDef {
    ResultDef { name, constraint, arity: Arity::One }
}
pub const fn variadic_result(name: &'static str, constraint: TypeConstraint) -> ResultDef {
    ResultDef { name, constraint, arity: Arity::Variadic }
}
pub const fn attr(name: &'static str, kind: AttrKind, doc: &'static str) -> AttrDef {
    AttrDef { name, kind, default: AttrDefault::Required, doc }
}
impl AttrDef {
    pub const fn optional(mut self) -> Self {
        self.default = AttrDefault::Optional;
        self
    }
    pub const fn default(mut self, default: AttrDefault) -> Self {
        self.default = default;
        self
    }
}

impl OpDef {
    /// A declaration with nothing but a name: no operands, results, attributes or regions, unknown effects.
    pub const fn new(name: &'static str) -> OpDef {
        OpDef {
            name,
            summary: "",
            doc: "",
            example: "",
            operands: &[],
            results: &[],
            attrs: &[],
            regions: Regions::Exactly(0),
            successors: 0,
            traits: Traits::empty(),
            effects: Effects::Unknown,
            verify: None,
            infer: None,
            fold: None,
            interfaces: &[],
        }
    }
    /// The op's implementation of the interface `T`, if it has one.
    pub fn interface<T: Any>(&self) -> Option<&'static T> {
        self.interfaces.iter().find_map(|i| (*i as &dyn Any).downcast_ref::<T>())
    }
    pub fn has(&self, traits: Traits) -> bool {
        self.traits.contains(traits)
    }
    pub fn attr_def(&self, name: &str) -> Option<&'static AttrDef> {
        self.attrs.iter().find(|a| a.name == name)
    }
    /// Whether the sizes of the operand groups are not given by the number of operands, so that the op carries `operandSegmentSizes`.
    pub fn has_segments(&self) -> bool {
        self.operands.iter().filter(|o| o.arity != Arity::One).count() > 1
    }
    /// The operands' ranges by group, for an op with `count` operands and `segments` (where the op carries them).
    pub fn operand_groups(&self, count: usize, segments: Option<&[i64]>) -> Option<Vec<std::ops::Range<usize>>> {
        let sizes: Vec<usize> = match segments {
            Some(sizes) if self.has_segments() => {
                sizes.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<_>>()?
            }
            _ => {
                let fixed = self.operands.iter().filter(|o| o.arity == Arity::One).count();
                let rest = count.checked_sub(fixed)?;
                self.operands.iter().map(|o| if o.arity == Arity::One { 1 } else { rest }).collect()
            }
        };
        let mut start = 0;
        let ranges = sizes.iter().map(|n| (start, start += n).0..start).collect();
        (sizes.len() == self.operands.len() && start == count).then_some(ranges)
    }
}

impl InferArgs<'_> {
    /// An attribute, or its declared default.
    pub fn attr(&self, name: &str) -> Option<Attr> {
        self.attrs.get(name).or_else(|| self.def.default_of(name))
    }
    pub fn ints(&self, name: &str) -> std::result::Result<Vec<i64>, String> {
        self.attr(name).and_then(|a| a.as_ints()).ok_or_else(|| format!("expects the integer array attribute '{name}'"))
    }
    pub fn int(&self, name: &str) -> std::result::Result<i64, String> {
        self.attr(name).and_then(|a| a.as_int()).ok_or_else(|| format!("expects the integer attribute '{name}'"))
    }
    pub fn operand(&self, i: usize) -> std::result::Result<Type, String> {
        self.operands.get(i).copied().ok_or_else(|| format!("expects at least {} operands", i + 1))
    }
}

impl OpDef {
    /// The attribute that an absent one stands for.
    pub fn default_of(&self, name: &str) -> Option<Attr> {
        let def = self.attr_def(name)?;
        match def.default {
            AttrDefault::Required | AttrDefault::Optional => None,
            AttrDefault::Int(n) => {
                Some(Attr::int(n, if def.kind == AttrKind::I32 { Type::i32() } else { Type::i64() }))
            }
            AttrDefault::Bool(b) => Some(Attr::bool(b)),
            AttrDefault::Float(x) => {
                Some(Attr::float(x, if def.kind == AttrKind::F64 { Type::f64() } else { Type::f32() }))
            }
            AttrDefault::Str(s) => Some(Attr::str(s)),
        }
    }
}

impl AttrKind {
    /// Whether `attr` is of this kind.
    pub fn accepts(self, attr: Attr) -> bool {
        let all = |check: fn(Attr) -> bool| attr.as_array().is_some_and(|items| items.iter().all(|&a| check(a)));
        match (self, attr.data()) {
            (AttrKind::Any, _) | (AttrKind::Unit, AttrData::Unit) | (AttrKind::Bool, AttrData::Bool(_)) => true,
            (AttrKind::I64, AttrData::Int { ty, .. }) => *ty == Type::i64() || ty.is_index(),
            (AttrKind::I32, AttrData::Int { ty, .. }) => *ty == Type::i32(),
            (AttrKind::F32, AttrData::Float { ty, .. }) => *ty == Type::f32(),
            (AttrKind::F64, AttrData::Float { ty, .. }) => *ty == Type::f64(),
            (AttrKind::Str, AttrData::String(_)) => true,
            (AttrKind::Enum(words), AttrData::String(s)) => words.contains(&&**s),
            (AttrKind::I64Array, AttrData::DenseArray { elem, .. }) => *elem == Type::i64(),
            (AttrKind::I32Array, AttrData::DenseArray { elem, .. }) => *elem == Type::i32(),
            (AttrKind::Array, AttrData::Array(_)) | (AttrKind::Dict, AttrData::Dict(_)) => true,
            (AttrKind::StrArray, _) => all(|a| a.as_str().is_some()),
            (AttrKind::Type, AttrData::Type(_)) | (AttrKind::Symbol, AttrData::Symbol { .. }) => true,
            (AttrKind::Shape, AttrData::Shape(_)) => true,
            (AttrKind::ShapeArray, _) => all(|a| a.as_shape().is_some()),
            (AttrKind::Elements, _) => attr.type_of().is_some(),
            (AttrKind::Dialect(name), AttrData::Dialect { name: n, .. }) => *n == name,
            _ => false,
        }
    }
    /// What is expected, for an error message.
    pub fn desc(self) -> String {
        match self {
            AttrKind::Any => "any attribute".into(),
            AttrKind::Unit => "a unit attribute".into(),
            AttrKind::Bool => "true or false".into(),
            AttrKind::I64 => "a 64-bit integer".into(),
            AttrKind::I32 => "a 32-bit integer".into(),
            AttrKind::F32 => "an f32 number".into(),
            AttrKind::F64 => "an f64 number".into(),
            AttrKind::Str => "a string".into(),
            AttrKind::Enum(words) => format!("one of {}", words.join(", ")),
            AttrKind::I64Array => "an array of 64-bit integers, `array<i64: …>`".into(),
            AttrKind::I32Array => "an array of 32-bit integers, `array<i32: …>`".into(),
            AttrKind::Array => "an array".into(),
            AttrKind::StrArray => "an array of strings".into(),
            AttrKind::Dict => "a dictionary".into(),
            AttrKind::Type => "a type".into(),
            AttrKind::Symbol => "a symbol reference".into(),
            AttrKind::Shape => "dimensions, #rc.shape<[…]>".into(),
            AttrKind::ShapeArray => "an array of #rc.shape<[…]>".into(),
            AttrKind::Elements => "a number, a dense constant or a resource".into(),
            AttrKind::Dialect(name) => format!("#rc.{name}<…>"),
        }
    }
}

/// Result types equal to the first operand's.
pub fn infer_same(args: &InferArgs) -> std::result::Result<Types, String> {
    Ok(SmallVec::from_iter([args.operand(0)?]))
}

struct NameData {
    text: Box<str>,
    def: OnceLock<&'static OpDef>,
}
impl PartialEq for NameData {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for NameData {}
impl std::hash::Hash for NameData {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state)
    }
}
impl std::borrow::Borrow<str> for NameData {
    fn borrow(&self) -> &str {
        &self.text
    }
}

static OP_NAMES: LazyLock<Interner<NameData>> = LazyLock::new(Interner::new);
static DIALECTS: parking_lot::RwLock<Vec<&'static OpDef>> = parking_lot::RwLock::new(Vec::new());

/// The name of an operation, with its declaration where one is registered. Copy, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpName(u32);

impl OpName {
    /// `text` is the generic form's name.
    pub fn new(text: &str) -> OpName {
        OpName(OP_NAMES.intern_with(text, || NameData { text: text.into(), def: OnceLock::new() }))
    }
    pub fn as_str(self) -> &'static str {
        &OP_NAMES.get(self.0).text
    }
    /// The registered declaration. Takes no lock.
    #[inline]
    pub fn def(self) -> Option<&'static OpDef> {
        OP_NAMES.get(self.0).def.get().copied()
    }
    /// A dense id for side tables. It depends on the order of interning: never print it or sort by it.
    #[inline]
    pub fn id(self) -> u32 {
        self.0
    }
    /// The pretty form's name: without `rc.`.
    pub fn pretty(self) -> &'static str {
        let text = self.as_str();
        text.strip_prefix("rc.").unwrap_or(text)
    }
    /// `core` of `rc.core.add`, `func` of `func.func`.
    pub fn dialect(self) -> &'static str {
        self.pretty().split('.').next().unwrap_or("")
    }
}
impl std::fmt::Display for OpName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
impl std::fmt::Debug for OpName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
impl PartialEq<str> for OpName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}
impl PartialEq<&str> for OpName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}
impl PartialEq<&OpDef> for OpName {
    fn eq(&self, other: &&OpDef) -> bool {
        // A name has one declaration that is registered.
        self.def().map_or_else(|| self.as_str() == other.name, |def| std::ptr::eq(def, *other))
    }
}

/// Registers declarations. Registering the same one again does nothing.
///
/// # Panics
/// If another declaration of the same name is registered already: a mistake of the program, not of its input.
pub fn register(defs: &[&'static OpDef]) {
    for def in defs {
        let name = OpName::new(def.name);
        let cell = &OP_NAMES.get(name.0).def;
        let registered = *cell.get_or_init(|| {
            DIALECTS.write().push(def);
            def
        });
        assert!(std::ptr::eq(registered, *def), "the operation '{}' is declared twice", def.name);
    }
}

/// All registered declarations, sorted by name.
pub fn registered() -> Vec<&'static OpDef> {
    let mut all = DIALECTS.read().clone();
    all.sort_by_key(|d| d.name);
    all
}

/// The generic name that a bare, dotted name in the pretty form stands for: rc's dialects drop `rc.`.
pub fn resolve_pretty(name: &str) -> OpName {
    let full = OpName::new(&format!("rc.{name}"));
    if full.def().is_some() { full } else { OpName::new(name) }
}

/// The constant that a value is, where its op is a constant.
pub fn constant_of(body: &Body, value: Value) -> Option<Attr> {
    let op = body.defining_op(value)?;
    let def = body.name(op).def()?;
    def.has(Traits::CONSTANT).then(|| body.attr(op, "value")).flatten()
}
