//! Calls and control flow on memory: a callee runs on copies of what it reads.

use super::Planned;
use crate::interp::bind::Signature;
use crate::interp::exec::{Frame, Symbols};
use crate::interp::memory::MemRef;
use crate::interp::value::{Array, Value};
use rc_dialects::func::bindings;
use rc_dialects::op;
use rc_ir::{Name, OpRef, Result};

impl Planned<'_, '_> {
    pub(super) fn control(&mut self, op: OpRef) -> Result {
        let args = self.arrays(op, "args")?;
        match op.name().as_str() {
            op::host::IF => {
                let condition = self.memref(op, 0)?;
                let holds = self.read(op, &condition, false)?.is_true();
                let given = self.callee(op, if holds { "then" } else { "else" }, args)?;
                self.give(op, "results", &given)
            }
            op::host::CALL => {
                let given = self.callee(op, "callee", args)?;
                self.give(op, "results", &given)
            }
            op::host::WHILE => {
                let mut carried = self.arrays(op, "carried")?;
                while self.callee(op, "condition", [&carried[..], &args].concat())?.first().is_some_and(Array::is_true)
                {
                    carried = self.callee(op, "body", [&carried[..], &args].concat())?;
                }
                self.give(op, "carried", &carried)
            }
            _ => self.repeat(op, &args),
        }
    }

    fn repeat(&mut self, op: OpRef, args: &[Array]) -> Result {
        let (mut carried, slices) = (self.arrays(op, "carried")?, self.arrays(op, "slices")?);
        let results = self.memrefs(op, "results")?;
        for turn in 0..self.frame.sizes(op, "times")?[0] as usize {
            let slices: Vec<Array> = slices.iter().map(|a| a.slice(turn)).collect();
            let mut given = self.callee(op, "body", [&carried[..], &slices, args].concat())?;
            let new = given.split_off(carried.len());
            for (to, array) in results.iter().zip(&new) {
                let start = to.start + turn * array.len();
                self.write(&MemRef { start, shape: to.shape[1..].into(), ..to.clone() }, array);
            }
            carried = given;
        }
        self.give(op, "carried", &carried)
    }

    pub(super) fn memrefs(&self, op: OpRef, group: &str) -> Result<Vec<MemRef>> {
        let memory = |&v: &rc_ir::Value| match self.frame.get(v)? {
            Value::Memory(memref) => Ok(memref.clone()),
            _ => Err(op.error("needs memory")),
        };
        op.group(group).iter().map(memory).collect()
    }

    pub(super) fn arrays(&self, op: OpRef, group: &str) -> Result<Vec<Array>> {
        let floats = op.group(group).into_iter().map(|v| op.body.ty(v).elem().is_float()).collect::<Vec<_>>();
        self.memrefs(op, group)?.iter().zip(floats).map(|(m, float)| self.read(op, m, float)).collect()
    }

    pub(super) fn give(&mut self, op: OpRef, group: &str, arrays: &[Array]) -> Result {
        for (to, array) in self.memrefs(op, group)?.iter().zip(arrays) {
            self.write(to, array);
        }
        Ok(())
    }

    fn callee(&self, op: OpRef, attr: &str, args: Vec<Array>) -> Result<Vec<Array>> {
        let name = Name::new(op.str(attr).ok_or_else(|| op.error(format!("expects '{attr}'")))?);
        let interp = self.frame.interp;
        let body = interp.module.symbol(name).filter(|b| b.name(b.root()) == op::host::FUNC);
        let body = body.ok_or_else(|| op.error(format!("calls @{name}, which is no planned function")))?;
        let bound = bindings(op).into_iter().map(|(name, dim)| Ok((name, self.frame.dim(op, dim)?)));
        let symbols = Symbols::new(bound.collect::<Result<_>>()?);
        let mut frame = Frame::new(interp, body, symbols, self.frame.depth + 1)?;
        let signature = Signature::of(body)?;
        if signature.inputs.len() != args.len() {
            return Err(op.error(format!(
                "passes {} buffers to @{name}, which takes {}",
                args.len(),
                signature.inputs.len()
            )));
        }
        let results = interp.run_planned(&mut frame, &signature, args)?;
        Ok(results.into_iter().map(|(value, _)| value.to_array()).collect())
    }
}
