//! The *tile* phase: loads, stores, reductions and products of tiles.

use crate::constraints::{INDEX, MEMREF, TILE};
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[
    &LOAD,
    &GATHER,
    &STORE,
    &SCATTER,
    &REDUCE,
    &SCAN,
    &SORT,
    &DOT,
    &IOTA,
    &BROADCAST,
    &TRANSPOSE,
    &EXTRACT_SLICE,
    &CONVERT_LAYOUT,
];

pub static LOAD: OpDef = OpDef {
    summary: "A tile of a memref.",
    doc: "Element (i, j, …) of the tile is the memref's element at the given indices, plus i along memref dimension \
`dims[0]`, j along `dims[1]`, and so on; `-1` in `dims` repeats the element along that tile dimension. Elements outside \
of the memref's bounds are `other` and are not read.",
    example: r#"
kernel.func @example(%x: memref<100x64xf32>, %y: memref<100x64xf32>) attributes {phase = tile, target = cpu, grid = [13, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %eight = core.constant {value = 8 : index} : index
  %p = kernel.program_id {axis = 0} : index
  %i = core.mul %p, %eight : index
  %a = kernel.load %x[%i, %zero] {dims = [0, 1]} : !rc.tile<8x64xf32>
  kernel.store %a, %y[%i, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("source", MEMREF), variadic("indices", INDEX).bracketed()],
    results: &[result("tile", TILE)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The memref dimension along which each tile dimension runs, or -1."),
        attr("other", AttrKind::F64, "What lies outside.").default(AttrDefault::Float(0.0)),
        attr("cache", AttrKind::Enum(&["default", "no_allocate", "early"]), "Cache hint, as for kernel.read.")
            .default(AttrDefault::Str("default")),
    ],
    effects: Effects::Read,
    verify: Some(|op| verify_access(op, op.body.ty(op.operand(0)), op.result_types()[0], op.operands().len() - 1)),
    ..OpDef::new("rc.kernel.load")
};

pub static GATHER: OpDef = OpDef {
    summary: "A tile of elements at computed places of a memref.",
    doc: "As kernel.load, where the index along memref dimension `axis` is, for each tile element, that of the tile \
`where` (integers; same shape as the result or 1 along some dimensions) instead of the scalar index. Out of bounds is undefined \
behaviour that the interpreter reports, but for negative places of a gather that is `bounded`, which stand for `other`; elements outside along \
other dimensions are `other`. Where a tile dimension runs along `axis`, a place is the first of a run: of a tile of 64 elements and 8 places there, \
each place is that of 8 neighbours.",
    example: r#"
kernel.func @example(%table: memref<16x8xf32>, %ids: memref<4xi64>, %y: memref<4x8xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %at = kernel.load %ids[%zero] {dims = [0, -1]} : !rc.tile<4x1xi64>
  %rows = kernel.gather %table[%zero, %zero] where(%at) {dims = [0, 1], axis = 0} : !rc.tile<4x8xf32>
  kernel.store %rows, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("source", MEMREF), variadic("indices", INDEX).bracketed(), variadic("where", TILE).named()],
    results: &[result("tile", TILE)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The memref dimension along which each tile dimension runs, or -1."),
        attr("axis", AttrKind::I64, "The gathered memref dimension."),
        attr("bounded", AttrKind::Bool, "Negative places are outside.").default(AttrDefault::Bool(false)),
        attr(
            "falls",
            AttrKind::I64,
            "The tile dimension along which each place is one less than the place before it, or -1.",
        )
        .default(AttrDefault::Int(-1)),
        attr(
            "steps",
            AttrKind::I64Array,
            "How far each place lies beyond the first, along the last tile dimension with more than one element.",
        )
        .optional(),
        attr("clamped", AttrKind::Bool, "Of places that fall those past what is used are the last one that is.")
            .default(AttrDefault::Bool(false)),
        attr("other", AttrKind::F64, "What lies outside.").default(AttrDefault::Float(0.0)),
    ],
    effects: Effects::Read,
    ..OpDef::new("rc.kernel.gather")
};

pub static STORE: OpDef = OpDef {
    summary: "Writes a tile to a memref, the part within its bounds.",
    example: LOAD.example,
    operands: &[operand("tile", TILE), operand("target", MEMREF), variadic("indices", INDEX).bracketed()],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The memref dimension along which each tile dimension runs."),
        attr("async", AttrKind::Bool, "In the placed phase, of a loaded tile to shared memory: it may be written as late as at the kernel.async_wait for its group.")
            .default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Write,
    verify: Some(|op| verify_access(op, op.body.ty(op.operand(1)), op.body.ty(op.operand(0)), op.operands().len() - 2)),
    ..OpDef::new("rc.kernel.store")
};

pub static SCATTER: OpDef = OpDef {
    summary: "Combines a tile's elements with those at computed places of a memref, atomically.",
    doc: "The counterpart of kernel.gather: the index along memref dimension `axis` is, for each tile element, that of the tile \
`where` (integers; same shape as the tile or 1 along some dimensions). Each element is combined as kernel.atomic does it, in no \
particular order. Elements outside of the memref, along `axis` too, are left out.",
    example: r#"
kernel.func @example(%ids: memref<4xi64>, %u: memref<4x8xf32>, %table: memref<16x8xf32>) attributes {phase = tile, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %none = core.constant {value = dense<0.0> : !rc.tile<16x8xf32>} : !rc.tile<16x8xf32>
  kernel.store %none, %table[%zero, %zero] {dims = [0, 1]}
  %at = kernel.load %ids[%zero] {dims = [0, -1]} : !rc.tile<4x1xi64>
  %rows = kernel.load %u[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x8xf32>
  kernel.scatter %rows, %table[%zero, %zero] where(%at) {dims = [0, 1], axis = 0, kind = add}
  kernel.return
}
"#,
    operands: &[
        operand("tile", TILE),
        operand("target", MEMREF),
        variadic("indices", INDEX).bracketed(),
        variadic("where", TILE).named(),
    ],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The memref dimension along which each tile dimension runs, or -1."),
        attr("axis", AttrKind::I64, "The memref dimension that `where` is a position in."),
        attr("kind", AttrKind::Enum(&["add", "max", "min"]), "The combination."),
    ],
    effects: Effects::Write,
    verify: Some(|op| {
        verify_access(op, op.body.ty(op.operand(1)), op.body.ty(op.operand(0)), op.group("indices").len())
    }),
    ..OpDef::new("rc.kernel.scatter")
};

fn verify_access(op: OpRef, memref: Type, tile: Type, indices: usize) -> Result {
    let dims = op.ints("dims").unwrap_or_default();
    if indices != memref.rank() {
        return Err(op.error(format!("indexes {memref} with {indices} indices")));
    }
    if dims.len() != tile.rank() || dims.iter().any(|&d| d < -1 || d >= memref.rank() as i64) {
        return Err(op.error(format!(
            "expects 'dims' to give a dimension of {memref} (or -1) for each of {tile}, got {dims:?}"
        )));
    }
    if memref.elem() != tile.elem() {
        return Err(op.error(format!("moves elements of {memref} as {tile}")).help("convert with core.convert"));
    }
    Ok(())
}

pub static REDUCE: OpDef = OpDef {
    summary: "Reduces a tile along dimensions, which stay with size 1.",
    doc: "In the element type, in any order; convert first to accumulate in another. NaN wins in max and min.",
    example: r#"
kernel.func @example(%x: memref<4x32xf32>, %y: memref<4xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x32xf32>
  %s = kernel.reduce %a {dims = [1], kind = add} : !rc.tile<4x1xf32>
  kernel.store %s, %y[%zero] {dims = [0, -1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("result", TILE)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The reduced dimensions."),
        attr("kind", AttrKind::Enum(&["add", "mul", "max", "min", "and", "or"]), "The combiner."),
    ],
    effects: Effects::Pure,
    verify: Some(|op| {
        let dims = op.ints("dims").unwrap_or_default();
        let mut want = op.body.ty(op.operand(0)).static_shape().unwrap_or_default();
        for d in dims {
            match want.get_mut(d as usize) {
                Some(n) => *n = 1,
                None => return Err(op.error(format!("reduces dimension {d} of {}", op.body.ty(op.operand(0))))),
            }
        }
        let got = op.result_types()[0];
        let same = got.static_shape().unwrap_or_default() == want;
        if same { Ok(()) } else { Err(op.error(format!("expects a result of shape {want:?}, got {got}"))) }
    }),
    ..OpDef::new("rc.kernel.reduce")
};

pub static SCAN: OpDef = OpDef {
    summary: "Each element of a tile combined with those before it along a dimension; and all of them.",
    doc: "In the element type, in any order. With `reverse`, with those after it. NaN wins in max and min.",
    example: r#"
kernel.func @example(%x: memref<4x32xf32>, %y: memref<4x32xf32>, %z: memref<4xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x32xf32>
  %s, %t = kernel.scan %a {dim = 1, kind = add} : !rc.tile<4x32xf32>, !rc.tile<4x1xf32>
  kernel.store %s, %y[%zero, %zero] {dims = [0, 1]}
  kernel.store %t, %z[%zero] {dims = [0, -1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("result", TILE), result("total", TILE)],
    attrs: &[
        attr("dim", AttrKind::I64, "The dimension."),
        attr("kind", AttrKind::Enum(&["add", "mul", "max", "min", "and", "or"]), "The combiner."),
        attr("reverse", AttrKind::Bool, "From the last element to the first.").default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (tile, results) = (op.body.ty(op.operand(0)), op.result_types());
        let mut total = tile.static_shape().unwrap_or_default();
        let Some(n) = op.int("dim").and_then(|d| total.get_mut(d as usize)) else {
            return Err(op.error(format!("scans along a dimension that {tile} does not have")));
        };
        *n = 1;
        let fits = results[0] == tile && results[1].static_shape().unwrap_or_default() == total;
        if fits { Ok(()) } else { Err(op.error(format!("expects {tile} and a total of shape {total:?}"))) }
    }),
    ..OpDef::new("rc.kernel.scan")
};

pub static SORT: OpDef = OpDef {
    summary: "Rows of integers in order, and with them the elements of other tiles.",
    doc: "Ascending along the last dimension; equal elements stay in their order. With `count`, only the first so many of a row are \
those that come first: the others are in no order.",
    example: r#"
kernel.func @example(%x: memref<4x32xi32>, %y: memref<4x32xi32>, %at: memref<4x32xi32>) attributes {phase = tile, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x32xi32>
  %i = kernel.load %y[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x32xi32>
  %s, %j = kernel.sort %a, %i : !rc.tile<4x32xi32>, !rc.tile<4x32xi32>
  kernel.store %s, %y[%zero, %zero] {dims = [0, 1]}
  kernel.store %j, %at[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("keys", TILE), variadic("others", TILE)],
    results: &[result("result", TILE), variadic_result("moved", TILE)],
    attrs: &[attr("count", AttrKind::I64, "How many are needed.").optional()],
    effects: Effects::Pure,
    infer: Some(|args| (0..args.operands.len()).map(|i| args.operand(i)).collect()),
    verify: Some(|op| {
        let keys = op.body.ty(op.operand(0));
        let shaped = op.operand_types().iter().all(|t| t.shape() == keys.shape());
        match shaped && !keys.elem().is_float() && keys.rank() > 0 {
            true => Ok(()),
            false => Err(op.error(format!("expects integers and tiles of one shape, got {:?}", op.operand_types()))),
        }
    }),
    ..OpDef::new("rc.kernel.sort")
};

pub static DOT: OpDef = OpDef {
    summary: "acc + a b for tiles a [m, k], b [k, n] and acc [m, n].",
    doc: "Products and sums in acc's element type; contracted and in any order along k. In the placed phase a and b may be memrefs in \
shared or packed memory ([m, k] and [k, n], or stored transposed as `a_t`, `b_t` say). With `of` they are words of such elements along k, see \
kernel.pack; of i8, those of a are unsigned. With `of = tf32` they are f32 that are rounded to TF32.",
    example: r#"
kernel.func @example(%x: memref<4x16xf32>, %w: memref<16x8xf32>, %y: memref<4x8xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x16xf32>
  %b = kernel.load %w[%zero, %zero] {dims = [0, 1]} : !rc.tile<16x8xf32>
  %none = core.constant {value = dense<0.0> : !rc.tile<4x8xf32>} : !rc.tile<4x8xf32>
  %c = kernel.dot %a, %b, %none : !rc.tile<4x8xf32>
  kernel.store %c, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("a", ANY), operand("b", ANY), operand("acc", TILE)],
    results: &[result("result", TILE)],
    attrs: &[
        attr("a_t", AttrKind::Bool, "a is given as [k, m].").default(AttrDefault::Bool(false)),
        attr("b_t", AttrKind::Bool, "b is given as [n, k].").default(AttrDefault::Bool(false)),
        attr(
            "unit",
            AttrKind::Enum(&["fma", "mma", "wgmma", "avx512_bf16", "vnni"]),
            "The hardware unit, chosen by the schedule.",
        )
        .optional(),
        attr("of", AttrKind::Type, "The elements of a's and b's words, bf16 or i8; or tf32.").optional(),
        attr(
            "parts",
            AttrKind::I64,
            "On a GPU: among how many warps k is divided, each of which has its parts of a and b in registers.",
        )
        .optional(),
    ],
    effects: Effects::Read,
    infer: Some(|args| Ok(smallvec![args.operand(2)?])),
    verify: Some(verify_dot),
    ..OpDef::new("rc.kernel.dot")
};

fn verify_dot(op: OpRef) -> Result {
    let shape = |i: usize, transposed: &str| -> Option<(i64, i64)> {
        match (op.body.ty(op.operand(i)).static_shape()?.as_slice(), op.bool(transposed)) {
            (&[a, b], false) => Some((a, b)),
            (&[a, b], true) => Some((b, a)),
            _ => None,
        }
    };
    match (shape(0, "a_t"), shape(1, "b_t"), shape(2, "")) {
        (Some((m, k)), Some((l, n)), Some((o, p))) if k == l && m == o && n == p => match op.attr("of") {
            Some(of) if of.as_type() == Some(Type::tf32()) => {
                match op.operand_types()[..2].iter().all(|t| t.elem() == Type::f32()) {
                    true => Ok(()),
                    false => Err(op.error("expects tiles of f32, which it rounds to TF32")),
                }
            }
            Some(_) if op.operand_types()[..2].iter().any(|t| t.elem() != Type::i32()) => {
                Err(op.error("expects words in tiles of i32, as kernel.pack makes them"))
            }
            _ => Ok(()),
        },
        (a, b, acc) => Err(op.error(format!("expects [m, k], [k, n] and [m, n], got {a:?}, {b:?} and {acc:?}"))),
    }
}

pub static IOTA: OpDef = OpDef {
    summary: "A tile of integers that count along one dimension, from a given start.",
    example: r#"
kernel.func @example(%y: memref<16xi64>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %i = kernel.iota %zero {dim = 0} : !rc.tile<16xi64>
  kernel.store %i, %y[%zero] {dims = [0]}
  kernel.return
}
"#,
    operands: &[operand("start", INDEX)],
    results: &[result("tile", TILE)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension along which the values count.")],
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.iota")
};

pub static BROADCAST: OpDef = OpDef {
    summary: "Repeats a tile along its dimensions of size 1, or a scalar everywhere.",
    example: r#"
kernel.func @example(%x: memref<8xf32>, %y: memref<4x8xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %row = kernel.load %x[%zero] {dims = [-1, 0]} : !rc.tile<1x8xf32>
  %rows = kernel.broadcast %row : !rc.tile<4x8xf32>
  kernel.store %rows, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("value", ANY)],
    results: &[result("tile", TILE)],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (from, to) = (op.body.ty(op.operand(0)), op.result_types()[0]);
        let fits = !from.is_tile()
            || from.rank() == to.rank()
                && from.shape().iter().zip(to.shape()).all(|(a, b)| *a == b || a.as_static() == Some(1));
        if fits && from.elem() == to.elem() { Ok(()) } else { Err(op.error(format!("cannot repeat {from} to {to}"))) }
    }),
    ..OpDef::new("rc.kernel.broadcast")
};

pub static EXTRACT_SLICE: OpDef = OpDef {
    summary: "The part of a tile that starts at an offset and has the result's shape.",
    doc: "No element changes its thread: in the placed phase both tiles have one layout.",
    example: r#"
kernel.func @example(%x: memref<4x8xf32>, %y: memref<4x4xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x8xf32>
  %b = kernel.extract_slice %a {offsets = [0, 4]} : !rc.tile<4x4xf32>
  kernel.store %b, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("part", TILE)],
    attrs: &[attr("offsets", AttrKind::I64Array, "The first element, for each dimension.")],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (from, to) = (op.body.ty(op.operand(0)), op.result_types()[0]);
        let (whole, part) = (from.static_shape().unwrap_or_default(), to.static_shape().unwrap_or_default());
        let offsets = op.ints("offsets").unwrap_or_default();
        let same_rank = offsets.len() == whole.len() && part.len() == whole.len();
        let inside = || (0..whole.len()).all(|d| offsets[d] >= 0 && offsets[d] <= whole[d] - part[d]);
        if same_rank && inside() && from.elem() == to.elem() {
            return Ok(());
        }
        Err(op.error(format!("cannot take {to} at {offsets:?} from {from}")))
    }),
    ..OpDef::new("rc.kernel.extract_slice")
};

pub static TRANSPOSE: OpDef = OpDef {
    summary: "A tile with its dimensions permuted: result dimension i is operand dimension perm[i].",
    example: r#"
kernel.func @example(%x: memref<4x8xf32>, %y: memref<8x4xf32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x8xf32>
  %b = kernel.transpose %a {perm = [1, 0]} : !rc.tile<8x4xf32>
  kernel.store %b, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("result", TILE)],
    attrs: &[attr("perm", AttrKind::I64Array, "A permutation.")],
    effects: Effects::Pure,
    ..OpDef::new("rc.kernel.transpose")
};

pub static CONVERT_LAYOUT: OpDef = OpDef {
    summary: "The same tile in another layout: data move between threads, through shared memory where they must.",
    example: r#"
kernel.func @example(%x: memref<8x16xf32>, %y: memref<8x16xf32>) attributes {phase = placed, target = cuda, threads = 32, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<8x16xf32, #rc.blocked<vec = 4, dim = 1, lanes = [8, 4], warps = [1, 1]>>
  %b = kernel.convert_layout %a : !rc.tile<8x16xf32, #rc.blocked<vec = 1, dim = 1, lanes = [2, 16], warps = [1, 1]>>
  kernel.store %b, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("result", TILE)],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (from, to): (Type, Type) = (op.body.ty(op.operand(0)), op.result_types()[0]);
        let same = from.shape() == to.shape() && from.elem() == to.elem();
        if same { Ok(()) } else { Err(op.error(format!("changes more than the layout: {from} to {to}"))) }
    }),
    ..OpDef::new("rc.kernel.convert_layout")
};
