//! `rc-opt` from its command line to its exit code.

use super::{IoOptions, Passes, augment, check_rules, emit, info, package, print_target, run, show, transform};
use crate::files;
use clap::{Args, Command, FromArgMatches};
use rc::{version, versions};
use rc_ir::{Diagnostic, Severity};
use std::process::ExitCode;

/// The program `name`: rc's dialects and passes, and those that were registered before.
pub fn main(name: &'static str) -> ExitCode {
    rc::register();
    let command = augment(IoOptions::augment_args(Command::new(name))).version(version()).long_version(versions());
    let command = info::augment(command.about("Reads modules in either text form, runs passes and prints them"));
    let matches = command.clone().get_matches();
    if let Some(text) = info::asked(&matches, &command) {
        return shown(text.and_then(|text| files::print_line(text.trim_end_matches('\n'))));
    }
    if matches.get_flag("print-target") {
        return match print_target(&matches) {
            Ok(text) => shown(files::print_line(text.trim_end_matches('\n'))),
            Err(error) => fail(&[*error]),
        };
    }
    if let Some(path) = matches.get_one::<String>("check-rules") {
        return match check_rules(path) {
            Ok(text) => shown(files::print_line(text.trim_end_matches('\n'))),
            Err((text, errors)) => {
                let printed = if text.is_empty() { Ok(()) } else { files::print_line(text.trim_end_matches('\n')) };
                shown(printed);
                fail(&errors)
            }
        };
    }
    let io = IoOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let passes = match Passes::read(&matches) {
        Ok(passes) => passes,
        Err(errors) => return fail(&errors),
    };
    let kind = passes.emit.clone();
    if kind == "package" {
        let path = io.output.clone();
        return transform(&io, &mut |module| {
            let mut diagnostics = passes.run(module);
            if diagnostics.iter().all(|d| d.severity != Severity::Error) {
                diagnostics.extend(package(module, &matches, &path).err().unwrap_or_default());
            }
            diagnostics
        });
    }
    run(&io, &mut |module| passes.run(module), &mut |module| {
        if kind == "ir" { Ok(None) } else { emit(module, &kind).map(Some) }
    })
}

/// What is printed instead of a module.
fn shown(printed: Result<(), String>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            files::note_line(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn fail(errors: &[Diagnostic]) -> ExitCode {
    errors.iter().for_each(show);
    ExitCode::FAILURE
}
