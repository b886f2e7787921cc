//! Layers in terms of the `core` dialect.
//!
//! A result is rounded to the model's dtype where PyTorch's kernels round it, at the end of each layer. Inside, sums,
//! a norm's statistics and an activation are float32.

use rc_ir::{Attr, Builder, Dim, Type, Value};

/// `op(operands)`, for an operation of the `core` dialect that needs no attributes.
fn apply(b: &mut Builder, op: &str, operands: &[Value]) -> Value {
    b.op(&*format!("rc.core.{op}")).operands(operands).value()
}

/// `x` with the element type `elem`; `x` itself where it has it.
fn convert(b: &mut Builder, x: Value, elem: Type) -> Value {
    let ty = b.ty(x);
    if ty.elem() == elem {
        return x;
    }
    b.op("rc.core.convert").operand(x).result(ty.with_elem(elem)).value()
}

/// `x` along the last dimensions of `like`, repeated over the leading ones.
fn along_last(b: &mut Builder, x: Value, like: Type) -> Value {
    let (rank, own) = (like.rank() as i64, b.ty(x).rank() as i64);
    broadcast(b, x, &Vec::from_iter(rank - own..rank), like)
}

/// `x`, whose dimension `i` becomes dimension `dims[i]` of the shape of `like`.
fn broadcast(b: &mut Builder, x: Value, dims: &[i64], like: Type) -> Value {
    let ty = like.with_elem(b.ty(x).elem());
    b.op("rc.core.broadcast").operand(x).attr("dims", Attr::i64s(dims)).result(ty).value()
}

/// `value` everywhere, with the type of `like`.
fn full(b: &mut Builder, value: f64, like: Type) -> Value {
    let scalar = b.op("rc.core.constant").attr("value", Attr::float(value, like.elem())).value();
    broadcast(b, scalar, &[], like)
}

/// `x @ w + bias`, for `x` [..., in], `w` [in, out], `bias` [out] of one dtype: [..., out].
/// Products and the bias add up in float32 and are rounded once.
pub fn linear(b: &mut Builder, x: Value, w: Value, bias: Value) -> Value {
    let elem = b.ty(x).elem();
    let y = dot(b, x, w, 0, Type::f32());
    let bias = convert(b, bias, Type::f32());
    let bias = along_last(b, bias, b.ty(y));
    let y = apply(b, "add", &[y, bias]);
    convert(b, y, elem)
}

/// The product over the last dimension of `x` and dimension `contract` of the matrix `w`, added up in float32.
fn dot(b: &mut Builder, x: Value, w: Value, contract: usize, elem: Type) -> Value {
    let (xt, wt) = (b.ty(x), b.ty(w));
    let mut shape = xt.shape();
    let last = shape.len() - 1;
    shape[last] = wt.shape()[1 - contract];
    b.op("rc.core.dot")
        .operands(&[x, w])
        .attr("lhs_contract", Attr::i64s(&[last as i64]))
        .attr("rhs_contract", Attr::i64s(&[contract as i64]))
        .result(Type::tensor(&shape, elem))
        .value()
}

/// `x @ wᵀ`, for `w` [out, in] of the dtype of `x`: [..., out].
pub fn product(b: &mut Builder, x: Value, w: Value) -> Value {
    let elem = b.ty(x).elem();
    dot(b, x, w, 1, elem)
}

/// `x + y`, where `y` may lack leading dimensions of `x`.
pub fn add(b: &mut Builder, x: Value, y: Value) -> Value {
    let ty = b.ty(x);
    let y = if b.ty(y) == ty { y } else { along_last(b, y, ty) };
    apply(b, "add", &[x, y])
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension, in float32 and rounded once.
pub fn layer_norm(b: &mut Builder, x: Value, weight: Value, bias: Value, eps: f64) -> Value {
    let elem = b.ty(x).elem();
    let x = convert(b, x, Type::f32());
    let ty = b.ty(x);
    let mean = mean_of_last(b, x);
    let centered = apply(b, "sub", &[x, mean]);
    let squares = apply(b, "mul", &[centered, centered]);
    let variance = mean_of_last(b, squares);
    let eps = full(b, eps, ty);
    let variance = apply(b, "add", &[variance, eps]);
    let scale = apply(b, "rsqrt", &[variance]);
    let normal = apply(b, "mul", &[centered, scale]);
    let [weight, bias] = [weight, bias].map(|v| {
        let v = convert(b, v, Type::f32());
        along_last(b, v, ty)
    });
    let scaled = apply(b, "mul", &[normal, weight]);
    let y = apply(b, "add", &[scaled, bias]);
    convert(b, y, elem)
}

/// The mean over the last dimension, repeated along it.
fn mean_of_last(b: &mut Builder, x: Value) -> Value {
    let ty = b.ty(x);
    let last = ty.rank() as i64 - 1;
    let width = ty.shape()[last as usize].as_static().expect("a norm's width is fixed");
    let sum = b.op("rc.core.reduce").operand(x).attr("dims", Attr::i64s(&[last])).attr("kind", Attr::str("add")).value();
    let inverse = full(b, 1.0 / width as f64, b.ty(sum));
    let mean = apply(b, "mul", &[sum, inverse]);
    broadcast(b, mean, &Vec::from_iter(0..last), ty)
}

/// `0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`, in float32 and rounded once.
pub fn gelu_tanh(b: &mut Builder, x: Value) -> Value {
    let elem = b.ty(x).elem();
    let x = convert(b, x, Type::f32());
    let ty = b.ty(x);
    let [half, one, cubic, root] =
        [0.5, 1.0, 0.044715, std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2].map(|c| full(b, c, ty));
    let square = apply(b, "mul", &[x, x]);
    let cube = apply(b, "mul", &[square, x]);
    let cube = apply(b, "mul", &[cubic, cube]);
    let inner = apply(b, "add", &[x, cube]);
    let inner = apply(b, "mul", &[root, inner]);
    let tanh = apply(b, "tanh", &[inner]);
    let gate = apply(b, "add", &[one, tanh]);
    let half_x = apply(b, "mul", &[half, x]);
    let y = apply(b, "mul", &[half_x, gate]);
    convert(b, y, elem)
}

/// Rows `ids` of `table`: [shape of ids..., width].
pub fn embedding(b: &mut Builder, table: Value, ids: Value) -> Value {
    b.op("rc.core.gather").operands(&[table, ids]).attr("axis", Attr::i64(0)).value()
}

/// The part of `x` that begins at `starts` and has the shape `sizes`.
pub fn slice(b: &mut Builder, x: Value, starts: &[i64], sizes: &[Dim]) -> Value {
    let starts: Vec<Dim> = starts.iter().map(|&n| Dim::Static(n)).collect();
    b.op("rc.core.slice").operand(x).attr("starts", Attr::shape(&starts)).attr("sizes", Attr::shape(sizes)).value()
}

/// `x` in another shape of as many elements.
pub fn reshape(b: &mut Builder, x: Value, shape: &[Dim]) -> Value {
    let ty = b.ty(x).with_shape(shape);
    b.op("rc.core.reshape").operand(x).result(ty).value()
}

/// Dimension `i` of the result is dimension `perm[i]` of `x`.
pub fn permute(b: &mut Builder, x: Value, perm: &[i64]) -> Value {
    b.op("rc.core.transpose").operand(x).attr("perm", Attr::i64s(perm)).value()
}

/// Causal scaled dot-product attention of `q`, `k`, `v`, each [batch, heads, length, head width].
pub fn causal_attention(b: &mut Builder, q: Value, k: Value, v: Value) -> Value {
    b.op("rc.core.attention").operand(q).operand(k).operand(v).attr("causal", Attr::bool(true)).value()
}
