//! A kernel's function on CUDA: a pointer or a tensor map for each argument, then an i64 for each symbol; or, where the code chooses among
//! arguments, one parameter with all pointers.

use super::{KernelArg, KernelInfo, Lowering, allocs::Allocations};
use crate::emit::{Access, Kernel, ModuleBuilder, Parameter, Space, ptx::Axis};
use rc_ir::Result;

/// The name of a block's shared memory: each kernel's own, so that the code of several is one text.
pub(super) fn shared_name(info: &KernelInfo) -> String {
    format!("{}_shared", info.symbol)
}

pub(super) fn parameters<'m>(module: &'m ModuleBuilder<'_>, info: &KernelInfo) -> Vec<Parameter<'m>> {
    let types = module.types();
    let arg = |arg: &KernelArg| match arg {
        KernelArg::Memory(_) => Parameter::new(types.ptr_in(Space::Global)),
        KernelArg::TensorMap(_) => Parameter::tensor_map(&types),
    };
    if info.table {
        return vec![Parameter::table(&types, info.args.len())];
    }
    let symbols = info.symbols.iter().map(|_| Parameter::new(types.i64));
    info.args.iter().map(arg).chain(symbols).collect()
}

pub(super) fn bounds(info: &KernelInfo) -> Kernel {
    Kernel {
        threads: [info.threads, 1, 1],
        min_blocks: info.min_blocks,
        max_registers: 0,
        cluster: info.cluster.unwrap_or_default(),
    }
}

/// Declares the block's shared memory. It is one array, so that alignments hold for all of it.
pub(super) fn declare_shared(module: &ModuleBuilder<'_>, info: &KernelInfo, allocations: &Allocations) {
    if info.static_shared > 0 {
        module.shared(&shared_name(info), info.static_shared, allocations.shared_align);
    } else if info.dynamic_shared > 0 {
        module.dynamic_shared(&shared_name(info), allocations.shared_align);
    }
}

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn cuda_function(&mut self, allocations: &Allocations) -> Result {
        let b = self.b;
        let Some(entry) = self.body.entry() else { return Ok(()) };
        self.table = self.info.table.then(|| b.arg(0));
        for (i, arg) in self.body.block_args(entry).enumerate() {
            let address =
                |table| b.load(self.address_type(), b.gep_const(b.ty.i64, table, i as i32), Access::invariant(8));
            self.values.set(arg, self.table.map_or_else(|| b.arg(i), address));
        }
        for (i, symbol) in self.info.symbols.iter().enumerate() {
            self.dims.symbols.push((symbol.name, b.arg(self.info.args.len() + i)));
        }
        self.allocate(allocations, None);
        self.compute_strides()?;
        self.programs = [Axis::X, Axis::Y, Axis::Z].map(|axis| b.ptx().block_id(axis));
        self.block(entry)?;
        b.ret(None);
        Ok(())
    }
}
