//! Sums and products of a few neighbours, as of coordinates, and products of many small matrices: written out, they are arithmetic that fuses with whatever
//! uses it, be its shape another one.

use super::classify::{Class, classify};
use super::recompute::is_long;
use crate::work::is_function;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::interfaces::{Contraction, ContractionRoles};
use rc_dialects::op;
use rc_ir::{Block, Body, Builder, Dim, Op, Traits, Type, Value};
use rustc_hash::FxHashSet;

/// The most elements that are combined one by one, and the most operations that compute each.
const FEW: i64 = 4;
const LIGHT: usize = 8;

/// The most rows, columns and sums' elements of a small matrix, and the fewest matrices: tiles of matrix units or threads would be padded, a program for each.
const SIDE: i64 = 8;
const MATRICES: i64 = 256;

/// Writes out the products of many small matrices.
pub fn write_out_products(body: &mut Body, block: Block) {
    let dots: Vec<Op> = body.ops(block).filter(|&op| body.op_ref(op).is(op::core::DOT)).collect();
    for op in dots {
        let roles = body.op_ref(op).def().and_then(|def| (def.interface::<Contraction>()?.0)(body.op_ref(op)));
        let Some(roles) = roles.filter(|roles| is_small(body, op, roles)) else { continue };
        let (batch, left, outs) = (roles.lhs_batch.len(), roles.lhs_free.len(), body.ty(body.result(op, 0)).rank());
        let of_left: Vec<i64> = (0..batch + left).map(|d| d as i64).collect();
        let of_right: Vec<i64> = (0..batch).chain(batch + left..outs).map(|d| d as i64).collect();
        let count = length(body, op, 0, &roles.lhs_contract).expect("a small product has fixed sizes");
        let (operands, result) = ([body.operand(op, 0), body.operand(op, 1)], body.ty(body.result(op, 0)));
        let mut b = Builder::before(body, op);
        let mut sum = None;
        for n in 0..count {
            let left = element(&mut b, operands[0], [&roles.lhs_batch, &roles.lhs_free], roles.lhs_contract[0], n);
            let right = element(&mut b, operands[1], [&roles.rhs_batch, &roles.rhs_free], roles.rhs_contract[0], n);
            let [left, right] = [(left, &of_left), (right, &of_right)].map(|(x, dims)| {
                let x = b.convert(x, roles.acc);
                b.broadcast(x, &result.shape(), dims)
            });
            let product = b.binary("mul", left, right);
            sum = Some(sum.map_or(product, |sum| b.binary("add", sum, product)));
        }
        let sum = b.convert(sum.expect("a small product has elements"), result.elem());
        body.replace_op(op, &[sum]);
    }
}

/// Whether it multiplies many matrices of few rows, columns and elements of the sums, along one dimension each.
fn is_small(body: &Body, op: Op, roles: &ContractionRoles) -> bool {
    let lengths = [(0, &roles.lhs_contract), (0, &roles.lhs_free), (1, &roles.rhs_free)];
    let sides = lengths.map(|(operand, dims)| length(body, op, operand, dims));
    let many = length(body, op, 0, &roles.lhs_batch).is_some_and(|n| n >= MATRICES);
    roles.lhs_contract.len() == 1
        && roles.acc.is_float()
        && many
        && sides.iter().all(|n| n.is_some_and(|n| (1..=SIDE).contains(&n)))
}

/// The number of elements along dimensions of an operand, if it is fixed.
fn length(body: &Body, op: Op, operand: usize, dims: &[usize]) -> Option<i64> {
    let shape = body.ty(body.operand(op, operand)).shape();
    dims.iter().map(|&d| shape[d].as_static()).product()
}

/// Element `n` along `dim` of an operand, for each of its batch and free dimensions, in this order.
fn element(b: &mut Builder, x: Value, [batch, free]: [&[usize]; 2], dim: usize, n: i64) -> Value {
    let mut sizes = b.ty(x).shape().to_vec();
    let kept: Vec<usize> = (0..sizes.len()).filter(|&d| d != dim).collect();
    let order = batch.iter().chain(free).map(|d| kept.iter().position(|k| k == d).expect("all others are kept") as i64);
    let (mut starts, order): (Vec<Dim>, Vec<i64>) = (vec![Dim::Static(0); sizes.len()], order.collect());
    (starts[dim], sizes[dim]) = (Dim::Static(n), Dim::Static(1));
    let part = b.slice(x, &starts, &sizes);
    let shape: Vec<Dim> = kept.iter().map(|&d| sizes[d]).collect();
    let part = b.reshape(part, &shape);
    b.permute(part, &order)
}

/// Writes out the reductions of a block that combine few elements each, which little arithmetic makes.
pub fn write_out(body: &mut Body, block: Block) {
    let ops: Vec<Op> = body.ops(block).filter(|&op| body.op_ref(op).is(op::core::REDUCE)).collect();
    for op in ops {
        let Some((dim, count)) = few(body, op).filter(|_| !shares_rows(body, op)) else { continue };
        let (x, result, kind) = (body.operand(op, 0), body.ty(body.result(op, 0)), body.op_ref(op).str("kind"));
        let name = kind.expect("a reduction has a kind").to_string();
        let mut sizes = body.ty(x).shape().to_vec();
        sizes[dim] = Dim::Static(1);
        let mut b = Builder::before(body, op);
        let elements: Vec<Value> = (0..count)
            .map(|n| {
                let mut starts = vec![Dim::Static(0); sizes.len()];
                starts[dim] = Dim::Static(n);
                let element = b.slice(x, &starts, &sizes);
                b.reshape(element, &result.shape())
            })
            .collect();
        let all = elements.into_iter().reduce(|a, x| b.binary(&name, a, x)).expect("there are elements");
        body.replace_op(op, &[all]);
    }
}

/// The dimension that a reduction of few elements goes along, and how many they are.
fn few(body: &Body, op: Op) -> Option<(usize, i64)> {
    let (at, x) = (body.op_ref(op), body.operand(op, 0));
    let &[dim] = at.ints("dims")?.as_slice() else { return None };
    let count = body.ty(x).shape()[dim as usize].as_static()?;
    let plain = ["add", "mul", "max", "min"].contains(&at.str("kind")?)
        && at.result_types()[0].elem() == body.ty(x).elem()
        && (body.ty(x).elem() == Type::f32() || body.ty(x).elem() == Type::f64());
    let light = || !is_long(body, op, LIGHT) && !takes_much(body, x);
    ((2..=FEW).contains(&count) && plain && light()).then_some((dim as usize, count))
}

/// Whether elementary functions, products or windows, which have schedules of their own, are among what makes a value, element by element.
fn takes_much(body: &Body, value: Value) -> bool {
    let (mut waiting, mut seen) = (vec![value], FxHashSet::default());
    while let Some(value) = waiting.pop() {
        let Some(op) = body.defining_op(value).filter(|&op| seen.insert(op)) else { continue };
        let (at, class) = (body.op_ref(op), classify(body.op_ref(op)));
        if class == Class::Contract || is_function(at) || at.is(op::core::WINDOW) {
            return true;
        }
        if class == Class::Reindex || at.has(Traits::ELEMENTWISE) {
            waiting.extend(at.operands());
        }
    }
    false
}

/// Whether another reduction of the same rows is computed from a result, as softmax does: one kernel has both then, row by row. So do several of the same elements
/// over other dimensions, as gradients are: each would compute the arithmetic again.
fn shares_rows(body: &Body, op: Op) -> bool {
    let (shape, dims) = (body.ty(body.operand(op, 0)).shape(), body.op_ref(op).ints("dims"));
    let (mut waiting, mut seen, mut others) = (vec![op], FxHashSet::default(), 0);
    while let Some(next) = waiting.pop() {
        for (user, _) in body.results(next).flat_map(|v| body.uses(v)) {
            let class = classify(body.op_ref(user));
            if class == Class::Reduce && body.ty(body.operand(user, 0)).shape() == shape && seen.insert(user) {
                others += 1;
                if others > 1 || body.op_ref(user).ints("dims") == dims {
                    return true;
                }
            }
            if matches!(class, Class::Pointwise | Class::Reindex) && seen.insert(user) {
                waiting.push(user);
            }
        }
    }
    false
}
