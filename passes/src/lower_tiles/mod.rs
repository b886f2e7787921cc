//! `lower-tiles`: a `kernel.func` from the tile phase, through the placed phase, to the thread phase.
//!
//! - [`place`] gives every tile a layout and, on a GPU, stages operands of products in shared memory.
//! - [`distribute()`] makes of each tile the registers that one thread holds.

mod bounds;
mod distribute;
mod emit;
mod groups;
mod indices;
pub mod layout;
mod place;
#[cfg(test)]
pub(crate) mod tests;

pub use distribute::distribute;
pub use place::place;

use rc_ir::{Body, Result};

/// What the lowering is told of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// f32 lanes of the CPU's vectors: 4 (SSE, NEON), 8 (AVX2) or 16 (AVX-512).
    pub lanes: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { lanes: 8 }
    }
}

/// A `kernel.func` in the tile or placed phase, in the thread phase; one in the thread phase, as it is.
///
/// # Errors
/// What [`place`] and [`distribute()`] report.
pub fn lower_tiles(kernel: &Body, options: Options) -> Result<Body> {
    let root = kernel.op_ref(kernel.root());
    match root.str("phase") {
        Some("tile") => distribute(&place(kernel, options.lanes)?, options.lanes),
        Some("placed") => distribute(kernel, options.lanes),
        Some("thread") => Ok(kernel.clone()),
        _ => Err(root.error("expects 'phase' to be tile, placed or thread")),
    }
}
