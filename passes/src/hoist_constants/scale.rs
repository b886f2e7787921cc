//! Scales and shifts of a product's columns by constants, as a normalization with known statistics applies them: the scale goes into the weight, which the
//! initializer multiplies once, and one shift remains.

use super::Constants;
use crate::dce::erase_unused;
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::DOT;
use rc_dialects::core::shape::BROADCAST;
use rc_dialects::interfaces::Contraction;
use rc_dialects::op;
use rc_ir::pass::PassContext;
use rc_ir::{Block, Body, Builder, Op, Type, Value};

/// A product of a constant weight, and what follows it.
struct Scaled {
    dot: Op,
    /// The weight's dimension that the columns are.
    free: usize,
    /// What scales or shifts its columns, one after the other.
    steps: Vec<(Step, Op)>,
}

#[derive(Clone, Copy)]
enum Step {
    Add(Value),
    Sub(Value),
    Mul(Value),
}

/// Folds what scales and shifts the columns of products into their weights and one shift.
pub fn fold(body: &mut Body, entry: Block, constants: &Constants, cx: &mut PassContext) {
    let dots: Vec<Op> = body.ops(entry).filter(|&op| body.name(op) == &DOT).collect();
    for dot in dots {
        if let Some(scaled) = Scaled::of(body, constants, dot) {
            let text =
                format!("{} scales and shifts of its columns are in its weight and one shift", scaled.steps.len());
            cx.remark(body.loc(dot), text);
            cx.count("products scaled by their weights", 1);
            scaled.fold(body);
        }
    }
    erase_unused(body);
}

impl Scaled {
    /// A product of which more than a shift can be folded. Its weight is read by it alone, and no narrower than the result: it loses nothing.
    fn of(body: &Body, constants: &Constants, dot: Op) -> Option<Scaled> {
        let (weight, result) = (body.operand(dot, 1), body.result(dot, 0));
        let elem = body.ty(weight).elem();
        let own = constants.values.contains(&weight) && body.uses(weight).count() == 1;
        if !own || elem != body.ty(result).elem() || ![Type::f32(), Type::f64()].contains(&elem) {
            return None;
        }
        let op = body.op_ref(dot);
        let roles = (op.def()?.interface::<Contraction>()?.0)(op)?;
        let &[free] = roles.rhs_free.as_slice() else { return None };
        let first = next(body, constants, dot);
        let steps: Vec<_> = std::iter::successors(first, |&(_, op)| next(body, constants, op)).collect();
        let scales = steps.iter().any(|(step, _)| matches!(step, Step::Mul(_)));
        scales.then_some(Scaled { dot, free, steps })
    }

    fn fold(&self, body: &mut Body) {
        let [left, weight] = [0, 1].map(|i| body.operand(self.dot, i));
        let (attrs, ty) = (body.attrs(self.dot), body.ty(body.result(self.dot, 0)));
        let (&(_, end), rest) = self.steps.split_last().expect("a scale is among the steps");
        let mut b = Builder::before(body, end);
        let (mut scale, mut shift): (Option<Value>, Option<Value>) = (None, None);
        for &(step, _) in &self.steps {
            match step {
                Step::Add(by) => shift = Some(shift.map_or(by, |shift| b.binary("add", shift, by))),
                Step::Sub(by) => {
                    let by = b.unary("neg", by);
                    shift = Some(shift.map_or(by, |shift| b.binary("add", shift, by)));
                }
                Step::Mul(by) => {
                    scale = Some(scale.map_or(by, |scale| b.binary("mul", scale, by)));
                    shift = shift.map(|shift| b.binary("mul", shift, by));
                }
            }
        }
        let shape = b.ty(weight).shape();
        let scale = b.broadcast(scale.expect("a scale is among the steps"), &shape, &[self.free as i64]);
        let scaled = b.binary("mul", weight, scale);
        let mut value = b.op(&DOT).operands(&[left, scaled]).attrs(attrs).result(ty).value();
        if let Some(shift) = shift {
            let last = ty.rank() as i64 - 1;
            let shift = b.broadcast(shift, &ty.shape(), &[last]);
            value = b.binary("add", value, shift);
        }
        body.replace_op(end, &[value]);
        rest.iter().rev().for_each(|&(_, op)| body.erase(op));
        body.erase(self.dot);
    }
}

/// The operation that alone reads another's result, and for which operand.
fn only_use(body: &Body, op: Op) -> Option<(Op, usize)> {
    let mut uses = body.uses(body.result(op, 0));
    uses.next().filter(|_| uses.next().is_none())
}

/// The operation that alone reads another's result, and shifts or scales its columns by a constant.
fn next(body: &Body, constants: &Constants, op: Op) -> Option<(Step, Op)> {
    let (op, operand) = only_use(body, op)?;
    let step: fn(Value) -> Step = match (body.name(op).as_str(), operand) {
        (op::core::ADD, _) => Step::Add,
        (op::core::MUL, _) => Step::Mul,
        (op::core::SUB, 0) => Step::Sub,
        _ => return None,
    };
    Some((step(columns(body, constants, body.operand(op, 1 - operand))?), op))
}

/// The constant row that a value repeats.
fn columns(body: &Body, constants: &Constants, value: Value) -> Option<Value> {
    let repeat = body.defining_op(value).filter(|&op| body.name(op) == &BROADCAST)?;
    let (row, last) = (body.operand(repeat, 0), body.ty(value).rank() as i64 - 1);
    let is_row = body.op_ref(repeat).ints("dims")? == [last]
        && body.ty(row).shape()[..] == body.ty(value).shape()[last as usize..];
    (is_row && constants.values.contains(&row)).then_some(row)
}
