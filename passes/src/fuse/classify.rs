//! What an operation is to fusion, asked of its traits and interfaces.

use rc_dialects::core::reindex::Reindex;
use rc_dialects::interfaces::{Contraction, Reduction};
use rc_dialects::op;
use rc_ir::{Effects, OpRef, Traits};

/// What fusing an operation means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// One number everywhere, or a number made of sizes: copied into every group that uses it.
    Splat,
    /// Moves elements and computes nothing: becomes an index map.
    Reindex,
    /// Each element from a few elements of the operands, by computation.
    Pointwise,
    Reduce,
    /// Every prefix of a reduction: a kernel with what feeds it, and on a GPU with what is computed of short rows' prefixes.
    Scan,
    Contract,
    Attention,
    /// A kernel of its own.
    Alone,
    /// Not computation on tensors: constants, sizes, calls, terminators.
    Outside,
}

impl Class {
    /// Whether a group is built around such an operation: its result is a nest's.
    pub fn is_anchor(self) -> bool {
        matches!(self, Class::Reduce | Class::Scan | Class::Contract | Class::Attention | Class::Alone)
    }
}

pub fn classify(op: OpRef) -> Class {
    let Some(def) = op.def() else { return Class::Outside };
    let gives_tensors = op.results().len() > 0 && op.result_types().iter().all(|t| t.is_tensor());
    if def.has(Traits::CONSTANT) {
        let splat = op.attr("value").is_some_and(|v| v.as_splat().is_some());
        return if splat { Class::Splat } else { Class::Outside };
    }
    if !gives_tensors && is_scalar(op) {
        return Class::Splat;
    }
    if !gives_tensors || def.effects != Effects::Pure || op.name().dialect() != "core" {
        return Class::Outside;
    }
    if def.interface::<Reindex>().is_some() {
        return Class::Reindex;
    }
    if def.has(Traits::ELEMENTWISE) {
        return Class::Pointwise;
    }
    if def.interface::<Contraction>().is_some() {
        return Class::Contract;
    }
    if let Some(reduction) = def.interface::<Reduction>() {
        return match (reduction.0)(op) {
            Some(r) if r.scan => Class::Scan,
            Some(_) => Class::Reduce,
            None => Class::Alone,
        };
    }
    match op.name().as_str() {
        op::core::IOTA | op::core::GATHER | op::core::CONCAT | op::core::PAD => Class::Pointwise,
        op::core::ATTENTION | op::core::ATTENTION_BACKWARD => Class::Attention,
        op::core::ASSUME_SHAPE | op::core::IF | op::core::WHILE | op::core::FOR => Class::Outside,
        _ => Class::Alone,
    }
}

/// Whether it computes a number. All of a function's numbers are made of constants and sizes, since what is made of others are tensors
/// ([`super::scalars`]).
fn is_scalar(op: OpRef) -> bool {
    op.is(op::core::EXTENT)
        || op.has(Traits::ELEMENTWISE)
            && op.name().dialect() == "core"
            && op.result_types().iter().all(|t| t.is_scalar())
            && op.operands().all(|v| op.body.ty(v).is_scalar())
}

/// Whether doing it again costs less than storing its result: index maps, counters, conversions to wider types.
/// A conversion to a narrower type belongs with what it converts: done by the readers, the wide value would be stored.
pub fn is_cheap(op: OpRef) -> bool {
    match classify(op) {
        Class::Splat | Class::Reindex => true,
        Class::Pointwise => op.is(op::core::IOTA) || widens(op),
        _ => false,
    }
}

fn widens(op: OpRef) -> bool {
    let bits = |v| op.body.ty(v).elem().bit_width();
    op.is(op::core::CONVERT) && bits(op.result(0)) >= bits(op.operand(0))
}
