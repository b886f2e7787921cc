//! Pipelines by target.

use rc_ir::pass::{PassManager, Report};
use rc_ir::{Attr, Module};
use rc_parser::pipeline::parse_pipeline;

/// The two kinds of machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    Cpu,
    Cuda,
}

/// What to compile for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub machine: Machine,
    /// `host` or LLVM's name of a CPU; `sm_80`, `sm_90a`, … for a GPU.
    pub arch: String,
}

impl Target {
    /// This machine's CPU, or the one that the environment variable `RC_TARGET` names: `x86-64-v2`, which any newer one can run.
    pub fn host() -> Target {
        let named = std::env::var("RC_TARGET").ok().filter(|name| !name.is_empty());
        Target { machine: Machine::Cpu, arch: named.unwrap_or_else(|| "host".into()) }
    }
    /// A GPU of this architecture.
    pub fn cuda(arch: &str) -> Target {
        Target { machine: Machine::Cuda, arch: arch.into() }
    }
    /// Writes the target into a module, where the passes that depend on it look: `rc.target = #rc.target<machine = "cpu", arch = "host">`.
    pub fn set_on(&self, module: &mut Module) {
        let machine = Attr::str(if self.machine == Machine::Cpu { "cpu" } else { "cuda" });
        module.set_attr("rc.target", Attr::dialect("target", &[("machine", machine), ("arch", Attr::str(&self.arch))]));
    }
}

/// The pipeline from any stage to machine code, as text.
pub fn pipeline(target: &Target) -> String {
    let (spread, last) = match target.machine {
        Machine::Cpu => ("", "lower-cpu"),
        Machine::Cuda => ("align-products,cse,split-scans,order-scatters,", "lower-cuda"),
    };
    format!("decompose,canonicalize,cse,dce,layout,hoist-constants,{spread}fuse,cse,{last}{{arch={}}}", target.arch)
}

/// Runs the pipeline for a target. The report holds remarks, errors and timing; on errors the module is as the failing pass left it.
pub fn compile(module: &mut Module, target: &Target) -> Report {
    target.set_on(module);
    match parse_pipeline("pipeline", &pipeline(target)) {
        Ok(passes) => PassManager::new(passes).run(module),
        // The pipeline is right but for the architecture, which comes from outside.
        Err(errors) => Report { errors, ..Report::default() },
    }
}
