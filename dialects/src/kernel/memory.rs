//! Memory of the *placed* and *thread* phases: allocations, views, and a thread's loads and stores.

use super::async_copy::is_tensor_map;
use crate::constraints::{I1, INDEX, MEMREF, SCALAR_OR_VECTOR};
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[&ALLOC, &VIEW, &CHOOSE, &READ, &WRITE, &PREFETCH, &ATOMIC];

pub static ALLOC: OpDef = OpDef {
    summary: "Memory that lasts while the program runs: the block's shared memory (space 3) or a thread's own (space 5).",
    doc: "Its size is fixed. Contents are undefined at first; the interpreter poisons them. Allocations of a kernel do not \
overlap unless they name the same `overlay`, which says that their uses do not meet.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  %m = kernel.alloc : memref<32xf32, 3>
  %v = kernel.read %x[%t] : f32
  kernel.write %v, %m[%t]
  kernel.barrier
  %last = core.constant {value = 31 : index} : index
  %other = core.sub %last, %t : index
  %r = kernel.read %m[%other] : f32
  kernel.write %r, %y[%t]
  kernel.return
}
"#,
    results: &[result("memory", MEMREF)],
    attrs: &[
        attr("align", AttrKind::I64, "Alignment in bytes.").default(AttrDefault::Int(16)),
        attr("overlay", AttrKind::Str, "Allocations of one overlay start at the same place.").optional(),
    ],
    effects: Effects::Channel("alloc"),
    verify: Some(|op| {
        let ty = op.result_types()[0];
        let space = crate::constraints::memory_space(ty);
        if ty.static_shape().is_some() && (space == 3 || space == 5) {
            return Ok(());
        }
        Err(op.error(format!("expects a memref of fixed size in space 3 or 5, got {ty}")))
    }),
    ..OpDef::new("rc.kernel.alloc")
};

pub static VIEW: OpDef = OpDef {
    summary: "A dense part of a memref, from an element on: the given trailing shape at the given leading indices.",
    doc: "The result has the trailing dimensions of the source, or any shape of the same number of elements; `%source[%i]` \
with fewer indices than dimensions names the start. Used for pipeline stages: stage i of `memref<4x64x64xbf16, 3>` is \
`kernel.view %m[%i] : memref<64x64xbf16, 3>`.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<32xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %t = kernel.thread_id : index
  %stages = kernel.alloc : memref<2x32xf32, 3>
  %one = core.constant {value = 1 : index} : index
  %stage = kernel.view %stages[%one] : memref<32xf32, 3>
  %v = kernel.read %x[%t] : f32
  kernel.write %v, %stage[%t]
  %r = kernel.read %stage[%t] : f32
  kernel.write %r, %y[%t]
  kernel.return
}
"#,
    operands: &[operand("source", MEMREF), variadic("indices", INDEX).bracketed()],
    results: &[result("view", MEMREF)],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (from, to) = (op.body.ty(op.operand(0)), op.result_types()[0]);
        let strided = !from.is_row_major() || !to.is_row_major();
        match strided && (op.operands().len() > 1 || from.seen_as(&to.shape()) != Some(to)) {
            true => Err(op
                .error(format!("views {from} as {to}"))
                .help("the strides must be those of the same elements in the same order")),
            false => Ok(()),
        }
    }),
    ..OpDef::new("rc.kernel.view")
};

const BUFFER: TypeConstraint =
    TypeConstraint { desc: "a ranked memref or !rc.tensor_map", check: |ty| ty.is_memref() || is_tensor_map(ty) };

pub static CHOOSE: OpDef = OpDef {
    summary: "One of several buffers of a type, or tensor maps, by its number.",
    doc: "Machine code of a kernel without tensor maps needs them to be arguments of the kernel, one after the other: their addresses are a table. A number that is none is undefined.",
    example: r#"
kernel.func @example(%a: memref<8xf32>, %b: memref<8xf32>, %x: memref<8xf32>, %y: memref<8xf32>) attributes {phase = thread, target = cpu, grid = [2, 1, 1]} {
  %p = kernel.program_id {axis = 0} : index
  %zero = core.constant {value = 0 : index} : index
  %from = kernel.choose %p, %a, %b : memref<8xf32>
  %to = kernel.choose %p, %x, %y : memref<8xf32>
  %v = kernel.read %from[%zero] : vector<8xf32>
  kernel.write %v, %to[%zero]
  kernel.return
}
"#,
    operands: &[operand("number", INDEX), variadic("buffers", BUFFER)],
    results: &[result("buffer", BUFFER)],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (ty, types) = (op.result_types()[0], op.operand_types());
        match types[1..].iter().all(|&other| other == ty) && types.len() > 1 {
            true => Ok(()),
            false => Err(op.error(format!("chooses among {:?} for a result of type {ty}", &types[1..]))),
        }
    }),
    ..OpDef::new("rc.kernel.choose")
};

pub static READ: OpDef = OpDef {
    summary: "One thread's load: a scalar, or a vector along the last dimension.",
    doc: "With `pred` false nothing is read and the result is zero. With `valid`, only the first that many lanes are read, the others are zero. \
With `skip` the first that many are not read either, and are zero: the index may then lie as far before the first element. \
`align` is the alignment in bytes that the address is known to have: the element's size by default. \
`swizzle` applies to shared memory: the 16-byte chunk number of the address is xored as the tensor-map swizzle of that many bytes does; with one, at most 16 \
bytes are moved.",
    example: r#"
kernel.func @example(%x: memref<n x f32>, %y: memref<n x f32>) attributes {phase = thread, target = cpu, rc.symbols = #rc.symbols<n = [1, 64, 1]>, grid = [(n + 7) floordiv 8, 1, 1]} {
  %eight = core.constant {value = 8 : index} : index
  %p = kernel.program_id {axis = 0} : index
  %i = core.mul %p, %eight : index
  %n = kernel.extent {expr = [n]} : index
  %rest = core.sub %n, %i : index
  %v = kernel.read %x[%i] valid(%rest) : vector<8xf32>
  kernel.write %v, %y[%i] valid(%rest)
  kernel.return
}
"#,
    operands: &[
        operand("source", MEMREF),
        variadic("indices", INDEX).bracketed(),
        optional("pred", I1),
        optional("valid", INDEX),
        optional("skip", INDEX),
    ],
    results: &[result("value", SCALAR_OR_VECTOR)],
    attrs: &[
        attr("align", AttrKind::I64, "Known alignment in bytes.").optional(),
        attr("swizzle", AttrKind::I64, "0, 32, 64 or 128.").default(AttrDefault::Int(0)),
        attr("cache", AttrKind::Enum(&["default", "nc", "streaming", "no_allocate", "early"]), "Hint: nc, nothing writes there while the kernel runs; streaming, evicted first; no_allocate, kept out of L1; early, used long after: it starts before what follows.").default(AttrDefault::Str("default")),
    ],
    effects: Effects::Read,
    verify: Some(|op| verify_access(op, op.body.ty(op.operand(0)), op.result_types()[0])),
    ..OpDef::new("rc.kernel.read")
};

pub static WRITE: OpDef = OpDef {
    summary: "One thread's store of a scalar, or of a vector along the last dimension.",
    doc: "`pred`, `valid`, `align`, `swizzle` and `cache` as for kernel.read.",
    example: READ.example,
    operands: &[
        operand("value", SCALAR_OR_VECTOR),
        operand("target", MEMREF),
        variadic("indices", INDEX).bracketed(),
        optional("pred", I1),
        optional("valid", INDEX),
    ],
    attrs: &[
        attr("align", AttrKind::I64, "Known alignment in bytes.").optional(),
        attr("swizzle", AttrKind::I64, "0, 32, 64 or 128.").default(AttrDefault::Int(0)),
        attr("cache", AttrKind::Enum(&["default", "streaming"]), "Cache hint.").default(AttrDefault::Str("default")),
    ],
    effects: Effects::Write,
    verify: Some(|op| verify_access(op, op.body.ty(op.operand(1)), op.body.ty(op.operand(0)))),
    ..OpDef::new("rc.kernel.write")
};

pub static PREFETCH: OpDef = OpDef {
    summary: "Hints that a CPU's cache line is read soon.",
    doc: "The index may lie past the end: nothing is read there.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %next = core.constant {value = 16 : index} : index
  kernel.prefetch %x[%next]
  %v = kernel.read %x[%zero] : f32
  kernel.write %v, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("source", MEMREF), variadic("indices", INDEX).bracketed()],
    effects: Effects::Channel("prefetch"),
    ..OpDef::new("rc.kernel.prefetch")
};

pub static ATOMIC: OpDef = OpDef {
    summary: "Atomically combines a scalar, or each lane of a vector, into memory; relaxed order, device scope. Gives the old value.",
    doc: "With `pred` false nothing happens, and the result is undefined. `align` as for kernel.read: vectors of f32 whose results nothing uses are \
one access where it allows that.",
    example: r#"
kernel.func @example(%x: memref<32xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %t = kernel.thread_id : index
  %first = core.compare %t, %zero {kind = eq} : i1
  %none = core.constant {value = 0.0 : f32} : f32
  kernel.write %none, %y[%zero] pred(%first)
  kernel.barrier
  %v = kernel.read %x[%t] : f32
  %old = kernel.atomic %v, %y[%zero] {kind = add} : f32
  kernel.return
}
"#,
    operands: &[
        operand("value", SCALAR_OR_VECTOR),
        operand("target", MEMREF),
        variadic("indices", INDEX).bracketed(),
        optional("pred", I1),
    ],
    results: &[result("old", SCALAR_OR_VECTOR)],
    attrs: &[
        attr("kind", AttrKind::Enum(&["add", "max", "min", "exchange"]), "The combination."),
        attr("align", AttrKind::I64, "Known alignment in bytes.").optional(),
    ],
    effects: Effects::Write,
    infer: Some(|args| Ok(smallvec![args.operand(0)?])),
    ..OpDef::new("rc.kernel.atomic")
};

fn verify_access(op: OpRef, memref: Type, value: Type) -> Result {
    if memref.elem() != value.elem() {
        return Err(op.error(format!("moves elements of {memref} as {value}")));
    }
    let indices = op.group("indices").len();
    if indices != memref.rank() {
        return Err(op.error(format!("indexes {memref} with {indices} indices")));
    }
    let lanes = value.static_shape().unwrap_or_default().iter().product::<i64>();
    let bytes = lanes * value.elem().byte_width().unwrap_or(1) as i64;
    if op.int("swizzle").unwrap_or(0) != 0 && bytes > 16 {
        let error = op.error(format!("moves {bytes} bytes as one, of which a swizzle moves 16"));
        return Err(error.help("read and write chunks of 16 bytes"));
    }
    Ok(())
}
