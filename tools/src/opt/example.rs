//! An example of a pass: the smallest example of an operation that it changes, before and after.

use rc_ir::pass::{PassDef, PassInstance, PassInstrumentation, PassManager};
use rc_ir::{Diagnostic, Module, op_def};
use std::sync::{Arc, Mutex};

/// Lines that an example may have, before and after.
const MOST: usize = 30;

/// The command and what comes of it. `None` for a pass that changes no example of an operation.
pub fn example_of(pass: &'static PassDef) -> Option<String> {
    let mut texts: Vec<&str> =
        op_def::registered().iter().map(|op| op.example).filter(|e| !e.trim().is_empty()).collect();
    texts.sort_by_key(|text| text.len());
    texts.dedup();
    texts.into_iter().find_map(|text| changed(pass, text)).map(|(before, after)| {
        let indent = |text: &str| text.trim().lines().map(|line| format!("  {line}\n")).collect::<String>();
        format!("{}\nrc-opt --{}\n\n{}", indent(&before), pass.name, indent(&after))
    })
}

/// An example just before the pass, and after it, where it fits a screen and changes.
fn changed(pass: &'static PassDef, text: &str) -> Option<(String, String)> {
    let (module, _) = rc_parser::parse_module("example", text);
    let mut module = module.filter(|m| rc::verify(m).is_empty())?;
    let before = Arc::new(Mutex::new(String::new()));
    let mut manager = PassManager::new(vec![PassInstance::new(pass).ok()?]);
    manager.instrument(Before { pass: pass.name, text: before.clone() });
    if !manager.run(&mut module).succeeded() {
        return None;
    }
    let before = before.lock().ok()?.clone();
    let after = module.to_string();
    let fits = |text: &str| text.lines().count() <= MOST && text.lines().all(|line| line.len() <= 200);
    (before != after && fits(&before) && fits(&after)).then_some((before, after))
}

struct Before {
    pass: &'static str,
    text: Arc<Mutex<String>>,
}

impl PassInstrumentation for Before {
    fn before_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if let (true, Ok(mut text)) = (pass.def.name == self.pass, self.text.lock()) {
            *text = module.to_string();
        }
        Ok(())
    }
}
