//! A rule with its names resolved: what the matcher walks.

use super::code::Code;
use super::gate::Gate;
use super::val::Kind;
use rc_dialects::core::scalar::Scalar;
use rc_ir::op_def::{ANY, AttrKind, OpDef, Regions, result, variadic};
use rc_ir::{Attr, Effects, Loc, Name, OpName, Traits};
use rc_parser::rules::ast::Span;
use std::sync::Arc;

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
    /// Whether a condition asks for what the pass chose.
    pub chooses: bool,
    pub makes: Vec<NewOp>,
    /// The values that take the place of the root's results; of a form's case the value in that form.
    pub results: Vec<usize>,
    /// Of a form's case: the variables that it gives.
    pub gives: Vec<usize>,
    pub remark: Option<Remark>,
    /// The numbers that the rule speaks of: sizes and constants around which its conditions may change their minds.
    pub numbers: Vec<Scalar>,
}

/// What a value is in another form, by the first case that it fits. A case's value number 0 is what it is asked of; the next ones and its first variables are
/// what the form takes.
pub struct Form {
    pub name: &'static str,
    /// Values among them are of the kind `Value`.
    pub takes: Vec<Kind>,
    /// More values and variables, in this order.
    pub gives: Vec<Kind>,
    pub cases: Vec<Rule>,
}

/// A form, asked for as a condition.
pub struct Use {
    pub form: Arc<Form>,
    /// The value, or several.
    pub value: Slot,
    /// The values and the rest of what the form takes.
    pub values: Vec<usize>,
    pub args: Vec<Code>,
    /// The values that it makes of one, or the name of as many as there are.
    pub makes: Vec<usize>,
    pub gives: Vec<usize>,
}

/// Text for whoever wants to know why: said where a value of the pattern comes from.
pub struct Remark {
    pub at: usize,
    pub text: Vec<Code>,
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
    /// Any elementwise operation: the variable that its name is bound to. `name` and `def` are no operation's then.
    pub any: Option<usize>,
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

impl Operands {
    /// Whether lists of any length stand on both sides of something, so that each place is tried for that.
    pub fn slide(&self) -> bool {
        self.groups.iter().any(|slots| slots.iter().filter(|s| s.many).count() == 2)
    }
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

/// A variable, which is bound or compared, something that is known, or anything.
pub enum Part {
    Any,
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
    /// With what is said where this does not hold, and all before it does.
    Holds(Code, Vec<Code>),
    Let(usize, Code),
    Form(Use),
}

pub struct NewOp {
    pub name: OpName,
    pub def: &'static OpDef,
    /// The variable that holds its name, where the pattern has any operation.
    pub any: Option<usize>,
    pub operands: Vec<Vec<Slot>>,
    pub attrs: Vec<(Name, AttrKind, Code)>,
    /// The pattern's operation whose other attributes it has.
    pub base: Option<usize>,
    pub types: Vec<Code>,
    pub results: Vec<usize>,
    pub loc: Loc,
    pub span: Span,
}

/// Stands for the declarations of all elementwise operations of one result.
pub static ELEMENTWISE: OpDef = OpDef {
    operands: &[variadic("operands", ANY)],
    results: &[result("result", ANY)],
    traits: Traits::ELEMENTWISE,
    effects: Effects::Pure,
    ..OpDef::new("elementwise")
};

/// Whether an operation is one of them.
pub fn is_elementwise(def: &OpDef) -> bool {
    def.has(Traits::ELEMENTWISE)
        && def.effects == Effects::Pure
        && def.regions == Regions::Exactly(0)
        && def.results.len() == 1
}
