//! Sizes as values, and what is known of them.

use crate::constraints::{INDEX, Inferred, SHAPED, TENSOR, dim_attr, fail, one};
use crate::derivative::Derivative;
use crate::interfaces::Decompose;
use rc_ir::op_def::{AttrKind, Fold, FoldArgs, InferArgs, attr, operand, result};
use rc_ir::{Attr, Builder, Dim, Effects, Op, OpDef, OpRef, Result, Type, Value};

pub static DIM: OpDef = OpDef {
    summary: "The size of a dimension, as a value.",
    doc: "",
    example: "func.func @dim(%x: tensor<s x 3 x f32>) -> index attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %n = core.dim %x {dim = 0} : index
  func.return %n
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", INDEX)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension.")],
    effects: Effects::Pure,
    infer: Some(infer_dim),
    fold: Some(fold_dim),
    interfaces: &[&Derivative::Zero, &Decompose(define_dim)],
    ..OpDef::new("rc.core.dim")
};

pub static EXTENT: OpDef = OpDef {
    summary: "The value of an expression over the function's symbols.",
    doc: "A size that no tensor at hand has.",
    example:
        "func.func @extent(%x: tensor<s x 3 x f32>) -> index attributes {rc.symbols = #rc.symbols<s = [1, 64, 1]>} {
  %n = core.extent {expr = [3 * s]} : index
  func.return %n
}
",
    results: &[result("result", INDEX)],
    attrs: &[attr("expr", AttrKind::Shape, "One expression.")],
    effects: Effects::Pure,
    infer: Some(|args| match args.attr("expr").and_then(|a| a.as_shape()) {
        Some([_]) => one(Type::index()),
        _ => Err("expects one expression in 'expr'".into()),
    }),
    fold: Some(|args| Some(Fold::Attr(Attr::index(args.op.attr("expr")?.as_shape()?.first()?.as_static()?)))),
    interfaces: &[&Derivative::Zero],
    ..OpDef::new("rc.core.extent")
};

pub static ASSUME_SHAPE: OpDef = OpDef {
    summary: "The operand, with a shape that is known to be its own.",
    doc: "Refines a type: element type and rank stay. That the sizes are equal is checked when the program runs.",
    example: "func.func @assume_shape(%x: tensor<s x f32>) -> tensor<(2 * t) x f32> attributes {rc.symbols = #rc.symbols<s = [2, 64, 2], t = [1, 32, 1]>} {
  %y = core.assume_shape %x : tensor<(2 * t) x f32>
  func.return %y
}
",
    operands: &[operand("x", TENSOR)],
    results: &[result("result", TENSOR)],
    effects: Effects::Pure,
    verify: Some(verify_assume_shape),
    fold: Some(super::shape::fold_splat),
    interfaces: &[&Derivative::Vjp(|v| {
        let ty = v.ty(v.operand(0));
        v.give_with(0, |v| {
            let g = v.g();
            v.op(&ASSUME_SHAPE).operand(g).result(ty).value()
        });
        Ok(())
    })],
    ..OpDef::new("rc.core.assume_shape")
};

fn infer_dim(args: &InferArgs) -> Inferred {
    dim_attr(args, "dim", args.operand(0)?.rank())?;
    one(Type::index())
}

/// The dimension's expression, which the type has.
fn define_dim(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
    let at = b.body.op_ref(op);
    let (ty, dim) = (at.body.ty(at.operand(0)), at.int("dim").unwrap_or(0) as usize);
    let size = ty.shape()[dim];
    if size == Dim::Dynamic {
        return Err(at.unsupported("of a dimension '?'").help("give the size a name with core.assume_shape"));
    }
    Ok(vec![b.op(&EXTENT).attr("expr", Attr::shape(&[size])).value()])
}

fn fold_dim(args: &FoldArgs) -> Option<Fold> {
    let dim = usize::try_from(args.op.int("dim")?).ok()?;
    let size = args.op.body.ty(args.op.operand(0)).shape().get(dim)?.as_static()?;
    Some(Fold::Attr(Attr::index(size)))
}

fn verify_assume_shape(op: OpRef) -> Result {
    let (from, to) = (op.body.ty(op.operand(0)), op.body.ty(op.result(0)));
    let possible = |(a, b): (&rc_ir::Dim, &rc_ir::Dim)| a == b || a.is_dynamic() || b.is_dynamic();
    let fits =
        from.elem() == to.elem() && from.rank() == to.rank() && from.shape().iter().zip(&to.shape()).all(possible);
    fail(op, if fits { Ok(()) } else { Err(format!("cannot hold: {from} is not {to}")) })
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&DIM, &EXTENT, &ASSUME_SHAPE];
