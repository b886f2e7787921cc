//! Pipelines by target.

use rc_ir::Module;
use rc_ir::pass::{PassManager, Report};
use rc_machine::{Machine, Target};
use rc_parser::pipeline::parse_pipeline;

/// The pipeline from any stage to machine code, as text.
pub fn pipeline(target: &Target) -> String {
    let (spread, last) = match target.machine {
        Machine::Cpu => ("", "lower-cpu"),
        Machine::Cuda => ("align-products,cse,split-scans,order-scatters,split-sorts,", "lower-cuda"),
    };
    format!("decompose,canonicalize,cse,dce,layout,hoist-constants,{spread}fuse,cse,{last}")
}

/// Runs the pipeline for a target. The report holds remarks, errors and timing; on errors the module is as the failing pass left it.
pub fn compile(module: &mut Module, target: &Target) -> Report {
    target.set_on(module);
    match parse_pipeline("pipeline", &pipeline(target)) {
        Ok(passes) => PassManager::new(passes).run(module),
        Err(errors) => Report { errors, ..Report::default() },
    }
}
