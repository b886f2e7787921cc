//! Building graphs in Rust: a method for each operation that a frontend or a definition writes.
//!
//! [`TensorBuilder`] makes operations of `tensor`, with numpy's broadcasting; [`CoreBuilder`] those of `core`, exact in
//! their types. Both panic where operands do not fit the operation; use [`rc_ir::builder::OpBuilder::try_value`] on
//! graphs that are not known to be right.

use crate::core::scalar::{Scalar, splat_attr};
use crate::op;
use rc_ir::{Attr, Builder, Dim, Type, Value};
use smallvec::SmallVec;

/// Operations of `core`.
pub trait CoreBuilder {
    /// An elementwise operation of one operand: `unary("exp", x)` is `core.exp`.
    fn unary(&mut self, op: &str, x: Value) -> Value;
    /// An elementwise operation of two operands of one type: `binary("add", a, b)` is `core.add`.
    fn binary(&mut self, op: &str, a: Value, b: Value) -> Value;
    /// A constant of type `ty`, every element `value`.
    fn splat(&mut self, value: f64, ty: Type) -> Value;
    /// A constant of the tensor type `ty` with these elements, in row-major order.
    fn dense(&mut self, values: &[f64], ty: Type) -> Value;
    /// A size as numbers of type `elem`, everywhere in a tensor of `shape`.
    fn size(&mut self, size: Dim, elem: Type, shape: &[Dim]) -> Value;
    /// A binary operation with the same number in every element on the right.
    fn binary_scalar(&mut self, op: &str, x: Value, value: f64) -> Value;
    /// `core.compare`, with `kind` one of eq, ne, lt, le, gt, ge.
    fn compare(&mut self, kind: &str, a: Value, b: Value) -> Value;
    fn select(&mut self, condition: Value, a: Value, b: Value) -> Value;
    /// The same elements in another element type; `x` itself where it has that type.
    fn convert(&mut self, x: Value, elem: Type) -> Value;
    /// Operand dimension i becomes dimension `dims[i]` of `shape`.
    fn broadcast(&mut self, x: Value, shape: &[Dim], dims: &[i64]) -> Value;
    /// Broadcasts by numpy's rule: shapes are aligned at their ends.
    fn broadcast_to(&mut self, x: Value, shape: &[Dim]) -> Value;
    fn reshape(&mut self, x: Value, shape: &[Dim]) -> Value;
    /// Result dimension i is operand dimension `perm[i]`.
    fn permute(&mut self, x: Value, perm: &[i64]) -> Value;
    fn slice(&mut self, x: Value, starts: &[Dim], sizes: &[Dim]) -> Value;
    fn concat(&mut self, parts: &[Value], dim: i64) -> Value;
    /// Elements equal to `value` added before and after along each dimension; negative numbers take elements away.
    fn pad_or_crop(&mut self, x: Value, value: f64, low: &[Dim], high: &[Dim]) -> Value;
    /// Every window along `dims`, see `core.window`.
    fn window(&mut self, x: Value, dims: &[i64], sizes: &[i64], strides: &[i64], dilations: &[i64]) -> Value;
    /// Slices of `table` along `axis`, at the places that `indices` names.
    fn gather(&mut self, table: Value, indices: Value, axis: i64) -> Value;
    /// Reduces dimensions away; `kind` is add, mul, max, min, and, or.
    fn reduce(&mut self, kind: &str, x: Value, dims: &[i64]) -> Value;
    /// As [`CoreBuilder::reduce`], then broadcast back to the operand's shape.
    fn reduce_and_broadcast(&mut self, kind: &str, x: Value, dims: &[i64]) -> Value;
    /// `core.dot` over lists of dimensions, first of `lhs` and then of `rhs`, with a result of elements `elem`.
    fn contract(&mut self, lhs: Value, rhs: Value, batch: [&[i64]; 2], contract: [&[i64]; 2], elem: Type) -> Value;
    /// The matrix product of the last two dimensions' kinds: contracts `lhs_contract` with `rhs_contract`, dimensions pairwise;
    /// the first `batch` dimensions of both are batch dimensions.
    fn dot(&mut self, lhs: Value, rhs: Value, batch: i64, lhs_contract: i64, rhs_contract: i64) -> Value;
}

impl CoreBuilder for Builder<'_> {
    fn unary(&mut self, op: &str, x: Value) -> Value {
        self.op(format!("rc.core.{op}").as_str()).operand(x).value()
    }
    fn binary(&mut self, op: &str, a: Value, b: Value) -> Value {
        self.op(format!("rc.core.{op}").as_str()).operands(&[a, b]).value()
    }
    fn splat(&mut self, value: f64, ty: Type) -> Value {
        if ty.is_tensor() && ty.static_shape().is_none() {
            // Constants have fixed sizes: a symbolic one is a scalar, repeated.
            let scalar = self.splat(value, ty.elem());
            return self.broadcast(scalar, &ty.shape(), &[]);
        }
        let attr = splat_attr(ty, Scalar::Float(value)).expect("a scalar type, or a tensor of scalars and fixed sizes");
        self.op(op::core::CONSTANT).attr("value", attr).result(ty).value()
    }
    fn dense(&mut self, values: &[f64], ty: Type) -> Value {
        let (elem, width) = (ty.elem(), ty.elem().byte_width().expect("elements of a fixed width") as usize);
        let bits = |&x: &f64| Scalar::Float(x).convert(elem).and_then(|x| x.to_bits(elem)).expect("a number's type");
        let bytes: Vec<u8> = values.iter().flat_map(|x| bits(x).to_le_bytes().into_iter().take(width)).collect();
        self.op(op::core::CONSTANT).attr("value", Attr::dense(ty, bytes)).result(ty).value()
    }
    fn size(&mut self, size: Dim, elem: Type, shape: &[Dim]) -> Value {
        if let Some(n) = size.as_static() {
            return self.splat(n as f64, Type::tensor(shape, elem));
        }
        let size = self.op(op::core::EXTENT).attr("expr", Attr::shape(&[size])).value();
        let size = self.convert(size, elem);
        self.broadcast(size, shape, &[])
    }
    fn binary_scalar(&mut self, op: &str, x: Value, value: f64) -> Value {
        let splat = self.splat(value, self.ty(x));
        self.binary(op, x, splat)
    }
    fn compare(&mut self, kind: &str, a: Value, b: Value) -> Value {
        self.op(op::core::COMPARE).operands(&[a, b]).attr("kind", Attr::str(kind)).value()
    }
    fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.op(op::core::SELECT).operands(&[condition, a, b]).value()
    }
    fn convert(&mut self, x: Value, elem: Type) -> Value {
        let ty = self.ty(x);
        if ty.elem() == elem { x } else { self.op(op::core::CONVERT).operand(x).result(ty.with_elem(elem)).value() }
    }
    fn broadcast(&mut self, x: Value, shape: &[Dim], dims: &[i64]) -> Value {
        let ty = Type::tensor(shape, self.ty(x).elem());
        if self.ty(x) == ty {
            return x;
        }
        self.op(op::core::BROADCAST).operand(x).attr("dims", Attr::i64s(dims)).result(ty).value()
    }
    fn broadcast_to(&mut self, x: Value, shape: &[Dim]) -> Value {
        let first = shape.len() - self.ty(x).rank();
        let dims: Vec<i64> = (first..shape.len()).map(|d| d as i64).collect();
        self.broadcast(x, shape, &dims)
    }
    fn reshape(&mut self, x: Value, shape: &[Dim]) -> Value {
        let ty = self.ty(x).with_shape(shape);
        if self.ty(x) == ty { x } else { self.op(op::core::RESHAPE).operand(x).result(ty).value() }
    }
    fn permute(&mut self, x: Value, perm: &[i64]) -> Value {
        if perm.iter().copied().eq(0..perm.len() as i64) {
            return x;
        }
        self.op(op::core::TRANSPOSE).operand(x).attr("perm", Attr::i64s(perm)).value()
    }
    fn slice(&mut self, x: Value, starts: &[Dim], sizes: &[Dim]) -> Value {
        self.op(op::core::SLICE)
            .operand(x)
            .attr("starts", Attr::shape(starts))
            .attr("sizes", Attr::shape(sizes))
            .value()
    }
    fn concat(&mut self, parts: &[Value], dim: i64) -> Value {
        self.op(op::core::CONCAT).operands(parts).attr("dim", Attr::i64(dim)).value()
    }
    fn pad_or_crop(&mut self, x: Value, value: f64, low: &[Dim], high: &[Dim]) -> Value {
        let negative = |d: &Dim| d.as_static().is_some_and(|n| n < 0);
        let (zero, shape) = (Dim::Static(0), self.ty(x).shape());
        let part = |d: &Dim, take: bool| if negative(d) == take { if take { zero - *d } else { *d } } else { zero };
        let mut x = x;
        if low.iter().chain(high).any(negative) {
            let starts: Vec<Dim> = low.iter().map(|d| part(d, true)).collect();
            let sizes: Vec<Dim> =
                shape.iter().zip(&starts).zip(high).map(|((&n, &s), h)| n - s - part(h, true)).collect();
            x = self.slice(x, &starts, &sizes);
        }
        let [low, high] = [low, high].map(|side| side.iter().map(|d| part(d, false)).collect::<Vec<_>>());
        if low.iter().chain(&high).all(|&d| d == zero) {
            return x;
        }
        let value = self.splat(value, self.ty(x).elem());
        let op = self.op(op::core::PAD).operands(&[x, value]);
        op.attr("low", Attr::shape(&low)).attr("high", Attr::shape(&high)).value()
    }
    fn window(&mut self, x: Value, dims: &[i64], sizes: &[i64], strides: &[i64], dilations: &[i64]) -> Value {
        let op = self.op(op::core::WINDOW).operand(x).attr("dims", Attr::i64s(dims)).attr("sizes", Attr::i64s(sizes));
        op.attr("strides", Attr::i64s(strides)).attr("dilations", Attr::i64s(dilations)).value()
    }
    fn gather(&mut self, table: Value, indices: Value, axis: i64) -> Value {
        self.op(op::core::GATHER).operands(&[table, indices]).attr("axis", Attr::i64(axis)).value()
    }
    fn reduce(&mut self, kind: &str, x: Value, dims: &[i64]) -> Value {
        self.op(op::core::REDUCE).operand(x).attr("dims", Attr::i64s(dims)).attr("kind", Attr::str(kind)).value()
    }
    fn reduce_and_broadcast(&mut self, kind: &str, x: Value, dims: &[i64]) -> Value {
        let shape = self.ty(x).shape();
        let kept: Vec<i64> = (0..shape.len() as i64).filter(|d| !dims.contains(d)).collect();
        let reduced = self.reduce(kind, x, dims);
        self.broadcast(reduced, &shape, &kept)
    }
    fn contract(&mut self, lhs: Value, rhs: Value, batch: [&[i64]; 2], contract: [&[i64]; 2], elem: Type) -> Value {
        let (l, r) = (self.ty(lhs).shape(), self.ty(rhs).shape());
        let rest = |shape: &[Dim], side: usize| -> SmallVec<[Dim; 4]> {
            let taken = |d: &usize| batch[side].contains(&(*d as i64)) || contract[side].contains(&(*d as i64));
            (0..shape.len()).filter(|d| !taken(d)).map(|d| shape[d]).collect()
        };
        let mut shape: SmallVec<[Dim; 4]> = batch[0].iter().map(|&d| l[d as usize]).collect();
        shape.extend(rest(&l, 0));
        shape.extend(rest(&r, 1));
        let op = self.op(op::core::DOT).operands(&[lhs, rhs]);
        let op = op.attr("lhs_contract", Attr::i64s(contract[0])).attr("rhs_contract", Attr::i64s(contract[1]));
        let batched = !batch[0].is_empty();
        let op = if batched {
            op.attr("lhs_batch", Attr::i64s(batch[0])).attr("rhs_batch", Attr::i64s(batch[1]))
        } else {
            op
        };
        op.result(Type::tensor(&shape, elem)).value()
    }
    fn dot(&mut self, lhs: Value, rhs: Value, batch: i64, lhs_contract: i64, rhs_contract: i64) -> Value {
        let batches: Vec<i64> = (0..batch).collect();
        let elem = self.ty(lhs).elem();
        self.contract(lhs, rhs, [&batches, &batches], [&[lhs_contract], &[rhs_contract]], elem)
    }
}

/// Operations of `tensor`: what a frontend writes.
pub trait TensorBuilder {
    /// x wᵀ + b over the last dimension of x: x [.., k], w [n, k], b [n].
    fn linear(&mut self, x: Value, w: Value, bias: Option<Value>) -> Value;
    /// The matrix product of the last two dimensions, with broadcast batch dimensions.
    fn matmul(&mut self, a: Value, b: Value) -> Value;
    /// Elementwise, with numpy's broadcasting, as the four below.
    fn add(&mut self, a: Value, b: Value) -> Value;
    fn sub(&mut self, a: Value, b: Value) -> Value;
    fn mul(&mut self, a: Value, b: Value) -> Value;
    fn div(&mut self, a: Value, b: Value) -> Value;
    fn relu(&mut self, x: Value) -> Value;
    /// `approximate` is none (by erf) or tanh.
    fn gelu(&mut self, x: Value, approximate: &str) -> Value;
    fn silu(&mut self, x: Value) -> Value;
    fn softmax(&mut self, x: Value, dim: i64) -> Value;
    /// Normalizes over the last dimension.
    fn layer_norm(&mut self, x: Value, weight: Option<Value>, bias: Option<Value>, eps: f64) -> Value;
    fn rms_norm(&mut self, x: Value, weight: Option<Value>, eps: f64) -> Value;
    /// Sum, mean, maximum or minimum along dimensions (all, where `dims` is `None`): `reduction("mean", x, Some(&[-1]), true)`.
    fn reduction(&mut self, op: &str, x: Value, dims: Option<&[i64]>, keepdim: bool) -> Value;
    /// Elementwise choice, with numpy's broadcasting.
    fn where_(&mut self, condition: Value, a: Value, b: Value) -> Value;
    /// Joins along a dimension.
    fn cat(&mut self, parts: &[Value], dim: i64) -> Value;
    /// Parts of these sizes along a dimension.
    fn split(&mut self, x: Value, sizes: &[Dim], dim: i64) -> Vec<Value>;
    /// The mean loss of logits [n, classes] for class numbers [n].
    fn cross_entropy(&mut self, logits: Value, target: Value) -> Value;
    /// Rows of `table` [n, ..], at the places that `ids` names.
    fn embedding(&mut self, table: Value, ids: Value) -> Value;
    /// Attention of q, k, v [batch, heads, length, size]. `scale` is 1/sqrt(size) where absent.
    fn sdpa(&mut self, q: Value, k: Value, v: Value, mask: Option<Value>, causal: bool, scale: Option<f64>) -> Value;
}

impl TensorBuilder for Builder<'_> {
    fn linear(&mut self, x: Value, w: Value, bias: Option<Value>) -> Value {
        self.op(op::tensor::LINEAR).operands(&[x, w]).operands(bias.as_slice()).value()
    }
    fn matmul(&mut self, a: Value, b: Value) -> Value {
        self.op(op::tensor::MATMUL).operands(&[a, b]).value()
    }
    fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(op::tensor::ADD).operands(&[a, b]).value()
    }
    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.op(op::tensor::SUB).operands(&[a, b]).value()
    }
    fn mul(&mut self, a: Value, b: Value) -> Value {
        self.op(op::tensor::MUL).operands(&[a, b]).value()
    }
    fn div(&mut self, a: Value, b: Value) -> Value {
        self.op(op::tensor::DIV).operands(&[a, b]).value()
    }
    fn relu(&mut self, x: Value) -> Value {
        self.op(op::tensor::RELU).operand(x).value()
    }
    fn gelu(&mut self, x: Value, approximate: &str) -> Value {
        self.op(op::tensor::GELU).operand(x).attr("approximate", Attr::str(approximate)).value()
    }
    fn silu(&mut self, x: Value) -> Value {
        self.op(op::tensor::SILU).operand(x).value()
    }
    fn softmax(&mut self, x: Value, dim: i64) -> Value {
        self.op(op::tensor::SOFTMAX).operand(x).attr("dim", Attr::i64(dim)).value()
    }
    fn layer_norm(&mut self, x: Value, weight: Option<Value>, bias: Option<Value>, eps: f64) -> Value {
        let op = self.op(op::tensor::LAYER_NORM).operand(x).operands(weight.as_slice()).operands(bias.as_slice());
        op.attr("eps", Attr::float(eps, Type::f64())).value()
    }
    fn rms_norm(&mut self, x: Value, weight: Option<Value>, eps: f64) -> Value {
        let op = self.op(op::tensor::RMS_NORM).operand(x).operands(weight.as_slice());
        op.attr("eps", Attr::float(eps, Type::f64())).value()
    }
    fn reduction(&mut self, op: &str, x: Value, dims: Option<&[i64]>, keepdim: bool) -> Value {
        let op = self.op(format!("rc.tensor.{op}").as_str()).operand(x).maybe_attr("dims", dims.map(Attr::i64s));
        op.attr("keepdim", Attr::bool(keepdim)).value()
    }
    fn where_(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.op(op::tensor::WHERE).operands(&[condition, a, b]).value()
    }
    fn cat(&mut self, parts: &[Value], dim: i64) -> Value {
        self.op(op::tensor::CAT).operands(parts).attr("dim", Attr::i64(dim)).value()
    }
    fn split(&mut self, x: Value, sizes: &[Dim], dim: i64) -> Vec<Value> {
        let op =
            self.op(op::tensor::SPLIT).operand(x).attr("sizes", Attr::shape(sizes)).attr("dim", Attr::i64(dim)).build();
        self.body.results(op).collect()
    }
    fn cross_entropy(&mut self, logits: Value, target: Value) -> Value {
        self.op(op::tensor::CROSS_ENTROPY).operands(&[logits, target]).value()
    }
    fn embedding(&mut self, table: Value, ids: Value) -> Value {
        self.op(op::tensor::EMBEDDING).operands(&[table, ids]).value()
    }
    fn sdpa(&mut self, q: Value, k: Value, v: Value, mask: Option<Value>, causal: bool, scale: Option<f64>) -> Value {
        let op = self.op(op::tensor::SDPA).operands(&[q, k, v]).operands(mask.as_slice());
        let op = op.attr("causal", Attr::bool(causal));
        op.maybe_attr("scale", scale.map(|s| Attr::float(s, Type::f64()))).value()
    }
}
