//! Packs buffers with known lives into one arena.

use clap::Parser;
use rc_tools::plan::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&Options::parse())
}
