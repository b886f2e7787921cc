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

use crate::{Target, pipeline};
use rc_ir::pass::Report;
use rc_ir::{Diagnostic, Loc, Module};

/// A compiled module, and how it was come by.
#[derive(Clone)]
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
    Begun::new(module, target).finish()
}

impl Cache {
    /// As [`crate::compile`], where this cache does not have the module; what was compiled is kept in it. What goes wrong with the cache is a
    /// warning of the report.
    pub fn compile(&self, module: &Module, target: &Target) -> Compiled {
        Begun::in_cache(Some(self.clone()), module, target).finish()
    }
}

/// A module that is compiled in two steps: the first says what rc cannot do, and the second, which takes longer, makes the machine code.
#[derive(Clone)]
pub struct Begun {
    compiled: Compiled,
    target: Target,
    /// Where the compiled module is to be kept.
    place: Option<(Cache, Key)>,
    /// What went wrong with the cache first.
    warning: Option<String>,
}

impl Begun {
    /// The first step, unless the cache that the environment says ([`Cache::open`]) has the compiled module.
    pub fn new(module: &Module, target: &Target) -> Begun {
        let mut begun = Begun::in_cache(Cache::open(), module, target);
        let said = environment::mistaken_first().into_iter().map(|why| *Diagnostic::warning(Loc::UNKNOWN, why));
        begun.compiled.report.diagnostics.extend(said);
        begun
    }

    /// The first step, unless `cache` has the compiled module; the second keeps it there.
    pub fn in_cache(cache: Option<Cache>, module: &Module, target: &Target) -> Begun {
        let place = cache.map(|cache| (cache, Key::new(module, target)));
        let begun = |compiled, place, warning| Begun { compiled, target: target.clone(), place, warning };
        let warning = match place.as_ref().map(|(cache, key)| cache.get(key)) {
            Some(Ok(Some((module, _)))) => {
                return begun(Compiled { module, report: Report::default(), cached: true }, None, None);
            }
            Some(Err(warning)) => Some(warning),
            _ => None,
        };
        let mut module = module.clone();
        let report = pipeline::kernels(&mut module, target);
        begun(Compiled { module, report, cached: false }, place, warning)
    }

    /// What the first step said: errors are final.
    pub fn report(&self) -> &Report {
        &self.compiled.report
    }

    /// The second step, where there was no error.
    pub fn finish(self) -> Compiled {
        let Begun { mut compiled, target, place, mut warning } = self;
        if !compiled.cached && compiled.report.succeeded() {
            compiled.report.append(pipeline::code(&mut compiled.module, &target));
        }
        if let (Some((cache, key)), true) = (place, compiled.report.succeeded()) {
            warning = warning.or(cache.put(&key, &compiled.module, &[]).err());
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
