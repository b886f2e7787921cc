//! `lower-tiles`: a `kernel.func` from the tile phase, through the placed phase, to the thread phase.
//!
//! - [`place`] gives every tile a layout and, on a GPU, stages operands of products in shared memory.
//! - [`distribute()`] makes of each tile the registers that one thread holds.

mod distribute;
mod emit;
mod groups;
mod indices;
pub mod layout;
mod once;
mod pipeline;
mod place;
#[cfg(test)]
pub(crate) mod tests;

pub use distribute::distribute;
pub use layout::Layout;
pub use pipeline::ASYNC;
pub use place::place;

use crate::schedule::Target;
use rc_dialects::op;
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Attr, Body, Diagnostic, Loc, Module, Result, Type};

pub static LOWER_TILES: PassDef = PassDef {
    summary: "Distributes the tiles of kernels over the registers of threads.",
    doc: "Brings kernel.func from the tile or the placed phase to the thread phase, or with to=placed only to the placed phase. \
Bounds are checked only where they are not proved from sizes, grid and loops.",
    options: &[
        option(
            "lanes",
            OptionKind::Int { min: 0, max: 64 },
            "0",
            "f32 lanes of the CPU's vectors: 4 (SSE, NEON), 8 (AVX2), 16 (AVX-512); 0: the target's.",
        ),
        option("to", OptionKind::Enum(&["placed", "thread"]), "thread", "The phase to arrive at."),
    ],
    requires: &["lower-kernel"],
    pending: Some(|module: &Module| module.bodies.iter().any(is_above_threads)),
    ..PassDef::new("lower-tiles", |options| {
        let (lanes, only_place) = (options.int("lanes"), options.str("to") == "placed");
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let phase = body.op_ref(body.root()).str("phase");
            if is_above_threads(body) && !(only_place && phase == Some("placed")) {
                let mut options = Options::of(&target_of(body, cx.module.attrs)?);
                if lanes > 0 {
                    options.lanes = lanes;
                }
                *body = if only_place { place(body, options)? } else { lower_tiles(body, options)? };
            }
            Ok(())
        }))
    })
};

/// The machine that a kernel of the module is for.
fn target_of(kernel: &Body, module: Attr) -> Result<Target> {
    let machine = kernel.op_ref(kernel.root()).str("target").unwrap_or("");
    Target::of(machine, "", module).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))
}

fn is_above_threads(body: &Body) -> bool {
    let root = body.op_ref(body.root());
    root.is(op::kernel::FUNC) && root.str("phase") != Some("thread")
}

/// What the lowering is told of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// f32 lanes of the CPU's vectors: 4 (SSE, NEON), 8 (AVX2) or 16 (AVX-512).
    pub lanes: i64,
    /// Registers of a GPU's multiprocessor.
    pub registers: i64,
    /// Shared memory of a GPU's block through which its threads exchange elements of tiles, at most.
    pub exchange_bytes: i64,
    /// Tiles of operands in flight where no schedule says it, and the bytes of shared memory that they take at most.
    pub stages: i64,
    pub stage_bytes: i64,
}

impl Options {
    pub fn of(target: &Target) -> Options {
        let products = target.gpu.as_ref().map(|gpu| &gpu.products);
        Options {
            lanes: target.lanes(Type::f32()),
            registers: target.registers,
            exchange_bytes: target.exchange_bytes(),
            stages: products.map_or(1, |p| p.mma_stages),
            stage_bytes: products.map_or(0, |p| p.stage_bytes),
        }
    }
}

/// A `kernel.func` in the tile or placed phase, in the thread phase; one in the thread phase, as it is.
///
/// # Errors
/// What [`place`] and [`distribute()`] report.
pub fn lower_tiles(kernel: &Body, options: Options) -> Result<Body> {
    let root = kernel.op_ref(kernel.root());
    match root.str("phase") {
        Some("tile") => distribute(&place(kernel, options)?, options),
        Some("placed") => distribute(kernel, options),
        Some("thread") => Ok(kernel.clone()),
        _ => Err(root.error("expects 'phase' to be tile, placed or thread")),
    }
}
