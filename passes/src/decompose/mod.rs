//! `decompose`: operations of `tensor` become what their definitions in `core` say.

use rc_dialects::interfaces::Decompose;
use rc_dialects::tensor::{CONV, channels_last};
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, has_op, option};
use rc_ir::{Attr, Body, Builder, Op, Result, Value};

pub static DECOMPOSE: PassDef = PassDef {
    summary: "Replaces operations by their definitions in core.",
    doc: "Every operation that has a definition (the interface Decompose) is replaced by it, until none is left. Locations and names stay.",
    pending: Some(|module| has_op(module, |name| name.def().is_some_and(|d| d.interface::<Decompose>().is_some()))),
    options: &[option(
        "order",
        OptionKind::Enum(&["channels_first", "channels_last"]),
        "channels_first",
        "The order of dimensions that convolutions are computed in, where they do not say it: channels_last where all of a function's can.",
    )],
    ..PassDef::new("decompose", |options| {
        let last = options.str("order") == "channels_last";
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            if last {
                cx.count("convolutions with channels last", order_channels_last(body));
            }
            let replaced = decompose(body)?;
            cx.count("operations replaced", replaced);
            Ok(())
        }))
    })
};

/// Sets the order of convolutions, if all can be computed so: between different orders everything would be transposed.
fn order_channels_last(body: &mut Body) -> u64 {
    let convolutions: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &CONV).collect();
    if !convolutions.iter().all(|&op| channels_last::supports(body.op_ref(op))) {
        return 0;
    }
    for &op in &convolutions {
        body.set_attr(op, "order", Attr::str("channels_last"));
    }
    convolutions.len() as u64
}

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
