//! Control flow on tensors: the functions that `core.if`, `core.while` and `core.for` call.

use super::exec::Frame;
use super::value::{Array, Value};
use crate::program::while_limit;
use rc_dialects::func::bindings;
use rc_dialects::op;
use rc_ir::{Name, OpRef, Result};

impl Frame<'_> {
    pub(super) fn control(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let values =
            |group: &str| op.group(group).iter().map(|&v| self.get(v).cloned()).collect::<Result<Vec<Value>>>();
        let (init, args) = (values("init")?, values("args")?);
        match op.name().as_str() {
            op::core::IF => {
                let holds = truth(&[self.get(op.operand(0))?.clone()]);
                self.run_function(op, if holds { "then" } else { "else" }, args)
            }
            op::core::WHILE => {
                let mut carried = init;
                let limit = while_limit(self.interp.module).unwrap_or(usize::MAX);
                let mut turn = 0;
                while truth(&self.run_function(op, "condition", [&carried[..], &args].concat())?) {
                    if turn >= limit {
                        return Err(op.error(format!("has not ended after {limit} turns")));
                    }
                    turn += 1;
                    carried = self.run_function(op, "body", [&carried[..], &args].concat())?;
                }
                Ok(carried)
            }
            _ => self.repeat(op, init, &values("slices")?, &args),
        }
    }

    fn repeat(&mut self, op: OpRef, init: Vec<Value>, sliced: &[Value], args: &[Value]) -> Result<Vec<Value>> {
        let count = init.len();
        let mut carried = init;
        let mut stacked = vec![Vec::new(); op.results().len() - count];
        for turn in 0..self.sizes(op, "times")?[0] as usize {
            let slices: Vec<Value> = sliced.iter().map(|v| Value::Array(v.to_array().slice(turn))).collect();
            let mut given = self.run_function(op, "body", [&carried[..], &slices, args].concat())?;
            let new = given.split_off(count);
            stacked.iter_mut().zip(&new).for_each(|(all, one)| all.push(one.to_array()));
            carried = given;
        }
        for (value, all) in op.results().skip(count).zip(stacked) {
            let ty = op.body.ty(value);
            carried.push(Value::Array(Array::stack(self.shape_of(op, ty)?, &all, ty.elem().is_float())));
        }
        Ok(carried)
    }

    /// Runs the function that an attribute names.
    fn run_function(&self, op: OpRef, attr: &str, args: Vec<Value>) -> Result<Vec<Value>> {
        let name = op.str(attr).ok_or_else(|| op.error(format!("expects '{attr}'")))?;
        self.enter_with(op, Name::new(name), &bindings(op), args)
    }
}

/// Whether the first value is a true number.
fn truth(values: &[Value]) -> bool {
    values.first().is_some_and(|value| value.to_array().is_true())
}
