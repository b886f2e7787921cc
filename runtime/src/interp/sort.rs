//! Rows in order: `core.sort` and `loop.sort`; tiles too.

use std::cmp::Ordering;

use rc_ir::{OpRef, Result};

use super::exec::Frame;
use super::value::{Array, Format, Value};

impl Frame<'_> {
    pub fn sort(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let x = self.array(op, 0)?;
        let n = x.shape.last().copied().unwrap_or(1);
        let count = op.int("count").map_or(n, |count| count as usize);
        if count > n {
            return Err(op.error(format!("takes {count} elements of rows of {n}")));
        }
        let format = self.format(op, op.body.ty(op.operand(0)))?;
        let order = orders(&x, n, count, format, op.bool("descending"));
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = count;
        }
        let places = match op.operands().len() {
            1 => Array::ints(shape.clone(), order.iter().map(|&at| (at % n.max(1)) as i64).collect()),
            _ => self.array(op, 1)?.pick(shape.clone(), &order),
        };
        Ok(vec![Value::Array(x.pick(shape, &order)), Value::Array(places)])
    }
}

/// For each row of `n` elements the positions, in the whole array, of the `count` that come first, in order.
pub(crate) fn orders(x: &Array, n: usize, count: usize, format: Format, descending: bool) -> Vec<usize> {
    let by = |ascending: Ordering| if descending { ascending.reverse() } else { ascending };
    let compare: Box<dyn Fn(usize, usize) -> Ordering> = if x.is_float() {
        let values = x.as_floats().into_owned();
        Box::new(move |a, b| by(numbers_first(values[a], values[b])))
    } else {
        let values = x.as_ints().into_owned();
        Box::new(move |a, b| by(format.wide(values[a]).cmp(&format.wide(values[b]))))
    };
    let mut out = Vec::with_capacity(x.len() / n.max(1) * count);
    for row in 0..x.len() / n.max(1) {
        let mut order: Vec<usize> = (row * n..(row + 1) * n).collect();
        order.sort_by(|&a, &b| compare(a, b));
        out.extend_from_slice(&order[..count]);
    }
    out
}

/// The order of floats in which a NaN is the greatest, whatever its sign.
fn numbers_first(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
