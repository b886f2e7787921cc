//! Calls and control flow on memory.

use super::{Rewriter, bytes_of};
use rc_dialects::core::control::{FOR, IF, WHILE};
use rc_dialects::func::callee;
use rc_dialects::host;
use rc_ir::{Attr, Builder, Dim, Name, OpRef, Result, Type, Value};

/// The sizes in bytes of memory that an operation needs besides: what a launch says, the second places of values in a loop, a flag.
pub fn scratch_sizes(op: OpRef) -> Vec<Dim> {
    if op.name() != &WHILE && op.name() != &FOR {
        return op.attr("scratch").and_then(|a| a.as_shape()).map_or(Vec::new(), <[Dim]>::to_vec);
    }
    let carried = op.group("init").into_iter().map(|v| bytes_of(op.body.ty(v)));
    carried.chain((op.name() == &WHILE).then_some(Dim::Static(1))).collect()
}

impl Rewriter<'_> {
    pub(super) fn call(&mut self, b: &mut Builder, op: OpRef) -> Result {
        let memory = |values: &[Value]| values.iter().map(|v| self.memory[v]).collect::<Vec<Value>>();
        let (operands, init) = (memory(&op.operands().collect::<Vec<_>>()), memory(&op.group("init")));
        let (slices, args) = (memory(&op.group("slices")), memory(&op.group("args")));
        let results = self.results(b, op)?;
        let attrs = ["then", "else", "condition", "body", "times", "bind"]
            .into_iter()
            .filter_map(|name| Some((Name::new(name), op.attr(name)?)));
        let attrs = Attr::dict(attrs);
        match op.name() {
            name if name == &IF => {
                let built = b.op(&host::IF).operands(&operands[..1]).operands(&operands[1..]).operands(&results);
                built.attrs(attrs).build();
            }
            name if name == &WHILE => {
                let next = self.seconds(b, op, &init, &results);
                let flag = self.buffer(b, self.scratch(op)[next.len()], Type::tensor(&[], Type::i1()));
                let built = b.op(&host::WHILE).operands(&results).operands(&next).operands(&args).operands(&[flag]);
                built.attrs(attrs).build();
            }
            name if name == &FOR => {
                let (carried, stacked) = results.split_at(init.len());
                let next = self.seconds(b, op, &init, carried);
                let built = b.op(&host::FOR).operands(carried).operands(&next).operands(&slices);
                built.operands(&args).operands(stacked).attrs(attrs).build();
            }
            _ => {
                let callee = callee(op).ok_or_else(|| op.error("calls no function"))?;
                let built = b.op(&host::CALL).operands(&operands).operands(&results).attrs(attrs);
                built.attr("callee", Attr::str(callee.as_str())).build();
            }
        }
        Ok(())
    }

    /// The second places of a loop's values; the first ones begin as copies of what the loop begins with.
    fn seconds(&self, b: &mut Builder, op: OpRef, init: &[Value], carried: &[Value]) -> Vec<Value> {
        for (&from, &to) in init.iter().zip(carried) {
            b.op(&host::COPY).operands(&[from, to]).build();
        }
        let types: Vec<Type> = op.group("init").iter().map(|&v| op.body.ty(v)).collect();
        self.scratch(op).iter().zip(types).map(|(&index, ty)| self.buffer(b, index, ty)).collect()
    }
}
