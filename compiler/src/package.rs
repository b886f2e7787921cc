//! Packages: a model compiled for several processors, with its weights, in one file.

use crate::{Target, compile};
use rc_dialects::func::{arg_names, set_constant_args};
use rc_dialects::op;
use rc_ir::{Body, Diagnostic, Module};
use rc_runtime::Tensor;
use rc_runtime::package::Contents;
use std::collections::BTreeMap;
use std::path::Path;

/// What goes into a package besides the program.
#[derive(Default)]
pub struct Packing<'a> {
    /// The processors to compile for.
    pub targets: Vec<Target>,
    /// Values of arguments, by their names, which go into the package.
    pub weights: Vec<(String, Tensor)>,
    /// A `.safetensors` file with such values that stays beside the package, and the names in it.
    pub beside: Option<(&'a Path, Vec<String>)>,
    /// What is said of it besides.
    pub notes: BTreeMap<String, String>,
}

/// Whether a module is machine code already.
pub fn is_compiled(module: &Module) -> bool {
    let has = |name: &str| module.bodies.iter().any(|b| b.name(b.root()) == name);
    has(op::host::FUNC) && !has(op::kernel::FUNC)
}

impl Packing<'_> {
    /// Compiles a module for each target (one that is compiled already goes in as it is) and writes the package. Arguments that have weights are
    /// the same at every call: what follows from them alone is computed once.
    ///
    /// # Errors
    /// Those of compiling; weights that no argument has the name of; files that cannot be written.
    pub fn write(&self, module: &Module, path: &Path) -> Result<(), Vec<Diagnostic>> {
        let mut modules = Vec::new();
        if is_compiled(module) {
            modules.push(module.clone());
        } else {
            let module = self.with_constants(module);
            for target in &self.targets {
                let mut module = module.clone();
                let report = compile(&mut module, target);
                if !report.succeeded() {
                    return Err(report.errors);
                }
                modules.push(module);
            }
        }
        let contents = Contents {
            modules: modules.iter().collect(),
            weights: self.weights.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect(),
            beside: self.beside.as_ref().map(|(path, _)| *path),
            notes: self.notes.clone(),
        };
        let fail = |e: rc_runtime::Error| vec![*Diagnostic::error(module.loc, e.to_string())];
        rc_runtime::package::write(path, &contents).map_err(fail)
    }

    fn with_constants(&self, module: &Module) -> Module {
        let mut module = module.clone();
        let is_given = |name: &str| {
            let beside = self.beside.iter().flat_map(|(_, names)| names);
            !name.is_empty() && self.weights.iter().map(|(name, _)| name).chain(beside).any(|given| given == name)
        };
        let runnable =
            |body: &&mut Body| body.entry().is_some() && body.name(body.root()) == op::func::FUNC && !body.is_private();
        for body in module.bodies.iter_mut().filter(runnable) {
            let given = arg_names(body)
                .iter()
                .enumerate()
                .filter(|(_, name)| is_given(name.as_str()))
                .map(|(i, _)| i)
                .collect::<Vec<_>>();
            if !given.is_empty() {
                set_constant_args(body, given);
            }
        }
        module
    }
}
