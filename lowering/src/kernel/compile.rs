//! Kernels to machine code, one or many.

use super::{
    KernelInfo, Lowering, allocs::Allocations, cpu, cuda, dims::Dims, kernel_error, ranges::IndexRanges, value::Values,
};
use crate::{
    backend::{LlvmModule, ObjectCode, Options, Processor, Session},
    emit::{Function, ModuleBuilder},
};
use melior::ir::Module;
use rc_ir::{Body, Result};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A kernel's machine code with all that a launch needs.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    pub info: KernelInfo,
    pub code: Code,
    pub timings: Timings,
}

/// Machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// An ELF object whose function has the ABI of `rc_runtime::cpu::abi`.
    Object(ObjectCode),
    /// PTX, for the driver to assemble.
    Ptx(String),
}

/// How long the steps took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// From `kernel` to MLIR's dialects.
    pub lower: Duration,
    /// To LLVM IR.
    pub translate: Duration,
    /// LLVM's passes.
    pub passes: Duration,
    /// To object code or PTX.
    pub codegen: Duration,
}

/// Compiles one kernel in its thread phase.
///
/// # Errors
///
/// What is not supported, with the operation and its place; what the back end says, which is a defect of rc's.
pub fn lower_kernel(session: &Session, body: &Body, target: &Processor, options: &Options) -> Result<CompiledKernel> {
    let start = Instant::now();
    let (module, info) = lower_to_mlir(session, body, target)?;
    let lower = start.elapsed();
    let backend = |error: crate::backend::Error| kernel_error(body, error);
    let llvm = session.compile(&module, target, options).map_err(backend)?;
    let start = Instant::now();
    let code = match target {
        Processor::Cpu(_) => Code::Object(llvm.object().map_err(backend)?),
        Processor::Cuda(_) => Code::Ptx(llvm.ptx().map_err(backend)?),
    };
    let steps = llvm.timings();
    let timings = Timings { lower, translate: steps.translate, passes: steps.passes, codegen: start.elapsed() };
    Ok(CompiledKernel { info, code, timings })
}

/// Compiles kernels in parallel, a session for each thread. Results come in the order of the kernels.
pub fn lower_kernels(bodies: &[&Body], target: &Processor, options: &Options) -> Vec<Result<CompiledKernel>> {
    // Kernels differ in size by orders of magnitude. Threads take the largest that is left, so that none starts one when the others are done.
    let mut queue: Vec<usize> = (0..bodies.len()).collect();
    queue.sort_by_key(|&i| std::cmp::Reverse(bodies[i].value_capacity()));
    let next = AtomicUsize::new(0);
    let compiled: Vec<OnceLock<Result<CompiledKernel>>> = bodies.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some(&i) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
            _ = compiled[i].set(Session::with(|session| lower_kernel(session, bodies[i], target, options)));
        }
    };
    // Not a broadcast, which waits for every thread of the pool: some may load another module meanwhile.
    rayon::scope(|scope| (0..rayon::current_num_threads().min(bodies.len())).for_each(|_| scope.spawn(|_| work())));
    compiled.into_iter().map(|kernel| kernel.into_inner().expect("each kernel was taken once")).collect()
}

/// Kernels, at least one, in one module of LLVM IR after LLVM's passes: text, assembly, object code or PTX can be had from it.
///
/// # Errors
///
/// As [`lower_kernel`].
pub fn lower_to_llvm(session: &Session, bodies: &[&Body], target: &Processor, options: &Options) -> Result<LlvmModule> {
    let backend = |error: crate::backend::Error| kernel_error(bodies[0], error);
    let module = ModuleBuilder::new(session, target).map_err(backend)?;
    for body in bodies {
        add_kernel(&module, body, target)?;
    }
    session.compile(&module.finish(), target, options).map_err(backend)
}

/// The kernel as a module of MLIR's `llvm` and `nvvm` dialects.
///
/// # Errors
///
/// What is not supported, with the operation and its place.
pub fn lower_to_mlir<'c>(session: &'c Session, body: &Body, target: &Processor) -> Result<(Module<'c>, KernelInfo)> {
    let module = ModuleBuilder::new(session, target).map_err(|error| kernel_error(body, error))?;
    let info = add_kernel(&module, body, target)?;
    Ok((module.finish(), info))
}

/// Adds a kernel's function to a module, and what it alone uses.
fn add_kernel(module: &ModuleBuilder, body: &Body, target: &Processor) -> Result<KernelInfo> {
    let gpu = matches!(target, Processor::Cuda(_));
    let mut info = KernelInfo::of(body)?;
    let root = body.op_ref(body.root());
    match (root.str("target"), gpu) {
        (Some("cpu"), true) | (Some("cuda"), false) => {
            let target = if gpu { "cuda" } else { "cpu" };
            return Err(root.error(format!("is scheduled for another target than {target}")));
        }
        _ => {}
    }
    let room = match target {
        Processor::Cuda(cuda) => Some(cuda.shared_bytes()),
        Processor::Cpu(_) => None,
    };
    let allocations = Allocations::plan(body, &mut info, room)?;
    if gpu {
        cuda::declare_shared(module, &info, &allocations);
    }
    let parameters = if gpu { cuda::parameters(module, &info) } else { cpu::parameters(module) };
    let kernel = gpu.then(|| cuda::bounds(&info));
    let b = module.function(&Function { kernel, ..Function::new(&info.symbol, &parameters) });
    let mut lowering = Lowering {
        body,
        b: &b,
        info: &info,
        target,
        gpu,
        ranges: IndexRanges::new(body, &info, gpu),
        dims: Dims::default(),
        values: Values::new(body.value_capacity()),
        table: None,
        programs: [b.i64(0); 3],
    };
    if gpu {
        lowering.cuda_function(&allocations)?;
    } else {
        lowering.cpu_function(&allocations)?;
    }
    drop(lowering);
    drop(b);
    drop(parameters);
    Ok(info)
}
