//! The definition of `core.scatter` by reductions: every element looks for the updates that name it. No memory is written
//! twice, so the result does not depend on an order. The work is the number of elements times the number of updates of each slice.

use crate::builder::CoreBuilder;
use crate::constraints::default_acc;
use crate::interfaces::Combiner;
use rc_ir::{Attr, Builder, Dim, Op, Result, Type, Value};

/// A scatter with the indices' own dimensions as one: x [batch.., outer.., a, inner..], indices [batch.., k],
/// updates [batch.., outer.., k, inner..].
struct Scatter {
    x: Value,
    indices: Value,
    updates: Value,
    batch: usize,
    axis: usize,
}

pub fn define_scatter(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let scatter = Scatter::read(b, op);
    if b.ty(scatter.indices).shape().contains(&Dim::Static(0)) {
        return Ok(vec![scatter.x]);
    }
    let kind = b.body.op_ref(op).str("kind").unwrap_or("set").to_string();
    Ok(vec![match Combiner::from_kind(&kind) {
        Some(combiner) => scatter.combine(b, combiner),
        None => scatter.set(b),
    }])
}

impl Scatter {
    fn read(b: &mut Builder, op: Op) -> Scatter {
        let at = b.body.op_ref(op);
        let (x, indices, updates) = (at.operand(0), at.operand(1), at.operand(2));
        let number = |name| at.int(name).unwrap_or(0) as usize;
        let (batch, axis) = (number("batch"), number("axis"));
        let own = b.ty(indices).rank() - batch;
        let count = b.ty(indices).shape()[batch..].iter().fold(Dim::Static(1), |n, &d| n * d);
        let shape = [&b.ty(indices).shape()[..batch], &[count]].concat();
        let indices = b.reshape(indices, &shape);
        let full = b.ty(updates).shape();
        let updates = b.reshape(updates, &[&full[..axis], &[count], &full[axis + own..]].concat());
        Scatter { x, indices: b.convert(indices, Type::i64()), updates, batch, axis }
    }

    /// The shape `[batch.., outer.., a, k, inner..]`, and which dimension is k.
    fn space(&self, b: &Builder, outer: bool) -> (Vec<Dim>, usize) {
        let (x, k) = (b.ty(self.x).shape(), b.ty(self.indices).shape()[self.batch]);
        if outer {
            let shape = [&x[..=self.axis], &[k], &x[self.axis + 1..]].concat();
            return (shape, self.axis + 1);
        }
        ([&x[..self.batch], &[x[self.axis], k]].concat(), self.batch + 1)
    }

    /// Whether update k names row a, over `space`, where a is the dimension before `k`.
    fn hits(&self, b: &mut Builder, space: &[Dim], k: usize) -> Value {
        let kept: Vec<i64> = (0..self.batch).chain([k]).map(|d| d as i64).collect();
        let named = b.broadcast(self.indices, space, &kept);
        let rows = b.op("rc.core.iota").attr("dim", Attr::i64(k as i64 - 1)).result(Type::tensor(space, Type::i64())).value();
        b.compare("eq", named, rows)
    }

    fn combine(&self, b: &mut Builder, combiner: Combiner) -> Value {
        let elem = b.ty(self.x).elem();
        let acc = default_acc(elem);
        let (space, k) = self.space(b, true);
        let hits = self.hits(b, &space, k);
        let kept: Vec<i64> = (0..space.len()).filter(|&d| d + 1 != k).map(|d| d as i64).collect();
        let updates = b.convert(self.updates, acc);
        let updates = b.broadcast(updates, &space, &kept);
        let identity = combiner.identity(acc).expect("the kinds of scatter have one");
        let none = b.op("rc.core.constant").attr("value", identity).result(acc).value();
        let none = b.broadcast(none, &space, &[]);
        let chosen = b.select(hits, updates, none);
        let total = b.reduce(combiner.kind(), chosen, &[k as i64]);
        let x = b.convert(self.x, acc);
        let name = combiner.kind();
        let both = b.binary(name, x, total);
        b.convert(both, elem)
    }

    /// The last update that names a row stays.
    fn set(&self, b: &mut Builder) -> Value {
        let (space, k) = self.space(b, false);
        let hits = self.hits(b, &space, k);
        let wide = Type::tensor(&space, Type::i64());
        let numbers = b.op("rc.core.iota").attr("dim", Attr::i64(k as i64)).result(wide).value();
        let none = b.splat(-1.0, wide);
        let chosen = b.select(hits, numbers, none);
        let last = b.reduce("max", chosen, &[k as i64]);
        let first = b.binary_scalar("max", last, 0.0);
        let picked = b.op("rc.core.gather").operands(&[self.updates, first]);
        let picked = picked.attr("axis", Attr::i64(self.axis as i64)).attr("batch", Attr::i64(self.batch as i64)).value();
        let none = b.splat(-1.0, b.ty(last));
        let named = b.compare("ne", last, none);
        let shape = b.ty(self.x).shape();
        let kept: Vec<i64> = (0..self.batch).chain([self.axis]).map(|d| d as i64).collect();
        let named = b.broadcast(named, &shape, &kept);
        b.select(named, picked, self.x)
    }
}
