//! Passes: what they are called and take, how they run, what they say.
//!
//! A pass is declared once, as a [`PassDef`] in a `static`. Symbol passes change one top-level operation at a
//! time and run on all of them in parallel; module passes see the whole module.
//!
//! ```
//! use rc_ir::pass::*;
//! # use rc_ir::{Body, Module, diag::Result};
//! static COUNT: PassDef = PassDef {
//!     summary: "Counts operations.",
//!     ..PassDef::new("doc-count", |_| Ok(PassKind::symbol(count)))
//! };
//! fn count(body: &mut Body, cx: &mut SymbolContext) -> Result {
//!     cx.count("operations", body.walk().len() as u64);
//!     Ok(())
//! }
//! register(&[&COUNT]);
//! let mut manager = PassManager::new(vec![PassInstance::new(find("doc-count").unwrap())?]);
//! let report = manager.run(&mut Module::new());
//! assert!(report.succeeded());
//! # Ok::<(), Box<rc_ir::Diagnostic>>(())
//! ```

mod context;
mod difference;
mod instrument;
mod manager;
mod options;
mod registry;
mod report;
#[cfg(test)]
mod tests;
mod timing;

pub use context::{ModuleView, PassContext, SymbolContext, run_on_symbols};
pub use instrument::{PassInstrumentation, PrintIr, PrintWhen};
pub use manager::PassManager;
pub use options::{OptionDef, OptionError, OptionKind, OptionPart, OptionValue, Options, option};
pub use registry::{find, has_dialect, has_op, register, registered};
pub use report::{Report, Statistic};
pub use timing::Timing;

use crate::body::Body;
use crate::diag::Result;
use crate::module::Module;
use crate::op_def::OpName;

/// The declaration of a pass. Every field but name and maker has a default, see [`PassDef::new`].
pub struct PassDef {
    /// As in a pipeline and on the command line: `lower-loops`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What it does, decides and leaves behind.
    pub doc: &'static str,
    pub options: &'static [OptionDef],
    /// Passes that must have nothing left to do before this one, in order. Where one is still
    /// [pending](PassDef::pending), it runs first, with its default options.
    pub requires: &'static [&'static str],
    /// Whether the module still holds what this pass is there to remove: for a lowering, ops of its dialect.
    /// Only passes that have it can be required.
    pub pending: Option<fn(&Module) -> bool>,
    /// The pass with these options. Errors: options that do not go together.
    pub make: fn(&Options) -> Result<PassKind>,
}

impl PassDef {
    /// A pass without options that requires nothing.
    pub const fn new(name: &'static str, make: fn(&Options) -> Result<PassKind>) -> PassDef {
        PassDef { name, summary: "", doc: "", options: &[], requires: &[], pending: None, make }
    }
}

/// A pass over the module. Functions and closures are passes.
pub trait ModulePass: Send + Sync {
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result;
}
/// A pass over one top-level operation, which runs on several in parallel. Functions and closures are passes.
pub trait SymbolPass: Send + Sync {
    fn run(&self, body: &mut Body, cx: &mut SymbolContext) -> Result;
}
impl<F: Fn(&mut Module, &mut PassContext) -> Result + Send + Sync> ModulePass for F {
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result {
        self(module, cx)
    }
}
impl<F: Fn(&mut Body, &mut SymbolContext) -> Result + Send + Sync> SymbolPass for F {
    fn run(&self, body: &mut Body, cx: &mut SymbolContext) -> Result {
        self(body, cx)
    }
}

/// A pass, ready to run.
pub enum PassKind {
    Module(Box<dyn ModulePass>),
    Symbol(Box<dyn SymbolPass>),
}

impl PassKind {
    pub fn module(pass: impl Fn(&mut Module, &mut PassContext) -> Result + Send + Sync + 'static) -> PassKind {
        PassKind::Module(Box::new(pass))
    }
    pub fn symbol(pass: impl Fn(&mut Body, &mut SymbolContext) -> Result + Send + Sync + 'static) -> PassKind {
        PassKind::Symbol(Box::new(pass))
    }
}

/// A pass in a pipeline: `fuse{max-ops=64}`, or `func.func(cse)` with an anchor.
pub struct PassInstance {
    pub def: &'static PassDef,
    pub options: Options,
    pub kind: PassKind,
    /// The only top-level operations on which a symbol pass runs; all, where there is none.
    pub anchor: Option<OpName>,
}

impl PassInstance {
    /// The pass with its default options.
    ///
    /// Errors: the defaults do not go together, a mistake in the declaration.
    pub fn new(def: &'static PassDef) -> Result<PassInstance> {
        Self::with_options(def, Options::defaults(def))
    }
    /// Errors: options that do not go together.
    pub fn with_options(def: &'static PassDef, options: Options) -> Result<PassInstance> {
        Ok(PassInstance { kind: (def.make)(&options)?, def, options, anchor: None })
    }
    pub fn anchored(mut self, anchor: OpName) -> PassInstance {
        self.anchor = Some(anchor);
        self
    }
}

/// As in a pipeline's text, which parses back to the same pass: options that differ from their defaults in braces.
impl std::fmt::Display for PassInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.anchor {
            Some(anchor) => write!(f, "{}({}{})", anchor.pretty(), self.def.name, self.options),
            None => write!(f, "{}{}", self.def.name, self.options),
        }
    }
}

/// The text of a pipeline.
pub fn pipeline_text(passes: &[PassInstance]) -> String {
    passes.iter().map(|p| p.to_string()).collect::<Vec<_>>().join(",")
}
