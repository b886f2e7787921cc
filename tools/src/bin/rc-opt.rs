//! Reads modules in either text form, runs passes, prints them.

use clap::{Args, Command, FromArgMatches};
use rc_tools::opt::{IoOptions, Passes, augment, emit, run, show};
use std::process::ExitCode;

fn main() -> ExitCode {
    rc::register();
    let command = Command::new("rc-opt").version(env!("CARGO_PKG_VERSION")).about("Reads modules in either text form, runs passes and prints them");
    let matches = augment(IoOptions::augment_args(command)).get_matches();
    let io = IoOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let passes = match Passes::read(&matches) {
        Ok(passes) => passes,
        Err(errors) => {
            errors.iter().for_each(show);
            return ExitCode::FAILURE;
        }
    };
    let kind = passes.emit.clone();
    run(&io, &mut |module| passes.run(module), &mut |module| if kind == "ir" { Ok(None) } else { emit(module, &kind).map(Some) })
}
