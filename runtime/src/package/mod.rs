//! Packed modules: a compiled module in one file, which is mapped and read without LLVM. What is shipped and what the cache keeps.
//!
//! ```text
//! header      what it is, the format's version, sizes, a hash of the manifest
//! manifest    JSON: rc's version; each module's needs; each blob's place and hash; weights; notes
//! blobs       each module's text, object code and constants, and weights, at multiples of 64 bytes
//! ```
//!
//! A module's text is that of `rc-opt`, with PTX in it, and without the section of resources, which are blobs. Modules in one file are the
//! same program for several processors, and share blobs of the same bytes. Every byte of the file is checked against hashes before it is used; a file
//! must not be changed while it is in use. Hashes find damage; they do not say who made a file: run
//! packages as you would run programs.

mod manifest;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use manifest::VERSION;
pub use read::Package;
pub use write::{Contents, write};
