//! Random tensors: every element is a function of a seed and of its own number, so that nothing but these changes it.

use super::compute_type;
use super::spatial::product;
use crate::builder::CoreBuilder;
use crate::constraints::{INT_TENSOR, Inferred, TENSOR, one};
use crate::interfaces::Decompose;
use crate::op;
use rc_ir::op_def::{AttrDef, AttrKind, InferArgs, attr, operand, result};
use rc_ir::{Attr, Builder, Effects, Op, OpDef, Result, Type, Value};

const SHAPE: AttrDef = attr("shape", AttrKind::Shape, "The shape of the result.");
const ELEM: AttrDef = attr("elem", AttrKind::Type, "The element type of the result.");

macro_rules! random {
    ($($id:ident $name:literal $elem:literal $extra:literal $attrs:expr, $define:expr, $summary:literal, $doc:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: $summary,
                doc: concat!($doc, " Element number i (in row-major order) comes from core.philox (numbers of up to 32 random digits from core.philox_word) with the key `seed` and the counter \
                      `offset` + i; both are i64 tensors of rank 0. Two results of one seed differ where their offsets are as \
                      far apart as they have elements."),
                example: concat!(
                    "func.func @", $name, "(%seed: tensor<i64>, %offset: tensor<i64>) -> tensor<3x5x", $elem, "> {\n",
                    "  %y = tensor.", $name, " %seed, %offset {shape = [3, 5], elem = ", $elem, $extra, "} : tensor<3x5x", $elem, ">\n",
                    "  func.return %y\n}\n",
                ),
                operands: &[operand("seed", INT_TENSOR), operand("offset", INT_TENSOR)],
                results: &[result("result", TENSOR)],
                attrs: $attrs,
                effects: Effects::Pure,
                infer: Some(infer_random),
                interfaces: &[&Decompose($define)],
                ..OpDef::new(concat!("rc.tensor.", $name))
            };
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id,)*];
    };
}

random! {
    RAND_UNIFORM "rand_uniform" "f32" "" &[SHAPE, ELEM], define_uniform,
        "Random numbers, uniform in [0, 1).",
        "Multiples of 2^-d, where the element type has d digits (24 of f32), so that none is 1.";
    RAND_NORMAL "rand_normal" "f32" "" &[SHAPE, ELEM], define_normal,
        "Random numbers of the normal distribution with mean 0 and variance 1.",
        "sqrt(-2 log u) cos(2 pi v) of uniform u in (0, 1] and v in [0, 1) (Box and Muller, 1958), in f32 for narrower types.";
    RAND_INT "rand_int" "i64" ", low = -3, high = 7" &[
            SHAPE, ELEM,
            attr("low", AttrKind::I64, "The least integer."),
            attr("high", AttrKind::I64, "One more than the greatest."),
        ], define_int,
        "Random integers, uniform in [low, high).",
        "The remainder of 63 bits, so that none is likelier than another by more than 2^-63 (high - low).";
}

fn infer_random(args: &InferArgs) -> Inferred {
    for i in 0..2 {
        if args.operand(i)? != Type::tensor(&[], Type::i64()) {
            return Err(format!("needs a seed and an offset of type tensor<i64>, and has {}", args.operand(i)?));
        }
    }
    let shape = args.attr("shape").and_then(|a| a.as_shape()).ok_or("expects the shape attribute 'shape'")?;
    let elem = args
        .attr("elem")
        .and_then(|a| a.as_type())
        .filter(|t| t.is_scalar())
        .ok_or("expects an element type in 'elem'")?;
    let integers = args.attr("low").is_some();
    if integers == elem.is_float() || elem == Type::i1() {
        return Err(format!("has no random elements of type {elem}"));
    }
    if let (Ok(low), Ok(high)) = (args.int("low"), args.int("high"))
        && (low >= high || high.checked_sub(low).is_none())
    {
        return Err(format!("has no integers in [{low}, {high})"));
    }
    one(Type::tensor(shape, elem))
}

/// Random bits for each element of the result, as i64: 64 of `philox`, 32 of `philox_word`.
fn bits(b: &mut Builder, op: Op, generator: &str) -> Value {
    let (seed, offset) = (b.body.operand(op, 0), b.body.operand(op, 1));
    let shape = b.ty(b.body.result(op, 0)).shape().to_vec();
    let count = product(&shape);
    let ty = Type::tensor(&[count], Type::i64());
    let number = b.op(op::core::IOTA).attr("dim", Attr::i64(0)).result(ty).value();
    let number = b.reshape(number, &shape);
    let (seed, offset) = (b.broadcast(seed, &shape, &[]), b.broadcast(offset, &shape, &[]));
    let counter = b.binary("add", number, offset);
    b.op(generator).operands(&[seed, counter]).value()
}

/// The number of `count` bits from bit `first` on, in `ty`, times 2^-count.
fn fraction(b: &mut Builder, bits: Value, first: u32, count: u32, elem: Type) -> Value {
    let shifted = b.binary_scalar("shr", bits, f64::from(first));
    let mask = b.splat(2f64.powi(count as i32) - 1.0, b.ty(bits));
    let part = b.binary("and", shifted, mask);
    let number = b.convert(part, elem);
    b.binary_scalar("mul", number, 2f64.powi(-(count as i32)))
}

/// The digits of a float, the one before the point included.
fn digits(elem: Type) -> u32 {
    match elem {
        t if t == Type::bf16() => 8,
        t if t == Type::f16() => 11,
        t if t == Type::f64() => 53,
        _ => 24,
    }
}

fn define_uniform(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let elem = b.ty(b.body.result(op, 0)).elem();
    let generator = if digits(elem) <= 32 { op::core::PHILOX_WORD } else { op::core::PHILOX };
    let bits = bits(b, op, generator);
    let value = fraction(b, bits, 0, digits(elem), compute_type(elem));
    Ok(vec![b.convert(value, elem)])
}

fn define_normal(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let elem = b.ty(b.body.result(op, 0)).elem();
    let compute = compute_type(elem);
    let bits = bits(b, op, op::core::PHILOX);
    let (u, v) = (fraction(b, bits, 0, 32, Type::f64()), fraction(b, bits, 32, 31, Type::f64()));
    // (0, 1]
    let one = b.splat(1.0, b.ty(u));
    let u = b.binary("sub", one, u);
    let (u, v) = (b.convert(u, compute), b.convert(v, compute));
    let log = b.unary("log", u);
    let square = b.binary_scalar("mul", log, -2.0);
    let radius = b.unary("sqrt", square);
    let angle = b.binary_scalar("mul", v, 2.0 * std::f64::consts::PI);
    let cosine = b.unary("cos", angle);
    let value = b.binary("mul", radius, cosine);
    Ok(vec![b.convert(value, elem)])
}

fn define_int(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (low, high) = (at.int("low").expect("verified"), at.int("high").expect("verified"));
    let elem = b.ty(b.body.result(op, 0)).elem();
    let bits = bits(b, op, op::core::PHILOX);
    let ty = b.ty(bits);
    let constant = |b: &mut Builder, n: i64| {
        let scalar = b.op(op::core::CONSTANT).attr("value", Attr::i64(n)).result(Type::i64()).value();
        b.broadcast(scalar, &ty.shape(), &[])
    };
    let (mask, range, low) = (constant(b, i64::MAX), constant(b, high - low), constant(b, low));
    let positive = b.binary("and", bits, mask);
    let rest = b.binary("rem", positive, range);
    let value = b.binary("add", rest, low);
    Ok(vec![b.convert(value, elem)])
}
