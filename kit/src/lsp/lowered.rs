//! The lowered form of a symbol.

use rc_ir::pass::PassManager;
use rc_ir::{Body, Module, Name};
use rc_parser::pipeline::parse_pipeline;
use rustc_hash::FxHashSet;

/// Phases that need no LLVM, each with the passes from the start.
pub const PHASES: [(&str, &str); 6] = [
    ("core", "decompose,canonicalize,cse,dce,layout"),
    ("fusions", "decompose,canonicalize,cse,dce,layout,in-parts,fuse,cse"),
    ("loops", "decompose,canonicalize,cse,dce,layout,in-parts,fuse,cse,lower-loops"),
    ("schedules", "decompose,canonicalize,cse,dce,layout,in-parts,fuse,cse,schedule"),
    ("tiles", "decompose,canonicalize,cse,dce,layout,in-parts,fuse,cse,lower-kernel"),
    ("threads", "decompose,canonicalize,cse,dce,layout,in-parts,fuse,cse,lower-tiles,merge-launches,expand-math"),
];

/// The text of a symbol, and of what it refers to, after a phase (a name of [`PHASES`]) or a pipeline. Errors: in words.
pub fn lowered(name: &str, text: &str, symbol: &str, phase: &str) -> Result<String, String> {
    let (module, diagnostics) = rc_parser::parse_module(name, text);
    let said = |all: &[rc_ir::Diagnostic]| all.iter().map(|d| d.render()).collect::<String>();
    let module = module.ok_or_else(|| said(&diagnostics))?;
    let mut module = only(module, Name::new(symbol)).ok_or_else(|| format!("there is no symbol '@{symbol}'"))?;
    if let Some(body) = module.symbol_mut(symbol) {
        // What nothing else calls would be dropped, if it stayed private.
        body.remove_attr(body.root(), "sym_visibility");
    }
    let wrong = rc_dialects::verify(&module);
    if !wrong.is_empty() {
        return Err(said(&wrong));
    }
    let pipeline = PHASES.iter().find(|p| p.0 == phase).map_or(phase, |p| p.1);
    let passes = parse_pipeline("phase", pipeline).map_err(|errors| said(&errors))?;
    let report = PassManager::new(passes).run(&mut module);
    if report.succeeded() { Ok(module.to_string()) } else { Err(said(&report.errors)) }
}

/// The module with a symbol and all that it refers to.
fn only(mut module: Module, symbol: Name) -> Option<Module> {
    let mut wanted = FxHashSet::default();
    let mut next = vec![symbol];
    while let Some(name) = next.pop() {
        let Some(body) = module.symbol(name).filter(|_| wanted.insert(name)) else { continue };
        next.extend(referred(body).into_iter().filter(|other| module.symbol(*other).is_some()));
    }
    module.bodies.retain(|body| body.symbol().is_some_and(|name| wanted.contains(&name)));
    (!module.bodies.is_empty()).then_some(module)
}

/// Symbols, and strings that may be names of some.
fn referred(body: &Body) -> Vec<Name> {
    let entries = body.walk().into_iter().flat_map(|op| body.attrs(op).as_dict().unwrap_or_default());
    entries.filter_map(|(_, a)| a.as_symbol().or_else(|| a.as_str().map(Name::new))).collect()
}
