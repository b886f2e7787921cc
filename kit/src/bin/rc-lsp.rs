//! The language server of rc's IR, on standard input and output.

use clap::Parser;
use std::process::ExitCode;

/// The language server of rc's IR: an editor starts it and speaks with it on standard input and output
#[derive(Parser)]
#[command(name = "rc-lsp", version)]
struct Options {
    /// Speak on standard input and output: the only way there is, which editors like to ask for
    #[arg(long)]
    stdio: bool,
}

fn main() -> ExitCode {
    let Options { stdio: _ } = Options::parse();
    rc_kit::register();
    // Standard output is the editor's; what panics is answered with an error.
    std::panic::set_hook(Box::new(|panic| eprintln!("rc-lsp: {panic}")));
    if rc_kit::lsp::serve() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
