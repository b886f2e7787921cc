//! Pipelines by target.

use rc_ir::Module;
use rc_ir::pass::{PassInstrumentation, PassManager, Report};
use rc_machine::{Machine, Target};
use rc_parser::pipeline::parse_pipeline;
use std::path::Path;

/// The pipeline from any stage to machine code, as text.
pub fn pipeline(target: &Target) -> String {
    format!("{}{}", early(target), last(target))
}

/// The passes on tensors, each with a comma.
pub(crate) fn early(target: &Target) -> String {
    let spread = match target.machine {
        Machine::Cpu => "",
        Machine::Cuda => "align-products,cse,split-scans,order-scatters,split-sorts,",
    };
    format!("decompose,canonicalize,cse,dce,layout,hoist-constants,in-parts,{spread}fuse,cse,")
}

fn last(target: &Target) -> &'static str {
    if target.machine == Machine::Cpu { "lower-cpu" } else { "lower-cuda" }
}

/// Runs the pipeline for a target. The report holds remarks, errors and timing; on errors the module is as the failing pass left it.
pub fn compile(module: &mut Module, target: &Target) -> Report {
    run(module, target, &pipeline(target), Vec::new())
}

/// As [`compile`], while `hooks` look on.
pub fn compile_watched(module: &mut Module, target: &Target, hooks: Vec<Box<dyn PassInstrumentation>>) -> Report {
    run(module, target, &pipeline(target), hooks)
}

/// As [`compile`], with the schedules that a file of measured ones has.
pub fn compile_tuned(module: &mut Module, target: &Target, tuning: &Path) -> Report {
    let file = tuning.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    run(module, target, &format!("{}schedule{{tuning=\"{file}\"}},{}", early(target), last(target)), Vec::new())
}

fn run(module: &mut Module, target: &Target, pipeline: &str, hooks: Vec<Box<dyn PassInstrumentation>>) -> Report {
    target.set_on(module);
    match parse_pipeline("pipeline", pipeline) {
        Ok(passes) => {
            let mut manager = PassManager::new(passes);
            manager.instrumentations = hooks;
            manager.run(module)
        }
        Err(errors) => Report { errors, ..Report::default() },
    }
}
