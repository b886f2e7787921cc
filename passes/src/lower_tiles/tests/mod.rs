//! Tile programs in text, lowered and run on a machine that has nothing in common with the lowering.

pub(crate) mod machine;
mod products;
mod programs;
