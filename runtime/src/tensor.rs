//! Host tensors: a dtype, a shape and bytes in row-major order.

mod compare;
mod convert;
mod display;
mod dtype;
mod random;
mod storage;

use std::sync::Arc;

pub use compare::{Comparison, Failure, Tolerance, compare, max_abs_diff};
pub use convert::{f64_to_bf16, f64_to_f16};
pub use dtype::{DType, Element};
pub use random::Distribution;
pub use storage::ALIGNMENT;
pub(crate) use storage::{AlignedBuffer, Storage};

use crate::{Error, Result};

/// A dense tensor on the host, always contiguous in row-major order.
///
/// Clones share their bytes. [`bytes_mut`](Tensor::bytes_mut) and its kin copy first where the bytes are shared or
/// belong to a mapped file, so no write is ever seen through another tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    storage: Arc<Storage>,
    /// Where the first element lies in the storage, in bytes.
    offset: usize,
    /// Length in bytes: the product of the shape times the size of the dtype.
    size: usize,
}

/// The number of elements of `shape`, or an error where it, or its size in bytes, does not fit the address space.
pub fn byte_size(dtype: DType, shape: &[usize]) -> Result<usize> {
    // A zero anywhere makes the tensor empty, however large the other extents.
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(dtype.size(), |product, &extent| product.checked_mul(extent))
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| {
            Error::OutOfMemory(format!("a tensor of shape {shape:?} and dtype {dtype} has no size in 63 bits"))
        })
}

impl Tensor {
    /// A tensor of zeros, 64-byte aligned. Fails where the memory cannot be had.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let size = byte_size(dtype, shape)?;
        let storage = Storage::zeroed(size)?;
        Ok(Tensor { dtype, shape: shape.to_vec(), storage: Arc::new(storage), offset: 0, size })
    }

    /// A tensor of `values` in row-major order. Fails where their number is not that of the shape.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(T::DTYPE, shape)?;
        check_count(&tensor, values.len())?;
        tensor.as_mut_slice::<T>()?.copy_from_slice(values);
        Ok(tensor)
    }

    /// A tensor whose elements are `bytes`, little-endian, in row-major order.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        if tensor.size != bytes.len() {
            return Err(Error::Invalid(format!(
                "a tensor of shape {shape:?} and dtype {dtype} takes {} bytes, and {} were given",
                tensor.size,
                bytes.len()
            )));
        }
        tensor.bytes_mut()?.copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A tensor of the caller's memory, row-major, without a copy.
    ///
    /// # Errors
    /// A shape without a size in 63 bits.
    ///
    /// # Safety
    /// `start` is not null, aligned to the dtype, and valid for the shape's elements, which are values of the dtype; nobody writes to them or
    /// frees them while this tensor or a clone of it is in use.
    pub unsafe fn borrowed(dtype: DType, shape: &[usize], start: *const u8) -> Result<Tensor> {
        let size = byte_size(dtype, shape)?;
        // SAFETY: the caller vouches for the same.
        let storage = unsafe { Storage::borrowed(start, size) };
        Ok(Tensor { dtype, shape: shape.to_vec(), storage: Arc::new(storage), offset: 0, size })
    }

    /// The same tensor, to be kept: a copy where its memory is borrowed.
    pub(crate) fn kept(&self) -> Result<Tensor> {
        match *self.storage {
            Storage::Borrowed(_) => Tensor::from_bytes(self.dtype, &self.shape, self.bytes()),
            _ => Ok(self.clone()),
        }
    }

    /// A view of `storage` from byte `offset` on, without a copy. The caller has checked range and alignment.
    pub(crate) fn view(dtype: DType, shape: Vec<usize>, storage: Arc<Storage>, offset: usize) -> Result<Tensor> {
        let size = byte_size(dtype, &shape)?;
        debug_assert!(offset + size <= storage.len());
        Ok(Tensor { dtype, shape, storage, offset, size })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.size / self.dtype.size()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[self.offset..self.offset + self.size]
    }

    /// Whether no other tensor has its bytes.
    pub(crate) fn is_unique(&mut self) -> bool {
        matches!(Arc::get_mut(&mut self.storage), Some(Storage::Owned(_)))
    }

    /// The elements' bytes, for writing; copies them first where they are shared or mapped.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if !self.is_unique() {
            let mut copy = Storage::zeroed(self.size)?;
            if let Storage::Owned(buffer) = &mut copy {
                buffer.bytes_mut().copy_from_slice(self.bytes());
            }
            (self.storage, self.offset) = (Arc::new(copy), 0);
        }
        let (start, end) = (self.offset, self.offset + self.size);
        match Arc::get_mut(&mut self.storage) {
            Some(Storage::Owned(buffer)) => Ok(&mut buffer.bytes_mut()[start..end]),
            _ => Err(Error::Invalid("a tensor's bytes are shared".into())),
        }
    }

    /// The elements as `T`, whose dtype must be the tensor's (`u8` also reads `bool`).
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_element::<T>()?;
        let bytes = self.bytes();
        // SAFETY: every bit pattern is a `T`, and `check_element` held dtype and alignment.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
    }

    /// The elements as `T`, for writing; copies first as [`bytes_mut`](Tensor::bytes_mut) does.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.check_element::<T>()?;
        let bytes = self.bytes_mut()?;
        // SAFETY: as in `as_slice`; a copy made by `bytes_mut` is 64-byte aligned.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) })
    }

    /// The address of the first element, for a kernel's argument table; never written through.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes().as_ptr()
    }

    /// The address of the first element, for a kernel that writes; copies first as `bytes_mut` does.
    pub fn as_mut_ptr(&mut self) -> Result<*mut u8> {
        Ok(self.bytes_mut()?.as_mut_ptr())
    }

    /// Whether the first element's address is a multiple of `alignment` (owned tensors: 64; views of files: at least
    /// the size of an element).
    pub fn is_aligned(&self, alignment: usize) -> bool {
        (self.as_ptr() as usize).is_multiple_of(alignment)
    }

    /// The same elements under another shape, sharing their bytes.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        if byte_size(self.dtype, shape)? != self.size {
            return Err(Error::Invalid(format!(
                "cannot reshape {:?} to {shape:?}: the numbers of elements differ",
                self.shape
            )));
        }
        Ok(Tensor { shape: shape.to_vec(), ..self.clone() })
    }

    /// Checks dtype and shape (`None` stands for any extent) of the tensor that `what` names.
    pub fn expect(&self, what: &str, dtype: DType, shape: &[Option<usize>]) -> Result<()> {
        let fits =
            self.shape.len() == shape.len() && self.shape.iter().zip(shape).all(|(&a, b)| b.is_none_or(|b| a == b));
        if self.dtype == dtype && fits {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{what}: expected {}, found {}",
            display::type_text(shape, dtype),
            display::type_text(&self.shape.iter().map(|&extent| Some(extent)).collect::<Vec<_>>(), self.dtype)
        )))
    }

    fn check_element<T: Element>(&self) -> Result<()> {
        let readable = T::DTYPE == self.dtype || (T::DTYPE == DType::U8 && self.dtype == DType::Bool);
        if !readable {
            return Err(Error::Invalid(format!("a tensor of dtype {} is not read as {}", self.dtype, T::DTYPE)));
        }
        if !self.is_aligned(align_of::<T>()) {
            return Err(Error::Invalid(format!("a tensor of dtype {} lies at an unaligned address", self.dtype)));
        }
        Ok(())
    }
}

pub(crate) fn check_count(tensor: &Tensor, count: usize) -> Result<()> {
    if tensor.len() == count {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "shape {:?} has {} elements, and {count} values were given",
        tensor.shape,
        tensor.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_do_not_reach_clones() {
        let a = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let mut b = a.clone();
        b.as_mut_slice::<f32>().unwrap()[4] = -1.0;
        assert_eq!(a.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(b.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, -1.0, 6.0]);
        // Once unique, a tensor is written in place.
        let address = b.as_ptr();
        b.bytes_mut().unwrap()[0] = 1;
        assert_eq!(address, b.as_ptr());
    }

    #[test]
    fn owned_tensors_are_aligned() {
        for elements in [0, 1, 3, 17, 1000] {
            let tensor = Tensor::zeros(DType::I8, &[elements]).unwrap();
            assert!(tensor.is_aligned(ALIGNMENT), "{elements}");
            assert_eq!(tensor.len(), elements);
        }
    }

    #[test]
    fn scalars_and_empty_tensors() {
        assert_eq!(Tensor::zeros(DType::F32, &[]).unwrap().len(), 1);
        assert_eq!(Tensor::zeros(DType::F32, &[usize::MAX, 0, usize::MAX]).unwrap().len(), 0);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(matches!(Tensor::zeros(DType::F64, &[usize::MAX, 2]), Err(Error::OutOfMemory(_))));
        assert!(matches!(Tensor::zeros(DType::U8, &[1 << 60]), Err(Error::OutOfMemory(_))));
        assert!(Tensor::from_slice(&[3], &[1i32, 2]).is_err());
        assert!(Tensor::from_bytes(DType::Bf16, &[3], &[0; 5]).is_err());
        assert!(Tensor::zeros(DType::F32, &[6]).unwrap().reshape(&[4]).is_err());
    }

    #[test]
    fn reads_only_as_its_dtype() {
        let tensor = Tensor::zeros(DType::F32, &[2]).unwrap();
        assert!(tensor.as_slice::<i32>().is_err());
        assert!(Tensor::zeros(DType::Bool, &[2]).unwrap().as_slice::<u8>().is_ok());
    }

    #[test]
    fn expectations_name_both_types() {
        let tensor = Tensor::zeros(DType::F32, &[2, 5]).unwrap();
        tensor.expect("x", DType::F32, &[None, Some(5)]).unwrap();
        let error = tensor.expect("x", DType::F16, &[None, Some(7)]).unwrap_err().to_string();
        assert_eq!(error, "x: expected tensor<?x7xf16>, found tensor<2x5xf32>");
        assert!(tensor.expect("x", DType::F32, &[None]).is_err());
    }
}
