//! Expressions of rules, resolved, and their values.

use super::functions::Function;
use super::val::{Ints, Val, same_number};
use rc_dialects::core::scalar::Scalar;
use rc_ir::{Body, Dim, Type, Value};
use rc_parser::rules::ast::Binary;
use smallvec::SmallVec;

/// An expression over the variables and values of a rule, by their numbers.
#[derive(Clone)]
pub enum Code {
    Is(Val),
    Var(usize),
    Value(usize),
    /// Elements, and whole lists of them.
    List(Vec<(bool, Code)>),
    Call(&'static Function, Vec<Code>),
    /// Whether the pass that applies the rule chose a value.
    Chosen(usize),
    Index(Box<Code>, Box<Code>),
    Negate(Box<Code>),
    Not(Box<Code>),
    Binary(Binary, Box<Code>, Box<Code>),
    Tensor(Vec<(bool, Code)>, Box<Code>),
}

/// What an expression speaks of.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub body: &'a Body,
    pub values: &'a [Option<Value>],
    pub vars: &'a [Option<Val>],
    /// The values that a pass chose; `None` where no pass chooses, and all are.
    pub chosen: Option<&'a [Value]>,
}

impl Code {
    /// The value; `None` where there is none, as of an element past a list's end.
    pub fn eval(&self, scope: Scope) -> Option<Val> {
        match self {
            Code::Is(val) => Some(val.clone()),
            Code::Var(n) => scope.vars[*n].clone(),
            Code::Value(n) => scope.values[*n].map(Val::Value),
            Code::List(items) => gathered(items, scope).map(Val::Ints),
            Code::Call(function, args) => {
                let args = args.iter().map(|a| a.eval(scope)).collect::<Option<SmallVec<[Val; 2]>>>()?;
                (function.call)(scope.body, &args)
            }
            Code::Chosen(n) => {
                let value = scope.values[*n]?;
                Some(Val::Bool(scope.chosen.is_none_or(|chosen| chosen.contains(&value))))
            }
            Code::Index(list, index) => indexed(list.eval(scope)?, index.eval(scope)?),
            Code::Negate(code) => match code.eval(scope)? {
                Val::Number(Scalar::Float(x)) => Some(Val::Number(Scalar::Float(-x))),
                Val::Number(Scalar::Int(n)) => Some(Val::Number(Scalar::Int(-n))),
                val => arithmetic(Binary::Sub, Val::Int(Dim::Static(0)), val),
            },
            Code::Not(code) => match code.eval(scope)? {
                Val::Bool(b) => Some(Val::Bool(!b)),
                Val::Bools(all) => Some(Val::Bools(all.iter().map(|b| !b).collect())),
                _ => None,
            },
            Code::Binary(Binary::And, a, b) => Some(Val::Bool(a.holds(scope) && b.holds(scope))),
            Code::Binary(Binary::Or, a, b) => Some(Val::Bool(a.holds(scope) || b.holds(scope))),
            Code::Binary(op, a, b) => binary(*op, a.eval(scope)?, b.eval(scope)?),
            Code::Tensor(dims, elem) => {
                let Val::Type(elem) = elem.eval(scope)? else { return None };
                Some(Val::Type(Type::tensor(&gathered(dims, scope)?, elem)))
            }
        }
    }
    /// Whether a condition holds, for all elements where it is asked of lists. What has no value does not hold.
    pub fn holds(&self, scope: Scope) -> bool {
        match self.eval(scope) {
            Some(Val::Bool(b)) => b,
            Some(Val::Bools(all)) => all.iter().all(|&b| b),
            _ => false,
        }
    }
}

fn gathered(items: &[(bool, Code)], scope: Scope) -> Option<Ints> {
    let mut list = Ints::new();
    for (all, code) in items {
        match code.eval(scope)? {
            Val::Int(n) if !all => list.push(n),
            Val::Ints(more) if *all => list.extend(more),
            _ => return None,
        }
    }
    Some(list)
}

/// One element, those that a list numbers, or those for which a condition holds.
fn indexed(list: Val, index: Val) -> Option<Val> {
    let Val::Ints(list) = list else { return None };
    let at = |n: Dim| list.get(usize::try_from(n.as_static()?).ok()?).copied();
    Some(match index {
        Val::Int(n) => Val::Int(at(n)?),
        Val::Ints(places) => Val::Ints(places.iter().map(|&n| at(n)).collect::<Option<Ints>>()?),
        Val::Bools(wanted) if wanted.len() == list.len() => {
            Val::Ints(list.iter().zip(wanted).filter(|p| p.1).map(|p| *p.0).collect())
        }
        _ => return None,
    })
}

fn binary(op: Binary, a: Val, b: Val) -> Option<Val> {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::FloorDiv | Binary::CeilDiv | Binary::Mod => {
            arithmetic(op, a, b)
        }
        _ => compared(op, a, b),
    }
}

/// Pairs of elements, with an integer for a list of it.
fn pairs<T>(a: &Val, b: &Val, each: impl Fn(Dim, Dim) -> Option<T>) -> Option<Result<T, SmallVec<[T; 6]>>> {
    Some(match (a, b) {
        (Val::Int(a), Val::Int(b)) => Ok(each(*a, *b)?),
        (Val::Ints(a), Val::Int(b)) => Err(a.iter().map(|&a| each(a, *b)).collect::<Option<_>>()?),
        (Val::Int(a), Val::Ints(b)) => Err(b.iter().map(|&b| each(*a, b)).collect::<Option<_>>()?),
        (Val::Ints(a), Val::Ints(b)) if a.len() == b.len() => {
            Err(a.iter().zip(b).map(|(&a, &b)| each(a, b)).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

fn arithmetic(op: Binary, a: Val, b: Val) -> Option<Val> {
    let positive = |d: Dim| d.as_static().is_none_or(|n| n > 0);
    let each = |a: Dim, b: Dim| match op {
        Binary::Add => Some(a + b),
        Binary::Sub => Some(a - b),
        Binary::Mul => Some(a * b),
        Binary::FloorDiv => positive(b).then(|| a.floordiv(b)),
        Binary::CeilDiv => positive(b).then(|| a.ceildiv(b)),
        _ => positive(b).then(|| a.modulo(b)),
    };
    pairs(&a, &b, each).map(|done| done.map_or_else(Val::Ints, Val::Int))
}

/// `==`: the same, as far as is known; `!=`, `<` and so on: known to be so, whatever the symbols are.
fn compared(op: Binary, a: Val, b: Val) -> Option<Val> {
    let same = |same: bool| match op {
        Binary::Eq => Some(Val::Bool(same)),
        Binary::Ne => Some(Val::Bool(!same)),
        _ => None,
    };
    match (&a, &b) {
        (Val::Number(x), Val::Number(y)) => match op {
            Binary::Eq | Binary::Ne => same(same_number(*x, *y)),
            Binary::Lt => Some(Val::Bool(x.float() < y.float())),
            Binary::Le => Some(Val::Bool(x.float() <= y.float())),
            Binary::Gt => Some(Val::Bool(x.float() > y.float())),
            _ => Some(Val::Bool(x.float() >= y.float())),
        },
        (Val::Ints(x), Val::Ints(y)) if x.len() != y.len() => same(false),
        (Val::Int(_) | Val::Ints(_), Val::Int(_) | Val::Ints(_)) => {
            let each = |a: Dim, b: Dim| {
                let difference = (a - b).as_static();
                Some(match op {
                    Binary::Eq => a == b && a != Dim::Dynamic,
                    Binary::Ne => difference.is_some_and(|d| d != 0),
                    Binary::Lt => difference.is_some_and(|d| d < 0),
                    Binary::Le => difference.is_some_and(|d| d <= 0),
                    Binary::Gt => difference.is_some_and(|d| d > 0),
                    _ => difference.is_some_and(|d| d >= 0),
                })
            };
            pairs(&a, &b, each).map(|done| done.map_or_else(Val::Bools, Val::Bool))
        }
        _ => same(a == b),
    }
}
