//! Programs on the CPU.

use super::bands::{Guarded, POISON};
use super::prepare::{At, Machine, PreparedStep, run_steps};
use super::signature::Bindings;
use super::{Addresses, Between, Code, Exact, Guard, Memory, Program, fixed};
use crate::call::{Frame, Tensors};
use crate::cpu::{Kernel, Launch, LoadedObject, Pool};
use crate::executable::check_memory;
use crate::foreign::{self, Function, On};
use crate::tensor::{ALIGNMENT, AlignedBuffer, byte_size};
use crate::{Allocator, DType, Error, Result, Tensor};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A program with its machine code in memory.
pub struct CpuProgram {
    program: Program,
    guard: Guard,
    kernels: Vec<Kernel>,
    foreign: Vec<Function>,
    last: Mutex<Last>,
    allocator: Option<Arc<dyn Allocator>>,
    /// The results of the last run on host tensors. The next run writes to those that its caller let go, whose pages are there already.
    results: Mutex<Vec<Tensor>>,
}

/// What the next run need not make again.
#[derive(Default)]
struct Last {
    /// The arena of the last run, and the steps for its sizes; runs of other sizes make them anew.
    prepared: Option<Prepared>,
    frame: Frame,
}

/// Steps with every size known.
struct Prepared {
    bindings: Bindings,
    arguments: Exact,
    arena: Arena,
    steps: Vec<PreparedStep>,
    /// The results' dtypes and shapes.
    results: Vec<Kind>,
    /// Memory for a launch's arguments.
    slots: Vec<u64>,
}

/// A tensor's dtype and shape.
type Kind = (DType, Vec<usize>);

/// Where steps work.
enum Arena {
    Own(AlignedBuffer),
    /// So many bytes of the caller's, for each run.
    Callers(usize),
}

impl CpuProgram {
    /// Maps and relocates the program's object code.
    pub fn new(program: Program) -> Result<CpuProgram> {
        let mut objects: FxHashMap<*const u8, Arc<LoadedObject>> = FxHashMap::default();
        let mut kernels = Vec::new();
        for binary in &program.kernels {
            let Code::Elf(code) = &binary.code else {
                return Err(Error::Invalid(format!("the kernel {} is not compiled for the CPU", binary.name)));
            };
            let object = match objects.get(&code.bytes().as_ptr()) {
                Some(object) => object.clone(),
                None => LoadedObject::load(code.bytes())?,
            };
            objects.insert(code.bytes().as_ptr(), object.clone());
            kernels.push(object.kernel(binary.name.as_str())?);
        }
        let guard = Guard::new(&program.signature, program.signature.inputs.len());
        let foreign = program.foreign.iter().map(|name| foreign::find(name)).collect::<Result<_>>()?;
        Ok(CpuProgram {
            program,
            guard,
            kernels,
            foreign,
            last: Mutex::default(),
            allocator: None,
            results: Mutex::default(),
        })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Has runs work in the caller's memory.
    pub fn set_allocator(&mut self, allocator: Arc<dyn Allocator>) {
        self.allocator = Some(allocator);
    }

    /// Runs the program: inputs in order, results in order. Fails where the inputs do not fit its signature.
    pub fn run(&self, inputs: &(impl Tensors + ?Sized)) -> Result<Vec<Tensor>> {
        self.run_watched(inputs, &mut |_| Ok(()))
    }

    /// Runs the program, and gives the time of each of its steps, in their order.
    ///
    /// # Errors
    /// As [`CpuProgram::run`].
    pub fn step_times(&self, inputs: &(impl Tensors + ?Sized)) -> Result<Vec<Duration>> {
        let (mut times, mut last) = (Vec::with_capacity(self.program.steps.len()), Instant::now());
        self.run_watched(inputs, &mut |step| {
            let now = Instant::now();
            let took = now - std::mem::replace(&mut last, now);
            if step > 0 {
                times.push(took);
            }
            Ok(())
        })?;
        Ok(times)
    }

    /// Runs the program, and leaves its results in the caller's memory.
    ///
    /// # Errors
    /// As [`CpuProgram::run`]; memory of another size or alignment than a result has.
    pub fn run_into(&self, inputs: &(impl Tensors + ?Sized), results: &mut [&mut [u8]]) -> Result<()> {
        let place = |expected: &[Kind], frame: &mut Frame| {
            check_memory(expected, results)?;
            frame.outputs.extend(results.iter_mut().map(|memory| AtomicU64::new(memory.as_mut_ptr() as u64)));
            Ok(())
        };
        // SAFETY: the memory has the results' sizes and is the caller's alone.
        unsafe { self.call(inputs, place, &mut |_| Ok(())) }
    }

    /// Runs the program on memory of the caller's, and leaves its results there.
    ///
    /// # Errors
    /// As [`CpuProgram::run`]; results of another dtype or shape than they have, null pointers, memory that is not aligned or that a result shares.
    ///
    /// # Safety
    /// The results may be written to, and nothing else uses their memory until this returns.
    pub unsafe fn run_in(&self, inputs: &(impl Tensors + ?Sized), results: &(impl Tensors + ?Sized)) -> Result<()> {
        let place = |expected: &[Kind], frame: &mut Frame| frame.write(expected, inputs, results);
        // SAFETY: the frame checks dtypes, shapes and places; the caller vouches for the rest.
        unsafe { self.call(inputs, place, &mut |_| Ok(())) }
    }

    fn run_watched(&self, inputs: &(impl Tensors + ?Sized), between: Between) -> Result<Vec<Tensor>> {
        let mut results = Vec::new();
        let place = |expected: &[Kind], frame: &mut Frame| {
            results = self.result_tensors(expected)?;
            for result in &mut results {
                frame.outputs.push(AtomicU64::new(result.as_mut_ptr()? as u64));
            }
            Ok(())
        };
        // SAFETY: the results have the signature's sizes and are nobody else's.
        unsafe { self.call(inputs, place, between)? };
        *self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = results.clone();
        Ok(results)
    }

    /// Runs the program on inputs that fit its signature; `place` says where the results go.
    ///
    /// # Safety
    /// What `place` leaves in the frame is an address for each result, of its size, aligned to its elements, that overlaps nothing.
    unsafe fn call(
        &self,
        inputs: &(impl Tensors + ?Sized),
        place: impl FnOnce(&[Kind], &mut Frame) -> Result<()>,
        between: Between,
    ) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Last { prepared, frame } = &mut *last;
        let fits = |prepared: &Prepared, frame: &mut Frame| frame.read(inputs, &prepared.arguments);
        let prepared = match prepared {
            Some(prepared) if fits(prepared, frame)? => prepared,
            prepared => {
                let bindings = self.guard.bind(|i| inputs.tensor(i).kind(), inputs.count())?;
                let prepared = prepared.insert(self.prepare(bindings)?);
                fits(prepared, frame)?;
                prepared
            }
        };
        place(&prepared.results, frame)?;
        let _copies = self.apart(frame, inputs)?;
        self.execute(prepared, &frame.inputs, &frame.outputs, between)
    }

    /// The caller's tensors stay what they are: what the program writes to are copies, which results that are left there begin as.
    fn apart(&self, frame: &mut Frame, inputs: &(impl Tensors + ?Sized)) -> Result<Vec<Tensor>> {
        let mut copies = Vec::new();
        for &input in &self.program.updated_inputs {
            frame.inputs[input] = match self.program.left_in.iter().position(|&left| left == Some(input)) {
                Some(result) => {
                    let tensor = inputs.tensor(input);
                    let (bytes, to) = (byte_size(tensor.dtype(), tensor.shape())?, *frame.outputs[result].get_mut());
                    // SAFETY: the result has the input's type, so as many bytes, and is nobody else's.
                    unsafe { std::ptr::copy_nonoverlapping(frame.inputs[input], to as *mut u8, bytes) };
                    to as *const u8
                }
                None => {
                    let tensor = inputs.shared(input)?;
                    let mut copy = Tensor::from_bytes(tensor.dtype(), tensor.shape(), tensor.bytes())?;
                    let address = copy.as_mut_ptr()?;
                    copies.push(copy);
                    address.cast_const()
                }
            };
        }
        Ok(copies)
    }

    /// Runs the program on inputs whose memory it may update: its results, but for those that are left in inputs.
    ///
    /// # Errors
    /// As [`CpuProgram::run`].
    pub fn run_on(&self, inputs: &mut [Tensor]) -> Result<Vec<Option<Tensor>>> {
        let bindings = self.program.signature.bind(inputs)?;
        // Shared memory is copied here, so that others keep what they have.
        self.program.updated_inputs.iter().try_for_each(|&i| inputs[i].as_mut_ptr().map(drop))?;
        let mut results = Vec::with_capacity(self.program.left_in.len());
        for (spec, left) in self.program.signature.outputs.iter().zip(&self.program.left_in) {
            let sizes = spec.sizes(&bindings)?;
            results.push(left.is_none().then(|| Tensor::zeros(spec.dtype, &sizes)).transpose()?);
        }
        let from: Vec<*const u8> = inputs.iter().map(Tensor::as_ptr).collect();
        let to = results.iter_mut().map(|r| r.as_mut().map_or(Ok(std::ptr::null_mut()), Tensor::as_mut_ptr));
        let to = to.collect::<Result<Vec<*mut u8>>>()?;
        // SAFETY: `bind` checked the inputs; what is updated, and the results, are nobody else's, and all outlive the call.
        unsafe { self.run_at(&bindings, &from, &to)? };
        Ok(results)
    }

    /// Tensors for the results: those of the last run that nobody else has, else new ones.
    fn result_tensors(&self, expected: &[Kind]) -> Result<Vec<Tensor>> {
        let mut last = std::mem::take(&mut *self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let mut results = Vec::with_capacity(expected.len());
        for (dtype, shape) in expected {
            let fits = |t: &mut Tensor| t.dtype() == *dtype && t.shape() == shape && t.is_unique();
            let found = last.iter_mut().position(fits).map(|i| last.swap_remove(i));
            results.push(found.map_or_else(|| Tensor::zeros(*dtype, shape), Ok)?);
        }
        Ok(results)
    }

    /// Runs the program on the caller's memory: an address for each input and each result, row-major.
    ///
    /// # Errors
    /// Sizes that have no value under `bindings`; a kernel's failure.
    ///
    /// # Safety
    /// There are as many addresses as the signature has inputs and outputs, each valid for the sizes that `bindings` gives them and
    /// aligned to its elements; results, and inputs that the program updates, overlap nothing; the symbols' values are in their ranges. The address of a
    /// result that is left in an input is not used.
    pub unsafe fn run_at(&self, bindings: &Bindings, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        // SAFETY: the caller vouches for the same.
        unsafe { self.run_between(bindings, inputs, &fixed(outputs.iter().map(|&p| p as u64)), &mut |_| Ok(())) }
    }

    /// As [`CpuProgram::run_at`], on memory that need be there while steps use it ([`Program::uses`]); `between` may come to give and take it.
    ///
    /// # Errors
    /// As there, and those of `between`.
    ///
    /// # Safety
    /// As there, for each step.
    pub unsafe fn run_between(
        &self,
        bindings: &Bindings,
        inputs: &[*const u8],
        outputs: &Addresses,
        between: Between,
    ) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let prepared = match &mut last.prepared {
            Some(prepared) if prepared.bindings == *bindings => prepared,
            prepared => prepared.insert(self.prepare(bindings.clone())?),
        };
        self.execute(prepared, inputs, outputs, between)
    }

    /// Gives back the memory that is held for the next run.
    pub fn release(&self) {
        *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Last::default();
        self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    fn prepare(&self, bindings: Bindings) -> Result<Prepared> {
        let bytes = self.program.arena_bytes(&bindings)?;
        let arena = match self.allocator {
            Some(_) => Arena::Callers(bytes),
            None => Arena::Own(AlignedBuffer::zeroed(bytes)?),
        };
        let steps = self.program.prepare(&bindings)?;
        let results = self.program.signature.shapes_of_results(&bindings)?;
        let arguments = self.guard.exact(&bindings)?;
        Ok(Prepared { bindings, arguments, arena, steps, results, slots: Vec::new() })
    }

    fn execute(
        &self,
        prepared: &mut Prepared,
        inputs: &[*const u8],
        outputs: &Addresses,
        between: Between,
    ) -> Result<()> {
        let lent = self.lend(&prepared.arena)?;
        let (arena, bytes) = match (&prepared.arena, &lent) {
            (Arena::Own(buffer), _) => (buffer.start(), buffer.bytes().len()),
            (_, Some(lent)) => (lent.memory, lent.bytes),
            _ => (std::ptr::null_mut(), 0),
        };
        if self.program.guard > 0 && bytes > 0 {
            // SAFETY: the arena has so many bytes, and this run has it alone.
            unsafe { arena.write_bytes(POISON, bytes) };
        }
        let slots = &mut prepared.slots;
        let mut run = Run { program: self, pool: Pool::global()?, arena, inputs, outputs, slots };
        for (number, step) in prepared.steps.iter().enumerate() {
            between(number)?;
            run_steps(&mut run, std::slice::from_ref(step), &mut Vec::new())?;
        }
        between(prepared.steps.len())
    }
}

impl CpuProgram {
    /// The caller's memory for an arena, where it is to be that.
    fn lend(&self, arena: &Arena) -> Result<Option<Lent<'_>>> {
        let (Some(allocator), &Arena::Callers(bytes)) = (&self.allocator, arena) else { return Ok(None) };
        if bytes == 0 {
            return Ok(None);
        }
        let memory = allocator.allocate(bytes, ALIGNMENT, std::ptr::null_mut());
        if memory.is_null() {
            return Err(Error::OutOfMemory(format!("the caller's allocator has not {bytes} bytes")));
        }
        let lent = Lent { allocator: &**allocator, memory, bytes };
        if !(memory as usize).is_multiple_of(ALIGNMENT) {
            let what = format!("the caller's allocator gave {memory:p}, which is no multiple of {ALIGNMENT}");
            return Err(Error::Invalid(what));
        }
        Ok(Some(lent))
    }
}

/// The caller's memory during a run.
struct Lent<'a> {
    allocator: &'a dyn Allocator,
    memory: *mut u8,
    bytes: usize,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.allocator.release(self.memory, self.bytes, std::ptr::null_mut());
    }
}

/// A run on the caller's memory.
struct Run<'a> {
    program: &'a CpuProgram,
    pool: &'a Pool,
    arena: *mut u8,
    inputs: &'a [*const u8],
    outputs: &'a Addresses,
    /// A launch's arguments.
    slots: &'a mut Vec<u64>,
}

impl Run<'_> {
    /// The buffers with bands around them among places.
    fn guarded<'a>(&self, places: impl Iterator<Item = &'a At>, turns: &[usize]) -> Vec<Guarded> {
        let band = self.program.program.guard;
        if band == 0 {
            return Vec::new();
        }
        let guarded = |at: &At| Some((self.address(at, turns).cast_mut(), at.guarded?));
        // SAFETY: the plan gives a buffer so many bytes around it for as long as it lives.
        places.filter_map(guarded).map(|(start, bytes)| unsafe { Guarded::new(start, bytes, band) }).collect()
    }

    fn address(&self, at: &At, turns: &[usize]) -> *const u8 {
        let base = match at.memory {
            Memory::Input(i) => self.inputs[i],
            Memory::Output(i) => self.outputs[i].load(Ordering::Relaxed) as *const u8,
            Memory::Arena(_) => self.arena.cast_const(),
            Memory::Constant(i) => self.program.program.constants[i].bytes.bytes().as_ptr(),
        };
        base.wrapping_add(at.offset(turns))
    }
}

impl Machine for Run<'_> {
    fn simple(&mut self, step: &PreparedStep, turns: &[usize]) -> Result<()> {
        match step {
            PreparedStep::Launch { kernel, args, symbols, grid, pace, .. } => {
                let mut slots = std::mem::take(self.slots);
                slots.clear();
                slots.extend(args.iter().map(|a| self.address(a, turns) as u64));
                slots.extend(symbols.iter().map(|&n| n as u64));
                let alone = pace.is_short(self.program.program.sharing);
                let grain = if alone { u64::MAX } else { 1 };
                let launch = Launch { grid: *grid, grain, scratch: self.program.program.kernels[*kernel].scratch };
                let guarded = self.guarded(args.iter(), turns);
                guarded.iter().for_each(Guarded::fill);
                let start = Instant::now();
                // SAFETY: the code was generated for these arguments: buffers of the planned sizes, the
                // kernel's symbols in their order; all outlive the launch.
                unsafe { self.pool.launch(self.program.kernels[*kernel].entry(), &slots, launch)? };
                pace.note(start.elapsed(), alone, self.pool.was_helped());
                *self.slots = slots;
                let name = &self.program.program.kernels[*kernel].name;
                guarded.iter().try_for_each(|buffer| buffer.check(&format!("the kernel {name}")))?;
            }
            PreparedStep::Copy { from, to, bytes, pace } => {
                let (alone, start) = (pace.is_short(self.program.program.sharing), Instant::now());
                let grain = if alone { u64::MAX } else { 1 };
                // SAFETY: both places have that many bytes, and the plan gives results memory of their own.
                unsafe { self.pool.copy(self.address(from, turns), self.address(to, turns).cast_mut(), *bytes, grain) };
                pace.note(start.elapsed(), alone, self.pool.was_helped());
            }
            PreparedStep::Foreign(call) => {
                let function =
                    (self.program.program.foreign[call.function].as_str(), &self.program.foreign[call.function]);
                call.run(function, On::Cpu, |at| self.address(at, turns) as u64)?;
            }
            PreparedStep::If { .. } | PreparedStep::Loop(_) => {}
        }
        Ok(())
    }

    fn truth(&mut self, at: &At, turns: &[usize]) -> Result<bool> {
        // SAFETY: the plan gives a condition a byte, which the steps before have written.
        Ok(unsafe { self.address(at, turns).read() } != 0)
    }
}
