//! The language server of rc's IR, on standard input and output.

fn main() -> std::process::ExitCode {
    rc_kit::lsp::main()
}
