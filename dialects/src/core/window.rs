//! Windows that slide over dimensions: what convolutions and pooling read.

use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, SHAPED, default_acc, dims_attr, one, reshaped};
use crate::derivative::{Derivative, Vjp};
use crate::op;
use rc_ir::op_def::{AttrKind, InferArgs, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, OpDef, OpRef, Result, Type, Value};

pub static WINDOW: OpDef = OpDef {
    summary: "Every window of a tensor: windows slide along dimensions, and their elements are new last dimensions.",
    doc: "Along dimension `dims[i]` windows of `sizes[i]` elements, `dilations[i]` apart, start at each multiple of \
          `strides[i]`, as long as they lie inside. That dimension counts windows in the result, and the elements of \
          the windows are new dimensions at the end, in the order of `dims`. Element `[.., o, .., k]` of the result is element \
          `[.., o * stride + k * dilation, ..]` of the operand. A product of windows and weights over the new dimensions is a \
          convolution, a reduction over them a pooling; `core.pad` comes before. With `counts` there are so many windows, whose \
          steps are fractions, and elements beyond an end are the one at it: element `[.., o, .., k]` is element \
          `[.., min(max(0, (o * stride + offset) floordiv divisor + k * dilation), size - 1), ..]`. Sums of these with weights resize, or \
          divide into parts of different sizes.",
    example: "func.func @window(%x: tensor<2x9x7xf32>) -> tensor<2x4x5x3x2xf32> {
  %y = core.window %x {dims = [1, 2], sizes = [3, 2], strides = [2, 1], dilations = [1, 2]} : tensor<2x4x5x3x2xf32>
  func.return %y
}

func.func private @quarters(%x: tensor<2x9xf32>) -> tensor<2x4x4xf32> {
  %y = core.window %x {dims = [1], sizes = [4], strides = [9], divisors = [4], counts = [4]} : tensor<2x4x4xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The dimensions along which windows slide."),
        attr("sizes", AttrKind::I64Array, "The elements of a window along each."),
        attr("strides", AttrKind::I64Array, "Steps from window to window; absent: 1 everywhere.").optional(),
        attr("dilations", AttrKind::I64Array, "Steps from element to element; absent: 1 everywhere.").optional(),
        attr("counts", AttrKind::I64Array, "The windows along each, where steps are fractions.").optional(),
        attr("divisors", AttrKind::I64Array, "What the steps are divided by, with 'counts'; absent: 1 everywhere.")
            .optional(),
        attr("offsets", AttrKind::I64Array, "What the first step starts from, with 'counts'; absent: 0 everywhere.")
            .optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_window),
    interfaces: &[&super::reindex::WINDOW, &Derivative::Vjp(window_vjp)],
    ..OpDef::new("rc.core.window")
};

/// The positive integers of an attribute, one for each of `count` dimensions; ones where it is absent.
fn steps(args: &InferArgs, name: &str, count: usize) -> std::result::Result<Vec<i64>, String> {
    let steps = if args.attr(name).is_some() { args.ints(name)? } else { vec![1; count] };
    let good = steps.len() == count && steps.iter().all(|&s| s > 0);
    if good { Ok(steps) } else { Err(format!("needs {count} positive '{name}', and has {steps:?}")) }
}

fn infer_window(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims = dims_attr(args, "dims", x.rank())?;
    let sizes = steps(args, "sizes", dims.len())?;
    let (strides, dilations) = (steps(args, "strides", dims.len())?, steps(args, "dilations", dims.len())?);
    let counts = fractions(args, dims.len())?;
    let mut shape = x.shape().to_vec();
    for (i, &d) in dims.iter().enumerate() {
        let span = dilations[i] * (sizes[i] - 1) + 1;
        let found = match &counts {
            Some(counts) => Some(Dim::Static(counts[i])).filter(|_| shape[d] != Dim::Static(0)),
            None => windows(shape[d], span, strides[i]),
        };
        shape[d] = found.ok_or_else(|| {
            format!("has windows that span {span} elements of dimension {d}, whose size is {}", shape[d])
        })?;
    }
    shape.extend(sizes.into_iter().map(Dim::Static));
    one(reshaped(x, &shape)?)
}

/// The 'counts', where there are; what else steps that are fractions need is checked.
fn fractions(args: &InferArgs, dims: usize) -> std::result::Result<Option<Vec<i64>>, String> {
    let offsets = if args.attr("offsets").is_some() { args.ints("offsets")?.len() } else { dims };
    steps(args, "divisors", dims)?;
    if args.attr("counts").is_none() {
        let alone = ["divisors", "offsets"].into_iter().find(|name| args.attr(name).is_some());
        return alone.map_or(Ok(None), |name| Err(format!("has '{name}' without 'counts'")));
    }
    if offsets != dims {
        return Err(format!("needs {dims} 'offsets', and has {offsets}"));
    }
    steps(args, "counts", dims).map(Some)
}

/// The element of the operand, along dimension number `i` of 'dims', of which there are `size`, that window `at` has as its element `k`.
pub fn element(op: OpRef, i: usize, (at, k): (Dim, Dim), size: Dim) -> Dim {
    let step = |name: &str, absent: i64| op.ints(name).and_then(|n| n.get(i).copied()).unwrap_or(absent);
    let (start, k) = (at * Dim::Static(step("strides", 1)), k * Dim::Static(step("dilations", 1)));
    if op.attr("counts").is_none() {
        return start + k;
    }
    // Whole steps are added first and taken away again, so that what is divided is not negative.
    let (offset, divisor) = (step("offsets", 0), step("divisors", 1));
    let whole = offset.div_euclid(divisor).min(0);
    let start = (start + Dim::Static(offset - whole * divisor)).floordiv(Dim::Static(divisor)) + Dim::Static(whole);
    (start + k).max(Dim::Static(0)).min(size - Dim::Static(1))
}

/// How many windows of `span` elements lie inside of `size`; `None` where it is an integer and too small.
pub fn windows(size: Dim, span: i64, stride: i64) -> Option<Dim> {
    let room = size - Dim::Static(span);
    match room.as_static() {
        Some(n) if n < 0 => None,
        _ => Some(room.floordiv(Dim::Static(stride)) + Dim::Static(1)),
    }
}

/// Each element's sum over the windows that it is in, one dimension after the other, the last first.
fn window_vjp(v: &mut Vjp) -> Result {
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    let at = v.at();
    let dims = at.ints("dims").unwrap_or_default();
    if at.attr("counts").is_some() {
        let reads = (0..dims.len()).map(|i| shape[dims[i] as usize].as_static().map(|size| Reads::of(at, i, size)));
        let Some(reads) = reads.collect::<Option<Vec<Reads>>>() else {
            return Err(at.unsupported("the derivative of windows with 'counts' along a symbolic size"));
        };
        v.give_with(0, |v| gather_windows(v, g, &dims, &reads));
        return Ok(());
    }
    let steps = |name: &str| at.ints(name).unwrap_or_else(|| vec![1; dims.len()]);
    let (strides, dilations) = (steps("strides"), steps("dilations"));
    v.give_with(0, |v| {
        (0..dims.len()).rev().fold(g, |g, i| {
            let dim = dims[i] as usize;
            fold_windows(v, g, dim, shape[dim], strides[i], dilations[i])
        })
    });
    Ok(())
}

/// Which windows read an element, along one dimension with 'counts': some of `longest` neighbours, the first of them `(i * stride + offset) floordiv divisor`
/// for element i.
struct Reads {
    size: i64,
    stride: i64,
    divisor: i64,
    offset: i64,
    longest: i64,
    /// Elements of a window.
    taps: i64,
    /// Whether element i is element k of neighbour t: [size, taps, longest].
    own: Vec<bool>,
}

impl Reads {
    fn of(op: OpRef, i: usize, size: i64) -> Reads {
        let step = |name: &str| op.ints(name).map_or(1, |n| n[i]);
        let (count, taps, stride, divisor) = (step("counts"), step("sizes"), step("divisors"), step("strides"));
        let fixed = Dim::Static;
        let place =
            |o: i64, k: i64| element(op, i, (fixed(o), fixed(k)), fixed(size)).as_static().expect("of integers");
        // The first and the last window that reads each element; of one that none reads, any.
        let mut readers = vec![(i64::MAX, i64::MIN); size as usize];
        for (o, k) in (0..count).flat_map(|o| (0..taps).map(move |k| (o, k))) {
            let (first, last) = &mut readers[place(o, k) as usize];
            (*first, *last) = ((*first).min(o), (*last).max(o));
        }
        let read = || readers.iter().zip(0..).filter(|(r, _)| r.0 <= r.1);
        let offset = read().map(|(r, i)| r.0 * divisor - i * stride).min().unwrap_or(0);
        let first = |i: i64| (i * stride + offset).div_euclid(divisor);
        let longest = read().map(|(r, i)| r.1 - first(i) + 1).max().unwrap_or(1);
        let reads = |i: i64, k: i64, t: i64| (0..count).contains(&(first(i) + t)) && place(first(i) + t, k) == i;
        let each = (0..size).flat_map(|i| (0..taps).flat_map(move |k| (0..longest).map(move |t| (i, k, t))));
        let own = each.map(|(i, k, t)| reads(i, k, t)).collect();
        Reads { size, stride, divisor, offset, longest, taps, own }
    }

    /// 1 where an element is one of a neighbour's, by the neighbour's elements: [size, taps, longest].
    fn by_tap(&self) -> Vec<f64> {
        self.own.iter().map(|&own| f64::from(u8::from(own))).collect()
    }

    /// How many of a neighbour's elements an element is: [size, longest].
    fn in_all(&self) -> Vec<f64> {
        let (taps, longest) = (self.taps as usize, self.longest as usize);
        let count = |own: &[bool], t: usize| (0..taps).filter(|k| own[k * longest + t]).count() as f64;
        self.own.chunks(taps * longest).flat_map(|own| (0..longest).map(move |t| count(own, t))).collect()
    }
}

/// For each element the sum of what windows have that read it: of windows over these windows, without those that do not.
fn gather_windows(b: &mut Builder, g: Value, dims: &[i64], reads: &[Reads]) -> Value {
    let (elem, rank) = (b.ty(g).elem(), b.ty(g).rank() - dims.len());
    let acc = default_acc(elem);
    let (g, weights) = weighted(b, g, dims).unwrap_or_else(|| (g, vec![None; dims.len()]));
    let own = b.ty(g).rank() - rank;
    let wide = b.convert(g, acc);
    let taken = neighbours(b, wide, dims, reads);
    let (elem_wide, space) = (b.ty(taken).elem(), b.ty(taken).shape().to_vec());
    let zero = b.splat(0.0, b.ty(taken));
    let mut read = taken;
    for (i, r) in reads.iter().enumerate() {
        let neighbour = (rank + own + i) as i64;
        let along = if own > 0 { vec![dims[i], (rank + i) as i64, neighbour] } else { vec![dims[i], neighbour] };
        let times = if own > 0 { r.by_tap() } else { r.in_all() };
        let ty = Type::tensor(&along.iter().map(|&d| space[d as usize]).collect::<Vec<_>>(), elem_wide);
        let table = b.dense(&times, ty);
        let table = b.broadcast(table, &space, &along);
        let here = b.compare("gt", table, zero);
        if let Some(weights) = weights[i] {
            let weights = b.convert(weights, acc);
            let weights = gather_weights(b, weights, r);
            let weights = b.broadcast(weights, &space, &along);
            read = b.binary("mul", read, weights);
        } else if times.iter().any(|&n| n > 1.0) {
            read = b.binary("mul", read, table);
        }
        read = b.select(here, read, zero);
    }
    let sum = b.reduce("add", read, &(rank as i64..space.len() as i64).collect::<Vec<_>>());
    b.convert(sum, elem)
}

/// Along each of `dims` the neighbours that may read an element.
fn neighbours(b: &mut Builder, g: Value, dims: &[i64], reads: &[Reads]) -> Value {
    let list = |f: &dyn Fn(&Reads) -> i64| Attr::i64s(&reads.iter().map(f).collect::<Vec<_>>());
    let op = b.op(&WINDOW).operand(g).attr("dims", Attr::i64s(dims)).attr("sizes", list(&|r| r.longest));
    let op = op.attr("strides", list(&|r| r.stride)).attr("divisors", list(&|r| r.divisor));
    op.attr("offsets", list(&|r| r.offset)).attr("counts", list(&|r| r.size)).value()
}

/// Weights `[windows, elements of a window]` as those `[elements, neighbours]` with which each element goes into the sums of its neighbours.
fn gather_weights(b: &mut Builder, weights: Value, reads: &Reads) -> Value {
    let taken = neighbours(b, weights, &[0], std::slice::from_ref(reads));
    let ty = b.ty(taken);
    let (zero, table) = (b.splat(0.0, ty), b.dense(&reads.by_tap(), ty));
    let here = b.compare("gt", table, zero);
    let read = b.select(here, taken, zero);
    b.reduce("add", read, &[1])
}

/// Windows' gradient `[.., windows, .., elements..]` as a product of what all elements of a window share, and of weights `[windows, elements]` along some of
/// `dims`, as sums have them that resize; `None` where it is none.
fn weighted(b: &mut Builder, g: Value, dims: &[i64]) -> Option<(Value, Vec<Option<Value>>)> {
    let shape = b.ty(g).shape().to_vec();
    let rank = shape.len() - dims.len();
    let (mut shared, mut weights, mut rest) = (Vec::new(), vec![None; dims.len()], vec![g]);
    while let Some(factor) = rest.pop() {
        let op = b.body.op_ref(b.body.defining_op(factor)?);
        if op.is(op::core::MUL) {
            rest.extend(op.operands());
            continue;
        }
        if op.is(op::core::CONVERT) && b.ty(op.operand(0)).elem().is_float() {
            rest.push(op.operand(0));
            continue;
        }
        let along = op.ints("dims").filter(|_| op.is(op::core::BROADCAST))?;
        match along.iter().rposition(|&d| d >= rank as i64) {
            None => shared.push((op.operand(0), along)),
            Some(1) if along.len() == 2 => {
                let i = along[1] as usize - rank;
                if along[0] != dims[i] || weights[i].replace(op.operand(0)).is_some() {
                    return None;
                }
            }
            Some(_) => return None,
        }
    }
    let acc = default_acc(b.ty(g).elem());
    let widened = |(v, along): (Value, Vec<i64>)| {
        let v = b.convert(v, acc);
        b.broadcast(v, &shape[..rank], &along)
    };
    let factors: Vec<Value> = shared.into_iter().map(widened).collect();
    let product = factors.into_iter().reduce(|a, v| b.binary("mul", a, v))?;
    Some((product, weights))
}

/// Windows along `dim`, whose elements are the last dimension, added where they came from.
fn fold_windows(b: &mut Builder, g: Value, dim: usize, size: Dim, stride: i64, dilation: i64) -> Value {
    if stride > 1 && dilation == 1 {
        return fold_in_blocks(b, g, dim, size, stride);
    }
    let shape = b.ty(g).shape().to_vec();
    let (last, outer) = (shape.len() - 1, &shape[..shape.len() - 1]);
    let taps = shape[last].as_static().expect("windows have fixed sizes");
    let (zero, one) = (Dim::Static(0), Dim::Static(1));
    let mut sum: Option<Value> = None;
    for tap in 0..taps {
        let (mut starts, mut sizes) = (vec![zero; last + 1], shape.clone());
        (starts[last], sizes[last]) = (Dim::Static(tap), one);
        let part = b.slice(g, &starts, &sizes);
        let part = b.reshape(part, outer);
        let part = super::slice::spread(b, part, dim, stride);
        let (mut low, mut high) = (vec![zero; last], vec![zero; last]);
        low[dim] = Dim::Static(tap * dilation);
        high[dim] = size - low[dim] - b.ty(part).shape()[dim];
        let placed = b.pad_or_crop(part, 0.0, &low, &high);
        sum = Some(sum.map_or(placed, |sum| b.binary("add", sum, placed)));
    }
    sum.expect("windows have elements")
}

/// As [`fold_windows`]: as many neighbours of each window as lie between one window and the next are a block, and the blocks of all windows one row.
fn fold_in_blocks(b: &mut Builder, g: Value, dim: usize, size: Dim, stride: i64) -> Value {
    let shape = b.ty(g).shape().to_vec();
    let (last, zero) = (shape.len() - 1, Dim::Static(0));
    let taps = shape[last].as_static().expect("windows have fixed sizes");
    let beside: Vec<i64> = (0..=dim).chain([last]).chain(dim + 1..last).map(|d| d as i64).collect();
    let mut joined = shape[..last].to_vec();
    joined[dim] = joined[dim] * Dim::Static(stride);
    let mut sum: Option<Value> = None;
    for first in (0..taps).step_by(stride as usize) {
        let (mut starts, mut sizes) = (vec![zero; last + 1], shape.clone());
        (starts[last], sizes[last]) = (Dim::Static(first), Dim::Static(stride.min(taps - first)));
        let block = b.slice(g, &starts, &sizes);
        let (low, mut high) = (vec![zero; last + 1], vec![zero; last + 1]);
        high[last] = Dim::Static(stride) - sizes[last];
        let block = b.pad_or_crop(block, 0.0, &low, &high);
        let block = b.permute(block, &beside);
        let row = b.reshape(block, &joined);
        let (mut low, mut high) = (vec![zero; last], vec![zero; last]);
        low[dim] = Dim::Static(first);
        high[dim] = size - low[dim] - joined[dim];
        let placed = b.pad_or_crop(row, 0.0, &low, &high);
        sum = Some(sum.map_or(placed, |sum| b.binary("add", sum, placed)));
    }
    sum.expect("windows have elements")
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&WINDOW];
