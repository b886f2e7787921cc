//! Compiled modules, ready to run.

use crate::call::{Frame, Merged, Picked, Tensors};
use crate::cuda::{Device, Stream};
use crate::on_device::{DeviceTensor, Given, Kept, queue};
use crate::program::{Bindings, CpuProgram, CudaProgram, Guard, Program, Signature, Source};
use crate::{Allocator, Machine, Tensor};
use rc_dialects::func::Initializer;
use rc_ir::{Diagnostic, Module, Result};
use rc_machine::Target;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A compiled function on the machine that it was compiled for, with the function that computes, once, what follows from constant arguments alone.
pub struct Executable {
    code: Code,
    initializer: Option<(Initializer, Code)>,
    /// The check of the arguments that a caller gives.
    guard: Guard,
    constants: OnceLock<Constants>,
    /// Held while they are computed.
    first: Mutex<()>,
    /// What is the same at every call, on a GPU.
    kept: Mutex<Option<Arc<Kept>>>,
    allocator: Option<Arc<dyn Allocator>>,
}

/// What is the same at every call: for each input its value, where it has one. Arguments of the first call that the function reads itself, and what the
/// initializer computed, the last inputs.
struct Constants(Vec<Option<Tensor>>);

impl Constants {
    /// All inputs of a call that gives these.
    fn and<'a, G: Tensors + ?Sized>(&'a self, given: &'a G) -> Merged<'a, G> {
        Merged { fixed: &self.0, places: None, given }
    }
}

pub(crate) enum Code {
    Cpu(CpuProgram),
    Cuda(CudaProgram),
}

/// What a kernel's launches took in a run.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelTime {
    pub name: String,
    pub launches: usize,
    /// Of all launches.
    pub milliseconds: f64,
}

/// The architecture of the first GPU, such as `sm_90a`.
///
/// # Errors
/// If there is no driver or no GPU.
pub fn gpu_arch() -> crate::Result<String> {
    Ok(Device::open(0)?.info().arch())
}

impl Executable {
    /// Loads the function `entry` of a compiled module (the first, where none is named), on the CPU or the first GPU.
    ///
    /// # Errors
    /// If the module is not compiled, or its code cannot be loaded here.
    pub fn load(module: &Module, entry: Option<&str>, machine: Machine) -> Result<Executable> {
        let fail = |e: crate::Error| Diagnostic::error(module.loc, e.to_string());
        let device = (machine == Machine::Cuda).then(|| Device::open(0)).transpose().map_err(fail)?;
        Executable::load_on(module, entry, device.as_ref())
    }

    /// Loads a function, as [`Executable::load`] does, on a GPU, or without one on the CPU.
    ///
    /// # Errors
    /// As there.
    pub fn load_on(module: &Module, entry: Option<&str>, device: Option<&Arc<Device>>) -> Result<Executable> {
        let program = Program::load(module, entry)?;
        let root = module.symbol(program.name).map(|body| body.op_ref(body.root()));
        let initializer = match root.and_then(Initializer::of) {
            Some(init) => {
                let program = Program::load(module, Some(init.function.as_str()))?;
                Some((init, Code::load(module, program, device)?))
            }
            None => None,
        };
        let computed = initializer.as_ref().map_or(0, |(init, _)| init.results);
        let given = program.signature.inputs.len().checked_sub(computed);
        let given = given.ok_or_else(|| {
            let what = format!("has fewer arguments than its initializer has results, which are {computed}");
            root.expect("it has an initializer").error(what)
        })?;
        let guard = Guard::new(&program.signature, given);
        let code = Code::load(module, program, device)?;
        Ok(Executable {
            code,
            initializer,
            guard,
            constants: OnceLock::new(),
            first: Mutex::default(),
            kept: Mutex::default(),
            allocator: None,
        })
    }

    /// Has runs take what memory they need from the caller: on a CPU what they work in, on a GPU that and what stays there between runs. Results that
    /// [`Executable::run`] makes are its own.
    pub fn set_allocator(&mut self, allocator: Arc<dyn Allocator>) {
        let initializer = self.initializer.as_mut().map(|(_, code)| code);
        for code in [&mut self.code].into_iter().chain(initializer) {
            if let Code::Cpu(program) = code {
                program.set_allocator(allocator.clone());
            }
        }
        self.allocator = Some(allocator);
    }

    /// Whether launches on a GPU are CUDA graphs, from the second run on: they are, unless the variable `RC_GRAPHS` is `off`.
    pub fn set_graphs(&self, on: bool) {
        if let Code::Cuda(program) = &self.code {
            program.set_graphs(on);
        }
    }

    /// What became of launches on a GPU, a line for each stretch between which the host has something to do: whether they were CUDA graphs, and why not.
    pub fn explain_graphs(&self) -> Vec<String> {
        if let Code::Cuda(program) = &self.code { program.explain_graphs() } else { Vec::new() }
    }

    /// How many arguments a caller gives.
    pub fn given(&self) -> usize {
        self.signature().inputs.len() - self.initializer.as_ref().map_or(0, |(init, _)| init.results)
    }

    /// What the function takes and gives. The inputs that its initializer computes are the last.
    pub fn signature(&self) -> &Signature {
        &self.code.program().signature
    }

    /// Of each result the argument that it is left in, where it has no memory of its own.
    pub fn updates(&self) -> &[Option<usize>] {
        &self.code.program().left_in
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Computes what follows from constant arguments alone, of these inputs, if that was not done yet. [`Executable::run`] does it on its first call.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn initialize(&self, inputs: &[Tensor]) -> crate::Result<()> {
        self.initialize_any(inputs)
    }

    pub(crate) fn initialize_any(&self, inputs: &(impl Tensors + ?Sized)) -> crate::Result<()> {
        match &self.code {
            Code::Cpu(_) => self.constants(inputs).map(drop),
            Code::Cuda(program) => self.sources(program, &tensors(inputs)?, |_, _| Ok(())),
        }
    }

    /// Runs the function: inputs in order, results in order. Arguments that are declared constant are taken at the first call, and
    /// what later calls give for them is not read.
    ///
    /// # Errors
    /// Inputs that do not fit the signature; a kernel's failure.
    pub fn run(&self, inputs: &[Tensor]) -> crate::Result<Vec<Tensor>> {
        self.run_any(inputs)
    }

    pub(crate) fn run_any(&self, inputs: &(impl Tensors + ?Sized)) -> crate::Result<Vec<Tensor>> {
        match &self.code {
            Code::Cpu(program) => program.run(&self.constants(inputs)?.and(inputs)),
            Code::Cuda(program) => {
                self.sources(program, &tensors(inputs)?, |bindings, sources| program.run(bindings, sources))
            }
        }
    }

    /// Runs the function, and leaves its results in the caller's memory: for each the bytes of its elements in row-major order, aligned to its
    /// elements.
    ///
    /// # Errors
    /// As [`Executable::run`]; memory of another size or alignment than a result has.
    pub fn run_into(&self, inputs: &[Tensor], results: &mut [&mut [u8]]) -> crate::Result<()> {
        self.run_any_into(inputs, results)
    }

    pub(crate) fn run_any_into(
        &self,
        inputs: &(impl Tensors + ?Sized),
        results: &mut [&mut [u8]],
    ) -> crate::Result<()> {
        match &self.code {
            Code::Cpu(program) => program.run_into(&self.constants(inputs)?.and(inputs), results),
            Code::Cuda(program) => self.sources(program, &tensors(inputs)?, |bindings, sources| {
                check_memory(&self.signature().shapes_of_results(bindings)?, results)?;
                for (tensor, memory) in program.run(bindings, sources)?.iter().zip(results) {
                    memory.copy_from_slice(tensor.bytes());
                }
                Ok(())
            }),
        }
    }

    /// Runs the function on memory of the caller's, and leaves its results there. On a CPU such a call makes and copies nothing of its own.
    ///
    /// # Errors
    /// As [`Executable::run`]; results of another dtype or shape than they have, null pointers, memory that is not aligned or that a result shares.
    ///
    /// # Safety
    /// The results may be written to, and nothing else uses their memory until this returns.
    pub unsafe fn run_in(
        &self,
        inputs: &(impl Tensors + ?Sized),
        results: &(impl Tensors + ?Sized),
    ) -> crate::Result<()> {
        match &self.code {
            // SAFETY: the caller's.
            Code::Cpu(program) => unsafe { program.run_in(&self.constants(inputs)?.and(inputs), results) },
            Code::Cuda(program) => self.sources(program, &tensors(inputs)?, |bindings, sources| {
                let mut frame = Frame::default();
                frame.read(inputs, &self.guard.exact(bindings)?)?;
                frame.write(&self.signature().shapes_of_results(bindings)?, inputs, results)?;
                for (tensor, to) in program.run(bindings, sources)?.iter().zip(&mut frame.outputs) {
                    // SAFETY: the frame checked that it has the result's size; the caller vouches for the rest.
                    unsafe {
                        std::ptr::copy_nonoverlapping(tensor.as_ptr(), *to.get_mut() as *mut u8, tensor.bytes().len())
                    };
                }
                Ok(())
            }),
        }
    }

    /// Has a GPU's program work on host tensors and what is kept there.
    fn sources<T>(
        &self,
        program: &CudaProgram,
        inputs: &[Tensor],
        work: impl FnOnce(&Bindings, &[Source]) -> crate::Result<T>,
    ) -> crate::Result<T> {
        let given: Vec<Given> = inputs.iter().map(Given::Host).collect();
        let bindings = self.bind(&given)?;
        work(&bindings, &self.kept(program, &given)?.sources(inputs))
    }

    /// Queues the function on a stream (a `CUstream`) of its GPU, on tensors in that GPU's memory, and returns. What follows from constant arguments
    /// alone is computed at the first call, which waits for it.
    ///
    /// # Errors
    /// As [`Executable::run`]; tensors that are null, in other memory, not at a multiple of 16 bytes, or that overlap a result; code for a CPU.
    ///
    /// # Safety
    /// The tensors' memory is valid until the stream has done the work; the stream is one of the device.
    pub unsafe fn run_on(
        &self,
        inputs: &[DeviceTensor],
        results: &[DeviceTensor],
        stream: *mut c_void,
    ) -> crate::Result<()> {
        let given: Vec<Given> = inputs.iter().copied().map(Given::Device).collect();
        // SAFETY: the caller's.
        unsafe { self.queue(&given, results, stream) }
    }

    /// As [`Executable::run_on`], with weights among the arguments.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn queue(
        &self,
        given: &[Given],
        results: &[DeviceTensor],
        stream: *mut c_void,
    ) -> crate::Result<()> {
        let Code::Cuda(program) = &self.code else {
            let what = "a stream for code on the CPU: run it on the host's memory";
            return Err(crate::Error::Unsupported(what.into()));
        };
        let bindings = self.bind(given)?;
        check_results(&self.signature().shapes_of_results(&bindings)?, results)?;
        if !self.is_kept() {
            // SAFETY: the caller's. What was queued on it has to be over before constants are read.
            unsafe { Stream::borrow(program.device(), stream) }.synchronize()?;
        }
        let kept = self.kept(program, given)?;
        // SAFETY: the arguments were checked, and the caller vouches for their memory.
        unsafe { queue(program, &bindings, &kept, given, results, stream, self.allocator.as_ref()) }
    }

    pub(crate) fn bind(&self, given: &[Given]) -> crate::Result<Bindings> {
        self.guard.bind(|i| given[i].kind(), given.len())
    }

    fn is_kept(&self) -> bool {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }

    /// What is the same at every call, on the device: made of these arguments, if this is the first call.
    pub(crate) fn kept(&self, program: &CudaProgram, given: &[Given]) -> crate::Result<Arc<Kept>> {
        let mut known = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(kept) = &*known {
            return Ok(kept.clone());
        }
        let initializer = self.initializer.as_ref().and_then(|(init, code)| Some((init, code.cuda()?)));
        let kept = Kept::new(program, initializer, given, self.allocator.as_ref())?;
        Ok(known.insert(Arc::new(kept)).clone())
    }

    /// The inputs of this call, with the constants of the first one.
    pub(crate) fn all_inputs(&self, inputs: &[Tensor]) -> crate::Result<Vec<Tensor>> {
        tensors(&self.constants(inputs)?.and(inputs))
    }

    /// The constants: of these inputs, if this is the first call.
    fn constants(&self, inputs: &(impl Tensors + ?Sized)) -> crate::Result<&Constants> {
        let (given, count) = (self.given(), inputs.count());
        if count != given {
            let what = format!("the function takes {given} arguments, {count} were given");
            return Err(crate::Error::Invalid(what));
        }
        if let Some(constants) = self.constants.get() {
            return Ok(constants);
        }
        let _first = self.first.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(constants) = self.constants.get() {
            return Ok(constants);
        }
        let mut all: Vec<Option<Tensor>> = vec![None; given];
        if let Some((init, code)) = self.initializer.as_ref().and_then(|(init, code)| Some((init, code.cpu()?))) {
            all.extend(code.run(&Picked(&init.args, inputs))?.into_iter().map(Some));
        }
        for &i in self.code.program().constant_inputs.iter().filter(|&&i| i < given) {
            all[i] = Some(inputs.shared(i)?.kept()?);
        }
        let constants = Constants(all);
        // What does not fit is not kept.
        let fits = constants.and(inputs);
        let kind = |i| (fits.tensor(i).dtype(), fits.tensor(i).shape());
        self.signature().bind_shapes(&(0..fits.count()).map(kind).collect::<Vec<_>>())?;
        Ok(self.constants.get_or_init(|| constants))
    }

    /// The median time of `runs` runs, in milliseconds, after three that do not count. On a GPU inputs and results stay there, and the
    /// time is that between events around the kernels.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn median_ms(&self, inputs: &[Tensor], runs: usize) -> crate::Result<f64> {
        let mut times = self.times_ms(inputs, runs, 3, &mut || Ok(()))?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// The times of `runs` runs in milliseconds, after `warm` ones that do not count; `before` is called before each of them. On a GPU as
    /// [`Executable::median_ms`].
    ///
    /// # Errors
    /// As [`Executable::run`], and those of `before`.
    pub fn times_ms(
        &self,
        inputs: &[Tensor],
        runs: usize,
        warm: usize,
        before: &mut dyn FnMut() -> crate::Result<()>,
    ) -> crate::Result<Vec<f64>> {
        let program = match &self.code {
            Code::Cuda(program) => {
                return self.sources(program, inputs, |bindings, sources| {
                    program.times_ms(bindings, sources, runs, warm, before)
                });
            }
            Code::Cpu(program) => program,
        };
        let inputs = &self.constants(inputs)?.and(inputs);
        let mut times = Vec::with_capacity(runs);
        for i in 0..runs + warm {
            before()?;
            let start = Instant::now();
            program.run(inputs)?;
            if i >= warm {
                times.push(1e3 * start.elapsed().as_secs_f64());
            }
        }
        Ok(times)
    }

    /// The times of a run in milliseconds, where others follow: as many as take `span` together, about, but `counts[0]` at least and `counts[1]` at most. On a
    /// GPU several runs are queued before the first starts, so that neither the host nor a launch by itself counts.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn queued_ms(&self, inputs: &[Tensor], span: f64, counts: [usize; 2]) -> crate::Result<Vec<f64>> {
        if let Code::Cuda(program) = &self.code {
            let queued = |bindings: &Bindings, sources: &[Source]| program.queued_ms(bindings, sources, span, counts);
            return self.sources(program, inputs, queued);
        }
        let once = self.median_ms(inputs, 1)?.max(1e-3);
        self.times_ms(inputs, ((span / once) as usize).clamp(counts[0], counts[1]), 1, &mut || Ok(()))
    }

    /// What each kernel's launches took in one run in milliseconds, medians of `runs` runs after three that do not count; the kernel that
    /// took longest first. On a GPU each launch by itself, where a run has some begin before the one ahead has ended.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub fn profile(&self, inputs: &[Tensor], runs: usize) -> crate::Result<Vec<KernelTime>> {
        let mut rounds = Vec::with_capacity(runs);
        for i in 0..runs + 3 {
            let times = self.launch_times(inputs)?;
            if i >= 3 {
                rounds.push(times);
            }
        }
        let mut kernels: BTreeMap<&str, KernelTime> = BTreeMap::new();
        for (i, (name, _)) in rounds.first().into_iter().flatten().enumerate() {
            let mut times: Vec<f64> = rounds.iter().filter_map(|round| Some(round.get(i)?.1)).collect();
            times.sort_by(f64::total_cmp);
            let kernel =
                kernels.entry(name).or_insert(KernelTime { name: name.clone(), launches: 0, milliseconds: 0.0 });
            kernel.launches += 1;
            kernel.milliseconds += times[times.len() / 2];
        }
        let mut kernels: Vec<KernelTime> = kernels.into_values().collect();
        kernels.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        Ok(kernels)
    }

    /// What each step of one run took, in order, in milliseconds.
    fn launch_times(&self, inputs: &[Tensor]) -> crate::Result<Vec<(String, f64)>> {
        let cpu = match &self.code {
            Code::Cuda(program) => {
                return self.sources(program, inputs, |bindings, sources| program.launch_times(bindings, sources));
            }
            Code::Cpu(cpu) => cpu,
        };
        let times = cpu.step_times(&self.constants(inputs)?.and(inputs))?;
        let program = cpu.program();
        let named = program.steps.iter().zip(times);
        Ok(named.map(|(step, time)| (step.name(program).to_string(), 1e3 * time.as_secs_f64())).collect())
    }
}

/// A call's tensors, sharing their memory.
fn tensors(inputs: &(impl Tensors + ?Sized)) -> crate::Result<Vec<Tensor>> {
    (0..inputs.count()).map(|i| inputs.shared(i)).collect()
}

/// Checks tensors that results are left in.
fn check_results(shapes: &[(crate::DType, Vec<usize>)], results: &[DeviceTensor]) -> crate::Result<()> {
    if shapes.len() != results.len() {
        let what = format!("the function has {} results, {} were given", shapes.len(), results.len());
        return Err(crate::Error::Invalid(what));
    }
    for (i, ((dtype, shape), given)) in shapes.iter().zip(results).enumerate() {
        if (given.dtype, given.shape) != (*dtype, shape.as_slice()) {
            let (is, of) = (given.dtype, given.shape);
            let what = format!("result {i} is given as {is} of shape {of:?}, and is {dtype} of shape {shape:?}");
            return Err(crate::Error::Invalid(what));
        }
    }
    Ok(())
}

/// Checks memory that results are left in.
pub(crate) fn check_memory(shapes: &[(crate::DType, Vec<usize>)], results: &[&mut [u8]]) -> crate::Result<()> {
    if shapes.len() != results.len() {
        let what = format!("the function has {} results, and memory for {} was given", shapes.len(), results.len());
        return Err(crate::Error::Invalid(what));
    }
    for (i, ((dtype, shape), memory)) in shapes.iter().zip(results).enumerate() {
        let bytes = crate::tensor::byte_size(*dtype, shape)?;
        let what = format!("result {i} of shape {shape:?} and dtype {dtype}");
        if memory.len() != bytes {
            let given = memory.len();
            return Err(crate::Error::Invalid(format!("{what} takes {bytes} bytes, and memory of {given} was given")));
        }
        if !(memory.as_ptr() as usize).is_multiple_of(dtype.size()) {
            return Err(crate::Error::Invalid(format!("{what} was given memory that is not aligned to its elements")));
        }
    }
    Ok(())
}

/// Whether the CPU at hand has what the module was compiled for.
fn check_processor(module: &Module) -> Result<()> {
    let misfit = Target::of_module(module.attrs)?.and_then(|target| target.misfit_here());
    let Some(why) = misfit else { return Ok(()) };
    let error = Diagnostic::error(module.loc, format!("not supported: the module's code on this CPU: {why}"));
    Err(error.help("compile it for this one: with --arch=host, or for a level that both have, as x86-64-v3"))
}

impl Code {
    fn load(module: &Module, program: Program, device: Option<&Arc<Device>>) -> Result<Code> {
        let fail = |e: crate::Error| Diagnostic::error(module.loc, e.to_string());
        Ok(match device {
            None => {
                check_processor(module)?;
                Code::Cpu(CpuProgram::new(program).map_err(fail)?)
            }
            Some(device) => Code::Cuda(CudaProgram::new(program, device).map_err(fail)?),
        })
    }
    fn program(&self) -> &Program {
        match self {
            Code::Cpu(program) => program.program(),
            Code::Cuda(program) => program.program(),
        }
    }
    fn cpu(&self) -> Option<&CpuProgram> {
        if let Code::Cpu(program) = self { Some(program) } else { None }
    }
    fn cuda(&self) -> Option<&CudaProgram> {
        if let Code::Cuda(program) = self { Some(program) } else { None }
    }
}
