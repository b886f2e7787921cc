//! The `host` dialect: the program around the kernels.
//!
//! First on tensors, `host.launch` giving its results; after plan-buffers on memory: one arena, views of it at
//! planned offsets, launches that name every buffer. Sizes are expressions over the function's symbols.

mod control;
mod foreign;

use crate::constraints::{MEMREF, TENSOR};
pub use control::{CALL, FOR, IF, WHILE};
pub use foreign::FOREIGN;
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result};

/// All operations of the dialect.
pub static OPS: &[&OpDef] =
    &[&FUNC, &RETURN, &LAUNCH, &VIEW, &CONSTANT, &COPY, &CALL, &IF, &WHILE, &FOR, &FOREIGN, &ASSERT, &BINARY];

pub static FUNC: OpDef = OpDef {
    summary: "A planned function: takes memory for its inputs and results, and one arena.",
    doc: "The arguments are the inputs, then the results, as memrefs with the types that the function had, then the arena, \
a `memref<?xi8>` of `arena` bytes. `inputs` says how many are inputs. A result that aliases an input or another result is copied; one that \
`updates` names is left in an input's memory, and its own is not used.",
    example: r#"
kernel.func @double(%x: memref<s x f32>, %y: memref<s x f32>) attributes {phase = tile, target = cpu, grid = [(s + 7) floordiv 8, 1, 1], rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %eight = core.constant {value = 8 : index} : index
  %p = kernel.program_id {axis = 0} : index
  %i = core.mul %p, %eight : index
  %a = kernel.load %x[%i] {dims = [0]} : !rc.tile<8xf32>
  %b = core.add %a, %a : !rc.tile<8xf32>
  kernel.store %b, %y[%i] {dims = [0]}
  kernel.return
}
host.func @main(%x: memref<t x f32>, %y: memref<t x f32>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [4 * t], rc.symbols = #rc.symbols<t = [1, 64, 1]>} {
  %tmp = host.view %arena {offset = [0]} : memref<t x f32>
  host.launch %x, %tmp {callee = "double", bind = <s = #rc.shape<[t]>>}
  host.launch %tmp, %y {callee = "double", bind = <s = #rc.shape<[t]>>}
  host.return
}
"#,
    attrs: &[
        attr("sym_name", AttrKind::Str, "The function's name."),
        attr("function_type", AttrKind::Type, "Memrefs, no results."),
        attr("inputs", AttrKind::I64, "How many arguments are inputs."),
        attr("arena", AttrKind::Shape, "The arena's size in bytes, one expression."),
        attr(
            "constant",
            AttrKind::I64Array,
            "The inputs that are the same at every call: those of the first call count.",
        )
        .optional(),
        attr(
            "names",
            AttrKind::Array,
            "What the inputs are called outside (`rc.name`), where the text calls them otherwise.",
        )
        .optional(),
        attr("updated", AttrKind::I64Array, "The inputs whose memory it writes to.").optional(),
        attr(
            "updates",
            AttrKind::I64Array,
            "Pairs of result and input numbers: the result is left in the input's memory.",
        )
        .optional(),
        attr("guard", AttrKind::I64, "Bytes before and after each buffer in the arena that nothing may write to.")
            .optional(),
        attr(
            "slabs",
            AttrKind::I64Array,
            "Pairs of numbers of bytes in the arena, where each slab begins and ends. Each buffer's view says which it is in; a caller may hold slabs apart, \
each from the first use of one of its buffers to the last. Their bytes may overlap, their buffers do not while both are in use.",
        )
        .optional(),
        attr("merged", AttrKind::Bool, "Whether launches that may be one are.").default(AttrDefault::Bool(false)),
        attr("sym_visibility", AttrKind::Str, "`private` where only this module calls it.").optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::SYMBOL.union(Traits::FUNCTION).union(Traits::ISOLATED).union(Traits::SINGLE_BLOCK),
    ..OpDef::new("rc.host.func")
};

pub static RETURN: OpDef = OpDef {
    summary: "Ends a `host.func`.",
    example: FUNC.example,
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.host.return")
};

pub static LAUNCH: OpDef = OpDef {
    summary: "Runs a kernel over its grid.",
    doc: "On tensors the operands are the kernel's inputs and the results its outputs, in the kernel's argument order \
(inputs, then outputs, then scratch). On memory the operands are all of them. `bind` gives the kernel's symbols over the caller's; \
`scratch` the sizes in bytes of buffers that the kernel needs besides. \
`inplace` lists pairs (output, input) that may share memory; the outputs of `updates` begin as an input: they have its memory, where that ends its \
life here, or a copy. The callee is a plain string so that generic dumps load in tools that resolve symbols.",
    example: FUNC.example,
    operands: &[variadic("args", ANY)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("callee", AttrKind::Str, "The kernel's symbol."),
        attr("bind", AttrKind::Dialect("bind"), "The callee's symbols, each as a one-element shape.").optional(),
        attr("scratch", AttrKind::Shape, "Bytes of each scratch buffer.").optional(),
        attr("inplace", AttrKind::I64Array, "Pairs of output and input numbers that may share memory.").optional(),
        attr("updates", AttrKind::I64Array, "Pairs of output and input numbers: the output begins as the input.")
            .optional(),
        attr(
            "joins",
            AttrKind::Shape,
            "The output is the inputs side by side, so that they may be parts of its memory: its rows, and of each input the first column and the columns.",
        )
        .optional(),
        attr(
            "pads",
            AttrKind::Shape,
            "The output is the input with elements around it, so that it may be a part of its memory: of each dimension the output's size, the elements before, and the input's size.",
        )
        .optional(),
        attr("padding", AttrKind::Any, "The element around an input that is padded.").optional(),
        attr(
            "after",
            AttrKind::I64Array,
            "How many launches back those are that it waits for, from 1 on; all before it, where it does not say so, and in a function that is called.",
        )
        .optional(),
    ],
    effects: Effects::Channel("stream"),
    verify: Some(verify_launch),
    ..OpDef::new("rc.host.launch")
};

fn verify_launch(op: OpRef) -> Result {
    match op.ints("after").unwrap_or_default().iter().find(|&&distance| distance < 1) {
        Some(distance) => Err(op.error(format!("waits for the launch {distance} back")).help("1 is the one before it")),
        None => Ok(()),
    }
}

pub static VIEW: OpDef = OpDef {
    summary: "A buffer at an offset in bytes into the arena, or the same bytes of a buffer as another shape.",
    example: FUNC.example,
    operands: &[operand("memory", MEMREF)],
    results: &[result("buffer", MEMREF)],
    attrs: &[
        attr("offset", AttrKind::Shape, "One expression, in bytes."),
        attr("slab", AttrKind::I64, "Of a buffer in the arena: its slab among those of the function.").optional(),
    ],
    effects: Effects::Pure,
    ..OpDef::new("rc.host.view")
};

pub static CONSTANT: OpDef = OpDef {
    summary: "A constant in memory, resident on the device.",
    example: r#"
host.func @main(%y: memref<4xf32>, %arena: memref<?xi8>) attributes {inputs = 0, arena = [0]} {
  %c = host.constant {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : memref<4xf32>
  host.copy %c, %y
  host.return
}
"#,
    results: &[result("buffer", MEMREF)],
    attrs: &[attr("value", AttrKind::Elements, "The constant.")],
    effects: Effects::Pure,
    verify: Some(verify_constant),
    ..OpDef::new("rc.host.constant")
};

fn verify_constant(op: OpRef) -> Result {
    let (value, memory) = (op.attr("value").and_then(|v| v.type_of()), op.result_types()[0]);
    match value {
        Some(ty) if ty.shape() == memory.shape() && ty.elem() == memory.elem() => Ok(()),
        _ => Err(op.error(format!("has a value of another type than its memory, {memory}"))),
    }
}

pub static COPY: OpDef = OpDef {
    summary: "Copies a buffer to another of the same number of bytes.",
    example: CONSTANT.example,
    operands: &[operand("source", MEMREF), operand("target", MEMREF)],
    effects: Effects::Channel("stream"),
    verify: Some(|op| match op.operand_types().iter().find(|ty| !ty.is_row_major()) {
        Some(ty) => Err(op.error(format!("copies {ty}: copies are of whole rows")).help("copy row-major memrefs")),
        None => Ok(()),
    }),
    ..OpDef::new("rc.host.copy")
};

pub static ASSERT: OpDef = OpDef {
    summary: "Sizes that have to be equal.",
    doc: "`sizes[i]` is `expected[i]` for the values that the arguments' shapes give to the symbols. A call for which that is not so is an \
error, before anything runs.",
    example: r#"
host.func @main(%x: memref<s x f32>, %y: memref<s x f32>, %arena: memref<?xi8>) attributes {inputs = 1, arena = [0], rc.symbols = #rc.symbols<s = [2, 64, 2]>} {
  host.assert {sizes = [s], expected = [s floordiv 2 * 2]}
  host.copy %x, %y
  host.return
}
"#,
    attrs: &[
        attr("sizes", AttrKind::Shape, "Expressions over the function's symbols."),
        attr("expected", AttrKind::Shape, "As many."),
    ],
    effects: Effects::Channel("stream"),
    verify: Some(verify_assert),
    ..OpDef::new("rc.host.assert")
};

fn verify_assert(op: OpRef) -> Result {
    let count = |name: &str| op.attr(name).and_then(|a| a.as_shape()).map_or(0, <[_]>::len);
    match (count("sizes"), count("expected")) {
        (a, b) if a == b => Ok(()),
        (a, b) => Err(op.error(format!("has {a} sizes, and {b} that are expected"))),
    }
}

pub static BINARY: OpDef = OpDef {
    summary: "A kernel's machine code.",
    doc: "`code` names a resource: relocatable object code (format `elf`) or PTX (format `ptx`). The code takes a pointer for each \
of `args` arguments, in order (a tensor map for those that `tensor_maps` describes), then an i64 for each symbol of `rc.symbols` in order. `grid`, `threads`, \
`cluster`, `prefer_l1` as of kernel.func; `shared` and `scratch` are bytes of dynamic shared memory and of a thread's own memory. `early` code waits by itself for the kernels \
launched before it (kernel.grid_wait), and may be started before they have ended.",
    example: r#"
host.binary @double {format = ptx, code = dense_resource<double> : tensor<1408xi8>, arch = "sm_90a", args = 2, grid = [(s + 255) floordiv 256, 1, 1], threads = 256, rc.symbols = #rc.symbols<s = [1, 1024, 1]>}
"#,
    attrs: &[
        attr("sym_name", AttrKind::Str, "The kernel's name, and the code's entry."),
        attr("format", AttrKind::Enum(&["elf", "ptx"]), "What the code is."),
        attr("code", AttrKind::Any, "A dense_resource of i8."),
        attr("arch", AttrKind::Str, "The processor that the code is for."),
        attr("args", AttrKind::I64, "Arguments before the symbols."),
        attr("grid", AttrKind::Shape, "Programs along x, y, z, over the symbols."),
        attr("threads", AttrKind::I64, "Threads of a program.").default(AttrDefault::Int(1)),
        attr("cluster", AttrKind::I64Array, "Blocks of a cluster along x, y, z.").optional(),
        attr("shared", AttrKind::I64, "Dynamic shared memory, bytes.").default(AttrDefault::Int(0)),
        attr("scratch", AttrKind::I64, "Memory of each CPU thread, bytes.").default(AttrDefault::Int(0)),
        attr("early", AttrKind::Bool, "Whether it may start before earlier kernels have ended.")
            .default(AttrDefault::Bool(false)),
        attr("prefer_l1", AttrKind::Bool, "Whether its blocks need the first-level cache.")
            .default(AttrDefault::Bool(false)),
        attr(
            "table",
            AttrKind::Bool,
            "Whether the code takes the pointers of all arguments as one parameter, an array, and no symbols.",
        )
        .default(AttrDefault::Bool(false)),
        attr("tensor_maps", AttrKind::Array, "How the host encodes tensor maps, for each argument that is one.")
            .optional(),
        attr("origin", AttrKind::Str, "The operations it came from.").optional(),
    ],
    traits: Traits::SYMBOL,
    ..OpDef::new("rc.host.binary")
};
