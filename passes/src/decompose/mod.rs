//! `decompose`: operations of `tensor` become what their definitions in `core` say.

use rc_dialects::interfaces::Decompose;
use rc_ir::pass::{PassDef, PassKind, SymbolContext, has_op};
use rc_ir::{Body, Builder, Op, Result, Value};

pub static DECOMPOSE: PassDef = PassDef {
    summary: "Replaces operations by their definitions in core.",
    doc: "Every operation that has a definition (the interface Decompose) is replaced by it, until none is left. Locations and names stay.",
    pending: Some(|module| has_op(module, |name| name.def().is_some_and(|d| d.interface::<Decompose>().is_some()))),
    ..PassDef::new("decompose", |_| {
        Ok(PassKind::symbol(|body: &mut Body, cx: &mut SymbolContext| {
            let replaced = decompose(body)?;
            cx.count("operations replaced", replaced);
            Ok(())
        }))
    })
};

/// Replaces every operation that has a definition; gives how many there were. Definitions may use operations that have definitions themselves.
///
/// # Errors
/// What a definition does not cover, with the operation's place.
pub fn decompose(body: &mut Body) -> Result<u64> {
    let mut replaced = 0;
    let mut work: Vec<Op> = body.walk();
    work.reverse();
    while let Some(op) = work.pop() {
        let Some(definition) = body.name(op).def().and_then(|d| d.interface::<Decompose>()) else { continue };
        let before = body.prev_op(op);
        let values: Vec<Value> = (definition.0)(&mut Builder::before(body, op), op)?;
        // What the definition put in front of the op may have definitions too.
        let mut made = body.prev_op(op);
        while made != before {
            let Some(new) = made else { break };
            work.push(new);
            made = body.prev_op(new);
        }
        body.replace_op(op, &values);
        replaced += 1;
    }
    Ok(replaced)
}
