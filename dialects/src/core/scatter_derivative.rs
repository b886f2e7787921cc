//! The derivative of `core.scatter`.

use super::gather::{GATHER, SCATTER};
use crate::builder::CoreBuilder;
use crate::derivative::{Vjp, splat_like, where_or_zero, zeros_like};
use crate::op;
use rc_ir::{Attr, Result, Type, Value};

/// Gathers and scatters by the op's own indices.
struct Places {
    ids: Value,
    axis: Attr,
    batch: Attr,
}

impl Places {
    fn of(v: &Vjp) -> Places {
        let at = v.at();
        let int = |name: &str| Attr::i64(at.int(name).unwrap_or(0));
        Places { ids: v.operand(1), axis: int("axis"), batch: int("batch") }
    }
    fn gather(&self, v: &mut Vjp, x: Value) -> Value {
        let op = v.op(&GATHER).operands(&[x, self.ids]);
        op.attr("axis", self.axis).attr("batch", self.batch).value()
    }
    fn scatter(&self, v: &mut Vjp, kind: &str, x: Value, updates: Value) -> Value {
        let op = v.op(&SCATTER).operand(x).operand(self.ids).operand(updates);
        op.attr("axis", self.axis).attr("batch", self.batch).attr("kind", Attr::str(kind)).value()
    }
}

pub fn scatter_vjp(v: &mut Vjp) -> Result {
    let places = Places::of(v);
    match v.at().str("kind").unwrap_or_default() {
        "add" => {
            let g = v.g();
            v.give_with(0, |_| g);
            v.give_with(2, |v| places.gather(v, g));
        }
        "set" => set(v, &places),
        "mul" => product(v, &places),
        _ => extreme(v, &places),
    }
    Ok(())
}

/// Only the last update of an element stays.
fn set(v: &mut Vjp, places: &Places) {
    let g = v.g();
    let ty = v.ty(v.operand(2));
    v.give_with(0, |v| {
        let none = v.splat(0.0, ty);
        places.scatter(v, "set", g, none)
    });
    v.give_with(2, |v| {
        let count = ty.num_elements();
        let number = v.op(op::core::IOTA).attr("dim", Attr::i64(0)).result(Type::tensor(&[count], Type::i64())).value();
        let number = v.reshape(number, &ty.shape());
        let numbers = v.ty(g).with_elem(Type::i64());
        let unset = v.splat(-1.0, numbers);
        let last = places.scatter(v, "set", unset, number);
        let last = places.gather(v, last);
        let stays = v.compare("eq", last, number);
        let taken = places.gather(v, g);
        where_or_zero(v, stays, taken)
    });
}

/// The product of the other factors: where one factor of an element is zero, of all others; where more are, zero.
fn product(v: &mut Vjp, places: &Places) {
    let (g, x, updates) = (v.g(), v.operand(0), v.operand(2));
    v.give_with(0, |v| places.scatter(v, "mul", g, updates));
    v.give_with(2, |v| {
        let (one, zero) = (splat_like(v, 1.0, updates), zeros_like(v, updates));
        let is_zero = v.compare("eq", updates, zero);
        let filled = v.select(is_zero, one, updates);
        let own = v.convert(is_zero, Type::i64());
        let (one, none) = (splat_like(v, 1.0, x), zeros_like(v, x));
        let empty = v.compare("eq", x, none);
        let start = v.select(empty, one, x);
        let rest = places.scatter(v, "mul", start, filled);
        let zeros = v.convert(empty, Type::i64());
        let zeros = places.scatter(v, "add", zeros, own);
        let rest = v.binary("mul", rest, g);
        let (rest, zeros) = (places.gather(v, rest), places.gather(v, zeros));
        let others = v.compare("eq", zeros, own);
        let rest = v.binary("div", rest, filled);
        where_or_zero(v, others, rest)
    });
}

/// The gradient goes in equal parts to all that equal the extreme.
fn extreme(v: &mut Vjp, places: &Places) {
    let (g, x, updates, y) = (v.g(), v.operand(0), v.operand(2), v.result(0));
    let reached = places.gather(v, y);
    let (own, of_updates) = (v.compare("eq", x, y), v.compare("eq", updates, reached));
    let elem = v.ty(x).elem();
    let (own_count, counts) = (v.convert(own, elem), v.convert(of_updates, elem));
    let count = places.scatter(v, "add", own_count, counts);
    let share = v.binary("div", g, count);
    v.give_with(0, |v| where_or_zero(v, own, share));
    v.give_with(2, |v| {
        let share = places.gather(v, share);
        where_or_zero(v, of_updates, share)
    });
}
