//! `rc-opt` with the dialect `poly`: everything that `rc-opt` does, it does with `poly`, too.

fn main() -> std::process::ExitCode {
    poly::register();
    rc_tools::opt::main("poly-opt")
}
