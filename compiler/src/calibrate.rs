//! Measuring a machine's figures, for its description.

use crate::{Executable, Target, compile};
use rc_ir::pass::PassManager;
use rc_ir::{Diagnostic, Loc, Module, Result};
use rc_parser::pipeline::parse_pipeline;
use rc_runtime::cpu::Pool;
use rc_runtime::{DType, Tensor};
use std::time::Instant;

/// A figure of a description: what it is called, what it was, what was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub old: f64,
    pub new: f64,
}

/// Runs of a measurement, of which the shortest counts: of long ones, and of those that another process hardly leaves alone.
const RUNS: usize = 15;
const SHORT_RUNS: usize = 400;

/// Launches of a GPU's kernel one after the other.
const LAUNCHES: i64 = 256;

/// Bytes that do not stay in any cache, at most.
const FAR: i64 = 1 << 30;

/// Measures what it can of the machine at hand: rates of memory and of its caches, multiply-adds, the cost of a launch.
///
/// # Errors
/// If the machine is not here, or is another one.
pub fn calibrate(target: &Target) -> Result<Vec<Figure>> {
    let misfit = match target.is_cpu() {
        true => target.needs().misfit_here(),
        false => target.needs().misfit_on(&crate::gpu_arch().map_err(failed)?),
    };
    if let Some(why) = misfit {
        return Err(Diagnostic::error(Loc::UNKNOWN, format!("'{}' is not the machine at hand: {why}", target.name)));
    }
    let mut out = Vec::new();
    let mut add = |name, old, new| out.push(Figure { name, old, new });
    let mut target = target.clone();
    if target.is_cpu() {
        // The rates are those of as many cores as this process may use.
        let cores = Pool::global().map_err(failed)?.threads() as i64;
        add("cores", target.cores as f64, cores as f64);
        target.cores = cores;
    }
    let target = &target;
    let near = if target.is_cpu() { target.cores * target.cache_bytes } else { target.cache_bytes } / 2;
    let far = (4 * target.last_bytes.max(target.cache_bytes)).clamp(1 << 28, FAR);
    add("bandwidth", target.bandwidth, reading(far, target)?);
    add("cache_bandwidth", target.cache_bandwidth, reading(near, target)?);
    if !target.is_cpu() {
        add("launch_us", target.launch_us, launch_us(target)?);
        return Ok(out);
    }
    add("core_bandwidth", target.core_bandwidth, alone(&|| reading(far, target))?);
    add("launch_us", target.launch_us, loop_us()?);
    let peak = multiply_adds(target)?;
    add("flops_f32", target.flops_f32, peak);
    // Without other matrix instructions these are the multiply-adds.
    if target.matrix.iter().all(|m| m.unit == rc_machine::Unit::Fma) {
        add("flops_mma", target.flops_mma, peak);
    }
    Ok(out)
}

/// GB/s of a sum over so many bytes.
fn reading(bytes: i64, target: &Target) -> Result<f64> {
    let columns = 4096;
    let rows = (bytes / 4 / columns).max(1);
    let text = format!(
        "func.func @main(%x: tensor<{rows}x{columns}xf32>) -> tensor<{rows}xf32> {{
  %y = core.reduce %x {{dims = [1], kind = add}} : tensor<{rows}xf32>
  func.return %y
}}
"
    );
    let mut module = parsed(text)?;
    if let Some(error) = compile(&mut module, target).errors.into_iter().next() {
        return Err(Box::new(error));
    }
    let mut x = Tensor::zeros(DType::F32, &[rows as usize, columns as usize]).map_err(failed)?;
    // Memory that was never written is one page for all.
    x.bytes_mut().map_err(failed)?.fill(0);
    let ms = shortest(&module, &[x], RUNS, target)?;
    Ok((rows * columns * 4) as f64 / ms * 1e-6)
}

/// Microseconds of a launch on a GPU, among many one after the other.
fn launch_us(target: &Target) -> Result<f64> {
    let time = |launches: i64| {
        let kernel = "kernel.func @one(%x: memref<1xf32>, %y: memref<1xf32>) attributes {phase = thread, target = cuda, grid = [1, 1, 1], threads = 32} {
  %at = core.constant {value = 0 : index} : index
  %one = core.constant {value = 1.0 : f32} : f32
  kernel.write %one, %y[%at]
  kernel.return
}
";
        let module = with_kernel(kernel, [1, 1], launches, target)?;
        let x = Tensor::zeros(DType::F32, &[1]).map_err(failed)?;
        shortest(&module, &[x], RUNS, target)
    };
    Ok((time(LAUNCHES + 1)? - time(1)?).max(0.0) * 1e3 / LAUNCHES as f64)
}

/// Microseconds of a loop on all threads of a CPU that does nothing.
fn loop_us() -> Result<f64> {
    let pool = Pool::global().map_err(failed)?;
    let once = || {
        let start = Instant::now();
        pool.for_each(8 * pool.threads() as u64, 1, &|_, range| _ = std::hint::black_box(range));
        1e6 * start.elapsed().as_secs_f64()
    };
    Ok((0..10 * SHORT_RUNS).map(|_| once()).fold(f64::INFINITY, f64::min))
}

/// Tflop/s of multiply-adds of vectors in registers, enough of them in flight.
fn multiply_adds(target: &Target) -> Result<f64> {
    let (lanes, steps, sums, programs) = (target.lanes(rc_ir::Type::f32()), 8192, 12, 16 * target.cores);
    let vector = format!("vector<{lanes}xf32>");
    let list = |name: &str| (0..sums).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let carried = (0..sums).map(|i| format!("%a{i} = %b{i}")).collect::<Vec<_>>().join(", ");
    // Different numbers that no compiler knows: else the sums would be one.
    let read = |i: i64| {
        let place = format!("  %p{i} = core.constant {{value = {} : index}} : index\n", i * lanes);
        format!("{place}  %b{i} = kernel.read %x[%p{i}] : {vector}\n")
    };
    let step = |i: i64| match target.has_fma() {
        true => format!("    %n{i} = core.fma %a{i}, %b0, %b1 : {vector}\n"),
        false => format!("    %m{i} = core.mul %a{i}, %b0 : {vector}\n    %n{i} = core.add %m{i}, %b1 : {vector}\n"),
    };
    let added = (1..sums).map(|i| {
        let before = if i == 1 { "%r0".to_string() } else { format!("%t{}", i - 1) };
        format!("  %t{i} = core.add {before}, %r{i} : {vector}\n")
    });
    let kernel = format!(
        "kernel.func @peak(%x: memref<{given}xf32>, %y: memref<{elements}xf32>) attributes {{phase = thread, target = cpu, grid = [{programs}, 1, 1]}} {{
  %zero = core.constant {{value = 0 : index}} : index
  %one = core.constant {{value = 1 : index}} : index
  %lanes = core.constant {{value = {lanes} : index}} : index
  %steps = core.constant {{value = {steps} : index}} : index
  %program = kernel.program_id {{axis = 0}} : index
  %at = core.mul %program, %lanes : index
{reads}  {results} = kernel.for lower(%zero) upper(%steps) step(%one) iter({carried}) ((%i: index) {{
{steps_text}    kernel.yield {next}
  }}) : {types}
{sums_text}  kernel.write %t{last}, %y[%at]
  kernel.return
}}
",
        given = sums * lanes,
        elements = programs * lanes,
        reads = (0..sums).map(read).collect::<String>(),
        results = list("r"),
        next = list("n"),
        types = vec![vector.as_str(); sums as usize].join(", "),
        steps_text = (0..sums).map(step).collect::<String>(),
        sums_text = added.collect::<String>(),
        last = sums - 1,
    );
    let module = with_kernel(&kernel, [sums * lanes, programs * lanes], 1, target)?;
    let x = crate::random_input(DType::F32, &[(sums * lanes) as usize], 0, 0).map_err(failed)?;
    let ms = shortest(&module, &[x], SHORT_RUNS, target)?;
    Ok((programs * steps * sums * lanes * 2) as f64 / ms * 1e-9)
}

/// A function that launches a kernel so many times on its argument and result, of so many elements, compiled.
fn with_kernel(kernel: &str, [given, elements]: [i64; 2], launches: i64, target: &Target) -> Result<Module> {
    let name = kernel.split(['@', '(']).nth(1).unwrap_or_default().to_string();
    let launch = format!("  host.launch %x, %y {{callee = \"{name}\", bind = <>}}\n").repeat(launches as usize);
    let mut module = parsed(format!(
        "host.func @main(%x: memref<{given}xf32>, %y: memref<{elements}xf32>, %arena: memref<?xi8>) attributes {{inputs = 1, arena = [0]}} {{\n{launch}  host.return\n}}\n{kernel}"
    ))?;
    target.set_on(&mut module);
    let passes = if target.is_cpu() { "lower-cpu" } else { "lower-cuda" };
    let errors = match parse_pipeline("pipeline", passes) {
        Ok(passes) => PassManager::new(passes).run(&mut module).errors,
        Err(errors) => errors,
    };
    errors.into_iter().next().map_or(Ok(module), |error| Err(Box::new(error)))
}

fn parsed(text: String) -> Result<Module> {
    let (module, mut errors) = rc_parser::parse_module("calibrate", text);
    module.ok_or_else(|| Box::new(errors.remove(0)))
}

/// Milliseconds of the shortest run.
fn shortest(module: &Module, inputs: &[Tensor], runs: usize, target: &Target) -> Result<f64> {
    let executable = Executable::load(module, None, target.machine)?;
    let times = executable.times_ms(inputs, runs, 2, &mut || Ok(())).map_err(failed)?;
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}

/// What is measured by one thread, while the others have nothing to do.
fn alone(measure: &(dyn Fn() -> Result<f64> + Sync)) -> Result<f64> {
    let pool = Pool::global().map_err(failed)?;
    let found = std::sync::Mutex::new(None);
    // A loop inside a loop runs on its thread alone.
    pool.for_each(2, 1, &|_, range| {
        if range.contains(&0) {
            *found.lock().expect("nothing panics here") = Some(measure());
        }
    });
    found.into_inner().expect("nothing panics here").expect("the loop meets 0")
}

fn failed(error: rc_runtime::Error) -> Box<Diagnostic> {
    Diagnostic::error(Loc::UNKNOWN, error.to_string())
}
