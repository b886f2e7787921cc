//! A kernel's function on the CPU, by the ABI of `rc_runtime::cpu::abi`:
//!
//! ```c
//! void kernel(const uint64_t *args, const KernelCtx *ctx);
//! ```

use super::{KernelArg, Lowering, allocs::Allocations, words::uses_tiles};
use crate::emit::{Access, ModuleBuilder, Parameter, Unroll, Value};
use rc_ir::Result;

/// Byte offsets of `KernelCtx`, as `rc_runtime::cpu::abi` states them.
mod context {
    pub const BEGIN: i32 = 0;
    pub const END: i32 = 8;
    pub const GRID: i32 = 16;
    pub const SCRATCH: i32 = 56;
}

/// Bits of MXCSR: subnormal results are zero (15), and subnormal operands (6).
const FLUSH: i64 = 1 << 15 | 1 << 6;

/// Two pointers: the slots of arguments, the context.
pub(super) fn parameters<'m>(module: &'m ModuleBuilder<'_>) -> Vec<Parameter<'m>> {
    let pointer = Parameter { noalias: true, readonly: true, align: 8, ..Parameter::new(module.types().ptr) };
    vec![pointer; 2]
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// The function: arguments are loaded once, then it loops over its part of the grid.
    pub fn cpu_function(&mut self, allocations: &Allocations) -> Result {
        let b = self.b;
        let (slots, context) = (b.arg(0), b.arg(1));
        let word = |base, offset| b.load(b.ty.i64, b.gep_const(b.ty.i8, base, offset), Access::invariant(8));
        let pointer = |base, offset| b.load(b.ty.ptr, b.gep_const(b.ty.i8, base, offset), Access::invariant(8));
        let Some(entry) = self.body.entry() else { return Ok(()) };
        self.table = Some(slots);
        for (i, arg) in self.body.block_args(entry).enumerate() {
            if matches!(self.info.args[i], KernelArg::TensorMap(_)) {
                let root = self.body.op_ref(self.body.root());
                return Err(root.unsupported("with a tensor map on the CPU"));
            }
            self.values.set(arg, pointer(slots, 8 * i as i32));
        }
        for (i, symbol) in self.info.symbols.iter().enumerate() {
            self.dims.symbols.push((symbol.name, word(slots, 8 * (self.info.args.len() + i) as i32)));
        }
        let scratch = (self.info.scratch > 0).then(|| pointer(context, context::SCRATCH));
        self.allocate(allocations, scratch);
        self.compute_strides()?;
        let extent = |axis: usize| match self.info.grid[axis].as_static() {
            Some(n) => b.i64(n),
            None => word(context, context::GRID + 8 * axis as i32),
        };
        let (x, y) = (extent(0), extent(1));
        let (begin, end) = (word(context, context::BEGIN), word(context, context::END));
        let tiles = uses_tiles(self.body);
        if tiles {
            self.configure_tiles();
        }
        let environment = self.flush_subnormals();
        let mut outcome = Ok(());
        b.for_loop((begin, end, b.i64(1)), &[], Unroll::No, |id, _| {
            self.programs = self.program_ids(id, x, y);
            outcome = self.block(entry);
            vec![]
        });
        outcome?;
        if tiles {
            self.release_tiles();
        }
        if let Some(found) = environment {
            b.intrinsic("llvm.x86.sse.ldmxcsr", &[found], None);
        }
        b.ret(None);
        Ok(())
    }

    /// Makes subnormal numbers zero until the end, where the kernel asks for it and the processor does it. Gives where the control register is
    /// kept as it was found.
    fn flush_subnormals(&self) -> Option<Value<'m>> {
        let b = self.b;
        let asks = self.body.op_ref(self.body.root()).bool("flush");
        if !asks || !self.target.triple().starts_with("x86_64") {
            return None;
        }
        let word = || b.alloca(b.ty.i32, 1, 4);
        let (found, changed) = (word(), word());
        b.intrinsic("llvm.x86.sse.stmxcsr", &[found], None);
        let control = b.load(b.ty.i32, found, Access::aligned(4));
        b.store(b.or(control, b.int(b.ty.i32, FLUSH)), changed, Access::aligned(4));
        b.intrinsic("llvm.x86.sse.ldmxcsr", &[changed], None);
        Some(found)
    }

    /// x, y, z of a linear program id; nothing is divided where an extent is 1.
    fn program_ids(&self, id: Value<'m>, x: Value<'m>, y: Value<'m>) -> [Value<'m>; 3] {
        let b = self.b;
        let one = |axis: usize| self.info.grid[axis].as_static() == Some(1);
        let zero = b.i64(0);
        match (one(1), one(2)) {
            (true, true) => [id, zero, zero],
            (_, true) => [b.urem(id, x), b.udiv(id, x), zero],
            _ => {
                let rest = b.udiv(id, x);
                [b.urem(id, x), b.urem(rest, y), b.udiv(rest, y)]
            }
        }
    }
}
