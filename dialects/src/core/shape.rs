//! Ops that place elements elsewhere and change none: broadcast, reshape, transpose, reverse.

use super::scalar::{splat_attr, splat_of};
use crate::builder::CoreBuilder;
use crate::constraints::{Inferred, SCALAR_LIKE, SHAPED, check_dims, dims_attr, fail, one, shape_text};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrKind, Fold, FoldArgs, InferArgs, attr, operand, result};
use rc_ir::{Dim, Effects, OpDef, OpRef, Result, Type};

pub static BROADCAST: OpDef = OpDef {
    summary: "Repeats the operand along dimensions of the result.",
    doc: "Dimension `i` of the operand is dimension `dims[i]` of the result, and `dims` increases strictly. Along each, the \
          sizes are equal, or the operand's is 1 and its element is repeated; along the other dimensions of the result \
          the whole is repeated. A scalar broadcasts to a tensor, vector or tile with `dims = []`.",
    example: "func.func @broadcast(%bias: tensor<5xf32>) -> tensor<3x5xf32> {
  %y = core.broadcast %bias {dims = [1]} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", SCALAR_LIKE)],
    results: &[result("result", SHAPED)],
    attrs: &[attr("dims", AttrKind::I64Array, "For each dimension of the operand, which one of the result it is.")],
    effects: Effects::Pure,
    verify: Some(verify_broadcast),
    fold: Some(fold_splat),
    interfaces: &[&super::reindex::BROADCAST, &Derivative::Vjp(broadcast_vjp)],
    ..OpDef::new("rc.core.broadcast")
};

pub static RESHAPE: OpDef = OpDef {
    summary: "The same elements in row-major order, in another shape.",
    doc: "The numbers of elements are equal as expressions over the symbols. Where they are equal for another reason, \
          `core.assume_shape` states it first.",
    example: "func.func @reshape(%x: tensor<s x 12 x f32>) -> tensor<s x 3 x 4 x f32> attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %y = core.reshape %x : tensor<s x 3 x 4 x f32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    effects: Effects::Pure,
    verify: Some(verify_reshape),
    fold: Some(fold_splat),
    interfaces: &[&super::reindex::RESHAPE, &Derivative::Vjp(reshape_vjp)],
    ..OpDef::new("rc.core.reshape")
};

pub static TRANSPOSE: OpDef = OpDef {
    summary: "Permutes dimensions.",
    doc: "Dimension `i` of the result is dimension `perm[i]` of the operand.",
    example: "func.func @transpose(%x: tensor<2x3x5xf32>) -> tensor<5x2x3xf32> {
  %y = core.transpose %x {perm = [2, 0, 1]} : tensor<5x2x3xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[attr("perm", AttrKind::I64Array, "A permutation of the operand's dimensions.")],
    effects: Effects::Pure,
    infer: Some(infer_transpose),
    fold: Some(fold_splat),
    interfaces: &[&super::reindex::TRANSPOSE, &Derivative::Vjp(transpose_vjp)],
    ..OpDef::new("rc.core.transpose")
};

pub static REVERSE: OpDef = OpDef {
    summary: "Reverses the order of elements along dimensions.",
    doc: "",
    example: "func.func @reverse(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = core.reverse %x {dims = [1]} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[attr("dims", AttrKind::I64Array, "The dimensions that are reversed.")],
    effects: Effects::Pure,
    infer: Some(infer_reverse),
    interfaces: &[&super::reindex::REVERSE, &Derivative::Vjp(reverse_vjp)],
    ..OpDef::new("rc.core.reverse")
};

fn verify_broadcast(op: OpRef) -> Result {
    fail(op, check_broadcast(op.body.ty(op.operand(0)), op.body.ty(op.result(0)), &op.ints("dims").unwrap_or_default()))
}

/// Whether `from` broadcasts to `to` along `dims`.
pub fn check_broadcast(from: Type, to: Type, dims: &[i64]) -> std::result::Result<(), String> {
    if from.elem() != to.elem() {
        return Err(format!("keeps the element type {}, and has a result of {}", from.elem(), to.elem()));
    }
    if !from.is_scalar() && from.with_shape(&[]) != to.with_shape(&[]) {
        return Err(format!("cannot make {to} of {from}"));
    }
    if dims.len() != from.rank() {
        return Err(format!("has {} entries in 'dims' for an operand of rank {}", dims.len(), from.rank()));
    }
    let places = check_dims("dims", dims, to.rank())?;
    if !places.is_sorted() {
        return Err("needs increasing 'dims'; core.transpose permutes".into());
    }
    let target = to.shape();
    for (i, (&size, &at)) in from.shape().iter().zip(&places).enumerate() {
        if size != target[at] && size != Dim::Static(1) {
            return Err(format!("cannot broadcast dimension {i} of size {size} to {}", target[at]));
        }
    }
    Ok(())
}

fn verify_reshape(op: OpRef) -> Result {
    let (from, to) = (op.body.ty(op.operand(0)), op.body.ty(op.result(0)));
    if from.elem() != to.elem() || from.with_shape(&[]) != to.with_shape(&[]) {
        return Err(op.error(format!("cannot make {to} of {from}")));
    }
    let (a, b) = (from.num_elements(), to.num_elements());
    if a == b && a != Dim::Dynamic {
        return Ok(());
    }
    let error = op.error(format!("has {a} elements in its operand and {b} in its result"));
    Err(if a.is_static() && b.is_static() {
        error
    } else {
        error.help("state what is known of the sizes with core.assume_shape")
    })
}

fn infer_transpose(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let perm = dims_attr(args, "perm", x.rank())?;
    let shape = x.shape();
    if perm.len() != shape.len() {
        return Err(format!("has {} entries in 'perm' for {}", perm.len(), shape_text(&shape)));
    }
    one(x.with_shape(&perm.iter().map(|&d| shape[d]).collect::<Vec<_>>()))
}

fn infer_reverse(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    dims_attr(args, "dims", x.rank())?;
    one(x)
}

/// Of a constant that is one number everywhere: one of the new type.
pub(super) fn fold_splat(args: &FoldArgs) -> Option<Fold> {
    let value = splat_of((*args.constants.first()?)?)?;
    splat_attr(args.op.body.ty(args.op.result(0)), value).map(Fold::Attr)
}

/// Sums over what was repeated.
fn broadcast_vjp(v: &mut Vjp) -> Result {
    let (g, from) = (v.g(), v.ty(v.operand(0)));
    if !from.is_tensor() {
        return Err(v
            .at()
            .unsupported("the derivative of a scalar that is broadcast")
            .help("make it a tensor of rank 0"));
    }
    let (to, dims) = (v.ty(g).shape(), v.at().ints("dims").unwrap_or_default());
    let shape = from.shape();
    let kept = |d: usize| dims.iter().position(|&at| at as usize == d).is_some_and(|i| shape[i] == to[d]);
    let summed: Vec<i64> = (0..to.len()).filter(|&d| !kept(d)).map(|d| d as i64).collect();
    v.give_with(0, |v| {
        let sum = v.reduce("add", g, &summed);
        v.reshape(sum, &shape)
    });
    Ok(())
}

fn reshape_vjp(v: &mut Vjp) -> Result {
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    v.give_with(0, |v| v.reshape(g, &shape));
    Ok(())
}

fn transpose_vjp(v: &mut Vjp) -> Result {
    let (g, perm) = (v.g(), v.at().ints("perm").unwrap_or_default());
    v.give_with(0, |v| v.permute(g, &inverse(&perm)));
    Ok(())
}

/// The permutation that undoes another.
pub fn inverse(perm: &[i64]) -> Vec<i64> {
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &d)| back[d as usize] = i as i64);
    back
}

fn reverse_vjp(v: &mut Vjp) -> Result {
    let (g, attrs) = (v.g(), v.at().body.attrs(v.at().op));
    v.give_with(0, |v| v.op(&REVERSE).operand(g).attrs(attrs).value());
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&BROADCAST, &RESHAPE, &TRANSPOSE, &REVERSE];
