//! Measures schedules on the machine at hand, and keeps the fastest in a file.

use clap::Parser;
use rc_tools::tune::{Options, run};
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
