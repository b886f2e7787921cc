//! `loop.nest`: one operation over a whole iteration space.

use crate::constraints::TENSOR;
use crate::core::dot::{EXACT_SUMS, PRECISION};
use crate::func::symbols;
use crate::op;
use rc_ir::op_def::*;
use rc_ir::{Dim, Name, OpRef, Result, Type};

const COMBINERS: &[&str] = &["none", "add", "mul", "max", "min", "and", "or", "argmax", "argmin", "contract"];
const KINDS: &[&str] = &["parallel", "reduce", "scan"];

pub static NEST: OpDef = OpDef {
    summary: "Computes tensors element by element over named iterators.",
    doc: "For every point of the iteration space the region is given one element of each operand, at the place its \
index map names, and yields one scalar for each result. A result's element, at the place its map in `out_maps` \
names, is the combination of all scalars yielded for it, by its `combiner`, over the `reduce` iterators: `none` where \
there are none, nor `scan` iterators; `add`, `mul`, `max`, `min` (NaN wins), `and`, `or`; `argmax`, `argmin` (the iterator's index as i64, \
lowest first). With `contract` the region yields two factors, whose products are added: a matrix product or a convolution. \
Sums and products are accumulated in the type `acc`, in any order, contracted or not, and rounded once to the result's \
element type. With a `scan` iterator the result has every prefix, by `add`, `mul`, `max` or `min`: \
the combination of the points up to its own along that iterator.\n\n\
Maps are polynomials with `floordiv` and `mod` over the iterators and the kernel's symbols. The operands that `zero_outside` numbers are zero \
where their maps leave them (windows over padding); every other access must be in bounds. \
`schedule` is the choice of how to run the nest, see the schedule pass.",
    example: r#"
loop.kernel @product(%a: tensor<s x 16 x bf16>, %b: tensor<8x16xbf16>) -> tensor<s x 8 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.nest %a[m, k], %b[n, k] {iters = [m, n, k], kinds = [parallel, parallel, reduce], extents = [s, 8, 16], out_maps = [[m, n]], combiner = [contract], acc = f32} ((%x: bf16, %y: bf16) {
    loop.yield %x, %y
  }) : tensor<s x 8 x f32>
  loop.return %r
}
"#,
    operands: &[variadic("inputs", TENSOR)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("iters", AttrKind::StrArray, "The iterators' names, outermost first."),
        attr("kinds", AttrKind::StrArray, "parallel, reduce or scan, for each iterator."),
        attr("extents", AttrKind::Shape, "Each iterator's extent; it runs from 0."),
        attr("maps", AttrKind::ShapeArray, "Where each operand is read."),
        attr("out_maps", AttrKind::ShapeArray, "Where each result is written: parallel and scan iterators, each once."),
        attr("combiner", AttrKind::StrArray, "How each result is combined over the reduce iterators."),
        attr("acc", AttrKind::Type, "Accumulation type of add, mul and contract.").optional(),
        PRECISION,
        EXACT_SUMS,
        attr("zero_outside", AttrKind::I64Array, "The numbers of operands that are zero outside of their bounds.")
            .optional(),
        attr("schedule", AttrKind::Dialect("schedule"), "How to run it.").optional(),
    ],
    regions: Regions::Exactly(1),
    traits: Traits::INDEXED.union(Traits::SINGLE_BLOCK),
    effects: Effects::Pure,
    verify: Some(verify_nest),
    ..OpDef::new("rc.loop.nest")
};

pub static YIELD: OpDef = OpDef {
    summary: "Ends a nest's region with the scalars of this point: one for each result, two for a contraction.",
    example: NEST.example,
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    ..OpDef::new("rc.loop.yield")
};

pub static INDEX: OpDef = OpDef {
    summary: "The value of an index expression over the enclosing nest's iterators and the kernel's symbols.",
    example: r#"
loop.kernel @positions(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %r = loop.nest %x[i, j] {iters = [i, j], kinds = [parallel, parallel], extents = [4, 5], out_maps = [[i, j]], combiner = [none]} ((%a: f32) {
    %n = loop.index {expr = [5 * i + j]} : index
    %f = core.convert %n : f32
    %b = core.add %a, %f : f32
    loop.yield %b
  }) : tensor<4x5xf32>
  loop.return %r
}
"#,
    results: &[result("index", crate::constraints::INDEX)],
    attrs: &[attr("expr", AttrKind::Shape, "One expression.")],
    effects: Effects::Pure,
    infer: Some(|_| Ok(smallvec::smallvec![Type::index()])),
    verify: Some(|op| match op.attr("expr").and_then(|a| a.as_shape()) {
        Some([_]) => Ok(()),
        _ => Err(op.error("expects one expression in 'expr'")),
    }),
    ..OpDef::new("rc.loop.index")
};

pub static GATHER: OpDef = OpDef {
    summary: "Inside a nest's region: the element of a tensor at computed places.",
    doc: "`at` has one entry for each dimension of the tensor: an expression over iterators and symbols, in which \
the symbols `_0`, `_1`, … stand for the index operands (integers or index). An index out of range is undefined \
behaviour that the interpreter reports.",
    example: r#"
loop.kernel @embedding(%table: tensor<10x4xf32>, %ids: tensor<s x i64>) -> tensor<s x 4 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.nest %ids[i] {iters = [i, j], kinds = [parallel, parallel], extents = [s, 4], out_maps = [[i, j]], combiner = [none]} ((%id: i64) {
    %e = loop.gather %table, %id {at = [_0, j]} : f32
    loop.yield %e
  }) : tensor<s x 4 x f32>
  loop.return %r
}
"#,
    operands: &[operand("source", TENSOR), variadic("indices", crate::constraints::INT_OR_INDEX)],
    results: &[result("element", ANY)],
    attrs: &[attr("at", AttrKind::Shape, "One expression for each dimension of the source.")],
    effects: Effects::Pure,
    infer: Some(|args| Ok(smallvec::smallvec![args.operand(0)?.elem()])),
    verify: Some(|op| {
        let rank = op.body.ty(op.operand(0)).rank();
        match op.attr("at").and_then(|a| a.as_shape()) {
            Some(at) if at.len() == rank => Ok(()),
            _ => Err(op.error(format!("expects {rank} expressions in 'at', one for each dimension of the source"))),
        }
    }),
    ..OpDef::new("rc.loop.gather")
};

pub static ATTENTION: OpDef = OpDef {
    summary: "Attention: softmax(q kᵀ scale + bias) v, the key iterator in the online form.",
    doc: "q is [b, h, m, d], k [b, h, n, d] and v [b, h, n, e], each read through its index map over the iterators \
b, h, m, n, d, e (so that heads interleaved in one tensor need no copy); the result is [b, h, m, e] through `out_maps`. \
With `causal`, key n takes part for query m where n <= m. The products are accumulated and the softmax is \
computed in f32 (f64 for f64), with a running maximum and sum over tiles of n; weights are rounded to v's element type \
before the second product, the result once at the end. An optional fourth operand, of floats, is added to the scores; one of i1 \
hides a key where it is false, and a fifth may have, at [b] or [0], a number of keys past which it hides all. An optional second result is the logarithm of each query's sum of exponentials, at [b, h, m].",
    example: r#"
loop.kernel @attention(%qkv: tensor<2 x s x 72 x f32>) -> tensor<2 x s x 24 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %r = loop.attention %qkv[b, m, 12 * h + d], %qkv[b, n, 12 * h + d + 24], %qkv[b, n, 12 * h + e + 48] {iters = [b, h, m, n, d, e], extents = [2, 2, s, s, 12, 12], out_maps = [[b, m, 12 * h + e]], scale = 0.25, causal = true} : tensor<2 x s x 24 x f32>
  loop.return %r
}
"#,
    operands: &[variadic("inputs", TENSOR)],
    results: &[variadic_result("results", TENSOR)],
    attrs: &[
        attr("iters", AttrKind::StrArray, "b, h, m, n, d, e."),
        attr("extents", AttrKind::Shape, "Each iterator's extent."),
        attr("maps", AttrKind::ShapeArray, "Where each operand is read."),
        attr("out_maps", AttrKind::ShapeArray, "Where each result is written."),
        attr("scale", AttrKind::F64, "Factor of the scores."),
        attr("causal", AttrKind::Bool, "Whether later keys are masked.").default(AttrDefault::Bool(false)),
        attr("schedule", AttrKind::Dialect("schedule"), "How to run it.").optional(),
    ],
    traits: Traits::INDEXED,
    effects: Effects::Pure,
    verify: Some(|op| match (op.operands().len(), op.results().len()) {
        (3..=5, 1 | 2) => Ok(()),
        (3..=5, n) => {
            Err(op.error(format!("expects a result and perhaps the logarithms of the sums, got {n} results")))
        }
        (n, _) => {
            Err(op
                .error(format!("expects q, k, v and at most a bias or a mask with numbers of keys, got {n} operands")))
        }
    }),
    ..OpDef::new("rc.loop.attention")
};

/// What an iterator of a nest does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IterKind {
    Parallel,
    Reduce,
    Scan,
}

/// A nest's attributes, read once.
#[derive(Clone, Debug)]
pub struct Nest {
    pub iters: Vec<Name>,
    pub kinds: Vec<IterKind>,
    pub extents: Vec<Dim>,
    pub maps: Vec<&'static [Dim]>,
    pub out_maps: Vec<&'static [Dim]>,
    pub combiners: Vec<&'static str>,
    pub acc: Option<Type>,
    /// Whether each operand is zero where its map leaves it.
    pub zero_outside: Vec<bool>,
}

impl Nest {
    /// Reads a verified `loop.nest`; `None` where an attribute is missing or of the wrong kind.
    pub fn read(op: OpRef) -> Option<Nest> {
        let words = |name: &str| -> Option<Vec<&'static str>> {
            op.attr(name)?.as_array()?.iter().map(|a| a.as_str()).collect()
        };
        let shapes = |name: &str| -> Option<Vec<&'static [Dim]>> {
            op.attr(name)?.as_array()?.iter().map(|a| a.as_shape()).collect()
        };
        let kind = |word: &&str| match *word {
            "parallel" => Some(IterKind::Parallel),
            "reduce" => Some(IterKind::Reduce),
            "scan" => Some(IterKind::Scan),
            _ => None,
        };
        let zero_outside = op.ints("zero_outside").unwrap_or_default();
        let maps = shapes("maps")?;
        Some(Nest {
            zero_outside: (0..maps.len() as i64).map(|i| zero_outside.contains(&i)).collect(),
            iters: words("iters")?.into_iter().map(Name::new).collect(),
            kinds: words("kinds")?.iter().map(kind).collect::<Option<_>>()?,
            extents: op.attr("extents")?.as_shape()?.to_vec(),
            maps,
            out_maps: shapes("out_maps")?,
            combiners: words("combiner")?,
            acc: op.attr("acc").and_then(|a| a.as_type()),
        })
    }
    /// The number of the iterator called `name`.
    pub fn iter(&self, name: Name) -> Option<usize> {
        self.iters.iter().position(|&n| n == name)
    }
}

fn verify_nest(op: OpRef) -> Result {
    let Some(nest) = Nest::read(op) else {
        return Err(op.error(format!("expects 'kinds' of {} and shapes as maps", KINDS.join(", "))));
    };
    let n = nest.iters.len();
    if nest.kinds.len() != n || nest.extents.len() != n {
        return Err(op.error(format!(
            "has {n} iterators but {} kinds and {} extents",
            nest.kinds.len(),
            nest.extents.len()
        )));
    }
    check_maps(op, "operand", &nest.maps, op.operand_types().as_slice())?;
    check_maps(op, "result", &nest.out_maps, op.result_types().as_slice())?;
    if nest.combiners.len() != nest.out_maps.len() {
        return Err(op.error(format!("has {} results but {} combiners", nest.out_maps.len(), nest.combiners.len())));
    }
    if let Some(bad) = nest.combiners.iter().find(|c| !COMBINERS.contains(c)) {
        return Err(op
            .error(format!("has the unknown combiner '{bad}'"))
            .help(format!("one of {}", COMBINERS.join(", "))));
    }
    let combines = nest.kinds.iter().any(|k| *k != IterKind::Parallel);
    if let Some(i) = nest.combiners.iter().position(|c| (*c == "none") == combines) {
        let what = if combines {
            "reduce or scan iterators, so it needs"
        } else {
            "no reduce or scan iterator, so it takes no"
        };
        return Err(op.error(format!("has {what} a combiner for result {i}")));
    }
    check_names(op, &nest)?;
    check_sizes(op, &nest)?;
    verify_region(op, &nest)
}

/// Maps are over the nest's iterators and the function's symbols.
fn check_names(op: OpRef, nest: &Nest) -> Result {
    let declared = symbols(op.body);
    let unknown = std::cell::Cell::new(None);
    for dim in nest.maps.iter().chain(&nest.out_maps).flat_map(|map| map.iter()) {
        dim.for_each_symbol(&mut |name| {
            if !nest.iters.contains(&name) && !declared.iter().any(|d| d.name == name) {
                unknown.set(Some(name));
            }
        });
    }
    match unknown.get() {
        Some(name) => {
            Err(op.error(format!("has a map over '{name}', which is neither an iterator nor a symbol of the function")))
        }
        None => Ok(()),
    }
}

/// Where an iterator alone indexes a dimension of a result, it runs over the whole of it.
fn check_sizes(op: OpRef, nest: &Nest) -> Result {
    for (i, (map, ty)) in nest.out_maps.iter().zip(op.result_types()).enumerate() {
        for (d, (dim, &size)) in map.iter().zip(ty.shape().iter()).enumerate() {
            let Some(at) = dim.as_symbol().and_then(|name| nest.iters.iter().position(|&n| n == name)) else {
                continue;
            };
            let extent = nest.extents[at];
            if extent != size {
                let what = format!("result {i} of type {ty} has the size {size} along dimension {d}");
                return Err(op.error(format!("{what}, and '{}', which indexes it, runs to {extent}", nest.iters[at])));
            }
        }
    }
    Ok(())
}

fn check_maps(op: OpRef, what: &str, maps: &[&[Dim]], types: &[Type]) -> Result {
    if maps.len() != types.len() {
        return Err(op.error(format!("has {} {what}s but {} {what} maps", types.len(), maps.len())));
    }
    match maps.iter().zip(types).position(|(m, t)| m.len() != t.rank()) {
        Some(i) => Err(op.error(format!("indexes {what} {i} of type {} with {} expressions", types[i], maps[i].len()))),
        None => Ok(()),
    }
}

fn verify_region(op: OpRef, nest: &Nest) -> Result {
    let Some(entry) = op.entry(0) else { return Err(op.error("expects a region with a body")) };
    let args: Vec<Type> = op.body.block_args(entry).map(|v| op.body.ty(v)).collect();
    let want: Vec<Type> = op.operand_types().iter().map(|t| t.elem()).collect();
    if args != want {
        return Err(op.error(format!("gives its region elements of types {want:?}, but the region takes {args:?}")));
    }
    let yielded = op.body.last_op(entry).filter(|&t| op.body.name(t) == op::loop_::YIELD);
    let Some(yielded) = yielded else { return Err(op.error("expects its region to end in loop.yield")) };
    let count: usize = nest.combiners.iter().map(|c| if *c == "contract" { 2 } else { 1 }).sum();
    if op.body.operand_count(yielded) != count {
        return Err(op.error(format!("expects {count} yielded scalars, got {}", op.body.operand_count(yielded))));
    }
    Ok(())
}
