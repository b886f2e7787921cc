//! Asynchronous copies: 16-byte `cp.async` in groups, and bulk tensor copies by tensor maps (TMA).

use crate::constraints::{INDEX, MEMREF, SHARED};
use rc_ir::op_def::*;
use rc_ir::{OpDef, Type, TypeData};

pub(super) static OPS: &[&OpDef] = &[
    &ASYNC_COPY,
    &ASYNC_COMMIT,
    &ASYNC_WAIT,
    &TENSOR_PREFETCH,
    &BOX_PREFETCH,
    &TENSOR_LOAD,
    &TENSOR_STORE,
    &BULK_COMMIT,
    &BULK_WAIT,
];

const ORDERED: Effects = Effects::Channel("sync");

/// `!rc.tensor_map`: describes a tensor in global memory to the copy engine. The host encodes it: the box is the shared tile, innermost dimension first.
pub const TENSOR_MAP: TypeConstraint = TypeConstraint { desc: "!rc.tensor_map", check: is_tensor_map };

pub(super) fn is_tensor_map(ty: Type) -> bool {
    matches!(ty.data(), TypeData::Dialect { name, .. } if *name == "tensor_map")
}

pub static ASYNC_COPY: OpDef = OpDef {
    summary: "Starts a 4-, 8- or 16-byte copy from global to shared memory (cp.async); bytes past `valid` elements are zeroed.",
    example: r#"
kernel.func @example(%x: memref<32x4xf32>, %y: memref<32x4xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<32x4xf32, 3>
  kernel.async_copy %m[%t, %zero], %x[%t, %zero] {bytes = 16}
  kernel.async_commit
  kernel.async_wait {pending = 0}
  kernel.barrier
  %v = kernel.read %m[%t, %zero] : vector<4xf32>
  kernel.write %v, %y[%t, %zero]
  kernel.return
}
"#,
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
    example: ASYNC_COPY.example,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_commit")
};

pub static ASYNC_WAIT: OpDef = OpDef {
    summary: "Waits until at most `pending` of this thread's newest groups are unfinished.",
    example: ASYNC_COPY.example,
    attrs: &[attr("pending", AttrKind::I64, "Groups that may still run.")],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_wait")
};

pub static TENSOR_PREFETCH: OpDef = OpDef {
    summary: "Fetches a tensor map into its cache.",
    example: TENSOR_LOAD.example,
    operands: &[operand("map", TENSOR_MAP)],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.tensor_prefetch")
};

pub static BOX_PREFETCH: OpDef = OpDef {
    summary: "Starts the copy of a box of a tensor into the second-level cache.",
    doc: "Nothing waits for it: a later read of the box may find it there. `coords` are as `kernel.tensor_load`'s. One thread issues it.",
    example: TENSOR_LOAD.example,
    operands: &[operand("map", TENSOR_MAP), variadic("coords", INDEX).bracketed()],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.box_prefetch")
};

pub static TENSOR_LOAD: OpDef = OpDef {
    summary: "Starts the copy of a box of a tensor into shared memory (TMA); its bytes are counted by an mbarrier.",
    doc: "`coords` are the box's first element, innermost dimension first, as the tensor map's. Elements out of bounds are zero and count. \
A box of fewer rows than the target goes to the first ones, and what the others hold is undefined. One thread issues it. With `multicast`, the box goes to the same place in every block of the cluster named by that mask operand.",
    example: r#"
kernel.func @example(%x: !rc.tensor_map, %y: memref<32x8xbf16>) attributes {phase = thread, target = cuda, threads = 32, tensor_maps = [#rc.tensor_map<tensor = memref<32x64xbf16>, box = [32, 64], swizzle = 128>], grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %tile = kernel.alloc {align = 1024} : memref<32x64xbf16, 3>
  %bar = kernel.alloc {align = 8} : memref<1xi64, 3>
  kernel.if %first ({
    kernel.tensor_prefetch %x
    kernel.mbarrier_init %bar[%zero] {count = 1}
    kernel.fence {kind = mbarrier_init}
  })
  kernel.barrier
  kernel.if %first ({
    kernel.box_prefetch %x[%zero, %zero]
    kernel.mbarrier_expect %bar[%zero] {bytes = 4096}
    kernel.tensor_load %tile, %x[%zero, %zero], %bar[%zero]
  })
  kernel.mbarrier_wait %bar[%zero] parity(%zero)
  %v = kernel.read %tile[%t, %zero] {swizzle = 128} : vector<8xbf16>
  kernel.write %v, %y[%t, %zero]
  kernel.return
}
"#,
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
    example: r#"
kernel.func @example(%x: memref<32x8xbf16>, %y: !rc.tensor_map) attributes {phase = thread, target = cuda, threads = 32, tensor_maps = [#rc.tensor_map<tensor = memref<32x8xbf16>, box = [32, 8], swizzle = 0>], grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %tile = kernel.alloc {align = 128} : memref<32x8xbf16, 3>
  %v = kernel.read %x[%t, %zero] : vector<8xbf16>
  kernel.write %v, %tile[%t, %zero]
  kernel.fence {kind = async_shared}
  kernel.barrier
  kernel.if %first ({
    kernel.tensor_store %tile, %y[%zero, %zero]
    kernel.bulk_commit
    kernel.bulk_wait {pending = 0}
  })
  kernel.return
}
"#,
    operands: &[operand("source", SHARED), operand("map", TENSOR_MAP), variadic("coords", INDEX).bracketed()],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.tensor_store")
};

pub static BULK_COMMIT: OpDef = OpDef {
    summary: "Closes this thread's group of bulk stores.",
    example: TENSOR_STORE.example,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.bulk_commit")
};

pub static BULK_WAIT: OpDef = OpDef {
    summary: "Waits until at most `pending` bulk groups are unfinished: done, or with `read` only done with reading shared memory.",
    example: TENSOR_STORE.example,
    attrs: &[
        attr("pending", AttrKind::I64, "Groups that may still run."),
        attr("read", AttrKind::Bool, "Wait for the reads only.").default(AttrDefault::Bool(false)),
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.bulk_wait")
};
