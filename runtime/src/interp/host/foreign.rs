//! Functions of the process, on memory.

use super::Planned;
use rc_ir::{OpRef, Result, Type};

impl Planned<'_, '_> {
    pub(super) fn foreign(&mut self, op: OpRef) -> Result {
        let types = |group: &str| op.group(group).into_iter().map(|v| op.body.ty(v)).collect::<Vec<Type>>();
        let args = self.arrays(op, "args")?;
        // What nobody has written is not read: results begin as what is there, where that is whole.
        let memrefs = self.memrefs(op, "results")?;
        let begins = types("results").into_iter().zip(&memrefs);
        let begins = begins.map(|(ty, to)| (ty, self.memory.array(to, ty.elem().is_float()).ok())).collect();
        let results = self.frame.call_foreign(op, &args, &types("args"), begins)?;
        self.give(op, "results", &results)
    }
}
