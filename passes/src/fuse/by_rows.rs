//! Reductions over more than the rows that their operand is computed from, as of a loss over all samples: first of each row, then of the rows' results. The
//! first goes with the other reductions of its rows, which are read once then.

use super::ops::{Ops, Row, row_of};
use rc_dialects::builder::CoreBuilder;
use rc_dialects::interfaces::ReductionInfo;
use rc_dialects::op;
use rc_ir::{Block, Body, Builder, Dim, Op, Traits, Value};
use rustc_hash::FxHashSet;

/// Reduces rows first, where what is reduced reads a reduction of these.
pub fn reduce_by_rows(body: &mut Body, block: Block) {
    let facts = Ops::of(body, block);
    let reduces = body.ops(block).filter(|&op| body.name(op) == op::core::REDUCE);
    // All are found before the first is replaced: others are computed from it.
    let found: Vec<_> = reduces.filter_map(|op| Some((op, inner_row(body, &facts, op)?))).collect();
    for (reduce, inner) in found {
        split(body, reduce, &inner);
    }
}

/// Of the dimensions that an operation reduces, those that its operand reads a reduction along; none where that is none or all of them.
fn inner_row(body: &Body, facts: &Ops, reduce: Op) -> Option<Vec<usize>> {
    let (shape, dims) = row_of(body, reduce).filter(|row| row.1.len() > 1)?;
    ReductionInfo::of(body.op_ref(reduce))?.combiner.core_op()?;
    let (mut stack, mut seen) = (vec![body.operand(reduce, 0)], FxHashSet::default());
    while let Some(value) = stack.pop() {
        let Some(op) = body.defining_op(value).filter(|&op| seen.insert(op)) else { continue };
        if let Some((from, inner)) = repeated_row(body, facts, op)
            && from == shape
            && inner.len() < dims.len()
            && inner.iter().all(|d| dims.contains(d))
        {
            return Some(inner);
        }
        let elementwise = body.op_ref(op).has(Traits::ELEMENTWISE) && body.ty(value).shape().as_slice() == shape;
        stack.extend(body.operands(op).filter(|_| elementwise));
    }
    None
}

/// The rows, where the operation repeats one number for each of them, which is computed from a reduction of these.
fn repeated_row(body: &Body, facts: &Ops, op: Op) -> Option<Row> {
    let dims = body.op_ref(op).ints("dims").filter(|_| body.name(op) == op::core::BROADCAST)?;
    let source = body.operand(op, 0);
    let sizes = body.ty(source).shape();
    let mut from = body.defining_op(source)?;
    while body.name(from) == op::core::RESHAPE {
        from = body.defining_op(body.operand(from, 0))?;
    }
    let row = if body.name(from) == op::core::REDUCE { row_of(body, from) } else { facts.finished_row(body, from) }?;
    let many = |&(_, &size): &(&i64, &Dim)| size != Dim::Static(1);
    let along: Vec<usize> = dims.iter().zip(sizes.iter()).filter(many).map(|(&d, _)| d as usize).collect();
    let kept = |d: &usize| !row.1.contains(d) && row.0[*d] != Dim::Static(1);
    let rows: Vec<usize> = (0..row.0.len()).filter(kept).collect();
    (along == rows).then_some(row)
}

/// A reduction as one of rows along `inner`, and one of their results. Sums stay in the type of accumulation between the two.
fn split(body: &mut Body, reduce: Op, inner: &[usize]) {
    let info = ReductionInfo::of(body.op_ref(reduce)).expect("it was asked before");
    let (x, ty) = (body.operand(reduce, 0), body.ty(body.result(reduce, 0)));
    let kind = info.combiner.kind();
    let rest = info.dims.iter().filter(|d| !inner.contains(d));
    let before = |d: usize| inner.iter().filter(|&&i| i < d).count();
    let outer: Vec<i64> = rest.map(|&d| (d - before(d)) as i64).collect();
    let inner: Vec<i64> = inner.iter().map(|&d| d as i64).collect();
    let mut b = Builder::before(body, reduce);
    let x = b.convert(x, info.acc);
    let rows = b.reduce(kind, x, &inner);
    let all = b.reduce(kind, rows, &outer);
    let result: Value = b.convert(all, ty.elem());
    body.replace_op(reduce, &[result]);
}
