//! A kernel from a file of text.

use crate::case::Case;
use rc_ir::Module;
use rc_lowering::{
    backend::{Options, Processor, Session},
    kernel::{CompiledKernel, lower_kernel, lower_to_llvm},
};
use std::path::Path;

/// A file's kernel and what it computes.
pub struct KernelFile {
    module: Module,
    pub case: Case,
}

/// Reads and verifies a file. Errors are rendered with their place in the text.
pub fn read(path: &Path) -> Result<KernelFile, String> {
    rc_dialects::register();
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (module, diagnostics) = rc_parser::parse_module(&path.to_string_lossy(), text);
    let rendered = |all: &[rc_ir::Diagnostic]| all.iter().map(|d| d.render()).collect::<Vec<_>>().join("\n");
    let module = module.ok_or_else(|| rendered(&diagnostics))?;
    let errors = rc_ir::verify_module(&module);
    if !errors.is_empty() {
        return Err(errors.iter().map(|d| d.render()).collect::<Vec<_>>().join("\n"));
    }
    if module.bodies.len() != 1 {
        return Err(format!("{} top-level operations, not one kernel.func", module.bodies.len()));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(KernelFile { module, case: Case::named(stem.split('-').next().unwrap_or_default())? })
}

impl KernelFile {
    /// Whether the kernel is scheduled for CUDA.
    pub fn is_cuda(&self) -> bool {
        let body = &self.module.bodies[0];
        body.op_ref(body.root()).str("target") == Some("cuda")
    }

    pub fn compile(&self, target: &Processor) -> Result<CompiledKernel, String> {
        let session = Session::new();
        lower_kernel(&session, &self.module.bodies[0], target, &Options::default()).map_err(|error| error.render())
    }

    /// PTX or assembly.
    pub fn assembly(&self, target: &Processor) -> Result<String, String> {
        let session = Session::new();
        let lowered = lower_to_llvm(&session, &[&self.module.bodies[0]], target, &Options::default());
        lowered.map_err(|error| error.render())?.assembly().map_err(|error| error.to_string())
    }
}
