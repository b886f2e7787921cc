//! `rc-lsp`: the language server.
//!
//! | file | what it does |
//! |---|---|
//! | `transport` | messages on standard input and output; bad ones are skipped |
//! | `server` | what is asked and what is told; cancelled requests |
//! | `document` | a file's text and positions in it |
//! | `names` | where values, symbols, blocks and aliases are defined and used, of any text |
//! | `analysis` | what is wrong, and the types of values, of what can be read |
//! | `hover`, `complete`, `format`, `lowered` | answers |

mod analysis;
mod complete;
mod document;
mod format;
mod hover;
mod lowered;
mod names;
mod server;
mod transport;

pub use analysis::Analysis;
pub use document::Document;
pub use lowered::lowered;
pub use names::Names;

use std::process::ExitCode;

/// The language server of rc's IR: an editor starts it and speaks with it on standard input and output
#[derive(clap::Parser)]
#[command(name = "rc-lsp", version)]
struct Options {
    /// Speak on standard input and output: the only way there is, which editors like to ask for
    #[arg(long)]
    stdio: bool,
}

/// `rc-lsp`: with rc's dialects and passes, and those that were registered before.
pub fn main() -> ExitCode {
    let Options { stdio: _ } = <Options as clap::Parser>::parse();
    crate::register();
    // Standard output is the editor's; what panics is answered with an error.
    std::panic::set_hook(Box::new(|panic| eprintln!("rc-lsp: {panic}")));
    if serve() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Serves an editor on standard input and output until it says `exit` or hangs up. Whether it said `shutdown` before.
pub fn serve() -> bool {
    let (receiver, sender) = transport::start();
    server::Server::new(sender).run(&receiver)
}
