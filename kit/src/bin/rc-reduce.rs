//! Reduces a module to the smallest on which a test still holds.

fn main() -> std::process::ExitCode {
    rc_kit::reduce::cli::main()
}
