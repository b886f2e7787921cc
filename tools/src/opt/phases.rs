//! Named phases of a compilation: `--compile-to`, `--compile-from`, `--dump-phases`.

use crate::files;
use rc::Machine;
use rc_ir::pass::{PassManager, Report};
use rc_ir::suggest::did_you_mean;
use rc_ir::{Diagnostic, Loc, Module};
use rc_parser::pipeline::parse_pipeline;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A stretch of the pipeline after which a dump is worth a look.
pub struct Phase {
    pub name: &'static str,
    summary: &'static str,
    cpu: &'static str,
    cuda: &'static str,
}

/// In order. Together they are the pipeline of [`rc::pipeline`], with the passes that it requires written out.
pub const PHASES: [Phase; 8] = [
    Phase {
        name: "core",
        summary: "the closed set of operations, simplified",
        cpu: "decompose,canonicalize,cse,dce,layout,hoist-constants,in-parts",
        cuda: "decompose,canonicalize,cse,dce,layout,hoist-constants,in-parts,align-products,split-products,cse,order-scatters,split-sorts,split-scans",
    },
    same("fusions", "what becomes one kernel", "fuse,cse"),
    same("loops", "each fusion as nests over iteration spaces", "lower-loops"),
    same("schedules", "how each nest is run on the machine", "schedule"),
    same("tiles", "schedules applied: kernels on tiles, and the host that launches them", "lower-kernel"),
    same("buffers", "where values are in memory", "plan-buffers"),
    same("threads", "kernels as one thread runs them", "lower-tiles,merge-launches,expand-math"),
    Phase { name: "code", summary: "machine code", cpu: "lower-cpu", cuda: "lower-cuda" },
];

const fn same(name: &'static str, summary: &'static str, passes: &'static str) -> Phase {
    Phase { name, summary, cpu: passes, cuda: passes }
}

impl Phase {
    pub fn passes(&self, machine: Machine) -> &'static str {
        match machine {
            Machine::Cpu => self.cpu,
            Machine::Cuda => self.cuda,
        }
    }
}

/// The page of `--list-phases`.
pub fn list() -> String {
    let mut out = String::new();
    for phase in &PHASES {
        let _ = writeln!(out, "{:10} {}\n{:10} {}", phase.name, phase.summary, "", phase.cpu);
        if phase.cuda != phase.cpu {
            let _ = writeln!(out, "{:10} on CUDA: {}", "", phase.cuda);
        }
    }
    out
}

/// Which phases to run, and where their dumps go.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Phases")]
pub struct PhaseOptions {
    /// Compile up to a phase; --list-phases names them
    #[arg(long, value_name = "PHASE")]
    pub compile_to: Option<String>,
    /// The phase that the input is in: go on after it
    #[arg(long, value_name = "PHASE")]
    pub compile_from: Option<String>,
    /// Write each phase, headed by the command that goes on from it
    #[arg(long, value_name = "DIR")]
    pub dump_phases: Option<PathBuf>,
}

impl PhaseOptions {
    pub fn is_given(&self) -> bool {
        self.compile_to.is_some() || self.compile_from.is_some() || self.dump_phases.is_some()
    }

    /// The phases to run. Errors: no such phase, or an end before the start.
    pub fn range(&self) -> Result<&'static [Phase], Box<Diagnostic>> {
        let start = self.compile_from.as_deref().map(number).transpose()?.map_or(0, |i| i + 1);
        let end = self.compile_to.as_deref().map(number).transpose()?.map_or(PHASES.len(), |i| i + 1);
        PHASES.get(start..end).ok_or_else(|| {
            let (from, to) = (PHASES[start - 1].name, PHASES[end - 1].name);
            Diagnostic::error(Loc::UNKNOWN, format!("--compile-to={to} is before --compile-from={from}"))
        })
    }

    /// Runs the phases, each by a manager that `with` readies, and writes the dumps.
    pub fn run(&self, module: &mut Module, machine: Machine, with: &mut dyn FnMut(&mut PassManager)) -> Report {
        let mut all = Report::default();
        let phases = match self.range() {
            Ok(phases) => phases,
            Err(error) => return Report { errors: vec![*error], ..all },
        };
        for phase in phases {
            let passes = match parse_pipeline(phase.name, phase.passes(machine)) {
                Ok(passes) => passes,
                Err(errors) => return Report { errors, ..all },
            };
            let mut manager = PassManager::new(passes);
            with(&mut manager);
            let report = manager.run(module);
            all.diagnostics.extend(report.diagnostics);
            all.statistics.extend(report.statistics);
            report.timing.parts.into_iter().for_each(|part| all.timing.add(part));
            all.errors = report.errors;
            if all.succeeded()
                && let Some(Err(error)) = self.dump_phases.as_deref().map(|folder| dump(folder, phase, module))
            {
                all.errors.push(*Diagnostic::error(Loc::UNKNOWN, error));
            }
            if !all.succeeded() {
                break;
            }
        }
        all
    }
}

/// Writes `DIR/3-loops.ir`.
fn dump(folder: &Path, phase: &Phase, module: &Module) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder '{}': {e}", folder.display()))?;
    let at = PHASES.iter().position(|p| p.name == phase.name).unwrap_or(0);
    let path = folder.join(format!("{}-{}.ir", at + 1, phase.name));
    let head = match PHASES.get(at + 1) {
        Some(_) => format!("// rc-opt --compile-from={} {}\n", phase.name, path.display()),
        None => format!("// rc-run {}\n", path.display()),
    };
    files::write(&path, |out| write!(out, "{head}{module}"))
}

fn number(name: &str) -> Result<usize, Box<Diagnostic>> {
    let names = PHASES.iter().map(|phase| phase.name);
    PHASES.iter().position(|phase| phase.name == name).ok_or_else(|| {
        let hint = did_you_mean(name, names.clone());
        let error = Diagnostic::error(Loc::UNKNOWN, format!("there is no phase '{name}'{hint}"));
        error.help(format!("the phases are {}", names.collect::<Vec<_>>().join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_mistakes() {
        let range = |from: Option<&str>, to: Option<&str>| {
            let options =
                PhaseOptions { compile_from: from.map(Into::into), compile_to: to.map(Into::into), dump_phases: None };
            options
                .range()
                .map(|phases| phases.iter().map(|p| p.name).collect::<Vec<_>>())
                .map_err(|e| e.message.clone())
        };
        assert_eq!(range(Some("fusions"), Some("schedules")).unwrap(), ["loops", "schedules"]);
        assert_eq!(range(None, None).unwrap().len(), PHASES.len());
        assert_eq!(range(Some("code"), None).unwrap().len(), 0);
        assert!(range(Some("tiles"), Some("core")).unwrap_err().contains("is before"));
        assert!(range(None, Some("loop")).unwrap_err().contains("did you mean 'loops'?"));
    }

    /// The phases do what the pipeline does.
    #[test]
    fn phases_are_the_pipeline() {
        rc::register();
        for (machine, arch) in [(Machine::Cpu, "x86-64-v3"), (Machine::Cuda, "sm_90a")] {
            let target = rc::Target::find(machine.word(), Some(arch)).unwrap();
            let text = include_str!("../../../examples/mlp.ir");
            let module = rc_parser::parse_module("mlp.ir", text).0.unwrap();
            let (mut whole, mut by_phase) = (module.clone(), module);
            assert!(rc::compile(&mut whole, &target).succeeded());
            target.set_on(&mut by_phase);
            assert!(PhaseOptions::default().run(&mut by_phase, machine, &mut |_| {}).succeeded());
            assert_eq!(whole.to_string(), by_phase.to_string());
        }
    }
}
