//! Programs that build graphs, as a frontend does: the builder API in use on whole models.
//!
//! | model | module | program |
//! |---|---|---|
//! | GPT-2 | [`gpt2`] | `cargo run --release -p rc-examples --bin gpt2 -- --length 128 -o gpt2.ir` |
//! | its training step: loss, gradients, AdamW | [`adamw`] | `cargo run --release -p rc-examples --bin gpt2-train -- --print` |
//! | its training on a text | [`training`] | `cargo run --release -p rc-examples --bin gpt2-train -- --steps 100` |

pub mod adamw;
pub mod gpt2;
pub mod sizes;
pub mod training;
