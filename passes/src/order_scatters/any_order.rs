//! Scatters whose updates may be combined in any order, by atomic instructions of 32 and 64 bits.
//!
//! - Sums of narrower numbers are formed in 32 bits and rounded at the end.
//! - The greatest and the least float are those of integers in the same order.
//! - Of several elements for one place the last one stays: the greatest of the updates' numbers says which.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_ir::{Attr, Body, Builder, Dim, Op, Type, Value};

/// Rewrites a scatter of three operands; false where nothing combines its updates atomically.
pub fn rewrite(body: &mut Body, scatter: Op) -> bool {
    let elem = body.ty(body.result(scatter, 0)).elem();
    let kind = body.op_ref(scatter).str("kind").unwrap_or("set").to_string();
    let float = elem.float_kind().is_some();
    match kind.as_str() {
        "set" => last(body, scatter),
        "add" => widened(body, scatter, &|_, x, _| x, &|_, y| y),
        "max" | "min" if !float => widened(body, scatter, &|_, x, _| x, &|_, y| y),
        "max" | "min" if elem.byte_width().is_some_and(|bytes| bytes <= 4) => {
            widened(body, scatter, &|b, x, kind| ordered(b, x, kind), &|b, y| from_ordered(b, y));
        }
        _ => return false,
    }
    true
}

/// Rewrites a scatter that allows for any order, where atomic instructions do not combine its updates as they are; they keep their order where none does.
pub fn complete(body: &mut Body, scatter: Op) {
    let op = body.op_ref(scatter);
    let (kind, elem) = (op.str("kind").unwrap_or("set"), op.result_types()[0].elem());
    let atomic = kind == "add" || matches!(kind, "max" | "min") && !elem.is_float();
    let whole = op.operands().len() != 3 || atomic && wide(elem) == elem;
    if !whole && !rewrite(body, scatter) {
        body.set_attr(scatter, "any_order", Attr::bool(false));
    }
}

/// Numbers of at least 32 bits that hold sums and extremes of `elem`.
fn wide(elem: Type) -> Type {
    match elem.byte_width() {
        Some(4 | 8) => elem,
        _ if elem.is_float() => Type::f32(),
        _ => Type::int(32),
    }
}

/// The scatter in wide numbers, with x and the updates as `to` has them, and the result as `back` does.
fn widened(
    body: &mut Body,
    scatter: Op,
    to: &dyn Fn(&mut Builder, Value, &str) -> Value,
    back: &dyn Fn(&mut Builder, Value) -> Value,
) {
    let at = body.op_ref(scatter);
    let (kind, elem) = (at.str("kind").unwrap_or_default().to_string(), at.result_types()[0].elem());
    let operands: Vec<Value> = at.operands().collect();
    let attrs = body.attrs(scatter);
    let mut b = Builder::before(body, scatter);
    let x = b.convert(operands[0], wide(elem));
    let x = to(&mut b, x, &kind);
    // Narrow floats are widened as they are read, where nothing else is done to them.
    let mut updates = operands[2];
    if kind != "add" || !elem.is_float() {
        updates = b.convert(updates, wide(elem));
        updates = to(&mut b, updates, &kind);
    }
    let made = b.op(op::core::SCATTER).operand(x).operand(operands[1]).operand(updates);
    let made = made.attrs(attrs).attr("any_order", Attr::bool(true));
    let y = made.value();
    let y = back(&mut b, y);
    let y = b.convert(y, elem);
    body.replace_op(scatter, &[y]);
}

/// 32-bit integers in the order of floats; a NaN is beyond all on the side that wins.
fn ordered(b: &mut Builder, x: Value, kind: &str) -> Value {
    let ty = b.ty(x).with_elem(Type::int(32));
    let bits = b.op(op::core::BITCAST).operand(x).result(ty).value();
    let key = flipped(b, bits);
    let nan = b.compare("ne", x, x);
    let most = b.splat(f64::from(if kind == "max" { i32::MAX } else { i32::MIN }), ty);
    b.select(nan, most, key)
}

fn from_ordered(b: &mut Builder, key: Value) -> Value {
    let bits = flipped(b, key);
    let ty = b.ty(bits).with_elem(Type::f32());
    b.op(op::core::BITCAST).operand(bits).result(ty).value()
}

/// Negative numbers with all bits but the sign turned over: its own inverse.
fn flipped(b: &mut Builder, bits: Value) -> Value {
    let ty = b.ty(bits);
    let (zero, rest) = (b.splat(0.0, ty), b.splat(f64::from(i32::MAX), ty));
    let negative = b.compare("lt", bits, zero);
    let turned = b.binary("xor", bits, rest);
    b.select(negative, turned, bits)
}

/// The last update of each place, or what was there.
fn last(body: &mut Body, scatter: Op) {
    let at = body.op_ref(scatter);
    let (axis, batch) = (at.int("axis").unwrap_or(0) as usize, at.int("batch").unwrap_or(0) as usize);
    let operands: Vec<Value> = at.operands().collect();
    let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
    let (shape, of) = (body.ty(operands[0]).shape(), body.ty(operands[1]).shape());
    let (n, k, places) = (product(&of[..batch]), product(&of[batch..]), shape[axis]);
    let (middle, slice) = (product(&shape[batch..axis]), product(&shape[axis + 1..]));
    let narrow = k.as_static().is_some_and(|k| k < i64::from(i32::MAX));
    let int = Type::int(if narrow { 32 } else { 64 });
    let mut b = Builder::before(body, scatter);
    let indices = b.reshape(operands[1], &[n, k]);
    let numbers = b.op(op::core::IOTA).attr("dim", Attr::i64(1)).result(Type::tensor(&[n, k], int)).value();
    let none = b.splat(-1.0, Type::tensor(&[n, places], int));
    let owners = b.op(op::core::SCATTER).operand(none).operand(indices).operand(numbers).attr("kind", Attr::str("max"));
    let owners =
        owners.attr("axis", Attr::i64(1)).attr("batch", Attr::i64(1)).attr("any_order", Attr::bool(true)).value();
    let zero = b.splat(0.0, Type::tensor(&[n, places], int));
    let owned = b.compare("ge", owners, zero);
    let number = b.binary("max", owners, zero);
    let updates = b.reshape(operands[2], &[n, middle, k, slice]);
    let taken = b.op(op::core::GATHER).operand(updates).operand(number).attr("axis", Attr::i64(2));
    let taken = taken.attr("batch", Attr::i64(1)).value();
    let elem = b.ty(operands[0]).elem();
    let taken = b.convert(taken, elem);
    let x = b.reshape(operands[0], &[n, middle, places, slice]);
    let owned = b.broadcast(owned, &[n, middle, places, slice], &[0, 2]);
    let y = b.select(owned, taken, x);
    let y = b.reshape(y, &shape);
    body.replace_op(scatter, &[y]);
}
