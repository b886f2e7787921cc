//! Asynchronous copies: 16-byte `cp.async` in groups, and bulk tensor copies by tensor maps (TMA).

use crate::constraints::{INDEX, MEMREF, SHARED};
use rc_ir::op_def::*;
use rc_ir::{OpDef, Type, TypeData};

pub(super) static OPS: &[&OpDef] =
    &[&ASYNC_COPY, &ASYNC_COMMIT, &ASYNC_WAIT, &TENSOR_PREFETCH, &TENSOR_LOAD, &TENSOR_STORE, &BULK_COMMIT, &BULK_WAIT];

const ORDERED: Effects = Effects::Channel("sync");

/// `!rc.tensor_map`: describes a tensor in global memory to the copy engine. The host encodes it: the box is the shared tile, innermost dimension first.
pub const TENSOR_MAP: TypeConstraint = TypeConstraint { desc: "!rc.tensor_map", check: is_tensor_map };

fn is_tensor_map(ty: Type) -> bool {
    matches!(ty.data(), TypeData::Dialect { name, .. } if *name == "tensor_map")
}

pub static ASYNC_COPY: OpDef = OpDef {
    summary: "Starts a 4-, 8- or 16-byte copy from global to shared memory (cp.async); bytes past `valid` elements are zeroed.",
    operands: &[
        operand("target", SHARED),
        variadic("at", INDEX).bracketed(),
        operand("source", MEMREF),
        variadic("from", INDEX).bracketed(),
        optional("valid", INDEX),
    ],
    attrs: &[
        attr("bytes", AttrKind::I64, "4, 8 or 16."),
        attr("swizzle", AttrKind::I64, "0, 32, 64 or 128, of the target.").default(AttrDefault::Int(0)),
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_copy")
};

pub static ASYNC_COMMIT: OpDef = OpDef {
    summary: "Closes this thread's group of async copies.",
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_commit")
};

pub static ASYNC_WAIT: OpDef = OpDef {
    summary: "Waits until at most `pending` of this thread's newest groups are unfinished.",
    attrs: &[attr("pending", AttrKind::I64, "Groups that may still run.")],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_wait")
};

pub static TENSOR_PREFETCH: OpDef = OpDef {
    summary: "Fetches a tensor map into its cache.",
    operands: &[operand("map", TENSOR_MAP)],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.tensor_prefetch")
};

pub static TENSOR_LOAD: OpDef = OpDef {
    summary: "Starts the copy of a box of a tensor into shared memory (TMA); its bytes are counted by an mbarrier.",
    doc: "`coords` are the box's first element, innermost dimension first, as the tensor map's. Elements out of bounds are zero and count. \
One thread issues it. With `multicast`, the box goes to the same place in every block of the cluster named by that mask operand.",
    operands: &[
        operand("target", SHARED),
        operand("map", TENSOR_MAP),
        variadic("coords", INDEX).bracketed(),
        operand("barriers", SHARED),
        variadic("indices", INDEX).bracketed(),
        optional("multicast", INDEX),
    ],
    attrs: &[attr("cache", AttrKind::Enum(&["default", "evict_first", "evict_last"]), "How long L2 keeps the data.")
        .default(AttrDefault::Str("default"))],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.tensor_load")
};

pub static TENSOR_STORE: OpDef = OpDef {
    summary: "Starts the copy of a box from shared memory to a tensor (TMA), in this thread's bulk group; out of bounds is not written.",
    operands: &[operand("source", SHARED), operand("map", TENSOR_MAP), variadic("coords", INDEX).bracketed()],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.tensor_store")
};

pub static BULK_COMMIT: OpDef = OpDef {
    summary: "Closes this thread's group of bulk stores.",
    effects: ORDERED,
    ..OpDef::new("rc.kernel.bulk_commit")
};

pub static BULK_WAIT: OpDef = OpDef {
    summary: "Waits until at most `pending` bulk groups are unfinished: done, or with `read` only done with reading shared memory.",
    attrs: &[
        attr("pending", AttrKind::I64, "Groups that may still run."),
        attr("read", AttrKind::Bool, "Wait for the reads only.").default(AttrDefault::Bool(false)),
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.bulk_wait")
};
