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

/// `rule name(holes) assuming words { pattern } where conditions => { replacement }`
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
    pub name: At<&'s str>,
    pub operands: Vec<Operand<'s>>,
    /// `mask(%m)`
    pub groups: Vec<(At<&'s str>, Vec<Operand<'s>>)>,
    pub attrs: Vec<AttrEntry<'s>>,
    pub types: Vec<At<Expr<'s>>>,
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
    Holds(At<Expr<'s>>),
    /// `let $n = …`
    Let(At<&'s str>, At<Expr<'s>>),
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
    /// `tensor<$m x 4 x $e>`
    Tensor(Vec<Dims<'s>>, Box<At<Expr<'s>>>),
}
