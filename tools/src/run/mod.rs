//! `rc-run`: runs a function of a module, compiled or interpreted, and reports results, errors and times.

mod inputs;

pub use inputs::named_values;

use crate::files::{self, note_line, print_line};
use crate::opt::show;
use inputs::Inputs;
use rc::{Compiled, Executable, Machine, Target, compile_cached, compile_tuned, compile_watched, is_compiled};
use rc_dialects::core::dot::PRECISION;
use rc_dialects::func::{given_inputs, set_constant_args, updated_args};
use rc_dialects::op;
use rc_ir::{Attr, Body, Diagnostic, Loc, Module, OpRef, Severity, Type};
use rc_kit::view::{self, Measured, Recorder};
use rc_parser::ParseOptions;
use rc_runtime::interp::{Interpreter, Mode};
use rc_runtime::package::Package;
use rc_runtime::program::{Program, TensorSpec};
use rc_runtime::tensor::{DType, Tolerance, compare};
use rc_runtime::{Place, Tensor, npy};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Runs a function of a module at any stage of the pipeline
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-run", version)]
pub struct Options {
    /// The module, or a package; - is standard input
    pub input: PathBuf,
    /// The function to run; the module's first by default
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,
    /// An array for the next argument that the weights do not name
    #[arg(long = "input", value_name = "FILE.npy")]
    pub inputs: Vec<PathBuf>,
    /// Tensors for the arguments of these names, which are then the same at every call: what follows from them alone is computed once
    #[arg(long, value_name = "FILE.safetensors")]
    pub weights: Vec<PathBuf>,
    /// The value of a symbol, for random arguments
    #[arg(long = "symbol", value_name = "NAME=VALUE")]
    pub symbols: Vec<String>,
    /// Seed of the arguments for which no file is given
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Interpret instead of compiling
    #[arg(long)]
    pub interpret: bool,
    /// Where to run
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// The processor to compile for; the one at hand by default
    #[arg(long)]
    pub arch: Option<String>,
    /// The processor to compile for, described in a file as rc-opt --print-target writes it
    #[arg(long, value_name = "FILE.toml", conflicts_with = "arch")]
    pub target_file: Option<PathBuf>,
    /// Measured schedules, as rc-tune writes them
    #[arg(long, value_name = "FILE")]
    pub tuning: Option<PathBuf>,
    /// Compare with the interpreter in this precision, and report the largest error
    #[arg(long, value_enum)]
    pub compare: Option<Reference>,
    /// The module to compare with, where it is another one: what a lowered module was before
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub reference: Option<PathBuf>,
    /// The error that a result may have, as a part of its largest magnitude; by default half of the digits of the narrowest float among
    /// arguments and results
    #[arg(long, value_name = "PART", requires = "compare")]
    pub tolerance: Option<f64>,
    /// Instead of running: differentiate the function, and compare slopes along random directions with differences in float64
    #[arg(long)]
    pub check_gradients: bool,
    /// Run this many times: what a run leaves in arguments (rc.updates) is what the next one starts from
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Turns after which a `core.while` is taken for one that does not end
    #[arg(long, value_name = "TURNS", default_value_t = 1_000_000)]
    pub while_limit: u32,
    /// Run this many times and report the median
    #[arg(long, value_name = "RUNS", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    pub bench: Option<usize>,
    /// Run this many times and report how long each kernel took; on a GPU each launch by itself
    #[arg(long, value_name = "RUNS", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    pub profile: Option<usize>,
    /// Compile anew, and write a page that shows the compilation, with how long each kernel took
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interpret", "tuning"])]
    pub view: Option<PathBuf>,
    /// Say what a package's function takes and gives, and do not run it
    #[arg(long)]
    pub signature: bool,
    /// Report how long compiling took, by pass
    #[arg(long)]
    pub timing: bool,
    /// Write a result, one file for each in order; without any, results are printed
    #[arg(short, long = "output", value_name = "FILE.npy")]
    pub outputs: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Device {
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Reference {
    Float64,
}

/// Why a run failed: diagnostics about the module, or a message about anything else.
pub enum Failure {
    Diagnostics(Vec<Diagnostic>),
    Message(String),
}

impl Failure {
    pub fn show(&self) {
        match self {
            Failure::Diagnostics(all) => all.iter().filter(|d| d.severity != Severity::Remark).for_each(show),
            Failure::Message(text) => note_line(format_args!("error: {text}")),
        }
    }
}
impl From<Box<Diagnostic>> for Failure {
    fn from(d: Box<Diagnostic>) -> Failure {
        Failure::Diagnostics(vec![*d])
    }
}
impl From<rc_runtime::Error> for Failure {
    fn from(e: rc_runtime::Error) -> Failure {
        Failure::Message(e.to_string())
    }
}
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Message(text)
    }
}

/// `rc-run`: with rc's dialects, and those that were registered before.
pub fn main() -> ExitCode {
    let options = <Options as clap::Parser>::parse();
    rc::register();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.show();
            ExitCode::FAILURE
        }
    }
}

/// Runs as the options say; prints results, errors and times on standard output.
pub fn run(options: &Options) -> Result<(), Failure> {
    let start = Instant::now();
    let (module, package) = load(options)?;
    if let (Some(_), true) = (&package, options.timing) {
        note_line(format_args!("the package was read in {:.1} ms", 1e3 * start.elapsed().as_secs_f64()));
    }
    if options.signature {
        return show_signature(&module, options, package.as_ref());
    }
    let inputs = Inputs::gather(&module, options, package.as_ref())?;
    if options.check_gradients {
        return check_gradients(&module, options, &inputs);
    }
    // Part of a run, not of what is compiled.
    let limited = |mut module: Module| {
        module.set_attr("rc.while_limit", Attr::i64(options.while_limit.into()));
        module
    };
    let results = if options.interpret {
        let limited = limited(module.clone());
        let interpreter = Interpreter::new(&limited, Mode::Typed);
        in_turn(&module, options, &inputs, |tensors| Ok(interpreter.run(&inputs.function, tensors)?))?
    } else {
        compiled(&module, options, &inputs)?
    };
    if options.compare.is_some() {
        let reference = options.reference.as_deref().map(read).transpose()?.unwrap_or(module);
        report_errors(&limited(reference), options, &inputs, &results)?;
    }
    write(options, &results)
}

/// What a function takes of its caller, and what it gives.
fn show_signature(module: &Module, options: &Options, package: Option<&Package>) -> Result<(), Failure> {
    if !is_compiled(module) {
        return Err("--signature needs a package or a compiled module".to_string().into());
    }
    let program = Program::load(module, options.entry.as_deref())?;
    let body = module.symbol(program.name);
    let given = body.map_or(0, |body| given_inputs(body.op_ref(body.root())));
    for symbol in &program.signature.symbols {
        print_line(format_args!("symbol {}: {}", symbol.name, symbol.range()))?;
    }
    for spec in program.signature.inputs.iter().take(given) {
        let weight = package.map(|package| package.weight(spec.name.as_str())).transpose()?.flatten();
        let what = if weight.is_some() { "weight" } else { "argument" };
        print_line(format_args!("{what} {spec}"))?;
    }
    for (i, spec) in program.signature.outputs.iter().enumerate() {
        print_line(format_args!("result {i} {}", TensorSpec { name: Default::default(), ..spec.clone() }))?;
    }
    Ok(())
}

/// The module, and the package that it is from.
fn load(options: &Options) -> Result<(Module, Option<Package>), Failure> {
    if Package::is_at(&options.input) {
        let package = Package::open(&options.input)?;
        let place = if options.device == Device::Cuda { Place::Cuda(0) } else { Place::Cpu };
        let (number, _) = package.choose(Some(place))?;
        return Ok((package.module(number)?, Some(package)));
    }
    read(&options.input).map(|module| (module, None))
}

/// A module of a file, verified; - is standard input.
pub fn read(input: &Path) -> Result<Module, Failure> {
    let bytes = files::read(input)?;
    let (module, diagnostics) = rc_parser::parse_bytes(&input.display().to_string(), bytes, &ParseOptions::default());
    let module = module.ok_or(Failure::Diagnostics(diagnostics))?;
    let errors = rc::verify(&module);
    if errors.is_empty() { Ok(module) } else { Err(Failure::Diagnostics(errors)) }
}

/// The machine to compile for: a file's, the one called `arch`, else the one at hand.
pub fn target(device: Device, arch: Option<&str>, file: Option<&Path>) -> Result<Target, Failure> {
    let machine = if device == Device::Cpu { Machine::Cpu } else { Machine::Cuda };
    if let Some(path) = file {
        let target = Target::read(path)?;
        if target.machine != machine {
            return Err(format!("the target file describes a machine for --device={}", target.word()).into());
        }
        return Ok(target);
    }
    match device {
        Device::Cpu => Target::find("cpu", Some(arch.unwrap_or("host"))),
        Device::Cuda => match arch {
            Some(arch) => Target::cuda(arch),
            None => Target::cuda(&rc::gpu_arch()?),
        },
    }
    .map_err(|why| Failure::Diagnostics(vec![*Diagnostic::error(Loc::UNKNOWN, why)]))
}

fn compiled(module: &Module, options: &Options, inputs: &Inputs) -> Result<Vec<Tensor>, Failure> {
    let target = target(options.device, options.arch.as_deref(), options.target_file.as_deref())?;
    let mut lowered = module.clone();
    let (recorder, mut said) = (Recorder::default(), Vec::new());
    if options.view.is_some() && is_compiled(module) {
        return Err("--view needs a module that is not compiled".to_string().into());
    }
    let start = Instant::now();
    if !is_compiled(module) {
        if let Some(body) = lowered.symbol_mut(inputs.function.as_str()).filter(|_| !inputs.weights.is_empty()) {
            set_constant_args(body, inputs.weights.iter().copied());
        }
        let compiled = match &options.tuning {
            _ if options.view.is_some() => {
                let mut module = lowered.clone();
                let report = compile_watched(&mut module, &target, vec![Box::new(recorder.hook())]);
                Compiled { module, report, cached: false }
            }
            Some(file) => {
                let mut module = lowered.clone();
                let report = compile_tuned(&mut module, &target, file);
                Compiled { module, report, cached: false }
            }
            None => compile_cached(&lowered, &target),
        };
        if !compiled.report.succeeded() {
            return Err(Failure::Diagnostics(compiled.report.errors));
        }
        compiled.report.diagnostics.iter().filter(|d| d.severity == Severity::Warning).for_each(show);
        said.clone_from(&compiled.report.diagnostics);
        match compiled.cached {
            true if options.timing => note_line("from the cache"),
            false if options.timing => note_line(&compiled.report.timing),
            _ => {}
        }
        lowered = compiled.module;
    }
    lowered.set_attr("rc.while_limit", Attr::i64(options.while_limit.into()));
    let executable = Executable::load(&lowered, Some(&inputs.function), target.machine)?;
    if options.timing {
        note_line(format_args!("compiled and loaded in {:.1} ms", 1e3 * start.elapsed().as_secs_f64()));
    }
    let start = Instant::now();
    executable.initialize(&inputs.tensors)?;
    if options.timing {
        note_line(format_args!("initialized in {:.1} ms", 1e3 * start.elapsed().as_secs_f64()));
    }
    let results = match options.steps {
        1 => executable.run(&inputs.tensors)?,
        _ => steps(options, inputs, &executable)?,
    };
    if let Some(runs) = options.bench {
        let milliseconds = executable.median_ms(&inputs.tensors, runs.max(1))?;
        print_line(format_args!("median of {runs} runs: {milliseconds:.4} ms"))?;
    }
    if let Some(runs) = options.profile {
        for kernel in executable.profile(&inputs.tensors, runs.max(1))? {
            let rc::KernelTime { name, launches, milliseconds } = kernel;
            print_line(format_args!("{milliseconds:10.4} ms in {launches:4} launches of {name}"))?;
        }
    }
    if let Some(path) = &options.view {
        let measured = executable.profile(&inputs.tensors, VIEWED_RUNS)?;
        let each = |k: rc::KernelTime| Measured { us: 1e3 * k.milliseconds / k.launches.max(1) as f64, kernel: k.name };
        let measured: Vec<Measured> = measured.into_iter().map(each).collect();
        let page = view::page(&options.input.display().to_string(), &recorder, &said, &measured);
        files::write(path, |out| out.write_all(page.as_bytes()))?;
    }
    Ok(results)
}

/// Runs after which a page says how long a kernel took.
const VIEWED_RUNS: usize = 20;

/// The results of the last of as many runs as the options ask for, on arguments that stay where they are.
fn steps(options: &Options, inputs: &Inputs, executable: &Executable) -> Result<Vec<Tensor>, Failure> {
    let updates = executable.updates();
    check_steps(options, inputs, updates)?;
    let mut resident = executable.resident(inputs.tensors.clone())?;
    for _ in 1..options.steps {
        resident.run()?;
    }
    let results = resident.run()?;
    let read = |(result, argument): (Option<Tensor>, &Option<usize>)| match (result, argument) {
        (_, Some(argument)) => Ok(resident.get(*argument)?),
        (result, None) => Ok(result.expect("what is in no argument is given")),
    };
    results.into_iter().zip(updates).map(read).collect()
}

/// That a function runs on what it left, where it is to run more than once.
fn check_steps(options: &Options, inputs: &Inputs, updates: &[Option<usize>]) -> Result<(), Failure> {
    if options.steps == 1 || updates.iter().any(Option::is_some) {
        return Ok(());
    }
    let name = &inputs.function;
    let what =
        format!("--steps needs a function with results that update arguments (rc.updates), and '@{name}' has none");
    Err(what.into())
}

/// As [`steps`], for what takes its arguments anew at each run.
fn in_turn(
    module: &Module,
    options: &Options,
    inputs: &Inputs,
    mut run: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>, Failure>,
) -> Result<Vec<Tensor>, Failure> {
    let function = module.symbol(inputs.function.as_str()).filter(|body| body.name(body.root()) == op::func::FUNC);
    let updates = function.map(updated_args).unwrap_or_default();
    check_steps(options, inputs, &updates)?;
    let mut tensors = inputs.tensors.clone();
    let mut results = run(&tensors)?;
    for _ in 1..options.steps {
        for (result, arg) in updates.iter().enumerate().filter_map(|(i, arg)| Some((i, (*arg)?))) {
            tensors[arg] = results[result].clone();
        }
        results = run(&tensors)?;
    }
    Ok(results)
}

/// Of the products of a module whose operands may be rounded to TF32, which has as many digits as f16.
fn epsilon_of(module: &Module) -> f64 {
    let may_round = |op: OpRef| {
        let of = op.attr("of").and_then(|of| of.as_type()) == Some(Type::tf32());
        of || op.attr(PRECISION.name).is_some() || op.result_types().iter().any(|ty| ty.elem() == Type::tf32())
    };
    let rounds = |body: &Body| body.walk().into_iter().any(|op| may_round(body.op_ref(op)));
    if module.bodies.iter().any(rounds) { DType::F16.epsilon() } else { 0.0 }
}

fn report_errors(module: &Module, options: &Options, inputs: &Inputs, results: &[Tensor]) -> Result<(), Failure> {
    if is_compiled(module) {
        return Err("--compare needs a module that is not compiled, whose meaning the interpreter knows; --reference may name one"
            .to_string()
            .into());
    }
    let interpreter = Interpreter::new(module, Mode::Float64);
    let reference = in_turn(module, options, inputs, |tensors| Ok(interpreter.run(&inputs.function, tensors)?))?;
    let epsilon = inputs.tensors.iter().chain(results).map(|t| t.dtype().epsilon()).fold(epsilon_of(module), f64::max);
    // Sums that are zero but for rounding have no magnitude to compare with.
    let of_max = options.tolerance.unwrap_or(epsilon.sqrt());
    let allowed = Tolerance { abs: 64.0 * epsilon, of_max, ..Tolerance::EXACT }.equal_nan();
    let exact = Tolerance { of_max: options.tolerance.unwrap_or(0.0), ..Tolerance::EXACT };
    let mut wrong = 0;
    for (i, (result, reference)) in results.iter().zip(&reference).enumerate() {
        let comparison = compare(result, reference, if result.dtype().is_float() { allowed } else { exact })?;
        print_line(format_args!("result {i} against float64: {comparison}"))?;
        wrong += usize::from(!comparison.passed());
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!(
            "{wrong} of {} results differ from float64; --tolerance says by how much they may",
            results.len()
        )
        .into()),
    }
}

fn check_gradients(module: &Module, options: &Options, inputs: &Inputs) -> Result<(), Failure> {
    let body = module.symbol(inputs.function.as_str());
    if !body.is_some_and(|b| b.name(b.root()) == op::func::FUNC) {
        return Err("--check-gradients needs a function that is not planned or compiled".to_string().into());
    }
    let slopes = rc::check_gradients(module, &inputs.function, &inputs.tensors, options.seed)?;
    for slope in &slopes {
        print_line(format_args!("{slope}"))?;
    }
    match slopes.iter().filter(|s| !s.agrees()).count() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} of {} slopes differ from those by differences", slopes.len()).into()),
    }
}

fn write(options: &Options, results: &[Tensor]) -> Result<(), Failure> {
    if options.outputs.is_empty() {
        if options.bench.is_none() && options.profile.is_none() && options.compare.is_none() {
            for (i, result) in results.iter().enumerate() {
                print_line(format_args!("result {i}: {result}"))?;
            }
        }
        return Ok(());
    }
    if options.outputs.len() != results.len() {
        return Err(format!(
            "the function has {} results, {} output files were given",
            results.len(),
            options.outputs.len()
        )
        .into());
    }
    for (path, result) in options.outputs.iter().zip(results) {
        npy::write(path, result)?;
    }
    Ok(())
}
