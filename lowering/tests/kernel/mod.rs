//! Kernels in their thread phase: read from text, compiled, run.

mod cpu;
mod cuda;
mod elementwise;

use rc_ir::Module;
use rc_lowering::{
    backend::{Options, Processor, Session},
    kernel::{Code, CompiledKernel, lower_kernel},
};
use rc_runtime::cpu::{Launch, LoadedObject, Pool};

/// The module that a text is; the verifier accepts it.
pub fn parse(name: &str, text: &str) -> Module {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module(name, text);
    let messages: Vec<String> = diagnostics.iter().map(|d| d.render()).collect();
    let module = module.unwrap_or_else(|| panic!("{}", messages.join("\n")));
    let errors: Vec<String> = rc_ir::verify_module(&module).iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    module
}

/// A file of `test/kernels`.
pub fn kernel_file(name: &str) -> Module {
    let path = format!("{}/../test/kernels/{name}", env!("CARGO_MANIFEST_DIR"));
    parse(name, &std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

pub fn compile(module: &Module, target: &Processor) -> CompiledKernel {
    let compiled = lower_kernel(&Session::new(), &module.bodies[0], target, &Options::default());
    compiled.unwrap_or_else(|error| panic!("{}", error.render()))
}

/// Runs a compiled kernel: pointers to its arguments, then its symbols' values.
pub fn run(kernel: &CompiledKernel, pointers: &[*const u8], symbols: &[i64]) {
    let Code::Object(object) = &kernel.code else { panic!("no object code") };
    let function = LoadedObject::load(object.bytes()).unwrap().kernel(&kernel.info.symbol).unwrap();
    let bind = |name| kernel.info.symbols.iter().position(|s| s.name == name).map(|i| symbols[i]);
    let grid = kernel.info.grid.map(|dim| dim.evaluate(&bind).unwrap() as u64);
    let slots: Vec<u64> = pointers.iter().map(|p| *p as u64).chain(symbols.iter().map(|&s| s as u64)).collect();
    let launch = Launch { scratch: kernel.info.scratch as usize, ..Launch::grid(grid) };
    unsafe { Pool::global().unwrap().launch(function.entry(), &slots, launch) }.unwrap();
}
