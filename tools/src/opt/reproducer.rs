//! `--reproducer`: what makes a pass fail, or change a result, reduced.

use crate::files;
use rc_ir::pass::{PassInstance, PassInstrumentation};
use rc_ir::{Diagnostic, Module};
use rc_kit::reduce::{ChangesResult, FailsWith, Search, Test, error_of, op_count, reduced, shape_of_error};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Runs of the test at most: a reproducer should not keep anybody waiting.
const RUNS: usize = 1000;

/// The pass that runs, and the module before it.
#[derive(Clone, Default)]
pub struct LastPass(Arc<Mutex<Option<(String, Module)>>>);

impl PassInstrumentation for LastPass {
    fn before_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if let Ok(mut last) = self.0.lock() {
            *last = Some((pass.to_string(), module.clone()));
        }
        Ok(())
    }
}

impl LastPass {
    /// Writes what makes the last pass fail. What was written, in words. Errors: it does not fail by itself; the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<String, String> {
        let last = self.0.lock().ok().and_then(|mut last| last.take());
        let (pass, module) = last.ok_or("no pass ran: there is nothing to reproduce")?;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let found = reduce(&pass, module);
        std::panic::set_hook(hook);
        let (small, head, before) = found?;
        files::write(path, |out| write!(out, "{head}{small}"))?;
        Ok(format!("{} of {before} operations reproduce it: {}", op_count(&small), path.display()))
    }
}

/// The reduced module, its head, and the operations that there were.
fn reduce(pass: &str, module: Module) -> Result<(Module, String, usize), String> {
    let before = op_count(&module);
    let changes = ChangesResult { pipeline: pass.to_string(), seed: 0 };
    let (head, test): (String, Box<dyn Test>) = match error_of(&module, pass) {
        Some(error) => {
            let shape = shape_of_error(&error.message);
            let head = format!("// {}\n// rc-opt --pass-pipeline='{pass}'\n", error.message.replace('\n', " "));
            (head, Box::new(FailsWith { pipeline: pass.to_string(), shape }))
        }
        None if changes.holds(&module) => {
            (format!("// rc-opt --pass-pipeline='{pass}' --check-each-pass\n"), Box::new(changes))
        }
        None => return Err(format!("'{pass}' does not fail on the module before it, run by itself")),
    };
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut search = Search::new(&*test, jobs, RUNS);
    Ok((reduced(module, &mut search), head, before))
}
