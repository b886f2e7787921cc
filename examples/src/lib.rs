//! Programs that build graphs, as a frontend does: the builder API in use on whole models.
//!
//! | model | module | program |
//! |---|---|---|
//! | GPT-2 | [`gpt2`] | `cargo run --release -p rc-examples --bin gpt2 -- --length 128 -o gpt2.ir` |

pub mod gpt2;
