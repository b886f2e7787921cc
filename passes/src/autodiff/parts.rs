//! Sums of gradients of a tensor's parts.

use rc_dialects::core::slice::{CONCAT, PAD};
use rc_ir::{Attr, Body, Builder, Dim, Value};

/// A gradient that is zero but for a part.
struct Part {
    value: Value,
    zero: Value,
    low: Vec<Dim>,
    high: Vec<Dim>,
}

impl Part {
    fn of(body: &Body, gradient: Value) -> Option<Part> {
        let at = body.op_ref(body.defining_op(gradient).filter(|&op| body.name(op) == &PAD)?);
        let (value, zero) = (at.operand(0), at.operand(1));
        let fill = body.attr(body.defining_op(zero)?, "value")?;
        let side = |name: &str| Some(at.attr(name)?.as_shape()?.to_vec());
        (fill.as_float() == Some(0.0)).then_some(Part { value, zero, low: side("low")?, high: side("high")? })
    }
    fn is_inside(&self, dim: usize) -> bool {
        [&self.low, &self.high].iter().any(|side| side[dim] != Dim::Static(0))
    }
}

/// The sum of the gradients of two parts that follow one another along one dimension: these, joined.
pub fn joined(b: &mut Builder, x: Value, y: Value) -> Option<Value> {
    let (x, y) = (Part::of(b.body, x)?, Part::of(b.body, y)?);
    let mut dims = (0..x.low.len()).filter(|&d| x.is_inside(d) || y.is_inside(d));
    let (dim, None) = (dims.next()?, dims.next()) else { return None };
    let end = |b: &Builder, part: &Part| part.low[dim] + b.ty(part.value).shape()[dim];
    let (first, second) = if end(b, &x) == y.low[dim] { (x, y) } else { (y, x) };
    if end(b, &first) != second.low[dim] {
        return None;
    }
    let pieces = [pieces_of(b.body, first.value, dim), pieces_of(b.body, second.value, dim)].concat();
    let whole = b.op(&CONCAT).operands(&pieces).attr("dim", Attr::i64(dim as i64)).value();
    let sides = [first.low, second.high];
    if sides.iter().all(|side| side[dim] == Dim::Static(0)) {
        return Some(whole);
    }
    let [low, high] = sides.map(|side| Attr::shape(&side));
    Some(b.op(&PAD).operand(whole).operand(first.zero).attr("low", low).attr("high", high).value())
}

/// What was joined along a dimension.
fn pieces_of(body: &Body, value: Value, dim: usize) -> Vec<Value> {
    let joins = |op| body.name(op) == &CONCAT && body.op_ref(op).int("dim") == Some(dim as i64);
    match body.defining_op(value).filter(|&op| joins(op)) {
        Some(op) => body.operands(op).collect(),
        None => vec![value],
    }
}
