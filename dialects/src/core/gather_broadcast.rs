//! Gathers of what repeats along the gathered dimension, and of its counters: no element is looked up.
//!
//! ```text
//! gather(broadcast(x), i)          broadcast(x)
//! gather(broadcast(iota), i)       broadcast(i)
//! ```

use crate::builder::CoreBuilder;
use crate::op;
use rc_ir::rewrite::Rewriter;
use rc_ir::{Body, Dim, Op, Result, Value};

/// A gather along a dimension of its table.
struct Gathered {
    table: Value,
    indices: Value,
    axis: usize,
    batch: usize,
    /// How many dimensions the indices put in the axis' place.
    places: usize,
    shape: Vec<Dim>,
}

impl Gathered {
    fn of(body: &Body, op: Op) -> Option<Gathered> {
        let at = body.op_ref(op);
        let (axis, batch) = (at.int("axis")? as usize, at.int("batch").unwrap_or(0) as usize);
        let (table, indices) = (at.operand(0), at.operand(1));
        let places = body.ty(indices).rank() - batch;
        Some(Gathered { table, indices, axis, batch, places, shape: at.result_types()[0].shape().to_vec() })
    }
    /// Where the result has a dimension of the table other than the axis.
    fn place(&self, dim: i64) -> i64 {
        if dim as usize > self.axis { dim - 1 + self.places as i64 } else { dim }
    }
    /// The result's dimensions that the indices have.
    fn index_dims(&self) -> Vec<i64> {
        (0..self.batch).chain(self.axis..self.axis + self.places).map(|d| d as i64).collect()
    }
}

/// What a gathered dimension repeats is the same wherever indices point.
pub fn of_repeated(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let Some(gather) = Gathered::of(rw.body, op) else { return Ok(false) };
    let Some((x, dims)) = broadcast(rw.body, gather.table) else { return Ok(false) };
    let shape = rw.body.ty(x).shape().to_vec();
    let along = dims.iter().position(|&d| d as usize == gather.axis);
    if along.is_some_and(|j| shape[j] != Dim::Static(1)) {
        return Ok(false);
    }
    let kept: Vec<usize> = (0..dims.len()).filter(|&j| Some(j) != along).collect();
    let sizes: Vec<Dim> = kept.iter().map(|&j| shape[j]).collect();
    let to: Vec<i64> = kept.iter().map(|&j| gather.place(dims[j])).collect();
    let mut b = rw.before(op);
    let x = if kept.len() < dims.len() { b.reshape(x, &sizes) } else { x };
    let value = b.broadcast(x, &gather.shape, &to);
    rw.replace(op, &[value]);
    Ok(true)
}

/// The counters of a gathered dimension are the indices themselves.
pub fn of_counters(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let Some(gather) = Gathered::of(rw.body, op) else { return Ok(false) };
    let table = broadcast(rw.body, gather.table);
    let (source, axis) = match &table {
        Some((x, dims)) => (*x, dims.iter().position(|&d| d as usize == gather.axis)),
        None => (gather.table, Some(gather.axis)),
    };
    let iota = rw.body.defining_op(source).map(|def| rw.body.op_ref(def)).filter(|def| def.is(op::core::IOTA));
    let counts = iota.and_then(|iota| iota.int("dim")).is_some_and(|dim| axis == Some(dim as usize));
    if !counts || table.is_some() && rw.body.ty(source).shape()[axis.unwrap_or(0)] == Dim::Static(1) {
        return Ok(false);
    }
    let elem = rw.body.ty(gather.table).elem();
    let mut b = rw.before(op);
    let indices = b.convert(gather.indices, elem);
    let value = b.broadcast(indices, &gather.shape, &gather.index_dims());
    rw.replace(op, &[value]);
    Ok(true)
}

/// What a value repeats, and in which dimensions it lies.
fn broadcast(body: &Body, value: Value) -> Option<(Value, Vec<i64>)> {
    let def = body.defining_op(value).map(|def| body.op_ref(def)).filter(|def| def.is(op::core::BROADCAST))?;
    Some((def.operand(0), def.ints("dims")?))
}
