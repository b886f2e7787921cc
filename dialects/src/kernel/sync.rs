//! Synchronization: barriers, `mbarrier`s, fences, register budgets, dependent launches.

use crate::constraints::{I1, INDEX, SHARED};
use rc_ir::op_def::*;
use rc_ir::{OpDef, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[
    &BARRIER,
    &MBARRIER_INIT,
    &MBARRIER_ARRIVE,
    &ASYNC_ARRIVE,
    &MBARRIER_EXPECT,
    &MBARRIER_WAIT,
    &FENCE,
    &SET_MAX_REGISTERS,
    &ELECT,
    &GRID_WAIT,
    &GRID_LAUNCH,
    &CLUSTER_RANK,
    &CLUSTER_BARRIER,
];

const ORDERED: Effects = Effects::Channel("sync");

pub static BARRIER: OpDef = OpDef {
    summary: "Waits until the block's threads are here; with an id, until `threads` threads are at that named barrier.",
    doc: "The barrier's number is `id`, plus the operand `at` where there is one: warpgroups have one each.",
    example: super::ALLOC.example,
    operands: &[optional("at", INDEX)],
    attrs: &[
        attr("id", AttrKind::I64, "0 to 15; 0 is the block's own.").default(AttrDefault::Int(0)),
        attr("threads", AttrKind::I64, "How many threads meet; all by default.").optional(),
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.barrier")
};

pub static MBARRIER_INIT: OpDef = OpDef {
    summary: "Sets an mbarrier in shared memory (an i64) to wait for `count` arrivals in each phase.",
    example: r#"
kernel.func @example(%y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %bar = kernel.alloc {align = 8} : memref<1xi64, 3>
  kernel.if %first ({
    kernel.mbarrier_init %bar[%zero] {count = 32}
  })
  kernel.barrier
  kernel.mbarrier_arrive %bar[%zero]
  kernel.mbarrier_wait %bar[%zero] parity(%zero)
  %one = core.constant {value = 1.0 : f32} : f32
  kernel.write %one, %y[%t]
  kernel.return
}
"#,
    operands: &[operand("barriers", SHARED), variadic("indices", INDEX).bracketed()],
    attrs: &[attr("count", AttrKind::I64, "Arrivals that complete a phase.")],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.mbarrier_init")
};

pub static MBARRIER_ARRIVE: OpDef = OpDef {
    summary: "Arrives at an mbarrier; with `rank`, at that of the cluster's block of this rank.",
    doc: "Whoever waits for the phase sees what the thread wrote before, in the thread's own block; in another, that the thread has read, but not what it wrote.",
    example: MBARRIER_INIT.example,
    operands: &[operand("barriers", SHARED), variadic("indices", INDEX).bracketed(), optional("rank", INDEX)],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.mbarrier_arrive")
};

pub static ASYNC_ARRIVE: OpDef = OpDef {
    summary: "Arrives at an mbarrier once this thread's `kernel.async_copy`s so far are done; the thread goes on (cp.async.mbarrier.arrive.noinc).",
    example: r#"
kernel.func @example(%x: memref<32x4xf32>, %y: memref<32x4xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %m = kernel.alloc : memref<32x4xf32, 3>
  %bar = kernel.alloc {align = 8} : memref<1xi64, 3>
  kernel.if %first ({
    kernel.mbarrier_init %bar[%zero] {count = 32}
  })
  kernel.barrier
  kernel.async_copy %m[%t, %zero], %x[%t, %zero] {bytes = 16}
  kernel.async_arrive %bar[%zero]
  kernel.mbarrier_wait %bar[%zero] parity(%zero)
  %v = kernel.read %m[%t, %zero] : vector<4xf32>
  kernel.write %v, %y[%t, %zero]
  kernel.return
}
"#,
    operands: &[operand("barriers", SHARED), variadic("indices", INDEX).bracketed()],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.async_arrive")
};

pub static MBARRIER_EXPECT: OpDef = OpDef {
    summary: "Arrives at an mbarrier and makes its phase wait for so many bytes of asynchronous copies.",
    example: super::TENSOR_LOAD.example,
    operands: &[operand("barriers", SHARED), variadic("indices", INDEX).bracketed()],
    attrs: &[attr("bytes", AttrKind::I64, "Bytes that copies of this phase deliver.")],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.mbarrier_expect")
};

pub static MBARRIER_WAIT: OpDef = OpDef {
    summary: "Waits until the phase of the given parity (0 or 1) of an mbarrier has completed.",
    example: MBARRIER_INIT.example,
    operands: &[
        operand("barriers", SHARED),
        variadic("indices", INDEX).bracketed(),
        OperandDef { arity: Arity::One, ..optional("parity", INDEX) },
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.mbarrier_wait")
};

pub static FENCE: OpDef = OpDef {
    summary: "Orders memory: `async_shared` makes a thread's shared-memory stores visible to async copies and wgmma; \
`mbarrier_init` makes initialized mbarriers visible to them.",
    example: super::TENSOR_STORE.example,
    attrs: &[attr("kind", AttrKind::Enum(&["async_shared", "mbarrier_init"]), "Which fence.")],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.fence")
};

pub static SET_MAX_REGISTERS: OpDef = OpDef {
    summary: "Changes how many registers each thread of the warpgroup may use (setmaxnreg).",
    example: r#"
kernel.func @example(%x: memref<128xf32>, %y: memref<128xf32>) attributes {phase = thread, target = cuda, threads = 128, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  kernel.set_max_registers {count = 40, action = decrease}
  %v = kernel.read %x[%t] : f32
  kernel.write %v, %y[%t]
  kernel.return
}
"#,
    attrs: &[
        attr("count", AttrKind::I64, "A multiple of 8, 24 to 256."),
        attr("action", AttrKind::Enum(&["increase", "decrease"]), "Which way."),
    ],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.set_max_registers")
};

pub static ELECT: OpDef = OpDef {
    summary: "True in exactly one thread of the (converged) warp.",
    example: r#"
kernel.func @example(%y: memref<1xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %one = core.constant {value = 1.0 : f32} : f32
  %chosen = kernel.elect : i1
  kernel.write %one, %y[%zero] pred(%chosen)
  kernel.return
}
"#,
    results: &[result("elected", I1)],
    effects: ORDERED,
    infer: Some(|_| Ok(smallvec![Type::i1()])),
    ..OpDef::new("rc.kernel.elect")
};

pub static GRID_WAIT: OpDef = OpDef {
    summary: "Waits until the kernels launched before this one are done (griddepcontrol.wait).",
    doc: "A kernel that starts with it, in its entry block, is launched before those have ended, on sm_90 and newer; on older GPUs \
          it is nothing.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  kernel.grid_wait
  %v = kernel.read %x[%t] : f32
  kernel.grid_launch
  kernel.write %v, %y[%t]
  kernel.return
}
"#,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.grid_wait")
};

pub static GRID_LAUNCH: OpDef = OpDef {
    summary: "Lets the next kernel of the stream start (griddepcontrol.launch_dependents).",
    example: GRID_WAIT.example,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.grid_launch")
};

pub static CLUSTER_RANK: OpDef = OpDef {
    summary: "The block's rank in its cluster (sm_90), from 0.",
    example: r#"
kernel.func @example(%y: memref<64xi64>) attributes {phase = thread, target = cuda, threads = 32, cluster = [2, 1, 1], grid = [2, 1, 1]} {
  %t = kernel.thread_id : index
  %rank = kernel.cluster_rank : index
  %size = core.constant {value = 32 : index} : index
  %start = core.mul %rank, %size : index
  %at = core.add %start, %t : index
  kernel.cluster_barrier
  %v = core.convert %rank : i64
  kernel.write %v, %y[%at]
  kernel.return
}
"#,
    results: &[result("rank", INDEX)],
    effects: Effects::Pure,
    infer: Some(super::func::infer_index),
    ..OpDef::new("rc.kernel.cluster_rank")
};

pub static CLUSTER_BARRIER: OpDef = OpDef {
    summary: "Waits until all threads of the cluster are here; their shared memory and mbarriers are then seen (sm_90).",
    example: CLUSTER_RANK.example,
    attrs: &[attr(
        "relaxed",
        AttrKind::Bool,
        "What was written before is not seen; mbarriers are, after `fence {kind = mbarrier_init}`. Nothing waits for memory.",
    )
    .default(AttrDefault::Bool(false))],
    effects: ORDERED,
    ..OpDef::new("rc.kernel.cluster_barrier")
};
