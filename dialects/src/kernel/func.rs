//! `kernel.func` and where a program stands in its grid.

use crate::constraints::INDEX;
use rc_ir::op_def::*;
use rc_ir::{Dim, OpDef, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[&FUNC, &RETURN, &PROGRAM_ID, &THREAD_ID, &EXTENT];

pub static FUNC: OpDef = OpDef {
    summary: "A kernel: a program run for every point of a grid.",
    doc: "Arguments are memrefs and tensor maps. Machine code takes a pointer (or a tensor map) for each argument in order, \
then an i64 for each symbol of `rc.symbols` in order: sizes and strides follow from the memrefs' symbolic types. \
`grid` gives the number of programs along x, y, z, over the symbols; programs run in any order, also at once. \
On a GPU a program is a block of `threads` threads.",
    example: r#"
kernel.func @scale(%x: memref<s x 64 x f32>, %y: memref<s x 64 x f32>) attributes {phase = tile, target = cpu, grid = [s, 1, 1], rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %i = kernel.program_id {axis = 0} : index
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%i, %zero] {dims = [0, 1]} : !rc.tile<1x64xf32>
  %b = core.add %a, %a : !rc.tile<1x64xf32>
  kernel.store %b, %y[%i, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    attrs: &[
        attr("sym_name", AttrKind::Str, "The kernel's name."),
        attr("function_type", AttrKind::Type, "Memrefs and tensor maps, no results."),
        attr("phase", AttrKind::Enum(&["tile", "placed", "thread"]), "Which of the dialect's phases it is in."),
        attr("target", AttrKind::Enum(&["cpu", "cuda"]), "The machine that it is scheduled for."),
        attr("grid", AttrKind::Shape, "Programs along x, y, z."),
        attr("threads", AttrKind::I64, "Threads of a program.").default(AttrDefault::Int(1)),
        attr("cluster", AttrKind::I64Array, "Blocks of a cluster along x, y, z (sm_90).").optional(),
        attr("turns", AttrKind::I64, "Before the thread phase: how many times `threads` threads compute, each with tiles of their own, in turns.").optional(),
        attr("epilogue_stages", AttrKind::I64, "Before the thread phase: how many boxes of what a product's epilogue reads each warpgroup has in shared memory at once.").optional(),
        attr("min_blocks", AttrKind::I64, "Blocks that an SM should hold at once: bounds registers.").optional(),
        attr(
            "prefer_l1",
            AttrKind::Bool,
            "Whether its blocks read the same memory, for which they need the first-level cache: on a GPU no more of that becomes shared memory than they take.",
        )
        .default(AttrDefault::Bool(false)),
        attr(
            "tensor_maps",
            AttrKind::Array,
            "For each argument that is a tensor map, in order, what it describes: \
`#rc.tensor_map<tensor = memref<m x k x bf16>, box = [128, 64], swizzle = 128>`, the box outermost dimension first. \
The host encodes it from the address of that tensor: of the launch's operand `arg` where the map names one (such arguments come \
last and have no operand of their own), else of the operand in its place.",
        )
        .optional(),
        attr(
            "flush",
            AttrKind::Bool,
            "Whether subnormal numbers count as zero, read or computed (x86): a multiply-add with one takes a hundred cycles and more there.",
        )
        .default(AttrDefault::Bool(false)),
        attr("origin", AttrKind::Str, "The operations it came from.").optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED).union(Traits::SINGLE_BLOCK),
    ..OpDef::new("rc.kernel.func")
};

pub static RETURN: OpDef = OpDef {
    summary: "Ends a `kernel.func`.",
    example: FUNC.example,
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.return")
};

pub static PROGRAM_ID: OpDef = OpDef {
    summary: "The program's place along an axis of the grid, from 0.",
    example: FUNC.example,
    results: &[result("id", INDEX)],
    attrs: &[attr("axis", AttrKind::I64, "0 (x), 1 (y) or 2 (z).")],
    effects: Effects::Pure,
    infer: Some(infer_index),
    verify: Some(|op| match op.int("axis") {
        Some(0..=2) => Ok(()),
        _ => Err(op.error("expects 'axis' to be 0, 1 or 2")),
    }),
    ..OpDef::new("rc.kernel.program_id")
};

pub static THREAD_ID: OpDef = OpDef {
    summary: "The thread's number in its block, from 0. On the CPU always 0.",
    example: r#"
kernel.func @example(%y: memref<32xi64>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  %v = core.convert %t : i64
  kernel.write %v, %y[%t]
  kernel.return
}
"#,
    results: &[result("id", INDEX)],
    effects: Effects::Pure,
    infer: Some(infer_index),
    ..OpDef::new("rc.kernel.thread_id")
};

pub static EXTENT: OpDef = OpDef {
    summary: "The value of an expression over the kernel's symbols.",
    example: r#"
kernel.func @example(%x: memref<s x f32>, %y: memref<1xi64>) attributes {phase = thread, target = cpu, rc.symbols = #rc.symbols<s = [1, 64, 1]>, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %e = kernel.extent {expr = [4 * s + 1]} : index
  %v = core.convert %e : i64
  kernel.write %v, %y[%zero]
  kernel.return
}
"#,
    results: &[result("value", INDEX)],
    attrs: &[attr("expr", AttrKind::Shape, "One expression.")],
    effects: Effects::Pure,
    infer: Some(infer_index),
    verify: Some(|op| match op.attr("expr").and_then(|a| a.as_shape()) {
        Some([dim]) if *dim != Dim::Dynamic => Ok(()),
        _ => Err(op.error("expects one expression in 'expr'")),
    }),
    ..OpDef::new("rc.kernel.extent")
};

pub(super) fn infer_index(_: &InferArgs) -> Result<Types, String> {
    Ok(smallvec![Type::index()])
}
