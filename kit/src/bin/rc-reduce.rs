//! Reduces a module to the smallest on which a test still holds.

use clap::Parser;
use rc_kit::reduce::cli::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    rc_kit::register();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{error}");
            ExitCode::FAILURE
        }
    }
}
