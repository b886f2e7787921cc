//! Sums and products of a few neighbours, as of coordinates: written out, they are arithmetic that fuses with whatever uses it, be its shape another one.

use super::classify::{Class, classify};
use super::recompute::is_long;
use crate::work::is_function;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_ir::{Block, Body, Builder, Dim, Op, Traits, Type, Value};
use rustc_hash::FxHashSet;

/// The most elements that are combined one by one, and the most operations that compute each.
const FEW: i64 = 4;
const LIGHT: usize = 8;

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

/// Whether another reduction of the same rows is computed from a result, as softmax does: one kernel has both then, row by row.
fn shares_rows(body: &Body, op: Op) -> bool {
    let shape = body.ty(body.operand(op, 0)).shape();
    let (mut waiting, mut seen) = (vec![op], FxHashSet::default());
    while let Some(next) = waiting.pop() {
        for (user, _) in body.results(next).flat_map(|v| body.uses(v)) {
            let class = classify(body.op_ref(user));
            if class == Class::Reduce && body.ty(body.operand(user, 0)).shape() == shape {
                return true;
            }
            if matches!(class, Class::Pointwise | Class::Reindex) && seen.insert(user) {
                waiting.push(user);
            }
        }
    }
    false
}
