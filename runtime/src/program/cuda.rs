//! Programs on a CUDA GPU: constants stay on the device, and the launches are one graph, kept while sizes and addresses stay.

use super::prepare::{At, Machine, PreparedStep, needs_host, run_steps};
use super::replay::Seen;
use super::signature::Bindings;
use super::{Addresses, Between, Code, Memory, Program, fixed};
use crate::cuda::{
    Arg, AssembleOptions, Buffer, CubinCache, Device, Event, Function, Graph, GraphExec, KernelArgs, LaunchConfig,
    Stream, load_all,
};
use crate::foreign::{self, On};
use crate::{Error, Result, Tensor};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A program with its machine code and constants on a device.
pub struct CudaProgram {
    program: Program,
    pub(super) device: Arc<Device>,
    pub(super) stream: Stream,
    pub(super) kernels: Vec<Function>,
    foreign: Vec<foreign::Function>,
    pub(super) constants: Vec<Buffer>,
    last: Mutex<Option<Prepared>>,
    /// The steps of the last run on the caller's memory.
    steps: Mutex<Option<(Bindings, Arc<Vec<PreparedStep>>)>>,
    /// Runs on the caller's memory, the latest first.
    pub(super) seen: Mutex<Vec<Seen>>,
}

/// What an input of a run on host tensors is.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A tensor, copied to the device at every run.
    Host(&'a Tensor),
    /// Memory on the device that is the same at every run.
    Kept(u64),
}

/// Memory and a graph for sizes that are known.
struct Prepared {
    bindings: Bindings,
    /// The memory of inputs from the host.
    inputs: Vec<Option<Buffer>>,
    /// Where every input lies.
    addresses: Vec<u64>,
    outputs: Vec<Buffer>,
    arena: Buffer,
    work: Work,
}

/// Inputs that stay on the device, with what a run on them needs.
pub struct CudaInputs(Prepared);

impl CudaInputs {
    /// The values of the symbols that the inputs' shapes give.
    pub fn bindings(&self) -> &Bindings {
        &self.0.bindings
    }

    fn buffer(&self, i: usize) -> Result<&Buffer> {
        let constant = || Error::Invalid(format!("argument {i} is constant: it was taken at the first call"));
        self.0.inputs[i].as_ref().ok_or_else(constant)
    }
}

/// What a run queues.
enum Work {
    Nothing,
    Graph(GraphExec),
    /// One step after the other, as data decides.
    Steps(Vec<PreparedStep>),
}

impl CudaProgram {
    /// Assembles the program's PTX in the driver (several kernels at once) and loads it and its constants.
    pub fn new(program: Program, device: &Arc<Device>) -> Result<CudaProgram> {
        let mut texts: Vec<(&str, &str)> = Vec::new();
        for binary in &program.kernels {
            let Code::Ptx(text) = &binary.code else {
                return Err(Error::Invalid(format!("the kernel {} is not compiled for a GPU", binary.name)));
            };
            let text = std::str::from_utf8(text.bytes())
                .map_err(|_| Error::Invalid(format!("the code of {} is no text", binary.name)))?;
            texts.push((binary.name.as_str(), text));
        }
        let cache = crate::cache::folder().map(|folder| CubinCache::at(folder.join("cubins")));
        let kernels = load_all(device, &texts, &AssembleOptions::default(), cache.as_ref())?;
        let foreign = program.foreign.iter().map(|name| foreign::find(name)).collect::<Result<_>>()?;
        let stream = Stream::new(device)?;
        let mut constants = Vec::new();
        for constant in &program.constants {
            constants.push(upload(device, &stream, constant.bytes.bytes())?);
        }
        stream.synchronize()?;
        Ok(CudaProgram {
            program,
            device: device.clone(),
            stream,
            kernels,
            foreign,
            constants,
            last: Mutex::new(None),
            steps: Mutex::new(None),
            seen: Mutex::new(Vec::new()),
        })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs the program: inputs in order, which these bindings are of, and results, on the host, in order.
    pub fn run(&self, bindings: &Bindings, inputs: &[Source]) -> Result<Vec<Tensor>> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let prepared = self.prepared(last.take(), bindings, inputs)?;
        let results = self.execute(&prepared, inputs);
        *last = Some(prepared);
        results
    }

    /// Puts inputs on the device, for runs that start from what the one before left in them.
    ///
    /// # Errors
    /// The driver's.
    pub fn keep(&self, bindings: Bindings, inputs: &[Source]) -> Result<CudaInputs> {
        let prepared = self.prepare(bindings, inputs)?;
        self.upload(&prepared, inputs)?;
        self.stream.synchronize()?;
        Ok(CudaInputs(prepared))
    }

    /// Overwrites an input with a tensor of its size.
    ///
    /// # Errors
    /// The driver's; an input that is the same at every run.
    pub fn put(&self, inputs: &CudaInputs, i: usize, tensor: &Tensor) -> Result<()> {
        inputs.buffer(i)?.upload(&self.stream, 0, tensor.bytes())
    }

    /// Leaves an input's elements in a tensor of its size.
    ///
    /// # Errors
    /// As [`CudaProgram::put`].
    pub fn get(&self, inputs: &CudaInputs, i: usize, tensor: &mut Tensor) -> Result<()> {
        inputs.buffer(i)?.download(&self.stream, 0, tensor.bytes_mut()?)?;
        self.stream.synchronize()
    }

    /// Runs the program on inputs that stay where they are: its results, but for those that are left in inputs.
    ///
    /// # Errors
    /// As [`CudaProgram::run`].
    pub fn run_on(&self, inputs: &CudaInputs) -> Result<Vec<Option<Tensor>>> {
        self.replay(&inputs.0)?;
        let given =
            |(i, left): (usize, &Option<usize>)| left.is_none().then(|| self.download(&inputs.0, i)).transpose();
        let results = self.program.left_in.iter().enumerate().map(given).collect();
        self.stream.synchronize()?;
        results
    }

    /// Milliseconds of `runs` runs of the kernels, between events, after `warm` ones that do not count; `before` is called before each. Inputs and
    /// results stay on the device.
    pub fn times_ms(
        &self,
        bindings: &Bindings,
        inputs: &[Source],
        runs: usize,
        warm: usize,
        before: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let prepared = self.prepared(last.take(), bindings, inputs)?;
        self.execute(&prepared, inputs)?;
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let mut times = Vec::with_capacity(runs);
        for i in 0..runs + warm {
            before()?;
            start.record(&self.stream)?;
            self.replay(&prepared)?;
            end.record(&self.stream)?;
            end.synchronize()?;
            if i >= warm {
                times.push(end.microseconds_since(&start)? / 1e3);
            }
        }
        *last = Some(prepared);
        Ok(times)
    }

    /// Queues the program on the caller's memory and stream, and returns at once: a device address for each input and each result,
    /// row-major, and the arena's, of [`Program::arena_bytes`]. `stream` is a `CUstream` of the program's device.
    ///
    /// # Errors
    /// Sizes that have no value under `bindings`; launches that the driver refuses.
    ///
    /// # Safety
    /// There are as many addresses as the signature has inputs and outputs, each valid until the stream has done the work, for the
    /// sizes that `bindings` gives them; results, inputs that the program updates, and arena overlap nothing; the symbols' values are in their
    /// ranges. The address of a result that is left in an input is not used.
    pub unsafe fn run_at(
        &self,
        bindings: &Bindings,
        inputs: &[u64],
        outputs: &[u64],
        arena: u64,
        stream: *mut c_void,
    ) -> Result<()> {
        let outputs = fixed(outputs.iter().copied());
        // SAFETY: the caller vouches for the same.
        unsafe { self.run_between(bindings, inputs, &outputs, arena, stream, &mut |_| Ok(())) }
    }

    /// As [`CudaProgram::run_at`], on memory that need be there while steps that use it are queued ([`Program::uses`]): `between` may come to give and take
    /// it, from an allocator that gives a stream's memory to what comes later on that stream.
    ///
    /// # Errors
    /// As there, and those of `between`.
    ///
    /// # Safety
    /// As there, for each step.
    pub unsafe fn run_between(
        &self,
        bindings: &Bindings,
        inputs: &[u64],
        outputs: &Addresses,
        arena: u64,
        stream: *mut c_void,
        between: Between,
    ) -> Result<()> {
        let steps = self.steps(bindings)?;
        // SAFETY: the caller's stream is one of the device.
        let stream = unsafe { Stream::borrow(&self.device, stream) };
        let address = |memory| match memory {
            Memory::Input(i) => inputs[i],
            Memory::Output(i) => outputs[i].load(Ordering::Relaxed),
            Memory::Arena => arena,
            Memory::Constant(i) => self.constants[i].address(),
        };
        let mut queue = Queue { program: self, stream: &stream, address: &address, after_kernel: false };
        for (number, step) in steps.iter().enumerate() {
            between(number)?;
            run_steps(&mut queue, std::slice::from_ref(step), &mut Vec::new())?;
        }
        between(steps.len())
    }

    /// The steps for these values of the symbols; those of the last are kept.
    pub(super) fn steps(&self, bindings: &Bindings) -> Result<Arc<Vec<PreparedStep>>> {
        let mut last = self.steps.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, steps)) = last.as_ref().filter(|(known, _)| known == bindings) {
            return Ok(steps.clone());
        }
        let steps = Arc::new(self.program.prepare(bindings)?);
        *last = Some((bindings.clone(), steps.clone()));
        Ok(steps)
    }

    fn prepared(&self, last: Option<Prepared>, bindings: &Bindings, inputs: &[Source]) -> Result<Prepared> {
        match last {
            Some(prepared) if prepared.bindings == *bindings => Ok(prepared),
            _ => self.prepare(bindings.clone(), inputs),
        }
    }

    fn execute(&self, prepared: &Prepared, inputs: &[Source]) -> Result<Vec<Tensor>> {
        self.upload(prepared, inputs)?;
        self.replay(prepared)?;
        let results = (0..self.program.left_in.len()).map(|i| self.download(prepared, i)).collect();
        self.stream.synchronize()?;
        results
    }

    /// Queues the copies of inputs to the device.
    fn upload(&self, prepared: &Prepared, inputs: &[Source]) -> Result<()> {
        for (buffer, input) in prepared.inputs.iter().zip(inputs) {
            if let (Some(buffer), Source::Host(tensor)) = (buffer, input) {
                buffer.upload(&self.stream, 0, tensor.bytes())?;
            }
        }
        Ok(())
    }

    /// Queues the copy of a result to the host.
    fn download(&self, prepared: &Prepared, result: usize) -> Result<Tensor> {
        let spec = &self.program.signature.outputs[result];
        let updated = self.program.left_in[result].and_then(|input| prepared.inputs[input].as_ref());
        let buffer = updated.unwrap_or(&prepared.outputs[result]);
        let mut tensor = Tensor::zeros(spec.dtype, &spec.sizes(&prepared.bindings)?)?;
        buffer.download(&self.stream, 0, tensor.bytes_mut()?)?;
        Ok(tensor)
    }

    fn replay(&self, prepared: &Prepared) -> Result<()> {
        match &prepared.work {
            Work::Nothing => Ok(()),
            // SAFETY: the graph's launches were queued for the memory that `prepared` holds.
            Work::Graph(graph) => unsafe { graph.launch(&self.stream) },
            Work::Steps(steps) => {
                let (inputs, outputs) = (&prepared.addresses, &prepared.outputs);
                self.queue_all(&self.stream, steps, &self.addresses(inputs, outputs, &prepared.arena))
            }
        }
    }

    /// Where memory is.
    fn addresses<'a>(
        &'a self,
        inputs: &'a [u64],
        outputs: &'a [Buffer],
        arena: &'a Buffer,
    ) -> impl Fn(Memory) -> u64 + 'a {
        move |memory| match memory {
            Memory::Input(i) => inputs[i],
            Memory::Output(i) => outputs[i].address(),
            Memory::Arena => arena.address(),
            Memory::Constant(i) => self.constants[i].address(),
        }
    }

    fn prepare(&self, bindings: Bindings, sources: &[Source]) -> Result<Prepared> {
        let signature = &self.program.signature;
        let buffer = |spec: &super::TensorSpec| -> Result<Buffer> {
            let size = crate::tensor::byte_size(spec.dtype, &spec.sizes(&bindings)?)?;
            Buffer::new(&self.device, size.max(1))
        };
        let input = |(spec, source): (&super::TensorSpec, &Source)| match source {
            Source::Host(_) => buffer(spec).map(Some),
            Source::Kept(_) => Ok(None),
        };
        let inputs = signature.inputs.iter().zip(sources).map(input).collect::<Result<Vec<_>>>()?;
        let address = |(buffer, source): (&Option<Buffer>, &Source)| match source {
            Source::Kept(address) => *address,
            Source::Host(_) => buffer.as_ref().map_or(0, Buffer::address),
        };
        let addresses: Vec<u64> = inputs.iter().zip(sources).map(address).collect();
        let output = |(spec, left): (&super::TensorSpec, &Option<usize>)| match left {
            Some(_) => Buffer::new(&self.device, 1),
            None => buffer(spec),
        };
        let outputs = signature.outputs.iter().zip(&self.program.left_in).map(output).collect::<Result<Vec<_>>>()?;
        let arena = Buffer::new(&self.device, self.program.arena_bytes(&bindings)?.max(1))?;
        // What no kernel writes is then seen as NaN, and not as what happened to be there.
        for buffer in outputs.iter().chain([&arena]) {
            buffer.fill(&self.stream, 0, buffer.size(), UNWRITTEN)?;
        }
        self.stream.synchronize()?;
        let steps = self.program.prepare(&bindings)?;
        let work = if needs_host(&steps) {
            Work::Steps(steps)
        } else {
            let address = self.addresses(&addresses, &outputs, &arena);
            let graph = Graph::capture(&self.stream, &self.kernels, |stream| self.queue_all(stream, &steps, &address))?;
            if graph.node_count()? == 0 { Work::Nothing } else { Work::Graph(graph.instantiate()?) }
        };
        Ok(Prepared { bindings, inputs, addresses, outputs, arena, work })
    }

    /// Queues steps in order. A kernel that waits by itself may start before the one ahead of it, if that is the program's own, has ended.
    pub(super) fn queue_all(
        &self,
        stream: &Stream,
        steps: &[PreparedStep],
        address: &dyn Fn(Memory) -> u64,
    ) -> Result<()> {
        run_steps(&mut Queue { program: self, stream, address, after_kernel: false }, steps, &mut Vec::new())
    }
}

/// A run that is being queued.
struct Queue<'a> {
    program: &'a CudaProgram,
    stream: &'a Stream,
    address: &'a dyn Fn(Memory) -> u64,
    after_kernel: bool,
}

impl Queue<'_> {
    fn at(&self, at: &At, turns: &[usize]) -> u64 {
        (self.address)(at.memory) + at.offset(turns) as u64
    }

    fn launch(&self, kernel: usize, args: &[u64], symbols: &[i64], grid: &[u64; 3]) -> Result<()> {
        let binary = &self.program.program.kernels[kernel];
        let mut values: Vec<Arg> = args.iter().map(|&address| Arg::Pointer(address)).collect();
        let bind = |name| binary.symbols.iter().position(|&s| s == name).map(|i| symbols[i]);
        for map in &binary.maps {
            let encoded = Arg::TensorMap(map.encode(args[map.arg], &bind)?);
            match values.get_mut(map.param) {
                Some(value) => *value = encoded,
                None => values.push(encoded),
            }
        }
        values.extend(symbols.iter().map(|&n| Arg::I64(n)));
        let too_large = |_| Error::Invalid(format!("the kernel {} has a grid of {grid:?} blocks", binary.name));
        let mut extents = [0u32; 3];
        for (extent, &n) in extents.iter_mut().zip(grid) {
            *extent = u32::try_from(n).map_err(too_large)?;
        }
        let mut config = LaunchConfig::new(extents, [binary.threads, 1, 1]).shared_memory(binary.shared);
        config.cluster = binary.cluster;
        config.programmatic = binary.early && self.after_kernel;
        let mut values = if binary.table { KernelArgs::table(args) } else { KernelArgs::new(&values) };
        // SAFETY: the code was generated for these arguments: buffers of the planned sizes, the kernel's
        // symbols in their order; they live as long as the graph.
        unsafe { self.stream.launch(&self.program.kernels[kernel], &config, &mut values) }
    }
}

impl Machine for Queue<'_> {
    fn simple(&mut self, step: &PreparedStep, turns: &[usize]) -> Result<()> {
        match step {
            PreparedStep::Launch { kernel, args, symbols, grid, .. } => {
                let args: Vec<u64> = args.iter().map(|a| self.at(a, turns)).collect();
                self.launch(*kernel, &args, symbols, grid)?;
                self.after_kernel |= !grid.contains(&0);
            }
            PreparedStep::Copy { from, to, bytes } => {
                // SAFETY: both places have that many bytes, and the plan gives results memory of their own.
                unsafe { self.stream.copy(self.at(to, turns), self.at(from, turns), *bytes)? };
                self.after_kernel = false;
            }
            PreparedStep::Foreign(call) => {
                let program = self.program;
                let function = (program.program.foreign[call.function].as_str(), &program.foreign[call.function]);
                let on = On::Cuda { device: program.device.ordinal(), stream: self.stream.raw() };
                call.run(function, on, |at| self.at(at, turns))?;
                self.after_kernel = false;
            }
            PreparedStep::If { .. } | PreparedStep::Loop(_) => {}
        }
        Ok(())
    }

    fn truth(&mut self, at: &At, turns: &[usize]) -> Result<bool> {
        if self.stream.is_capturing()? {
            let what = "a choice or a loop that depends on what is computed, while a CUDA graph is captured";
            return Err(Error::Unsupported(format!("{what}: run this function outside of the capture")));
        }
        self.after_kernel = false;
        // SAFETY: the plan gives a condition a byte, which the steps before write.
        Ok(unsafe { self.stream.read_byte(self.at(at, turns))? } != 0)
    }
}

/// The byte that memory starts with: NaN in every float type.
const UNWRITTEN: u8 = 0xff;

fn upload(device: &Arc<Device>, stream: &Stream, bytes: &[u8]) -> Result<Buffer> {
    let buffer = Buffer::new(device, bytes.len().max(1))?;
    buffer.upload(stream, 0, bytes)?;
    Ok(buffer)
}
