//! Convolutions, their transposes and the gradients for their weights are each other's derivatives.

use super::conv::{CONV, CONV_TRANSPOSE, CONV_WEIGHT_GRAD};
use crate::builder::CoreBuilder;
use crate::constraints::default_acc;
use crate::core::dot::PRECISION;
use crate::derivative::Vjp;
use rc_ir::op_def::OpDef;
use rc_ir::{Attr, Result, Value};

/// Steps, padding and groups of the op, for another one of the three.
fn related(v: &mut Vjp, def: &'static OpDef, operands: [Value; 2], extra: Option<(&str, Attr)>) -> Value {
    let attrs = ["strides", "padding", "dilations", "groups", PRECISION.name].map(|name| (name, v.at().attr(name)));
    let mut op = v.op(def).operand(operands[0]).operand(operands[1]);
    for (name, value) in attrs {
        op = op.maybe_attr(name, value);
    }
    if let Some((name, value)) = extra {
        op = op.attr(name, value);
    }
    op.value()
}

/// The attribute `sizes` of a transpose that gives a tensor of the type of `x`.
fn sizes_of(v: &Vjp, x: Value) -> Attr {
    Attr::shape(&v.ty(x).shape()[2..])
}

/// The attribute `window` of a gradient of the weights `w`.
fn window_of(v: &Vjp, w: Value) -> Attr {
    let sizes: Vec<i64> = v.ty(w).shape()[2..].iter().filter_map(|d| d.as_static()).collect();
    Attr::i64s(&sizes)
}

fn bias_vjp(v: &mut Vjp, g: Value) {
    v.give_with(2, |v| {
        let (rank, elem) = (v.ty(g).rank() as i64, v.ty(g).elem());
        let wide = v.convert(g, default_acc(elem));
        let dims: Vec<i64> = (0..rank).filter(|&d| d != 1).collect();
        let sum = v.reduce("add", wide, &dims);
        v.convert(sum, elem)
    });
}

pub fn conv_vjp(v: &mut Vjp) -> Result {
    let (x, w, g) = (v.operand(0), v.operand(1), v.g());
    let (sizes, window) = (sizes_of(v, x), window_of(v, w));
    v.give_with(0, |v| related(v, &CONV_TRANSPOSE, [g, w], Some(("sizes", sizes))));
    v.give_with(1, |v| related(v, &CONV_WEIGHT_GRAD, [x, g], Some(("window", window))));
    bias_vjp(v, g);
    Ok(())
}

pub fn transpose_vjp(v: &mut Vjp) -> Result {
    let (y, w, g) = (v.operand(0), v.operand(1), v.g());
    let window = window_of(v, w);
    v.give_with(0, |v| related(v, &CONV, [g, w], None));
    v.give_with(1, |v| related(v, &CONV_WEIGHT_GRAD, [g, y], Some(("window", window))));
    bias_vjp(v, g);
    Ok(())
}

pub fn weight_grad_vjp(v: &mut Vjp) -> Result {
    let (x, y, g) = (v.operand(0), v.operand(1), v.g());
    let sizes = sizes_of(v, x);
    v.give_with(0, |v| related(v, &CONV_TRANSPOSE, [y, g], Some(("sizes", sizes))));
    v.give_with(1, |v| related(v, &CONV, [x, g], None));
    Ok(())
}
