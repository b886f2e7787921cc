//! A rule with its names resolved: what the matcher walks.

use super::code::Code;
use super::gate::Gate;
use super::val::Kind;
use rc_dialects::core::scalar::Scalar;
use rc_ir::op_def::{AttrKind, OpDef};
use rc_ir::{Attr, Loc, Name, OpName};
use rc_parser::rules::ast::Span;

pub struct Rule {
    pub name: &'static str,
    /// What counts its applications: `rule name`.
    pub statistic: &'static str,
    /// Where its name stands in the file.
    pub loc: Loc,
    /// What the author takes for granted, which no condition can ask.
    pub assuming: Assuming,
    /// Holes first, then the results of the pattern's operations, then of the replacement's.
    pub values: Vec<ValueInfo>,
    pub holes: usize,
    pub vars: Vec<VarInfo>,
    /// The pattern's operations: the root, whose results are replaced, then each after one that takes a result of it.
    pub ops: Vec<OpPattern>,
    /// What the root must be for anything else to be looked at.
    pub gates: Vec<Gate>,
    pub conditions: Vec<Condition>,
    pub makes: Vec<NewOp>,
    /// The values that take the place of the root's results.
    pub results: Vec<usize>,
    /// The numbers that the rule speaks of: sizes and constants around which its conditions may change their minds.
    pub numbers: Vec<Scalar>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Assuming {
    /// No infinities and no NaN.
    pub finite: bool,
    /// 0.0 and -0.0 are one.
    pub unsigned_zeros: bool,
    /// Rounding to narrower types may happen elsewhere.
    pub rounding: bool,
}

pub struct ValueInfo {
    pub name: String,
    /// Any number of values, the rest of a group.
    pub many: bool,
    /// Of a hole.
    pub ty: TypePattern,
}

pub struct VarInfo {
    pub name: String,
    pub kind: Kind,
}

pub struct OpPattern {
    pub name: OpName,
    pub def: &'static OpDef,
    pub operands: Operands,
    /// Both orders of the operands are tried.
    pub commutes: bool,
    pub attrs: Vec<AttrPattern>,
    /// The values that its results are.
    pub results: Vec<usize>,
    pub types: Vec<TypePattern>,
    /// Of all but the root: which of `results` a value matched before leads to.
    pub through: usize,
}

/// The operands of an operation, of each group in turn.
pub struct Operands {
    pub groups: Vec<Vec<Slot>>,
    /// Whether sizes of groups are to be asked of the operation.
    pub segments: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    pub value: usize,
    pub many: bool,
}

pub struct AttrPattern {
    pub name: Name,
    pub kind: AttrKind,
    pub default: Option<Attr>,
    pub test: Test,
}

pub enum Test {
    Is(Attr),
    /// A constant of this number everywhere.
    Number(Scalar),
    Absent,
    Bind {
        var: usize,
        or_else: Option<Code>,
    },
    /// A list with variables in it, of which one may be a list.
    List(Vec<(bool, Part)>),
}

/// A variable, which is bound or compared, or something that is known.
pub enum Part {
    Var(usize),
    Is(Code),
}

pub enum TypePattern {
    Any,
    /// A variable for the whole type, or a type that is known.
    Whole(Part),
    Tensor(Vec<(bool, Part)>, Part),
}

pub enum Condition {
    Holds(Code),
    Let(usize, Code),
}

pub struct NewOp {
    pub name: OpName,
    pub def: &'static OpDef,
    pub operands: Vec<Vec<Slot>>,
    pub attrs: Vec<(Name, AttrKind, Code)>,
    /// The pattern's operation whose other attributes it has.
    pub base: Option<usize>,
    pub types: Vec<Code>,
    pub results: Vec<usize>,
    pub loc: Loc,
    pub span: Span,
}
