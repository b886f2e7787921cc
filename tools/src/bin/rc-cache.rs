//! Lists and clears the cache of compiled modules, and says why a module is not in it.

use clap::Parser;
use rc_tools::cache::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    rc::register();
    run(&options)
}
