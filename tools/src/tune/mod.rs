//! `rc-tune`: measures schedules on the machine at hand, and keeps the fastest in a file; or the machine itself.

use crate::files::{print_line, write};
use crate::run::{Device, Failure, named_values, read, target};
use rc::{Compared, Figure, Target, TuneOptions, Tuning, calibrate, compare, describe, figure, tune, update};
use rc_runtime::program::Bindings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measures the best few schedules of each kernel on the machine at hand, and keeps the fastest in a file that --tuning reads
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-tune", version)]
pub struct Options {
    /// The module, at any stage before its kernels are scheduled; - is standard input
    #[arg(required_unless_present = "calibrate")]
    pub input: Option<PathBuf>,
    /// The file to keep them in, beside what it has; INPUT.tuning by default
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where to measure
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// The machine at hand as a file describes it, as rc-opt --print-target writes it
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    pub target_file: Option<PathBuf>,
    /// Schedules of each kernel that are measured
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub top: u16,
    /// The value of a symbol that kernels are measured with
    #[arg(long = "symbol", value_name = "NAME=VALUE")]
    pub symbols: Vec<String>,
    /// Measure kernels again that the file has for this machine
    #[arg(long)]
    pub again: bool,
    /// Keep nothing: list the candidates of each kernel with the times that the model predicts and those that were measured
    #[arg(long, conflicts_with_all = ["output", "again"])]
    pub candidates: bool,
    /// Measure the machine that a target file describes, which is the one at hand, and write its figures there
    #[arg(long, value_name = "TARGET.toml", conflicts_with_all = ["input", "output", "again", "candidates", "symbols"])]
    pub calibrate: Option<PathBuf>,
}

/// Tunes as the options say. What was found until Ctrl-C is kept.
pub fn run(options: &Options) -> Result<(), Failure> {
    let Some(input) = options.input.as_deref() else {
        return options.calibrate.as_deref().map_or(Ok(()), |file| calibrate_file(file, options.device));
    };
    let module = read(input)?;
    let symbols: Bindings = named_values(&options.symbols)?.into_iter().collect();
    let how = TuneOptions { top: options.top.into(), symbols };
    let target = target(options.device, None, options.target_file.as_deref())?;
    if options.candidates {
        return list(&compare(&module, &target, &how).map_err(Failure::Diagnostics)?);
    }
    let output = output(options, input)?;
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

/// Tab-separated: kernel, microseconds by the model and measured, operations, candidate.
fn list(kernels: &[Vec<Compared>]) -> Result<(), Failure> {
    print_line("kernel\tmodel_us\tus\torigin\tcandidate")?;
    for (number, candidates) in kernels.iter().enumerate() {
        for c in candidates {
            print_line(format_args!("{number}\t{:.3}\t{:.3}\t{}\t{}", c.model_us, c.us, c.origin, c.what))?;
        }
    }
    Ok(())
}

fn calibrate_file(file: &Path, device: Device) -> Result<(), Failure> {
    let described = target(device, None, Some(file))?;
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read '{}': {e}", file.display()))?;
    let measured = calibrate(&described)?;
    let figures: Vec<(&str, f64)> = measured.iter().map(|f| (f.name, f.new)).collect();
    let text = Target::rewrite(&file.display().to_string(), &text, &figures)?;
    write(file, |out| out.write_all(text.as_bytes()))?;
    for Figure { name, old, new } in measured {
        print_line(format_args!("{name} = {}, was {old}", figure(new)))?;
    }
    Ok(())
}

fn output(options: &Options, input: &Path) -> Result<PathBuf, Failure> {
    match &options.output {
        Some(path) => Ok(path.clone()),
        None if input.as_os_str() == "-" => Err("standard input has no name: write -o FILE".to_string().into()),
        None => Ok(input.with_extension("tuning")),
    }
}
