//! Arrays by NumPy's protocol and DLPack: arguments are read where they lie, results are shown without a copy.

use crate::dlpack::{self, DlTensor};
use crate::errors::plain;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyBytes, PyDict, PyTuple};
use rc_runtime::{DType, Tensor, npy};

/// A tensor that a model gave, in host memory. NumPy and whatever reads DLPack see its elements without a copy.
#[pyclass(name = "Array", frozen)]
pub struct PyArray(pub Tensor);

#[pymethods]
impl PyArray {
    /// The element type as the IR writes it: `f32`, `bf16`, `i64`, `ui8`, `i1`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }
    #[getter]
    fn device(&self) -> &'static str {
        "cpu"
    }
    fn __len__(&self) -> PyResult<usize> {
        self.0.shape().first().copied().ok_or_else(|| PyTypeError::new_err("an array of no dimensions has no length"))
    }
    fn __repr__(&self) -> String {
        format!("rc.Array({})", self.0)
    }
    /// The bytes of the elements, row-major, as a copy.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.bytes())
    }

    /// NumPy's protocol. Of bf16 and 8-bit floats, which NumPy does not have, there is none; `__array__` makes what `ml_dtypes` has for them.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dtype = self.0.dtype();
        let word = type_word(dtype).ok_or_else(|| PyAttributeError::new_err(format!("NumPy has no {dtype}")))?;
        self.interface(py, word)
    }

    /// The elements as a NumPy array.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let numpy = py.import("numpy")?;
        let this = slf.get();
        let dtype_here = this.0.dtype();
        let mut array = match added_type(dtype_here) {
            Some(name) => {
                let types = py.import("ml_dtypes").map_err(|_| {
                    PyTypeError::new_err(format!(
                        "NumPy has no {dtype_here}: install ml_dtypes, or read the array by DLPack"
                    ))
                })?;
                let shown = Py::new(py, Shown { array: slf.clone().unbind() })?;
                numpy.call_method1("asarray", (shown,))?.call_method1("view", (types.getattr(name)?,))?
            }
            None => numpy.call_method1("asarray", (Py::new(py, Shown { array: slf.clone().unbind() })?,))?,
        };
        if let Some(dtype) = dtype {
            let keywords = PyDict::new(py);
            keywords.set_item("copy", false)?;
            array = array.call_method("astype", (dtype,), Some(&keywords))?;
        }
        if copy == Some(true) { array.call_method0("copy") } else { Ok(array) }
    }

    /// The elements as a NumPy array, without a copy.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        PyArray::__array__(slf, None, None)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("an array on the CPU has no stream"));
        }
        if dl_device.is_some_and(|device| device != (dlpack::CPU, 0)) {
            return Err(PyBufferError::new_err("an rc.Array lies on the CPU: copy it to the device"));
        }
        let tensor = match copy {
            Some(true) => {
                Tensor::from_bytes(self.0.dtype(), self.0.shape(), self.0.bytes()).map_err(|e| plain(py, e))?
            }
            _ => self.0.clone(),
        };
        dlpack::capsule(py, tensor, max_version.is_some_and(|(major, _)| major >= 1))
    }
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }
}

impl PyArray {
    fn interface<'py>(&self, py: Python<'py>, word: &str) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", word)?;
        interface.set_item("shape", PyTuple::new(py, self.0.shape())?)?;
        interface.set_item("data", (self.0.as_ptr() as usize, false))?;
        Ok(interface)
    }
}

/// A copy of an array of any library.
#[pyfunction]
pub fn array(object: &Bound<'_, PyAny>) -> PyResult<PyArray> {
    let tensor = read(object, &|| "the value".to_string())?.tensor;
    let copy = Tensor::from_bytes(tensor.dtype(), tensor.shape(), tensor.bytes());
    Ok(PyArray(copy.map_err(|e| plain(object.py(), e))?))
}

/// An array as NumPy reads it, floats that it does not have as integers of their width.
#[pyclass(frozen)]
struct Shown {
    array: Py<PyArray>,
}

#[pymethods]
impl Shown {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let array = self.array.get();
        let dtype = array.0.dtype();
        array.interface(py, type_word(dtype).unwrap_or(if dtype.size() == 2 { "<u2" } else { "|u1" }))
    }
}

/// NumPy's word for an element type, where it has that type.
fn type_word(dtype: DType) -> Option<&'static str> {
    added_type(dtype).is_none().then(|| npy::descriptor(dtype))
}

/// The name of an element type that NumPy has by `ml_dtypes` only.
fn added_type(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bf16 => Some("bfloat16"),
        DType::F8E4M3FN => Some("float8_e4m3fn"),
        DType::F8E5M2 => Some("float8_e5m2"),
        _ => None,
    }
}

/// Memory that a Python object shows: the elements' type, shape, strides in bytes, and where the first one lies.
struct Memory {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    start: *const u8,
}

/// An argument of a call, and what its memory is held by. `what` names it in errors.
pub struct Argument<'py> {
    pub tensor: Tensor,
    pub held: Bound<'py, PyAny>,
}

/// Reads an argument where it lies: of an array that is row-major and aligned to its elements there is no copy.
pub fn read<'py>(object: &Bound<'py, PyAny>, what: &dyn Fn() -> String) -> PyResult<Argument<'py>> {
    let py = object.py();
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Argument { tensor: array.get().0.clone(), held: object.clone() });
    }
    let (memory, held) = seen(object, what)?;
    let tensor = if memory.is_dense() && memory.is_aligned() {
        // SAFETY: the object's memory is valid for its shape while it is held; the call reads it, and nobody writes to it during a call.
        unsafe { Tensor::borrowed(memory.dtype, &memory.shape, memory.start) }
    } else {
        // SAFETY: as above.
        unsafe { memory.copied() }
    };
    Ok(Argument { tensor: tensor.map_err(|e| plain(py, format!("{}: {e}", what())))?, held })
}

/// The memory of an object for writing to, which is row-major and aligned.
pub fn writable<'py>(object: &Bound<'py, PyAny>, what: &dyn Fn() -> String) -> PyResult<(Tensor, Bound<'py, PyAny>)> {
    let py = object.py();
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok((array.get().0.clone(), object.clone()));
    }
    if let Some(interface) = interface(object)? {
        let (_, is_constant): (usize, bool) = item(&interface, "data")?.extract()?;
        if is_constant {
            return Err(plain(py, format!("{} cannot be written to", what())));
        }
    }
    let (memory, held) = seen(object, what)?;
    if !memory.is_dense() || !memory.is_aligned() {
        return Err(plain(py, format!("{} is not row-major and aligned to its elements", what())));
    }
    // SAFETY: as in `read`; whoever writes does so through its address alone.
    let tensor = unsafe { Tensor::borrowed(memory.dtype, &memory.shape, memory.start) };
    Ok((tensor.map_err(|e| plain(py, e))?, held))
}

/// A tensor in a GPU's memory, row-major.
pub struct OnDevice<'py> {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub address: u64,
    _held: Bound<'py, PyAny>,
}

/// Reads an array of a GPU, for work on one of its streams, by DLPack's number of it.
pub fn on_device<'py>(
    object: &Bound<'py, PyAny>,
    gpu: i32,
    stream: i64,
    what: &dyn Fn() -> String,
) -> PyResult<OnDevice<'py>> {
    let py = object.py();
    let device: Option<(i32, i32)> = match object.call_method0("__dlpack_device__") {
        Ok(device) => Some(device.extract()?),
        Err(_) => None,
    };
    if device != Some((dlpack::CUDA, gpu)) {
        let kind = object.get_type().name()?;
        let where_it_is = if device == Some((dlpack::CPU, 0)) { "on the CPU" } else { "elsewhere" };
        return Err(plain(
            py,
            format!("{} is a {kind} {where_it_is}: on a stream it is an array on cuda:{gpu}", what()),
        ));
    }
    let held = managed(object, Some(stream))?;
    let memory = Memory::of_dlpack(&dlpack::managed(&held)?, py, what)?;
    if !memory.is_dense() {
        return Err(plain(py, format!("{} is not row-major: copy it first", what())));
    }
    Ok(OnDevice { dtype: memory.dtype, shape: memory.shape, address: memory.start as u64, _held: held })
}

fn seen<'py>(object: &Bound<'py, PyAny>, what: &dyn Fn() -> String) -> PyResult<(Memory, Bound<'py, PyAny>)> {
    if let Some(interface) = interface(object)? {
        return Ok((Memory::of_interface(object, &interface, what)?, object.clone()));
    }
    if !object.hasattr("__dlpack__")? {
        let kind = object.get_type().name()?;
        let help = "give an array, as NumPy's, or another object with __array_interface__ or __dlpack__";
        return Err(PyTypeError::new_err(format!("{} is a {kind}: {help}", what())));
    }
    let (device, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if device != dlpack::CPU {
        return Err(plain(object.py(), format!("{} lies on another device than the CPU: copy it there first", what())));
    }
    let capsule = managed(object, None)?;
    let tensor = dlpack::managed(&capsule)?;
    Ok((Memory::of_dlpack(&tensor, object.py(), what)?, capsule))
}

fn interface<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    match object.getattr_opt(pyo3::intern!(object.py(), "__array_interface__"))? {
        Some(interface) => Ok(interface.cast_into::<PyDict>().ok()),
        None => Ok(None),
    }
}

/// A capsule of DLPack's, of a version that says what may be written to where the object knows it.
/// `stream`: where its elements are going to be used.
fn managed<'py>(object: &Bound<'py, PyAny>, stream: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = PyDict::new(py);
    if let Some(stream) = stream {
        keywords.set_item("stream", stream)?;
    }
    let with_version = keywords.copy()?;
    with_version.set_item("max_version", (1, 0))?;
    match object.call_method("__dlpack__", (), Some(&with_version)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method("__dlpack__", (), Some(&keywords)),
        done => done,
    }
}

fn item<'py>(interface: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    interface.get_item(name)?.ok_or_else(|| PyTypeError::new_err(format!("__array_interface__ without '{name}'")))
}

impl Memory {
    fn of_interface(
        object: &Bound<'_, PyAny>,
        interface: &Bound<'_, PyDict>,
        what: &dyn Fn() -> String,
    ) -> PyResult<Memory> {
        let word: String = item(interface, "typestr")?.extract()?;
        let dtype = DType::ALL.into_iter().find(|&dtype| type_word(dtype) == Some(&word));
        let name = || -> PyResult<String> { object.getattr("dtype")?.getattr("name")?.extract() };
        let added = |name: String| {
            let is = |&dtype: &DType| npy::descriptor(dtype) == word && added_type(dtype) == Some(&name);
            DType::ALL.into_iter().find(is)
        };
        let dtype = match dtype.or_else(|| name().ok().and_then(added)) {
            Some(dtype) => dtype,
            None => {
                return Err(plain(object.py(), format!("{} has elements of {word}, which rc does not have", what())));
            }
        };
        let shape: Vec<usize> = item(interface, "shape")?.extract()?;
        let (start, _): (usize, bool) = item(interface, "data")?.extract()?;
        let strides = match interface.get_item("strides")? {
            Some(strides) if !strides.is_none() => strides.extract()?,
            _ => dense_strides(&shape, dtype.size()),
        };
        Ok(Memory { dtype, shape, strides, start: start as *const u8 })
    }

    fn of_dlpack(tensor: &DlTensor, py: Python<'_>, what: &dyn Fn() -> String) -> PyResult<Memory> {
        let dtype = DType::ALL.into_iter().find(|&dtype| tensor.is(dtype));
        let dtype = dtype.ok_or_else(|| plain(py, format!("{} has elements that rc does not have", what())))?;
        let shape: Vec<usize> = tensor.shape().iter().map(|&n| n as usize).collect();
        let strides = match tensor.strides() {
            [] => dense_strides(&shape, dtype.size()),
            strides => strides.iter().map(|&n| n as isize * dtype.size() as isize).collect(),
        };
        Ok(Memory { dtype, shape, strides, start: tensor.address() })
    }

    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    fn is_dense(&self) -> bool {
        let expected = dense_strides(&self.shape, self.dtype.size());
        let differs = |((&size, &is), &expected): ((&usize, &isize), &isize)| size != 1 && is != expected;
        self.is_empty() || !self.shape.iter().zip(&self.strides).zip(&expected).any(differs)
    }

    fn is_aligned(&self) -> bool {
        !self.start.is_null() && (self.start as usize).is_multiple_of(self.dtype.size())
    }

    /// # Safety
    /// The memory is valid for the elements.
    unsafe fn copied(&self) -> rc_runtime::Result<Tensor> {
        let mut tensor = Tensor::zeros(self.dtype, &self.shape)?;
        if self.is_empty() {
            return Ok(tensor);
        }
        let (mut to, size) = (tensor.as_mut_ptr()?, self.dtype.size());
        let mut index = vec![0usize; self.shape.len()];
        loop {
            let steps = index.iter().zip(&self.strides).map(|(&i, &stride)| i as isize * stride);
            // SAFETY: an index within the shape, and as many elements as the tensor has.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.offset(steps.sum()), to, size);
                to = to.add(size);
            }
            // The next index, the last dimension first.
            let Some(d) = (0..index.len()).rev().find(|&d| index[d] + 1 < self.shape[d]) else { return Ok(tensor) };
            index[d] += 1;
            index[d + 1..].fill(0);
        }
    }
}

fn dense_strides(shape: &[usize], size: usize) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut next = size as isize;
    for (stride, &n) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.saturating_mul(n.max(1) as isize);
    }
    strides
}
