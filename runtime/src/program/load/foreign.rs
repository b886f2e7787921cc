//! Calls of functions of the process.

use super::{Loader, Scope};
use crate::interp::dtype_of;
use crate::program::{Foreign, Passed, Step};
use rc_ir::{OpRef, Result, Value};

impl Loader<'_> {
    pub(super) fn foreign(&mut self, scope: &Scope, op: OpRef) -> Result<Step> {
        let name = op.str("function").ok_or_else(|| op.error("names no function"))?;
        let known = &mut self.program.foreign;
        let function = known.iter().position(|other| other == name).unwrap_or_else(|| {
            known.push(name.to_string());
            known.len() - 1
        });
        let passed = |&value: &Value| {
            let ty = op.body.ty(value);
            let dtype = dtype_of(ty.elem()).ok_or_else(|| op.unsupported(format!("on elements of type {}", ty.elem())));
            let shape = ty.shape().into_iter().map(|dim| scope.dim(dim)).collect();
            Ok(Passed { place: scope.place(value), dtype: dtype?, shape })
        };
        let passed = |group: &str| op.group(group).iter().map(passed).collect::<Result<Vec<Passed>>>();
        let sizes = op.attr("sizes").and_then(|a| a.as_shape()).unwrap_or_default();
        Ok(Step::Foreign(Box::new(Foreign {
            function,
            config: op.str("config").unwrap_or_default().to_string(),
            sizes: sizes.iter().map(|&dim| scope.dim(dim)).collect(),
            args: passed("args")?,
            results: passed("results")?,
        })))
    }
}
