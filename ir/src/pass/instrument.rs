//! Looking at the module between passes.

use super::PassInstance;
use super::difference::difference;
use crate::diag::Diagnostic;
use crate::module::Module;
use crate::print::{PrintOptions, print_module};
use std::io::Write;

/// Called before and after each pass, prerequisites included. An error stops the pipeline.
pub trait PassInstrumentation: Send {
    fn before_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        let _ = (pass, module);
        Ok(())
    }
    /// The module is verified by then.
    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        let _ = (pass, module);
        Ok(())
    }
    /// What it has to say when the pipeline is at its end, or failed. Asked once.
    fn finish(&mut self) -> Vec<Diagnostic> {
        Vec::new()
    }
    /// After a pass failed, or what it left does not verify.
    fn after_failure(&mut self, pass: &PassInstance, module: &Module) {
        let _ = (pass, module);
    }
}

/// After which passes to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrintWhen {
    /// The whole module, after every pass.
    Always,
    /// What changed, as a diff by operation, after passes that change the text.
    OnChange,
    /// The whole module, after a pass that fails.
    OnFailure,
}

/// Prints the module after passes.
pub struct PrintIr {
    pub when: PrintWhen,
    pub options: PrintOptions,
    to: Box<dyn Write + Send>,
    before: String,
}

impl PrintIr {
    /// Prints in the pretty form to `to`.
    pub fn new(when: PrintWhen, to: impl Write + Send + 'static) -> PrintIr {
        PrintIr { when, options: PrintOptions::PRETTY, to: Box::new(to), before: String::new() }
    }
    fn print(&mut self, title: &str, text: &str) {
        // A reader that hung up is no reason to stop compiling.
        let _ = write!(self.to, "// -----// {title} //----- //\n{text}");
        let _ = if text.ends_with('\n') { writeln!(self.to) } else { writeln!(self.to, "\n") };
    }
}

impl PassInstrumentation for PrintIr {
    fn before_pass(&mut self, _: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if self.when == PrintWhen::OnChange && self.before.is_empty() {
            self.before = print_module(module, &self.options);
        }
        Ok(())
    }
    fn after_pass(&mut self, pass: &PassInstance, module: &Module) -> Result<(), Vec<Diagnostic>> {
        if self.when == PrintWhen::OnFailure {
            return Ok(());
        }
        let text = print_module(module, &self.options);
        match self.when {
            PrintWhen::Always => self.print(&format!("IR Dump After {pass}"), &text),
            _ if text == self.before => {}
            _ => {
                let changed = difference(&self.before, &text);
                self.print(&format!("IR Change After {pass}"), &changed);
            }
        }
        self.before = text;
        Ok(())
    }
    fn after_failure(&mut self, pass: &PassInstance, module: &Module) {
        let text = print_module(module, &self.options);
        self.print(&format!("IR Dump After {pass} Failed"), &text);
    }
}
