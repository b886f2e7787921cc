//! The compiler as a library: what it compiles runs, and is kept.

mod cache;
mod executable;
mod foreign;
mod forged;
mod frontend;
mod launches;
mod processes;
mod shared;
mod shared_http;
mod variants;
