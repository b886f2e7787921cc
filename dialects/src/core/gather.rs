//! Elements chosen by index.

use crate::builder::CoreBuilder;
use crate::constraints::{INT_TENSOR, Inferred, TENSOR, dim_attr, one};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::rewrite::Canonicalize;
use rc_ir::{Attr, Dim, Effects, OpDef, Result, Type};

const BATCH: AttrDef = attr("batch", AttrKind::I64, "How many first dimensions table and indices have in common.")
    .default(AttrDefault::Int(0));

pub static GATHER: OpDef = OpDef {
    summary: "Slices of a table, chosen by an array of indices.",
    doc: "The result's shape is that of the table with dimension `axis` replaced by the indices' shape: an embedding for \
          `axis = 0`, `torch.index_select` for indices of rank 1. With `batch`, so many first dimensions of table and \
          indices are the same, and each slice of the table has indices of its own: the dimension is replaced by the indices' \
          other dimensions (`torch.gather` along the last one, for `batch` = rank - 1). An index outside of the table is an error, which the \
          interpreter reports; compiled, the result is undefined.",
    example: "func.func @gather(%table: tensor<10x4xf32>) -> tensor<3x4xf32> {
  %ids = core.constant {value = dense<[9, 0, 4]> : tensor<3xi64>} : tensor<3xi64>
  %y = core.gather %table, %ids {axis = 0} : tensor<3x4xf32>
  func.return %y
}
",
    operands: &[operand("table", TENSOR), operand("indices", INT_TENSOR)],
    results: &[result("result", TENSOR)],
    attrs: &[attr("axis", AttrKind::I64, "The dimension of the table that the indices are positions in."), BATCH],
    effects: Effects::Pure,
    infer: Some(|args: &InferArgs| one(gathered(args)?)),
    fold: Some(super::shape::fold_splat),
    interfaces: &[
        &Derivative::Vjp(gather_vjp),
        &Canonicalize(&[
            ("gather-of-known", super::known_indices::slice_at_known),
            ("gather-of-repeated", super::gather_broadcast::of_repeated),
            ("gather-of-counters", super::gather_broadcast::of_counters),
        ]),
    ],
    ..OpDef::new("rc.core.gather")
};

/// The words of `core.scatter`'s `kind`.
pub const SCATTER_KINDS: &[&str] = &["set", "add", "mul", "max", "min"];

pub static SCATTER: OpDef = OpDef {
    summary: "A tensor with slices updated where an array of indices says.",
    doc: "The counterpart of `core.gather`: `updates` has the shape that gathering `indices` from `x` gives, and each element \
          of it is combined by `kind` with the element that it would have been gathered from. Updates of one element \
          follow each other in the row-major order of `updates` (so the last `set` stays); `add` and `mul` of \
          floats may be reassociated. Updates of another type are converted to that of `x`. An index outside is an error, as for `core.gather`. `order` and `starts`, given together, \
          help machines that look for each element's updates, and change no result: with the indices as [batch, k], `order` [batch, k] \
          has the updates' numbers sorted by index (equal ones in order), and those of index i are from `starts[i]` to before \
          `starts[i + 1]`, [batch, size of the axis + 1].",
    example: "func.func @scatter(%x: tensor<10x4xf32>, %updates: tensor<3x4xf32>) -> tensor<10x4xf32> {
  %ids = core.constant {value = dense<[9, 0, 9]> : tensor<3xi64>} : tensor<3xi64>
  %y = core.scatter %x, %ids, %updates {axis = 0, kind = add} : tensor<10x4xf32>
  func.return %y
}
",
    operands: &[
        operand("x", TENSOR),
        operand("indices", INT_TENSOR),
        operand("updates", TENSOR),
        optional("order", INT_TENSOR),
        optional("starts", INT_TENSOR),
    ],
    results: &[result("result", TENSOR)],
    attrs: &[
        attr("axis", AttrKind::I64, "The dimension of `x` that the indices are positions in."),
        attr("kind", AttrKind::Enum(SCATTER_KINDS), "How an update and the element that is there combine."),
        BATCH,
        attr("any_order", AttrKind::Bool, "Updates of a place need not follow their order, which spares sorting them: for exact combinations, or where results may differ from run to run.")
            .default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Pure,
    infer: Some(infer_scatter),
    interfaces: &[
        &Derivative::Vjp(super::scatter_derivative::scatter_vjp),
        &Canonicalize(&[
            ("scatter-of-one", super::one_hot::choose_the_one),
            ("scatter-by-order", super::permutation::look_up_updates),
        ]),
    ],
    ..OpDef::new("rc.core.scatter")
};

/// The type of slices of operand 0 chosen by operand 1.
fn gathered(args: &InferArgs) -> std::result::Result<Type, String> {
    let (table, indices) = (args.operand(0)?, args.operand(1)?);
    let axis = dim_attr(args, "axis", table.rank())?;
    let batch =
        args.int("batch").ok().and_then(|b| usize::try_from(b).ok()).filter(|&b| b <= axis && b <= indices.rank());
    let batch = batch.ok_or_else(|| {
        format!("needs a 'batch' of at most the axis {axis} and the indices' rank {}", indices.rank())
    })?;
    let mut shape = table.shape();
    if shape[..batch] != indices.shape()[..batch] {
        return Err(format!("has other first {batch} dimensions in {table} than in {indices}"));
    }
    shape.remove(axis);
    shape.insert_many(axis, indices.shape()[batch..].iter().copied());
    Ok(table.with_shape(&shape))
}

fn infer_scatter(args: &InferArgs) -> Inferred {
    let (x, updates, expected) = (args.operand(0)?, args.operand(2)?, gathered(args)?);
    if updates.with_elem(expected.elem()) != expected || updates.elem().is_float() != expected.elem().is_float() {
        return Err(format!("needs updates of type {expected}, and has {updates}"));
    }
    let kind = args.attr("kind").and_then(|kind| kind.as_str()).unwrap_or("set");
    if kind != "set" && x.elem() == Type::i1() {
        return Err(format!("combines numbers by {kind}, and has {x}; convert to i8 before and compare with 0 after"));
    }
    if let (Ok(order), Ok(starts)) = (args.operand(3), args.operand(4)) {
        check_sorted(args, order, starts)?;
    } else if args.operand(3).is_ok() {
        return Err("needs 'order' and 'starts' together".into());
    }
    one(x)
}

/// The shapes of a scatter's `order` and `starts`.
fn check_sorted(args: &InferArgs, order: Type, starts: Type) -> std::result::Result<(), String> {
    let (x, indices) = (args.operand(0)?, args.operand(1)?);
    let (axis, batch) = (dim_attr(args, "axis", x.rank())?, args.int("batch").unwrap_or(0) as usize);
    let product = |dims: &[Dim]| dims.iter().fold(Dim::Static(1), |n, &d| n * d);
    let (b, k) = (product(&indices.shape()[..batch]), product(&indices.shape()[batch..]));
    let (wanted, bounds) = ([b, k], [b, x.shape()[axis] + Dim::Static(1)]);
    if order.shape().as_slice() != wanted || starts.shape().as_slice() != bounds {
        return Err(format!(
            "needs an 'order' of shape {wanted:?} and 'starts' of shape {bounds:?}, and has {order} and {starts}"
        ));
    }
    Ok(())
}

fn gather_vjp(v: &mut Vjp) -> Result {
    let (g, ids, attrs) = (v.g(), v.operand(1), v.at().body.attrs(v.at().op));
    let ty = v.ty(v.operand(0));
    v.give_with(0, |v| {
        let zeros = v.splat(0.0, ty);
        v.op(&SCATTER).operand(zeros).operand(ids).operand(g).attrs(attrs).attr("kind", Attr::str("add")).value()
    });
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&GATHER, &SCATTER];
