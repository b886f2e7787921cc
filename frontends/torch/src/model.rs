//! Functions that are ready to run, for Python: load, signature, run.

use crate::array::{OnDevice, PyArray, on_device, read, writable};
use crate::dim::to_python;
use crate::errors::plain;
use crate::threads::on_team;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rc::Function;
use rc::variants::News;
use rc_runtime::cuda::{Device, Stream};
use rc_runtime::program::TensorSpec;
use rc_runtime::{DType, DeviceTensor, LoadOptions, Model, Place, Tensor};
use std::sync::Arc;

/// A function of a package or of a module that was compiled here. Calls from several threads run one after the other.
#[pyclass(name = "Model", frozen)]
pub struct PyModel {
    general: Arc<Model>,
    /// Of a module that was compiled here.
    function: Option<Function>,
}

/// A tensor of a signature: its name, element type, and shape.
type Spec<'py> = (String, &'static str, Bound<'py, PyTuple>);

/// Arguments, results, and symbols: (name, least, greatest, divisor).
type Signature<'py> = (Vec<Spec<'py>>, Vec<Spec<'py>>, Vec<(String, i64, i64, i64)>);

impl PyModel {
    /// A function that was compiled here.
    pub fn of(py: Python<'_>, function: Function) -> PyResult<PyModel> {
        warn(py, &function)?;
        Ok(PyModel { general: function.general().clone(), function: Some(function) })
    }

    /// The program for arguments of these dtypes and shapes.
    fn program(
        &self,
        py: Python<'_>,
        kinds: &[(DType, &[usize])],
        may_make: impl FnOnce() -> bool + Send,
    ) -> PyResult<Arc<Model>> {
        let Some(function) = &self.function else { return Ok(self.general.clone()) };
        // The threads that compile have no part in the interpreter's lock.
        let program = on_team(py, || function.program(kinds, may_make))?;
        warn(py, function)?;
        Ok(program)
    }

    /// An argument, for messages.
    fn name(&self, i: usize) -> String {
        match self.general.signature().inputs.get(i).map(|input| input.name.as_str()) {
            Some(name) if !name.is_empty() => format!("argument {i} ({name})"),
            _ => format!("argument {i}"),
        }
    }

    fn arguments<'py>(&self, args: &Bound<'py, PyTuple>) -> PyResult<(Vec<Tensor>, Vec<Bound<'py, PyAny>>)> {
        let (mut tensors, mut held) = (Vec::with_capacity(args.len()), Vec::with_capacity(args.len()));
        for (i, arg) in args.iter().enumerate() {
            let argument = read(&arg, &|| self.name(i))?;
            tensors.push(argument.tensor);
            held.push(argument.held);
        }
        Ok((tensors, held))
    }
}

/// The device's name in Python, as a place: `cpu`, `cuda`, `cuda:1`.
pub fn place(py: Python<'_>, device: &str) -> PyResult<Place> {
    let number = match device.split_once(':') {
        None if device == "cpu" => return Ok(Place::Cpu),
        None if device == "cuda" => Some(0),
        Some(("cuda", number)) => number.parse().ok(),
        _ => None,
    };
    let unknown = || plain(py, format!("there is no device '{device}': it is cpu, cuda, or cuda:1 and so on"));
    number.map(Place::Cuda).ok_or_else(unknown)
}

#[pymethods]
impl PyModel {
    /// Loads a function of a package: the first, where none is named; on the CPU, if there is code for one, where no device is named.
    #[staticmethod]
    #[pyo3(signature = (path, function=None, device=None))]
    fn load(
        py: Python<'_>,
        path: std::path::PathBuf,
        function: Option<String>,
        device: Option<&str>,
    ) -> PyResult<PyModel> {
        let place = device.map(|device| place(py, device)).transpose()?;
        let options = LoadOptions { entry: function, place };
        let model = py.detach(|| Model::load_with(path, &options)).map_err(|e| plain(py, e))?;
        Ok(PyModel { general: Arc::new(model), function: None })
    }

    #[getter]
    fn device(&self) -> String {
        match self.general.place() {
            Place::Cpu => "cpu".to_string(),
            Place::Cuda(number) => format!("cuda:{number}"),
        }
    }

    fn signature<'py>(&self, py: Python<'py>) -> PyResult<Signature<'py>> {
        let spec = |spec: &TensorSpec| {
            let sizes = spec.shape.iter().map(|&dim| to_python(py, dim)).collect::<PyResult<Vec<_>>>()?;
            Ok((spec.name.to_string(), spec.dtype.name(), PyTuple::new(py, sizes)?))
        };
        let signature = self.general.signature();
        let inputs = signature.inputs.iter().map(spec).collect::<PyResult<_>>()?;
        let results = signature.outputs.iter().map(spec).collect::<PyResult<_>>()?;
        let symbols = signature.symbols.iter().map(|s| (s.name.to_string(), s.min, s.max, s.divisor));
        Ok((inputs, results, symbols.collect()))
    }

    /// The element type and shape of each result for arguments of these.
    fn result_types(
        &self,
        py: Python<'_>,
        args: Vec<(String, Vec<usize>)>,
    ) -> PyResult<Vec<(&'static str, Vec<usize>)>> {
        let kind = |(dtype, shape): (String, Vec<usize>)| Ok((dtype.parse::<DType>()?, shape));
        let kinds = args.into_iter().map(kind).collect::<rc_runtime::Result<Vec<_>>>();
        let results = kinds.and_then(|kinds| self.general.result_shapes(&kinds)).map_err(|e| plain(py, e))?;
        Ok(results.into_iter().map(|(dtype, shape)| (dtype.name(), shape)).collect())
    }

    /// Queues the function on a stream of its GPU (a `CUstream`, 0: the default one), on arrays there, and leaves its results in `out`.
    fn run_on<'py>(&self, stream: usize, args: &Bound<'py, PyTuple>, out: Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        let py = args.py();
        let Place::Cuda(gpu) = self.general.place() else {
            return Err(plain(py, "not supported: a stream for code on the CPU: run it on the host's memory"));
        };
        // DLPack calls the default stream 1.
        let number = i64::try_from(stream.max(1)).unwrap_or(1);
        let arg = |(i, object): (usize, Bound<'py, PyAny>)| on_device(&object, gpu as i32, number, &|| self.name(i));
        let given = args.iter().enumerate().map(arg).collect::<PyResult<Vec<_>>>()?;
        let result =
            |(i, object): (usize, &Bound<'py, PyAny>)| on_device(object, gpu as i32, number, &|| format!("result {i}"));
        let results = out.iter().enumerate().map(result).collect::<PyResult<Vec<_>>>()?;
        let placed = |array: &OnDevice<'py>| (array.dtype, array.shape.clone(), array.address);
        let (given_at, results_at): (Vec<Placed>, Vec<Placed>) =
            (given.iter().map(placed).collect(), results.iter().map(placed).collect());
        let kinds: Vec<_> = given_at.iter().map(|(dtype, shape, _)| (*dtype, shape.as_slice())).collect();
        let program = self.program(py, &kinds, || !is_captured(gpu, stream))?;
        // SAFETY: arrays of the GPU, whose types are checked, and whose libraries keep their memory until work queued on the stream is done.
        let run = || unsafe { program.run_on(&shown(&given_at), &shown(&results_at), stream as *mut std::ffi::c_void) };
        let done = py.detach(run);
        done.map_err(|e| plain(py, e))
    }

    /// The programs for ranges of symbolic sizes, a line each: sizes, calls, and why it was made.
    fn variants(&self) -> Vec<String> {
        self.function.as_ref().map(Function::explain).unwrap_or_default()
    }

    /// Runs the function on arrays, and gives its results as new ones.
    fn run<'py>(&self, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let (tensors, _held) = self.arguments(args)?;
        let program = self.program(py, &kinds(&tensors), || true)?;
        let results = py.detach(|| program.run(&tensors)).map_err(|e| plain(py, e))?;
        let arrays = results.into_iter().map(|tensor| Py::new(py, PyArray(tensor))).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, arrays)
    }

    /// Runs the function, and leaves its results in `out`, arrays of the results' types.
    fn run_into<'py>(&self, args: &Bound<'py, PyTuple>, out: Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        let py = args.py();
        let (tensors, _held) = self.arguments(args)?;
        let (mut results, mut results_held) = (Vec::with_capacity(out.len()), Vec::with_capacity(out.len()));
        for (i, object) in out.iter().enumerate() {
            let (tensor, holder) = writable(object, &|| format!("result {i}"))?;
            results.push(tensor);
            results_held.push(holder);
        }
        let program = self.program(py, &kinds(&tensors), || true)?;
        // SAFETY: memory that may be written to, and is held until the call is over.
        let run = || unsafe { program.run_in(tensors.as_slice(), results.as_slice()) };
        py.detach(run).map_err(|e| plain(py, e))
    }
}

/// A tensor in a GPU's memory, without the object that holds it.
type Placed = (DType, Vec<usize>, u64);

fn shown(all: &[Placed]) -> Vec<DeviceTensor<'_>> {
    all.iter().map(|(dtype, shape, address)| DeviceTensor { dtype: *dtype, shape, address: *address }).collect()
}

fn kinds(tensors: &[Tensor]) -> Vec<(DType, &[usize])> {
    tensors.iter().map(|tensor| (tensor.dtype(), tensor.shape())).collect()
}

/// Whether somebody records what is queued on a GPU's stream.
fn is_captured(gpu: usize, stream: usize) -> bool {
    let Ok(device) = Device::open(gpu) else { return false };
    // SAFETY: the caller's stream is one of the device. The default one has an error to tell while another one is captured.
    unsafe { Stream::borrow(&device, stream as *mut std::ffi::c_void) }.is_capturing().unwrap_or(true)
}

/// What the compiler warned of since the last call, as Python's warnings.
fn warn(py: Python<'_>, function: &Function) -> PyResult<()> {
    for news in function.news() {
        if let News::Warning(text) = news {
            let text = std::ffi::CString::new(text.replace('\0', "?")).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), &text, 2)?;
        }
    }
    Ok(())
}
