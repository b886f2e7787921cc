//! Order along the last dimension.

use super::gather::SCATTER;
use crate::builder::CoreBuilder;
use crate::constraints::{INT_TENSOR, Inferred, TENSOR};
use crate::derivative::{Derivative, Vjp};
use rc_ir::op_def::{AttrDef, AttrDefault, AttrKind, InferArgs, attr, operand, optional, result};
use rc_ir::{Attr, Dim, Effects, OpDef, Result, Type};
use smallvec::smallvec;

/// What is known of the elements.
pub const BELOW: AttrDef = attr(
    "below",
    AttrKind::I64,
    "Where given, integers of which none is negative, and all are less than this: the result of others is undefined. The result is the same.",
)
.optional();

pub static SORT: OpDef = OpDef {
    summary: "The first elements of each row in order, and where each was.",
    doc: "Rows run along the last dimension. Ascending, or descending; a NaN is greater than any number, zeros of both signs are equal; equal elements \
          stay in their order. With `count`, only the first so many. The second result has the index along the dimension that each \
          element had or, where `places` are given, the place that stands there: so what has been sorted in parts is sorted on.",
    example: "func.func @sort(%x: tensor<3x7xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>) {
  %y, %at = core.sort %x {descending = true, count = 2} : tensor<3x2xf32>, tensor<3x2xi64>
  func.return %y, %at
}
",
    operands: &[operand("x", TENSOR), optional("places", INT_TENSOR)],
    results: &[result("result", TENSOR), result("indices", INT_TENSOR)],
    attrs: &[
        attr("descending", AttrKind::Bool, "From the greatest to the least.").default(AttrDefault::Bool(false)),
        attr("count", AttrKind::I64, "How many; all without it.").optional(),
        BELOW,
    ],
    effects: Effects::Pure,
    infer: Some(infer_sort),
    interfaces: &[&Derivative::Vjp(sort_vjp)],
    ..OpDef::new("rc.core.sort")
};

/// What is known of the elements of a sort.
pub fn check_below(args: &InferArgs) -> std::result::Result<(), String> {
    match args.int(BELOW.name) {
        Ok(n) if !(1..=i64::from(i32::MAX)).contains(&n) => {
            Err(format!("needs a 'below' from 1 to {}, and has {n}", i32::MAX))
        }
        Ok(_) if !args.operand(0)?.elem().is_int() => {
            Err(format!("has 'below', which is of integers, with {}", args.operand(0)?))
        }
        _ => Ok(()),
    }
}

fn infer_sort(args: &InferArgs) -> Inferred {
    let x = args.operand(0)?;
    check_below(args)?;
    let mut shape = x.shape();
    let Some(last) = shape.last_mut() else { return Err("needs a dimension to sort along".into()) };
    if let Ok(count) = args.int("count") {
        if count < 0 || last.as_static().is_some_and(|n| count > n) {
            return Err(format!("takes {count} elements of rows of {last}"));
        }
        *last = Dim::Static(count);
    }
    let places = match args.operand(1) {
        Ok(places) if places.shape() != x.shape() => {
            return Err(format!("needs a place for each element of {x}, and has {places}"));
        }
        Ok(places) => places.elem(),
        Err(_) => Type::i64(),
    };
    let ty = x.with_shape(&shape);
    Ok(smallvec![ty, ty.with_elem(places)])
}

/// Each element's gradient goes to the place where the element was.
fn sort_vjp(v: &mut Vjp) -> Result {
    if v.at().operands().len() > 1 {
        return Err(v.at().unsupported("with places, as a function to derive").help("derive before sorts are split"));
    }
    let (g, places, ty) = (v.g(), v.result(1), v.ty(v.operand(0)));
    let last = Attr::i64(ty.rank() as i64 - 1);
    v.give_with(0, |v| {
        let zeros = v.splat(0.0, ty);
        let sums = v.op(&SCATTER).operand(zeros).operand(places).operand(g);
        sums.attr("axis", last).attr("batch", last).attr("kind", Attr::str("add")).value()
    });
    Ok(())
}

/// The ops of this file.
pub static OPS: &[&OpDef] = &[&SORT];
