//! Reads a module, verifies it, prints it.

use clap::Parser;
use rc_tools::opt::{IoOptions, run};
use std::process::ExitCode;

/// Reads modules in either text form, transforms and prints them
#[derive(Parser)]
#[command(name = "rc-opt", version)]
struct Cli {
    #[command(flatten)]
    io: IoOptions,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    rc_dialects::register();
    run(&cli.io, &mut |_| Vec::new())
}
