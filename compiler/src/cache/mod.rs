//! Compiled modules kept on disk, for every frontend: what was compiled once is mapped by every later process.
//!
//! | file | what it holds |
//! |---|---|
//! | `key` | what a compiled module depends on |
//! | `store` | a folder of packages, by their keys: read, written, bounded |
//! | `shared` | a store behind it that several machines share |
//! | `environment` | the variables that say where and how |

mod environment;
mod key;
mod shared;
mod store;

pub use environment::mistaken;
pub use key::{Key, build};
pub use shared::{Settings, Shared};
pub use store::{Cache, Entry};

use crate::Target;
use rc_ir::pass::Report;
use rc_ir::{Diagnostic, Loc, Module};

/// A compiled module, and how it was come by.
pub struct Compiled {
    /// Its resources may lie in a mapped file.
    pub module: Module,
    /// What the passes said; nothing where the module is from the cache.
    pub report: Report,
    /// Whether the module is from the cache.
    pub cached: bool,
}

/// As [`crate::compile`], where the cache that the environment says ([`Cache::open`]) does not have the module.
pub fn compile_cached(module: &Module, target: &Target) -> Compiled {
    let mut compiled = match Cache::open() {
        Some(cache) => cache.compile(module, target),
        None => compile_anew(module, target),
    };
    let said = environment::mistaken_first().into_iter().map(|why| *Diagnostic::warning(Loc::UNKNOWN, why));
    compiled.report.diagnostics.extend(said);
    compiled
}

impl Cache {
    /// As [`crate::compile`], where this cache does not have the module; what was compiled is kept in it. What goes wrong with the cache is a
    /// warning of the report.
    pub fn compile(&self, module: &Module, target: &Target) -> Compiled {
        let key = Key::new(module, target);
        let mut warning = match self.get(&key) {
            Ok(Some((module, _))) => return Compiled { module, report: Report::default(), cached: true },
            Ok(None) => None,
            Err(warning) => Some(warning),
        };
        let mut compiled = compile_anew(module, target);
        if compiled.report.succeeded() {
            warning = warning.or(self.put(&key, &compiled.module, &[]).err());
        }
        let said = warning.map(|why| *Diagnostic::warning(Loc::UNKNOWN, why));
        compiled.report.diagnostics.extend(said);
        compiled
    }
}

/// As [`compile_cached`], without a look at the cache.
pub fn compile_anew(module: &Module, target: &Target) -> Compiled {
    let mut module = module.clone();
    let report = crate::compile(&mut module, target);
    Compiled { module, report, cached: false }
}
