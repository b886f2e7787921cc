//! What operations do besides computing their results, with the ops in their regions taken into account.

use crate::body::{Body, Op};
use crate::op_def::{Effects, Traits};

/// The effects of an op, with [`Effects::Recursive`] resolved, the strongest among the ops of its regions, and [`Effects::Declared`], what it says.
///
/// Effects on different channels, or on a channel and on memory, come out as [`Effects::Unknown`].
pub fn effects_of(body: &Body, op: Op) -> Effects {
    let Some(def) = body.name(op).def() else { return Effects::Unknown };
    match def.effects {
        Effects::Recursive => {}
        Effects::Declared => return declared(body, op),
        effects => return effects,
    }
    let mut all = Effects::Pure;
    for region in body.regions(op) {
        for block in body.blocks(region) {
            for inner in body.ops(block) {
                all = join(all, effects_of(body, inner));
                if all == Effects::Unknown {
                    return all;
                }
            }
        }
    }
    all
}

/// What an op of declared effects says; nothing said is `ordered`.
fn declared(body: &Body, op: Op) -> Effects {
    match body.attr(op, "effects").and_then(|effects| effects.as_str()) {
        Some("none") => Effects::Pure,
        _ => Effects::Channel("foreign"),
    }
}

/// The weakest effects that cover both.
fn join(a: Effects, b: Effects) -> Effects {
    use Effects::*;
    match (a, b) {
        _ if a == b => a,
        (Pure, x) | (x, Pure) => x,
        (Read, Write) | (Write, Read) => Write,
        _ => Unknown,
    }
}

/// Whether executing the op does nothing but compute its results from its operands: equal ones are one.
pub fn is_pure(body: &Body, op: Op) -> bool {
    effects_of(body, op) == Effects::Pure
}

/// Whether the op can go when its results are unused: it writes nothing, ends no block and defines no symbol.
pub fn is_removable(body: &Body, op: Op) -> bool {
    let def = body.name(op).def();
    let stays = def.is_none_or(|d| d.traits.intersects(Traits::TERMINATOR | Traits::SYMBOL));
    !stays && matches!(effects_of(body, op), Effects::Pure | Effects::Read)
}

/// Whether nothing would change without the op. The root is never dead.
pub fn is_dead(body: &Body, op: Op) -> bool {
    op != body.root() && body.results(op).all(|r| !body.has_uses(r)) && is_removable(body, op)
}

/// Whether the op is a constant.
pub fn is_constant(body: &Body, op: Op) -> bool {
    body.op_ref(op).has(Traits::CONSTANT)
}
