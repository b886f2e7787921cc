//! The passes that a program knows, by name.

use super::PassDef;
use crate::module::Module;
use parking_lot::RwLock;
use std::collections::BTreeMap;

static PASSES: RwLock<BTreeMap<&'static str, &'static PassDef>> = RwLock::new(BTreeMap::new());

/// Registers passes. Registering the same one again does nothing.
///
/// # Panics
/// If another pass of the same name is registered already: a mistake of the program.
pub fn register(defs: &[&'static PassDef]) {
    let mut passes = PASSES.write();
    for def in defs {
        let known = *passes.entry(def.name).or_insert(def);
        assert!(std::ptr::eq(known, *def), "the pass '{}' is declared twice", def.name);
    }
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static PassDef> {
    PASSES.read().get(name).copied()
}

/// All passes, sorted by name.
pub fn registered() -> Vec<&'static PassDef> {
    PASSES.read().values().copied().collect()
}

/// Whether an op of the dialect (`tensor`, `core`, …) occurs in the module: what lowerings are pending for.
pub fn has_dialect(module: &Module, dialect: &str) -> bool {
    has_op(module, |name| name.dialect() == dialect)
}

/// Whether an op with such a name occurs in the module.
pub fn has_op(module: &Module, is: impl Fn(crate::op_def::OpName) -> bool) -> bool {
    // Names repeat: each is asked about once.
    let mut asked: Vec<Option<bool>> = Vec::new();
    let mut ask = |name: crate::op_def::OpName| {
        let id = name.id() as usize;
        if asked.len() <= id {
            asked.resize(id + 1, None);
        }
        *asked[id].get_or_insert_with(|| is(name))
    };
    module.bodies.iter().any(|body| body.walk().into_iter().any(|op| ask(body.name(op))))
}
