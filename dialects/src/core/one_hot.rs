//! Rows of which one element counts: the gradient of an element that was picked from each.
//!
//! ```text
//! y = scatter(0, i, u)      y = select(iota == i, u, 0)
//! s = sum(y * t)            s = u * t                       where t is the same along the row
//! ```

use crate::builder::CoreBuilder;
use crate::op;
use rc_ir::rewrite::Rewriter;
use rc_ir::{Attr, Body, Builder, Dim, Op, Result, Type, Value};

/// One update, in each batch, of what is the same number everywhere: each place asks whether it is the one that the index names, and nothing is
/// stored for that. So the gradient of one element of each row is no matrix of zeros.
pub fn choose_the_one(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (Some(axis), batch) = (at.int("axis"), at.int("batch").unwrap_or(0) as usize) else { return Ok(false) };
    let [x, indices, updates] = at.operands().collect::<Vec<_>>()[..] else { return Ok(false) };
    let name = match at.str("kind") {
        Some("add") => Some("add"),
        Some("set") => None,
        _ => return Ok(false),
    };
    let constant = rw.body.defining_op(x).and_then(|d| rw.body.attr(d, "value")?.as_splat());
    let (ty, of) = (rw.body.ty(x), rw.body.ty(indices).shape());
    if constant.is_none() || of[batch..].iter().any(|&n| n != Dim::Static(1)) {
        return Ok(false);
    }
    let (axis, shape) = (axis as usize, ty.shape());
    let around: Vec<i64> = (0..shape.len() as i64).filter(|&d| d != axis as i64).collect();
    let narrow = shape[axis].as_static().is_some_and(|n| n < i64::from(i32::MAX));
    let number = if narrow { Type::int(32) } else { Type::i64() };
    let mut b = rw.before(op);
    let wanted = b.reshape(indices, &shape[..batch]);
    let wanted = b.convert(wanted, number);
    let wanted = b.broadcast(wanted, &shape, &around[..batch]);
    let place = b.op(op::core::IOTA).attr("dim", Attr::i64(axis as i64)).result(ty.with_elem(number)).value();
    let here = b.compare("eq", place, wanted);
    let own: Vec<Dim> = around.iter().map(|&d| shape[d as usize]).collect();
    let update = b.reshape(updates, &own);
    let update = b.convert(update, ty.elem());
    let mut update = b.broadcast(update, &shape, &around);
    if let Some(name) = name {
        update = b.binary(name, x, update);
    }
    let chosen = b.select(here, update, x);
    rw.replace(op, &[chosen]);
    Ok(true)
}

/// The sum of rows in which one element is not zero, times numbers that are the same along the row: that element's product. The zeros' products
/// are added as one, for they are no zeros where a factor is not finite.
pub fn sum_the_one(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (Some(&[dim]), Some("add")) = (at.ints("dims").as_deref(), at.str("kind")) else { return Ok(false) };
    let (x, result) = (at.operand(0), at.result_types()[0]);
    let (dim, ty) = (dim as usize, rw.body.ty(x));
    let plain = ty.is_tensor() && ty.elem().is_float() && result.shape().iter().all(|n| n.is_static());
    let Some(row) = Row::of(rw.body, x, dim).filter(|_| plain) else {
        return Ok(false);
    };
    let mut b = rw.before(op);
    let zero = b.splat(0.0, result);
    let place = row.without_dim(&mut b, row.place, result);
    let (first, end) = (b.splat(0.0, b.ty(place)), b.size(ty.shape()[dim], b.ty(place).elem(), &result.shape()));
    let (natural, below) = (b.compare("ge", place, first), b.compare("lt", place, end));
    let inside = b.binary("and", natural, below);
    let element = row.without_dim(&mut b, row.element, result);
    let chosen = b.select(inside, element, zero);
    let [one, others] = [chosen, zero].map(|leaf| row.product(&mut b, x, leaf, result));
    let sum = b.binary("add", one, others);
    rw.replace(op, &[sum]);
    Ok(true)
}

/// A product along whose dimension `dim` one factor is zero but for one element, and the others are the same.
struct Row {
    dim: usize,
    /// The factor with one element, where that is and what it is: the same along the dimension.
    hot: Value,
    place: Value,
    element: Value,
}

impl Row {
    fn of(body: &Body, x: Value, dim: usize) -> Option<Row> {
        let mut hot = None;
        let mut left = vec![x];
        while let Some(value) = left.pop() {
            let op = body.op_ref(body.defining_op(value)?);
            if op.is(op::core::MUL) {
                left.extend(op.operands());
            } else if is_same_along(body, value, dim) {
                continue;
            } else if hot.is_none() {
                hot = Some(value);
            } else {
                return None;
            }
        }
        let hot = hot?;
        let select = body.op_ref(body.defining_op(hot).filter(|&op| body.name(op) == op::core::SELECT)?);
        let [condition, element, rest] = select.operands().collect::<Vec<_>>()[..] else { return None };
        let compare = body.op_ref(body.defining_op(condition).filter(|&op| body.name(op) == op::core::COMPARE)?);
        let counts = |v: Value| {
            let op = body.defining_op(v).map(|op| body.op_ref(op)).filter(|op| op.is(op::core::IOTA));
            op.is_some_and(|op| op.int("dim") == Some(dim as i64))
        };
        let (a, b) = (compare.operand(0), compare.operand(1));
        let place = if counts(a) { b } else { a };
        let zero = rc_ir::op_def::constant_of(body, rest).and_then(|value| value.as_splat()) == Some(0.0);
        let fits = compare.str("kind") == Some("eq") && (counts(a) || counts(b)) && zero;
        (fits && is_same_along(body, place, dim) && is_same_along(body, element, dim)).then_some(Row {
            dim,
            hot,
            place,
            element,
        })
    }

    /// The product without the dimension, with `leaf` for the factor of one element.
    fn product(&self, b: &mut Builder, x: Value, leaf: Value, result: Type) -> Value {
        if x == self.hot {
            return leaf;
        }
        match b.body.defining_op(x).filter(|&op| b.body.name(op) == op::core::MUL) {
            Some(op) => {
                let [l, r] = [0, 1].map(|i| b.body.operand(op, i));
                let (l, r) = (self.product(b, l, leaf, result), self.product(b, r, leaf, result));
                b.binary("mul", l, r)
            }
            None => self.without_dim(b, x, result),
        }
    }
    /// What is the same along the dimension, once, in the shape of `result`.
    fn without_dim(&self, b: &mut Builder, x: Value, result: Type) -> Value {
        let op = b.body.defining_op(x).expect("asked before");
        if let Some(number) = b.body.attr(op, "value").and_then(|value| value.as_splat()) {
            return b.splat(number, result.with_elem(b.ty(x).elem()));
        }
        let (from, dims) = (b.body.operand(op, 0), b.body.op_ref(op).ints("dims").unwrap_or_default());
        let shape = b.ty(from).shape();
        let kept: Vec<usize> = (0..dims.len()).filter(|&i| dims[i] != self.dim as i64).collect();
        let sizes: Vec<Dim> = kept.iter().map(|&i| shape[i]).collect();
        let from = if kept.len() < dims.len() { b.reshape(from, &sizes) } else { from };
        let dims: Vec<i64> = kept.iter().map(|&i| dims[i] - i64::from(dims[i] > self.dim as i64)).collect();
        b.broadcast(from, &result.shape(), &dims)
    }
}

/// Whether a value is a constant, or repeated along a dimension.
fn is_same_along(body: &Body, value: Value, dim: usize) -> bool {
    let Some(op) = body.defining_op(value).map(|op| body.op_ref(op)) else { return false };
    if op.is(op::core::CONSTANT) {
        return op.attr("value").is_some_and(|value| value.as_splat().is_some());
    }
    let along = || {
        let dims = op.ints("dims").unwrap_or_default();
        dims.iter().position(|&d| d == dim as i64).map(|i| body.ty(op.operand(0)).shape()[i])
    };
    op.is(op::core::BROADCAST) && along().is_none_or(|n| n == Dim::Static(1))
}
