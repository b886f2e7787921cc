//! The sizes of a GPT-2 on a command line.

use crate::gpt2::Config;

/// What a model differs in from GPT-2 small.
#[derive(Clone, Copy, clap::Args)]
pub struct Sizes {
    #[arg(long, default_value_t = Config::SMALL.layers)]
    layers: i64,
    /// Width of the residual stream
    #[arg(long, default_value_t = Config::SMALL.embd)]
    embd: i64,
    #[arg(long, default_value_t = Config::SMALL.heads)]
    heads: i64,
    #[arg(long, default_value_t = Config::SMALL.vocab)]
    vocab: i64,
    /// The greatest length that the position table has rows for
    #[arg(long, default_value_t = Config::SMALL.positions)]
    positions: i64,
}

impl From<Sizes> for Config {
    fn from(sizes: Sizes) -> Config {
        let Sizes { layers, embd, heads, vocab, positions } = sizes;
        Config { layers, embd, heads, vocab, positions, ..Config::SMALL }
    }
}
