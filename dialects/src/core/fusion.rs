//! Groups of ops that become one kernel or a few.

use crate::constraints::{SCALAR_LIKE, fail};
use crate::derivative::Derivative;
use rc_ir::op_def::{ANY, AttrKind, Regions, attr, variadic, variadic_result};
use rc_ir::{Effects, OpDef, OpRef, Result, Traits, Type};

pub static FUSION: OpDef = OpDef {
    summary: "Ops of `core` that become one kernel or a few.",
    doc: "The operands are the block's arguments, what `core.yield` yields are the results. The region uses nothing else from \
          outside, so equal fusions can be found and shared.",
    example: "func.func @fusion(%x: tensor<7xf32>) -> tensor<7xf32> {
  %y = core.fusion %x ((%a: tensor<7xf32>) {
    %e = core.exp %a : tensor<7xf32>
    %s = core.add %e, %a : tensor<7xf32>
    core.yield %s
  }) : tensor<7xf32>
  func.return %y
}
",
    operands: &[variadic("inputs", SCALAR_LIKE)],
    results: &[variadic_result("results", SCALAR_LIKE)],
    attrs: &[attr("kind", AttrKind::Str, "What the fusion was formed around, for readers.").optional()],
    regions: Regions::Exactly(1),
    traits: Traits::ISOLATED.union(Traits::SINGLE_BLOCK),
    effects: Effects::Recursive,
    verify: Some(verify_fusion),
    interfaces: &[&Derivative::Missing("differentiate before operations are fused")],
    ..OpDef::new("rc.core.fusion")
};

pub static YIELD: OpDef = OpDef {
    summary: "Ends a region and gives its results.",
    doc: "",
    example: FUSION.example,
    operands: &[variadic("values", ANY)],
    traits: Traits::TERMINATOR,
    effects: Effects::Pure,
    interfaces: &[&Derivative::Zero],
    ..OpDef::new("rc.core.yield")
};

fn verify_fusion(op: OpRef) -> Result {
    fail(op, check_fusion(op))
}

fn check_fusion(op: OpRef) -> std::result::Result<(), String> {
    let block = op.entry(0).ok_or("needs a block")?;
    let args: Vec<Type> = op.body.block_args(block).map(|v| op.body.ty(v)).collect();
    if args.as_slice() != op.operand_types().as_slice() {
        return Err(format!("has operands of types {:?} and block arguments of types {args:?}", op.operand_types()));
    }
    let end =
        op.body.terminator(block).filter(|&t| op.body.name(t) == &YIELD).ok_or("needs a core.yield at its end")?;
    let yielded = op.body.op_ref(end).operand_types();
    if yielded.as_slice() != op.result_types().as_slice() {
        return Err(format!("has results of types {:?} and yields {yielded:?}", op.result_types()));
    }
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&FUSION, &YIELD];
