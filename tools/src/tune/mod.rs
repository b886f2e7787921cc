//! `rc-tune`: measures schedules on the machine at hand, and keeps the fastest in a file.

use crate::files::print_line;
use crate::run::{Device, Failure, named_values, read, target};
use rc::{TuneOptions, Tuning, describe, tune, update};
use rc_runtime::program::Bindings;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measures the best few schedules of each kernel on the machine at hand, and keeps the fastest in a file that --tuning reads
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-tune", version)]
pub struct Options {
    /// The module, at any stage before its kernels are scheduled; - is standard input
    pub input: PathBuf,
    /// The file to keep them in, beside what it has; INPUT.tuning by default
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where to measure
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Schedules of each kernel that are measured
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub top: u16,
    /// The value of a symbol that kernels are measured with
    #[arg(long = "symbol", value_name = "NAME=VALUE")]
    pub symbols: Vec<String>,
    /// Measure kernels again that the file has for this machine
    #[arg(long)]
    pub again: bool,
}

/// Tunes as the options say. What was found until Ctrl-C is kept.
pub fn run(options: &Options) -> Result<(), Failure> {
    let module = read(&options.input)?;
    let output = output(options)?;
    let target = target(options.device, None, None)?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let handler = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    handler.map_err(|e| format!("cannot listen for Ctrl-C: {e}"))?;
    let known = if output.exists() { Tuning::read(&output)? } else { Tuning::default() };
    let known = if options.again { Tuning::default() } else { known };
    let symbols: Bindings = named_values(&options.symbols)?.into_iter().collect();
    let how = TuneOptions { top: options.top.into(), symbols };
    let tuned = tune(&module, &target, &known, &how, &|| stop.load(Ordering::Relaxed)).map_err(Failure::Diagnostics)?;
    let found: Vec<String> = tuned.found.entries().map(describe).collect();
    let faster = tuned.found.entries().filter(|e| !e.schedules.is_empty()).count();
    if !found.is_empty() {
        update(&output, tuned.found)?;
    }
    found.iter().try_for_each(print_line)?;
    let stopped = if tuned.stopped { "; stopped before the end" } else { "" };
    print_line(format_args!(
        "{} kernels measured, {faster} of them faster than with the model's choice, {} known, {} schedules skipped{stopped}: {}",
        found.len(),
        tuned.known,
        tuned.skipped.len(),
        output.display()
    ))?;
    Ok(())
}

fn output(options: &Options) -> Result<PathBuf, Failure> {
    match &options.output {
        Some(path) => Ok(path.clone()),
        None if options.input.as_os_str() == "-" => Err("standard input has no name: write -o FILE".to_string().into()),
        None => Ok(options.input.with_extension("tuning")),
    }
}
