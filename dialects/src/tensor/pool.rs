//! Pooling over windows, and its gradients.

use super::spatial::{DILATIONS, PADDING, STRIDES, Windows, iota, product};
use super::{compute_type, pool_derivative};
use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, INT_TENSOR, Inferred, NUMERIC_TENSOR, one};
use crate::derivative::Derivative;
use crate::interfaces::{Combiner, Decompose};
use crate::op;
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, Types, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, OpRef, Result, Type, Value};
use smallvec::smallvec;

const WINDOW: AttrDef = attr("window", AttrKind::I64Array, "The window's sizes, along the last dimensions.");
const CEIL: AttrDef =
    attr("ceil", AttrKind::Bool, "Whether a last window may reach past the end, as PyTorch's ceil_mode.")
        .default(AttrDefault::Bool(false));
const SIZES: AttrDef = attr("sizes", AttrKind::Shape, "The pooled dimensions' sizes before pooling.");

pub static MAX_POOL: OpDef = OpDef {
    summary: "The maximum of each window, and where it is.",
    doc: "Windows slide along the last dimensions, as many as 'window' has sizes. What padding adds is never a maximum; NaN is one. \
          The place is the i64 number of the first maximum in row-major order of the pooled dimensions.",
    example: "func.func @max_pool(%x: tensor<2x9x7xf32>) -> (tensor<2x5x4xf32>, tensor<2x5x4xi64>) {
  %y, %at = tensor.max_pool %x {window = [3, 2], strides = [2, 2], padding = [1, 0], ceil = true} : tensor<2x5x4xf32>, tensor<2x5x4xi64>
  func.return %y, %at
}
",
    operands: &[operand("x", NUMERIC_TENSOR)],
    results: &[result("result", NUMERIC_TENSOR), result("indices", INT_TENSOR)],
    attrs: &[WINDOW, STRIDES, PADDING, DILATIONS, CEIL],
    effects: Effects::Pure,
    infer: Some(infer_max_pool),
    interfaces: &[&Decompose(define_max_pool), &Derivative::Vjp(pool_derivative::max_pool_vjp)],
    ..OpDef::new("rc.tensor.max_pool")
};

pub static MAX_POOL_GRAD: OpDef = OpDef {
    summary: "The gradient of tensor.max_pool: each window's goes to the element that was its maximum.",
    doc: "Sums of several windows' gradients are accumulated in f32 for narrower floats and rounded once.",
    example: "func.func @max_pool_grad(%y: tensor<2x4x3xf32>, %at: tensor<2x4x3xi64>) -> tensor<2x9x7xf32> {
  %x = tensor.max_pool_grad %y, %at {sizes = [9, 7], window = [3, 2], strides = [2, 2]} : tensor<2x9x7xf32>
  func.return %x
}
",
    operands: &[operand("y", FLOAT_TENSOR), operand("indices", INT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[SIZES, WINDOW, STRIDES, PADDING, DILATIONS, CEIL],
    effects: Effects::Pure,
    infer: Some(infer_grad),
    interfaces: &[&Decompose(define_max_pool_grad), &Derivative::Vjp(pool_derivative::max_pool_grad_vjp)],
    ..OpDef::new("rc.tensor.max_pool_grad")
};

const AVG_ATTRS: [AttrDef; 2] = [
    attr("count_padding", AttrKind::Bool, "Whether padding counts in the divisor.").default(AttrDefault::Bool(true)),
    attr("divisor", AttrKind::I64, "Divides every sum, instead of the number of elements.").optional(),
];

pub static AVG_POOL: OpDef = OpDef {
    summary: "The mean of each window.",
    doc: "Windows slide along the last dimensions, as many as 'window' has sizes. Elements that padding adds are 0; they count where \
          'count_padding' says so. What 'ceil' lets a window reach past that never counts. Computed in f32 for narrower \
          floats, rounded once.",
    example: "func.func @avg_pool(%x: tensor<2x9x7xf32>) -> tensor<2x5x4xf32> {
  %y = tensor.avg_pool %x {window = [3, 2], strides = [2, 2], padding = [1, 0], ceil = true, count_padding = false} : tensor<2x5x4xf32>
  func.return %y
}
",
    operands: &[operand("x", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[WINDOW, STRIDES, PADDING, CEIL, AVG_ATTRS[0], AVG_ATTRS[1]],
    effects: Effects::Pure,
    infer: Some(infer_avg_pool),
    interfaces: &[&Decompose(define_avg_pool), &Derivative::Vjp(pool_derivative::avg_pool_vjp)],
    ..OpDef::new("rc.tensor.avg_pool")
};

pub static AVG_POOL_GRAD: OpDef = OpDef {
    summary: "The gradient of tensor.avg_pool.",
    doc: "Computed in f32 for narrower floats, rounded once.",
    example: "func.func @avg_pool_grad(%y: tensor<2x4x3xf32>) -> tensor<2x9x7xf32> {
  %x = tensor.avg_pool_grad %y {sizes = [9, 7], window = [3, 2], strides = [2, 2]} : tensor<2x9x7xf32>
  func.return %x
}
",
    operands: &[operand("y", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[SIZES, WINDOW, STRIDES, PADDING, CEIL, AVG_ATTRS[0], AVG_ATTRS[1]],
    effects: Effects::Pure,
    infer: Some(infer_grad),
    interfaces: &[&Decompose(define_avg_pool_grad), &Derivative::Vjp(pool_derivative::avg_pool_grad_vjp)],
    ..OpDef::new("rc.tensor.avg_pool_grad")
};

pub static ADAPTIVE_AVG_POOL: OpDef = OpDef {
    summary: "The mean of each of a given number of parts.",
    doc: "The last dimensions are divided into as many parts as 'sizes' says; part i of n along a dimension of size s is \
          [floor(i s / n), ceil((i + 1) s / n)). Computed in f32 for narrower floats, rounded once.",
    example: "func.func @adaptive_avg_pool(%x: tensor<2x9x7xf32>) -> tensor<2x4x3xf32> {
  %y = tensor.adaptive_avg_pool %x {sizes = [4, 3]} : tensor<2x4x3xf32>
  func.return %y
}
",
    operands: &[operand("x", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[
        attr("sizes", AttrKind::I64Array, "The number of parts along each dimension."),
        attr(
            "windows",
            AttrKind::Bool,
            "Whether parts of different sizes are computed as windows; else as products with a matrix of shares. The result is the same.",
        )
        .default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Pure,
    infer: Some(infer_adaptive),
    interfaces: &[
        &Decompose(|b, op| define_adaptive(b, op, false)),
        &Derivative::Vjp(|v| pool_derivative::adaptive_vjp(v, &ADAPTIVE_AVG_POOL_GRAD)),
    ],
    ..OpDef::new("rc.tensor.adaptive_avg_pool")
};

pub static ADAPTIVE_AVG_POOL_GRAD: OpDef = OpDef {
    summary: "The gradient of tensor.adaptive_avg_pool.",
    doc: "Computed in f32 for narrower floats, rounded once.",
    example: "func.func @adaptive_avg_pool_grad(%y: tensor<2x4x3xf32>) -> tensor<2x9x7xf32> {
  %x = tensor.adaptive_avg_pool_grad %y {sizes = [9, 7]} : tensor<2x9x7xf32>
  func.return %x
}
",
    operands: &[operand("y", FLOAT_TENSOR)],
    results: &[result("result", FLOAT_TENSOR)],
    attrs: &[attr("sizes", AttrKind::I64Array, "The sizes before pooling.")],
    effects: Effects::Pure,
    infer: Some(infer_adaptive),
    interfaces: &[
        &Decompose(|b, op| define_adaptive(b, op, true)),
        &Derivative::Vjp(|v| pool_derivative::adaptive_vjp(v, &ADAPTIVE_AVG_POOL)),
    ],
    ..OpDef::new("rc.tensor.adaptive_avg_pool_grad")
};

/// The ops of this file.
pub static OPS: &[&OpDef] =
    &[&MAX_POOL, &MAX_POOL_GRAD, &AVG_POOL, &AVG_POOL_GRAD, &ADAPTIVE_AVG_POOL, &ADAPTIVE_AVG_POOL_GRAD];

/// The windows' counts along dimensions of these sizes, and the elements that `ceil` adds at their ends for them.
fn counts(w: &Windows, ceil: bool, sizes: &[Dim]) -> std::result::Result<(Vec<Dim>, Vec<i64>), String> {
    if !ceil {
        return Ok((w.counts(sizes)?, Vec::new()));
    }
    let mut out = (Vec::new(), Vec::new());
    for (i, size) in sizes.iter().enumerate() {
        let size =
            size.as_static().ok_or_else(|| format!("needs sizes that are integers with 'ceil', and has {size}"))?;
        let room = size + 2 * w.padding[i] - w.span(i);
        if size + w.padding[i] <= 0 || room <= -w.strides[i] {
            return Err(format!("has windows that span {} elements of {size}", w.span(i)));
        }
        let mut count = room.div_euclid(w.strides[i]) + i64::from(room.rem_euclid(w.strides[i]) > 0) + 1;
        // The last window starts inside, or in the padding before.
        if (count - 1) * w.strides[i] >= size + w.padding[i] {
            count -= 1;
        }
        out.0.push(Dim::Static(count));
        out.1.push(((count - 1) * w.strides[i] - room).max(0));
    }
    Ok(out)
}

fn infer_windows(args: &InferArgs) -> std::result::Result<Windows, String> {
    let windows = Windows::infer(args.ints("window")?, args)?;
    match args.operand(0)?.rank() >= windows.rank() {
        true => Ok(windows),
        false => Err(format!("has {} window sizes for {}", windows.rank(), args.operand(0)?)),
    }
}

fn pooled(args: &InferArgs) -> std::result::Result<Type, String> {
    let (x, windows) = (args.operand(0)?, infer_windows(args)?);
    let ceil = args.attr("ceil").and_then(|a| a.as_bool()).unwrap_or(false);
    let (shape, lead) = (x.shape(), x.rank() - windows.rank());
    let (counts, _) = counts(&windows, ceil, &shape[lead..])?;
    Ok(x.with_shape(&[&shape[..lead], counts.as_slice()].concat()))
}

fn infer_max_pool(args: &InferArgs) -> std::result::Result<Types, String> {
    let ty = pooled(args)?;
    Ok(smallvec![ty, ty.with_elem(Type::i64())])
}

fn infer_avg_pool(args: &InferArgs) -> Inferred {
    one(pooled(args)?)
}

fn infer_grad(args: &InferArgs) -> Inferred {
    let (y, windows) = (args.operand(0)?, infer_windows(args)?);
    let sizes = args.attr("sizes").and_then(|a| a.as_shape()).ok_or("expects the shape attribute 'sizes'")?;
    if sizes.len() != windows.rank() || args.operands.get(1).is_some_and(|at| at.with_elem(y.elem()) != y) {
        return Err(format!("needs {} 'sizes', and indices of the shape of {y}", windows.rank()));
    }
    let ceil = args.attr("ceil").and_then(|a| a.as_bool()).unwrap_or(false);
    let (shape, lead) = (y.shape(), y.rank() - windows.rank());
    let (counts, _) = counts(&windows, ceil, sizes)?;
    if let Some(i) = (0..counts.len()).find(|&i| (counts[i] - shape[lead + i]).as_static().is_some_and(|n| n != 0)) {
        return Err(format!(
            "has {} windows along dimension {} where the size {} has {}",
            shape[lead + i],
            lead + i,
            sizes[i],
            counts[i]
        ));
    }
    one(y.with_shape(&[&shape[..lead], sizes].concat()))
}

fn windows_of(op: OpRef) -> Windows {
    Windows::of(op.ints("window").expect("verified"), op)
}

/// The dimensions of a window's elements, after `rank` others.
fn window_dims(rank: usize, windows: &Windows) -> Vec<i64> {
    (rank..rank + windows.rank()).map(|d| d as i64).collect()
}

fn define_max_pool(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, windows, ceil) = (at.operand(0), windows_of(at), at.bool("ceil"));
    let (shape, rank) = (b.ty(x).shape().to_vec(), b.ty(x).rank());
    let lead = rank - windows.rank();
    let (counts, extra) = counts(&windows, ceil, &shape[lead..]).expect("verified");
    let elem = b.ty(x).elem();
    let least =
        Combiner::Max.identity(elem).and_then(crate::core::scalar::splat_of).expect("numbers have a least one").float();
    let values = windows.reduce(b, "max", x, least, &extra);
    // The number of the first maximum in its window, and the place it stands for.
    let size = Dim::Static(windows.sizes.iter().product());
    let flat_shape = [&shape[..lead], counts.as_slice(), &[size]].concat();
    let taken = windows.take(b, x, least, &extra);
    let flat = b.reshape(taken, &flat_shape);
    let reduce = b.op(op::core::REDUCE).operand(flat).attr("dims", Attr::i64s(&[rank as i64]));
    let number = reduce.attr("kind", Attr::str("argmax")).value();
    let number = b.convert(number, counted_in(&shape[lead..]));
    let indices = place(b, &windows, number, &shape[lead..]);
    Ok(vec![values, b.convert(indices, Type::i64())])
}

/// The type that row-major places in dimensions of these sizes are computed in, a GPU's and vectors' own where that holds them.
pub fn counted_in(sizes: &[Dim]) -> Type {
    let fits = product(sizes).as_static().is_some_and(|n| n <= i64::from(i32::MAX) / 2);
    if fits { Type::i32() } else { Type::i64() }
}

/// The row-major place in dimensions of `sizes` of element `number` of each window.
fn place(b: &mut Builder, windows: &Windows, number: Value, sizes: &[Dim]) -> Value {
    let (shape, elem) = (b.ty(number).shape().to_vec(), b.ty(number).elem());
    let lead = shape.len() - windows.rank();
    let (mut rest, mut places) = (number, Vec::new());
    for i in (0..windows.rank()).rev() {
        let element = b.binary_scalar("rem", rest, windows.sizes[i] as f64);
        rest = b.binary_scalar("div", rest, windows.sizes[i] as f64);
        let counter = Type::tensor(&[shape[lead + i]], elem);
        let window = b.op(op::core::IOTA).attr("dim", Attr::i64(0)).result(counter).value();
        let start = b.binary_scalar("mul", window, windows.strides[i] as f64);
        let start = b.binary_scalar("sub", start, windows.padding[i] as f64);
        let start = b.broadcast(start, &shape, &[(lead + i) as i64]);
        let offset = b.binary_scalar("mul", element, windows.dilations[i] as f64);
        let at = b.binary("add", start, offset);
        // Where all elements are the least number, padding may come first: the first element inside is meant.
        places.push(b.binary_scalar("max", at, 0.0));
    }
    let mut sum = None;
    for (i, at) in places.into_iter().rev().enumerate() {
        sum = Some(match sum {
            None => at,
            Some(sum) => {
                let size = b.size(sizes[i], elem, &shape);
                let outer = b.binary("mul", sum, size);
                b.binary("add", outer, at)
            }
        });
    }
    sum.expect("windows have a dimension")
}

fn define_max_pool_grad(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (y, indices, windows) = (at.operand(0), at.operand(1), windows_of(at));
    let sizes = at.attr("sizes").and_then(|a| a.as_shape()).expect("verified").to_vec();
    let (elem, rank) = (b.ty(y).elem(), b.ty(y).rank());
    let kept = fixed(&sizes).is_some() && b.ty(indices).elem() == Type::i32();
    let indices = if kept { indices } else { b.convert(indices, Type::i64()) };
    let [gradients, maxima] = match fixed(&sizes) {
        // Windows that do not hold an element have their maximum elsewhere; where there are none, the gradient is zero.
        Some(sizes) => [y, indices].map(|y| windows.near(b, y, b.ty(y).rank() - sizes.len(), &sizes)),
        None => [(y, 0.0), (indices, -1.0)].map(|(y, value)| windows.holders(b, y, &sizes, value)),
    };
    // What lies in memory is as narrow as it is given.
    let gradients = b.convert(gradients, compute_type(elem));
    let space = b.ty(maxima).shape().to_vec();
    let lead = rank - windows.rank();
    // The row-major number of each element.
    let counter = Type::tensor(&[product(&sizes)], b.ty(maxima).elem());
    let number = b.op(op::core::IOTA).attr("dim", Attr::i64(0)).result(counter).value();
    let number = b.reshape(number, &sizes);
    let number = b.broadcast(number, &space, &(lead as i64..rank as i64).collect::<Vec<_>>());
    let mine = b.compare("eq", maxima, number);
    let none = b.splat(0.0, b.ty(gradients));
    let chosen = b.select(mine, gradients, none);
    let sum = b.reduce("add", chosen, &window_dims(rank, &windows));
    Ok(vec![b.convert(sum, elem)])
}

/// What the sums of windows are divided by, of type `elem`: a tensor over the windows of dimensions of `sizes`.
fn divisors(b: &mut Builder, op: Op, windows: &Windows, sizes: &[Dim], extra: &[i64], elem: Type) -> Value {
    let at = b.body.op_ref(op);
    let (divisor, padding) = (at.int("divisor"), at.bool("count_padding"));
    let padded = windows.padding.iter().any(|&p| p != 0);
    let ragged = extra.iter().any(|&e| e > 0);
    if divisor.is_some() || !ragged && (padding || !padded) {
        let n = divisor.unwrap_or(windows.sizes.iter().product());
        return b.splat(n as f64, elem);
    }
    // Ones, where elements count; the others are padded.
    let zeros = vec![Dim::Static(0); sizes.len()];
    let ones = b.splat(1.0, Type::tensor(sizes, elem));
    let sides: Vec<Dim> = windows.padding.iter().map(|&p| Dim::Static(if padding { p } else { 0 })).collect();
    let ones = b.pad_or_crop(ones, 1.0, &sides, &sides);
    let rest: Vec<Dim> = windows.padding.iter().map(|&p| Dim::Static(if padding { 0 } else { p })).collect();
    let ones = b.pad_or_crop(ones, 0.0, &rest, &rest);
    let past: Vec<Dim> = (0..sizes.len()).map(|i| Dim::Static(extra.get(i).copied().unwrap_or(0))).collect();
    let ones = b.pad_or_crop(ones, 0.0, &zeros, &past);
    let unpadded = Windows { padding: vec![0; windows.rank()], ..windows.clone() };
    let taken = unpadded.take(b, ones, 0.0, &[]);
    b.reduce("add", taken, &window_dims(sizes.len(), windows))
}

/// Divides by what [`divisors`] gives: a scalar, or a tensor over the last dimensions.
fn divided(b: &mut Builder, x: Value, by: Value) -> Value {
    let shape = b.ty(x).shape();
    let by = b.broadcast_to(by, &shape);
    b.binary("div", x, by)
}

fn define_avg_pool(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, windows, ceil) = (at.operand(0), windows_of(at), at.bool("ceil"));
    let (shape, rank, elem) = (b.ty(x).shape().to_vec(), b.ty(x).rank(), b.ty(x).elem());
    let sizes = &shape[rank - windows.rank()..];
    let (_, extra) = counts(&windows, ceil, sizes).expect("verified");
    let wide = b.convert(x, compute_type(elem));
    let sum = windows.reduce(b, "add", wide, 0.0, &extra);
    let by = divisors(b, op, &windows, sizes, &extra, compute_type(elem));
    let mean = divided(b, sum, by);
    Ok(vec![b.convert(mean, elem)])
}

fn define_avg_pool_grad(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (y, windows, ceil) = (at.operand(0), windows_of(at), at.bool("ceil"));
    let sizes = at.attr("sizes").and_then(|a| a.as_shape()).expect("verified").to_vec();
    let (rank, elem) = (b.ty(y).rank(), b.ty(y).elem());
    let (_, extra) = counts(&windows, ceil, &sizes).expect("verified");
    let wide = b.convert(y, compute_type(elem));
    let by = divisors(b, op, &windows, &sizes, &extra, compute_type(elem));
    let shares = divided(b, wide, by);
    let taken = match fixed(&sizes) {
        Some(sizes) => {
            let taken = windows.near(b, shares, b.ty(shares).rank() - sizes.len(), &sizes);
            held(b, taken, &windows)
        }
        None => windows.holders(b, shares, &sizes, 0.0),
    };
    let sum = b.reduce("add", taken, &window_dims(rank, &windows));
    Ok(vec![b.convert(sum, elem)])
}

/// The sizes, if all are integers.
fn fixed(sizes: &[Dim]) -> Option<Vec<i64>> {
    sizes.iter().map(|d| d.as_static()).collect()
}

/// What [`Windows::near`] gives, of windows without dilation, and zero for those that do not hold the element.
fn held(b: &mut Builder, taken: Value, windows: &Windows) -> Value {
    let (ty, rank) = (b.ty(taken), windows.rank());
    let lead = ty.rank() - 2 * rank;
    let mut taken = taken;
    for i in (0..rank).filter(|&i| windows.sizes[i] % windows.strides[i] != 0) {
        let (steps, dims) = (windows.remainders(i), [lead + i, lead + rank + i]);
        let space = dims.map(|d| ty.shape()[d]);
        // Taps come from the last to the first.
        let (place, tap) = (iota(b, &space, 0), iota(b, &space, 1));
        let place = b.binary_scalar("add", place, steps.first as f64);
        let element = b.binary_scalar("rem", place, steps.stride as f64);
        let before = b.binary_scalar("mul", tap, steps.stride as f64);
        let element = b.binary("sub", element, before);
        let last = windows.sizes[i] - 1 - steps.stride * (steps.taps - 1);
        let last = b.splat(last as f64, b.ty(element));
        let inside = b.compare("le", element, last);
        let inside = b.broadcast(inside, &ty.shape(), &dims.map(|d| d as i64));
        let none = b.splat(0.0, ty);
        taken = b.select(inside, taken, none);
    }
    taken
}

fn infer_adaptive(args: &InferArgs) -> Inferred {
    let (x, sizes) = (args.operand(0)?, args.ints("sizes")?);
    if sizes.is_empty() || sizes.len() > x.rank() || sizes.iter().any(|&s| s < 1) {
        return Err(format!("needs positive 'sizes' for the last dimensions of {x}, and has {sizes:?}"));
    }
    let lead = x.rank() - sizes.len();
    one(x.with_shape(&[&x.shape()[..lead], &sizes.into_iter().map(Dim::Static).collect::<Vec<_>>()].concat()))
}

/// Each pooled dimension is multiplied by the matrix of the shares that elements have in parts.
fn define_adaptive(b: &mut Builder, op: Op, gradient: bool) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (x, sizes) = (at.operand(0), at.ints("sizes").expect("verified"));
    let elem = b.ty(x).elem();
    let rank = b.ty(x).rank() as i64;
    let mut y = b.convert(x, compute_type(elem));
    let windows = !gradient && b.body.op_ref(op).bool("windows");
    let pooled = pool_evenly(b, y, &sizes, gradient);
    let pooled = if pooled.is_none() && windows { pool_unevenly(b, y, &sizes) } else { pooled };
    if let Some(pooled) = pooled {
        return Ok(vec![b.convert(pooled, elem)]);
    }
    for (i, &size) in sizes.iter().enumerate() {
        // The dimension at hand is the first of those that are left; its product comes last, so all turn once.
        let dim = rank - sizes.len() as i64;
        let (from, to) = (b.ty(y).shape()[dim as usize], Dim::Static(size));
        let (parts, elements) = if gradient { (from, to) } else { (to, from) };
        let shares = shares(b, parts, elements, compute_type(elem));
        let side = if gradient { 0 } else { 1 };
        y = b.contract(y, shares, [&[], &[]], [&[dim], &[side]], compute_type(elem));
        debug_assert!(i < sizes.len());
    }
    Ok(vec![b.convert(y, elem)])
}

/// Where all parts have as many elements: means of blocks, or each element's share of its part's gradient.
fn pool_evenly(b: &mut Builder, x: Value, sizes: &[i64], gradient: bool) -> Option<Value> {
    let shape = b.ty(x).shape().to_vec();
    let lead = shape.len() - sizes.len();
    let mut blocks = shape[..lead].to_vec();
    let (mut inside, mut kept, mut each) = (Vec::new(), (0..lead as i64).collect::<Vec<i64>>(), 1);
    for (i, &size) in sizes.iter().enumerate() {
        let here = shape[lead + i].as_static()?;
        let (parts, elements) = if gradient { (here, size) } else { (size, here) };
        (elements % parts == 0).then_some(())?;
        kept.push((lead + 2 * i) as i64);
        inside.push((lead + 2 * i + 1) as i64);
        blocks.extend([Dim::Static(parts), Dim::Static(elements / parts)]);
        each *= elements / parts;
    }
    let share = 1.0 / each as f64;
    if gradient {
        let whole: Vec<Dim> = shape[..lead].iter().copied().chain(sizes.iter().map(|&s| Dim::Static(s))).collect();
        let x = b.binary_scalar("mul", x, share);
        let spread = b.broadcast(x, &blocks, &kept);
        return Some(b.reshape(spread, &whole));
    }
    let x = b.reshape(x, &blocks);
    let sum = b.reduce("add", x, &inside);
    Some(b.binary_scalar("mul", sum, share))
}

/// Where parts have different numbers of elements: sums of windows as long as the longest, without what lies past a part.
fn pool_unevenly(b: &mut Builder, x: Value, sizes: &[i64]) -> Option<Value> {
    let shape = b.ty(x).shape().to_vec();
    let (rank, lead) = (shape.len(), shape.len() - sizes.len());
    let elements: Vec<i64> = shape[lead..].iter().map(|d| d.as_static().filter(|n| *n > 0)).collect::<Option<_>>()?;
    let length = |i: usize, o: i64| ((o + 1) * elements[i] + sizes[i] - 1) / sizes[i] - o * elements[i] / sizes[i];
    let longest: Vec<i64> =
        (0..sizes.len()).map(|i| (0..sizes[i]).map(|o| length(i, o)).max()).collect::<Option<_>>()?;
    let dims: Vec<i64> = (lead as i64..rank as i64).collect();
    let op = b.op(op::core::WINDOW).operand(x).attr("dims", Attr::i64s(&dims)).attr("sizes", Attr::i64s(&longest));
    let op = op.attr("strides", Attr::i64s(&elements)).attr("divisors", Attr::i64s(sizes));
    let taken = op.attr("counts", Attr::i64s(sizes)).value();
    let (elem, space) = (b.ty(x).elem(), b.ty(taken).shape().to_vec());
    let mut weights: Option<Value> = None;
    for i in 0..sizes.len() {
        let share = |o: i64, k: i64| if k < length(i, o) { 1.0 / length(i, o) as f64 } else { 0.0 };
        let shares: Vec<f64> = (0..sizes[i]).flat_map(|o| (0..longest[i]).map(move |k| share(o, k))).collect();
        let table = b.dense(&shares, Type::tensor(&[Dim::Static(sizes[i]), Dim::Static(longest[i])], elem));
        let table = b.broadcast(table, &space, &[(lead + i) as i64, (rank + i) as i64]);
        weights = Some(weights.map_or(table, |weights| b.binary("mul", weights, table)));
    }
    let weights = weights?;
    let none = b.splat(0.0, b.ty(weights));
    let counts = b.compare("gt", weights, none);
    let weighted = b.binary("mul", taken, weights);
    let weighted = b.select(counts, weighted, none);
    let reduced: Vec<i64> = (rank as i64..(rank + sizes.len()) as i64).collect();
    Some(b.reduce("add", weighted, &reduced))
}

/// [parts, elements]: 1 / n for the n elements of a part, else 0.
fn shares(b: &mut Builder, parts: Dim, elements: Dim, elem: Type) -> Value {
    let shape = [parts, elements];
    let (part, element) = (iota(b, &shape, 0), iota(b, &shape, 1));
    let (count, size) = (b.size(parts, Type::i64(), &shape), b.size(elements, Type::i64(), &shape));
    let start = b.binary("mul", part, size);
    // ceil((i + 1) s / n) = floor(((i + 1) s + n - 1) / n)
    let end = b.binary("add", start, size);
    let end = b.binary("add", end, count);
    let end = b.binary_scalar("sub", end, 1.0);
    let (start, end) = (b.binary("div", start, count), b.binary("div", end, count));
    let (after, before) = (b.compare("ge", element, start), b.compare("lt", element, end));
    let inside = b.binary("and", after, before);
    let length = b.binary("sub", end, start);
    let length = b.convert(length, elem);
    let one = b.splat(1.0, b.ty(length));
    let share = b.binary("div", one, length);
    let none = b.splat(0.0, b.ty(share));
    b.select(inside, share, none)
}
