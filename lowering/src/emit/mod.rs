//! Builds modules in MLIR's `llvm` and `nvvm` dialects, for the CPU and for the GPU.
//!
//! A [`ModuleBuilder`] makes functions and globals; a function's [`Builder`] appends operations at its insertion
//! point. All of its methods take `&self`, so that expressions nest: `b.fadd(b.fmul(x, y), z)`. Values are typed by
//! MLIR; what does not fit is reported by the verifier when the module is compiled, with the operation.
//!
//! - arithmetic, comparisons, casts, on scalars and on vectors alike (`arith`, `cast`)
//! - vectors: splat, insert, extract, shuffle, horizontal reductions (`vector`)
//! - memory: addresses, loads, stores, masks, atomics (`memory`)
//! - control flow: loops and branches from closures, or blocks (`control`)
//! - [`ptx`]: the GPU's registers, barriers, copies and matrix instructions, from [`Builder::ptx`]

mod arith;
mod builder;
mod cast;
mod control;
mod memory;
mod module;
pub mod ptx;
mod types;
mod vector;

pub use self::{
    builder::{Block, Builder},
    cast::Format,
    control::Unroll,
    memory::{Access, AtomicOp, Ordering},
    module::{Function, Kernel, ModuleBuilder, Parameter},
    types::{FCmp, FastMath, ICmp, Space, Type, Types, Value, element, lanes, same_shape},
    vector::Horizontal,
};
