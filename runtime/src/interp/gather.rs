//! Elements chosen by index: gather and scatter.

use rc_dialects::interfaces::Combiner;
use rc_ir::{OpRef, Result};

use super::exec::Frame;
use super::reduce::{float_fn, int_fn};
use super::value::{Array, Value};

impl Frame<'_> {
    pub fn gather(&mut self, op: OpRef) -> Result<Value> {
        let table = self.array(op, 0)?;
        let indices = self.array(op, 1)?;
        let axis = op.int("axis").unwrap_or(0) as usize;
        let batch = op.int("batch").unwrap_or(0) as usize;
        let positions = places(op, &table.shape, &indices, axis)?;
        let shape = [&table.shape[..axis], &indices.shape[batch..], &table.shape[axis + 1..]].concat();
        Ok(Value::Array(table.pick(shape, &positions)))
    }

    pub fn scatter(&mut self, op: OpRef) -> Result<Value> {
        let (x, updates) = (self.array(op, 0)?, self.array(op, 2)?);
        let indices = self.array(op, 1)?;
        let axis = op.int("axis").unwrap_or(0) as usize;
        let targets = places(op, &x.shape, &indices, axis)?;
        if targets.len() != updates.len() {
            return Err(op.error(format!("has {} updates for {} places", updates.len(), targets.len())));
        }
        let format = self.format(op, op.body.ty(op.result(0)))?;
        let kind = op.str("kind").unwrap_or("set");
        let combiner = Combiner::from_kind(kind);
        let no = || op.unsupported(format!("with the kind '{kind}' on {}", format.ty));
        let shape = x.shape.clone();
        Ok(Value::Array(if x.is_float() {
            let f = match combiner {
                None => |_, new| new,
                Some(c) => float_fn(c).ok_or_else(no)?,
            };
            // Sums are rounded once, at the end: `add` and `mul` may be reassociated.
            let values = merged(x.as_floats().into_owned(), &targets, &updates.as_floats(), f);
            Array::floats(shape, values.into_iter().map(|v| format.round(v)).collect())
        } else {
            let (into, from) = (x.as_ints().into_owned(), updates.as_ints());
            Array::ints(
                shape,
                match combiner {
                    None => merged(into, &targets, &from, |_, new| new),
                    Some(c) => merged(into, &targets, &from, int_fn(c, format).ok_or_else(no)?),
                },
            )
        }))
    }
}

fn merged<T: Copy>(mut into: Vec<T>, targets: &[usize], from: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
    targets.iter().zip(from).for_each(|(&t, &v)| into[t] = f(into[t], v));
    into
}

/// The row-major positions in an array of `shape` that the indices name along `axis`.
fn places(op: OpRef, shape: &[usize], indices: &Array, axis: usize) -> Result<Vec<usize>> {
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let size = shape[axis];
    // Each slice along the batch dimensions has indices of its own, which the rows in it share.
    let batch = op.int("batch").unwrap_or(0) as usize;
    let own: usize = indices.shape[batch..].iter().product();
    let rows: usize = shape[batch..axis].iter().product();
    let indices = indices.as_ints();
    if let Some(at) = indices.iter().position(|&i| !(0..size as i64).contains(&i)) {
        let what = format!("index {} (number {at}) is outside of dimension {axis}, which has {size}", indices[at]);
        return Err(op.error(what));
    }
    let row = |o: usize| {
        indices[o / rows * own..][..own].iter().flat_map(move |&i| {
            let start = (o * size + i as usize) * inner;
            start..start + inner
        })
    };
    Ok((0..outer).flat_map(row).collect())
}
