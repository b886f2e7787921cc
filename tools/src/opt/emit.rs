//! `--emit`: what is printed of a module instead of its IR.

use rc_dialects::host::BINARY;
use rc_dialects::kernel::FUNC;
use rc_ir::pass::{PassDef, PassKind};
use rc_ir::{AttrData, Blob, Body, Diagnostic, Module, OpRef, Result};
use rc_lowering::backend::{Options, Session};
use rc_lowering::kernel::lower_to_llvm;
use rc_lowering::pass::{BEFORE_CODE, module_target};

/// Runs what is missing until kernels are ready for the code generator, and does nothing itself: the last pass where LLVM IR, assembly
/// or an object is printed, which hold all kernels of the module.
pub static TO_THREADS: PassDef = PassDef {
    requires: BEFORE_CODE,
    ..PassDef::new("to-threads", |_| Ok(PassKind::module(|_: &mut Module, _: &mut _| Ok(()))))
};

/// The text or bytes of all kernels in the form `kind`: `llvm`, `asm`, `obj`, `ptx`.
///
/// # Errors
/// A module without kernels; a kernel that cannot be compiled; machine code in the module that is not of this kind.
pub fn emit(module: &Module, kind: &str) -> Result<Vec<u8>> {
    let named = |name: &'static rc_ir::OpDef| module.bodies.iter().filter(move |b| b.name(b.root()) == name);
    let kernels: Vec<&Body> = named(&FUNC).collect();
    let binaries: Vec<&Body> = named(&BINARY).collect();
    match (kernels.as_slice(), binaries.as_slice()) {
        ([], []) => Err(Diagnostic::error(module.loc, format!("the module has no kernel to print as {kind}"))),
        ([first, ..], []) => {
            let llvm =
                lower_to_llvm(&Session::new(), &kernels, &module_target(module, None, None)?, &Options::default())?;
            let fail = |e: rc_lowering::backend::Error| first.op_ref(first.root()).error(e);
            Ok(match kind {
                "llvm" => llvm.llvm_ir().into_bytes(),
                "asm" => llvm.assembly().map_err(fail)?.into_bytes(),
                "ptx" => llvm.ptx().map_err(fail)?.into_bytes(),
                _ => llvm.object().map_err(fail)?.into_bytes(),
            })
        }
        ([], _) if kind == "ptx" => joined_ptx(module, &binaries),
        ([], [binary]) if kind == "obj" => object(module, binary),
        (_, [binary, ..]) => {
            let error =
                binary.op_ref(binary.root()).unsupported(format!("as {kind}: the module holds machine code already"));
            Err(error.help("give the module as it was before lower-cpu or lower-cuda"))
        }
    }
}

/// The PTX of several kernels as one text: one head, then every kernel.
fn joined_ptx(module: &Module, binaries: &[&Body]) -> Result<Vec<u8>> {
    let mut out = String::new();
    for body in binaries {
        let root = body.op_ref(body.root());
        if root.str("format") != Some("ptx") {
            return Err(root.unsupported("as ptx: it is code for a CPU"));
        }
        let code = code_of(module, root)?;
        let text = std::str::from_utf8(code.bytes()).map_err(|_| root.error("has code that is no text"))?;
        let head = text.find(".address_size").and_then(|at| Some(at + text[at..].find('\n')? + 1)).unwrap_or(0);
        if out.is_empty() {
            out.push_str(text);
        } else if out.starts_with(&text[..head]) {
            out.push_str(&text[head..]);
        } else {
            return Err(root.unsupported("as ptx: the module's kernels are for several architectures"));
        }
    }
    Ok(out.into_bytes())
}

fn object(module: &Module, binary: &Body) -> Result<Vec<u8>> {
    let root = binary.op_ref(binary.root());
    if root.str("format") != Some("elf") {
        return Err(root.unsupported("as obj: it is code for a GPU"));
    }
    Ok(code_of(module, root)?.bytes().to_vec())
}

fn code_of<'m>(module: &'m Module, binary: OpRef) -> Result<&'m Blob> {
    let held = match binary.attr("code").map(|a| a.data()) {
        Some(AttrData::Resource { name, .. }) => module.resources.get(name),
        _ => None,
    };
    held.ok_or_else(|| binary.error("has code that the module does not hold"))
}
