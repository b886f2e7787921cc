//! The functions of expressions in rules.

use super::val::{Ints, Kind, Val};
use crate::layout::{Segments, bytes_text};
use rc_dialects::core::fold::uniform;
use rc_dialects::core::scalar::Scalar;
use rc_dialects::core::shape::BROADCAST;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Dim, Name, Traits, Type, Value};
use smallvec::SmallVec;

/// A function, as `inverse($p)` calls it.
pub struct Function {
    pub name: &'static str,
    /// What it takes. A list may stand for an integer where it is asked of every element.
    pub takes: &'static [Kind],
    pub gives: Kind,
    pub doc: &'static str,
    /// `None` where it has no value: the rule does not apply then.
    pub call: fn(&Body, &[Val]) -> Option<Val>,
}

const fn function(
    name: &'static str,
    takes: &'static [Kind],
    gives: Kind,
    doc: &'static str,
    call: fn(&Body, &[Val]) -> Option<Val>,
) -> Function {
    Function { name, takes, gives, doc, call }
}

pub static FUNCTIONS: &[Function] = &[
    function("type", &[Kind::Value], Kind::Type, "The type of a value.", |body, args| {
        Some(Val::Type(body.ty(value(args)?)))
    }),
    function("elem", &[Kind::Value], Kind::Type, "The element type of a value.", |body, args| {
        Some(Val::Type(body.ty(value(args)?).elem()))
    }),
    function("shape", &[Kind::Value], Kind::Ints, "The sizes of a value.", |body, args| {
        Some(Val::Ints(sizes(body.ty(value(args)?))?))
    }),
    function("rank", &[Kind::Value], Kind::Int, "The number of dimensions of a value.", |body, args| {
        Some(Val::Int(Dim::Static(sizes(body.ty(value(args)?))?.len() as i64)))
    }),
    function("one_use", &[Kind::Value], Kind::Bool, "Whether nothing else reads a value.", |body, args| {
        Some(Val::Bool(body.has_one_use(value(args)?)))
    }),
    function("constant", &[Kind::Value], Kind::Bool, "Whether a value is a constant.", |body, args| {
        Some(Val::Bool(constant_of(body, value(args)?).is_some()))
    }),
    function(
        "splat",
        &[Kind::Value],
        Kind::Number,
        "The number that a value is everywhere: of a constant, also seen through broadcasts, reshapes and transposes.",
        |body, args| uniform(body, value(args)?).map(Val::Number),
    ),
    function(
        "elementwise",
        &[Kind::Value],
        Kind::Bool,
        "Whether an elementwise operation makes a value.",
        |body, args| {
            let op = body.defining_op(value(args)?);
            Some(Val::Bool(op.is_some_and(|op| body.op_ref(op).has(Traits::ELEMENTWISE))))
        },
    ),
    function("broadcast", &[Kind::Value], Kind::Bool, "Whether a broadcast makes a value.", |body, args| {
        let op = body.defining_op(value(args)?);
        Some(Val::Bool(op.is_some_and(|op| body.name(op) == &BROADCAST)))
    }),
    function(
        "chosen",
        &[Kind::Value],
        Kind::Bool,
        "Whether the pass that has the rule chose a value, by what it knows of the program and of the machine; any, in a file of one's own.",
        |_, _| None,
    ),
    function("float", &[Kind::Type], Kind::Bool, "Whether an element type is a float.", |_, args| {
        Some(Val::Bool(ty(args)?.elem().is_float()))
    }),
    function("integer", &[Kind::Type], Kind::Bool, "Whether an element type is an integer, i1 included.", |_, args| {
        Some(Val::Bool(ty(args)?.elem().is_int()))
    }),
    function("bits", &[Kind::Type], Kind::Int, "The bits of an element type.", |_, args| {
        Some(Val::Int(Dim::Static(i64::from(ty(args)?.elem().bit_width()?))))
    }),
    function("static", &[Kind::Ints], Kind::Bool, "Whether integers are fixed, and no symbols.", |_, args| {
        Some(Val::Bool(ints(args, 0)?.iter().all(|d| d.is_static())))
    }),
    function("count", &[Kind::Ints], Kind::Int, "How many integers a list has.", |_, args| {
        Some(Val::Int(Dim::Static(ints(args, 0)?.len() as i64)))
    }),
    function("product", &[Kind::Ints], Kind::Int, "The product of integers.", |_, args| {
        Some(Val::Int(ints(args, 0)?.iter().fold(Dim::Static(1), |n, &d| n * d)))
    }),
    function("sum", &[Kind::Ints], Kind::Int, "The sum of integers.", |_, args| {
        Some(Val::Int(ints(args, 0)?.iter().fold(Dim::Static(0), |n, &d| n + d)))
    }),
    function("range", &[Kind::Int], Kind::Ints, "0, 1, 2 and so on, so many of them.", |_, args| {
        let n = int(args, 0)?.as_static().filter(|n| (0..=MOST).contains(n))?;
        Some(Val::Ints((0..n).map(Dim::Static).collect()))
    }),
    function("sorted", &[Kind::Ints], Kind::Bool, "Whether integers do not decrease.", |_, args| {
        let list = places(args, 0)?;
        Some(Val::Bool(list.is_sorted()))
    }),
    function(
        "permutation",
        &[Kind::Ints],
        Kind::Bool,
        "Whether a list is 0, 1, 2 and so on, in any order.",
        |_, args| Some(Val::Bool(inverse(&places(args, 0)?).is_some())),
    ),
    function("inverse", &[Kind::Ints], Kind::Ints, "The permutation that undoes another.", |_, args| {
        inverse(&places(args, 0)?).map(Val::Ints)
    }),
    function("contains", &[Kind::Ints, Kind::Int], Kind::Bool, "Whether an integer is in a list.", |_, args| {
        Some(Val::Bool(ints(args, 0)?.contains(&int(args, 1)?)))
    }),
    function(
        "without",
        &[Kind::Ints, Kind::Ints],
        Kind::Ints,
        "The integers of a list that are not in another.",
        |_, args| {
            let others = ints(args, 1)?;
            Some(Val::Ints(ints(args, 0)?.iter().filter(|d| !others.contains(d)).copied().collect()))
        },
    ),
    function("max", &[Kind::Int, Kind::Int], Kind::Int, "The larger of two integers.", |_, args| {
        Some(Val::Int(int(args, 0)?.max(int(args, 1)?)))
    }),
    function("min", &[Kind::Int, Kind::Int], Kind::Int, "The smaller of two integers.", |_, args| {
        Some(Val::Int(int(args, 0)?.min(int(args, 1)?)))
    }),
    function(
        "ordered",
        &[Kind::Ints],
        Kind::Ints,
        "The integers of a list from the least to the greatest.",
        |_, args| {
            let mut list = places(args, 0)?;
            list.sort_unstable();
            Some(Val::Ints(list.into_iter().map(Dim::Static).collect()))
        },
    ),
    function(
        "ranks",
        &[Kind::Ints],
        Kind::Ints,
        "For each integer of a list how many others in it are less.",
        |_, args| {
            let list = places(args, 0)?;
            let less = |n: &i64| list.iter().filter(|m| *m < n).count() as i64;
            Some(Val::Ints(list.iter().map(|n| Dim::Static(less(n))).collect()))
        },
    ),
    function("reciprocal", &[Kind::Number], Kind::Number, "1 divided by a number.", |_, args| match args {
        [Val::Number(x)] => Some(Val::Number(Scalar::Float(1.0 / x.float()))),
        _ => None,
    }),
    function(
        "number",
        &[Kind::Int],
        Kind::Number,
        "An integer as a number; no value where it is a symbol.",
        |_, args| Some(Val::Number(Scalar::Int(int(args, 0)?.as_static()?.into()))),
    ),
    function("take", &[Kind::Ints, Kind::Int], Kind::Ints, "The first so many integers of a list.", |_, args| {
        let (list, n) = (ints(args, 0)?, usize::try_from(int(args, 1)?.as_static()?).ok()?);
        Some(Val::Ints(list.get(..n)?.iter().copied().collect()))
    }),
    function("drop", &[Kind::Ints, Kind::Int], Kind::Ints, "A list without its first so many integers.", |_, args| {
        let (list, n) = (ints(args, 0)?, usize::try_from(int(args, 1)?.as_static()?).ok()?);
        Some(Val::Ints(list.get(n..)?.iter().copied().collect()))
    }),
    function(
        "in_view",
        &[Kind::Ints, Kind::Ints, Kind::Ints],
        Kind::Ints,
        "Of dimensions of a shape, those that they are of another shape with as many elements; no value where one is joined or split with others.",
        |_, args| {
            let (from, to) = (ints(args, 1)?, ints(args, 2)?);
            Segments::between(&to, &from)?.reduced(&from, &places(args, 0)?).map(list_of)
        },
    ),
    function(
        "places",
        &[Kind::Ints, Kind::Ints],
        Kind::Ints,
        "For each dimension of a shape, which one it is of another shape with as many elements; -1 where it is joined or split with others.",
        |_, args| Some(list_of(Segments::between(&ints(args, 1)?, &ints(args, 0)?)?.places(&ints(args, 0)?))),
    ),
    function(
        "parts",
        &[Kind::Ints, Kind::Ints],
        Kind::Ints,
        "For each dimension of a shape, which one it is or is part of, of another shape with as many elements; -1 where it has one element. No value where one is split.",
        |_, args| Some(list_of(Segments::between(&ints(args, 1)?, &ints(args, 0)?)?.parts(&ints(args, 0)?)?)),
    ),
    function("int", &[Kind::Bool], Kind::Ints, "1 where a condition holds, 0 where it does not.", |_, args| {
        let int = |b: &bool| Dim::Static(i64::from(*b));
        match args {
            [Val::Bools(all)] => Some(Val::Ints(all.iter().map(int).collect())),
            [Val::Bool(one)] => Some(Val::Int(int(one))),
            _ => None,
        }
    }),
    function("bytes", &[Kind::Value], Kind::Word, "The bytes of a value, in words.", |body, args| {
        Some(Val::Word(Name::new(&bytes_text(body.ty(value(args)?))).as_str()))
    }),
    function("any", &[Kind::Bool], Kind::Bool, "Whether one of several conditions holds.", |_, args| match args {
        [Val::Bools(all)] => Some(Val::Bool(all.contains(&true))),
        [Val::Bool(one)] => Some(Val::Bool(*one)),
        _ => None,
    }),
];

/// Lists are no longer.
const MOST: i64 = 64;

pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|f| f.name == name)
}

fn value(args: &[Val]) -> Option<Value> {
    if let Some(Val::Value(value)) = args.first() { Some(*value) } else { None }
}
fn ty(args: &[Val]) -> Option<Type> {
    if let Some(Val::Type(ty)) = args.first() { Some(*ty) } else { None }
}
fn int(args: &[Val], at: usize) -> Option<Dim> {
    if let Val::Int(n) = args.get(at)? { Some(*n) } else { None }
}
fn ints(args: &[Val], at: usize) -> Option<Ints> {
    match args.get(at)? {
        Val::Ints(list) => Some(list.clone()),
        Val::Int(n) => Some(Ints::from_iter([*n])),
        _ => None,
    }
}
fn places(args: &[Val], at: usize) -> Option<SmallVec<[i64; 6]>> {
    ints(args, at)?.iter().map(|d| d.as_static()).collect()
}
fn list_of(list: Vec<i64>) -> Val {
    Val::Ints(list.into_iter().map(Dim::Static).collect())
}
/// The sizes of a value that has a known shape.
fn sizes(ty: Type) -> Option<Ints> {
    (ty.is_tensor() || ty.is_vector() || ty.is_tile() || ty.is_memref() || ty.is_scalar())
        .then(|| ty.shape().into_iter().collect())
}
fn inverse(perm: &[i64]) -> Option<Ints> {
    (0..perm.len() as i64).map(|d| perm.iter().position(|&p| p == d).map(|i| Dim::Static(i as i64))).collect()
}
