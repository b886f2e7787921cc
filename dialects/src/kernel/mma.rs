//! Matrix units: `mma.sync` of a warp (sm_80) and `wgmma` of a warpgroup (sm_90a), with their loads.

use crate::constraints::{INDEX, SHARED, VECTOR};
use rc_ir::op_def::*;
use rc_ir::{OpDef, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[&LDMATRIX, &STMATRIX, &MMA, &WGMMA, &WGMMA_FENCE, &WGMMA_COMMIT, &WGMMA_WAIT];

const ORDERED: Effects = Effects::Channel("sync");

pub static LDMATRIX: OpDef = OpDef {
    summary: "Loads four 8x8 matrices of 16-bit elements, or 8x4 of f32, from shared memory into the warp's fragments (ldmatrix.x4).",
    doc: "Thread t gives the address of row t % 8 of matrix t / 8; it receives, of each matrix i, elements 2(t % 4) and \
2(t % 4) + 1 of row t / 4 as lanes 2i and 2i + 1 of a vector of 8 (`trans`: of the transposed matrix). Of f32 it receives element t % 4 of \
row t / 4 as lane i of a vector of 4, never transposed.",
    example: r#"
kernel.func @example(%x: memref<16x16xbf16>, %y: memref<32x8xbf16>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %sixteen = core.constant {value = 16 : index} : index
  %eight = core.constant {value = 8 : index} : index
  %row = core.rem %t, %sixteen : index
  %half = core.div %t, %sixteen : index
  %col = core.mul %half, %eight : index
  %m = kernel.alloc : memref<16x16xbf16, 3>
  %v = kernel.read %x[%row, %col] : vector<8xbf16>
  kernel.write %v, %m[%row, %col]
  kernel.barrier
  %f = kernel.ldmatrix %m[%row, %col] : vector<8xbf16>
  kernel.write %f, %y[%t, %zero]
  kernel.return
}
"#,
    operands: &[operand("source", SHARED), variadic("indices", INDEX).bracketed()],
    results: &[result("fragments", VECTOR)],
    attrs: &[
        attr("trans", AttrKind::Bool, "Transpose each matrix.").default(AttrDefault::Bool(false)),
        attr("swizzle", AttrKind::I64, "0, 32, 64 or 128.").default(AttrDefault::Int(0)),
    ],
    effects: Effects::Read,
    ..OpDef::new("rc.kernel.ldmatrix")
};

pub static STMATRIX: OpDef = OpDef {
    summary: "Stores four 8x8 matrices of 16-bit elements from the warp's fragments to shared memory (stmatrix.x4, sm_90).",
    example: r#"
kernel.func @example(%x: memref<32x8xbf16>, %y: memref<16x16xbf16>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %sixteen = core.constant {value = 16 : index} : index
  %eight = core.constant {value = 8 : index} : index
  %row = core.rem %t, %sixteen : index
  %half = core.div %t, %sixteen : index
  %col = core.mul %half, %eight : index
  %m = kernel.alloc : memref<16x16xbf16, 3>
  %f = kernel.read %x[%t, %zero] : vector<8xbf16>
  kernel.stmatrix %f, %m[%row, %col]
  kernel.barrier
  %v = kernel.read %m[%row, %col] : vector<8xbf16>
  kernel.write %v, %y[%row, %col]
  kernel.return
}
"#,
    operands: &[operand("fragments", VECTOR), operand("target", SHARED), variadic("indices", INDEX).bracketed()],
    attrs: &[
        attr("trans", AttrKind::Bool, "Transpose each matrix.").default(AttrDefault::Bool(false)),
        attr("swizzle", AttrKind::I64, "0, 32, 64 or 128.").default(AttrDefault::Int(0)),
    ],
    effects: Effects::Write,
    ..OpDef::new("rc.kernel.stmatrix")
};

pub static MMA: OpDef = OpDef {
    summary: "acc + a b of a warp: m16n8k16 for bf16 and f16, m16n8k8 for tf32, float32 accumulators (mma.sync).",
    doc: "Fragments as PTX defines them: a is 8 elements a thread, b 4, the accumulators 4; of tf32 a is 4 and b 2.",
    example: r#"
kernel.func @example(%a: memref<32x8xbf16>, %b: memref<32x4xbf16>, %y: memref<32x4xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %x = kernel.read %a[%t, %zero] : vector<8xbf16>
  %w = kernel.read %b[%t, %zero] : vector<4xbf16>
  %none = core.constant {value = dense<0.0> : vector<4xf32>} : vector<4xf32>
  %c = kernel.mma %x, %w, %none : vector<4xf32>
  kernel.write %c, %y[%t, %zero]
  kernel.return
}
"#,
    operands: &[operand("a", VECTOR), operand("b", VECTOR), operand("acc", VECTOR)],
    results: &[result("result", VECTOR)],
    effects: Effects::Channel("warp"),
    infer: Some(|args| Ok(smallvec![args.operand(2)?])),
    verify: Some(|op| {
        let lanes: Vec<_> = op.operand_types().iter().map(|t| t.static_shape().unwrap_or_default()).collect();
        let [a, b] = if op.operand_types()[0].elem() == Type::tf32() { [4, 2] } else { [8, 4] };
        if lanes == [vec![a], vec![b], vec![4]] {
            Ok(())
        } else {
            Err(op.error(format!("expects vectors of {a}, {b} and 4 elements, got {lanes:?}")))
        }
    }),
    ..OpDef::new("rc.kernel.mma")
};

pub static WGMMA: OpDef = OpDef {
    summary: "Starts acc + a b of a warpgroup: m64nNk16 for bf16 and f16, m64nNk8 for tf32, float32 accumulators (wgmma.mma_async).",
    doc: "a is a [64, 16] part of a shared-memory tile or, with `a` a vector of 8, the warpgroup's registers; b a [16, N] part of a shared tile. \
Of tf32 they are [64, 8], a vector of 4, and [8, N], and lie with k innermost alone. \
Tiles lie as tensor maps with the `swizzle` write them: rows of `swizzle` bytes (a: [m, k], k innermost; b: [n, k], k innermost, or with `b_t` \
[k, n], n innermost; `a_t` likewise), `k` is the element offset along k into the tile. The accumulators are a vector of N / 2 lanes: lane 8j/2… \
as PTX defines the wgmma D fragment. The result is defined after kernel.wgmma_wait.",
    example: r#"
kernel.func @example(%a: !rc.tensor_map, %b: !rc.tensor_map, %y: memref<128x4xf32>) attributes {phase = thread, target = cuda, threads = 128, tensor_maps = [#rc.tensor_map<tensor = memref<64x64xbf16>, box = [64, 64], swizzle = 128>, #rc.tensor_map<tensor = memref<8x64xbf16>, box = [8, 64], swizzle = 128>], grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %at = kernel.alloc {align = 1024} : memref<64x64xbf16, 3>
  %bt = kernel.alloc {align = 1024} : memref<8x64xbf16, 3>
  %bar = kernel.alloc {align = 8} : memref<1xi64, 3>
  kernel.if %first ({
    kernel.mbarrier_init %bar[%zero] {count = 1}
    kernel.fence {kind = mbarrier_init}
  })
  kernel.barrier
  kernel.if %first ({
    kernel.mbarrier_expect %bar[%zero] {bytes = 9216}
    kernel.tensor_load %at, %a[%zero, %zero], %bar[%zero]
    kernel.tensor_load %bt, %b[%zero, %zero], %bar[%zero]
  })
  kernel.mbarrier_wait %bar[%zero] parity(%zero)
  %none = core.constant {value = dense<0.0> : vector<4xf32>} : vector<4xf32>
  kernel.wgmma_fence
  %started = kernel.wgmma %at, %bt, %none {n = 8} : vector<4xf32>
  kernel.wgmma_commit
  %c = kernel.wgmma_wait %started {pending = 0} : vector<4xf32>
  kernel.write %c, %y[%t, %zero]
  kernel.return
}
"#,
    operands: &[operand("a", ANY), operand("b", SHARED), operand("acc", VECTOR), optional("k", INDEX)],
    results: &[result("result", VECTOR)],
    attrs: &[
        attr("n", AttrKind::I64, "N: a multiple of 8, at most 256."),
        attr("a_t", AttrKind::Bool, "a is stored [k, m].").default(AttrDefault::Bool(false)),
        attr("b_t", AttrKind::Bool, "b is stored [k, n].").default(AttrDefault::Bool(false)),
        attr("swizzle", AttrKind::I64, "Bytes of the swizzle: 32, 64 or 128.").default(AttrDefault::Int(128)),
        attr("zero", AttrKind::Bool, "Ignore acc: start from zero.").default(AttrDefault::Bool(false)),
        attr("k_offset", AttrKind::I64, "Element offset along k, where it is fixed.").default(AttrDefault::Int(0)),
    ],
    effects: ORDERED,
    infer: Some(|args| Ok(smallvec![args.operand(2)?])),
    ..OpDef::new("rc.kernel.wgmma")
};

pub static WGMMA_FENCE: OpDef = OpDef {
    summary: "Orders the warpgroup's register and memory accesses before the next wgmma.",
    example: WGMMA.example,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.wgmma_fence")
};

pub static WGMMA_COMMIT: OpDef = OpDef {
    summary: "Closes the warpgroup's group of wgmmas.",
    example: WGMMA.example,
    effects: ORDERED,
    ..OpDef::new("rc.kernel.wgmma_commit")
};

pub static WGMMA_WAIT: OpDef = OpDef {
    summary: "Waits until at most `pending` groups of wgmmas are unfinished, and passes accumulators through.",
    doc: "Accumulators in flight are undefined until they have passed a wait. What a wgmma reads, from memory or registers, may not be written \
before the wait: a loop whose step computes a left operand waits in that step.",
    example: WGMMA.example,
    operands: &[variadic("accs", VECTOR)],
    results: &[variadic_result("results", VECTOR)],
    attrs: &[attr("pending", AttrKind::I64, "Groups that may still run.")],
    effects: ORDERED,
    infer: Some(|args| Ok(args.operands.iter().copied().collect())),
    ..OpDef::new("rc.kernel.wgmma_wait")
};
