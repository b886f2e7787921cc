//! The options of `rc-opt` that concern passes: a flag for each, a pipeline, and what to show on the way.

use super::emit::TO_THREADS;
use super::phases::PhaseOptions;
use super::remarks::json_lines;
use super::reproducer::LastPass;
use super::rules;
use super::trace::Trace;
use crate::files::{self, note_line};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use rc::{CheckEachPass, Machine, Target};
use rc_ir::pass::{PassInstance, PassManager, PrintIr, PrintWhen, Report, registered};
use rc_ir::{Attr, Diagnostic, Loc, Module, Severity};
use rc_kit::view::{self, Recorder};
use rc_lowering::pass::{LOWER_CPU, LOWER_CUDA, module_target};
use rc_parser::pipeline::parse_pipeline;
use rc_passes::rules::REWRITE;
use std::path::PathBuf;
use std::time::Instant;

/// Adds a flag for every registered pass, `--fuse` or `--fuse=max-ops=32`, and the options for pipelines.
pub fn augment(mut command: Command) -> Command {
    for pass in registered() {
        let flag = Arg::new(pass.name)
            .long(pass.name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("")
            .value_name("OPTIONS");
        // --help would be several screens with all of them; --list-passes and --help=PASS say what they do.
        command = command.arg(flag.action(ArgAction::Append).help(pass.summary).hide(true));
    }
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
            .help_heading("Passes: how they run (what is printed goes to standard error)")
    };
    let file = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        arg.help(help).help_heading("Passes: how they run (what is printed goes to standard error)")
    };
    PhaseOptions::augment_args(command)
        .arg(
            Arg::new("pass-pipeline")
                .long("pass-pipeline")
                .value_name("PIPELINE")
                .help("Run these passes: 'fuse{max-ops=64},lower-cuda{arch=sm_90a}'")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("ARCH")
                .help("Processor: host, LLVM's name of a CPU, sm_90a; of a package a,b")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("target")
                .long("target")
                .value_name("MACHINE")
                .value_parser(["cpu", "cuda"])
                .help("Machine to schedule for where no lowering says it: cpu, cuda")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("target-file")
                .long("target-file")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .conflicts_with("arch")
                .help("Machine to compile for, as --print-target writes it")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("memory-limit")
                .long("memory-limit")
                .value_name("BYTES")
                .value_parser(clap::value_parser!(i64).range(1..))
                .help("What intermediate results may take; kept, or an error")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("emit")
                .long("emit")
                .value_name("KIND")
                .value_parser(["ir", "llvm", "asm", "obj", "ptx", "package"])
                .default_value("ir")
                .help("What to print: ir, llvm, asm, obj, ptx, or a package")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("weights")
                .long("weights")
                .value_name("FILE")
                .action(ArgAction::Append)
                .help("Safetensors for arguments of these names, put into a package")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(
            Arg::new("weights-beside")
                .long("weights-beside")
                .value_name("FILE")
                .help("The same, of a file that stays beside the package")
                .help_heading("Passes: how they run (what is printed goes to standard error)"),
        )
        .arg(flag("verify-each", "Verify after every pass (on by default)"))
        .arg(flag("no-verify-each", "Verify only what is read"))
        .arg(flag("print-ir-after-all", "Print the IR after every pass"))
        .arg(
            flag("diff-after-change", "Print what every pass changed, operation by operation")
                .alias("print-ir-after-change"),
        )
        .arg(flag("print-ir-after-failure", "Print the IR that a failing pass left"))
        .arg(flag("check-each-pass", "Run before and after every pass; name the first that is wrong"))
        .arg(flag("timing", "Print how long every pass took"))
        .arg(flag("statistics", "Print the passes' counters"))
        .arg(flag("print-rules-applied", "Print how often each rewrite rule was applied, by pass"))
        .arg(flag("remarks", "Show what the passes decided, and why"))
        .arg(file("remarks-file", "Write remarks, warnings and errors as lines of JSON"))
        .arg(file("trace", "Write when each pass ran, for Perfetto (ui.perfetto.dev)"))
        .arg(file("view", "Write a page that shows the compilation"))
        .arg(file("reproducer", "Where a pass fails, write a reduced module that shows it"))
}

/// What looks on while passes run.
struct Watch {
    trace: Trace,
    last: LastPass,
    recorder: Recorder,
}

/// What to do with a module: the passes, and how.
pub struct Passes {
    pipeline: String,
    target: Option<Wanted>,
    flags: ArgMatches,
    phases: PhaseOptions,
    /// What to print of a lowered module.
    pub emit: String,
}

impl Passes {
    /// Reads the command line; pipelines are checked here.
    pub fn read(matches: &ArgMatches) -> Result<Passes, Vec<Diagnostic>> {
        let emit = matches.get_one::<String>("emit").cloned().unwrap_or_else(|| "ir".into());
        // A package compiles for its processors in the end.
        let arch = matches.get_one::<String>("arch").filter(|_| emit != "package").cloned();
        let pipeline = match matches.get_one::<String>("pass-pipeline") {
            Some(text) => text.clone(),
            None => flags_in_order(matches, arch.as_deref()),
        };
        let phases = PhaseOptions::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
        phases.range().map_err(|error| vec![*error])?;
        if phases.is_given() && (!pipeline.is_empty() || emit != "ir") {
            let error = Diagnostic::error(Loc::UNKNOWN, "phases are given, and passes or --emit");
            return Err(vec![*error.help("give one of them: --compile-to=PHASE, or passes")]);
        }
        let file = target_of_file(matches).map_err(|error| vec![*error])?;
        let mut passes = Passes { pipeline, target: None, flags: matches.clone(), phases, emit };
        let machine = matches.get_one::<String>("target").map(String::as_str);
        passes.target = match (wanted(&passes.given()?, machine, arch, &passes.emit)?, file) {
            (wanted, None) => wanted,
            (wanted, Some(file)) => Some(of_file(wanted, file).map_err(|error| vec![*error])?),
        };
        Ok(passes)
    }

    fn given(&self) -> Result<Vec<PassInstance>, Vec<Diagnostic>> {
        if self.pipeline.is_empty() { Ok(Vec::new()) } else { parse_pipeline("--pass-pipeline", &self.pipeline) }
    }

    /// The pipeline's passes, and what `--emit` needs: PTX comes from `lower-cuda`, all else from kernels just before machine code.
    fn instances(&self) -> Result<Vec<PassInstance>, Vec<Diagnostic>> {
        let mut passes = self.given()?;
        let last = match self.emit.as_str() {
            "ir" | "package" => return Ok(passes),
            "ptx" if passes.iter().any(is_lowering) => return Ok(passes),
            "ptx" => &LOWER_CUDA,
            _ => {
                passes.retain(|pass| !is_lowering(pass));
                &TO_THREADS
            }
        };
        passes.push(PassInstance::new(last).map_err(|error| vec![*error])?);
        Ok(passes)
    }

    /// Runs the passes on a module. Gives remarks where they are wanted, warnings and errors.
    pub fn run(&self, module: &mut Module) -> Vec<Diagnostic> {
        let passes = self.instances().expect("checked when the command line was read");
        if passes.is_empty() && !self.phases.is_given() {
            return Vec::new();
        }
        if let Err(error) = self.target.as_ref().map_or(Ok(()), |target| target.set_on(module)) {
            return vec![*error];
        }
        if let Some(&bytes) = self.flags.get_one::<i64>("memory-limit") {
            module.set_attr("rc.memory_limit", Attr::i64(bytes));
        }
        let watch = Watch { trace: Trace::new(), last: LastPass::default(), recorder: Recorder::default() };
        let mut ready = |manager: &mut PassManager| self.instrument(manager, &watch);
        let start = Instant::now();
        let report = if self.phases.is_given() {
            match self.machine(module) {
                Ok(machine) => self.phases.run(module, machine, &mut ready),
                Err(error) => return vec![*error],
            }
        } else {
            let mut manager = PassManager::new(passes);
            ready(&mut manager);
            manager.run(module)
        };
        if self.flags.get_flag("timing") {
            note_line(&report.timing);
            note_line(format_args!("all passes: {:.1} ms", 1e3 * start.elapsed().as_secs_f64()));
        }
        if self.flags.get_flag("statistics") {
            note_line(report.statistics_text());
        }
        if self.flags.get_flag("print-rules-applied") {
            note_line(rules::applied(&report).trim_end_matches('\n'));
        }
        self.diagnostics(report, &watch)
    }

    /// What watches the passes.
    fn instrument(&self, manager: &mut PassManager, watch: &Watch) {
        let on = |name: &str| self.flags.get_flag(name);
        manager.verify_each = !on("no-verify-each");
        for (flag, when) in [
            ("print-ir-after-all", PrintWhen::Always),
            ("diff-after-change", PrintWhen::OnChange),
            ("print-ir-after-failure", PrintWhen::OnFailure),
        ] {
            if on(flag) {
                manager.instrument(PrintIr::new(when, std::io::stderr()));
            }
        }
        if self.file("trace").is_some() {
            manager.instrument(watch.trace.hook());
        }
        if self.file("reproducer").is_some() {
            manager.instrument(watch.last.clone());
        }
        if self.file("view").is_some() {
            manager.instrument(watch.recorder.hook());
        }
        if on("check-each-pass") {
            manager.instrument(CheckEachPass::new(0));
        }
    }

    /// What the page of a compilation is called: the input's name.
    fn title(&self) -> String {
        let input =
            self.file("input").and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        input.filter(|name| name != "-").unwrap_or_else(|| "standard input".into())
    }

    fn file(&self, name: &str) -> Option<&PathBuf> {
        self.flags.get_one::<PathBuf>(name)
    }

    /// What a run says, after the files that it leaves are written.
    fn diagnostics(&self, report: Report, watch: &Watch) -> Vec<Diagnostic> {
        let mut errors = report.errors;
        if let Some(path) = self.file("reproducer").filter(|_| !errors.is_empty()) {
            match watch.last.write(path) {
                Ok(what) => note_line(format_args!("note: {what}")),
                Err(why) => errors.push(*Diagnostic::error(Loc::UNKNOWN, format!("no reproducer is written: {why}"))),
            }
        }
        let all: Vec<Diagnostic> = report.diagnostics.into_iter().chain(errors).collect();
        let mut failed = Vec::new();
        let mut write = |name: &str, text: &dyn Fn() -> String| {
            let written = self.file(name).map(|path| files::write(path, |out| out.write_all(text().as_bytes())));
            failed.extend(written.and_then(Result::err).map(|why| *Diagnostic::error(Loc::UNKNOWN, why)));
        };
        write("trace", &|| watch.trace.text());
        write("view", &|| view::page(&self.title(), &watch.recorder, &all, &[]));
        write("remarks-file", &|| json_lines(&all));
        let on = |name: &str| self.flags.get_flag(name);
        let wanted = |d: &Diagnostic| d.severity != Severity::Remark || on("remarks") || on("verify_diagnostics");
        all.into_iter().filter(wanted).chain(failed).collect()
    }

    /// The machine of the phases: the one asked for, or what the module says, or the CPU at hand, which is then what the module says.
    fn machine(&self, module: &mut Module) -> rc_ir::Result<Machine> {
        if module.attr("rc.target").is_none() {
            Wanted { machine: Machine::Cpu, choice: Choice::Usual }.set_on(module)?;
        }
        let word = module.attr("rc.target").and_then(|target| target.get("machine")?.as_str());
        Ok(if word == Some("cuda") { Machine::Cuda } else { Machine::Cpu })
    }
}

/// The pass flags as a pipeline, in the order in which they were given.
fn flags_in_order(matches: &ArgMatches, arch: Option<&str>) -> String {
    let mut given: Vec<(usize, String)> = Vec::new();
    for pass in registered() {
        let values = matches.get_many::<String>(pass.name).into_iter().flatten();
        let indices = matches.indices_of(pass.name).into_iter().flatten();
        for (index, value) in indices.zip(values) {
            let has_arch = [LOWER_CPU.name, LOWER_CUDA.name].contains(&pass.name);
            let options = match (value.as_str(), arch) {
                // A file's name alone.
                (file, _) if pass.name == REWRITE.name && !file.is_empty() && !file.contains('=') => {
                    format!("rules=\"{}\"", file.replace('\\', "\\\\").replace('"', "\\\""))
                }
                ("", Some(arch)) if has_arch => format!("arch={arch}"),
                (options, _) => options.to_string(),
            };
            given.push((
                index,
                if options.is_empty() { pass.name.to_string() } else { format!("{}{{{options}}}", pass.name) },
            ));
        }
    }
    given.sort();
    given.into_iter().map(|g| g.1).collect::<Vec<_>>().join(",")
}

fn is_lowering(pass: &PassInstance) -> bool {
    [LOWER_CPU.name, LOWER_CUDA.name].contains(&pass.def.name)
}

/// The target that the command line asks for.
struct Wanted {
    machine: Machine,
    choice: Choice,
}

enum Choice {
    /// What the module says, else the machine's usual one.
    Usual,
    Arch(String),
    /// What a file describes.
    File(Box<Target>),
}

impl Wanted {
    /// Makes it the module's. Errors: the module is for another machine.
    fn set_on(&self, module: &mut Module) -> rc_ir::Result {
        let word = self.machine.word();
        let arch = if let Choice::Arch(arch) = &self.choice { Some(arch.as_str()) } else { None };
        module_target(module, Some(word), arch)?;
        let usual = if self.machine == Machine::Cpu { "host" } else { "sm_90a" };
        let known = module.attr("rc.target").is_some();
        match &self.choice {
            Choice::File(target) => target.set_on(module),
            Choice::Usual if known => {}
            _ => find(word, arch.unwrap_or(usual))?.set_on(module),
        }
        Ok(())
    }
}

fn find(machine: &str, arch: &str) -> rc_ir::Result<Target> {
    Target::find(machine, Some(arch)).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))
}

/// The target of `--target-file`. Errors: as [`Target::read`].
fn target_of_file(matches: &ArgMatches) -> rc_ir::Result<Option<Target>> {
    matches.get_one::<PathBuf>("target-file").map(|path| Target::read(path)).transpose()
}

/// A file's target. Errors: passes or options ask for another one.
fn of_file(wanted: Option<Wanted>, file: Target) -> rc_ir::Result<Wanted> {
    let clash = match &wanted {
        Some(Wanted { choice: Choice::Arch(arch), .. }) => Some(format!("'{arch}'")),
        Some(wanted) if wanted.machine != file.machine => Some(wanted.machine.word().to_string()),
        _ => None,
    };
    if let Some(other) = clash {
        let what = format!("the target file describes {} ({}), and {other} is wanted", file.name, file.word());
        return Err(Diagnostic::error(Loc::UNKNOWN, what));
    }
    Ok(Wanted { machine: file.machine, choice: Choice::File(Box::new(file)) })
}

/// `--print-target`: the file's target, the one that `--target` and `--arch` name, or the host's, as a target file.
///
/// # Errors
/// There is no such target, or the file is wrong.
pub fn print_target(matches: &ArgMatches) -> rc_ir::Result<String> {
    if let Some(target) = target_of_file(matches)? {
        return Ok(target.to_toml());
    }
    let arch = matches.get_one::<String>("arch").map(String::as_str);
    let machine = matches.get_one::<String>("target").map(String::as_str);
    let target = match (machine, arch) {
        (Some("cuda"), None) => find("cuda", "sm_90a"),
        (None, Some(arch)) if arch.starts_with("sm_") => find("cuda", arch),
        (machine, arch) => find(machine.unwrap_or("cpu"), arch.unwrap_or("host")),
    }?;
    if let Some(remark) = target.remark() {
        note_line(format_args!("note: {remark}"));
    }
    Ok(target.to_toml())
}

/// What a pipeline's last lowering is for, or the machine asked for, or the one that has what is to be printed. None: the module says it.
fn wanted(
    passes: &[PassInstance],
    machine: Option<&str>,
    arch: Option<String>,
    emit: &str,
) -> Result<Option<Wanted>, Vec<Diagnostic>> {
    let lowering = passes.iter().rev().find(|&pass| is_lowering(pass));
    let machine = match (lowering.map(|pass| pass.def.name), machine) {
        (Some("lower-cpu"), _) if emit == "ptx" => {
            let error = Diagnostic::error(Loc::UNKNOWN, "lower-cpu makes no PTX");
            return Err(vec![*error.help("write --lower-cuda --emit=ptx, or --lower-cpu --emit=asm")]);
        }
        (Some("lower-cuda"), _) | (None, Some("cuda")) => Machine::Cuda,
        (None, None) if emit == "ptx" => Machine::Cuda,
        (Some(_), _) | (None, Some(_)) => Machine::Cpu,
        (None, None) => match &arch {
            Some(arch) if arch.starts_with("sm_") => Machine::Cuda,
            Some(_) => Machine::Cpu,
            None => return Ok(None),
        },
    };
    let own = lowering.map(|pass| pass.options.str("arch").to_string()).filter(|arch| !arch.is_empty());
    Ok(Some(Wanted { machine, choice: own.or(arch).map_or(Choice::Usual, Choice::Arch) }))
}
