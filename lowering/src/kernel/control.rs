//! Loops and branches.

use super::{Lowering, ranges::yields, value::Parts};
use crate::emit::{Unroll, Value};
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn for_op(&mut self, op: OpRef) -> Result {
        let Some(entry) = op.entry(0) else { return Err(op.error("has no body")) };
        let counter = self.body.block_arg(entry, 0);
        let to = self.index_type(counter);
        let [lower, upper, step] = [0, 1, 2].map(|i| self.index(op.operand(i), to));
        let carried: Vec<ir::Value> = self.body.block_args(entry).skip(1).collect();
        let mut init = Vec::new();
        for (value, &arg) in op.operands().skip(3).zip(&carried) {
            self.part_types(op, arg)?; // what cannot be carried is an error here
            init.extend(self.parts_like(value, arg));
        }
        let unroll = match op.int("unroll") {
            None | Some(1) => Unroll::No,
            Some(0) => Unroll::Full,
            Some(factor) => Unroll::By(factor.clamp(2, i64::from(u32::MAX)) as u32),
        };
        let mut outcome = Ok(());
        let b = self.b;
        let last = b.for_loop((lower, upper, step), &init, unroll, |index, values| {
            self.values.set(counter, index);
            self.distribute(&carried, values);
            outcome = self.block(entry);
            match outcome {
                Ok(()) => self.yielded(op, 0, &carried),
                Err(_) => values.to_vec(),
            }
        });
        outcome?;
        let results: Vec<ir::Value> = op.results().collect();
        self.distribute(&results, &last);
        Ok(())
    }

    pub fn if_op(&mut self, op: OpRef) -> Result {
        let condition = self.values.one(op.operand(0));
        let results: Vec<ir::Value> = op.results().collect();
        let mut types = Vec::new();
        for &result in &results {
            types.extend(self.part_types(op, result)?);
        }
        let b = self.b;
        // Both closures lower a region with `self`; they run one after the other.
        let this = std::cell::RefCell::new((&mut *self, Ok(())));
        let region = |number: usize| {
            let (lowering, outcome) = &mut *this.borrow_mut();
            let lowered = match op.entry(number) {
                Some(entry) => lowering.block(entry),
                None => Ok(()),
            };
            match lowered {
                Ok(()) => lowering.yielded(op, number, &results),
                Err(error) => {
                    *outcome = Err(error);
                    types.iter().map(|&ty| b.poison(ty)).collect()
                }
            }
        };
        let values = match op.body.regions(op.op).len() {
            1 => {
                b.if_then(condition, || drop(region(0)));
                Vec::new()
            }
            _ => b.if_else(condition, &types, || region(0), || region(1)),
        };
        this.into_inner().1?;
        self.distribute(&results, &values);
        Ok(())
    }

    /// The parts of what a region yields, as `like` take them.
    fn yielded(&self, op: OpRef, region: usize, like: &[ir::Value]) -> Vec<Value<'m>> {
        yields(op, region).into_iter().zip(like).flat_map(|(value, &like)| self.parts_like(value, like)).collect()
    }

    /// Gives each of `values` as many of `parts` as it has.
    fn distribute(&mut self, values: &[ir::Value], parts: &[Value<'m>]) {
        let mut rest = parts;
        for &value in values {
            let ty = self.body.ty(value);
            let count = if ty.is_vector() && self.gpu { super::value::lanes_of(ty) } else { 1 };
            let (mine, others) = rest.split_at(count);
            self.values.set_parts(value, Parts::from_slice(mine));
            rest = others;
        }
    }
}
