//! A generic dump, read by `mlir-opt` and back.

use rc_ir::print::{PrintOptions, print_module};
use rc_ir::structure::bodies_equal;
use rc_ir::{Diagnostic, Module};
use rc_parser::{ParseOptions, parse_module_with};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads a module, whatever its operations.
///
/// Errors: the first diagnostics, rendered.
pub fn read(name: &str, text: &str) -> Result<Module, String> {
    let (module, diagnostics) = parse_module_with(name, text, &ParseOptions { allow_unregistered: true });
    module.ok_or_else(|| diagnostics.iter().take(3).map(|d: &Diagnostic| d.render()).collect())
}

/// What is different in two modules, but for names of values and locations.
pub fn difference(a: &Module, b: &Module) -> Option<String> {
    if a.attrs != b.attrs {
        return Some(format!("the module's attributes are {} and {}", a.attrs, b.attrs));
    }
    if a.resources != b.resources {
        return Some("the resources differ".into());
    }
    if a.bodies.len() != b.bodies.len() {
        return Some(format!("there are {} and {} top-level operations", a.bodies.len(), b.bodies.len()));
    }
    let different = a.bodies.iter().zip(&b.bodies).find(|(x, y)| !bodies_equal(x, y, &[]));
    different.map(|(x, y)| format!("this operation:\n{x}\ncame back as:\n{y}"))
}

/// Checks that a module survives both text forms.
pub fn round_trip(module: &Module) -> Result<(), String> {
    for (form, options) in [("pretty", PrintOptions::PRETTY), ("generic", PrintOptions::GENERIC)] {
        let text = print_module(module, &options);
        let again =
            read(&format!("<{form}>"), &text).map_err(|e| format!("the {form} form does not parse: {e}\n{text}"))?;
        if let Some(what) = difference(module, &again) {
            return Err(format!("the {form} form is another module: {what}"));
        }
        let second = print_module(&again, &options);
        if second != text {
            return Err(format!("the {form} form prints differently when read again:\n{text}\n{second}"));
        }
    }
    Ok(())
}

/// What `mlir-opt` prints of a generic dump. Errors: it does not read it; what it says.
pub fn through_mlir_opt(mlir_opt: &Path, dump: &str) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("cannot run '{}': {e}", mlir_opt.display());
    let mut child = Command::new(mlir_opt)
        .args([
            "--allow-unregistered-dialect",
            "--mlir-print-op-generic",
            "--mlir-print-elementsattrs-with-hex-if-larger=-1",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let text = dump.to_string();
    let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    let _ = writer.join();
    if !output.status.success() {
        return Err(format!("mlir-opt does not read the generic dump:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|_| "mlir-opt prints what is not UTF-8".into())
}

/// Checks that `mlir-opt` reads a module's generic dump and that what it prints is the same module.
pub fn check(mlir_opt: &Path, module: &Module) -> Result<(), String> {
    let back = through_mlir_opt(mlir_opt, &print_module(module, &PrintOptions::GENERIC))?;
    let again = read("<mlir-opt>", &back).map_err(|e| format!("what mlir-opt prints does not parse: {e}"))?;
    match difference(module, &again) {
        Some(what) => Err(format!("what mlir-opt prints is another module: {what}")),
        None => Ok(()),
    }
}
