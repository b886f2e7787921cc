//! Values from nothing: constants and counters.

use crate::constraints::{Inferred, SCALAR_LIKE, SHAPED, fail, one};
use crate::derivative::Derivative;
use rc_ir::attr::AttrData;
use rc_ir::op_def::{AttrKind, InferArgs, attr, result};
use rc_ir::types::TypeData;
use rc_ir::{Effects, OpDef, OpRef, Result, Traits};

pub static CONSTANT: OpDef = OpDef {
    summary: "A constant.",
    doc: "The result has the attribute's type: a number is a scalar, `dense<…>` and `dense_resource<…>` a tensor, vector or \
          tile. All sizes are integers; a constant of symbolic size is a `core.broadcast` of a scalar.",
    example: "func.func @constant() -> tensor<2x2xf32> {
  %c = core.constant {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : tensor<2x2xf32>
  func.return %c
}
",
    results: &[result("result", SCALAR_LIKE)],
    attrs: &[attr("value", AttrKind::Elements, "A number, a dense constant or a resource.")],
    traits: Traits::CONSTANT,
    effects: Effects::Pure,
    verify: Some(verify_constant),
    infer: Some(infer_constant),
    interfaces: &[&Derivative::Zero],
    ..OpDef::new("rc.core.constant")
};

pub static IOTA: OpDef = OpDef {
    summary: "Each element is its index along one dimension.",
    doc: "Elements are integers, index or floats; an index that the element type does not hold is converted as by \
          `core.convert` from i64.",
    example: "func.func @iota() -> tensor<3x5xi64> {
  %i = core.iota {dim = 1} : tensor<3x5xi64>
  func.return %i
}
",
    results: &[result("result", SHAPED)],
    attrs: &[attr("dim", AttrKind::I64, "The dimension that is counted along.")],
    effects: Effects::Pure,
    verify: Some(verify_iota),
    interfaces: &[&Derivative::Zero],
    ..OpDef::new("rc.core.iota")
};

fn infer_constant(args: &InferArgs) -> Inferred {
    let value = args.attr("value").and_then(|a| a.type_of());
    one(value.ok_or("expects the attribute 'value', a number, a dense constant or a resource")?)
}

fn verify_constant(op: OpRef) -> Result {
    let Some(value) = op.attr("value") else { return Ok(()) };
    let ty = op.body.ty(op.result(0));
    let Some(sizes) = ty.static_shape() else {
        let error = op.error(format!("of type {ty} has no fixed size"));
        return Err(error.help("write a scalar constant and a core.broadcast of it"));
    };
    let count = sizes.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    let size = count.and_then(|n| n.checked_mul(i64::try_from(ty.elem().byte_width()?).ok()?));
    match (value.data(), size) {
        (_, None) => Err(op.error(format!("of type {ty} does not fit the address space"))),
        (AttrData::Dense { data, .. }, Some(size)) if !data.splat && data.bytes.len() as i64 != size => {
            Err(op.error(format!("holds {} bytes for {ty}, which takes {size}", data.bytes.len())))
        }
        _ => Ok(()),
    }
}

fn verify_iota(op: OpRef) -> Result {
    let ty = op.body.ty(op.result(0));
    let dim = op.int("dim").unwrap_or(0);
    let inside = usize::try_from(dim).is_ok_and(|d| d < ty.rank());
    let elem_fits = !matches!(ty.elem().data(), TypeData::Integer { width: 1, .. });
    fail(op, if inside { Ok(()) } else { Err(format!("has 'dim' = {dim}, outside of rank {}", ty.rank())) })?;
    fail(op, if elem_fits { Ok(()) } else { Err("does not count in i1".into()) })
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&CONSTANT, &IOTA];
