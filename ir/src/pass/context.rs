//! What a pass sees besides the program, and where it says what it did.

use super::Options;
use super::SymbolPass;
use crate::attr::Attr;
use crate::body::Body;
use crate::diag::{Diagnostic, Result};
use crate::intern::Name;
use crate::loc::Loc;
use crate::module::{Blob, Module};
use crate::op_def::OpName;
use indexmap::IndexMap;
use rayon::prelude::*;
use rustc_hash::FxHashSet;

/// The options of the running pass, its remarks and its statistics.
pub struct PassContext<'a> {
    pub options: &'a Options,
    /// Remarks and warnings so far.
    pub diagnostics: Vec<Diagnostic>,
    /// Counters, in the order of their first mention.
    pub statistics: IndexMap<&'static str, u64>,
}

impl<'a> PassContext<'a> {
    pub fn new(options: &'a Options) -> PassContext<'a> {
        PassContext { options, diagnostics: Vec::new(), statistics: IndexMap::new() }
    }
    /// Records a decision: what was done or not done and why, with the numbers it was decided on.
    pub fn remark(&mut self, loc: Loc, message: impl Into<String>) {
        self.diagnostics.push(*Diagnostic::remark(loc, message));
    }
    /// Records any diagnostic that does not stop the pass.
    #[expect(clippy::boxed_local, reason = "errors are boxed diagnostics")]
    pub fn report(&mut self, diagnostic: Box<Diagnostic>) {
        self.diagnostics.push(*diagnostic);
    }
    /// Adds to a counter.
    pub fn count(&mut self, name: &'static str, n: u64) {
        *self.statistics.entry(name).or_insert(0) += n;
    }
    fn merge(&mut self, diagnostics: Vec<Diagnostic>, statistics: IndexMap<&'static str, u64>) {
        self.diagnostics.extend(diagnostics);
        for (name, n) in statistics {
            self.count(name, n);
        }
    }
}

/// The parts of a module that symbol passes may read.
#[derive(Clone, Copy)]
pub struct ModuleView<'a> {
    /// The module's attributes: target, options.
    pub attrs: Attr,
    pub resources: &'a IndexMap<Name, Blob>,
    /// The symbols that the module had before the pass.
    pub symbols: &'a FxHashSet<Name>,
}

/// The context of a symbol pass on one top-level operation.
pub struct SymbolContext<'a> {
    pub pass: PassContext<'a>,
    pub module: ModuleView<'a>,
    /// The name of the operation worked on, which names of new symbols start with.
    symbol: Name,
    new_symbols: Vec<Body>,
    new_resources: Vec<(Name, Blob)>,
}

impl<'a> std::ops::Deref for SymbolContext<'a> {
    type Target = PassContext<'a>;
    fn deref(&self) -> &PassContext<'a> {
        &self.pass
    }
}
impl<'a> std::ops::DerefMut for SymbolContext<'a> {
    fn deref_mut(&mut self) -> &mut PassContext<'a> {
        &mut self.pass
    }
}

impl SymbolContext<'_> {
    /// A name for a new symbol: this one's with `suffix`, and a number where that is taken. Passes on other
    /// symbols cannot come upon the same.
    pub fn fresh_symbol(&self, suffix: &str) -> Name {
        let taken =
            |n: Name| self.module.symbols.contains(&n) || self.new_symbols.iter().any(|b| b.symbol() == Some(n));
        let first = format!("{}_{suffix}", self.symbol);
        let numbered = (0..).map(|i| Name::new(&format!("{first}_{i}")));
        let fresh = std::iter::once(Name::new(&first)).chain(numbered).find(|&n| !taken(n));
        fresh.unwrap_or(self.symbol)
    }
    /// Adds a top-level operation to the module. Those of all symbols are appended in program order.
    pub fn add_symbol(&mut self, body: Body) {
        self.new_symbols.push(body);
    }
    /// Adds a large constant to the module, and gives `dense_resource<name> : ty`.
    pub fn add_resource(&mut self, hint: &str, ty: crate::types::Type, blob: Blob) -> Attr {
        let mut holder = Module::new();
        let attr = holder.add_resource(hint, ty, blob);
        self.new_resources.extend(holder.resources);
        attr
    }
}

/// Runs a symbol pass on the top-level operations named `anchor` (on all, without one), in parallel. Remarks,
/// new symbols and errors come together in program order.
pub fn run_on_symbols(
    module: &mut Module,
    anchor: Option<OpName>,
    cx: &mut PassContext,
    pass: &dyn SymbolPass,
) -> std::result::Result<(), Vec<Diagnostic>> {
    let symbols: FxHashSet<Name> = module.bodies.iter().filter_map(|b| b.symbol()).collect();
    let view = ModuleView { attrs: module.attrs, resources: &module.resources, symbols: &symbols };
    let options = cx.options;
    let run = |body: &mut Body| -> Option<(SymbolContext, Result)> {
        if anchor.is_some_and(|a| body.name(body.root()) != a) {
            return None;
        }
        let symbol = body.symbol().unwrap_or_else(|| Name::new("anonymous"));
        let pass_context = PassContext::new(options);
        let mut cx = SymbolContext {
            pass: pass_context,
            module: view,
            symbol,
            new_symbols: Vec::new(),
            new_resources: Vec::new(),
        };
        let result = pass.run(body, &mut cx);
        Some((cx, result))
    };
    let outcomes: Vec<_> = module.bodies.par_iter_mut().map(run).collect();
    let mut errors = Vec::new();
    let mut resources = Vec::new();
    for (symbol_cx, result) in outcomes.into_iter().flatten() {
        errors.extend(result.err().map(|e| *e));
        cx.merge(symbol_cx.pass.diagnostics, symbol_cx.pass.statistics);
        module.bodies.extend(symbol_cx.new_symbols);
        resources.extend(symbol_cx.new_resources);
    }
    for (name, blob) in resources {
        module.resources.entry(name).or_insert(blob);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
