//! Kernels on the first CUDA device.

use crate::{case::Problem, check};
use rc_lowering::kernel::{Code, CompiledKernel, KernelArg, TensorMapInfo};
use rc_runtime::cuda::{
    Arg, Buffer, Device, Event, KernelArgs, LaunchConfig, Module, Stream, Swizzle, TensorMap, TensorMapLayout,
};
use rc_runtime::{Result as RuntimeResult, Tensor};

/// TFLOP/s of bf16 products and GB/s of memory, by the vendor's data sheet.
const PEAKS: &[(&str, (f64, f64))] = &[("H200", (989.0, 4800.0)), ("H100", (989.0, 3350.0)), ("A100", (312.0, 2039.0))];

/// Bytes that are written between timed launches, so that inputs do not stay in the L2 cache.
const FLUSH: usize = 256 << 20;

/// Runs, checks, times. The line that says so.
pub fn run(kernel: &CompiledKernel, problem: &Problem, launches: usize) -> Result<String, String> {
    let text = |error: rc_runtime::Error| error.to_string();
    let Code::Ptx(ptx) = &kernel.code else { return Err("no PTX".into()) };
    let device = Device::open(0).map_err(text)?;
    let stream = Stream::new(&device).map_err(text)?;
    let module = Module::from_ptx(&device, ptx, &Default::default(), None).map_err(text)?;
    let function = module.function(&kernel.info.symbol).map_err(text)?;
    let processors = i64::from(device.info().multiprocessors);
    let bind = |name: rc_ir::Name| match name.as_str() {
        "sms" => Some(processors),
        name => problem.symbols.iter().find(|s| s.0 == name).map(|s| s.1),
    };
    let buffers = upload(&device, &stream, problem).map_err(text)?;
    let mut args = arguments(kernel, &buffers, &bind)?;
    let mut grid = [0; 3];
    for (to, dim) in grid.iter_mut().zip(kernel.info.grid) {
        let extent = dim.evaluate(&bind).ok_or_else(|| format!("the grid {dim} has an unknown symbol"))?;
        *to = u32::try_from(extent).map_err(|_| format!("a grid of {extent}"))?;
    }
    let config = LaunchConfig {
        cluster: kernel.info.cluster,
        ..LaunchConfig::new(grid, [kernel.info.threads, 1, 1]).shared_memory(kernel.info.dynamic_shared)
    };
    let flush = Buffer::new(&device, FLUSH).map_err(text)?;
    let mut times = Vec::new();
    for _ in 0..launches.max(1) + 3 {
        flush.fill(&stream, 0, FLUSH, 0).map_err(text)?;
        let (start, end) = (Event::new(&device).map_err(text)?, Event::new(&device).map_err(text)?);
        start.record(&stream).map_err(text)?;
        // SAFETY: arguments are as the kernel's types say, at sizes bound by the symbols.
        unsafe { stream.launch(&function, &config, &mut args) }.map_err(text)?;
        end.record(&stream).map_err(text)?;
        end.synchronize().map_err(text)?;
        times.push(end.microseconds_since(&start).map_err(text)?);
    }
    let mut output = Tensor::zeros(problem.output_dtype, &problem.output_shape).map_err(text)?;
    let last = buffers.last().expect("the output's buffer");
    last.download(&stream, 0, output.bytes_mut().map_err(text)?).map_err(text)?;
    let worst = check::check(problem, &output)?;
    let peaks = PEAKS.iter().find(|p| device.info().name.contains(p.0)).map(|p| p.1);
    Ok(check::line(problem, check::median(&mut times[3..]), peaks, worst))
}

/// The inputs, and the output poisoned.
fn upload(device: &std::sync::Arc<Device>, stream: &Stream, problem: &Problem) -> RuntimeResult<Vec<Buffer>> {
    let mut buffers = Vec::new();
    for tensor in &problem.inputs {
        let buffer = Buffer::new(device, tensor.bytes().len())?;
        buffer.upload(stream, 0, tensor.bytes())?;
        buffers.push(buffer);
    }
    let size = problem.output_shape.iter().product::<usize>() * problem.output_dtype.size();
    let output = Buffer::new(device, size)?;
    output.fill(stream, 0, size, check::POISON)?;
    stream.synchronize()?;
    buffers.push(output);
    Ok(buffers)
}

fn arguments(
    kernel: &CompiledKernel,
    buffers: &[Buffer],
    bind: &dyn Fn(rc_ir::Name) -> Option<i64>,
) -> Result<KernelArgs, String> {
    if buffers.len() != kernel.info.args.len() {
        return Err(format!("takes {} arguments, the case has {}", kernel.info.args.len(), buffers.len()));
    }
    let mut args = Vec::new();
    for (arg, buffer) in kernel.info.args.iter().zip(buffers) {
        args.push(match arg {
            KernelArg::Memory(_) => Arg::Pointer(buffer.address()),
            KernelArg::TensorMap(map) => Arg::TensorMap(encode(map, buffer.address(), bind)?),
        });
    }
    for symbol in &kernel.info.symbols {
        args.push(Arg::I64(bind(symbol.name).ok_or_else(|| format!("the symbol {} is not bound", symbol.name))?));
    }
    Ok(KernelArgs::new(&args))
}

fn encode(map: &TensorMapInfo, address: u64, bind: &dyn Fn(rc_ir::Name) -> Option<i64>) -> Result<TensorMap, String> {
    let extents: Option<Vec<u64>> =
        map.tensor.shape().iter().map(|dim| dim.evaluate(bind).and_then(|n| u64::try_from(n).ok())).collect();
    let shape = extents.ok_or_else(|| format!("{} has an unknown symbol", map.tensor))?;
    let swizzle = match map.swizzle {
        32 => Swizzle::B32,
        64 => Swizzle::B64,
        128 => Swizzle::B128,
        _ => Swizzle::None,
    };
    let dtype = map.tensor.elem().to_string().parse().map_err(|_| format!("elements of {}", map.tensor))?;
    let layout = TensorMapLayout::contiguous(dtype, &shape, &map.box_shape, swizzle);
    TensorMap::encode(address, &layout).map_err(|error| error.to_string())
}
