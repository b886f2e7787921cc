//! `tensor`: what a frontend writes. Each operation is a named function with a definition in `core`, which
//! the pass `decompose` puts in its place and the interpreter runs.
//!
//! Operations that normalize or take exponentials compute in f32 for f16 and bf16, as PyTorch does, and round
//! once at the end. Elementwise arithmetic broadcasts by numpy's rules.

mod activation;
mod arith;
mod attention;
pub mod channels_last;
mod conv;
mod conv_derivative;
pub mod merge;
mod norm;
mod norm_derivative;
pub mod normalize;
mod place;
mod pool;
mod pool_derivative;
mod product;
mod ragged;
mod random;
mod reduce;
mod shape;
pub mod sort;
mod spatial;
mod statistics;
mod stop_gradient;

pub use conv::{CONV, CONV_TRANSPOSE, CONV_WEIGHT_GRAD, IN_PLANES};
pub use pool::ADAPTIVE_AVG_POOL;
pub use sort::{SORT, TOPK};

/// Registers the dialect.
pub fn register() {
    let families = [
        activation::OPS,
        arith::OPS,
        attention::OPS,
        conv::OPS,
        norm::OPS,
        normalize::OPS,
        place::OPS,
        pool::OPS,
        product::OPS,
        ragged::OPS,
        random::OPS,
        reduce::OPS,
        shape::OPS,
        sort::OPS,
        statistics::OPS,
        stop_gradient::OPS,
    ];
    families.iter().for_each(|ops| rc_ir::op_def::register(ops));
}

use rc_ir::Type;

/// The type in which functions of floats are computed: f32 for narrower ones.
fn compute_type(elem: Type) -> Type {
    match elem.bit_width() {
        Some(width) if elem.is_float() && width < 32 => Type::f32(),
        _ => elem,
    }
}
