//! Runs a module at any stage: compiled, or interpreted.

fn main() -> std::process::ExitCode {
    rc_tools::run::main()
}
