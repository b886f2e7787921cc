//! The options of `rc-opt` that concern passes: a flag for each, a pipeline, and what to show on the way.

use clap::{Arg, ArgAction, ArgMatches, Command};
use rc::{CheckEachPass, Machine, Target};
use rc_ir::pass::{PassInstance, PassManager, PrintIr, PrintWhen, registered};
use rc_ir::{Diagnostic, Module, Severity};
use rc_parser::pipeline::parse_pipeline;
use std::time::Instant;

/// Adds a flag for every registered pass, `--fuse` or `--fuse=max-ops=32`, and the options for pipelines.
pub fn augment(mut command: Command) -> Command {
    for pass in registered() {
        let flag = Arg::new(pass.name).long(pass.name).num_args(0..=1).require_equals(true).default_missing_value("").value_name("OPTIONS");
        command = command.arg(flag.action(ArgAction::Append).help(pass.summary).help_heading("Passes, in the order of their flags"));
    }
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help).help_heading("Passes: how they run")
    };
    command
        .arg(Arg::new("pass-pipeline").long("pass-pipeline").value_name("PIPELINE").help("Run these passes: 'fuse{max-ops=64},lower-cuda{arch=sm_90a}'").help_heading("Passes: how they run"))
        .arg(Arg::new("arch").long("arch").value_name("ARCH").help("The processor to compile for: host, or LLVM's name of a CPU; sm_90a (default), sm_80, …").help_heading("Passes: how they run"))
        .arg(Arg::new("target").long("target").value_name("MACHINE").value_parser(["cpu", "cuda"]).help("The machine to schedule for, where no lowering says it").help_heading("Passes: how they run"))
        .arg(Arg::new("emit").long("emit").value_name("KIND").value_parser(["ir", "llvm", "asm", "obj", "ptx"]).default_value("ir").help("What to print of a lowered module").help_heading("Passes: how they run"))
        .arg(flag("verify-each", "Verify after every pass (on by default)"))
        .arg(flag("no-verify-each", "Verify only what is read"))
        .arg(flag("print-ir-after-all", "Print the IR after every pass, on standard error"))
        .arg(flag("print-ir-after-change", "Print what every pass changed, on standard error"))
        .arg(flag("print-ir-after-failure", "Print the IR that a failing pass left, on standard error"))
        .arg(flag("check-each-pass", "Run the module before and after every pass on random inputs, and name the first that changes a result"))
        .arg(flag("timing", "Print how long every pass took, on standard error"))
        .arg(flag("statistics", "Print the passes' counters, on standard error"))
        .arg(flag("remarks", "Show what the passes decided, and why"))
}

/// What to do with a module: the passes, and how.
pub struct Passes {
    pipeline: String,
    target: Option<Target>,
    flags: ArgMatches,
    /// What to print of a lowered module.
    pub emit: String,
}

impl Passes {
    /// Reads the command line; pipelines are checked here.
    pub fn read(matches: &ArgMatches) -> Result<Passes, Vec<Diagnostic>> {
        let arch = matches.get_one::<String>("arch").cloned();
        let pipeline = match matches.get_one::<String>("pass-pipeline") {
            Some(text) => text.clone(),
            None => flags_in_order(matches, arch.as_deref()),
        };
        let passes = if pipeline.is_empty() { Vec::new() } else { parse_pipeline("--pass-pipeline", &pipeline)? };
        let target = target_of(&passes, matches.get_one::<String>("target").map(String::as_str), arch);
        let emit = matches.get_one::<String>("emit").cloned().unwrap_or_else(|| "ir".into());
        Ok(Passes { pipeline, target, flags: matches.clone(), emit })
    }

    /// Runs the passes on a module. Gives remarks where they are wanted, warnings and errors.
    pub fn run(&self, module: &mut Module) -> Vec<Diagnostic> {
        if self.pipeline.is_empty() {
            return Vec::new();
        }
        if let Some(target) = self.target.as_ref().filter(|_| module.attr("rc.target").is_none()) {
            target.set_on(module);
        }
        let passes = parse_pipeline("--pass-pipeline", &self.pipeline).expect("checked when it was read");
        let mut manager = PassManager::new(passes);
        let on = |name: &str| self.flags.get_flag(name);
        manager.verify_each = !on("no-verify-each");
        for (flag, when) in [
            ("print-ir-after-all", PrintWhen::Always),
            ("print-ir-after-change", PrintWhen::OnChange),
            ("print-ir-after-failure", PrintWhen::OnFailure),
        ] {
            if on(flag) {
                manager.instrument(PrintIr::new(when, std::io::stderr()));
            }
        }
        if on("check-each-pass") {
            manager.instrument(CheckEachPass::new(0));
        }
        let start = Instant::now();
        let report = manager.run(module);
        if on("timing") {
            eprintln!("{}", report.timing);
            eprintln!("all passes: {:.1} ms", 1e3 * start.elapsed().as_secs_f64());
        }
        if on("statistics") {
            eprintln!("{}", report.statistics_text());
        }
        let wanted = |d: &Diagnostic| d.severity != Severity::Remark || on("remarks") || self.flags.get_flag("verify_diagnostics");
        report.diagnostics.into_iter().filter(wanted).chain(report.errors).collect()
    }
}

/// The pass flags as a pipeline, in the order in which they were given.
fn flags_in_order(matches: &ArgMatches, arch: Option<&str>) -> String {
    let mut given: Vec<(usize, String)> = Vec::new();
    for pass in registered() {
        let values = matches.get_many::<String>(pass.name).into_iter().flatten();
        let indices = matches.indices_of(pass.name).into_iter().flatten();
        for (index, value) in indices.zip(values) {
            let has_arch = pass.options.iter().any(|o| o.name == "arch") && pass.name.starts_with("lower-c");
            let options = match (value.as_str(), arch) {
                ("", Some(arch)) if has_arch => format!("arch={arch}"),
                (options, _) => options.to_string(),
            };
            given.push((index, if options.is_empty() { pass.name.to_string() } else { format!("{}{{{options}}}", pass.name) }));
        }
    }
    given.sort();
    given.into_iter().map(|g| g.1).collect::<Vec<_>>().join(",")
}

/// The target that a pipeline's last lowering is for, or the one asked for.
fn target_of(passes: &[PassInstance], machine: Option<&str>, arch: Option<String>) -> Option<Target> {
    let lowering = passes.iter().rev().find(|p| ["lower-cpu", "lower-cuda"].contains(&p.def.name));
    let machine = match (lowering.map(|p| p.def.name), machine) {
        (Some("lower-cuda"), _) | (None, Some("cuda")) => Machine::Cuda,
        (Some(_), _) | (None, Some(_)) => Machine::Cpu,
        (None, None) => return None,
    };
    let arch = lowering.map(|p| p.options.str("arch").to_string()).or(arch);
    Some(match machine {
        Machine::Cpu => Target { arch: arch.unwrap_or("host".into()), ..Target::host() },
        Machine::Cuda => Target::cuda(arch.as_deref().unwrap_or("sm_90a")),
    })
}
