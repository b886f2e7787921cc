//! Which dimension of an operation's result follows a dimension of its operands.

use rc_dialects::interfaces::{Contraction, ReductionInfo};
use rc_dialects::op;
use rc_ir::{Body, Dim, Op, OpRef, Traits, Type};

/// What becomes of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Along {
    /// The result has it here: a block of it needs a block of the operands alone.
    Dim(usize),
    /// It is combined: results of blocks, in this type, become the whole by this operation.
    Combined(&'static str, Type),
}

/// How an operation is computed in blocks.
pub struct Follow {
    pub result: Along,
    /// Of each operand the dimension along which it is cut; none where all of it is read.
    pub operands: Vec<Option<usize>>,
}

/// How an operation follows its operand `number`, cut along dimension `d`.
pub fn follow(body: &Body, op: Op, number: usize, d: usize) -> Option<Follow> {
    let at = body.op_ref(op);
    if body.result_count(op) != 1 || !at.result_types()[0].is_tensor() {
        return None;
    }
    let count = body.operand_count(op);
    let only = |result: usize| {
        let operands = (0..count).map(|i| (i == number).then_some(d)).collect();
        Some(Follow { result: Along::Dim(result), operands })
    };
    if at.has(Traits::ELEMENTWISE) {
        let rank = body.ty(body.result(op, 0)).rank();
        let operands = body.operands(op).map(|v| (body.ty(v).rank() == rank).then_some(d)).collect();
        return Some(Follow { result: Along::Dim(d), operands });
    }
    if let Some(roles) = at.def()?.interface::<Contraction>().and_then(|c| (c.0)(at)) {
        return product(&roles, number, d);
    }
    if let Some(info) = ReductionInfo::of(at) {
        return match info.dims.contains(&d) {
            _ if info.scan => None,
            false => only(d - info.dims.iter().filter(|&&other| other < d).count()),
            true => {
                let name = info.combiner.core_op().filter(|_| info.acc == at.result_types()[0].elem())?;
                Some(Follow { result: Along::Combined(name, info.acc), operands: vec![Some(d)] })
            }
        };
    }
    match at.name().as_str() {
        op::core::BROADCAST => only(*at.ints("dims")?.get(d)? as usize),
        op::core::TRANSPOSE => only(at.ints("perm")?.iter().position(|&from| from as usize == d)?),
        op::core::RESHAPE => only(reshaped(at, d)?),
        op::core::GATHER if (d as i64) < at.int("batch").unwrap_or(0) => {
            Some(Follow { result: Along::Dim(d), operands: vec![Some(d); 2] })
        }
        op::core::PAD if number == 0 && zero(at, "low", d) && zero(at, "high", d) => only(d),
        op::core::SLICE if at.operand_types()[0].shape()[d] == at.result_types()[0].shape()[d] => only(d),
        op::core::CONCAT if at.int("dim")? as usize != d => {
            Some(Follow { result: Along::Dim(d), operands: vec![Some(d); count] })
        }
        _ => None,
    }
}

/// Whether an operation adds nothing along a dimension.
fn zero(at: OpRef, name: &str, d: usize) -> bool {
    at.attr(name).and_then(|a| a.as_shape()).and_then(|shape| shape.get(d)).is_some_and(|&n| n == Dim::Static(0))
}

fn product(roles: &rc_dialects::interfaces::ContractionRoles, number: usize, d: usize) -> Option<Follow> {
    let place = |list: &[usize]| list.iter().position(|&dim| dim == d);
    let pairs = [(&roles.lhs_batch, &roles.rhs_batch), (&roles.lhs_contract, &roles.rhs_contract)];
    for (which, (lhs, rhs)) in pairs.into_iter().enumerate() {
        if let Some(at) = place(if number == 0 { lhs } else { rhs }) {
            let operands = vec![Some(lhs[at]), Some(rhs[at])];
            let result = if which == 0 { Along::Dim(at) } else { Along::Combined(op::core::ADD, roles.acc) };
            return Some(Follow { result, operands });
        }
    }
    let batch = roles.lhs_batch.len();
    let (at, operands) = match number {
        0 => (batch + place(&roles.lhs_free)?, vec![Some(d), None]),
        _ => (batch + roles.lhs_free.len() + place(&roles.rhs_free)?, vec![None, Some(d)]),
    };
    Some(Follow { result: Along::Dim(at), operands })
}

/// The dimension of a reshape's result that is the operand's `d`: as many elements come before.
fn reshaped(at: OpRef, d: usize) -> Option<usize> {
    let (from, to) = (at.operand_types()[0].shape(), at.result_types()[0].shape());
    let before = |shape: &[Dim]| shape.iter().fold(Dim::Static(1), |all, &n| all * n);
    (0..to.len()).find(|&e| to[e] == from[d] && before(&to[..e]) == before(&from[..d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(text: &str, number: usize, d: usize) -> Option<(Along, Vec<Option<usize>>)> {
        let (module, errors) = rc_parser::parse_module("test", text);
        assert!(errors.is_empty(), "{errors:?}");
        let module = module.expect("it parses");
        let body = &module.bodies[0];
        let entry = body.entry().unwrap();
        let op = body.ops(entry).next().unwrap();
        follow(body, op, number, d).map(|f| (f.result, f.operands))
    }

    #[test]
    fn dimensions_are_followed() {
        let dot = |lists: &str| {
            format!(
                "func.func @f(%x: tensor<2x3x5xf32>, %y: tensor<2x7x5xf32>) -> tensor<2x3x7xf32> {{
  %z = core.dot %x, %y {{{lists}}} : tensor<2x3x7xf32>
  func.return %z
}}"
            )
        };
        let dot = dot("lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [2]");
        assert_eq!(along(&dot, 0, 0), Some((Along::Dim(0), vec![Some(0), Some(0)])));
        assert_eq!(along(&dot, 0, 1), Some((Along::Dim(1), vec![Some(1), None])));
        assert_eq!(along(&dot, 1, 1), Some((Along::Dim(2), vec![None, Some(1)])));
        assert_eq!(along(&dot, 1, 2), Some((Along::Combined(op::core::ADD, Type::f32()), vec![Some(2), Some(2)])));
        let reshape = "func.func @f(%x: tensor<4x6x5xf32>) -> tensor<2x2x6x5xf32> {
  %z = core.reshape %x : tensor<2x2x6x5xf32>
  func.return %z
}";
        assert_eq!(along(reshape, 0, 1), Some((Along::Dim(2), vec![Some(1)])));
        assert_eq!(along(reshape, 0, 0), None);
        let reduce = "func.func @f(%x: tensor<4x6x5xf32>) -> tensor<4x5xf32> {
  %z = core.reduce %x {dims = [1], kind = max} : tensor<4x5xf32>
  func.return %z
}";
        assert_eq!(along(reduce, 0, 2), Some((Along::Dim(1), vec![Some(2)])));
        assert_eq!(along(reduce, 0, 1), Some((Along::Combined(op::core::MAX, Type::f32()), vec![Some(1)])));
    }
}
