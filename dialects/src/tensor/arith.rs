//! Elementwise arithmetic with numpy's broadcasting.

use crate::builder::CoreBuilder;
use crate::constraints::{FLOAT_TENSOR, Inferred, NUMERIC_TENSOR, one};
use crate::interfaces::Decompose;
use rc_ir::op_def::{InferArgs, operand, result};
use rc_ir::{Builder, Dim, Effects, Op, OpDef, Result, Value};

macro_rules! arith {
    ($($id:ident $name:literal on $set:ident $core:literal $decompose:ident $what:literal;)*) => {
        $(
            pub static $id: OpDef = OpDef {
                summary: concat!("Elementwise ", $what, ", with broadcasting."),
                doc: "Shapes are aligned at their ends; a missing dimension or one of size 1 is repeated. Both operands have one \
                      element type. The result is rounded to it once.",
                example: concat!(
                    "func.func @", $name, "(%x: tensor<3x5xf32>, %y: tensor<5xf32>) -> tensor<3x5xf32> {\n",
                    "  %z = tensor.", $name, " %x, %y : tensor<3x5xf32>\n",
                    "  func.return %z\n}\n",
                ),
                operands: &[operand("lhs", $set), operand("rhs", $set)],
                results: &[result("result", $set)],
                effects: Effects::Pure,
                infer: Some(infer_broadcast),
                interfaces: &[&Decompose($decompose)],
                ..OpDef::new(concat!("rc.tensor.", $name))
            };
            fn $decompose(b: &mut Builder, op: Op) -> Result<Vec<Value>> {
                Ok(vec![broadcast_binary(b, op, $core)])
            }
        )*
        /// The ops of this file.
        pub static OPS: &[&OpDef] = &[$(&$id,)*];
    };
}

arith! {
    ADD "add" on NUMERIC_TENSOR "add" define_add "sum";
    SUB "sub" on NUMERIC_TENSOR "sub" define_sub "difference";
    MUL "mul" on NUMERIC_TENSOR "mul" define_mul "product";
    DIV "div" on NUMERIC_TENSOR "div" define_div "quotient";
    POW "pow" on FLOAT_TENSOR "pow" define_pow "power";
    MAXIMUM "maximum" on NUMERIC_TENSOR "max" define_maximum "maximum, NaN where either is NaN";
    MINIMUM "minimum" on NUMERIC_TENSOR "min" define_minimum "minimum, NaN where either is NaN";
}

/// The shape that numpy's rules give two shapes.
pub fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> std::result::Result<Vec<Dim>, String> {
    let rank = a.len().max(b.len());
    let at = |shape: &[Dim], d: usize| (d + shape.len()).checked_sub(rank).map_or(Dim::Static(1), |i| shape[i]);
    let one = Dim::Static(1);
    (0..rank)
        .map(|d| match (at(a, d), at(b, d)) {
            (x, y) if x == y => Ok(x),
            (x, y) if x == one => Ok(y),
            (x, y) if y == one => Ok(x),
            (x, y) => Err(format!("cannot broadcast the sizes {x} and {y} of dimension {d} of the result")),
        })
        .collect()
}

fn infer_broadcast(args: &InferArgs) -> Inferred {
    let (a, b) = (args.operand(0)?, args.operand(1)?);
    if a.elem() != b.elem() {
        return Err(format!(
            "has operands of element types {} and {}; convert one with core.convert",
            a.elem(),
            b.elem()
        ));
    }
    one(a.with_shape(&broadcast_shapes(&a.shape(), &b.shape())?))
}

fn broadcast_binary(b: &mut Builder, op: Op, core: &str) -> Value {
    let shape = b.body.ty(b.body.result(op, 0)).shape();
    let lhs = b.broadcast_to(b.body.operand(op, 0), &shape);
    let rhs = b.broadcast_to(b.body.operand(op, 1), &shape);
    b.binary(core, lhs, rhs)
}
