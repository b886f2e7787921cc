//! A `kernel.func` in its *thread* phase to machine code.
//!
//! ```text
//! kernel.func ─ lower_to_mlir ─ llvm and nvvm dialects ─ lower_to_llvm ─ LLVM IR ─ lower_kernel ─ object code, PTX
//! ```
//!
//! One file for each family of operations. Each operation becomes what its declaration in `rc_dialects::kernel` says,
//! and nothing is approximated on the way: fast-math flags appear only where an operation allows any order.
//!
//! - A scalar is one LLVM value. A vector is one LLVM vector on the CPU and a list of scalars on a GPU, whose
//!   arithmetic is scalar (`value`).
//! - `index` is 64 bits wide, except where ranges of symbols prove that 32 bits hold a value on a GPU (`ranges`).
//! - A memref is a pointer; its row-major strides follow from its type, over the kernel's symbols (`address`, `dims`).

mod address;
mod allocs;
mod approx;
mod compile;
mod constant;
mod control;
mod convert;
mod cpu;
mod cuda;
mod dims;
mod elementwise;
mod fma;
mod info;
mod memory;
mod mma;
mod ranges;
mod sync;
mod tensor_copy;
mod value;
mod vector;
mod wgmma;
mod words;

pub use compile::{Code, CompiledKernel, Timings, lower_kernel, lower_kernels, lower_to_llvm, lower_to_mlir};
pub use info::{KernelArg, KernelInfo, TensorMapInfo};

use crate::{backend::Processor, emit::Builder};
use dims::Dims;
use ranges::IndexRanges;
use rc_ir::{self as ir, Body, Diagnostic, OpRef, Result};
use value::Values;

/// One kernel on its way to the `llvm` dialect.
struct Lowering<'a, 'm> {
    body: &'a Body,
    b: &'a Builder<'m>,
    info: &'a KernelInfo,
    target: &'a Processor,
    gpu: bool,
    ranges: IndexRanges,
    dims: Dims<'m>,
    values: Values<'m>,
    /// The array of the arguments' addresses, where there is one.
    table: Option<crate::emit::Value<'m>>,
    /// The program's place in the grid, along x, y, z.
    programs: [crate::emit::Value<'m>; 3],
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// The operations of a block, up to its terminator.
    fn block(&mut self, block: ir::Block) -> Result {
        for op in self.body.ops(block) {
            self.set_location(op);
            self.op(self.body.op_ref(op))?;
        }
        Ok(())
    }

    fn set_location(&self, op: ir::Op) {
        let loc = self.body.loc(op);
        if let Some((source, offset)) = loc.source() {
            let (line, column) = source.line_col(offset);
            self.b.set_location(self.b.file_location(&source.name, line as usize, column as usize));
        } else if let Some(ir::loc::LocData::File { file, line, col }) = loc.data() {
            self.b.set_location(self.b.file_location(file.as_str(), *line as usize, *col as usize));
        }
    }

    fn op(&mut self, op: OpRef) -> Result {
        let name = op.name().pretty();
        match name {
            "kernel.return" | "kernel.yield" => Ok(()),
            "kernel.program_id" | "kernel.thread_id" | "kernel.extent" => self.place(op),
            "kernel.for" => self.for_op(op),
            "kernel.if" => self.if_op(op),
            "kernel.alloc" => Ok(()), // placed before the body
            "kernel.view" => self.view(op),
            "kernel.choose" => self.choose(op),
            "kernel.read" => self.read(op),
            "kernel.write" => self.write(op),
            "kernel.atomic" => self.atomic(op),
            "core.constant" | "core.iota" => self.constant(op),
            "core.convert" => self.convert(op),
            "core.bitcast" | "kernel.bitcast" => self.bitcast(op),
            "core.broadcast" | "kernel.splat" => self.splat(op),
            "kernel.extract" => self.extract(op),
            "kernel.insert" => self.insert(op),
            "kernel.concat" => self.concat(op),
            "kernel.slice" => self.slice(op),
            "kernel.permute" => self.permute(op),
            "kernel.vector_reduce" => self.vector_reduce(op),
            "kernel.dot_words" => self.dot_words(op),
            "kernel.dot_tiles" => self.dot_tiles(op),
            _ if name.starts_with("core.") => self.elementwise(op),
            _ if name.starts_with("kernel.") => self.gpu_op(op),
            _ => Err(op.unsupported("in the thread phase of a kernel")),
        }
    }

    /// What only a GPU has.
    fn gpu_op(&mut self, op: OpRef) -> Result {
        let name = op.name().pretty();
        if name == "kernel.barrier" && !self.gpu {
            return Ok(()); // a program has one thread
        }
        if TILE_OPS.contains(&name) {
            let error = op.unsupported("in machine code: the kernel is not in its thread phase");
            return Err(error.help("run lower-tiles first, which gives each thread its part of the tiles"));
        }
        if !self.gpu {
            return Err(op.unsupported("on the CPU").help("kernels that use it are for target = cuda"));
        }
        match name {
            "kernel.approx" => self.approx(op),
            "kernel.shuffle" => self.shuffle(op),
            "kernel.ldmatrix" => self.ldmatrix(op),
            "kernel.stmatrix" => self.stmatrix(op),
            "kernel.mma" => self.mma(op),
            "kernel.wgmma" => self.wgmma(op),
            "kernel.wgmma_wait" => self.wgmma_wait(op),
            "kernel.wgmma_fence" | "kernel.wgmma_commit" => self.wgmma_order(op),
            "kernel.async_copy" => self.async_copy(op),
            "kernel.tensor_load" => self.tensor_load(op),
            "kernel.box_prefetch" => self.box_prefetch(op),
            "kernel.tensor_store" => self.tensor_store(op),
            _ => self.sync(op),
        }
    }

    fn place(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let value = match op.name().pretty() {
            "kernel.program_id" => self.programs[op.int("axis").unwrap_or(0).clamp(0, 2) as usize],
            "kernel.thread_id" => self.thread_id(),
            _ => match op.attr("expr").and_then(|a| a.as_shape()) {
                Some(&[dim]) => self.dim(dim, self.index_type(result))?,
                _ => return Err(op.error("expects one expression in 'expr'")),
            },
        };
        let value = self.index_cast(value, self.index_type(result), true);
        self.values.set(result, value);
        Ok(())
    }

    fn thread_id(&self) -> crate::emit::Value<'m> {
        if self.gpu { self.b.ptx().thread_id(crate::emit::ptx::Axis::X) } else { self.b.i64(0) }
    }
}

/// What the earlier phases have.
const TILE_OPS: &[&str] = &[
    "kernel.load",
    "kernel.gather",
    "kernel.store",
    "kernel.scatter",
    "kernel.reduce",
    "kernel.scan",
    "kernel.dot",
    "kernel.pack",
    "kernel.iota",
    "kernel.broadcast",
    "kernel.transpose",
    "kernel.convert_layout",
];

/// An error of the whole kernel.
fn kernel_error(body: &Body, message: impl std::fmt::Display) -> Box<Diagnostic> {
    body.op_ref(body.root()).error(message)
}
