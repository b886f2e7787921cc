//! Contractions: sums of products over shared dimensions.

use crate::builder::CoreBuilder;
use crate::constraints::{SHAPED, acc_of, check_dims, fail};
use crate::derivative::{Derivative, Vjp};
use crate::interfaces::{Contraction, ContractionRoles};
use rc_ir::op_def::{AttrDef, AttrKind, attr, operand, result};
use rc_ir::{Dim, Effects, OpDef, OpRef, Result, Type};

pub static DOT: OpDef = OpDef {
    summary: "Sums products over contracted dimensions: a matrix product in general form.",
    doc: "Dimensions of the operands are paired in the order of the lists: batch dimensions stay, contracted ones are summed \
          over. The result has the batch dimensions, the other (free) dimensions of `lhs`, then those of `rhs`. Operands are \
          converted to the accumulation type `acc` (absent: f64 for a result or operand of f64, f32 for other floats, the \
          result's type for integers), the products are added in it in any order, and the sum is rounded once to \
          the result's element type. Both operands have one element type, or both floats or both integers. With `precision = tf32` \
          operands of f32 may be rounded to TF32, 10 bits after the leading one, where a machine multiplies such faster.",
    example: "func.func @dot(%x: tensor<2x3x5xf32>, %y: tensor<2x7x5xf32>) -> tensor<2x3x7xf32> {
  %z = core.dot %x, %y {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [2]} : tensor<2x3x7xf32>
  func.return %z
}
",
    operands: &[operand("lhs", SHAPED), operand("rhs", SHAPED)],
    results: &[result("result", SHAPED)],
    attrs: &[
        attr("lhs_batch", AttrKind::I64Array, "Batch dimensions of `lhs`; absent: none.").optional(),
        attr("rhs_batch", AttrKind::I64Array, "The same dimensions of `rhs`.").optional(),
        attr("lhs_contract", AttrKind::I64Array, "Contracted dimensions of `lhs`."),
        attr("rhs_contract", AttrKind::I64Array, "The same dimensions of `rhs`."),
        attr("acc", AttrKind::Type, "The accumulation type.").optional(),
        PRECISION,
        EXACT_SUMS,
    ],
    effects: Effects::Pure,
    verify: Some(verify_dot),
    interfaces: &[&Contraction(|op| roles(op).ok()), &Derivative::Vjp(dot_vjp)],
    ..OpDef::new("rc.core.dot")
};

/// What operands may be rounded to before they are multiplied. Of a product, and of a convolution, whose products have it too.
pub const PRECISION: AttrDef = attr(
    "precision",
    AttrKind::Enum(&["tf32"]),
    "What operands of f32 may be rounded to; absent: they are multiplied as they are.",
)
.optional();

/// Of a product of operands that may be rounded, whether its sums may not.
pub const EXACT_SUMS: AttrDef = attr(
    "exact_sums",
    AttrKind::Bool,
    "With `precision`, true: sums are as exact as f32's, where matrix units cut off digits as they add; absent: false.",
)
.optional();

/// The roles of a `core.dot`'s dimensions, or what is wrong with them.
pub fn roles(op: OpRef) -> std::result::Result<ContractionRoles, String> {
    let (lhs, rhs) = (op.body.ty(op.operand(0)), op.body.ty(op.operand(1)));
    let list = |name: &str, ty: Type| check_dims(name, &op.ints(name).unwrap_or_default(), ty.rank());
    let (lhs_batch, lhs_contract) = (list("lhs_batch", lhs)?, list("lhs_contract", lhs)?);
    let (rhs_batch, rhs_contract) = (list("rhs_batch", rhs)?, list("rhs_contract", rhs)?);
    let free = |ty: Type, batch: &[usize], contract: &[usize]| -> Vec<usize> {
        (0..ty.rank()).filter(|d| !batch.contains(d) && !contract.contains(d)).collect()
    };
    let (lhs_free, rhs_free) = (free(lhs, &lhs_batch, &lhs_contract), free(rhs, &rhs_batch, &rhs_contract));
    if lhs_batch.len() + lhs_contract.len() + lhs_free.len() != lhs.rank()
        || rhs_batch.len() + rhs_contract.len() + rhs_free.len() != rhs.rank()
    {
        return Err("has a dimension that is both batch and contracted".into());
    }
    let acc = accumulation(op, lhs.elem());
    Ok(ContractionRoles { lhs_batch, rhs_batch, lhs_contract, rhs_contract, lhs_free, rhs_free, acc })
}

fn accumulation(op: OpRef, operand: Type) -> Type {
    let result = op.body.ty(op.result(0)).elem();
    let widest = if operand.is_float() && operand.bit_width() >= result.bit_width() { operand } else { result };
    acc_of(op, widest)
}

/// The result's dimensions for operands of these shapes, or why they do not fit.
pub fn result_shape(roles: &ContractionRoles, lhs: &[Dim], rhs: &[Dim]) -> std::result::Result<Vec<Dim>, String> {
    let pairs =
        [("batch", &roles.lhs_batch, &roles.rhs_batch), ("contracted", &roles.lhs_contract, &roles.rhs_contract)];
    for (what, left, right) in pairs {
        if left.len() != right.len() {
            return Err(format!("has {} {what} dimensions on the left and {} on the right", left.len(), right.len()));
        }
        for (&l, &r) in left.iter().zip(right) {
            if lhs[l] != rhs[r] {
                return Err(format!("has {what} dimensions of sizes {} (lhs {l}) and {} (rhs {r})", lhs[l], rhs[r]));
            }
        }
    }
    let left = roles.lhs_batch.iter().chain(&roles.lhs_free).map(|&d| lhs[d]);
    Ok(left.chain(roles.rhs_free.iter().map(|&d| rhs[d])).collect())
}

fn verify_dot(op: OpRef) -> Result {
    fail(op, check_dot(op))
}

fn check_dot(op: OpRef) -> std::result::Result<(), String> {
    let (lhs, rhs, out) = (op.body.ty(op.operand(0)), op.body.ty(op.operand(1)), op.body.ty(op.result(0)));
    let one_class = |a: Type, b: Type| a.is_float() == b.is_float() && a != Type::i1() && b != Type::i1();
    if !one_class(lhs.elem(), rhs.elem()) || !one_class(lhs.elem(), out.elem()) {
        return Err(format!("cannot make {} of {} and {}", out.elem(), lhs.elem(), rhs.elem()));
    }
    let roles = roles(op)?;
    if roles.acc.is_float() != lhs.elem().is_float() || !roles.acc.is_scalar() {
        return Err(format!("cannot accumulate {} in {}", lhs.elem(), roles.acc));
    }
    let expected = out.with_shape(&[]).with_elem(out.elem());
    let shape = result_shape(&roles, &lhs.shape(), &rhs.shape())?;
    if lhs.with_elem(out.elem()).with_shape(&[]) != expected || out.shape().as_slice() != shape {
        return Err(format!("gives {}, and has a result of {out}", lhs.with_elem(out.elem()).with_shape(&shape)));
    }
    Ok(())
}

/// The gradient of each operand is the product of the result's and the other operand, over that one's free dimensions. The result's
/// gradient is rounded to the operands' type first, where it has another.
fn dot_vjp(v: &mut Vjp) -> Result {
    let roles = roles(v.at()).map_err(|why| v.at().error(why))?;
    let (lhs, rhs) = (v.operand(0), v.operand(1));
    let attrs = ["acc", PRECISION.name].map(|name| (name, v.at().attr(name)));
    let ints = |dims: &[usize]| dims.iter().map(|&d| d as i64).collect::<Vec<i64>>();
    let (batch, left) = (roles.lhs_batch.len() as i64, roles.lhs_free.len() as i64);
    let rank = batch + left + roles.rhs_free.len() as i64;
    let batches: Vec<i64> = (0..batch).collect();
    let (of_left, of_right): (Vec<i64>, Vec<i64>) = ((batch..batch + left).collect(), (batch + left..rank).collect());
    let sides = [
        (lhs, rhs, &roles.lhs_batch, &roles.lhs_free, &roles.lhs_contract, of_right),
        (rhs, lhs, &roles.rhs_batch, &roles.rhs_free, &roles.rhs_contract, of_left),
    ];
    for (i, (own, other, own_batch, own_free, own_contract, summed)) in sides.into_iter().enumerate() {
        let (other_batch, other_free, other_contract) = match i {
            0 => (&roles.rhs_batch, &roles.rhs_free, &roles.rhs_contract),
            _ => (&roles.lhs_batch, &roles.lhs_free, &roles.lhs_contract),
        };
        v.give_with(i, |v| {
            let (g, narrow) = (v.g(), v.ty(other).elem());
            let g = v.convert(g, narrow);
            let elem = v.ty(own).elem();
            // The product's dimensions: batch, then own free ones and the contracted ones in the other operand's order, either of them first.
            let (kept, paired) = (own_free.len(), other_contract.len());
            let place = |free: usize, contracted: usize| {
                let mut place = vec![0; v.ty(own).rank()];
                own_batch.iter().enumerate().for_each(|(at, &d)| place[d] = at as i64);
                own_free.iter().enumerate().for_each(|(at, &d)| place[d] = (own_batch.len() + free + at) as i64);
                for (&d, pair) in own_contract.iter().zip(other_contract) {
                    let before = other_contract.iter().filter(|&d| d < pair).count();
                    place[d] = (own_batch.len() + contracted + before) as i64;
                }
                place
            };
            let (direct, swapped) = (place(0, kept), place(paired, 0));
            let in_order = |place: &[i64]| place.iter().enumerate().all(|(d, &at)| d as i64 == at);
            let (other_batch, other_free) = (ints(other_batch), ints(other_free));
            let (product, place) = match in_order(&swapped) && !in_order(&direct) {
                true => (v.contract(other, g, [&other_batch, &batches], [&other_free, &summed], elem), swapped),
                false => (v.contract(g, other, [&batches, &other_batch], [&summed, &other_free], elem), direct),
            };
            let op = v.body.defining_op(product).expect("a product");
            for (name, value) in attrs {
                value.into_iter().for_each(|value| v.body.set_attr(op, name, value));
            }
            v.permute(product, &place)
        });
    }
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&DOT];
