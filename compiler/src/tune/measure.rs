//! Running candidates and timing them.

use super::kernels::Kernel;
use super::progress::Progress;
use super::{MARGIN, TuneOptions};
use crate::{Executable, Target, random_input};
use rayon::prelude::*;
use rc_dialects::func::{SymbolDecl, symbols};
use rc_ir::{Attr, Module};
use rc_passes::schedule::{Entry, nests};
use rc_runtime::program::{Bindings, TensorSpec};
use rc_runtime::tensor::{Distribution, Tolerance, compare};
use rc_runtime::{DType, Tensor};

type Result<T> = std::result::Result<T, String>;

/// Milliseconds that a candidate's runs take together, about, and how many there are.
const SPAN_MS: f64 = 20.0;
const RUNS: [usize; 2] = [5, 40];

/// Rounds in which candidates that are compared take turns.
const TURNS: usize = 10;

/// Rounds of runs with cold caches, of each of two schedules, and runs of a round.
const ROUNDS: usize = 3;
const COLD_RUNS: usize = 3;

/// Bytes that emptying caches goes over, at least and at most.
const FLUSH: [i64; 2] = [8 << 20, 64 << 20];

/// What measures on a machine.
pub struct Bench<'a> {
    target: &'a Target,
    options: &'a TuneOptions,
    /// Runs over more memory than the caches hold.
    flush: (Executable, Tensor),
}

/// A candidate's time.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The operations that the kernel came from.
    pub origin: String,
    /// What the candidate chooses, in words.
    pub what: String,
    /// Microseconds by the model, and the fewest that were measured.
    pub model_us: f64,
    pub us: f64,
}

/// A candidate that runs.
struct Trial {
    choice: Vec<usize>,
    executable: Executable,
    ms: f64,
}

/// The candidates of a kernel, ready to run: the model's choice, and those that differ from it in one group.
pub struct Prepared {
    first: Result<Trial>,
    others: Vec<Result<Trial>>,
}

/// What a kernel is run on, and what comes out with the model's choice.
struct Run<'a> {
    kernel: &'a Kernel,
    inputs: Vec<Tensor>,
    reference: Vec<Tensor>,
}

impl<'a> Run<'a> {
    fn new(kernel: &'a Kernel, inputs: Vec<Tensor>, first: &Trial) -> Result<Run<'a>> {
        let reference = first.executable.run(&inputs).map_err(|e| e.to_string())?;
        Ok(Run { kernel, inputs, reference })
    }
    fn check(&self, trial: &Trial) -> Result<()> {
        let results = trial.executable.run(&self.inputs).map_err(|e| e.to_string())?;
        agree(&results, &self.reference)
    }
}

impl<'a> Bench<'a> {
    /// # Errors
    /// If the machine is not here.
    pub fn new(target: &'a Target, options: &'a TuneOptions) -> Result<Bench<'a>> {
        let cache = if target.is_cpu() { target.last_bytes } else { target.cache_bytes };
        let elements = cache.clamp(FLUSH[0], FLUSH[1]) / 4;
        let text = format!(
            "func.func @main(%x: tensor<{elements}xf32>) -> tensor<{elements}xf32> {{\n  %y = core.neg %x : tensor<{elements}xf32>\n  func.return %y\n}}\n"
        );
        let module =
            rc_parser::parse_module("flush", text).0.ok_or("the function that empties caches does not parse")?;
        let mut module: Module = module;
        if let Some(error) = crate::compile(&mut module, target).errors.first() {
            return Err(error.message.clone());
        }
        let executable = Executable::load(&module, None, target.machine).map_err(|d| d.message)?;
        let x = Tensor::zeros(DType::F32, &[elements as usize]).map_err(|e| e.to_string())?;
        Ok(Bench { target, options, flush: (executable, x) })
    }

    /// Compiles and loads the candidates of a kernel, in parallel, but those that take by the model more than `doubt` times as long as its choice.
    pub fn prepare(&self, kernel: &Kernel, doubt: f64, stop: &(dyn Fn() -> bool + Sync)) -> Prepared {
        let model = vec![0; kernel.groups.len()];
        let mut choices = vec![model.clone()];
        for group in 0..kernel.groups.len() {
            choices.extend(kernel.others(group, self.options.top, doubt).into_iter().map(|i| {
                let mut choice = model.clone();
                choice[group] = i;
                choice
            }));
        }
        let load = |choice| if stop() { Err("stopped".into()) } else { self.load(kernel, choice) };
        let mut trials: Vec<Result<Trial>> = choices.into_par_iter().map(load).collect();
        let others = trials.split_off(1);
        Prepared { first: trials.remove(0), others }
    }

    /// What was measured of a kernel; `None` where that was stopped.
    ///
    /// # Errors
    /// If the model's choice does not run.
    pub fn best(
        &self,
        kernel: &Kernel,
        prepared: Prepared,
        progress: &Progress,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Entry>> {
        if stop() {
            return Ok(None);
        }
        let mut first = prepared.first?;
        let run = Run::new(kernel, self.inputs(kernel)?, &first)?;
        self.time(&mut first, &run.inputs)?;
        progress.did(1);
        let model = first.choice.clone();
        let Some(fastest) = self.fastest(prepared.others, &first, &run, progress, stop) else { return Ok(None) };
        let chosen: Vec<usize> =
            fastest.iter().enumerate().map(|(g, trial)| trial.as_ref().map_or(0, |trial| trial.choice[g])).collect();
        let entry = |ns: [f64; 2], schedules: Vec<Attr>| Entry {
            kernel: kernel.structure.clone(),
            machine: self.target.fingerprint(),
            origin: kernel.origin.clone(),
            ns: (ns[0] * 1e6) as i64,
            model_ns: (ns[1] * 1e6) as i64,
            schedules,
        };
        if chosen == model {
            return Ok(Some(entry([first.ms, first.ms], Vec::new())));
        }
        let winner = match fastest.into_iter().flatten().find(|trial| trial.choice == chosen) {
            Some(trial) => trial,
            None => {
                // The fastest of each group were not measured together.
                let trial = self.load(kernel, chosen.clone())?;
                run.check(&trial)?;
                trial
            }
        };
        let [won, lost] = self.cold([&winner.executable, &first.executable], &run.inputs)?;
        if won > (1.0 - MARGIN) * lost {
            return Ok(Some(entry([lost, lost], Vec::new())));
        }
        let module = kernel.scheduled(&chosen);
        let body = &module.bodies[1];
        let schedules = nests(body).into_iter().filter_map(|op| body.attr(op, "schedule")).collect();
        Ok(Some(entry([won, lost], schedules)))
    }

    /// Of each group the fastest of the trials, where it is faster than the model's choice; `None` where that was stopped.
    fn fastest(
        &self,
        trials: Vec<Result<Trial>>,
        first: &Trial,
        run: &Run,
        progress: &Progress,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Option<Vec<Option<Trial>>> {
        let mut fastest: Vec<Option<Trial>> = first.choice.iter().map(|_| None).collect();
        for trial in trials {
            if stop() {
                return None;
            }
            let measured = trial.and_then(|mut trial| {
                let what = |why| format!("{}: {why}", run.kernel.what(&trial.choice));
                run.check(&trial).map_err(what)?;
                self.time(&mut trial, &run.inputs)?;
                Ok(trial)
            });
            progress.did(1);
            match measured {
                Ok(trial) => {
                    let group = trial.choice.iter().position(|&i| i > 0).unwrap_or(0);
                    if trial.ms < fastest[group].as_ref().map_or(first.ms, |best| best.ms) {
                        fastest[group] = Some(trial);
                    }
                }
                Err(why) => progress.skips(format!("{}, {why}", run.kernel.origin)),
            }
        }
        Some(fastest)
    }

    /// What each of the best candidates of a kernel takes, and what the model says that it does. Of several groups only the candidate's own is not
    /// the model's choice. They are run in turns: a processor's frequency, and who else uses it, change from one moment to the next.
    ///
    /// # Errors
    /// If the model's choice does not run.
    pub fn compare(&self, kernel: &Kernel, progress: &Progress) -> Result<Vec<Compared>> {
        let inputs = self.inputs(kernel)?;
        let prepared = self.prepare(kernel, f64::INFINITY, &|| false);
        let mut trials: Vec<Trial> = Vec::new();
        let skip = |why: String| progress.skips(format!("{}: {why}", kernel.origin));
        for trial in std::iter::once(prepared.first).chain(prepared.others) {
            trial.map_or_else(&skip, |trial| trials.push(trial));
        }
        for _ in 0..TURNS {
            trials.retain_mut(|trial| shorten(trial, &inputs).map_err(&skip).is_ok());
        }
        progress.did(kernel.trials(self.options.top, f64::INFINITY));
        let compared = |trial: Trial| {
            let chosen = kernel.groups.iter().zip(&trial.choice).map(|((_, ranked), &i)| &ranked[i]);
            Compared {
                origin: kernel.origin.clone(),
                what: kernel.what(&trial.choice),
                model_us: chosen.filter_map(|c| Some(c.cost?.us)).sum(),
                us: 1e3 * trial.ms,
            }
        };
        Ok(trials.into_iter().map(compared).collect())
    }

    fn load(&self, kernel: &Kernel, choice: Vec<usize>) -> Result<Trial> {
        let loaded = kernel
            .compiled(&choice, self.target)
            .and_then(|module| Executable::load(&module, Some("run"), self.target.machine).map_err(|d| d.message));
        let executable = loaded.map_err(|why| format!("{}: {why}", kernel.what(&choice)))?;
        Ok(Trial { choice, executable, ms: f64::INFINITY })
    }

    /// The median of runs one after the other.
    fn time(&self, trial: &mut Trial, inputs: &[Tensor]) -> Result<()> {
        let mut times = times_of(trial, inputs, SPAN_MS, RUNS)?;
        times.sort_by(f64::total_cmp);
        trial.ms = times[times.len() / 2];
        debug_assert!(!trial.choice.is_empty());
        Ok(())
    }

    /// The medians of two schedules' runs, in turns, each after the caches were emptied.
    fn cold(&self, both: [&Executable; 2], inputs: &[Tensor]) -> Result<[f64; 2]> {
        let (flush, x) = &self.flush;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (executable, times) in both.iter().zip(&mut times) {
                let empty = &mut || flush.run(std::slice::from_ref(x)).map(drop);
                times.extend(executable.times_ms(inputs, COLD_RUNS, 1, empty).map_err(|e| e.to_string())?);
            }
        }
        Ok(times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }))
    }

    /// Random arguments; of integers, which may be places in others, such as every other has.
    fn inputs(&self, kernel: &Kernel) -> Result<Vec<Tensor>> {
        let body = kernel.function();
        let mut bindings: Bindings = self.options.symbols.clone();
        for symbol in symbols(body) {
            let value = bindings.entry(symbol.name).or_insert_with(|| usual(&symbol));
            if !symbol.allows(*value) {
                *value = usual(&symbol);
            }
        }
        let entry = body.entry().ok_or("the kernel has no body")?;
        let specs: Vec<TensorSpec> = body
            .block_args(entry)
            .map(|arg| TensorSpec::new(Default::default(), body.ty(arg)))
            .collect::<rc_runtime::Result<_>>()
            .map_err(|e| e.to_string())?;
        let shapes = specs.iter().map(|spec| spec.sizes(&bindings)).collect::<rc_runtime::Result<Vec<_>>>();
        let shapes = shapes.map_err(|e| e.to_string())?;
        let least = shapes.iter().flatten().copied().min().unwrap_or(1).max(1);
        let one = |(i, (spec, shape)): (usize, (&TensorSpec, &Vec<usize>))| match spec.dtype.is_float() {
            true => random_input(spec.dtype, shape, 0, i),
            false => {
                let most = if spec.dtype == DType::Bool { 2 } else { least.min(100) as i64 };
                Tensor::random(spec.dtype, shape, 0, i as u32, Distribution::Integers(0, most))
            }
        };
        let inputs: rc_runtime::Result<Vec<Tensor>> = specs.iter().zip(&shapes).enumerate().map(one).collect();
        inputs.map_err(|e| e.to_string())
    }
}

/// Milliseconds of a candidate's runs, which take `span` together, about, between two counts.
fn times_of(trial: &Trial, inputs: &[Tensor], span: f64, counts: [usize; 2]) -> Result<Vec<f64>> {
    trial.executable.queued_ms(inputs, span, counts).map_err(|e| e.to_string())
}

/// A value of a symbol's range near 512.
fn usual(symbol: &SymbolDecl) -> i64 {
    let near = symbol.max.min(symbol.min.max(512));
    let multiple = near.div_euclid(symbol.divisor) * symbol.divisor;
    if symbol.allows(multiple) { multiple } else { multiple + symbol.divisor }
}

/// Runs a trial for a round, and notes its shortest run where that is shorter than those before.
fn shorten(trial: &mut Trial, inputs: &[Tensor]) -> Result<()> {
    let times = times_of(trial, inputs, SPAN_MS / TURNS as f64, [1, RUNS[1] / RUNS[0]])?;
    trial.ms = times.into_iter().fold(trial.ms, f64::min);
    Ok(())
}

/// A schedule changes the order of sums, and nothing else.
fn agree(results: &[Tensor], reference: &[Tensor]) -> Result<()> {
    for (i, (result, reference)) in results.iter().zip(reference).enumerate() {
        if result.bytes() == reference.bytes() {
            continue;
        }
        let tolerance = match reference.dtype().is_float() {
            true => Tolerance::of_max(64.0 * reference.dtype().epsilon()).equal_nan(),
            false => Tolerance::EXACT,
        };
        let comparison = compare(result, reference, tolerance).map_err(|e| e.to_string())?;
        if !comparison.passed() {
            return Err(format!("result {i} differs from that with the model's choice: {comparison}"));
        }
    }
    Ok(())
}
