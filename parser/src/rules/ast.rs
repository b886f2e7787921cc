//! Rewrite rules as they are written, before names and types mean anything.

use std::ops::Range;

/// Bytes of the source.
pub type Span = Range<usize>;

/// Something, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    pub node: T,
    pub span: Span,
}

impl<T> At<T> {
    pub fn new(node: T, start: usize, end: usize) -> At<T> {
        At { node, span: start..end }
    }
}

/// A file: forms, and the rules that use them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File<'s> {
    pub forms: Vec<Form<'s>>,
    pub rules: Vec<Rule<'s>>,
}

/// `form name(%v: type, %i, $n: int) -> %w, $k: number { cases }`: what a value is in another form, by the first case that it fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Form<'s> {
    pub name: At<&'s str>,
    pub value: Hole<'s>,
    pub takes: Vec<Take<'s>>,
    /// The value in that form.
    pub makes: At<&'s str>,
    /// More values, and variables.
    pub gives: Vec<Take<'s>>,
    /// Each a rule without words that are taken for granted, whose pattern may be empty.
    pub cases: Vec<Rule<'s>>,
}

/// What a form takes or gives besides its value: another value of the graph, or something that is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Take<'s> {
    Value(At<&'s str>),
    Var(Typed<'s>),
}

/// A variable and what it holds: `$n: int`.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed<'s> {
    pub name: At<&'s str>,
    pub kind: At<&'s str>,
}

/// `rule name(holes) assuming words { pattern } where conditions => { replacement } remark %x (text)`
#[derive(Clone, Debug, PartialEq)]
pub struct Rule<'s> {
    pub name: At<&'s str>,
    pub holes: Vec<Hole<'s>>,
    pub assuming: Vec<At<&'s str>>,
    pub pattern: Vec<Statement<'s>>,
    pub conditions: Vec<Condition<'s>>,
    pub replacement: Vec<Statement<'s>>,
    /// Where the replacement stands.
    pub replaced_at: Span,
    pub remark: Option<Remark<'s>>,
}

/// `remark %x ("text ", $n)`: what is said where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Remark<'s> {
    pub at: At<&'s str>,
    pub text: Vec<At<Expr<'s>>>,
}

/// A value that the pattern takes: `%x`, `%x: tensor<$n x f32>`, `%rest...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hole<'s> {
    pub name: At<&'s str>,
    pub many: bool,
    pub ty: Option<At<Expr<'s>>>,
}

/// `%y = core.add %x, %z {…} : type`, or `%y = %x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<'s> {
    pub results: Vec<At<&'s str>>,
    pub what: What<'s>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What<'s> {
    Value(At<&'s str>),
    Op(OpNode<'s>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OpNode<'s> {
    pub name: OpWord<'s>,
    pub operands: Vec<Operand<'s>>,
    /// `mask(%m)`
    pub groups: Vec<(At<&'s str>, Vec<Operand<'s>>)>,
    pub attrs: Vec<AttrEntry<'s>>,
    pub types: Vec<At<Expr<'s>>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OpWord<'s> {
    /// `core.add`
    Is(At<&'s str>),
    /// `$op: elementwise` in a pattern: any operation of a class.
    Any(At<&'s str>, At<&'s str>),
    /// `$op` in a replacement.
    Same(At<&'s str>),
}

impl<'s> OpWord<'s> {
    /// The word that stands for the operation, and where.
    pub fn word(&self) -> &At<&'s str> {
        let (OpWord::Is(word) | OpWord::Any(word, _) | OpWord::Same(word)) = self;
        word
    }
}

/// `%x`, or `%xs...`
#[derive(Clone, Debug, PartialEq)]
pub struct Operand<'s> {
    pub name: At<&'s str>,
    pub many: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttrEntry<'s> {
    /// `perm = $p`, and `strides = $s else 1`.
    Named { name: At<&'s str>, value: At<Expr<'s>>, or_else: Option<At<Expr<'s>>> },
    /// `..%y`: the other attributes of the operation that makes `%y`.
    Of(At<&'s str>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Condition<'s> {
    /// With what is said where all before it hold and it does not: `… else ("text ", $n)`.
    Holds(At<Expr<'s>>, Vec<At<Expr<'s>>>),
    /// `let $n = …`
    Let(At<&'s str>, At<Expr<'s>>),
    /// `let %w, $k = form(%v, $n)`
    Form(Use<'s>),
}

/// A form, asked for: `let %w..., $k = form(%v..., $n)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Use<'s> {
    pub makes: Operand<'s>,
    /// Values and variables.
    pub gives: Vec<At<Expr<'s>>>,
    pub form: At<&'s str>,
    pub value: Operand<'s>,
    pub args: Vec<At<Expr<'s>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
}

/// An element of a list, or all of another list: `..$p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<'s> {
    pub all: bool,
    pub expr: At<Expr<'s>>,
}

/// A dimension of a type, or several: `$n x`, `$s... x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dims<'s> {
    pub many: bool,
    pub expr: At<Expr<'s>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expr<'s> {
    Int(i64),
    Float(f64),
    Str(&'s str),
    /// `add`, `f32`, `true`
    Word(&'s str),
    /// `$n`
    Var(&'s str),
    /// `%x`, as an argument
    Value(&'s str),
    /// `none`: an attribute that is not there.
    None,
    List(Vec<Item<'s>>),
    Call(At<&'s str>, Vec<At<Expr<'s>>>),
    /// `a[i]`
    Index(Box<At<Expr<'s>>>, Box<At<Expr<'s>>>),
    Negate(Box<At<Expr<'s>>>),
    Not(Box<At<Expr<'s>>>),
    Binary(Binary, Box<At<Expr<'s>>>, Box<At<Expr<'s>>>),
    /// `$k in {add, max}`
    In(Box<At<Expr<'s>>>, Vec<At<Expr<'s>>>),
    /// `tensor<$m x 4 x $e>`
    Tensor(Vec<Dims<'s>>, Box<At<Expr<'s>>>),
}
