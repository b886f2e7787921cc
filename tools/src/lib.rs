//! What the command line tools are made of: reading input, checking expected diagnostics, tuning, writing output.

pub mod cache;
pub mod files;
pub mod opt;
pub mod plan;
pub mod run;
pub mod tune;
