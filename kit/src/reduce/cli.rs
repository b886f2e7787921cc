//! The command line of `rc-reduce`.

use super::{
    ChangesResult, Command, FailsWith, Search, Test, error_of, op_count, reduced, reduced_pipeline, shape_of_error,
};
use rc_ir::Module;
use rc_ir::print::{PrintOptions, print_module};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Reduces a module to the smallest on which a test still holds.
///
/// The test is a command, run on every candidate (exit code 0: it holds), or a pipeline that fails or changes a result:
///
///   rc-reduce big.ir --test='rc-opt --fuse %s | grep -q core.fusion' -o small.ir
///   rc-reduce big.ir --still-fails='decompose,fuse,lower-loops' -o small.ir
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "rc-reduce", version, verbatim_doc_comment)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["test", "still_fails", "still_changes"]))]
pub struct Options {
    /// The module to reduce; - is standard input
    pub input: PathBuf,
    /// The file to write; - is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
    /// A shell command; %s in it is the candidate's file, which is the last argument otherwise
    #[arg(long, value_name = "COMMAND")]
    pub test: Option<String>,
    /// A pipeline that fails, with the same error up to names, numbers and types; passes that it does not take go, too
    #[arg(long, value_name = "PIPELINE")]
    pub still_fails: Option<String>,
    /// A pipeline after which the interpreter gives other results on random inputs
    #[arg(long, value_name = "PIPELINE")]
    pub still_changes: Option<String>,
    /// Only say whether the test holds on the module, by the exit code
    #[arg(long)]
    pub check: bool,
    /// Tests at once; the processor's threads by default
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Runs of the test at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_runs: usize,
    /// Seconds that a command may take; one that takes longer does not hold
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub timeout: f64,
    /// Give the command, and print, MLIR's generic form
    #[arg(long)]
    pub print_op_generic: bool,
    /// Accept operations of dialects that are not registered
    #[arg(long)]
    pub allow_unregistered_dialect: bool,
    /// Say nothing of what was done
    #[arg(short, long)]
    pub quiet: bool,
}

/// `rc-reduce`: with rc's dialects and passes, and those that were registered before.
pub fn main() -> ExitCode {
    let options = <Options as clap::Parser>::parse();
    crate::register();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reduces as the options say. Errors: text for standard error, such as that the test does not hold on the module as it is.
pub fn run(options: &Options) -> Result<(), String> {
    let module = read(options)?;
    let limit =
        Duration::try_from_secs_f64(options.timeout).map_err(|_| "error: --timeout is no time\n".to_string())?;
    // A pass that panics is what is looked for; its words would come once for each candidate.
    std::panic::set_hook(Box::new(|_| {}));
    match (&options.test, &options.still_fails, &options.still_changes) {
        (Some(text), _, _) => {
            let test = Command { text: text.clone(), limit, generic: options.print_op_generic };
            reduce(options, module, &test, "")
        }
        (_, Some(pipeline), _) => fails(options, module, pipeline),
        (_, _, Some(pipeline)) => changes(options, module, pipeline),
        _ => Err("error: a test is needed\n".into()),
    }
}

fn fails(options: &Options, module: Module, pipeline: &str) -> Result<(), String> {
    check_pipeline(pipeline)?;
    let Some(error) = error_of(&module, pipeline) else {
        return Err(format!("error: '{pipeline}' does not fail on the module\n"));
    };
    let shape = shape_of_error(&error.message);
    let fewer =
        reduced_pipeline(pipeline, |text| error_of(&module, text).is_some_and(|e| shape_of_error(&e.message) == shape));
    let head = format!("// {}\n// rc-opt --pass-pipeline='{fewer}'\n", error.message.replace('\n', " "));
    reduce(options, module, &FailsWith { pipeline: fewer, shape }, &head)
}

fn changes(options: &Options, module: Module, pipeline: &str) -> Result<(), String> {
    check_pipeline(pipeline)?;
    let test = |text: &str| ChangesResult { pipeline: text.to_string(), seed: 0 };
    let Some(what) = test(pipeline).changed(&module) else {
        return Err(format!("error: '{pipeline}' changes no result of the module, or it cannot be run\n"));
    };
    let fewer = reduced_pipeline(pipeline, |text| test(text).holds(&module));
    let head =
        format!("// changes {}\n// rc-opt --pass-pipeline='{fewer}' --check-each-pass\n", what.replace('\n', " "));
    reduce(options, module, &test(&fewer), &head)
}

fn check_pipeline(pipeline: &str) -> Result<(), String> {
    let Err(errors) = rc_parser::pipeline::parse_pipeline("pipeline", pipeline) else { return Ok(()) };
    let mut text: String = errors.iter().map(|e| e.render()).collect();
    if errors.iter().any(|e| e.message.starts_with("unknown pass 'lower-c")) {
        text += "rc-reduce has the passes that need no LLVM; for machine code give a command: --test='not rc-opt --lower-cpu %s'\n";
    }
    Err(text)
}

fn reduce(options: &Options, module: Module, test: &dyn Test, head: &str) -> Result<(), String> {
    let threads = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut search = Search::new(test, options.jobs.map_or_else(threads, NonZeroUsize::get), options.max_runs);
    if !search.holds(&module) {
        return Err("error: the test does not hold on the module as it is\n".into());
    }
    if options.check {
        return Ok(());
    }
    let before = (op_count(&module), text(options, &module).len());
    let small = reduced(module, &mut search);
    let out = text(options, &small);
    if !options.quiet {
        let counts = search.counts;
        eprintln!(
            "{} → {} operations, {} → {} bytes, {} runs of the test, {} proposals that needed none",
            before.0,
            op_count(&small),
            before.1,
            out.len(),
            counts.runs,
            counts.skipped
        );
    }
    write(&options.output, &format!("{head}{out}"))
}

fn text(options: &Options, module: &Module) -> String {
    print_module(module, if options.print_op_generic { &PrintOptions::GENERIC } else { &PrintOptions::PRETTY })
}

fn read(options: &Options) -> Result<Module, String> {
    let path = &options.input;
    let bytes = match path == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()).map(String::into_bytes),
        false => std::fs::read(path),
    };
    let bytes = bytes.map_err(|e| format!("error: cannot read '{}': {e}\n", path.display()))?;
    let parse = rc_parser::ParseOptions { allow_unregistered: options.allow_unregistered_dialect };
    let (module, diagnostics) = rc_parser::parse_bytes(&path.display().to_string(), bytes, &parse);
    let errors = |all: &[rc_ir::Diagnostic]| all.iter().map(|d| d.render()).collect::<String>();
    let module = module.ok_or_else(|| errors(&diagnostics))?;
    let invalid = rc_dialects::verify(&module);
    if invalid.is_empty() { Ok(module) } else { Err(errors(&invalid)) }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    use std::io::Write;
    let done = match path == Path::new("-") {
        true => std::io::stdout().lock().write_all(text.as_bytes()),
        false => std::fs::write(path, text),
    };
    done.map_err(|e| format!("error: cannot write '{}': {e}\n", path.display()))
}
