//! Tangents: of each op's rule, which is linear in the gradients of the results, the transpose.
//!
//! The rule is run on gradients of zero, as which variables stand: what it computes of them is differentiated for them, with
//! the operands' tangents as gradients. What is left of the first run computes nothing that is used.

use super::reverse::{Varied, derivative_of, made_between};
use super::{Derivatives, end_of};
use rc_dialects::CoreBuilder;
use rc_dialects::derivative::Derivative;
use rc_ir::{Body, Builder, Op, Result, Value};
use rustc_hash::FxHashMap;

impl Derivatives<'_> {
    /// The tangents of what `ops`, in order and expanded, compute, where `seeds` are those of arguments.
    pub fn forward(
        &mut self,
        body: &mut Body,
        ops: Vec<Op>,
        seeds: &[(Value, Value)],
    ) -> Result<FxHashMap<Value, Value>> {
        let mut tangents: FxHashMap<Value, Value> = seeds.iter().copied().collect();
        let given: Vec<Value> = seeds.iter().map(|s| s.0).collect();
        let mut varied = Varied::new(&given);
        for op in ops {
            varied.visit(body, op, derivative_of(body, op));
            let of_operands: Vec<Option<Value>> = body.operands(op).map(|v| tangents.get(&v).copied()).collect();
            if of_operands.iter().all(Option::is_none) && !varied.any_operand(body, op) {
                continue;
            }
            let results: Vec<Value> = body.results(op).filter(|&v| varied.has(v)).collect();
            let found = self.tangents_of(body, op, &of_operands, &results)?;
            tangents.extend(results.into_iter().zip(found).filter_map(|(v, t)| Some((v, t?))));
        }
        Ok(tangents)
    }

    fn tangents_of(
        &mut self,
        body: &mut Body,
        op: Op,
        operands: &[Option<Value>],
        results: &[Value],
    ) -> Result<Vec<Option<Value>>> {
        let end = end_of(body);
        let before = body.prev_op(end);
        let mut variables: Vec<Option<Value>> = Vec::new();
        for result in body.results(op).collect::<Vec<_>>() {
            let ty = body.ty(result);
            let variable = results.contains(&result) && ty.elem().is_float();
            variables.push(variable.then(|| Builder::before(body, end).splat(0.0, ty)));
        }
        let wrt: Vec<Value> = variables.iter().flatten().copied().collect();
        if wrt.is_empty() {
            return Ok(vec![None; results.len()]);
        }
        let wanted: Vec<bool> = operands.iter().map(Option::is_some).collect();
        let gradients = match derivative_of(body, op) {
            Some(Derivative::Calls) => self.of_call(body, op, &variables, &wanted, end)?,
            Some(derivative) => {
                let mut b = Builder::before(body, end);
                b.loc = b.body.loc(op);
                derivative.gradients(&mut b, op, &variables, &wanted)?
            }
            None => {
                let error = body.op_ref(op).error("has no derivative");
                return Err(error.help("declare one beside the op, or its definition: docs/adding-an-op.md"));
            }
        };
        let emitted = made_between(body, before, end);
        let mut replaced = FxHashMap::default();
        let emitted = self.prepare(body, emitted, &wrt, &mut replaced)?;
        let now = |v: Value| std::iter::successors(Some(v), |v| replaced.get(v).copied()).last().unwrap_or(v);
        let pairs = gradients.into_iter().zip(operands);
        let seeds: Vec<(Value, Value)> = pairs.filter_map(|(u, t)| Some((now(u?), (*t)?))).collect();
        let mut found = self.reverse(body, emitted, &seeds, &wrt, end)?.into_iter();
        Ok(results.iter().map(|&v| if body.ty(v).elem().is_float() { found.next().flatten() } else { None }).collect())
    }
}
