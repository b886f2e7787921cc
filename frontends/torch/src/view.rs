//! `RC_VIEW=DIR`: a page for each graph that is compiled.

use rc::Target;
use rc_ir::Module;
use rc_kit::view::{Recorder, page};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder of pages, where the user wants them.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("RC_VIEW").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Compiles a module, and writes its page, whether that goes well or not. What goes wrong in writing is a warning of the report.
pub fn compile(module: &Module, target: &Target, folder: PathBuf) -> rc::Compiled {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut module = module.clone();
    let recorder = Recorder::default();
    let mut report = rc::compile_watched(&mut module, target, vec![Box::new(recorder.hook())]);
    let said: Vec<_> = report.diagnostics.iter().chain(&report.errors).cloned().collect();
    let name = format!("graph-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(format!("{}-{name}.html", std::process::id()));
    let written =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, page(&name, &recorder, &said, &[])));
    if let Err(why) = written {
        let what = format!("RC_VIEW: cannot write '{}': {why}", path.display());
        report.diagnostics.push(*rc_ir::Diagnostic::warning(rc_ir::Loc::UNKNOWN, what));
    }
    rc::Compiled { module, report, cached: false }
}
