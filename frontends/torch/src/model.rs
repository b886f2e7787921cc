//! Functions that are ready to run, for Python: load, signature, run.

use crate::array::{OnDevice, PyArray, on_device, read, writable};
use crate::dim::to_python;
use crate::errors::{error, plain};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rc_runtime::program::TensorSpec;
use rc_runtime::{DType, DeviceTensor, LoadOptions, Model, Place, Tensor};

/// A function of a package or of a module that was compiled here. Calls from several threads run one after the other.
#[pyclass(name = "Model", frozen)]
pub struct PyModel(Model);

/// A tensor of a signature: its name, element type, and shape.
type Spec<'py> = (String, &'static str, Bound<'py, PyTuple>);

/// Arguments, results, and symbols: (name, least, greatest, divisor).
type Signature<'py> = (Vec<Spec<'py>>, Vec<Spec<'py>>, Vec<(String, i64, i64, i64)>);

impl PyModel {
    /// An argument, for messages.
    fn name(&self, i: usize) -> String {
        match self.0.signature().inputs.get(i).map(|input| input.name.as_str()) {
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
        Ok(PyModel(model))
    }

    #[getter]
    fn device(&self) -> String {
        match self.0.place() {
            Place::Cpu => "cpu".to_string(),
            Place::Cuda(number) => format!("cuda:{number}"),
        }
    }

    fn signature<'py>(&self, py: Python<'py>) -> PyResult<Signature<'py>> {
        let spec = |spec: &TensorSpec| {
            let sizes = spec.shape.iter().map(|&dim| to_python(py, dim)).collect::<PyResult<Vec<_>>>()?;
            Ok((spec.name.to_string(), spec.dtype.name(), PyTuple::new(py, sizes)?))
        };
        let signature = self.0.signature();
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
        let results = kinds.and_then(|kinds| self.0.result_shapes(&kinds)).map_err(|e| plain(py, e))?;
        Ok(results.into_iter().map(|(dtype, shape)| (dtype.name(), shape)).collect())
    }

    /// Queues the function on a stream of its GPU (a `CUstream`, 0: the default one), on arrays there, and leaves its results in `out`.
    fn run_on<'py>(&self, stream: usize, args: &Bound<'py, PyTuple>, out: Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        let py = args.py();
        let Place::Cuda(gpu) = self.0.place() else {
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
        // SAFETY: arrays of the GPU, whose types are checked, and whose libraries keep their memory until work queued on the stream is done.
        let run = || unsafe { self.0.run_on(&shown(&given_at), &shown(&results_at), stream as *mut std::ffi::c_void) };
        let done = py.detach(run);
        done.map_err(|e| plain(py, e))
    }

    /// Runs the function on arrays, and gives its results as new ones.
    fn run<'py>(&self, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let py = args.py();
        let (tensors, _held) = self.arguments(args)?;
        let results = py.detach(|| self.0.run(&tensors)).map_err(|e| plain(py, e))?;
        let arrays = results.into_iter().map(|tensor| Py::new(py, PyArray(tensor))).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, arrays)
    }

    /// Runs the function, and leaves its results in `out`, arrays of the results' types.
    fn run_into<'py>(&self, args: &Bound<'py, PyTuple>, out: Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        let py = args.py();
        let (tensors, _held) = self.arguments(args)?;
        let kinds: Vec<_> = tensors.iter().map(|t| (t.dtype(), t.shape())).collect();
        let expected = self.0.result_shapes(&kinds).map_err(|e| plain(py, e))?;
        if out.len() != expected.len() {
            return Err(plain(py, format!("the function has {} results, {} were given", expected.len(), out.len())));
        }
        let mut taken: Vec<Tensor> = tensors.clone();
        let mut memory = Vec::with_capacity(out.len());
        let mut held = Vec::with_capacity(out.len());
        for (i, (object, (dtype, shape))) in out.iter().zip(&expected).enumerate() {
            let what = || format!("result {i}");
            let (tensor, holder) = writable(object, &what)?;
            if (tensor.dtype(), tensor.shape()) != (*dtype, shape.as_slice()) {
                let (is, of) = (tensor.dtype(), tensor.shape());
                let given = format!("{} is given as {is} of shape {of:?}, and is {dtype} of shape {shape:?}", what());
                return Err(plain(py, given));
            }
            if taken.iter().any(|other| overlap(other, &tensor)) {
                return Err(plain(py, format!("{} shares memory with an argument or another result", what())));
            }
            let length = tensor.bytes().len();
            // SAFETY: writable memory of that many bytes, which nothing else of the call shares; it is held until the call is over.
            memory.push(unsafe { std::slice::from_raw_parts_mut(tensor.as_ptr().cast_mut(), length) });
            taken.push(tensor);
            held.push(holder);
        }
        py.detach(|| self.0.run_into(&tensors, &mut memory)).map_err(|e| plain(py, e))
    }
}

/// A tensor in a GPU's memory, without the object that holds it.
type Placed = (DType, Vec<usize>, u64);

fn shown(all: &[Placed]) -> Vec<DeviceTensor<'_>> {
    all.iter().map(|(dtype, shape, address)| DeviceTensor { dtype: *dtype, shape, address: *address }).collect()
}

fn overlap(a: &Tensor, b: &Tensor) -> bool {
    let range = |t: &Tensor| (t.as_ptr() as usize, t.as_ptr() as usize + t.bytes().len());
    let ((a, a_end), (b, b_end)) = (range(a), range(b));
    a < b_end && b < a_end
}

/// A model of a compiled module's first function.
pub fn of_module(py: Python<'_>, module: &rc_ir::Module, place: Place) -> PyResult<PyModel> {
    let model = py.detach(|| Model::of_module(module, None, place)).map_err(|d| error(py, &[*d]))?;
    Ok(PyModel(model))
}
