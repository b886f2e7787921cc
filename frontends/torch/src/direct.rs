//! PyTorch's C functions of a tensor, whose ABI is stable: `aoti_torch_get_…`, which its own compiled code calls. The exchange of DLPack takes three times as
//! long, for conversions and counts of objects.

use crate::dlpack::{CPU, CUDA, DlTensor, Exchange};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

/// Reads tensors where their objects have them.
pub struct Direct {
    /// The classes of such objects. Others may be subclasses that are no more than a wrapper.
    classes: [usize; 2],
    /// The handle's place in an object.
    place: usize,
    get: Functions,
    /// DLPack's kind and bits of each of PyTorch's element types; no bits where it has none.
    codes: [(u8, u8); TYPES],
}

/// Each writes what it is asked for, and gives 0, or fails.
struct Functions {
    data: Get<*mut u8>,
    rank: Get<i64>,
    sizes: Get<*const i64>,
    strides: Get<*const i64>,
    element: Get<i32>,
    kind: Get<i32>,
    index: Get<i32>,
}

type Get<T> = unsafe extern "C" fn(Handle, *mut T) -> i32;
type Handle = *const c_void;

/// More than PyTorch has element types.
const TYPES: usize = 64;
/// Words of an object that may be its tensor: those after the object's own.
const PLACES: std::ops::Range<usize> = 2..6;

impl Direct {
    /// Where this PyTorch's tensors are read so. The process looks once.
    pub fn of_torch(py: Python<'_>, exchange: &Exchange) -> Option<&'static Direct> {
        static FOUND: OnceLock<Option<Direct>> = OnceLock::new();
        FOUND.get_or_init(|| Direct::find(py, exchange).ok().flatten()).as_ref()
    }

    /// Looks for it, and compares what it reads with what DLPack's exchange says, for each element type.
    fn find(py: Python<'_>, exchange: &Exchange) -> PyResult<Option<Direct>> {
        let torch = py.import("torch")?;
        let Some(get) = Functions::of(&library(py)?) else { return Ok(None) };
        // It makes a tensor whatever modes are on.
        let make = py.import("torch._C._dynamo.guards")?.getattr("_empty_strided_cpu")?;
        let make = |dtype: &str| make.call1(((2, 3), (3, 1), torch.getattr(dtype)?));
        let classes = [torch.getattr("Tensor")?, torch.getattr("nn")?.getattr("Parameter")?];
        let classes = classes.map(|class| class.as_ptr() as usize);
        let known = make("float32")?;
        let address: usize = known.getattr("_cdata")?.extract()?;
        // SAFETY: an object of the class has as many words: what PyTorch adds to an object's own are at least four.
        let at = |i: &usize| unsafe { *known.as_ptr().cast::<usize>().add(*i) } == address;
        let Some(word) = PLACES.into_iter().find(at) else { return Ok(None) };
        let mut direct = Direct { classes, place: word * size_of::<usize>(), get, codes: [(0, 0); TYPES] };
        for dtype in ELEMENTS {
            let Ok(tensor) = make(dtype) else { continue };
            let says = exchange.tensor_of_object(&tensor)?;
            if !direct.learn(tensor.as_ptr(), &says) {
                return Ok(None);
            }
        }
        Ok(Some(direct))
    }

    /// Takes over what DLPack says of an element type; whether it says the same of all else.
    fn learn(&mut self, object: *mut PyObject, says: &DlTensor) -> bool {
        // SAFETY: the object is one of the class, and held.
        let element = unsafe { got(self.get.element, object.cast_const().byte_add(self.place).cast()) };
        let Some(code) = element.and_then(|element| self.codes.get_mut(usize::try_from(element).ok()?)) else {
            return false;
        };
        *code = says.code();
        // SAFETY: as above.
        unsafe { self.tensor(object) }.is_some_and(|tensor| tensor.is_same(says))
    }

    /// The memory of a tensor, as DLPack would show it; none where DLPack has to be asked.
    ///
    /// # Safety
    /// The object is held, and so is the interpreter.
    #[inline(always)]
    pub unsafe fn tensor(&self, object: *mut PyObject) -> Option<DlTensor> {
        // SAFETY: the caller's. Objects of these classes have a handle in that place.
        unsafe {
            if !self.classes.contains(&(ffi::Py_TYPE(object) as usize)) {
                return None;
            }
            let (get, handle) = (&self.get, object.cast_const().byte_add(self.place).cast());
            let data = got(get.data, handle)?;
            let code = *self.codes.get(usize::try_from(got(get.element, handle)?).ok()?)?;
            // PyTorch's own numbers of devices.
            let kind = match got(get.kind, handle)? {
                0 => CPU,
                1 => CUDA,
                _ => return None,
            };
            let index = if kind == CPU { 0 } else { got(get.index, handle)? };
            let (rank, sizes, strides) = (got(get.rank, handle)?, got(get.sizes, handle)?, got(get.strides, handle)?);
            (code.1 != 0).then(|| DlTensor::new(data, (kind, index), code, rank as i32, sizes, strides))
        }
    }
}

/// Where the library with PyTorch's functions on the CPU is, which the process has loaded.
pub fn library(py: Python<'_>) -> PyResult<CString> {
    let folder: String = py.import("torch")?.getattr("__path__")?.get_item(0)?.extract()?;
    Ok(CString::new(format!("{folder}/lib/libtorch_cpu.so"))?)
}

/// What a function says of a tensor.
///
/// # Safety
/// The handle is that of a tensor.
#[inline(always)]
unsafe fn got<T>(function: Get<T>, handle: Handle) -> Option<T> {
    let mut out = std::mem::MaybeUninit::uninit();
    // SAFETY: the caller's; where it gives 0, it has written.
    unsafe { (function(handle, out.as_mut_ptr()) == 0).then(|| out.assume_init()) }
}

impl Functions {
    /// Those of the library at this path, which the process has loaded.
    fn of(path: &CStr) -> Option<Functions> {
        // SAFETY: loads nothing that is not loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return None;
        }
        // SAFETY: what PyTorch declares for each name in `torch/csrc/inductor/aoti_torch/c/shim.h`.
        unsafe {
            Some(Functions {
                data: function(library, "data_ptr")?,
                rank: function(library, "dim")?,
                sizes: function(library, "sizes")?,
                strides: function(library, "strides")?,
                element: function(library, "dtype")?,
                kind: function(library, "device_type")?,
                index: function(library, "device_index")?,
            })
        }
    }
}

/// # Safety
/// The function of this name is one that writes a `T`.
unsafe fn function<T>(library: *mut c_void, name: &str) -> Option<Get<T>> {
    let name = CString::new(format!("aoti_torch_get_{name}")).ok()?;
    // SAFETY: the library is loaded, and stays: PyTorch's cannot be unloaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller's.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Get<T>>(found) })
}

/// PyTorch's element types that DLPack has and rc reads.
const ELEMENTS: [&str; 17] = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
    "complex64",
    "complex128",
];
