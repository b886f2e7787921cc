//! `rc-opt`: reads modules, transforms them, prints them. A program with more dialects and passes registers them and calls [`main`].

mod docs;
mod emit;
mod example;
mod expected;
pub mod info;
mod main;
mod package;
mod passes;
mod phases;
mod remarks;
mod reproducer;
mod rules;
mod split;
mod trace;

pub use docs::docs;
pub use emit::emit;
pub use main::main;
pub use package::package;
pub use passes::{Passes, augment, print_target};
pub use rules::check_rules;

use crate::files;
use expected::Expectations;
use rc_ir::loc::Source;
use rc_ir::print::{Form, PrintOptions, write_module};
use rc_ir::{Diagnostic, Module, Severity};
use rc_parser::ParseOptions;
use rc_runtime::package::Package;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options that do not concern passes. They follow `mlir-opt`'s.
#[derive(clap::Args, Clone, Debug)]
pub struct IoOptions {
    /// The file to read; - is standard input
    #[arg(default_value = "-")]
    pub input: PathBuf,
    /// The file to write; - is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
    /// Print MLIR's generic form
    #[arg(long, alias = "mlir-print-op-generic")]
    pub print_op_generic: bool,
    /// Print locations
    #[arg(long, alias = "mlir-print-debuginfo")]
    pub print_debuginfo: bool,
    /// Accept operations of dialects that are not registered
    #[arg(long)]
    pub allow_unregistered_dialect: bool,
    /// Process pieces between lines `// -----` one by one
    #[arg(long)]
    pub split_input_file: bool,
    /// Check diagnostics against `expected-error@+1 {{…}}`
    #[arg(long)]
    pub verify_diagnostics: bool,
}

/// What happens to a module between reading and printing. It returns remarks, warnings and errors; after an
/// error the module is not printed.
pub type Transform<'a> = dyn FnMut(&mut Module) -> Vec<Diagnostic> + 'a;

/// A module in another form than IR; `None` where the IR is wanted.
pub type OtherForm<'a> = dyn FnMut(&Module) -> rc_ir::Result<Option<Vec<u8>>> + 'a;

/// Reads, verifies, transforms and prints as the options say. Diagnostics go to standard error.
/// `other` prints something else than the IR, where it gives bytes.
pub fn run(options: &IoOptions, transform: &mut Transform, other: &mut OtherForm) -> ExitCode {
    exit(read(options, transform).and_then(|read| read.map_or(Ok(false), |modules| write(options, &modules, other))))
}

/// Reads, verifies and transforms as the options say, and prints diagnostics alone.
pub fn transform(options: &IoOptions, transform: &mut Transform) -> ExitCode {
    exit(read(options, transform).map(|modules| modules.is_some()))
}

fn exit(done: Result<bool, String>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            files::note_line(format_args!("error: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// The modules; `None` where diagnostics say what is wrong. `Err`: the file cannot be read.
fn read(options: &IoOptions, transform: &mut Transform) -> Result<Option<Vec<Module>>, String> {
    if Package::is_at(&options.input) {
        let file = options.input.display();
        return Err(format!(
            "{file} is a package, compiled: `rc-run {file}` runs it, `rc-run --signature {file}` says what it takes"
        ));
    }
    let bytes = files::read(&options.input)?;
    let name = if options.input.as_os_str() == "-" { "<stdin>".into() } else { options.input.display().to_string() };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            show(&rc_parser::not_utf8(&name, error));
            return Ok(None);
        }
    };
    let source = Source::register(&name, text);
    let pieces = if options.split_input_file {
        split::pieces(&source.text)
    } else {
        std::iter::once(0..source.text.len()).collect()
    };
    let mut modules = Vec::new();
    let mut good = true;
    for piece in pieces {
        let (module, diagnostics) = one(&source, piece.clone(), options, transform);
        if options.verify_diagnostics {
            let expectations = Expectations::read(&source, piece);
            let wrong = match expectations {
                Ok(expectations) => expectations.check(&diagnostics),
                Err(error) => vec![*error],
            };
            wrong.iter().for_each(show);
            good &= wrong.is_empty();
        } else {
            diagnostics.iter().for_each(show);
            good &= module.is_some();
        }
        modules.extend(module);
    }
    Ok(good.then_some(modules))
}

/// Prints modules; whether all could be. `Err`: the file cannot be written.
fn write(options: &IoOptions, modules: &[Module], other: &mut OtherForm) -> Result<bool, String> {
    let form = if options.print_op_generic { Form::Generic } else { Form::Pretty };
    let print = PrintOptions { form, debug_info: options.print_debuginfo, ..PrintOptions::PRETTY };
    let mut texts = Vec::new();
    for module in modules {
        match other(module) {
            Ok(bytes) => texts.push(bytes),
            Err(error) => {
                show(&error);
                return Ok(false);
            }
        }
    }
    files::write(&options.output, |out| {
        for (i, module) in modules.iter().enumerate() {
            if i > 0 {
                out.write_all(b"\n// -----\n\n")?;
            }
            match &texts[i] {
                Some(bytes) => out.write_all(bytes)?,
                None => write_module(module, &print, out)?,
            }
        }
        Ok(())
    })?;
    Ok(true)
}

/// One module, transformed. `None` after an error.
fn one(
    source: &Source,
    piece: std::ops::Range<usize>,
    options: &IoOptions,
    transform: &mut Transform,
) -> (Option<Module>, Vec<Diagnostic>) {
    let parse = ParseOptions { allow_unregistered: options.allow_unregistered_dialect };
    let (module, mut diagnostics) = rc_parser::parse_source(source, piece, &parse);
    let Some(mut module) = module else { return (None, diagnostics) };
    diagnostics.extend(rc::verify(&module));
    if !has_error(&diagnostics) {
        diagnostics.extend(transform(&mut module));
    }
    let module = (!has_error(&diagnostics)).then_some(module);
    (module, diagnostics)
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|d| d.severity == Severity::Error)
}

/// Shows a diagnostic on standard error. Nothing can be done about an error in doing so.
pub fn show(diagnostic: &Diagnostic) {
    let _ = std::io::stderr().lock().write_all(diagnostic.render().as_bytes());
}
