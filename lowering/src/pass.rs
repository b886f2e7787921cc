//! The passes `lower-cpu` and `lower-cuda`: kernels in their thread phase become machine code in the module.

use crate::backend::{Options, Processor};
use crate::kernel::{Code, CompiledKernel, KernelArg, KernelInfo, lower_kernels};
use rc_dialects::func::{SYMBOLS, symbols_attr};
use rc_dialects::host::BINARY;
use rc_dialects::kernel::FUNC;
use rc_ir::pass::{OptionKind, PassContext, PassDef, PassKind, has_op, option};
use rc_ir::{Attr, Blob, Body, Diagnostic, Loc, Module, Name, OpState, Result, Type};
use rc_machine::Target;

pub static LOWER_CPU: PassDef = PassDef {
    summary: "Compiles kernels to object code for the CPU.",
    doc: "Each kernel.func becomes a host.binary that holds an ELF object without external symbols.",
    options: &[option(
        "arch",
        OptionKind::Str,
        "",
        "The processor: host, or LLVM's name of one, such as x86-64-v3; none: what the module's rc.target says, else host.",
    )],
    requires: BEFORE_CODE,
    pending: Some(has_kernels),
    ..PassDef::new("lower-cpu", |options| compile_pass("cpu", options.str("arch")))
};

pub static LOWER_CUDA: PassDef = PassDef {
    summary: "Compiles kernels to PTX.",
    doc: "Each kernel.func becomes a host.binary that holds PTX, which the driver assembles when the module is loaded.",
    options: &[option(
        "arch",
        OptionKind::Str,
        "",
        "The GPU architecture: sm_80, sm_90a, …; none: what the module's rc.target says, else sm_90a.",
    )],
    requires: BEFORE_CODE,
    pending: Some(has_kernels),
    ..PassDef::new("lower-cuda", |options| compile_pass("cuda", options.str("arch")))
};

/// The passes after which kernels are in their thread phase, and machine code can be made of them.
pub const BEFORE_CODE: &[&str] = &["plan-buffers", "lower-tiles", "merge-launches", "expand-math"];

/// Makes the passes of this crate known by name. Does nothing the second time.
pub fn register() {
    rc_ir::pass::register(&[&LOWER_CPU, &LOWER_CUDA]);
}

fn has_kernels(module: &Module) -> bool {
    has_op(module, |name| name == &FUNC)
}

/// The processor of a module, whose attribute `rc.target` describes it; `machine` counts where it says none, `arch` before what it says.
///
/// # Errors
/// If the module is for another machine than `machine`, or there is no such processor.
pub fn module_target(module: &Module, machine: Option<&str>, arch: Option<&str>) -> Result<Processor> {
    let given = module.attr("rc.target").and_then(|t| t.get("machine")).and_then(|m| m.as_str());
    if let (Some(wanted), Some(is)) = (machine, given.filter(|&is| Some(is) != machine)) {
        let error =
            Diagnostic::error(module.loc, format!("the module's rc.target is {is}, and code for {wanted} is wanted"));
        return Err(error.help("lower a module without rc.target, or for the machine that it names"));
    }
    let machine = machine.or(given).unwrap_or("cpu");
    if let (None, Some(target)) = (arch, Target::of_module(module.attrs)?) {
        return processor(&target);
    }
    match (machine, arch) {
        ("cuda", arch) => cuda_target(arch.unwrap_or("sm_90a")),
        (_, arch) => cpu_target(arch.unwrap_or("host")),
    }
}

/// The CPU called `arch`, or this machine's for `host`.
pub fn cpu_target(arch: &str) -> Result<Processor> {
    let target = Target::find("cpu", Some(arch)).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?;
    processor(&target)
}

/// The GPU architecture `arch`.
pub fn cuda_target(arch: &str) -> Result<Processor> {
    Processor::cuda(arch).map_err(unknown)
}

fn processor(target: &Target) -> Result<Processor> {
    Processor::of(target).map_err(unknown)
}

fn unknown(error: crate::backend::Error) -> Box<Diagnostic> {
    Diagnostic::error(Loc::UNKNOWN, error.to_string())
}

/// The pass for a machine. `arch` is checked here, so that a mistake in it is found before anything runs.
fn compile_pass(machine: &'static str, arch: &str) -> Result<PassKind> {
    let arch = Some(arch.to_string()).filter(|arch| !arch.is_empty());
    module_target(&Module::new(), Some(machine), arch.as_deref())?;
    Ok(PassKind::module(move |module: &mut Module, cx: &mut PassContext| {
        let target = module_target(module, Some(machine), arch.as_deref())?;
        compile(module, &target, cx)
    }))
}

/// Replaces every kernel of the module by its machine code.
fn compile(module: &mut Module, target: &Processor, cx: &mut PassContext) -> Result {
    let places: Vec<usize> =
        (0..module.bodies.len()).filter(|&i| module.bodies[i].name(module.bodies[i].root()) == &FUNC).collect();
    let kernels: Vec<&Body> = places.iter().map(|&i| &module.bodies[i]).collect();
    let compiled = lower_kernels(&kernels, target, &Options::default());
    for (&place, kernel) in places.iter().zip(compiled) {
        let kernel = kernel?;
        cx.count("kernels", 1);
        cx.count(
            "microseconds in lowering to LLVM",
            (kernel.timings.lower + kernel.timings.translate).as_micros() as u64,
        );
        cx.count("microseconds in LLVM's passes", kernel.timings.passes.as_micros() as u64);
        cx.count("microseconds in code generation", kernel.timings.codegen.as_micros() as u64);
        let code = code_attr(module, &kernel);
        module.bodies[place] = binary(&module.bodies[place], &kernel, code, target);
    }
    Ok(())
}

fn code_attr(module: &mut Module, kernel: &CompiledKernel) -> Attr {
    let blob = match &kernel.code {
        Code::Ptx(text) => Blob::text(text),
        Code::Object(object) => Blob::new(object.bytes().to_vec()),
    };
    let ty = Type::tensor_of(&[blob.bytes().len() as i64], Type::i8());
    module.add_resource(&kernel.info.symbol, ty, blob)
}

fn binary(from: &Body, kernel: &CompiledKernel, code: Attr, target: &Processor) -> Body {
    let info = &kernel.info;
    let root = from.root();
    let (format, arch) = match target {
        Processor::Cpu(_) => ("elf", target.cpu_name()),
        Processor::Cuda(cuda) => ("ptx", cuda.arch()),
    };
    let attrs = [
        ("sym_name", Attr::str(&info.symbol)),
        ("format", Attr::str(format)),
        ("code", code),
        ("arch", Attr::str(arch)),
        ("args", Attr::i64(info.args.len() as i64)),
        ("grid", Attr::shape(&info.grid)),
        ("threads", Attr::i64(i64::from(info.threads))),
        ("shared", Attr::i64(i64::from(info.dynamic_shared))),
        ("scratch", Attr::i64(info.scratch as i64)),
    ];
    let cluster = info.cluster.map(|c| ("cluster", Attr::i64s(&c.map(i64::from))));
    let hopper = matches!(target, Processor::Cuda(cuda) if cuda.has_tma());
    let early = (info.early && hopper).then(|| ("early", Attr::bool(true)));
    let prefer_l1 = (info.prefer_l1 && format == "ptx").then(|| ("prefer_l1", Attr::bool(true)));
    let table = (info.table && format == "ptx").then(|| ("table", Attr::bool(true)));
    let symbols = (!info.symbols.is_empty()).then(|| (SYMBOLS, symbols_attr(&info.symbols)));
    let kept = from.attr(root, "origin").map(|origin| ("origin", origin));
    let maps = tensor_maps(info);
    let maps = (!maps.is_empty()).then(|| ("tensor_maps", Attr::array(&maps)));
    let mut state = OpState::new(&BINARY, from.loc(root));
    let all = attrs.into_iter().chain(cluster).chain(table).chain(early).chain(prefer_l1);
    let all = all.chain(symbols).chain(kept).chain(maps);
    state.attrs = Attr::dict(all.map(|(name, value)| (Name::new(name), value)));
    Body::new(state)
}

/// The tensor maps among a kernel's parameters: which parameter, of which operand of a launch, and what it describes.
fn tensor_maps(info: &KernelInfo) -> Vec<Attr> {
    let maps = info.args.iter().enumerate().filter_map(|(i, arg)| match arg {
        KernelArg::TensorMap(map) => Some((i, map)),
        KernelArg::Memory(_) => None,
    });
    let attr = |(param, map): (usize, &crate::kernel::TensorMapInfo)| {
        let extents: Vec<i64> = map.box_shape.iter().map(|&n| i64::from(n)).collect();
        Attr::dialect(
            "tensor_map",
            &[
                ("param", Attr::i64(param as i64)),
                ("arg", Attr::i64(map.arg.unwrap_or(param) as i64)),
                ("tensor", Attr::ty(map.tensor)),
                ("box", Attr::i64s(&extents)),
                ("swizzle", Attr::i64(i64::from(map.swizzle))),
            ],
        )
    };
    maps.map(attr).collect()
}
