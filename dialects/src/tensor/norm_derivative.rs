//! The derivatives of softmax and normalizations. What a rule needs of the forward computation it writes as the definition does, so that it is
//! computed once.

use super::compute_type;
use super::norm::{dim_of, eps_of, inverse_root_mean_square, mean};
use crate::builder::CoreBuilder;
use crate::derivative::Vjp;
use rc_ir::{Result, Value};

/// (g - sum g y) y
pub fn softmax_vjp(v: &mut Vjp) -> Result {
    let (g, y, dim) = (v.g(), v.result(0), dim_of(v.at()).expect("verified"));
    let (elem, wide) = (v.ty(y).elem(), compute_type(v.ty(y).elem()));
    v.give_with(0, |v| {
        let (g, y) = (v.convert(g, wide), v.convert(y, wide));
        let product = v.binary("mul", g, y);
        let sum = v.reduce_and_broadcast("add", product, &[dim]);
        let centered = v.binary("sub", g, sum);
        let gradient = v.binary("mul", centered, y);
        v.convert(gradient, elem)
    });
    Ok(())
}

/// g - exp(y) sum g
pub fn log_softmax_vjp(v: &mut Vjp) -> Result {
    let (g, y, dim) = (v.g(), v.result(0), dim_of(v.at()).expect("verified"));
    let (elem, wide) = (v.ty(y).elem(), compute_type(v.ty(y).elem()));
    v.give_with(0, |v| {
        let (g, y) = (v.convert(g, wide), v.convert(y, wide));
        let sum = v.reduce_and_broadcast("add", g, &[dim]);
        let p = v.unary("exp", y);
        let share = v.binary("mul", p, sum);
        let gradient = v.binary("sub", g, share);
        v.convert(gradient, elem)
    });
    Ok(())
}

/// With n = (x - mean) / deviation and h = g weight: (h - mean h - n mean(h n)) / deviation; the sum over rows of g n for the weight, of g for
/// the bias.
pub fn layer_norm_vjp(v: &mut Vjp) -> Result {
    let x = v.operand(0);
    let wide = compute_type(v.ty(x).elem());
    let x = v.convert(x, wide);
    let of_x = mean(v, x);
    let centered = v.binary("sub", x, of_x);
    normalized(v, centered, true)
}

/// As of layer_norm, without what comes of the mean.
pub fn rms_norm_vjp(v: &mut Vjp) -> Result {
    let x = v.operand(0);
    let wide = compute_type(v.ty(x).elem());
    let x = v.convert(x, wide);
    normalized(v, x, false)
}

fn normalized(v: &mut Vjp, x: Value, is_centered: bool) -> Result {
    let eps = eps_of(v, v.at().op);
    let (elem, wide) = (v.ty(v.operand(0)).elem(), v.ty(x).elem());
    let shape = v.ty(x).shape();
    let inverse = inverse_root_mean_square(v, x, eps);
    let normal = v.binary("mul", x, inverse);
    let g = v.g();
    let g = v.convert(g, wide);
    let [weight, bias] =
        ["weight", "bias"].map(|name| v.at().group_range(name).filter(|r| !r.is_empty()).map(|r| r.start));
    let rows: Vec<i64> = (0..shape.len() as i64 - 1).collect();
    let over_rows = |v: &mut Vjp, x: Value| {
        let sum = v.reduce("add", x, &rows);
        v.convert(sum, elem)
    };
    if let Some(weight) = weight {
        v.give_with(weight, |v| {
            let product = v.binary("mul", g, normal);
            over_rows(v, product)
        });
    }
    if let Some(bias) = bias {
        v.give_with(bias, |v| over_rows(v, g));
    }
    v.give_with(0, |v| {
        let scaled = match weight {
            Some(weight) => {
                let row = v.operand(weight);
                let row = v.convert(row, wide);
                let row = v.broadcast_to(row, &shape);
                v.binary("mul", g, row)
            }
            None => g,
        };
        let product = v.binary("mul", scaled, normal);
        let along = mean(v, product);
        let along = v.binary("mul", normal, along);
        let mut rest = v.binary("sub", scaled, along);
        if is_centered {
            let shift = mean(v, scaled);
            rest = v.binary("sub", rest, shift);
        }
        let gradient = v.binary("mul", rest, inverse);
        v.convert(gradient, elem)
    });
    Ok(())
}
