//! Expressions and types, and of what kind they are.

use super::Resolver;
use crate::rules::code::Code;
use crate::rules::functions::{FUNCTIONS, find};
use crate::rules::rule::{Part, TypePattern};
use crate::rules::val::{Kind, Val};
use rc_dialects::core::scalar::Scalar;
use rc_ir::suggest::did_you_mean;
use rc_ir::types::FloatKind;
use rc_ir::{Dim, Name};
use rc_parser::rules::ast::{At, Binary, Dims, Expr, Item};

impl<'s> Resolver<'_, 's> {
    /// An expression over what the pattern has bound.
    pub fn expr(&mut self, expr: &At<Expr<'s>>) -> Option<(Code, Kind)> {
        Some(match &expr.node {
            Expr::Int(n) => {
                self.numbers.push(Scalar::Int(i128::from(*n)));
                (Code::Is(Val::Int(Dim::Static(*n))), Kind::Int)
            }
            Expr::Float(x) => {
                self.numbers.push(Scalar::Float(*x));
                (Code::Is(Val::Number(Scalar::Float(*x))), Kind::Number)
            }
            Expr::Str(text) => (Code::Is(Val::Word(Name::new(text).as_str())), Kind::Word),
            Expr::Word("true") => (Code::Is(Val::Bool(true)), Kind::Bool),
            Expr::Word("false") => (Code::Is(Val::Bool(false)), Kind::Bool),
            Expr::Word(word) => match rc_parser::parse_type(word) {
                Ok(ty) => (Code::Is(Val::Type(ty)), Kind::Type),
                Err(_) => (Code::Is(Val::Word(Name::new(word).as_str())), Kind::Word),
            },
            Expr::Var(name) => {
                let Some(&var) = self.var_names.get(name) else {
                    let hint = did_you_mean(name, self.var_names.keys().copied());
                    let help = "variables are bound by attributes and types of the pattern, and by 'let'";
                    self.error_help(&expr.span, format!("nothing binds '${name}'{hint}"), help);
                    return None;
                };
                (Code::Var(var), self.vars[var].kind)
            }
            Expr::Value(name) => (Code::Value(self.matched(name, &expr.span)?), Kind::Value),
            Expr::None => {
                self.error_help(&expr.span, "'none' is no expression", "write it as an attribute: {name = none}");
                return None;
            }
            Expr::List(items) => (Code::List(self.items(items)?), Kind::Ints),
            Expr::Call(name, args) => return self.call(name, args),
            Expr::Index(list, index) => {
                let (list, index) =
                    (self.of_kind(list, &[Kind::Ints]), self.of_kind(index, &[Kind::Int, Kind::Ints, Kind::Bool]));
                let ((list, _), (index, kind)) = (list?, index?);
                let gives = if kind == Kind::Int { Kind::Int } else { Kind::Ints };
                (Code::Index(Box::new(list), Box::new(index)), gives)
            }
            Expr::Negate(inner) => {
                if let Expr::Float(x) = inner.node {
                    self.numbers.push(Scalar::Float(-x));
                }
                let (code, kind) = self.of_kind(inner, &[Kind::Int, Kind::Ints, Kind::Number])?;
                let code = match code {
                    Code::Is(Val::Int(n)) => Code::Is(Val::Int(Dim::Static(-1) * n)),
                    Code::Is(Val::Number(Scalar::Float(x))) => Code::Is(Val::Number(Scalar::Float(-x))),
                    code => Code::Negate(Box::new(code)),
                };
                (code, kind)
            }
            Expr::Not(inner) => (Code::Not(Box::new(self.of_kind(inner, &[Kind::Bool])?.0)), Kind::Bool),
            Expr::Binary(op, a, b) => return self.binary(*op, a, b),
            Expr::In(value, words) => return self.one_of(value, words),
            Expr::Tensor(dims, elem) => {
                let dims: Option<Vec<_>> = dims.iter().map(|d| self.sizes(d)).collect();
                let elem = self.of_kind(elem, &[Kind::Type])?;
                (Code::Tensor(dims?, Box::new(elem.0)), Kind::Type)
            }
        })
    }

    fn sizes(&mut self, dims: &Dims<'s>) -> Option<(bool, Code)> {
        let wanted = if dims.many { Kind::Ints } else { Kind::Int };
        Some((dims.many, self.of_kind(&dims.expr, &[wanted])?.0))
    }

    fn items(&mut self, items: &[Item<'s>]) -> Option<Vec<(bool, Code)>> {
        let items: Vec<Option<(bool, Code)>> = (items.iter())
            .map(|item| {
                let wanted = if item.all { Kind::Ints } else { Kind::Int };
                Some((item.all, self.of_kind(&item.expr, &[wanted])?.0))
            })
            .collect();
        items.into_iter().collect()
    }

    /// A value of the pattern.
    pub fn matched(&mut self, name: &str, span: &std::ops::Range<usize>) -> Option<usize> {
        let found = self.names.get(name).copied();
        if found.is_none() {
            let hint = did_you_mean(name, self.names.keys().copied());
            let help = "expressions speak of what is matched: of holes, and of results of the pattern";
            self.error_help(span, format!("the pattern has no '%{name}'{hint}"), help);
        }
        found
    }

    /// An expression of one of these kinds.
    pub fn of_kind(&mut self, expr: &At<Expr<'s>>, wanted: &[Kind]) -> Option<(Code, Kind)> {
        let (code, kind) = self.expr(expr)?;
        if wanted.contains(&kind) {
            return Some((code, kind));
        }
        let wanted: Vec<&str> = wanted.iter().map(|k| k.describe()).collect();
        let error = self.error(&expr.span, format!("expected {}, found {}", wanted.join(" or "), kind.describe()));
        if kind == Kind::Ints {
            error.help = Some("take an element, as in $list[0], or use count, sum or product".into());
        }
        None
    }

    fn call(&mut self, name: &At<&'s str>, args: &[At<Expr<'s>>]) -> Option<(Code, Kind)> {
        let Some(function) = find(name.node) else {
            let names: Vec<&str> = FUNCTIONS.iter().map(|f| f.name).collect();
            let hint = did_you_mean(name.node, names.iter().copied());
            let help = format!("the functions are {}", names.join(", "));
            self.error_help(&name.span, format!("there is no function '{}'{hint}", name.node), help);
            return None;
        };
        if args.len() != function.takes.len() {
            let message =
                format!("'{}' takes {}, and has {}", function.name, counted(function.takes.len()), args.len());
            self.error_help(&name.span, message, function.doc);
            return None;
        }
        if function.name == "chosen" {
            let value = self.of_kind(&args[0], &[Kind::Value])?.0;
            return if let Code::Value(n) = value { Some((Code::Chosen(n), Kind::Bool)) } else { None };
        }
        let args: Vec<Option<Code>> = (args.iter().zip(function.takes))
            .map(|(arg, &takes)| {
                // Of an integer the same may be asked as of a list of one.
                let wanted: &[Kind] =
                    if takes == Kind::Ints { &[Kind::Ints, Kind::Int] } else { std::slice::from_ref(&takes) };
                self.of_kind(arg, wanted).map(|c| c.0)
            })
            .collect();
        Some((Code::Call(function, args.into_iter().collect::<Option<_>>()?), function.gives))
    }

    fn binary(&mut self, op: Binary, a: &At<Expr<'s>>, b: &At<Expr<'s>>) -> Option<(Code, Kind)> {
        use Binary::{Add, And, CeilDiv, Eq, FloorDiv, Mod, Mul, Ne, Or, Sub};
        let (left, right) = (self.expr(a), self.expr(b));
        let ((mut left, mut x), (mut right, mut y)) = (left?, right?);
        // An integer is a number where one is wanted.
        if x == Kind::Number && y == Kind::Int {
            (right, y) = (as_number(right)?, Kind::Number);
        } else if x == Kind::Int && y == Kind::Number {
            (left, x) = (as_number(left)?, Kind::Number);
        } else if x == Kind::Op && y == Kind::Word {
            (right, y) = (self.as_op(&right, &b.span)?, Kind::Op);
        }
        let whole = |k: Kind| matches!(k, Kind::Int | Kind::Ints);
        let fits = match op {
            And | Or => x == Kind::Bool && y == Kind::Bool,
            Add | Sub | Mul | FloorDiv | CeilDiv | Mod => whole(x) && whole(y),
            Eq | Ne => x == y && x != Kind::Value || whole(x) && whole(y),
            _ => x == Kind::Number && y == Kind::Number || whole(x) && whole(y),
        };
        if !fits {
            let message = format!("{} and {} do not go together here", x.describe(), y.describe());
            let help = match op {
                And | Or => "both sides are conditions",
                Eq | Ne => "both sides are of one kind",
                _ => "both sides are integers, or lists of them",
            };
            self.error_help(&(a.span.start..b.span.end), message, help);
            return None;
        }
        let gives = match op {
            Add | Sub | Mul | FloorDiv | CeilDiv | Mod => {
                if x == Kind::Ints || y == Kind::Ints {
                    Kind::Ints
                } else {
                    Kind::Int
                }
            }
            _ => Kind::Bool,
        };
        Some((Code::Binary(op, Box::new(left), Box::new(right)), gives))
    }

    /// `$k in {add, max}`: whether it is one of these.
    fn one_of(&mut self, value: &At<Expr<'s>>, words: &[At<Expr<'s>>]) -> Option<(Code, Kind)> {
        let mut any = None;
        for word in words {
            let (same, _) = self.binary(Binary::Eq, value, word)?;
            any = Some(match any {
                Some(before) => Code::Binary(Binary::Or, Box::new(before), Box::new(same)),
                None => same,
            });
        }
        Some((any?, Kind::Bool))
    }

    /// A word that names an operation.
    fn as_op(&mut self, code: &Code, span: &std::ops::Range<usize>) -> Option<Code> {
        let Code::Is(Val::Word(word)) = code else { return None };
        self.declared(&At { node: *word, span: span.clone() }).map(|(name, _)| Code::Is(Val::Op(name)))
    }

    /// A type in the pattern: its variables are bound.
    pub fn type_pattern(&mut self, ty: &At<Expr<'s>>) -> TypePattern {
        match &ty.node {
            Expr::Var("_") => TypePattern::Any,
            Expr::Var(name) => TypePattern::Whole(Part::Var(self.bind_var(name, Kind::Type, &ty.span))),
            Expr::Word(word) => match rc_parser::parse_type(word) {
                Ok(ty) => TypePattern::Whole(Part::Is(Code::Is(Val::Type(ty)))),
                Err(_) => {
                    self.unknown_type(word, &ty.span);
                    TypePattern::Any
                }
            },
            Expr::Tensor(dims, elem) => {
                self.one_list(dims.iter().filter(|d| d.many).map(|d| &d.expr));
                let parts: Vec<(bool, Part)> = dims.iter().map(|d| (d.many, self.size_part(d))).collect();
                let elem = match &elem.node {
                    Expr::Var("_") => Part::Any,
                    Expr::Var(name) => Part::Var(self.bind_var(name, Kind::Type, &elem.span)),
                    _ => self.known(elem, Kind::Type),
                };
                TypePattern::Tensor(parts, elem)
            }
            _ => TypePattern::Whole(self.known(ty, Kind::Type)),
        }
    }

    pub fn unknown_type(&mut self, word: &str, span: &std::ops::Range<usize>) {
        let words = FloatKind::ALL.iter().map(|k| k.as_str()).chain(["tensor", "index", "i1", "i8", "i32", "i64"]);
        let hint = did_you_mean(word, words);
        self.error_help(
            span,
            format!("there is no type '{word}'{hint}"),
            "a type is f32, tensor<$n x f32> or a variable, $t",
        );
    }

    /// Of several parts at most one may take what the others leave. How long lists are that operations have bound is known where holes are matched.
    pub fn one_list<'e>(&mut self, lists: impl Iterator<Item = &'e At<Expr<'s>>>)
    where
        's: 'e,
    {
        let known = |this: &Self, list: &Expr| matches!(list, Expr::Var(name) if this.in_holes && this.var_names.contains_key(name));
        let open: Vec<_> = lists.into_iter().filter(|list| !known(self, &list.node)).collect();
        if let Some(second) = open.get(1) {
            let span = second.span.clone();
            self.error_help(
                &span,
                "a second list of any length: how long each is cannot be said",
                "give the elements of one of them names",
            );
        }
    }

    fn size_part(&mut self, dims: &Dims<'s>) -> Part {
        let kind = if dims.many { Kind::Ints } else { Kind::Int };
        match &dims.expr.node {
            Expr::Var("_") => Part::Any,
            Expr::Var(name) => Part::Var(self.bind_var(name, kind, &dims.expr.span)),
            _ => self.known(&dims.expr, kind),
        }
    }

    /// Something that is compared, once all variables are bound.
    pub fn known(&mut self, expr: &At<Expr<'s>>, kind: Kind) -> Part {
        match self.of_kind(expr, &[kind]) {
            Some((Code::Is(val), _)) => Part::Is(Code::Is(val)),
            Some((code, _)) => Part::Var(self.later(code, kind)),
            None => Part::Is(Code::Is(Val::Absent)),
        }
    }

    /// The type that an operation of the replacement has.
    pub fn new_type(&mut self, ty: &At<Expr<'s>>) -> Option<Code> {
        if let Expr::Word(word) = &ty.node
            && rc_parser::parse_type(word).is_err()
        {
            self.unknown_type(word, &ty.span);
            return None;
        }
        Some(self.of_kind(ty, &[Kind::Type])?.0)
    }
}

/// An integer literal as a number.
pub fn as_number(code: Code) -> Option<Code> {
    match code {
        Code::Is(Val::Int(Dim::Static(n))) => Some(Code::Is(Val::Number(Scalar::Int(i128::from(n))))),
        _ => None,
    }
}

pub fn counted(n: usize) -> String {
    match n {
        0 => "nothing".into(),
        1 => "one argument".into(),
        n => format!("{n} arguments"),
    }
}
