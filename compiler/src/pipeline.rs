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
        Machine::Cuda => "align-products,split-products,cse,order-scatters,split-sorts,split-scans,",
    };
    format!("decompose,canonicalize,cse,dce,layout,hoist-constants,in-parts,{spread}fuse,cse,")
}

fn last(target: &Target) -> &'static str {
    if target.machine == Machine::Cpu { "lower-cpu" } else { "lower-cuda" }
}

/// The part of the pipeline that says what rc cannot do: to kernels of which [`code`] makes machine code.
pub(crate) fn kernels(module: &mut Module, target: &Target) -> Report {
    run_by(module, target, &pipeline(target), |manager, module| manager.run_before_last(module))
}

/// The rest of it: what fails here is a defect of rc's.
pub(crate) fn code(module: &mut Module, target: &Target) -> Report {
    run(module, target, last(target), Vec::new())
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
    run_by(module, target, pipeline, |manager, module| {
        manager.instrumentations = hooks;
        manager.run(module)
    })
}

fn run_by(
    module: &mut Module,
    target: &Target,
    pipeline: &str,
    run: impl FnOnce(&mut PassManager, &mut Module) -> Report,
) -> Report {
    target.set_on(module);
    match parse_pipeline("pipeline", pipeline) {
        Ok(passes) => run(&mut PassManager::new(passes), module),
        Err(errors) => Report { errors, ..Report::default() },
    }
}
