//! Prints GPT-2 as a module: weights by name as arguments, a fixed or a symbolic length.

use clap::Parser;
use rc_examples::gpt2::{Length, module};
use rc_examples::sizes::Sizes;
use rc_ir::Type;
use rc_ir::print::{PrintOptions, write_module};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints GPT-2 (transformers' GPT2LMHeadModel; GPT-2 small by default) as a module in text
#[derive(Parser)]
#[command(name = "gpt2", version)]
struct Options {
    /// Sequences
    #[arg(long, default_value_t = 1)]
    batch: i64,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 128)]
    length: i64,
    /// Any number of tokens in this range, known when the module is run: the symbol s
    #[arg(long, value_name = "MIN..MAX", value_parser = range, conflicts_with = "length")]
    symbolic: Option<(i64, i64)>,
    /// Of weights, activations and logits
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    #[command(flatten)]
    sizes: Sizes,
    /// Print MLIR's generic form
    #[arg(long)]
    generic: bool,
    /// The file to write; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Dtype {
    F32,
    Bf16,
}

fn range(text: &str) -> Result<(i64, i64), String> {
    let parsed = text.split_once("..").and_then(|(min, max)| Some((min.parse().ok()?, max.parse().ok()?)));
    parsed.ok_or_else(|| "give MIN..MAX, as in 1..1024".to_string())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let length = options.symbolic.map_or(Length::Fixed(options.length), |(min, max)| Length::Symbolic { min, max });
    let dtype = match options.dtype {
        Dtype::F32 => Type::f32(),
        Dtype::Bf16 => Type::bf16(),
    };
    let module = module(&options.sizes.into(), options.batch, length, dtype)?;
    let form = if options.generic { PrintOptions::GENERIC } else { PrintOptions::PRETTY };
    let write = |mut to: Box<dyn Write>| write_module(&module, &form, &mut to).and_then(|()| to.flush());
    match &options.output {
        None => write(Box::new(io::stdout().lock())).map_err(|e| format!("standard output: {e}")),
        Some(path) => create(path).and_then(write).map_err(|e| format!("{}: {e}", path.display())),
    }
}

fn create(path: &Path) -> io::Result<Box<dyn Write>> {
    Ok(Box::new(io::BufWriter::new(std::fs::File::create(path)?)))
}
