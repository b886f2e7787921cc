//! Sums of rows in which at most one element is not zero: what a table of classes compared with a counter selects is read off.

use crate::fuse::{Class, classify};
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::reduce::REDUCE;
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Builder, Dim, Op, OpRef, Result, Type, Value};

/// At most so many operations on rows are repeated for one element of each.
const DEPTH: usize = 16;

/// The sum along a dimension of `select(counter == class, value, 0)`, where neither class nor value vary along it, becomes the value where the class is
/// one; whether it did.
pub fn read_off(body: &mut Body, op: Op) -> Result<bool> {
    let Some((dim, class, value)) = one_hot(body.op_ref(op)) else { return Ok(false) };
    let Some(count) = body.ty(body.operand(op, 0)).shape()[dim].as_static() else { return Ok(false) };
    let old = body.ty(body.result(op, 0));
    let mut b = Builder::before(body, op);
    let (Some(class), Some(value)) = (shrunk(&mut b, class, dim, DEPTH), shrunk(&mut b, value, dim, DEPTH)) else {
        return Ok(false);
    };
    let ty = b.ty(class);
    let (zero, end) = (b.splat(0.0, ty), b.splat(count as f64, ty));
    let (from, to) = (b.compare("ge", class, zero), b.compare("lt", class, end));
    let is_class = b.binary("and", from, to);
    let none = b.splat(0.0, old);
    let sum = b.select(is_class, value, none);
    body.replace_op(op, &[sum]);
    Ok(true)
}

/// Of a sum of rows with one element at most: the dimension, the number of that element, and the element.
fn one_hot(op: OpRef) -> Option<(usize, Value, Value)> {
    let sums = op.name() == &REDUCE && op.str("kind") == Some("add");
    let [dim] = op.ints("dims").filter(|_| sums)?[..] else { return None };
    let (body, dim) = (op.body, usize::try_from(dim).ok()?);
    let select = defined(body, op.operand(0), op::core::SELECT)?;
    let compare = defined(body, select.operand(0), op::core::COMPARE).filter(|c| c.str("kind") == Some("eq"))?;
    let zero = constant_of(body, select.operand(2)).and_then(|c| c.as_splat()) == Some(0.0);
    let (a, b) = (compare.operand(0), compare.operand(1));
    let class = if counts(body, a, dim) { b } else { a };
    let other = if class == b { a } else { b };
    let same = body.ty(select.result(0)).elem() == body.ty(op.result(0)).elem();
    (zero && same && counts(body, other, dim)).then_some((dim, class, select.operand(1)))
}

fn defined<'a>(body: &'a Body, value: Value, name: &str) -> Option<OpRef<'a>> {
    body.defining_op(value).map(|op| body.op_ref(op)).filter(|op| op.is(name))
}

/// Whether each element is its place along a dimension, as an integer that has room for all of them.
fn counts(body: &Body, value: Value, dim: usize) -> bool {
    let Some(op) = body.defining_op(value).map(|op| body.op_ref(op)) else { return false };
    let (ty, bits) = (body.ty(value), body.ty(value).elem().bit_width().unwrap_or(0));
    let last = ty.shape()[dim].as_static().unwrap_or(i64::MAX);
    if !ty.elem().is_int() || bits < 2 || last > i64::MAX >> (64 - bits.min(64)) {
        return false;
    }
    match op.name().as_str() {
        op::core::IOTA => op.int("dim") == Some(dim as i64),
        op::core::CONVERT => counts(body, op.operand(0), dim),
        op::core::BROADCAST => {
            let dims = op.ints("dims").unwrap_or_default();
            dims.iter().position(|&d| d == dim as i64).is_some_and(|d| counts(body, op.operand(0), d))
        }
        _ => false,
    }
}

/// A value without a dimension that it does not vary along; none where it may.
fn shrunk(b: &mut Builder, value: Value, dim: usize, depth: usize) -> Option<Value> {
    let ty = b.ty(value);
    let mut shape: Vec<Dim> = ty.shape().to_vec();
    shape.remove(dim);
    let small: Type = ty.with_shape(&shape);
    let body = &*b.body;
    if let Some(n) = constant_of(body, value).and_then(|c| c.as_splat()) {
        return Some(b.splat(n, small));
    }
    let op = body.defining_op(value).filter(|_| depth > 0)?;
    let at = body.op_ref(op);
    if at.is(op::core::BROADCAST) {
        let (from, dims) = (at.operand(0), at.ints("dims").unwrap_or_default());
        if dims.contains(&(dim as i64)) {
            return None;
        }
        let dims: Vec<i64> = dims.into_iter().map(|d| if d > dim as i64 { d - 1 } else { d }).collect();
        if body.ty(from) == small {
            return Some(from);
        }
        return b.op(op::core::BROADCAST).operand(from).attr("dims", Attr::i64s(&dims)).result(small).try_value().ok();
    }
    if classify(at) != Class::Pointwise || at.results().len() != 1 {
        return None;
    }
    let (name, attrs, operands) = (body.name(op), body.attrs(op), at.operands().collect::<Vec<_>>());
    let operands = operands.into_iter().map(|v| shrunk(b, v, dim, depth - 1)).collect::<Option<Vec<_>>>()?;
    b.op(name).operands(&operands).attrs(attrs).result(small).try_value().ok()
}
