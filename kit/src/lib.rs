//! Tools for people who work on compilers. None links LLVM.
//!
//! | folder | tool |
//! |---|---|
//! | `lsp` | `rc-lsp`: the language server |
//! | `prove` | `rc-opt --check-rules`: both sides of rewrite rules, run |
//! | `reduce` | `rc-reduce`: the smallest module on which a test still holds |
//! | `view` | a page that shows a compilation |

pub mod lsp;
pub mod prove;
pub mod reduce;
pub mod view;

/// Makes known the dialects, and the passes that need no LLVM.
pub fn register() {
    rc_dialects::register();
    rc_passes::register();
}
