//! Compiled programs, run on PyTorch's tensors.

use crate::dim::AnyDim;
use crate::dlpack::{DlTensor, Exchange};
use crate::errors::plain;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rc_ir::{Dim, Module, Name, Result};
use rc_runtime::cuda::Device;
use rc_runtime::program::{Bindings, CpuProgram, CudaProgram, Program, Signature, TensorSpec, evaluate};
use std::sync::{Arc, Mutex};

/// Machine code, and how a call's arguments and results map to its inputs and outputs.
#[pyclass(name = "Program", frozen)]
pub struct PyProgram {
    code: Code,
    device: i32,
    call: std::sync::OnceLock<Call>,
    last: Mutex<Option<Arc<Sizes>>>,
}

enum Code {
    None,
    Cpu(CpuProgram),
    Cuda(Box<CudaProgram>),
}

/// How a call maps to the program.
struct Call {
    exchange: Exchange,
    /// `torch.empty_strided`, and its keywords for the arena and for each result.
    empty: Py<PyAny>,
    arena: Py<PyDict>,
    keywords: Vec<Py<PyDict>>,
    inputs: Vec<Input>,
    /// Arguments that are integers, and the symbols that they are.
    integers: Vec<(usize, Name)>,
    results: Vec<Layout>,
    returns: Vec<Return>,
}

/// An argument's place, its dimensions from the slowest to the fastest in memory, and its sizes in that order.
struct Input {
    arg: usize,
    order: Vec<usize>,
    sizes: Vec<Dim>,
}

/// Sizes and strides of a tensor.
struct Layout {
    sizes: Vec<Dim>,
    strides: Vec<Dim>,
}

enum Base {
    Arg(usize),
    Result(usize),
}

/// What a call gives back.
enum Return {
    Whole(Base),
    View { base: Base, layout: Layout, offset: Dim },
    Integer(Dim),
    Constant(Py<PyAny>),
}

/// Everything that follows from the sizes of the arguments.
struct Sizes {
    key: Vec<i64>,
    bindings: Bindings,
    results: Vec<(Py<PyTuple>, Py<PyTuple>)>,
}

/// An argument's place, and the copy that stands for it.
type Copied<'py> = (usize, Bound<'py, PyAny>);

/// The tensors of a call.
struct Objects<'a, 'py> {
    args: &'a Bound<'py, PyList>,
    copies: &'a [Copied<'py>],
    results: &'a [Bound<'py, PyAny>],
}

type PyBase = (String, usize);
type PyReturn<'py> = (String, Bound<'py, PyAny>);

impl PyProgram {
    pub fn cpu(module: &Module) -> Result<PyProgram> {
        let fail = |e: rc_runtime::Error| rc_ir::Diagnostic::error(module.loc, e.to_string());
        Ok(PyProgram::new(Code::Cpu(CpuProgram::new(Program::load(module, None)?).map_err(fail)?), 0))
    }

    pub fn cuda(module: &Module, device: Arc<Device>) -> Result<PyProgram> {
        let fail = |e: rc_runtime::Error| rc_ir::Diagnostic::error(module.loc, e.to_string());
        let program = CudaProgram::new(Program::load(module, None)?, &device).map_err(fail)?;
        Ok(PyProgram::new(Code::Cuda(Box::new(program)), device.ordinal() as i32))
    }

    fn new(code: Code, device: i32) -> PyProgram {
        PyProgram { code, device, call: std::sync::OnceLock::new(), last: Mutex::new(None) }
    }

    /// What the program takes and gives; nothing of a program without machine code.
    fn signature(&self) -> &Signature {
        static EMPTY: Signature = Signature { inputs: Vec::new(), outputs: Vec::new(), symbols: Vec::new() };
        match &self.code {
            Code::None => &EMPTY,
            Code::Cpu(program) => &program.program().signature,
            Code::Cuda(program) => &program.program().signature,
        }
    }
}

#[pymethods]
impl PyProgram {
    /// Says how a call maps to the program. `inputs`: for each input, the argument's position, its dimensions from slowest to
    /// fastest, and its sizes in that order; `integers`: (argument, symbol); `results`: for each result, (sizes, strides, torch dtype); `returns`: ("result", i),
    /// ("arg", i), ("view", (base, sizes, strides, offset)), ("int", size) or ("constant", object), a base being one of the first two.
    #[allow(clippy::type_complexity)]
    fn layout(
        &self,
        py: Python<'_>,
        inputs: Vec<(usize, Vec<usize>, Vec<AnyDim>)>,
        integers: Vec<(usize, String)>,
        results: Vec<(Vec<AnyDim>, Vec<AnyDim>, Py<PyAny>)>,
        returns: Vec<PyReturn<'_>>,
    ) -> PyResult<()> {
        let torch = py.import("torch")?;
        let signature = self.signature();
        let compiled = !matches!(self.code, Code::None);
        if compiled && (inputs.len() != signature.inputs.len() || results.len() != signature.outputs.len()) {
            return Err(PyTypeError::new_err("as many inputs and results as the program has"));
        }
        let device =
            if matches!(self.code, Code::Cuda(_)) { format!("cuda:{}", self.device) } else { "cpu".to_string() };
        let device = torch.getattr("device")?.call1((device,))?;
        let keywords = |dtype: &Bound<'_, PyAny>| -> PyResult<Py<PyDict>> {
            let keywords = PyDict::new(py);
            keywords.set_item("device", &device)?;
            keywords.set_item("dtype", dtype)?;
            Ok(keywords.unbind())
        };
        let call = Call {
            exchange: Exchange::of_torch(py)?,
            empty: torch.getattr("empty_strided")?.unbind(),
            arena: keywords(&torch.getattr("uint8")?)?,
            keywords: results.iter().map(|(.., dtype)| keywords(dtype.bind(py))).collect::<PyResult<_>>()?,
            inputs: inputs
                .into_iter()
                .map(|(arg, order, sizes)| Input { arg, order, sizes: crate::dim::dims(&sizes) })
                .collect(),
            integers: integers.into_iter().map(|(arg, name)| (arg, Name::new(&name))).collect(),
            results: results.iter().map(|(sizes, strides, _)| Layout::new(sizes, strides)).collect(),
            returns: returns.into_iter().map(Return::new).collect::<PyResult<_>>()?,
        };
        self.call.set(call).map_err(|_| PyTypeError::new_err("the layout is set already"))
    }

    /// A program without machine code: its calls return arguments, views of them, and integers.
    #[staticmethod]
    fn empty() -> PyProgram {
        PyProgram::new(Code::None, 0)
    }

    /// Runs the program: arguments as `layout` describes them, and what it says that a call returns.
    fn __call__<'py>(&self, args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let call = self.call.get().ok_or_else(|| PyTypeError::new_err("the program has no layout"))?;
        let (memory, sizes, copies) = self.arguments(call, args)?;
        let mut results = Vec::with_capacity(call.results.len());
        let mut outputs = Vec::with_capacity(call.results.len());
        for (i, (size, stride)) in sizes.results.iter().enumerate() {
            let result = call.empty.bind(py).call((size.bind(py), stride.bind(py)), Some(call.keywords[i].bind(py)))?;
            outputs.push(call.exchange.tensor(&result)?.address());
            results.push(result);
        }
        self.execute(py, call, &sizes, &memory, &outputs)?;
        let objects = Objects { args, copies: &copies, results: &results };
        let give = |r: &Return| r.give(&objects, &sizes.bindings);
        PyList::new(py, call.returns.iter().map(give).collect::<PyResult<Vec<_>>>()?)
    }
}

/// Addresses that can cross to a thread without the interpreter's lock.
struct Addresses(Vec<*mut u8>);
// SAFETY: the tensors behind the addresses live until the call returns.
unsafe impl Send for Addresses {}
unsafe impl Sync for Addresses {}

impl PyProgram {
    /// The inputs' memory, what follows from their sizes, and the copies made of what is laid out otherwise.
    fn arguments<'py>(
        &self,
        call: &Call,
        args: &Bound<'py, PyList>,
    ) -> PyResult<(Addresses, Arc<Sizes>, Vec<Copied<'py>>)> {
        let mut specs = self.signature().inputs.iter();
        let mut memory = Vec::with_capacity(call.inputs.len());
        let mut copies = Vec::new();
        let mut key = Vec::with_capacity(4 * call.inputs.len());
        for input in &call.inputs {
            let object = args.get_item(input.arg)?;
            let mut tensor = call.exchange.tensor(&object)?;
            self.check(input, &tensor)?;
            key.extend(input.order.iter().map(|&d| tensor.shape()[d]));
            // A program without machine code looks at sizes only.
            let Some(spec) = specs.next() else { continue };
            self.check_kind(input, spec, &tensor)?;
            if !dense(&tensor, &input.order) || !(tensor.address() as usize).is_multiple_of(spec.dtype.size()) {
                let copy = copy_of(&object, &input.order)?;
                tensor = call.exchange.tensor(&copy)?;
                copies.push((input.arg, copy));
            }
            memory.push(tensor.address());
        }
        for &(arg, _) in &call.integers {
            key.push(args.get_item(arg)?.extract()?);
        }
        let sizes = self.sizes(args.py(), call, key)?;
        Ok((Addresses(memory), sizes, copies))
    }

    fn check(&self, input: &Input, tensor: &DlTensor) -> PyResult<()> {
        let (rank, found) = (input.order.len(), tensor.shape());
        if found.len() != rank {
            return Err(PyTypeError::new_err(format!(
                "argument {}: expected rank {rank}, found the shape {found:?}",
                input.arg
            )));
        }
        Ok(())
    }

    fn check_kind(&self, input: &Input, spec: &TensorSpec, tensor: &DlTensor) -> PyResult<()> {
        const CPU: i32 = 1;
        const CUDA: i32 = 2;
        let (kind, id) = if matches!(self.code, Code::Cuda(_)) { (CUDA, self.device) } else { (CPU, 0) };
        if tensor.device_type != kind || (kind == CUDA && tensor.device_id != id) {
            return Err(PyTypeError::new_err(format!(
                "argument {} is on another device than the compiled program",
                input.arg
            )));
        }
        if !tensor.is(spec.dtype) {
            return Err(PyTypeError::new_err(format!(
                "argument {}: expected elements of type {}",
                input.arg, spec.dtype
            )));
        }
        Ok(())
    }

    fn sizes(&self, py: Python<'_>, call: &Call, key: Vec<i64>) -> PyResult<Arc<Sizes>> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(sizes) = last.as_ref().filter(|s| s.key == key) {
            return Ok(sizes.clone());
        }
        let bindings = self.bind(py, call, &key)?;
        let tuple = |dims: &[Dim]| PyTuple::new(py, numbers(py, dims, &bindings)?).map(Bound::unbind);
        let results =
            call.results.iter().map(|l| Ok((tuple(&l.sizes)?, tuple(&l.strides)?))).collect::<PyResult<_>>()?;
        let sizes = Arc::new(Sizes { key, bindings, results });
        *last = Some(sizes.clone());
        Ok(sizes)
    }

    /// The symbols' values, from all sizes of the inputs and the integers, checked against the signature.
    fn bind(&self, py: Python<'_>, call: &Call, key: &[i64]) -> PyResult<Bindings> {
        let shape = || call.inputs.iter().flat_map(|input| &input.sizes);
        let count = shape().count();
        let mut bindings = Bindings::default();
        for (&(_, name), &value) in call.integers.iter().zip(&key[count..]) {
            bindings.insert(name, value);
        }
        for (dim, &size) in shape().zip(key) {
            if let Some(symbol) = dim.as_symbol() {
                bindings.entry(symbol).or_insert(size);
            }
        }
        for (i, (dim, &size)) in shape().zip(key).enumerate() {
            let expected = evaluate(*dim, &bindings).map_err(|e| plain(py, e))?;
            if expected != size {
                return Err(plain(
                    py,
                    format!("size number {i} of the arguments is {size}, where {dim} = {expected} was compiled"),
                ));
            }
        }
        self.signature().check_symbols(&bindings).map_err(|e| plain(py, e))?;
        Ok(bindings)
    }

    fn execute(
        &self,
        py: Python<'_>,
        call: &Call,
        sizes: &Sizes,
        inputs: &Addresses,
        outputs: &[*mut u8],
    ) -> PyResult<()> {
        match &self.code {
            Code::None => Ok(()),
            Code::Cpu(program) => {
                let outputs = Addresses(outputs.to_vec());
                let bindings = &sizes.bindings;
                let run = || {
                    let (inputs, outputs) = (inputs, &outputs);
                    let from: Vec<*const u8> = inputs.0.iter().map(|p| p.cast_const()).collect();
                    // SAFETY: dtypes, sizes and layouts were checked, results are fresh, and the caller holds all tensors.
                    unsafe { program.run_at(bindings, &from, &outputs.0) }
                };
                py.detach(run).map_err(|e| plain(py, e))
            }
            Code::Cuda(program) => {
                let arena = program.program().arena_bytes(&sizes.bindings).map_err(|e| plain(py, e))?;
                let arena = call.empty.bind(py).call(((arena.max(1),), (1,)), Some(call.arena.bind(py)))?;
                let arena = call.exchange.tensor(&arena)?;
                let stream = call.exchange.stream(py, (arena.device_type, arena.device_id))?;
                let addresses = |list: &[*mut u8]| list.iter().map(|&p| p as u64).collect::<Vec<_>>();
                let (inputs, outputs) = (addresses(&inputs.0), addresses(outputs));
                // SAFETY: as above; PyTorch's allocator keeps the arena until work queued on its stream is done.
                unsafe { program.run_at(&sizes.bindings, &inputs, &outputs, arena.address() as u64, stream) }
                    .map_err(|e| plain(py, e))
            }
        }
    }
}

impl Layout {
    fn new(sizes: &[AnyDim], strides: &[AnyDim]) -> Layout {
        Layout { sizes: crate::dim::dims(sizes), strides: crate::dim::dims(strides) }
    }
}

impl Base {
    fn new((kind, index): &PyBase) -> PyResult<Base> {
        match kind.as_str() {
            "arg" => Ok(Base::Arg(*index)),
            "result" => Ok(Base::Result(*index)),
            _ => Err(PyTypeError::new_err(format!("'{kind}' is no base"))),
        }
    }
    fn get<'py>(&self, objects: &Objects<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Base::Arg(i) => objects.args.get_item(*i),
            Base::Result(i) => Ok(objects.results[*i].clone()),
        }
    }
    /// The tensor whose memory is laid out as was compiled for: the copy, where the argument is laid out otherwise.
    fn memory<'py>(&self, objects: &Objects<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let copy = objects.copies.iter().find(|(arg, _)| matches!(self, Base::Arg(i) if i == arg));
        copy.map_or_else(|| self.get(objects), |(_, copy)| Ok(copy.clone()))
    }
}

impl Return {
    fn new((kind, value): PyReturn<'_>) -> PyResult<Return> {
        Ok(match kind.as_str() {
            "view" => {
                let (base, sizes, strides, offset): (PyBase, Vec<AnyDim>, Vec<AnyDim>, AnyDim) = value.extract()?;
                Return::View { base: Base::new(&base)?, layout: Layout::new(&sizes, &strides), offset: offset.0 }
            }
            "int" => Return::Integer(value.extract::<AnyDim>()?.0),
            "constant" => Return::Constant(value.unbind()),
            _ => Return::Whole(Base::new(&(kind, value.extract()?))?),
        })
    }

    fn give<'py>(&self, objects: &Objects<'_, 'py>, bindings: &Bindings) -> PyResult<Bound<'py, PyAny>> {
        let py = objects.args.py();
        match self {
            Return::Whole(base) => base.get(objects),
            Return::View { base, layout, offset } => {
                let numbers = |dims| PyTuple::new(py, numbers(py, dims, bindings)?);
                let offset = offset.evaluate(&|name| bindings.get(&name).copied()).unwrap_or(0);
                let base = base.memory(objects)?;
                let start: i64 = base.call_method0("storage_offset")?.extract()?;
                base.call_method1("as_strided", (numbers(&layout.sizes)?, numbers(&layout.strides)?, start + offset))
            }
            Return::Integer(dim) => {
                let value = dim.evaluate(&|name| bindings.get(&name).copied());
                let value = value.ok_or_else(|| plain(py, format!("{dim} has no value for these arguments")))?;
                Ok(value.into_pyobject(py)?.into_any())
            }
            Return::Constant(object) => Ok(object.bind(py).clone()),
        }
    }
}

fn numbers(py: Python<'_>, dims: &[Dim], bindings: &Bindings) -> PyResult<Vec<i64>> {
    dims.iter().map(|&d| evaluate(d, bindings).map_err(|e| plain(py, e))).collect()
}

/// Whether the elements lie one after another, the dimensions in this order.
fn dense(tensor: &DlTensor, order: &[usize]) -> bool {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let mut expected = 1;
    for &d in order.iter().rev() {
        if shape[d] != 1 && strides.get(d).is_some_and(|&s| s != expected) {
            return shape.contains(&0);
        }
        expected *= shape[d];
    }
    true
}

/// A copy whose elements lie in this order.
fn copy_of<'py>(tensor: &Bound<'py, PyAny>, order: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = PyDict::new(tensor.py());
    kwargs.set_item("memory_format", tensor.py().import("torch")?.getattr("contiguous_format")?)?;
    let physical = tensor.call_method1("permute", (order.to_vec(),))?.call_method("clone", (), Some(&kwargs))?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    physical.call_method1("permute", (back,))
}
