//! The `kernel` dialect: the schedule applied. A `kernel.func` is run once for each point of its grid,
//! in one of three phases, named by its attribute `phase`.
//!
//! - *tile*: values are tiles (`!rc.tile<64x32xf32>`), loaded from and stored to memrefs at element
//!   offsets, clipped to the memref's bounds; `core` elementwise ops work on tiles. Shared by CPU and GPU.
//! - *placed*: tiles carry layouts (how elements lie in threads' registers), operands of products lie in
//!   shared or packed memory, copies and barriers are explicit.
//! - *thread*: what one thread does, in scalars, fixed vectors and single hardware instructions.
//!
//! Memory spaces: 0 global (or a CPU's) memory, 3 a block's shared memory, 5 a thread's own.

mod async_copy;
mod control;
mod func;
mod memory;
mod mma;
mod sync;
mod tile;
mod vector;
mod words;

pub use async_copy::*;
pub use control::*;
pub use func::*;
pub use memory::*;
pub use mma::*;
pub use sync::*;
pub use tile::*;
pub use vector::*;
pub use words::*;

use rc_ir::OpDef;

/// All operations of the dialect.
pub fn ops() -> Vec<&'static OpDef> {
    [func::OPS, control::OPS, tile::OPS, words::OPS, memory::OPS, vector::OPS, sync::OPS, async_copy::OPS, mma::OPS]
        .concat()
}
