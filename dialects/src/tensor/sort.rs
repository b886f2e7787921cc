//! Order along a dimension: sort and topk.
//!
//! Short rows: an element's rank is the number of elements that come before it, and the element of each rank is looked up;
//! both compare all pairs. Long rows are sorted by `core.sort`; of the first few of a long row, only what may be among them.

use super::merge::along;
use super::spatial::iota;
use crate::builder::CoreBuilder;
use crate::constraints::{INT_TENSOR, TENSOR, check_dims};
use crate::core::shape::inverse;
use crate::core::sort as core;
use crate::derivative::{Derivative, Vjp};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, Types, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, Result, Type, Value};
use smallvec::smallvec;

const LONGEST_OF_PAIRS: AttrDef = attr(
    "pairs",
    AttrKind::I64,
    "The longest rows that are sorted by comparing all pairs; 128 without it. The result is the same.",
)
.optional();

pub static SORT: OpDef = OpDef {
    summary: "The elements in order along a dimension, and where each was.",
    doc: "Ascending, or descending; a NaN is greater than any number; equal elements stay in their order. The second result has the i64 \
          index along the dimension that each element had.",
    example: "func.func @sort(%x: tensor<3x7xf32>) -> (tensor<3x7xf32>, tensor<3x7xi64>) {
  %y, %at = tensor.sort %x {dim = -1, descending = true} : tensor<3x7xf32>, tensor<3x7xi64>
  func.return %y, %at
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR), result("indices", INT_TENSOR)],
    attrs: &[
        attr("dim", AttrKind::I64, "The dimension; negative ones count from the end."),
        attr("descending", AttrKind::Bool, "From the greatest to the least.").default(AttrDefault::Bool(false)),
        LONGEST_OF_PAIRS,
        core::BELOW,
    ],
    effects: Effects::Pure,
    infer: Some(|args| sorted_types(args, None)),
    interfaces: &[
        &Decompose(|b, op| {
            let descending = b.body.op_ref(op).bool("descending");
            Ok(ordered(b, op, descending))
        }),
        &Derivative::Vjp(ordered_vjp),
    ],
    ..OpDef::new("rc.tensor.sort")
};

pub static TOPK: OpDef = OpDef {
    summary: "The k greatest (or least) elements along a dimension, in order, and where each was.",
    doc: "As the first k of tensor.sort, but that any of equal elements may come first.",
    example: "func.func @topk(%x: tensor<3x7xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>) {
  %y, %at = tensor.topk %x {dim = 1, k = 2} : tensor<3x2xf32>, tensor<3x2xi64>
  func.return %y, %at
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR), result("indices", INT_TENSOR)],
    attrs: &[
        attr("dim", AttrKind::I64, "The dimension; negative ones count from the end."),
        attr("k", AttrKind::I64, "How many."),
        attr("largest", AttrKind::Bool, "The greatest rather than the least.").default(AttrDefault::Bool(true)),
        LONGEST_OF_PAIRS,
    ],
    effects: Effects::Pure,
    infer: Some(|args| sorted_types(args, Some(args.int("k")?))),
    interfaces: &[
        &Decompose(|b, op| {
            let largest = b.body.op_ref(op).bool("largest");
            Ok(ordered(b, op, largest))
        }),
        &Derivative::Vjp(ordered_vjp),
    ],
    ..OpDef::new("rc.tensor.topk")
};

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&SORT, &TOPK];

fn dim_of(dim: i64, rank: usize) -> std::result::Result<usize, String> {
    let from_start = if dim < 0 { dim.saturating_add(rank as i64) } else { dim };
    Ok(check_dims("dim", &[from_start], rank)?[0])
}

fn sorted_types(args: &InferArgs, k: Option<i64>) -> std::result::Result<Types, String> {
    let x = args.operand(0)?;
    core::check_below(args)?;
    let dim = dim_of(args.int("dim")?, x.rank())?;
    let mut shape = x.shape();
    if let Some(k) = k {
        if k < 0 || shape[dim].as_static().is_some_and(|n| k > n) {
            return Err(format!("takes {k} elements of dimension {dim} of size {}", shape[dim]));
        }
        shape[dim] = Dim::Static(k);
    }
    let ty = x.with_shape(&shape);
    Ok(smallvec![ty, ty.with_elem(Type::i64())])
}

/// Each element's gradient goes to the place where the element was.
fn ordered_vjp(v: &mut Vjp) -> Result {
    let (g, places, ty) = (v.g(), v.result(1), v.ty(v.operand(0)));
    let dim = dim_of(v.at().int("dim").expect("verified"), ty.rank()).expect("verified");
    let (there, back) = last_and_back(dim, ty.rank());
    v.give_with(0, |v| {
        let [g, places] = [g, places].map(|x| v.permute(x, &there));
        let shape: Vec<Dim> = there.iter().map(|&d| ty.shape()[d as usize]).collect();
        let zeros = v.splat(0.0, ty.with_shape(&shape));
        let batch = Attr::i64(ty.rank() as i64 - 1);
        let op = v.op(op::core::SCATTER).operand(zeros).operand(places).operand(g);
        let sums = op.attr("axis", batch).attr("batch", batch).attr("kind", Attr::str("add")).value();
        v.permute(sums, &back)
    });
    Ok(())
}

/// The permutation that puts a dimension last, and the one back.
fn last_and_back(dim: usize, rank: usize) -> (Vec<i64>, Vec<i64>) {
    let mut there: Vec<i64> = (0..rank as i64).filter(|&d| d != dim as i64).collect();
    there.push(dim as i64);
    let back = inverse(&there);
    (there, back)
}

/// Rows up to this long are sorted by comparing all pairs where the operation does not say it; rows of a symbolic length too.
const PAIRS: i64 = 128;
/// Rows in which at least so many elements stand for one that is wanted are not sorted whole.
const GROUPED: i64 = 16;

fn ordered(b: &mut Builder, op: Op, descending: bool) -> Vec<Value> {
    let x = b.body.operand(op, 0);
    let rank = b.ty(x).rank();
    let dim = dim_of(b.body.op_ref(op).int("dim").expect("verified"), rank).expect("verified");
    let taken = b.ty(b.body.result(op, 0)).shape()[dim];
    let (there, back) = last_and_back(dim, rank);
    let rows = b.permute(x, &there);
    let pairs = b.body.op_ref(op).int("pairs").unwrap_or(PAIRS);
    let n = b.ty(rows).shape()[rank - 1].as_static().filter(|&n| n > pairs && n < i64::from(i32::MAX));
    let few = b.ty(rows).elem().bit_width().is_some_and(|width| width <= 32);
    let below = b.body.op_ref(op).int(core::BELOW.name);
    let found = match (n, taken.as_static()) {
        (None, _) | (_, None | Some(0)) => {
            let keys = keys(b, rows, descending);
            let ranks = ranks(b, keys);
            let at = by_rank(b, ranks, taken);
            looked_up(b, rows, at)
        }
        (Some(n), Some(k)) if n <= PAIRS => sorted(b, &[rows], Some(k).filter(|&k| k < n), descending, None),
        (Some(_), Some(1)) if few => {
            let keys = keys(b, rows, descending);
            let at = least(b, keys);
            looked_up(b, rows, at)
        }
        (Some(n), Some(k)) if n >= GROUPED * k => from_groups(b, rows, k, descending),
        (Some(n), Some(k)) => sorted(b, &[rows], Some(k).filter(|&k| k < n), descending, below),
    };
    found.map(|v| b.permute(v, &back)).to_vec()
}

/// `core.sort` of rows, and perhaps their places.
fn sorted(b: &mut Builder, operands: &[Value], count: Option<i64>, descending: bool, below: Option<i64>) -> [Value; 2] {
    let op = b.op(&core::SORT).operands(operands).attr("descending", Attr::bool(descending));
    let op = op.maybe_attr("count", count.map(Attr::i64)).maybe_attr(core::BELOW.name, below.map(Attr::i64)).build();
    [0, 1].map(|i| b.body.result(op, i))
}

/// The elements of rows at these places, and the places as i64.
fn looked_up(b: &mut Builder, rows: Value, at: Value) -> [Value; 2] {
    let at = b.convert(at, Type::i64());
    [along(b, rows, at), at]
}

/// The first `k` of rows that are much longer. Neighbours form groups; each of the `k` is in one of the `k` groups whose best elements
/// come first, since from each of those comes an element that is no worse. So the groups' best elements are sorted, then the elements
/// of the groups found, with those that are left over at the end of the row.
fn from_groups(b: &mut Builder, rows: Value, k: i64, descending: bool) -> [Value; 2] {
    let shape = b.ty(rows).shape().to_vec();
    let (last, lead) = (shape.len() - 1, &shape[..shape.len() - 1]);
    let n = shape[last].as_static().expect("a fixed length");
    // As many groups as there are elements in those that are found, or more.
    let group = (1..).map(|bits| 1i64 << bits).take_while(|g| g * g * k <= n).last().unwrap_or(2);
    let groups = n / group;
    let of = |sizes: &[i64]| [lead, &sizes.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>()].concat();
    let keys = keys(b, rows, descending);
    let whole = b.slice(keys, &vec![Dim::Static(0); shape.len()], &of(&[groups * group]));
    let whole = b.reshape(whole, &of(&[groups, group]));
    let best = b.reduce("min", whole, &[last as i64 + 1]);
    let found = sorted(b, &[best], Some(k), false, None)[1];
    let outer: Vec<i64> = (0..=last as i64).collect();
    let found = b.broadcast(found, &of(&[k, group]), &outer);
    let found = b.reshape(found, &of(&[k * group]));
    let first = b.binary_scalar("mul", found, group as f64);
    let number = iota(b, &of(&[k * group]), last);
    let inside = b.binary_scalar("and", number, (group - 1) as f64);
    let mut places = b.binary("add", first, inside);
    if groups * group < n {
        let rest = iota(b, &of(&[n - groups * group]), last);
        let rest = b.binary_scalar("add", rest, (groups * group) as f64);
        places = b.concat(&[places, rest], last as i64);
    }
    let candidates = along(b, rows, places);
    sorted(b, &[candidates, places], Some(k), descending, None)
}

/// The index of the least key, of at most 32 bits: the first of several, where key and index make one number.
fn least(b: &mut Builder, keys: Value) -> Value {
    let shape = b.ty(keys).shape().to_vec();
    let last = shape.len() - 1;
    let wide = b.convert(keys, Type::i64());
    let high = b.binary_scalar("mul", wide, (1i64 << 32) as f64);
    let index = iota(b, &shape, last);
    let unique = b.binary("add", high, index);
    let least = b.reduce("min", unique, &[last as i64]);
    let found = b.reshape(least, &[&shape[..last], &[Dim::Static(1)]].concat());
    let mask = b.splat(f64::from(u32::MAX), b.ty(found));
    b.binary("and", found, mask)
}

/// For each key of the last dimension, how many come before it.
fn ranks(b: &mut Builder, keys: Value) -> Value {
    let shape = b.ty(keys).shape().to_vec();
    let last = shape.len() - 1;
    let space = [&shape[..], &[shape[last]]].concat();
    let outer: Vec<i64> = (0..last as i64).collect();
    let mine = b.broadcast(keys, &space, &[outer.as_slice(), &[last as i64]].concat());
    let other = b.broadcast(keys, &space, &[outer.as_slice(), &[last as i64 + 1]].concat());
    let (here, there) = (iota(b, &space, last), iota(b, &space, last + 1));
    let (less, equal, earlier) =
        (b.compare("lt", other, mine), b.compare("eq", other, mine), b.compare("lt", there, here));
    let tie = b.binary("and", equal, earlier);
    let before = b.binary("or", less, tie);
    let ones = b.convert(before, Type::i64());
    b.reduce("add", ones, &[last as i64 + 1])
}

/// The index of the element of each rank below `count`.
fn by_rank(b: &mut Builder, ranks: Value, count: Dim) -> Value {
    let shape = b.ty(ranks).shape().to_vec();
    let last = shape.len() - 1;
    let space = [&shape[..last], &[count, shape[last]]].concat();
    let kept: Vec<i64> = (0..last as i64).chain([last as i64 + 1]).collect();
    let of_element = b.broadcast(ranks, &space, &kept);
    let (wanted, index) = (iota(b, &space, last), iota(b, &space, last + 1));
    let found = b.compare("eq", of_element, wanted);
    let none = b.splat(0.0, b.ty(index));
    let chosen = b.select(found, index, none);
    b.reduce("add", chosen, &[last as i64 + 1])
}

/// Integers in the order of the elements: of a float its bits, those of negative numbers turned around.
pub fn keys(b: &mut Builder, x: Value, descending: bool) -> Value {
    let elem = b.ty(x).elem();
    let keys = match elem.bit_width() {
        Some(width) if elem.is_float() => {
            // Zeros are equal.
            let positive = b.binary_scalar("add", x, 0.0);
            let ty = b.ty(x).with_elem(Type::int(width));
            let bits = b.op(op::core::BITCAST).operand(positive).result(ty).value();
            let zero = b.splat(0.0, ty);
            let negative = b.compare("lt", bits, zero);
            let magnitude = b.op(op::core::CONSTANT).attr("value", greatest(width)).result(Type::int(width)).value();
            let magnitude = b.broadcast(magnitude, &ty.shape(), &[]);
            let turned = b.binary("xor", bits, magnitude);
            let keys = b.select(negative, turned, bits);
            let nan = b.unary("is_nan", x);
            b.select(nan, magnitude, keys)
        }
        Some(width) if elem.is_unsigned() || width == 1 => b.convert(x, Type::i64()),
        _ => x,
    };
    if descending { b.unary("not", keys) } else { keys }
}

/// The greatest signed integer of a width.
pub fn greatest(width: u32) -> Attr {
    Attr::int(i64::MAX >> (64 - width), Type::int(width))
}
