//! Elements in other places: flip, roll, pad in several ways, triangles, cumulative sums.

use super::spatial::iota;
use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, NUMERIC_TENSOR, TENSOR, check_dims, one};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, infer_same, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, OpRef, Result, Type, Value};

pub static FLIP: OpDef = OpDef {
    summary: "The elements in the opposite order along dimensions.",
    example: "func.func @flip(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.flip %x {dims = [-1]} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[attr("dims", AttrKind::I64Array, "The dimensions; negative ones count from the end.")],
    effects: Effects::Pure,
    infer: Some(infer_flip),
    interfaces: &[&Decompose(|b, op| {
        let x = b.body.operand(op, 0);
        let dims = dims_of(b.body.op_ref(op), b.ty(x).rank());
        Ok(vec![b.op(op::core::REVERSE).operand(x).attr("dims", Attr::i64s(&dims)).value()])
    })],
    ..OpDef::new("rc.tensor.flip")
};

pub static ROLL: OpDef = OpDef {
    summary: "The elements moved along dimensions; what leaves at one end comes in at the other.",
    doc: "Element i of the result is element (i - shift) mod size of the operand.",
    example: "func.func @roll(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = tensor.roll %x {dims = [0, -1], shifts = [-1, 7]} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The dimensions; negative ones count from the end."),
        attr("shifts", AttrKind::I64Array, "How far, for each of them."),
    ],
    effects: Effects::Pure,
    infer: Some(infer_roll),
    interfaces: &[&Decompose(define_roll)],
    ..OpDef::new("rc.tensor.roll")
};

pub static PAD: OpDef = OpDef {
    summary: "Adds elements before and after, along each dimension.",
    doc: "What is added is `value` (constant), the elements mirrored about the first and the last (reflect: at most size - 1), these repeated \
          (replicate), or the elements over again (circular: at most size). Negative numbers take elements away.",
    example: "func.func @pad(%x: tensor<3x5xf32>) -> tensor<4x9xf32> {
  %y = tensor.pad %x {low = [0, 2], high = [1, 2], mode = reflect} : tensor<4x9xf32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[
        attr("low", AttrKind::I64Array, "Elements added before, for each dimension."),
        attr("high", AttrKind::I64Array, "Elements added after, for each dimension."),
        attr("mode", AttrKind::Enum(&["constant", "reflect", "replicate", "circular"]), "What is added.")
            .default(AttrDefault::Str("constant")),
        attr("value", AttrKind::F64, "The constant.").default(AttrDefault::Float(0.0)),
    ],
    effects: Effects::Pure,
    infer: Some(infer_pad),
    interfaces: &[&Decompose(define_pad)],
    ..OpDef::new("rc.tensor.pad")
};

const DIAGONAL: AttrDef =
    attr("diagonal", AttrKind::I64, "The diagonal at the border: 0 the main one, positive ones above.")
        .default(AttrDefault::Int(0));

macro_rules! triangles {
    ($($id:ident $name:literal $keep:literal $summary:literal;)*) => {
        $(pub static $id: OpDef = OpDef {
            summary: $summary,
            doc: "Of the matrices in the last two dimensions; the other elements are 0.",
            example: concat!(
                "func.func @", $name, "(%x: tensor<2x3x5xf32>) -> tensor<2x3x5xf32> {\n",
                "  %y = tensor.", $name, " %x {diagonal = 1} : tensor<2x3x5xf32>\n  func.return %y\n}\n",
            ),
            operands: &[operand("x", TENSOR)],
            results: &[result("result", TENSOR)],
            attrs: &[DIAGONAL],
            effects: Effects::Pure,
            infer: Some(infer_triangle),
            interfaces: &[&Decompose(|b, op| define_triangle(b, op, $keep))],
            ..OpDef::new(concat!("rc.tensor.", $name))
        };)*
    };
}

triangles! {
    TRIL "tril" "le" "The elements on and below a diagonal.";
    TRIU "triu" "ge" "The elements on and above a diagonal.";
}

macro_rules! cumulative {
    ($($id:ident $name:literal $kind:literal $summary:literal;)*) => {
        $(pub static $id: OpDef = OpDef {
            summary: $summary,
            doc: "Of each element and all before it. Accumulated in f32 for narrower floats; each result is rounded once.",
            example: concat!(
                "func.func @", $name, "(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {\n",
                "  %y = tensor.", $name, " %x {dim = -1} : tensor<3x5xf32>\n  func.return %y\n}\n",
            ),
            operands: &[operand("x", NUMERIC_TENSOR)],
            results: &[result("result", NUMERIC_TENSOR)],
            attrs: &[attr("dim", AttrKind::I64, "The dimension; negative ones count from the end.")],
            effects: Effects::Pure,
            infer: Some(infer_cumulative),
            interfaces: &[&Decompose(|b, op| {
                let x = b.body.operand(op, 0);
                let dim = from_start(b.body.op_ref(op).int("dim").expect("verified"), b.ty(x).rank());
                Ok(vec![b.op(op::core::SCAN).operand(x).attr("dim", Attr::i64(dim)).attr("kind", Attr::str($kind)).value()])
            })],
            ..OpDef::new(concat!("rc.tensor.", $name))
        };)*
    };
}

cumulative! {
    CUMSUM "cumsum" "add" "Sums along a dimension up to each element.";
    CUMPROD "cumprod" "mul" "Products along a dimension up to each element.";
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&FLIP, &ROLL, &PAD, &TRIL, &TRIU, &CUMSUM, &CUMPROD];

fn from_start(d: i64, rank: usize) -> i64 {
    if d < 0 { d.saturating_add(rank as i64) } else { d }
}

fn checked(dims: &[i64], rank: usize) -> std::result::Result<Vec<usize>, String> {
    check_dims("dims", &dims.iter().map(|&d| from_start(d, rank)).collect::<Vec<_>>(), rank)
}

/// The dimensions of a verified op.
fn dims_of(op: OpRef, rank: usize) -> Vec<i64> {
    op.ints("dims").expect("verified").into_iter().map(|d| from_start(d, rank)).collect()
}

fn infer_flip(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    checked(&args.ints("dims")?, x.rank())?;
    one(x)
}

fn infer_roll(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let (dims, shifts) = (checked(&args.ints("dims")?, x.rank())?, args.ints("shifts")?);
    if dims.len() != shifts.len() {
        return Err(format!("has {} dimensions and {} shifts", dims.len(), shifts.len()));
    }
    match dims.iter().find(|&&d| x.shape()[d].as_static().is_none()) {
        Some(&d) => Err(format!("cannot roll along dimension {d} of symbolic size {}", x.shape()[d])),
        None => one(x),
    }
}

/// Each dimension is cut in two, and the parts change places.
fn define_roll(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let mut x = b.body.operand(op, 0);
    let shape = b.ty(x).shape().to_vec();
    let dims = dims_of(b.body.op_ref(op), shape.len());
    let shifts = b.body.op_ref(op).ints("shifts").expect("verified");
    for (&d, shift) in dims.iter().zip(shifts) {
        let size = shape[d as usize].as_static().expect("verified");
        let first = if size == 0 { 0 } else { shift.rem_euclid(size) };
        if first == 0 {
            continue;
        }
        let part = |b: &mut Builder, start: i64, length: i64| {
            let (mut starts, mut sizes) = (vec![Dim::Static(0); shape.len()], shape.clone());
            (starts[d as usize], sizes[d as usize]) = (Dim::Static(start), Dim::Static(length));
            b.slice(x, &starts, &sizes)
        };
        let (tail, head) = (part(b, size - first, first), part(b, 0, size - first));
        x = b.concat(&[tail, head], d);
    }
    Ok(vec![x])
}

fn infer_pad(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let (low, high) = (args.ints("low")?, args.ints("high")?);
    let mode = args.attr("mode").and_then(|a| a.as_str()).unwrap_or("constant");
    if low.len() != x.rank() || high.len() != x.rank() {
        return Err(format!("needs {} numbers in 'low' and in 'high'", x.rank()));
    }
    let mut shape = x.shape();
    for (d, size) in shape.iter_mut().enumerate() {
        let most = size.as_static().map(|n| match mode {
            "reflect" => n - 1,
            "circular" => n,
            "replicate" if n == 0 => 0,
            _ => i64::MAX,
        });
        if most.is_some_and(|most| low[d] > most || high[d] > most) {
            return Err(format!(
                "cannot add {} and {} elements to dimension {d} of size {size} by '{mode}'",
                low[d], high[d]
            ));
        }
        *size = *size + Dim::Static(low[d]) + Dim::Static(high[d]);
        if size.as_static().is_some_and(|n| n < 0) {
            return Err(format!("takes more elements away than dimension {d} has"));
        }
    }
    one(x.with_shape(&shape))
}

fn define_pad(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, mode) = (at.operand(0), at.str("mode").unwrap_or("constant").to_string());
    let (low, high) = (at.ints("low").expect("verified"), at.ints("high").expect("verified"));
    if mode == "constant" {
        let value = at.attr("value").and_then(|a| a.as_float()).unwrap_or(0.0);
        let sizes = |side: &[i64]| side.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>();
        return Ok(vec![b.pad_or_crop(x, value, &sizes(&low), &sizes(&high))]);
    }
    let mut x = x;
    for d in (0..low.len()).filter(|&d| low[d] != 0 || high[d] != 0) {
        let size = b.ty(x).shape()[d];
        let places = places(b, &mode, size, low[d], high[d]);
        x = b.gather(x, places, d as i64);
    }
    Ok(vec![x])
}

/// For each element of a padded dimension, the one of the operand that it is.
fn places(b: &mut Builder, mode: &str, size: Dim, low: i64, high: i64) -> Value {
    let shape = [size + Dim::Static(low + high)];
    let index = iota(b, &shape, 0);
    let index = b.binary_scalar("sub", index, low as f64);
    let count = b.size(size, Type::i64(), &shape);
    let last = b.binary_scalar("sub", count, 1.0);
    match mode {
        "reflect" => {
            let from_first = b.unary("abs", index);
            let beyond = b.binary("sub", last, from_first);
            let distance = b.unary("abs", beyond);
            b.binary("sub", last, distance)
        }
        "circular" => {
            let sum = b.binary("add", index, count);
            b.binary("rem", sum, count)
        }
        _ => {
            let inside = b.binary_scalar("max", index, 0.0);
            b.binary("min", inside, last)
        }
    }
}

fn infer_triangle(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    if x.rank() < 2 { Err(format!("needs matrices, and has {x}")) } else { infer_same(args) }
}

fn define_triangle(b: &mut Builder, op: Op, keep: &str) -> Result<Vec<Value>> {
    let x = b.body.operand(op, 0);
    let diagonal = b.body.op_ref(op).int("diagonal").unwrap_or(0);
    let shape = b.ty(x).shape().to_vec();
    let (row, column) = (iota(b, &shape, shape.len() - 2), iota(b, &shape, shape.len() - 1));
    let border = b.binary_scalar("add", row, diagonal as f64);
    let kept = b.compare(keep, column, border);
    let zero = b.splat(0.0, b.ty(x));
    Ok(vec![b.select(kept, x, zero)])
}

fn infer_cumulative(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    checked(&[args.int("dim")?], x.rank())?;
    one(x)
}
