//! Trains GPT-2 on a text.

use clap::Parser;
use rc::Target;
use rc_examples::adamw::AdamW;
use rc_examples::sizes::Sizes;
use rc_examples::training::{Plan, Said, State, Text, Training, compile};
use rc_ir::print::{PrintOptions, write_module};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Trains GPT-2 (small by default) on a text whose bytes are its tokens, with AdamW: loss, gradients and update are one function
#[derive(Parser)]
#[command(name = "gpt2-train", version)]
struct Options {
    /// The text
    #[arg(long, value_name = "FILE", default_value = "LICENSE-APACHE")]
    text: PathBuf,
    /// Where to run
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// Steps, with those before the file that --resume names
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// Sequences of a step
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 128)]
    length: usize,
    /// Of the weights
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The learning rate
    #[arg(long, default_value_t = 1e-4)]
    rate: f64,
    /// Steps in which the learning rate grows to what it is
    #[arg(long, default_value_t = 10)]
    warmup: usize,
    /// The greatest norm of all gradients together
    #[arg(long, default_value_t = AdamW::default().clip)]
    clip: f64,
    /// Weights to start from, or a checkpoint to go on from
    #[arg(long, value_name = "FILE.safetensors")]
    resume: Option<PathBuf>,
    /// Checkpoints: weights, moments and the number of steps, at the end and every so many steps
    #[arg(long, value_name = "FILE.safetensors")]
    checkpoint: Option<PathBuf>,
    /// Steps between checkpoints
    #[arg(long, default_value_t = 100, requires = "checkpoint", value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    #[command(flatten)]
    sizes: Sizes,
    /// Print the step as a module, and do not train
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Device {
    Cpu,
    Cuda,
}

fn main() -> ExitCode {
    rc::register();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let plan = plan(options);
    let (module, places) = plan.module()?;
    if options.print {
        return write_module(&module, &PrintOptions::PRETTY, &mut io::stdout().lock()).map_err(|e| e.to_string());
    }
    let named = |path: &PathBuf, why: String| format!("{}: {why}", path.display());
    let bytes = std::fs::read(&options.text).map_err(|e| named(&options.text, e.to_string()))?;
    let text = Text::new(&bytes, &plan).map_err(|why| named(&options.text, why))?;
    let state = match &options.resume {
        Some(path) => State::read(path, &plan),
        None => State::new(&plan),
    };
    let state = state.map_err(|e| e.to_string())?;
    let start = Instant::now();
    let executable = compile(&module, &target(options.device)?)?;
    eprintln!("compiled in {:.2} s", start.elapsed().as_secs_f64());
    let training = Training::new(&plan, &text, &executable, places, state);
    train(training.map_err(|e| e.to_string())?, &plan, options)
}

fn plan(options: &Options) -> Plan {
    let &Options { sizes, batch, length, seed, rate, warmup, clip, .. } = options;
    Plan { config: sizes.into(), batch, length, seed, rate, warmup, rule: AdamW { clip, ..AdamW::default() } }
}

fn target(device: Device) -> Result<Target, String> {
    match device {
        Device::Cpu => Ok(Target::host()),
        Device::Cuda => Target::cuda(&rc::gpu_arch().map_err(|e| e.to_string())?),
    }
}

fn train(mut training: Training, plan: &Plan, options: &Options) -> Result<(), String> {
    let save = |training: &Training| match &options.checkpoint {
        Some(path) => training.state().and_then(|state| state.write(path, plan)).map_err(|e| e.to_string()),
        None => Ok(()),
    };
    let tokens = (plan.batch * plan.length) as f64;
    while training.count() < options.steps {
        let start = Instant::now();
        let said = training.step();
        let seconds = start.elapsed().as_secs_f64();
        let last = said.as_ref().map_or(true, |said| said.step == options.steps);
        if let Ok(said) = &said {
            progress(said, options.steps, seconds, tokens / seconds).map_err(|e| format!("standard output: {e}"))?;
        }
        if last || training.count().is_multiple_of(options.every as usize) {
            save(&training)?;
        }
        said?;
    }
    Ok(())
}

/// One line, which the next step's replaces on a terminal.
fn progress(said: &Said, steps: usize, seconds: f64, rate: f64) -> io::Result<()> {
    let &Said { step, loss, norm } = said;
    let mut out = io::stdout().lock();
    let end = if out.is_terminal() && step < steps { "\x1b[K\r" } else { "\n" };
    let milliseconds = 1e3 * seconds;
    write!(out, "step {step}/{steps}  loss {loss:.6}  norm {norm:.4}  {milliseconds:.1} ms  {rate:.0} tokens/s{end}")?;
    out.flush()
}
