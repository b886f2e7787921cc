//! Compiled programs, run on PyTorch's tensors.

mod inputs;
mod kept;
mod returns;
mod sizes;
mod spares;
mod tensors;
mod variants;

use crate::dim::{AnyDim, dims};
use crate::dlpack::{CPU, CUDA, DlTensor, Exchange};
use crate::errors::plain;
use inputs::{Input, Inputs};
use kept::Kept;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rc::Target;
use rc::variants::Policy;
use rc_dialects::func::Initializer;
use rc_ir::{Module, Name, Result};
use rc_runtime::cuda::Device;
use rc_runtime::program::{Arena, CpuProgram, CudaProgram, Program, Signature};
use returns::{Layout, Objects, PyReturn, Return};
use sizes::Sizes;
use spares::Spares;
use std::sync::{Arc, Mutex};
use tensors::{Args, Tensors, Turns};
use variants::Fits;

/// Machine code, and how a call's arguments and results map to its inputs and outputs.
#[pyclass(name = "Program", frozen, dict, weakref)]
pub struct PyProgram {
    loaded: Loaded,
    /// Of symbolic sizes: programs for ranges of them.
    fits: std::sync::OnceLock<Fits>,
    /// The device in DLPack's numbers: its kind, and which of that kind.
    device: (i32, i32),
    call: std::sync::OnceLock<Call>,
    last: Mutex<Option<Arc<Sizes>>>,
    /// The addresses of inputs that were seen to share no memory with those that a call updates.
    apart: Mutex<Vec<usize>>,
}

/// Machine code that is ready to run.
pub struct Loaded {
    code: Code,
    /// What the last inputs are computed by, of weights alone.
    kept: Option<Kept>,
}

enum Code {
    None,
    Cpu(Box<CpuProgram>),
    Cuda(Box<CudaProgram>),
}

/// How a call maps to the program.
struct Call {
    exchange: Exchange,
    empty: Empty,
    /// The arena's element type.
    bytes: Py<PyAny>,
    inputs: Vec<Input>,
    /// Arguments that are integers, and the symbols that they are.
    integers: Vec<(usize, Name)>,
    results: Vec<Layout>,
    dtypes: Vec<Py<PyAny>>,
    /// Where the memory of results is kept for the next call.
    spares: Option<Spares>,
    returns: Vec<Return>,
    /// Which results are made, and which arguments are let go, before each step and after the last.
    turns: Turns,
    /// Tensors of the program itself, which it takes after a call's arguments.
    captured: Vec<Py<PyAny>>,
    /// What makes the seed of a call, the last of all.
    seed: Option<Py<PyAny>>,
    /// Whether launches are CUDA graphs.
    graphs: bool,
    profiler: Profiler,
}

/// PyTorch's profiler, which calls are ranges of while it runs.
struct Profiler {
    /// `torch.autograd.profiler`.
    module: Py<PyAny>,
    /// The class of ranges.
    range: Option<Py<PyAny>>,
    name: String,
}

/// PyTorch's functions that make a tensor of given sizes and strides.
struct Empty {
    /// That of PyTorch's own compiled code, for the current device.
    quick: Option<Py<PyAny>>,
    general: Py<PyAny>,
    device: Py<PyAny>,
}

impl Loaded {
    /// The first function of a compiled module, on a GPU or without one on the CPU.
    fn of(module: &Module, gpu: Option<&Arc<Device>>) -> Result<Loaded> {
        let fail = |e: rc_runtime::Error| rc_ir::Diagnostic::error(module.loc, e.to_string());
        let main = Program::load(module, None)?;
        if let Some(gpu) = gpu {
            let code = Code::Cuda(Box::new(CudaProgram::behind(main, gpu).map_err(fail)?));
            return Ok(Loaded { code, kept: None });
        }
        let root = module.symbol(main.name).map(|body| body.op_ref(body.root()));
        let load = |init: Initializer| {
            let program = CpuProgram::new(Program::load(module, Some(init.function.as_str()))?).map_err(fail)?;
            Ok::<_, Box<rc_ir::Diagnostic>>(Kept::new(init, program))
        };
        let kept = root.and_then(Initializer::of).map(load).transpose()?;
        Ok(Loaded { code: Code::Cpu(Box::new(CpuProgram::new(main).map_err(fail)?)), kept })
    }

    /// Has a GPU's program queue its launches one by one, where they are not to be CUDA graphs.
    fn set_graphs(&self, on: bool) {
        if let (Code::Cuda(program), false) = (&self.code, on) {
            program.set_graphs(false);
        }
    }

    /// What became of a GPU's launches, a line for each stretch.
    fn explain_graphs(&self) -> Vec<String> {
        if let Code::Cuda(program) = &self.code { program.explain_graphs() } else { Vec::new() }
    }

    /// The program itself; none without machine code.
    fn program(&self) -> Option<&Program> {
        match &self.code {
            Code::None => None,
            Code::Cpu(program) => Some(program.program()),
            Code::Cuda(program) => Some(program.program()),
        }
    }
}

impl PyProgram {
    /// The first function of a compiled module, on a GPU or without one on the CPU.
    pub fn load(module: &Module, gpu: Option<Arc<Device>>) -> Result<PyProgram> {
        let device = gpu.as_ref().map_or((CPU, 0), |gpu| (CUDA, gpu.ordinal() as i32));
        Ok(PyProgram::new(Loaded::of(module, gpu.as_ref())?, device))
    }

    fn new(loaded: Loaded, device: (i32, i32)) -> PyProgram {
        PyProgram {
            loaded,
            fits: std::sync::OnceLock::new(),
            device,
            call: std::sync::OnceLock::new(),
            last: Mutex::new(None),
            apart: Mutex::default(),
        }
    }

    /// Has programs compiled for ranges of symbolic sizes, from the module that this one was compiled from.
    pub fn fit(&self, module: &Module, target: Target, gpu: Option<Arc<Device>>, policy: Policy) {
        let symbols = &self.signature().symbols;
        if policy.limit > 0 && !symbols.is_empty() {
            _ = self.fits.set(Fits::new(module, symbols, target, gpu, policy));
        }
    }

    /// The program itself; none without machine code.
    fn program(&self) -> Option<&Program> {
        self.loaded.program()
    }

    fn spares(&self) -> Option<&Spares> {
        self.call.get()?.spares.as_ref()
    }

    /// The inputs that a call writes to.
    fn updated_inputs(&self) -> &[usize] {
        self.program().map_or(&[], |program| &program.updated_inputs)
    }

    /// What the program takes and gives; nothing of a program without machine code.
    fn signature(&self) -> &Signature {
        static EMPTY: Signature = Signature { inputs: Vec::new(), outputs: Vec::new(), symbols: Vec::new() };
        self.program().map_or(&EMPTY, |program| &program.signature)
    }
}

#[pymethods]
impl PyProgram {
    /// Says how a call maps to the program. `inputs`: for each input, the argument's position, its dimensions from slowest to
    /// fastest, its sizes in that order, and whether its elements are complex; `integers`: (argument, symbol); `results`: for each result, (sizes, strides, torch dtype); `returns`: ("result", i),
    /// ("arg", i), ("view", (base, sizes, strides, offset)), ("int", size) or ("constant", object), a base being one of the first two.
    /// `captured` are tensors that come after a call's arguments, and `seed`, if it is not None, makes one that comes last. `graphs`:
    /// launches on a GPU are CUDA graphs. `name`: of the calls' ranges in PyTorch's profiler. `spares`: on a CPU, the memory of large results is kept for the next call.
    #[allow(clippy::type_complexity, clippy::too_many_arguments)]
    #[pyo3(signature = (inputs, integers, results, returns, captured=Vec::new(), seed=None, graphs=true, name="rc".to_string(), spares=false))]
    fn layout(
        &self,
        py: Python<'_>,
        inputs: Vec<(usize, Vec<usize>, Vec<AnyDim>, bool)>,
        integers: Vec<(usize, String)>,
        results: Vec<(Vec<AnyDim>, Vec<AnyDim>, Py<PyAny>)>,
        returns: Vec<PyReturn<'_>>,
        captured: Vec<Py<PyAny>>,
        seed: Option<Py<PyAny>>,
        graphs: bool,
        name: String,
        spares: bool,
    ) -> PyResult<()> {
        let signature = self.signature();
        let compiled = !matches!(self.loaded.code, Code::None);
        let computed = self.loaded.kept.as_ref().map_or(0, |kept| kept.init.results);
        if compiled && (inputs.len() + computed != signature.inputs.len() || results.len() != signature.outputs.len()) {
            return Err(PyTypeError::new_err("as many inputs and results as the program has"));
        }
        let input = |(i, (arg, order, sizes, complex)): (usize, (usize, Vec<usize>, Vec<AnyDim>, bool))| Input {
            arg,
            order,
            sizes: dims(&sizes),
            dtype: signature.inputs.get(i).map(|spec| spec.dtype),
            complex,
        };
        let returns = returns.into_iter().map(Return::new).collect::<PyResult<Vec<Return>>>()?;
        self.loaded.set_graphs(graphs);
        let turns = Turns::new(self.program(), &inputs.iter().map(|input| input.0).collect::<Vec<_>>(), &returns);
        let call = Call {
            exchange: Exchange::of_torch(py)?,
            empty: Empty::new(py, self.device)?,
            bytes: py.import("torch")?.getattr("uint8")?.unbind(),
            inputs: inputs.into_iter().enumerate().map(input).collect(),
            integers: integers.into_iter().map(|(arg, name)| (arg, Name::new(&name))).collect(),
            results: results.iter().map(|(sizes, strides, _)| Layout::new(sizes, strides)).collect(),
            spares: (spares && self.device.0 == CPU).then(|| Spares::new(py, results.len())).transpose()?,
            dtypes: results.into_iter().map(|(.., dtype)| dtype).collect(),
            returns,
            turns,
            captured,
            seed,
            graphs,
            profiler: Profiler::new(py, name)?,
        };
        self.call.set(call).map_err(|_| PyTypeError::new_err("the layout is set already"))
    }

    /// A program without machine code: its calls return arguments, views of them, and integers.
    #[staticmethod]
    fn empty() -> PyProgram {
        PyProgram::new(Loaded { code: Code::None, kept: None }, (CPU, 0))
    }

    /// The arguments that a call updates in place.
    #[getter]
    fn updated(&self) -> Vec<usize> {
        let inputs = self.call.get().map_or(&[][..], |call| &call.inputs);
        self.updated_inputs().iter().filter_map(|&i| inputs.get(i).map(|input| input.arg)).collect()
    }

    /// The programs for ranges of symbolic sizes, a line each: sizes, calls, and why it was made.
    fn variants(&self) -> Vec<String> {
        self.explained()
    }

    /// What became of launches on a GPU, a line for each stretch of them: whether they were CUDA graphs, and why not.
    fn graphs(&self) -> Vec<String> {
        let mut lines = self.loaded.explain_graphs();
        lines.extend(self.explained_graphs());
        lines
    }

    /// Bytes of what is kept of weights between calls, and of results' memory that nobody else has.
    fn kept_bytes(&self, py: Python<'_>) -> usize {
        let spares = self.spares().map_or(0, |spares| spares.bytes(py));
        self.loaded.kept.as_ref().map_or(0, Kept::bytes) + spares
    }

    /// Gives back what is kept of weights, which the next call computes anew, and of results' memory.
    fn free_kept(&self) {
        if let Some(kept) = &self.loaded.kept {
            kept.forget();
        }
        if let Some(spares) = self.spares() {
            spares.forget();
        }
    }

    /// Runs the program: arguments as `layout` describes them, and what it says that a call returns. One list instead holds them all, and
    /// is emptied.
    #[pyo3(signature = (*args))]
    fn __call__<'py>(&self, args: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let list = (args.len() == 1).then(|| args.get_item(0)).transpose()?;
        match list.map(|list| list.cast_into::<PyList>()) {
            Some(Ok(list)) => {
                let given = list.to_tuple();
                list.del_slice(0, list.len())?;
                self.run_in_range(given, false)
            }
            _ => self.run_in_range(args, true),
        }
    }
}

impl PyProgram {
    /// Runs the program, as a range of PyTorch's profiler where that runs. `held`: the caller holds the arguments until it has returned.
    fn run_in_range<'py>(&self, args: Bound<'py, PyTuple>, held: bool) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let call = self.call.get().ok_or_else(|| PyTypeError::new_err("the program has no layout"))?;
        let range = call.profiler.enter(py)?;
        let results = self.run(call, args, held);
        if let Some(range) = range {
            let none = py.None();
            range.call_method1("__exit__", (&none, &none, &none))?;
        }
        results
    }

    fn run<'py>(&self, call: &Call, args: Bound<'py, PyTuple>, held: bool) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let mut more: Vec<_> = call.captured.iter().map(|tensor| tensor.bind(py).clone()).collect();
        if let Some(seed) = &call.seed {
            more.push(seed.bind(py).call0()?);
        }
        let mut inputs = self.inputs(call, &args, &more)?;
        let fitted = self.fitted(py, call, &inputs.sizes.bindings)?;
        let loaded = fitted.as_ref().map_or(&self.loaded, |fitted| &fitted.loaded);
        let kept = loaded.kept.as_ref().map(|kept| kept.values(call, &args, &inputs)).transpose()?;
        inputs.addresses.extend(kept.iter().flat_map(|values| values.addresses()));
        let turns = fitted.as_ref().map_or(&call.turns, |fitted| fitted.turns(call));
        let mut tensors = Tensors::new(call, turns, self.device, &inputs, Args::new(args, held));
        self.execute(py, call, &inputs, &mut tensors, &loaded.code)?;
        for (arg, copy) in &inputs.copies {
            if self.updated_inputs().iter().any(|&i| call.inputs[i].arg == *arg) {
                tensors.arg(py, *arg)?.call_method1("copy_", (copy,))?;
            }
        }
        let objects = Objects { tensors: &tensors, copies: &inputs.copies };
        let give = |r: &Return| r.give(py, &objects, &inputs.sizes.bindings);
        PyList::new(py, call.returns.iter().map(give).collect::<PyResult<Vec<_>>>()?)
    }

    fn execute(
        &self,
        py: Python<'_>,
        call: &Call,
        inputs: &Inputs<'_>,
        tensors: &mut Tensors,
        code: &Code,
    ) -> PyResult<()> {
        let bindings = &inputs.sizes.bindings;
        let mut failed = None;
        let done = match code {
            Code::None => return Ok(()),
            Code::Cpu(program) => {
                let from = Addresses(&inputs.addresses);
                // SAFETY: dtypes, sizes and layouts were checked, results are fresh, and tensors are held while steps use them.
                let run = || unsafe {
                    let results = tensors.addresses.clone();
                    program.run_between(bindings, from.constant(), &results, &mut |step| {
                        tensors.between(step, &mut failed)
                    })
                };
                py.detach(run)
            }
            Code::Cuda(program) => {
                let stream = call.exchange.stream(py, self.device)?;
                let from: Vec<u64> = inputs.addresses.iter().map(|&p| p as u64).collect();
                let slabs = (!program.program().slabs.is_empty()).then(|| tensors.hold_slabs(program.program()));
                let whole = match slabs {
                    Some(_) => None,
                    None => {
                        let bytes = program.program().arena_bytes(bindings).map_err(|e| plain(py, e))?;
                        Some(call.bytes(py, self.device, bytes)?)
                    }
                };
                let whole = whole.as_ref().map_or(0, |(_, memory)| memory.address() as u64);
                let arena = slabs.as_ref().map_or(Arena::Whole(whole), |slabs| Arena::Slabs(slabs));
                let joined = tensors.join(py);
                let results = tensors.addresses.clone();
                let between: rc_runtime::program::Between = &mut |step| tensors.between(step, &mut failed);
                // SAFETY: as above; what is let go is given to what comes later on the stream alone, whose order PyTorch's allocator goes by.
                unsafe { program.run_between(bindings, &from, &results, arena, stream, &joined.stops, between) }
            }
        };
        match failed {
            Some(error) => Err(error),
            None => done.map_err(|e| raised(py, e)),
        }
    }
}

/// An operation's own exception, where one of PyTorch's has raised it.
fn raised(py: Python<'_>, error: rc_runtime::Error) -> PyErr {
    match error {
        rc_runtime::Error::Foreign { function, why } => match why.downcast::<PyErr>() {
            Ok(error) => *error,
            Err(why) => plain(py, rc_runtime::Error::Foreign { function, why }),
        },
        error => plain(py, error),
    }
}

impl Call {
    /// So many bytes, and where they are.
    fn bytes<'py>(&self, py: Python<'py>, device: (i32, i32), bytes: usize) -> PyResult<(Bound<'py, PyAny>, DlTensor)> {
        let (size, stride) = (PyTuple::new(py, [bytes.max(1)])?, PyTuple::new(py, [1])?);
        self.empty(device, &size, &stride, self.bytes.bind(py))
    }

    /// A new tensor of PyTorch's, and its memory.
    fn empty<'py>(
        &self,
        device: (i32, i32),
        sizes: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, DlTensor)> {
        let py = sizes.py();
        if let Some(quick) = &self.empty.quick {
            let tensor = quick.bind(py).call1((sizes, strides, dtype))?;
            let memory = self.exchange.tensor(&tensor)?;
            if memory.is_on(device) {
                return Ok((tensor, memory));
            }
        }
        let keywords = PyDict::new(py);
        keywords.set_item("device", &self.empty.device)?;
        keywords.set_item("dtype", dtype)?;
        let tensor = self.empty.general.bind(py).call((sizes, strides), Some(&keywords))?;
        let memory = self.exchange.tensor(&tensor)?;
        Ok((tensor, memory))
    }
}

impl Profiler {
    fn new(py: Python<'_>, name: String) -> PyResult<Profiler> {
        let module = py.import("torch.autograd.profiler")?.into_any().unbind();
        let ranges = py.import("torch._C._profiler");
        let range = ranges.and_then(|ranges| ranges.getattr("_RecordFunctionFast")).ok().map(Bound::unbind);
        Ok(Profiler { module, range, name })
    }

    /// A range that has begun, where the profiler runs.
    fn enter<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(range) = &self.range else { return Ok(None) };
        if !self.module.bind(py).getattr(pyo3::intern!(py, "_is_profiler_enabled"))?.is_truthy()? {
            return Ok(None);
        }
        let range = range.bind(py).call1((&self.name,))?;
        range.call_method0("__enter__")?;
        Ok(Some(range))
    }
}

impl Empty {
    fn new(py: Python<'_>, (kind, index): (i32, i32)) -> PyResult<Empty> {
        let torch = py.import("torch")?;
        let (device, quick) = match kind {
            CUDA => (format!("cuda:{index}"), "_empty_strided_cuda"),
            _ => ("cpu".to_string(), "_empty_strided_cpu"),
        };
        let guards = py.import("torch._C._dynamo.guards");
        Ok(Empty {
            quick: guards.and_then(|guards| guards.getattr(quick)).ok().map(Bound::unbind),
            general: torch.getattr("empty_strided")?.unbind(),
            device: torch.getattr("device")?.call1((device,))?.unbind(),
        })
    }
}

/// Addresses that can cross to a thread without the interpreter's lock.
#[derive(Clone, Copy)]
struct Addresses<'a>(&'a [*mut u8]);
// SAFETY: the tensors behind the addresses live until the call returns.
unsafe impl Send for Addresses<'_> {}
// SAFETY: as above.
unsafe impl Sync for Addresses<'_> {}

impl<'a> Addresses<'a> {
    fn all(&self) -> &'a [*mut u8] {
        self.0
    }
    fn constant(&self) -> &'a [*const u8] {
        // SAFETY: pointers to constant and to mutable bytes are the same.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) }
    }
}
