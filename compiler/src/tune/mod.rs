//! Tuning: the best few schedules of each kernel are measured on the machine at hand.
//!
//! A kernel's candidates are compiled in parallel and timed one after the other, the same code for CPU and GPU. The fastest is measured
//! again beside the model's choice, both with cold caches, and is taken only if it wins by more than [`MARGIN`].

mod file;
mod kernels;
mod measure;
mod progress;

pub use file::update;
pub use measure::Compared;

use crate::Target;
use kernels::Kernel;
use measure::Bench;
use progress::Progress;
use rc_ir::{Diagnostic, Module};
use rc_passes::schedule::{Entry, Tuning};
use rc_runtime::program::Bindings;

/// The part of the time by which a schedule must be faster than the model's choice.
pub const MARGIN: f64 = 0.02;

/// How many times as long as the model's choice a candidate may take by the model to be measured: what is predicted to be slower than that is not the
/// fastest where models rank as well as `bench/candidates.py` asks of them.
pub const DOUBT: f64 = 1.5;

/// How to tune.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Candidates of a group of nests that are measured, the model's choice among them.
    pub top: usize,
    /// Sizes to measure with; a symbol that is not here takes one of its range near 512.
    pub symbols: Bindings,
}

impl Default for TuneOptions {
    fn default() -> TuneOptions {
        TuneOptions { top: 8, symbols: Bindings::default() }
    }
}

/// What was found.
#[derive(Default)]
pub struct Tuned {
    /// An entry for each kernel that was measured.
    pub found: Tuning,
    /// Kernels that were known already.
    pub known: usize,
    /// Candidates that could not be run, and why.
    pub skipped: Vec<String>,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

/// Measures the kernels of a module that `known` does not have for this machine; those that take longest first. `stop` is asked between measurements:
/// what was found until then is kept.
///
/// # Errors
/// What is wrong with the module; a machine that is not here.
pub fn tune(
    module: &Module,
    target: &Target,
    known: &Tuning,
    options: &TuneOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Tuned, Vec<Diagnostic>> {
    let (kernels, old): (Vec<Kernel>, Vec<Kernel>) = kernels::of(module, target)?
        .into_iter()
        .partition(|k| known.get(&k.structure, &target.fingerprint()).is_none());
    let mut out = Tuned { known: old.len(), ..Tuned::default() };
    if kernels.is_empty() {
        return Ok(out);
    }
    let bench = Bench::new(target, options).map_err(|why| vec![*Diagnostic::error(module.loc, why)])?;
    let progress = Progress::new(kernels.iter().map(|k| k.trials(options.top, DOUBT) as u64).sum());
    let mut measure = |kernel: &Kernel, prepared| {
        progress.starts(kernel);
        match bench.best(kernel, prepared, &progress, stop) {
            Ok(Some(entry)) => out.found.insert(entry),
            Ok(None) => {}
            Err(why) => progress.skips(format!("{}: {why}", kernel.origin)),
        }
        out.stopped |= stop();
    };
    let left = || kernels.iter().take_while(|_| !stop());
    match target.is_cpu() {
        // What compiles beside a measurement takes the cores from it.
        true => left().for_each(|kernel| measure(kernel, bench.prepare(kernel, DOUBT, stop))),
        // The next kernel is compiled and assembled while one is measured on the GPU.
        false => std::thread::scope(|scope| {
            let (ready, prepared) = std::sync::mpsc::sync_channel(1);
            let bench = &bench;
            // Nobody takes any more where measuring has ended.
            scope.spawn(move || left().all(|kernel| ready.send((kernel, bench.prepare(kernel, DOUBT, stop))).is_ok()));
            prepared.into_iter().for_each(|(kernel, prepared)| measure(kernel, prepared));
        }),
    }
    out.stopped |= stop();
    out.skipped = progress.finish();
    Ok(out)
}

/// Measures the best candidates of each kernel of a module, the model's choice first, beside what the model says of them.
///
/// # Errors
/// As [`tune`].
pub fn compare(module: &Module, target: &Target, options: &TuneOptions) -> Result<Vec<Vec<Compared>>, Vec<Diagnostic>> {
    let kernels = kernels::of(module, target)?;
    let bench = Bench::new(target, options).map_err(|why| vec![*Diagnostic::error(module.loc, why)])?;
    let progress = Progress::new(kernels.iter().map(|k| k.trials(options.top, f64::INFINITY) as u64).sum());
    let mut out = Vec::new();
    for kernel in &kernels {
        progress.starts(kernel);
        match bench.compare(kernel, &progress) {
            Ok(candidates) => out.push(candidates),
            Err(why) => progress.skips(format!("{}: {why}", kernel.origin)),
        }
    }
    progress.finish();
    Ok(out)
}

/// An entry in words: `dot+add: 12.3 us, 15.1 us with the model's choice`.
pub fn describe(entry: &Entry) -> String {
    let us = |ns: i64| format!("{:.1} us", ns as f64 * 1e-3);
    match entry.schedules.is_empty() {
        true => format!("{}: {}, the model's choice", entry.origin, us(entry.model_ns)),
        false => format!("{}: {}, {} with the model's choice", entry.origin, us(entry.ns), us(entry.model_ns)),
    }
}
