//! Runs a package on random arguments and prints its results: `embed model.rcp [value of every symbol]`.

use rc_runtime::program::Bindings;
use rc_runtime::{Model, Tensor};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let Some(path) = args.get(1) else {
        eprintln!("usage: {} model.rcp [value of every symbol]", args[0]);
        return ExitCode::FAILURE;
    };
    match run(path, args.get(2).and_then(|n| n.parse().ok()).unwrap_or(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str, symbol: i64) -> rc_runtime::Result<()> {
    let model = Model::load(path)?;
    let symbols: Bindings = model.signature().symbols.iter().map(|s| (s.name, symbol)).collect();
    let mut args = Vec::new();
    for (i, input) in model.signature().inputs.iter().enumerate() {
        println!("{input}");
        args.push(Tensor::random_input(input.dtype, &input.sizes(&symbols)?, 0, i as u32)?);
    }
    for result in model.run(&args)? {
        println!("{result}");
    }
    Ok(())
}
