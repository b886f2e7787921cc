//! Programs on a CUDA GPU: constants stay on the device, and launches between which the host has nothing to do are CUDA graphs.

use super::graphs::Pool;
use super::kernels::Kernels;
use super::prepare::{PreparedStep, needs_host};
use super::queue::{Exec, Queue};
use super::record::Places;
use super::signature::Bindings;
use super::stretch::Stretch;
use super::{Addresses, Arena, Between, Program, fixed};
use crate::cuda::{Buffer, Conditions, Device, Function, Stream};
use crate::foreign;
use crate::{Error, Result, Tensor};
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// A program with its machine code and constants on a device.
pub struct CudaProgram {
    pub(super) program: Program,
    pub(super) device: Arc<Device>,
    pub(super) stream: Stream,
    kernels: Kernels,
    pub(super) foreign: Vec<foreign::Function>,
    conditions: OnceLock<Result<Conditions, String>>,
    constants: Arc<[Buffer]>,
    /// Where they are.
    pub(super) places: Vec<u64>,
    pub(super) last: Mutex<Option<Prepared>>,
    /// Those of the last runs' sizes, the latest first.
    plans: Mutex<Vec<Arc<Plan>>>,
    /// Of each stretch, by its first step.
    graphs: Mutex<FxHashMap<usize, Pool<Exec>>>,
    /// Whether stretches are graphs.
    pub(super) as_graphs: AtomicBool,
    /// Done when a caller's graph has launches of this program's.
    captured: Once,
}

/// What callers' graphs use, which may run as long as the process does.
static CAPTURED: Mutex<Vec<(Vec<Function>, Arc<[Buffer]>)>> = Mutex::new(Vec::new());

/// Plans that a program keeps; the one that was used longest ago goes first.
const PLANS: usize = 8;

/// What a run of known sizes queues.
pub(super) struct Plan {
    bindings: Bindings,
    stops: Vec<usize>,
    pub(super) pieces: Vec<(usize, Piece)>,
}

/// Some of a program's outermost steps, from one on.
pub(super) enum Piece {
    Stretch(Arc<Stretch>),
    /// One that needs the host: a function of the process is called, or turns are counted.
    Host(PreparedStep),
}

/// What an input of a run on host tensors is.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A tensor, copied to the device at every run.
    Host(&'a Tensor),
    /// Memory on the device that is the same at every run.
    Kept(u64),
}

/// Memory for sizes that are known.
pub(super) struct Prepared {
    bindings: Bindings,
    /// The memory of inputs from the host.
    inputs: Vec<Option<Buffer>>,
    /// Where every input lies.
    addresses: Vec<u64>,
    outputs: Vec<Buffer>,
    arena: Buffer,
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

impl CudaProgram {
    /// A program that is ready to run: [`CudaProgram::behind`], and a wait for its kernels.
    ///
    /// # Errors
    /// The driver's and its assembler's.
    pub fn new(program: Program, device: &Arc<Device>) -> Result<CudaProgram> {
        let made = CudaProgram::behind(program, device)?;
        made.kernels.get()?;
        Ok(made)
    }

    /// Loads the program's constants, and begins to assemble its PTX in the driver (several kernels at once) and to load it, for which the first run
    /// waits: what is wrong with it is an error there.
    ///
    /// # Errors
    /// The driver's.
    pub fn behind(program: Program, device: &Arc<Device>) -> Result<CudaProgram> {
        let kernels = Kernels::load(device, &program.kernels)?;
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
            conditions: OnceLock::new(),
            places: constants.iter().map(Buffer::address).collect(),
            constants: constants.into(),
            last: Mutex::new(None),
            plans: Mutex::default(),
            graphs: Mutex::default(),
            as_graphs: AtomicBool::new(std::env::var("RC_GRAPHS").as_deref() != Ok("off")),
            captured: Once::new(),
        })
    }

    /// Whether launches between which the host has nothing to do are CUDA graphs, from the second run on. They are, unless the variable `RC_GRAPHS`
    /// is `off`.
    pub fn set_graphs(&self, on: bool) {
        self.as_graphs.store(on, Ordering::Relaxed);
    }

    /// What became of runs' launches, a line for each stretch of them: whether they were CUDA graphs, and why not.
    pub fn explain_graphs(&self) -> Vec<String> {
        let graphs = locked(&self.graphs);
        let mut pools: Vec<_> = graphs.iter().collect();
        pools.sort_unstable_by_key(|(first, _)| **first);
        let off = if self.as_graphs.load(Ordering::Relaxed) { "" } else { " (graphs are off)" };
        pools.iter().map(|(first, pool)| format!("from step {first}: {}{off}", pool.explain())).collect()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// A kernel of the program, once all are loaded.
    pub(super) fn kernel(&self, i: usize) -> Result<&Function> {
        Ok(&self.kernels.get()?[i])
    }

    /// What tells graphs how to go on, loaded at the first use.
    pub(super) fn conditions(&self) -> Result<&Conditions> {
        let loaded = self.conditions.get_or_init(|| Conditions::load(&self.device).map_err(|e| e.to_string()));
        loaded.as_ref().map_err(|why| Error::Unsupported(format!("choices and loops in a CUDA graph: {why}")))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs the program: inputs in order, which these bindings are of, and results, on the host, in order.
    pub fn run(&self, bindings: &Bindings, inputs: &[Source]) -> Result<Vec<Tensor>> {
        let mut last = locked(&self.last);
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

    /// Has memory of the program's own, with these inputs in it, and gives a function its stream and where the memory begins.
    pub(super) fn on_prepared<T>(
        &self,
        bindings: &Bindings,
        inputs: &[Source],
        work: impl FnOnce(&Stream, &[u64]) -> Result<T>,
    ) -> Result<T> {
        let mut last = locked(&self.last);
        let prepared = self.prepared(last.take(), bindings, inputs)?;
        self.upload(&prepared, inputs)?;
        let outputs = fixed(prepared.outputs.iter().map(Buffer::address));
        let mut bases = Vec::new();
        self.leave_bases(&mut bases, &prepared.addresses, &outputs, Arena::Whole(prepared.arena.address()));
        let result = work(&self.stream, &bases);
        *last = Some(prepared);
        result
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
        unsafe { self.run_between(bindings, inputs, &outputs, Arena::Whole(arena), stream, &[], &mut |_| Ok(())) }
    }

    /// As [`CudaProgram::run_at`], on memory that need be there while steps that use it are queued ([`Program::uses`]), slabs of the arena too: `between` may come to give and take
    /// it, from an allocator that gives a stream's memory to what comes later on that stream. It comes before the steps `stops`, which are sorted, before
    /// some others, and after the last. Launches between stops may be one CUDA graph, unless the caller captures its stream.
    ///
    /// # Errors
    /// As there, and those of `between`.
    ///
    /// # Safety
    /// As there, for the steps between two stops.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn run_between(
        &self,
        bindings: &Bindings,
        inputs: &[u64],
        outputs: &Addresses,
        arena: Arena<'_>,
        stream: *mut c_void,
        stops: &[usize],
        between: Between,
    ) -> Result<()> {
        let plan = self.plan(bindings, stops)?;
        // SAFETY: the caller's stream is one of the device.
        let stream = unsafe { Stream::borrow(&self.device, stream) };
        // Where another stream is captured, the default one cannot be asked.
        let captured = stream.is_capturing();
        if matches!(captured, Ok(true)) {
            self.keep_for_captures()?;
        }
        let as_graphs = self.as_graphs.load(Ordering::Relaxed) && matches!(captured, Ok(false));
        let mut bases = Vec::new();
        for (first, piece) in &plan.pieces {
            between(*first)?;
            self.leave_bases(&mut bases, inputs, outputs, arena);
            let queue = Queue::new(self, &stream, &bases);
            match piece {
                Piece::Stretch(stretch) if as_graphs => {
                    // Another thread may be capturing a stream, which making and dropping graphs is no part of.
                    let _relaxed = self.device.relaxed();
                    locked(&self.graphs).entry(*first).or_default().run(&queue, stretch, &bases)?;
                }
                Piece::Stretch(stretch) => queue.nodes(stretch.nodes())?,
                Piece::Host(step) => queue.step(step)?,
            }
        }
        between(self.program.steps.len())
    }

    /// Keeps kernels and constants until the process ends, though the program may be dropped before.
    fn keep_for_captures(&self) -> Result<()> {
        let kernels = self.kernels.get()?;
        self.captured.call_once(|| locked(&CAPTURED).push((kernels.to_vec(), self.constants.clone())));
        Ok(())
    }

    /// Leaves in `bases` where a run's memory begins: inputs, results, and the arena or its slabs.
    fn leave_bases(&self, bases: &mut Vec<u64>, inputs: &[u64], outputs: &Addresses, arena: Arena) {
        bases.clear();
        bases.extend_from_slice(inputs);
        bases.extend(outputs.iter().map(|address| address.load(Ordering::Relaxed)));
        let slabs = &self.program.slabs;
        match arena {
            Arena::Whole(address) => bases.extend(std::iter::repeat_n(address, slabs.len().max(1))),
            // Places count from the arena's start.
            Arena::Slabs(addresses) => bases.extend(
                addresses
                    .iter()
                    .zip(slabs)
                    .map(|(address, (from, _))| address.load(Ordering::Relaxed).wrapping_sub(*from as u64)),
            ),
        }
    }

    /// What a run of these sizes queues; those of the last are kept.
    pub(super) fn plan(&self, bindings: &Bindings, stops: &[usize]) -> Result<Arc<Plan>> {
        let mut plans = locked(&self.plans);
        let known = plans.iter().position(|plan| plan.bindings == *bindings && plan.stops == stops);
        if let Some(place) = known {
            plans[..=place].rotate_right(1);
            return Ok(plans[0].clone());
        }
        let pieces = self.pieces(self.program.prepare(bindings)?, stops)?;
        let plan = Arc::new(Plan { bindings: bindings.clone(), stops: stops.to_vec(), pieces });
        plans.insert(0, plan.clone());
        plans.truncate(PLANS);
        Ok(plan)
    }

    fn pieces(&self, steps: Vec<PreparedStep>, stops: &[usize]) -> Result<Vec<(usize, Piece)>> {
        let places = Places { program: &self.program, constants: &self.places };
        let (mut pieces, mut waiting) = (Vec::new(), Vec::new());
        let flush = |waiting: &mut Vec<PreparedStep>, end: usize, pieces: &mut Vec<(usize, Piece)>| {
            if !waiting.is_empty() {
                let stretch = Stretch::record(&places, waiting)?;
                pieces.push((end - waiting.len(), Piece::Stretch(Arc::new(stretch))));
                waiting.clear();
            }
            Ok::<_, Error>(())
        };
        let count = steps.len();
        for (number, step) in steps.into_iter().enumerate() {
            let by_host = needs_host(std::slice::from_ref(&step));
            if by_host || stops.binary_search(&number).is_ok() {
                flush(&mut waiting, number, &mut pieces)?;
            }
            match by_host {
                true => pieces.push((number, Piece::Host(step))),
                false => waiting.push(step),
            }
        }
        flush(&mut waiting, count, &mut pieces)?;
        Ok(pieces)
    }

    pub(super) fn prepared(&self, last: Option<Prepared>, bindings: &Bindings, inputs: &[Source]) -> Result<Prepared> {
        match last {
            Some(prepared) if prepared.bindings == *bindings => Ok(prepared),
            _ => self.prepare(bindings.clone(), inputs),
        }
    }

    pub(super) fn execute(&self, prepared: &Prepared, inputs: &[Source]) -> Result<Vec<Tensor>> {
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

    pub(super) fn replay(&self, prepared: &Prepared) -> Result<()> {
        let Prepared { bindings, addresses, outputs, arena, .. } = prepared;
        let outputs: Vec<u64> = outputs.iter().map(Buffer::address).collect();
        // SAFETY: `prepared` holds memory of the sizes that its bindings give.
        unsafe { self.run_at(bindings, addresses, &outputs, arena.address(), self.stream.raw()) }
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
        Ok(Prepared { bindings, inputs, addresses, outputs, arena })
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The byte that memory starts with: NaN in every float type.
const UNWRITTEN: u8 = 0xff;

fn upload(device: &Arc<Device>, stream: &Stream, bytes: &[u8]) -> Result<Buffer> {
    let buffer = Buffer::new(device, bytes.len().max(1))?;
    buffer.upload(stream, 0, bytes)?;
    Ok(buffer)
}
