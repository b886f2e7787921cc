//! The least and the greatest number that an integer value may have, as far as its operations say it.

use super::scalar::{self, Scalar};
use crate::op;
use rc_ir::attr::AttrData;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Dim, OpRef, Type, Value};

/// From the least to the greatest number, both included.
pub type Range = (i64, i64);

/// The most operations that are followed, each as often as it is used.
const STEPS: usize = 64;

/// The range of integers or booleans (0 and 1), that of the type where nothing else is known; `None` for other values.
pub fn range_of(body: &Body, value: Value) -> Option<Range> {
    range(body, value, &mut { STEPS })
}

/// The number that all of these are less than, if none is negative and they are known to be less than 2³¹ - 1.
pub fn bound_of(body: &Body, value: Value) -> Option<i64> {
    let (least, most) = range_of(body, value)?;
    (least >= 0 && most < i64::from(i32::MAX)).then(|| most + 1)
}

/// What a comparison of integers gives everywhere, where their ranges say it.
pub fn decided(body: &Body, kind: &str, [x, y]: [Value; 2]) -> Option<bool> {
    let ((a, b), (c, d)) = (range_of(body, x)?, range_of(body, y)?);
    let (less, not_less) = (b < c, a >= d);
    let (greater, not_greater) = (a > d, b <= c);
    let [yes, no] = match kind {
        "lt" => [less, not_less],
        "ge" => [not_less, less],
        "gt" => [greater, not_greater],
        "le" => [not_greater, greater],
        "eq" => [a == b && (a, b) == (c, d), less || greater],
        _ => [less || greater, a == b && (a, b) == (c, d)],
    };
    (yes || no).then_some(yes)
}

fn range(body: &Body, value: Value, steps: &mut usize) -> Option<Range> {
    let elem = body.ty(value).elem();
    if !elem.is_int() {
        return None;
    }
    let known = match constant_of(body, value) {
        Some(attr) => numbers(attr, elem),
        None => body.defining_op(value).filter(|_| *steps > 0).and_then(|op| {
            *steps -= 1;
            let op = body.op_ref(op);
            let result = (0..op.result_types().len()).find(|&i| op.result(i) == value)?;
            made(op, result, steps)
        }),
    };
    known.or_else(|| of_type(elem))
}

/// What a type has; of unsigned numbers of 64 bits, nothing is known.
fn of_type(elem: Type) -> Option<Range> {
    let bits = elem.bit_width()?;
    match bits == 1 || elem.is_unsigned() {
        true => (bits < 64).then(|| (0, (1 << bits) - 1)),
        false => Some((i64::MIN >> (64 - bits), i64::MAX >> (64 - bits))),
    }
}

/// The range of a constant's elements, where they are one or few.
fn numbers(attr: Attr, elem: Type) -> Option<Range> {
    const FEW: usize = 4096;
    let int = |scalar: Scalar| i64::try_from(scalar.int()?).ok();
    let AttrData::Dense { data, .. } = attr.data() else {
        return int(scalar::splat_of(attr)?).map(|n| (n, n));
    };
    let width = elem.byte_width()? as usize;
    let element = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.get_mut(..width)?.copy_from_slice(bytes);
        int(Scalar::from_bits(u64::from_le_bytes(word), elem)?)
    };
    let few = data.splat || data.bytes.len() <= FEW * width;
    let all: Vec<i64> = data.bytes.chunks_exact(width).filter(|_| few).map(element).collect::<Option<_>>()?;
    all.iter().min().copied().zip(all.iter().max().copied())
}

/// Both together.
fn union(a: Range, b: Range) -> Range {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The range of an operation's result.
fn made(op: OpRef, result: usize, steps: &mut usize) -> Option<Range> {
    let mut of = |i: usize| range(op.body, op.operand(i), steps);
    let along = |dim: i64| {
        let shape = op.body.ty(op.operand(0)).shape();
        let dim = if dim < 0 { dim + shape.len() as i64 } else { dim };
        shape.get(dim as usize).and_then(|n| n.as_static()).map(|n| (0, (n - 1).max(0)))
    };
    match op.name().as_str() {
        op::core::IOTA => {
            let n = op.result_types()[0].shape().get(op.int("dim")? as usize)?.as_static()?;
            Some((0, (n - 1).max(0)))
        }
        op::core::COMPARE => Some((0, 1)),
        op::core::BROADCAST | op::core::RESHAPE | op::core::TRANSPOSE | op::core::SLICE => of(0),
        op::core::GATHER => of(0),
        op::core::CONVERT => in_type(op, of(0)?),
        op::core::CONCAT => {
            let first = of(0)?;
            (1..op.operands().len()).try_fold(first, |all, i| Some(union(all, of(i)?)))
        }
        op::core::SELECT => Some(union(of(1)?, of(2)?)),
        op::core::SCATTER if op.str("kind") == Some("set") => Some(union(of(0)?, of(2)?)),
        op::core::SORT if result == 1 && op.operands().len() > 1 => of(1),
        op::core::SORT if result == 1 => along(-1),
        op::core::SORT => of(0),
        op::tensor::SORT | op::tensor::TOPK if result == 1 => along(op.int("dim")?),
        op::tensor::SORT | op::tensor::TOPK => of(0),
        op::core::REDUCE => reduced(op, of(0)?),
        op::core::DIV => divided(of(0)?, of(1)?),
        op::core::REM => remainder(of(0)?, of(1)?),
        op::core::MIN => Some(pairwise(of(0)?, of(1)?, i64::min)),
        op::core::MAX => Some(pairwise(of(0)?, of(1)?, i64::max)),
        op::core::ADD => in_type(op, arithmetic(of(0)?, of(1)?, i64::checked_add)?),
        op::core::SUB => {
            let ((least, most), divisor) = (of(1)?, divisor(op));
            let from = of(0)?;
            let rest = divisor.and_then(|y| remainder(from, range(op.body, y, steps)?));
            rest.or_else(|| in_type(op, arithmetic(from, (most, least), i64::checked_sub)?))
        }
        op::core::MUL => {
            let (a, b) = (of(0)?, of(1)?);
            in_type(op, arithmetic(a, b, i64::checked_mul).filter(|_| is_natural_range(a) && is_natural_range(b))?)
        }
        _ => None,
    }
}

fn is_natural_range(range: Range) -> bool {
    range.0 >= 0
}

fn pairwise(a: Range, b: Range, f: impl Fn(i64, i64) -> i64) -> Range {
    (f(a.0, b.0), f(a.1, b.1))
}

fn arithmetic(a: Range, b: Range, f: impl Fn(i64, i64) -> Option<i64>) -> Option<Range> {
    Some((f(a.0, b.0)?, f(a.1, b.1)?))
}

/// Numbers that a type has, all of them.
fn fitting(range: Range, elem: Type) -> Option<Range> {
    let (least, most) = of_type(elem)?;
    (range.0 >= least && range.1 <= most).then_some(range)
}

/// A result that does not wrap around.
fn in_type(op: OpRef, range: Range) -> Option<Range> {
    fitting(range, op.result_types()[0].elem())
}

/// What divides x in x - x / y * y.
fn divisor(op: OpRef) -> Option<Value> {
    let made_by = |value: Value, name: &str| {
        let by = op.body.op_ref(op.body.defining_op(value)?);
        (by.name().as_str() == name).then(|| [by.operand(0), by.operand(1)])
    };
    let [quotient, y] = made_by(op.operand(1), op::core::MUL)?;
    let [x, by] = made_by(quotient, op::core::DIV)?;
    (x == op.operand(0) && by == y).then_some(y)
}

/// Rests of natural numbers.
fn remainder(a: Range, b: Range) -> Option<Range> {
    (is_natural_range(a) && b.0 > 0).then(|| (0, a.1.min(b.1 - 1)))
}

/// Quotients of natural numbers.
fn divided(a: Range, b: Range) -> Option<Range> {
    (is_natural_range(a) && b.0 > 0).then(|| (a.0 / b.1, a.1 / b.0))
}

fn reduced(op: OpRef, of: Range) -> Option<Range> {
    let shape = op.body.ty(op.operand(0)).shape();
    let sizes = op.ints("dims")?.into_iter().map(|d| shape[d as usize]);
    let count = sizes.fold(Dim::Static(1), |n, d| n * d).as_static()?;
    match op.str("kind")? {
        "add" => {
            let sum = |n: i64| n.checked_mul(count);
            in_type(op, (sum(of.0)?, sum(of.1)?))
        }
        "max" | "min" if count > 0 => Some(of),
        _ => None,
    }
}
