//! Elements combined along dimensions: reduce and scan.

use crate::constraints::{Inferred, SHAPED, acc_of, dim_attr, dims_attr, one};
use crate::derivative::Derivative;
use crate::interfaces::{Combiner, Reduction, ReductionInfo};
use rc_ir::op_def::{AttrDefault, AttrKind, InferArgs, attr, operand, result};
use rc_ir::rewrite::Canonicalize;
use rc_ir::{Effects, OpDef, OpRef, Type};

pub static REDUCE: OpDef = OpDef {
    summary: "Combines the elements along dimensions into one.",
    doc: "The reduced dimensions vanish. Elements are converted to the accumulation type `acc` (absent: f32 for floats \
          narrower than f32, else the element type), combined in any order, and the result is rounded once to the element \
          type. `max` and `min` give NaN where an element is NaN. `argmax` and `argmin` reduce exactly one dimension and \
          give the i64 index of the first extreme element, where a NaN counts as extreme. Of no elements: 0, 1, the least \
          and the greatest value of the type, true (all bits), false (0); an error for `argmax` and `argmin`.",
    example: "func.func @reduce(%x: tensor<3x5xf32>) -> (tensor<3xf32>, tensor<3xi64>) {
  %sum = core.reduce %x {dims = [1], kind = add} : tensor<3xf32>
  %at = core.reduce %x {dims = [1], kind = argmax} : tensor<3xi64>
  func.return %sum, %at
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("dims", AttrKind::I64Array, "The dimensions that are combined."),
        attr("kind", AttrKind::Enum(Combiner::KINDS), "How two elements combine."),
        attr("acc", AttrKind::Type, "The accumulation type.").optional(),
    ],
    effects: Effects::Pure,
    infer: Some(infer_reduce),
    interfaces: &[
        &Reduction(reduction_of_reduce),
        &Derivative::Vjp(super::reduce_derivative::reduce_vjp),
        &Canonicalize(&[
            ("sum-of-one", super::one_hot::sum_the_one),
            ("sum-of-products", super::sum_of_products::contract),
        ]),
    ],
    ..OpDef::new("rc.core.reduce")
};

/// The words of `core.scan`'s `kind`.
pub const SCAN_KINDS: &[&str] = &["add", "mul", "max", "min"];

pub static SCAN: OpDef = OpDef {
    summary: "Combines each element with all before it along a dimension.",
    doc: "A cumulative sum for `kind = add`. Accumulates as `core.reduce` does; each element of the result is rounded once. \
          `exclusive` leaves an element itself out (the first result is the identity), `reverse` goes from the end.",
    example: "func.func @scan(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %y = core.scan %x {dim = 1, kind = add} : tensor<3x5xf32>
  func.return %y
}
",
    operands: &[operand("x", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("dim", AttrKind::I64, "The dimension along which elements accumulate."),
        attr("kind", AttrKind::Enum(SCAN_KINDS), "How two elements combine."),
        attr("acc", AttrKind::Type, "The accumulation type.").optional(),
        attr("reverse", AttrKind::Bool, "From the end to the start.").default(AttrDefault::Bool(false)),
        attr("exclusive", AttrKind::Bool, "Without the element itself.").default(AttrDefault::Bool(false)),
    ],
    effects: Effects::Pure,
    infer: Some(infer_scan),
    interfaces: &[&Reduction(reduction_of_scan), &Derivative::Vjp(super::reduce_derivative::scan_vjp)],
    ..OpDef::new("rc.core.scan")
};

fn combiner(args: &InferArgs, elem: Type) -> std::result::Result<Combiner, String> {
    let kind = args.attr("kind").and_then(|a| a.as_str()).and_then(Combiner::from_kind);
    let kind = kind.ok_or("expects the attribute 'kind'")?;
    let fits = match kind {
        Combiner::And | Combiner::Or => !elem.is_float(),
        Combiner::Add | Combiner::Mul | Combiner::Max | Combiner::Min => elem != Type::i1(),
        _ => true,
    };
    if fits { Ok(kind) } else { Err(format!("has no '{}' of elements of type {elem}", kind.kind())) }
}

/// An accumulation type holds what it accumulates: it is of the element's class and not narrower.
fn check_acc(args: &InferArgs, elem: Type) -> std::result::Result<(), String> {
    let Some(acc) = args.attr("acc") else { return Ok(()) };
    let acc = acc.as_type().ok_or("expects a type in 'acc'")?;
    let holds = acc.is_scalar() && acc.is_float() == elem.is_float() && acc.bit_width() >= elem.bit_width();
    if holds { Ok(()) } else { Err(format!("cannot accumulate {elem} in {acc}")) }
}

fn infer_reduce(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    let dims = dims_attr(args, "dims", x.rank())?;
    let kind = combiner(args, x.elem())?;
    check_acc(args, x.elem())?;
    let kept: Vec<_> = x.shape().into_iter().enumerate().filter(|(i, _)| !dims.contains(i)).map(|(_, d)| d).collect();
    let result = x.with_shape(&kept);
    if !matches!(kind, Combiner::ArgMax | Combiner::ArgMin) {
        return one(result);
    }
    if dims.len() != 1 {
        return Err(format!("finds the '{}' along one dimension, and has {}", kind.kind(), dims.len()));
    }
    one(result.with_elem(Type::i64()))
}

fn infer_scan(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    dim_attr(args, "dim", x.rank())?;
    combiner(args, x.elem())?;
    check_acc(args, x.elem())?;
    one(x)
}

fn info(op: OpRef, dims: Vec<i64>, scan: bool) -> Option<ReductionInfo> {
    let elem = op.body.ty(op.operand(0)).elem();
    let dims = dims.into_iter().map(|d| usize::try_from(d).ok()).collect::<Option<_>>()?;
    Some(ReductionInfo { combiner: Combiner::from_kind(op.str("kind")?)?, dims, acc: acc_of(op, elem), scan })
}
fn reduction_of_reduce(op: OpRef) -> Option<ReductionInfo> {
    info(op, op.ints("dims")?, false)
}
fn reduction_of_scan(op: OpRef) -> Option<ReductionInfo> {
    info(op, vec![op.int("dim")?], true)
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&REDUCE, &SCAN];
