//! The sweep from results back to arguments.

use super::Derivatives;
use super::parts::joined;
use crate::partition::RECOMPUTE;
use rc_dialects::CoreBuilder;
use rc_dialects::derivative::Derivative;
use rc_dialects::interfaces::Decompose;
use rc_ir::{Body, Builder, Op, Result, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// The derivative that an op declares.
pub fn derivative_of(body: &Body, op: Op) -> Option<&'static Derivative> {
    body.name(op).def()?.interface::<Derivative>()
}

/// What an op is differentiated as, where it has no rule of its own.
fn definition_of(body: &Body, op: Op) -> Option<fn(&mut Builder, Op) -> Result<Vec<Value>>> {
    match derivative_of(body, op) {
        Some(Derivative::Definition(definition)) => Some(*definition),
        Some(_) => None,
        None => body.name(op).def()?.interface::<Decompose>().map(|definition| definition.0),
    }
}

/// The values that follow `wrt` smoothly, op by op: integers do only where integers do, or the bits of floats.
pub struct Varied(FxHashSet<Value>);

impl Varied {
    pub fn new(wrt: &[Value]) -> Varied {
        Varied(wrt.iter().copied().collect())
    }
    pub fn has(&self, value: Value) -> bool {
        self.0.contains(&value)
    }
    pub fn any_operand(&self, body: &Body, op: Op) -> bool {
        body.operands(op).any(|v| self.has(v))
    }
    /// Adds what follows of an op, whose derivative is this.
    pub fn visit(&mut self, body: &Body, op: Op, derivative: Option<&Derivative>) {
        if matches!(derivative, Some(Derivative::Zero)) || !self.any_operand(body, op) {
            return;
        }
        let integers = body.operands(op).any(|v| self.has(v) && !body.ty(v).elem().is_float());
        let bits = integers || matches!(derivative, Some(Derivative::Missing(_)));
        self.0.extend(body.results(op).filter(|&v| bits || body.ty(v).elem().is_float()));
    }
}

/// Replaces ops that have no rule of their own by their definitions, where they follow `wrt`. Gives the ops in order, and notes which values were
/// replaced by which.
pub fn expand(body: &mut Body, ops: Vec<Op>, wrt: &[Value], replaced: &mut FxHashMap<Value, Value>) -> Result<Vec<Op>> {
    let mut varied = Varied::new(wrt);
    let mut out = Vec::with_capacity(ops.len());
    let mut work = ops;
    work.reverse();
    while let Some(op) = work.pop() {
        let Some(definition) = definition_of(body, op).filter(|_| varied.any_operand(body, op)) else {
            varied.visit(body, op, derivative_of(body, op));
            out.push(op);
            continue;
        };
        let before = body.prev_op(op);
        let results: Vec<Value> = body.results(op).collect();
        let values = definition(&mut Builder::before(body, op), op)?;
        let made = made_between(body, before, op);
        if let Some(mark) = body.attr(op, RECOMPUTE) {
            made.iter().for_each(|&new| body.set_attr(new, RECOMPUTE, mark));
        }
        work.extend(made.into_iter().rev());
        replaced.extend(results.into_iter().zip(values.iter().copied()));
        body.replace_op(op, &values);
    }
    Ok(out)
}

/// The ops after `before` (a block's start, where there is none) and before `end`, in order.
pub fn made_between(body: &Body, before: Option<Op>, end: Op) -> Vec<Op> {
    let all = std::iter::successors(body.prev_op(end), |&op| body.prev_op(op));
    let mut made: Vec<Op> = all.take_while(|&op| Some(op) != before).collect();
    made.reverse();
    made
}

/// Gradients by value, each the sum of what its users gave.
#[derive(Default)]
struct Sums(FxHashMap<Value, Value>);

impl Sums {
    fn add(&mut self, b: &mut Builder, value: Value, gradient: Value) {
        let sum = match self.0.get(&value) {
            Some(&before) => joined(b, before, gradient).unwrap_or_else(|| b.binary("add", before, gradient)),
            None => gradient,
        };
        self.0.insert(value, sum);
    }
}

impl Derivatives<'_> {
    /// The gradients of `wrt` where `seeds` are those of values that `ops`, in order and expanded, compute. New ops go before `end`.
    pub fn reverse(
        &mut self,
        body: &mut Body,
        ops: Vec<Op>,
        seeds: &[(Value, Value)],
        wrt: &[Value],
        end: Op,
    ) -> Result<Vec<Option<Value>>> {
        let mut varied = Varied::new(wrt);
        ops.iter().for_each(|&op| varied.visit(body, op, derivative_of(body, op)));
        let mut sums = Sums::default();
        for &(value, gradient) in seeds {
            sums.add(&mut Builder::before(body, end), value, gradient);
        }
        for &op in ops.iter().rev() {
            let results: Vec<Option<Value>> = body.results(op).map(|v| sums.0.get(&v).copied()).collect();
            let float = |body: &Body, v: Value| body.ty(v).elem().is_float();
            let blocked = matches!(derivative_of(body, op), Some(Derivative::Missing(_)));
            let wanted: Vec<bool> = body.operands(op).map(|v| varied.has(v) && (blocked || float(body, v))).collect();
            if results.iter().all(Option::is_none) || !wanted.contains(&true) {
                continue;
            }
            let derivative = derivative_of(body, op).ok_or_else(|| {
                let error = body.op_ref(op).error("has no derivative");
                error.help("declare one beside the op, or its definition: docs/adding-an-op.md")
            })?;
            let gradients = match derivative {
                Derivative::Calls => self.of_call(body, op, &results, &wanted, end)?,
                _ => {
                    let mut b = Builder::before(body, end);
                    b.loc = b.body.loc(op);
                    derivative.gradients(&mut b, op, &results, &wanted)?
                }
            };
            let operands: Vec<Value> = body.operands(op).collect();
            let loc = body.loc(op);
            for (value, gradient) in operands.into_iter().zip(gradients) {
                let mut b = Builder::before(body, end);
                b.loc = loc;
                gradient.iter().for_each(|&gradient| sums.add(&mut b, value, gradient));
            }
        }
        Ok(wrt.iter().map(|v| sums.0.get(v).copied()).collect())
    }
}
