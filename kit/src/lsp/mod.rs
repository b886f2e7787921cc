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

/// Serves an editor on standard input and output until it says `exit` or hangs up. Whether it said `shutdown` before.
pub fn serve() -> bool {
    let (receiver, sender) = transport::start();
    server::Server::new(sender).run(&receiver)
}
