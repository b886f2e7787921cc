//! The `loop` dialect: each fusion as structured nests over whole iteration spaces, on immutable tensors.
//!
//! Before: `core.fusion` groups. Adds: `loop.kernel` symbols, one for each distinct fusion, launched by
//! `loop.launch`; inside, `loop.nest`s with named iterators and index maps. After lower-loops no
//! `core.fusion` and, inside kernels, no tensor-level `core` op is left.

mod attention_backward;
mod kernel;
mod nest;
mod scatter;
mod sort;

pub use attention_backward::{ATTENTION_BACKWARD, gradients_of};
pub use kernel::{KERNEL, LAUNCH, RETURN};
pub use nest::{ATTENTION, GATHER, INDEX, IterKind, NEST, Nest, YIELD};

pub use scatter::SCATTER;
pub use sort::SORT;

use rc_ir::OpDef;

/// All operations of the dialect.
pub static OPS: &[&OpDef] =
    &[&KERNEL, &LAUNCH, &RETURN, &NEST, &YIELD, &INDEX, &GATHER, &ATTENTION, &ATTENTION_BACKWARD, &SCATTER, &SORT];
