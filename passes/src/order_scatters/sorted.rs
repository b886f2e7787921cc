//! The updates of a scatter in the order of their indices.
//!
//! Sorted by index, the updates of a place lie together, in their order; so sums are formed in the same order at every run.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::sort::BELOW;
use rc_dialects::op;
use rc_ir::{Attr, Body, Builder, Dim, Op, Type, Value};

/// Batches, updates in each, places.
pub struct Sizes {
    b: Dim,
    k: i64,
    places: i64,
}

/// The sizes of a scatter whose updates can be sorted, where there are at least so many.
pub fn sizes(body: &Body, scatter: Op, least: i64) -> Option<Sizes> {
    let op = body.op_ref(scatter);
    if op.operands().len() != 3 {
        return None;
    }
    let (axis, batch) = (op.int("axis")? as usize, op.int("batch").unwrap_or(0) as usize);
    let (x, indices) = (body.ty(op.operand(0)).shape(), body.ty(op.operand(1)).shape());
    let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
    let (k, places) = (product(&indices[batch..]).as_static()?, x[axis].as_static()?);
    let fits = |n: i64| n < i64::from(i32::MAX);
    (k >= least && fits(k) && fits(places)).then(|| Sizes { b: product(&indices[..batch]), k, places })
}

pub fn sort(body: &mut Body, scatter: Op, sizes: Sizes) {
    let operands: Vec<Value> = body.operands(scatter).collect();
    let attrs = body.attrs(scatter);
    let ty = body.ty(body.result(scatter, 0));
    let mut b = Builder::before(body, scatter);
    let keys = b.reshape(operands[1], &[sizes.b, Dim::Static(sizes.k)]);
    let keys = b.convert(keys, Type::int(32));
    let types = [b.ty(keys), b.ty(keys).with_elem(Type::i64())];
    let sort = b
        .op(op::tensor::SORT)
        .operand(keys)
        .attr("dim", Attr::i64(1))
        .attr(BELOW.name, Attr::i64(sizes.places.max(1)))
        .results(&types)
        .build();
    let (sorted, order) = (b.body.result(sort, 0), b.body.result(sort, 1));
    let order = b.convert(order, Type::int(32));
    let starts = starts(&mut b, sorted, &sizes);
    let made = b.op(op::core::SCATTER).operand(operands[0]).operand(operands[1]).operand(operands[2]);
    let made = made.operand(order).operand(starts);
    let keep = ["axis", "kind", "batch"].into_iter().fold(made, |made, key| made.maybe_attr(key, attrs.get(key)));
    let result = keep.result(ty).value();
    body.replace_op(scatter, &[result]);
}

/// For each place, and one more, how many of the sorted indices are before it: by steps of powers of two.
fn starts(b: &mut Builder, sorted: Value, sizes: &Sizes) -> Value {
    let shape = [sizes.b, Dim::Static(sizes.places + 1)];
    let ty = Type::tensor(&shape, Type::int(32));
    let place = b.op(op::core::IOTA).attr("dim", Attr::i64(1)).result(ty).value();
    let all = b.splat(sizes.k as f64, ty);
    let mut found = b.splat(0.0, ty);
    let mut step = 1i64 << sizes.k.ilog2();
    while step > 0 {
        let more = b.binary_scalar("add", found, step as f64);
        let allowed = b.compare("le", more, all);
        let at = b.binary("min", more, all);
        let at = b.binary_scalar("sub", at, 1.0);
        let gather =
            b.op(op::core::GATHER).operands(&[sorted, at]).attr("axis", Attr::i64(1)).attr("batch", Attr::i64(1));
        let element = gather.value();
        let before = b.compare("lt", element, place);
        let up = b.binary("and", allowed, before);
        found = b.select(up, more, found);
        step /= 2;
    }
    found
}
