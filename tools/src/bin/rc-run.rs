//! Runs a module at any stage: compiled, or interpreted.

use clap::Parser;
use rc_tools::run::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    rc::register();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.show();
            ExitCode::FAILURE
        }
    }
}
