//! Attention of three or four dimensions, whatever the number of its batch dimensions: those above the heads are one.

use crate::builder::CoreBuilder;
use rc_ir::rewrite::Rewriter;
use rc_ir::{Builder, Dim, Op, Result, Type, Value};

/// For `core.attention` and its gradients. Numbers of keys, which no result depends on, are left out.
pub fn join_batches(op: Op, rw: &mut Rewriter) -> Result<bool> {
    let at = rw.body.op_ref(op);
    let (def, attrs, types) = (rw.body.name(op), rw.body.attrs(op), at.result_types().to_vec());
    let masks = at.group("mask").to_vec();
    let operands: Vec<Value> = at.operands().collect();
    let q = rw.body.ty(operands[0]);
    if matches!(q.rank(), 3 | 4) {
        return Ok(false);
    }
    let lead = q.shape()[..q.rank().saturating_sub(3)].to_vec();
    let mut b = rw.before(op);
    let straight = &operands[..operands.len() - masks.len()];
    let mut joined: Vec<Value> = straight.iter().map(|&x| join(&mut b, x, lead.len())).collect();
    if let Some(&mask) = masks.first() {
        let mask = repeat(&mut b, mask, &lead);
        joined.push(join(&mut b, mask, lead.len()));
    }
    let results: Vec<Type> = types.iter().map(|ty| ty.with_shape(&joined_shape(&ty.shape(), lead.len()))).collect();
    let new = b.op(def).operands(&joined).attrs(attrs).results(&results).build();
    let apart: Vec<Value> =
        types.iter().enumerate().map(|(i, ty)| b.reshape(b.body.result(new, i), &ty.shape())).collect();
    rw.replace(op, &apart);
    Ok(true)
}

fn join(b: &mut Builder, x: Value, lead: usize) -> Value {
    let shape = joined_shape(&b.ty(x).shape(), lead);
    b.reshape(x, &shape)
}

/// A dimension for the first `lead` ones; for none, one of size 1.
fn joined_shape(shape: &[Dim], lead: usize) -> Vec<Dim> {
    let one = shape[..lead].iter().fold(Dim::Static(1), |product, &n| product * n);
    [&[one], &shape[lead..]].concat()
}

/// A mask that has all of the batch dimensions, if it has one of them.
fn repeat(b: &mut Builder, mask: Value, lead: &[Dim]) -> Value {
    let shape = b.ty(mask).shape();
    if shape[..lead.len()].iter().all(|&n| n == Dim::Static(1)) {
        return mask;
    }
    b.broadcast_to(mask, &[lead, &shape[lead.len()..]].concat())
}
