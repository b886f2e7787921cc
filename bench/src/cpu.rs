//! Kernels on this machine's CPU.

use crate::{case::Problem, check};
use rc_lowering::kernel::{Code, CompiledKernel};
use rc_runtime::Tensor;
use rc_runtime::cpu::{Launch, LoadedObject, Pool};
use std::time::Instant;

/// Runs, checks, times. The line that says so.
pub fn run(kernel: &CompiledKernel, problem: &Problem, launches: usize) -> Result<String, String> {
    let text = |error: rc_runtime::Error| error.to_string();
    let Code::Object(object) = &kernel.code else { return Err("no object code".into()) };
    let function = LoadedObject::load(object.bytes()).and_then(|o| o.kernel(&kernel.info.symbol)).map_err(text)?;
    let pool = Pool::global().map_err(text)?;
    let threads = pool.threads() as i64;
    let bind = |name: rc_ir::Name| match name.as_str() {
        "threads" => Some(threads),
        name => problem.symbols.iter().find(|s| s.0 == name).map(|s| s.1),
    };
    let mut grid = [0; 3];
    for (to, dim) in grid.iter_mut().zip(kernel.info.grid) {
        *to = dim.evaluate(&bind).ok_or_else(|| format!("the grid {dim} has an unknown symbol"))? as u64;
    }
    let mut output = Tensor::zeros(problem.output_dtype, &problem.output_shape).map_err(text)?;
    output.bytes_mut().map_err(text)?.fill(check::POISON);
    let mut slots: Vec<u64> = problem.inputs.iter().map(|tensor| tensor.as_ptr() as u64).collect();
    slots.push(output.as_mut_ptr().map_err(text)? as u64);
    for symbol in &kernel.info.symbols {
        slots.push(bind(symbol.name).ok_or_else(|| format!("the symbol {} is not bound", symbol.name))? as u64);
    }
    let launch = Launch { scratch: kernel.info.scratch as usize, ..Launch::grid(grid) };
    let mut times = Vec::new();
    for _ in 0..launches.max(1) + 2 {
        let start = Instant::now();
        // SAFETY: arguments are as the kernel's types say, at sizes bound by the symbols.
        unsafe { pool.launch(function.entry(), &slots, launch) }.map_err(text)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let worst = check::check(problem, &output)?;
    Ok(check::line(problem, check::median(&mut times[2..]), None, worst))
}
