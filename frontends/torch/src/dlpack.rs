//! DLPack's C exchange functions, by which PyTorch shows a tensor's memory without a copy or a Python call.
//!
//! The layouts are those of `dlpack.h` 1.x; PyTorch offers the table as `torch.Tensor.__dlpack_c_exchange_api__` since 2.10.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use rc_runtime::DType;
use std::ffi::c_void;

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

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    version: Version,
    previous: *const Table,
    allocate: *const c_void,
    from_object_managed: *const c_void,
    to_object: *const c_void,
    from_object: unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> i32,
    current_stream: unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> i32,
}

/// PyTorch's table of exchange functions.
#[derive(Clone, Copy)]
pub struct Exchange(&'static Table);

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
        Ok(Exchange(table))
    }

    /// The memory of a tensor, valid while the object lives and is not resized.
    pub fn tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<DlTensor> {
        let mut out = std::mem::MaybeUninit::uninit();
        // SAFETY: the caller holds the object; on success all fields are written.
        match unsafe { (self.0.from_object)(object.as_ptr().cast(), out.as_mut_ptr()) } {
            0 => Ok(unsafe { out.assume_init() }),
            _ => Err(PyErr::fetch(object.py())),
        }
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
        const INT: u8 = 0;
        const UINT: u8 = 1;
        const FLOAT: u8 = 2;
        const BFLOAT: u8 = 4;
        const BOOL: u8 = 6;
        let code = match dtype {
            DType::F64 | DType::F32 | DType::F16 => FLOAT,
            DType::Bf16 => BFLOAT,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 => INT,
            DType::U64 | DType::U32 | DType::U16 | DType::U8 => UINT,
            DType::Bool => BOOL,
        };
        (self.code, usize::from(self.bits), self.lanes) == (code, 8 * dtype.size(), 1)
    }
    /// Whether elements are complex numbers with parts of this type.
    pub fn is_complex(&self, parts: DType) -> bool {
        const COMPLEX: u8 = 5;
        let float = matches!(parts, DType::F64 | DType::F32);
        float && (self.code, usize::from(self.bits), self.lanes) == (COMPLEX, 16 * parts.size(), 1)
    }
}
