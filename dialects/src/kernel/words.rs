//! Words: a few neighbours along the sums' dimension in 32 bits, as a CPU's dot product instructions take them.

use crate::constraints::{INDEX, MEMREF, TILE, VECTOR};
use rc_ir::op_def::*;
use rc_ir::{OpDef, OpRef, Result, Type};
use smallvec::smallvec;

pub(super) static OPS: &[&OpDef] = &[&PACK, &DOT_WORDS, &DOT_TILES];

/// Elements of a type in a word; `None` where they do not fill it.
pub fn word_width(elem: Type) -> Option<i64> {
    elem.bit_width().filter(|bits| matches!(bits, 8 | 16)).map(|bits| i64::from(32 / bits))
}

pub static PACK: OpDef = OpDef {
    summary: "Neighbours along a dimension in 32-bit words, the first in the lowest bits.",
    doc: "Two elements of 16 bits or four of 8 are one word. In the placed phase both tiles have one layout.",
    example: r#"
kernel.func @example(%x: memref<4x32xbf16>, %y: memref<4x16xi32>) attributes {phase = tile, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.load %x[%zero, %zero] {dims = [0, 1]} : !rc.tile<4x32xbf16>
  %b = kernel.pack %a {dim = 1} : !rc.tile<4x16xi32>
  kernel.store %b, %y[%zero, %zero] {dims = [0, 1]}
  kernel.return
}
"#,
    operands: &[operand("tile", TILE)],
    results: &[result("words", TILE)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension along which neighbours go into a word.")],
    effects: Effects::Pure,
    verify: Some(|op| {
        let (from, to) = (op.body.ty(op.operand(0)), op.result_types()[0]);
        let mut shape = to.static_shape().unwrap_or_default();
        let along = op.int("dim").and_then(|d| shape.get_mut(usize::try_from(d).ok()?));
        let width = word_width(from.elem());
        let fits = along.zip(width).map(|(n, width)| *n *= width).is_some();
        match fits && from.static_shape() == Some(shape) && to.elem() == Type::i32() {
            true => Ok(()),
            false => Err(op.error(format!("cannot make words of {from} as {to}"))),
        }
    }),
    ..OpDef::new("rc.kernel.pack")
};

pub static DOT_WORDS: OpDef = OpDef {
    summary: "acc + the sum of the products of the elements in each lane's words (vdpbf16ps, vpdpbusd).",
    doc: "`of = bf16`: two products of bf16 in f32; subnormal numbers count as zero. `of = i8`: four products of a's unsigned with b's signed bytes, in i32.",
    example: r#"
kernel.func @example(%x: memref<16xi32>, %y: memref<16xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %a = kernel.read %x[%zero] : vector<16xi32>
  %none = core.constant {value = dense<0.0> : vector<16xf32>} : vector<16xf32>
  %c = kernel.dot_words %a, %a, %none {of = bf16} : vector<16xf32>
  kernel.write %c, %y[%zero]
  kernel.return
}
"#,
    operands: &[operand("a", VECTOR), operand("b", VECTOR), operand("acc", VECTOR)],
    results: &[result("result", VECTOR)],
    attrs: &[attr("of", AttrKind::Type, "The words' elements: bf16 or i8.")],
    effects: Effects::Pure,
    infer: Some(|args| Ok(smallvec![args.operand(2)?])),
    verify: Some(verify_dot_words),
    ..OpDef::new("rc.kernel.dot_words")
};

fn verify_dot_words(op: OpRef) -> Result {
    let types = op.operand_types();
    let of = op.attr("of").and_then(|of| of.as_type());
    let sums = if of == Some(Type::bf16()) { Type::f32() } else { Type::i32() };
    let words = types[..2].iter().all(|t| t.elem() == Type::i32() && t.shape() == types[2].shape());
    let known = of == Some(Type::bf16()) || of == Some(Type::i8());
    match known && words && types[2].elem() == sums {
        true => Ok(()),
        false => Err(op
            .error(format!("expects words in vectors of i32, and sums of bf16 in f32 or of i8 in i32, got {types:?}"))),
    }
}

/// Rows of a tile of the CPU's unit for tiles, and words of one.
pub const UNIT_TILE: i64 = 16;

pub static DOT_TILES: OpDef = OpDef {
    summary: "c = a b or c + a b in memory, of tiles of 16 rows of 16 words (AMX).",
    doc: "`a` has words `[..., m, k]`, `b` words `[..., k, n]` and `c` sums `[..., m, n]` from their indices on, m and n as `shape` says: one or two \
tiles each; memory of the words' elements is seen as words. `count` words along k are multiplied, rounded up to whole tiles, which a and b have. `of = bf16`: sums in f32; subnormal numbers count as zero. \
`of = i8`: signed bytes, sums in i32. With `add` c is added to.",
    example: r#"
kernel.func @example(%x: memref<16x16xi32>, %y: memref<16x32xi32>, %z: memref<16x32xf32>) attributes {phase = thread, target = cpu, grid = [1, 1, 1]} {
  %zero = core.constant {value = 0 : index} : index
  %words = core.constant {value = 16 : index} : index
  kernel.dot_tiles %x[%zero, %zero], %y[%zero, %zero], %z[%zero, %zero], %words {of = bf16, shape = [16, 32]}
  kernel.return
}
"#,
    operands: &[
        operand("a", MEMREF),
        variadic("a_indices", INDEX).bracketed(),
        operand("b", MEMREF),
        variadic("b_indices", INDEX).bracketed(),
        operand("c", MEMREF),
        variadic("c_indices", INDEX).bracketed(),
        operand("count", INDEX),
    ],
    attrs: &[
        attr("of", AttrKind::Type, "The words' elements: bf16 or i8."),
        attr("shape", AttrKind::I64Array, "Rows and columns of c: 16 or 32 each."),
        attr("add", AttrKind::Bool, "Whether the products are added to what c has.").default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Write,
    verify: Some(verify_dot_tiles),
    ..OpDef::new("rc.kernel.dot_tiles")
};

fn verify_dot_tiles(op: OpRef) -> Result {
    let of = op.attr("of").and_then(|of| of.as_type());
    let sums = if of == Some(Type::bf16()) { Type::f32() } else { Type::i32() };
    let groups = ["a", "b", "c"].map(|name| (op.group(name), op.group(&format!("{name}_indices"))));
    let ranks = groups.iter().all(|(memory, at)| {
        let ty = op.body.ty(memory[0]);
        at.len() == ty.rank() && ty.rank() >= 2
    });
    let elems = groups.each_ref().map(|(memory, _)| op.body.ty(memory[0]).elem());
    let known = of == Some(Type::bf16()) || of == Some(Type::i8());
    let shape = op.ints("shape").unwrap_or_default();
    let whole = shape.len() == 2 && shape.iter().all(|n| [UNIT_TILE, 2 * UNIT_TILE].contains(n));
    let words = elems[..2].iter().all(|&elem| elem == Type::i32() || Some(elem) == of);
    match known && ranks && whole && words && elems[2] == sums {
        true => Ok(()),
        false => Err(op.error(format!(
            "expects words of i32, a shape of 16 or 32 rows and columns, and sums of bf16 in f32 or of i8 in i32, got {elems:?} and {shape:?}"
        ))),
    }
}
