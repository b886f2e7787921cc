//! DLPack: its C exchange functions, by which PyTorch shows a tensor's memory without a copy or a Python call, and its capsules, by which any
//! library does.
//!
//! The layouts are those of `dlpack.h` 1.x; PyTorch offers the table as `torch.Tensor.__dlpack_c_exchange_api__` since 2.10.

use crate::direct::Direct;
use pyo3::exceptions::{PyBufferError, PyImportError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use rc_runtime::{DType, Tensor};
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// DLPack's numbers for kinds of devices.
pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;

/// `DLTensor`: a tensor that its producer owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DlTensor {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Managed {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    flags: u64,
    tensor: DlTensor,
}

/// What a tensor of somebody else's memory holds: itself, its shape and strides, and how many of its kind there are.
struct View {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    count: Arc<AtomicUsize>,
}

unsafe extern "C" fn delete_view(managed: *mut Managed) {
    // SAFETY: the context is the box that `Exchange::view` made, which is given back once.
    let view = unsafe { Box::from_raw((*managed).context.cast::<View>()) };
    view.count.fetch_sub(1, Ordering::AcqRel);
}

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    version: Version,
    previous: *const Table,
    allocate: *const c_void,
    from_object_managed: *const c_void,
    to_object: unsafe extern "C" fn(*mut Managed, *mut *mut c_void) -> i32,
    from_object: unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> i32,
    current_stream: unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> i32,
}

/// PyTorch's table of exchange functions, and what reads most of its tensors without it.
#[derive(Clone, Copy)]
pub struct Exchange(&'static Table, Option<&'static Direct>);

// SAFETY: the table is constant and lives as long as the process.
unsafe impl Send for Exchange {}
// SAFETY: as above.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// The table that `torch.Tensor` offers.
    pub fn of_torch(py: Python<'_>) -> PyResult<Exchange> {
        let tensor = py.import("torch")?.getattr("Tensor")?;
        let capsule = tensor.getattr("__dlpack_c_exchange_api__");
        let capsule =
            capsule.map_err(|_| PyImportError::new_err("rc needs PyTorch 2.11 or newer"))?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"dlpack_exchange_api"))?;
        // SAFETY: what DLPack says that the capsule of this name holds.
        let table: &'static Table = unsafe { &*pointer.as_ptr().cast() };
        if table.version.major != 1 {
            let found = table.version.major;
            return Err(PyImportError::new_err(format!("rc reads DLPack 1; this PyTorch has DLPack {found}")));
        }
        let table = Exchange(table, None);
        Ok(Exchange(table.0, Direct::of_torch(py, &table)))
    }

    /// The memory of a tensor, valid while the object lives and is not resized.
    #[inline(always)]
    pub fn tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<DlTensor> {
        // SAFETY: the caller holds the object.
        let direct = self.1.and_then(|direct| unsafe { direct.tensor(object.as_ptr()) });
        direct.map_or_else(|| self.tensor_of_object(object), Ok)
    }

    /// As [`Exchange::tensor`], by DLPack's function whatever the object.
    pub fn tensor_of_object(&self, object: &Bound<'_, PyAny>) -> PyResult<DlTensor> {
        let mut out = std::mem::MaybeUninit::uninit();
        // SAFETY: the caller holds the object; on success all fields are written.
        match unsafe { (self.0.from_object)(object.as_ptr().cast(), out.as_mut_ptr()) } {
            0 => Ok(unsafe { out.assume_init() }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// A tensor of PyTorch's on this memory, row-major, counted in `count` as long as anything uses it.
    ///
    /// # Safety
    /// The memory is the device's and has elements of the dtype; it is there while `count` is not 0.
    pub unsafe fn view<'py>(
        &self,
        py: Python<'py>,
        address: *mut u8,
        device: (i32, i32),
        dtype: DType,
        shape: Vec<i64>,
        count: &Arc<AtomicUsize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let strides = row_major(&shape);
        let none = std::ptr::null();
        let tensor = DlTensor::new(address, device, code_of(dtype), shape.len() as i32, none, none);
        let version = Version { major: 1, minor: 0 };
        let managed = Managed { version, context: std::ptr::null_mut(), deleter: Some(delete_view), flags: 0, tensor };
        count.fetch_add(1, Ordering::AcqRel);
        let view = Box::into_raw(Box::new(View { managed, shape, strides, count: count.clone() }));
        let mut object = std::ptr::null_mut();
        // SAFETY: the box lives until its deleter is called, which PyTorch does when no tensor uses the memory any more.
        let done = unsafe {
            (*view).managed.context = view.cast();
            (*view).managed.tensor.shape = (*view).shape.as_ptr();
            (*view).managed.tensor.strides = (*view).strides.as_ptr();
            (self.0.to_object)(&raw mut (*view).managed, &mut object)
        };
        if done != 0 {
            // SAFETY: what failed has taken nothing.
            unsafe { delete_view(&raw mut (*view).managed) };
            return Err(PyErr::fetch(py));
        }
        // SAFETY: a new reference to a tensor.
        Ok(unsafe { Bound::from_owned_ptr(py, object.cast()) })
    }

    /// The stream that PyTorch queues work on, for a device of DLPack's kind.
    pub fn stream(&self, py: Python<'_>, tensor: (i32, i32)) -> PyResult<*mut c_void> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        match unsafe { (self.0.current_stream)(tensor.0, tensor.1, &mut stream) } {
            0 => Ok(stream),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl DlTensor {
    pub fn new(
        data: *mut u8,
        (device_type, device_id): (i32, i32),
        (code, bits): (u8, u8),
        ndim: i32,
        shape: *const i64,
        strides: *const i64,
    ) -> DlTensor {
        DlTensor { data, device_type, device_id, ndim, code, bits, lanes: 1, shape, strides, byte_offset: 0 }
    }
    /// DLPack's numbers for the elements' type: its kind, and its bits.
    pub fn code(&self) -> (u8, u8) {
        (self.code, self.bits)
    }
    /// Whether both are of the same memory in the same way.
    pub fn is_same(&self, other: &DlTensor) -> bool {
        let place = |t: &DlTensor| (t.address(), t.device_type, t.code(), t.lanes);
        place(self) == place(other) && self.shape() == other.shape() && self.strides() == other.strides()
    }
    pub fn shape(&self) -> &[i64] {
        self.slice(self.shape)
    }
    pub fn strides(&self) -> &[i64] {
        self.slice(self.strides)
    }
    fn slice(&self, pointer: *const i64) -> &[i64] {
        if self.ndim == 0 || pointer.is_null() {
            return &[];
        }
        // SAFETY: a DLTensor's shape and strides have `ndim` elements, owned by the tensor.
        unsafe { std::slice::from_raw_parts(pointer, self.ndim as usize) }
    }
    /// The address of the first element.
    pub fn address(&self) -> *mut u8 {
        self.data.wrapping_add(self.byte_offset as usize)
    }
    /// Whether it lies on a device, by DLPack's numbers.
    pub fn is_on(&self, (kind, index): (i32, i32)) -> bool {
        self.device_type == kind && (kind == CPU || self.device_id == index)
    }
    /// Whether elements are of this type.
    pub fn is(&self, dtype: DType) -> bool {
        (self.code, self.bits) == code_of(dtype) && self.lanes == 1
    }
    /// Whether elements are complex numbers with parts of this type.
    pub fn is_complex(&self, parts: DType) -> bool {
        const COMPLEX: u8 = 5;
        let float = matches!(parts, DType::F64 | DType::F32);
        float && (self.code, usize::from(self.bits), self.lanes) == (COMPLEX, 16 * parts.size(), 1)
    }
}

/// Steps between neighbours along each dimension, in elements.
fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
    }
    strides
}

/// DLPack's numbers for a type: its kind, and its bits.
fn code_of(dtype: DType) -> (u8, u8) {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const BOOL: u8 = 6;
    const FLOAT8_E4M3FN: u8 = 10;
    const FLOAT8_E5M2: u8 = 12;
    let code = match dtype {
        DType::F64 | DType::F32 | DType::F16 => FLOAT,
        DType::Bf16 => BFLOAT,
        DType::F8E4M3FN => FLOAT8_E4M3FN,
        DType::F8E5M2 => FLOAT8_E5M2,
        DType::I64 | DType::I32 | DType::I16 | DType::I8 => INT,
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => UINT,
        DType::Bool => BOOL,
    };
    (code, 8 * dtype.size() as u8)
}

/// `DLManagedTensor`.
#[repr(C)]
struct Unversioned {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

const UNVERSIONED: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// The tensor of a capsule, valid while that is held and nobody takes the tensor out of it.
pub fn managed(capsule: &Bound<'_, PyAny>) -> PyResult<DlTensor> {
    let capsule = capsule.cast::<PyCapsule>()?;
    if let Ok(pointer) = capsule.pointer_checked(Some(VERSIONED)) {
        // SAFETY: what DLPack says that the capsule of this name holds; the version comes first in every version.
        let managed = unsafe { &*pointer.as_ptr().cast::<Managed>() };
        return match managed.version.major {
            1 => Ok(managed.tensor),
            other => Err(PyBufferError::new_err(format!("rc reads DLPack 1, and this is DLPack {other}"))),
        };
    }
    let pointer = capsule.pointer_checked(Some(UNVERSIONED))?;
    // SAFETY: as above.
    Ok(unsafe { pointer.as_ptr().cast::<Unversioned>().as_ref() }
        .ok_or_else(|| PyBufferError::new_err("an empty capsule"))?
        .tensor)
}

/// What a capsule's tensor points to.
struct Owner {
    _tensor: Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A capsule of a tensor on the CPU, which shares its memory.
pub fn capsule(py: Python<'_>, tensor: Tensor, versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    let shape: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
    let strides = row_major(&shape);
    let (code, data) = (code_of(tensor.dtype()), tensor.as_ptr().cast_mut());
    let owner = Box::new(Owner { _tensor: tensor, shape, strides });
    let shown =
        DlTensor::new(data, (CPU, 0), code, owner.shape.len() as i32, owner.shape.as_ptr(), owner.strides.as_ptr());
    let context = Box::into_raw(owner).cast();
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if versioned {
        let version = Version { major: 1, minor: 0 };
        let deleter = Some(delete_versioned as _);
        let managed = Managed { version, context, deleter, flags: 0, tensor: shown };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED, drop_versioned)
    } else {
        let managed = Unversioned { tensor: shown, context, deleter: Some(delete_unversioned as _) };
        (Box::into_raw(Box::new(managed)).cast(), UNVERSIONED, drop_unversioned)
    };
    // SAFETY: the pointer is not null, the name is constant, and the destructor frees what the pointer is of.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor))) }
}

/// # Safety
/// Made by [`capsule`], and deleted once.
unsafe extern "C" fn delete_versioned(managed: *mut Managed) {
    // SAFETY: the caller's.
    unsafe {
        drop(Box::from_raw((*managed).context.cast::<Owner>()));
        drop(Box::from_raw(managed));
    }
}

/// # Safety
/// As [`delete_versioned`].
unsafe extern "C" fn delete_unversioned(managed: *mut Unversioned) {
    // SAFETY: the caller's.
    unsafe {
        drop(Box::from_raw((*managed).context.cast::<Owner>()));
        drop(Box::from_raw(managed));
    }
}

/// Frees the tensor of a capsule that nobody took it out of: that would have renamed it.
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule made here.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// As [`drop_versioned`].
unsafe extern "C" fn drop_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == 1 {
            delete_unversioned(ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        }
    }
}
