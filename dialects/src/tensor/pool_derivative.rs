//! Pools and their gradients are each other's derivatives.

use super::pool::{AVG_POOL, AVG_POOL_GRAD, MAX_POOL_GRAD, counted_in};
use super::spatial::product;
use crate::builder::CoreBuilder;
use crate::derivative::Vjp;
use crate::op;
use rc_ir::{Attr, Name, OpDef, Result, Value};

/// The last dimensions that windows slide along.
fn spatial_rank(v: &Vjp) -> usize {
    v.at().ints("window").map_or(0, |w| w.len())
}

/// The op's attributes without `sizes`, and with those of operand 0.
fn with_sizes(v: &Vjp) -> Attr {
    let shape = v.ty(v.operand(0)).shape();
    let sizes = Attr::shape(&shape[shape.len() - spatial_rank(v)..]);
    v.at().body.attrs(v.at().op).with(Name::new("sizes"), Some(sizes))
}

pub fn max_pool_vjp(v: &mut Vjp) -> Result {
    let (g, places, attrs) = (v.g(), v.result(1), with_sizes(v));
    let sizes = attrs.get("sizes").and_then(|a| a.as_shape()).unwrap_or_default();
    let narrow = counted_in(sizes);
    v.give_with(0, |v| {
        // What is kept, or computed again, is as narrow as places are computed in.
        let places = v.convert(places, narrow);
        v.op(&MAX_POOL_GRAD).operand(g).operand(places).attrs(attrs).value()
    });
    Ok(())
}

/// Each window's gradient is that of the element which was its maximum.
pub fn max_pool_grad_vjp(v: &mut Vjp) -> Result {
    let (g, places, spatial) = (v.g(), v.operand(1), spatial_rank(v));
    let flat = |v: &mut Vjp, x: Value| {
        let shape = v.ty(x).shape().to_vec();
        let lead = shape.len() - spatial;
        v.reshape(x, &[&shape[..lead], &[product(&shape[lead..])]].concat())
    };
    v.give_with(0, |v| {
        let shape = v.ty(places).shape();
        let (table, places) = (flat(v, g), flat(v, places));
        let lead = Attr::i64((shape.len() - spatial) as i64);
        let taken = v.op(op::core::GATHER).operands(&[table, places]).attr("axis", lead).attr("batch", lead).value();
        v.reshape(taken, &shape)
    });
    Ok(())
}

pub fn avg_pool_vjp(v: &mut Vjp) -> Result {
    let (g, attrs) = (v.g(), with_sizes(v));
    v.give_with(0, |v| v.op(&AVG_POOL_GRAD).operand(g).attrs(attrs).value());
    Ok(())
}

pub fn avg_pool_grad_vjp(v: &mut Vjp) -> Result {
    let (g, attrs) = (v.g(), v.at().body.attrs(v.at().op).with(Name::new("sizes"), None));
    v.give_with(0, |v| v.op(&AVG_POOL).operand(g).attrs(attrs).value());
    Ok(())
}

/// Of the mean of parts its gradient, and of that the mean.
pub fn adaptive_vjp(v: &mut Vjp, other: &'static OpDef) -> Result {
    let (g, shape) = (v.g(), v.ty(v.operand(0)).shape());
    let spatial = v.at().ints("sizes").map_or(0, |s| s.len());
    let sizes: Option<Vec<i64>> = shape[shape.len() - spatial..].iter().map(|d| d.as_static()).collect();
    let Some(sizes) = sizes else {
        return Err(v.at().unsupported("the derivative of a mean of parts of a symbolic size"));
    };
    v.give_with(0, |v| v.op(other).operand(g).attr("sizes", Attr::i64s(&sizes)).value());
    Ok(())
}
