//! `core`: a small closed set of ops with exact meaning, about what core ATen and StableHLO agree on.
//!
//! Elementwise ops take operands of one type (there is no implicit broadcasting) and work on tensors, vectors,
//! tiles and scalars alike. On floats an op gives the exact result rounded once to the element type, within
//! the bound it states; a wider type of computation is written out with `core.convert`. Integers wrap; signless
//! ones are signed. Only `reduce`, `scan`, `dot` and `attention` may reassociate.

pub mod attention;
pub mod attention_backward;
mod attention_batch;
mod attention_derivative;
pub mod attention_scores;
pub mod binary;
pub mod call;
pub mod compare;
pub mod constant;
pub mod control;
pub mod convert;
pub mod dim;
pub mod dot;
pub mod fold;
pub mod foreign;
pub mod fusion;
pub mod gather;
pub mod gather_broadcast;
mod known_indices;
mod one_hot;
mod permutation;
pub mod random;
pub mod reduce;
mod reduce_derivative;
pub mod reindex;
pub mod scalar;
mod scatter_derivative;
pub mod shape;
pub mod slice;
pub mod sort;
pub mod special;
mod sum_of_products;
pub mod unary;
pub mod value_range;
pub mod window;

/// Registers the dialect.
pub fn register() {
    let families = [
        unary::OPS,
        binary::OPS,
        compare::OPS,
        convert::OPS,
        constant::OPS,
        shape::OPS,
        slice::OPS,
        window::OPS,
        gather::OPS,
        sort::OPS,
        random::OPS,
        dim::OPS,
        reduce::OPS,
        dot::OPS,
        attention::OPS,
        attention_backward::OPS,
        fusion::OPS,
        call::OPS,
        control::OPS,
        foreign::OPS,
    ];
    families.iter().for_each(|ops| rc_ir::op_def::register(ops));
}
