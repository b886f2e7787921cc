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
use rc_dialects::op;
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
        let name = op.name().as_str();
        match name {
            op::kernel::RETURN | op::kernel::YIELD => Ok(()),
            op::kernel::PROGRAM_ID | op::kernel::THREAD_ID | op::kernel::EXTENT => self.place(op),
            op::kernel::FOR => self.for_op(op),
            op::kernel::IF => self.if_op(op),
            op::kernel::ALLOC => Ok(()), // placed before the body
            op::kernel::VIEW => self.view(op),
            op::kernel::CHOOSE => self.choose(op),
            op::kernel::READ => self.read(op),
            op::kernel::WRITE => self.write(op),
            op::kernel::PREFETCH => self.prefetch(op),
            op::kernel::ATOMIC => self.atomic(op),
            op::core::CONSTANT | op::core::IOTA => self.constant(op),
            op::core::CONVERT => self.convert(op),
            op::core::BITCAST | op::kernel::BITCAST => self.bitcast(op),
            op::core::BROADCAST | op::kernel::SPLAT => self.splat(op),
            op::kernel::EXTRACT => self.extract(op),
            op::kernel::INSERT => self.insert(op),
            op::kernel::CONCAT => self.concat(op),
            op::kernel::SLICE => self.slice(op),
            op::kernel::PERMUTE => self.permute(op),
            op::kernel::VECTOR_REDUCE => self.vector_reduce(op),
            op::kernel::DOT_WORDS => self.dot_words(op),
            op::kernel::DOT_TILES => self.dot_tiles(op),
            _ if op.name().dialect() == "core" => self.elementwise(op),
            _ if op.name().dialect() == "kernel" => self.gpu_op(op),
            _ => Err(op.unsupported("in the thread phase of a kernel")),
        }
    }

    /// What only a GPU has.
    fn gpu_op(&mut self, op: OpRef) -> Result {
        let name = op.name().as_str();
        if name == op::kernel::BARRIER && !self.gpu {
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
            op::kernel::APPROX => self.approx(op),
            op::kernel::SHUFFLE => self.shuffle(op),
            op::kernel::LDMATRIX => self.ldmatrix(op),
            op::kernel::STMATRIX => self.stmatrix(op),
            op::kernel::MMA => self.mma(op),
            op::kernel::WGMMA => self.wgmma(op),
            op::kernel::WGMMA_WAIT => self.wgmma_wait(op),
            op::kernel::WGMMA_FENCE | op::kernel::WGMMA_COMMIT => self.wgmma_order(op),
            op::kernel::ASYNC_COPY => self.async_copy(op),
            op::kernel::TENSOR_LOAD => self.tensor_load(op),
            op::kernel::BOX_PREFETCH => self.box_prefetch(op),
            op::kernel::TENSOR_STORE => self.tensor_store(op),
            _ => self.sync(op),
        }
    }

    fn place(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let value = match op.name().as_str() {
            op::kernel::PROGRAM_ID => self.programs[op.int("axis").unwrap_or(0).clamp(0, 2) as usize],
            op::kernel::THREAD_ID => self.thread_id(),
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
    op::kernel::LOAD,
    op::kernel::GATHER,
    op::kernel::STORE,
    op::kernel::SCATTER,
    op::kernel::REDUCE,
    op::kernel::SCAN,
    op::kernel::DOT,
    op::kernel::PACK,
    op::kernel::IOTA,
    op::kernel::BROADCAST,
    op::kernel::TRANSPOSE,
    op::kernel::CONVERT_LAYOUT,
];

/// An error of the whole kernel.
fn kernel_error(body: &Body, message: impl std::fmt::Display) -> Box<Diagnostic> {
    body.op_ref(body.root()).error(message)
}
