//! `--emit`: what is printed of a module instead of its IR.

use rc_dialects::kernel::FUNC;
use rc_ir::{AttrData, Diagnostic, Module, Result};
use rc_lowering::backend::{Options, Session, Target};
use rc_lowering::kernel::lower_to_llvm;
use rc_lowering::pass::{cpu_target, cuda_target};

/// The text or bytes of all kernels in the form `kind`: `llvm`, `asm`, `obj`, `ptx`.
///
/// # Errors
/// A kernel that cannot be compiled; `obj` of several kernels, which are an object each.
pub fn emit(module: &Module, kind: &str) -> Result<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = binaries(module, kind)?;
    let kernels = module.bodies.iter().filter(|b| b.name(b.root()) == &FUNC);
    let session = Session::new();
    for body in kernels {
        let target = target(module)?;
        let (llvm, _) = lower_to_llvm(&session, body, &target, &Options::default())?;
        let fail = |e: rc_lowering::backend::Error| body.op_ref(body.root()).error(e);
        parts.push(match kind {
            "llvm" => llvm.llvm_ir().into_bytes(),
            "asm" => llvm.assembly().map_err(fail)?.into_bytes(),
            "ptx" => llvm.ptx().map_err(fail)?.into_bytes(),
            _ => llvm.object().map_err(fail)?.into_bytes(),
        });
    }
    match (kind, parts.len()) {
        ("obj", 1) => Ok(parts.remove(0)),
        ("obj", n) => Err(Diagnostic::error(module.loc, format!("{n} kernels are {n} objects, and one file holds one")).help("keep one kernel in the module, or print the IR, which holds all")),
        (_, 0) => Err(Diagnostic::error(module.loc, format!("the module has no kernel to print as {kind}")).help("lower it first: --lower-cuda for ptx, --lower-tiles --expand-math for llvm and asm")),
        _ => Ok(parts.join(&b"\n"[..])),
    }
}

/// Code that the module holds already.
fn binaries(module: &Module, kind: &str) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    for body in module.bodies.iter().filter(|b| b.name(b.root()) == "rc.host.binary") {
        let root = body.op_ref(body.root());
        let code = root.attr("code").map(|a| a.data());
        match (kind, code) {
            ("ptx", Some(AttrData::String(text))) => out.push(text.as_bytes().to_vec()),
            ("obj", Some(AttrData::Resource { name, .. })) => {
                let blob = module.resources.get(name).ok_or_else(|| root.error("has code that the module does not hold"))?;
                out.push(blob.bytes().to_vec());
            }
            _ => return Err(root.unsupported(format!("as {kind}")).help("stop before machine code: --lower-tiles --expand-math instead of --lower-cpu or --lower-cuda")),
        }
    }
    Ok(out)
}

fn target(module: &Module) -> Result<Target> {
    let target = module.attr("rc.target");
    let word = |key: &str| target.and_then(|t| t.get(key)).and_then(|a| a.as_str());
    match (word("machine"), word("arch")) {
        (Some("cuda"), arch) => cuda_target(arch.unwrap_or("sm_90a")),
        (_, arch) => cpu_target(arch.unwrap_or("host")),
    }
}
