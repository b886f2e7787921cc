//! Reads modules in either text form, runs passes, prints them.

fn main() -> std::process::ExitCode {
    rc_tools::opt::main("rc-opt")
}
