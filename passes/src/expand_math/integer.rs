//! Division of 64-bit integers on a GPU, which has no instruction for it: numbers of 32 bits, as most are, are divided as such.

use super::emit::{Constants, Math};
use rc_dialects::op;
use rc_ir::op_def::constant_of;
use rc_ir::{Body, Op, Type, Value};

/// The divisions of 64-bit integers of a GPU's kernel; those by a constant become products anyway.
pub fn divisions(body: &Body) -> Vec<Op> {
    let divides = |op: Op| {
        [op::core::DIV, op::core::REM].contains(&body.name(op).as_str())
            && body.ty(body.result(op, 0)).elem() == Type::i64()
            && constant_of(body, body.operand(op, 1)).is_none()
            && !is_long_way(body, op)
    };
    match body.op_ref(body.root()).str("target") {
        Some("cuda") => body.walk().into_iter().filter(|&op| divides(op)).collect(),
        _ => Vec::new(),
    }
}

/// Whether it is what a branch has left for numbers of more bits.
fn is_long_way(body: &Body, op: Op) -> bool {
    let branches = body.parent_op(op).is_some_and(|parent| body.name(parent) == op::kernel::IF);
    let alone = |block| body.ops(block).count() == 2;
    branches && body.parent(op).is_some_and(alone)
}

/// Expands divisions; gives their number.
pub fn expand_divisions(body: &mut Body, constants: &mut Constants, ops: &[Op]) -> u64 {
    for &op in ops {
        let (a, b) = (body.operand(op, 0), body.operand(op, 1));
        let (remainder, ty) = (body.name(op) == op::core::REM, body.ty(a).with_elem(Type::f32()));
        let mut m = Math { body, constants, before: op, ty, approx: false, rounded: false };
        let quotient = m.whole_quotient(a, b);
        let value = if remainder { m.rest(a, b, quotient) } else { quotient };
        body.replace_op(op, &[value]);
    }
    ops.len() as u64
}

impl Math<'_> {
    /// a / b, rounded toward zero, of 64-bit integers.
    fn whole_quotient(&mut self, a: Value, b: Value) -> Value {
        let [short_a, short_b] = [a, b].map(|x| self.convert(x, Type::int(32)));
        let are_short = |m: &mut Math| {
            let [same_a, same_b] = [(a, short_a), (b, short_b)].map(|(x, short)| {
                let again = m.convert(short, Type::i64());
                m.compare("eq", x, again)
            });
            let both = m.op(op::core::AND, &[same_a, same_b]);
            // -2^31 / -1 has 33 bits.
            let minus_one = m.i(-1);
            let other = m.compare("ne", short_b, minus_one);
            m.op(op::core::AND, &[both, other])
        };
        let ty = self.body.ty(a);
        let short = |m: &mut Math| {
            let quotient = m.div(short_a, short_b);
            [m.convert(quotient, Type::i64())]
        };
        self.usually([ty], are_short, short, |m| [m.div(a, b)])[0]
    }
    fn rest(&mut self, a: Value, b: Value, quotient: Value) -> Value {
        let whole = self.mul(quotient, b);
        self.sub(a, whole)
    }
}
