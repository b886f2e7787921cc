//! Tensor maps: what the bulk copy engine (TMA, `cp.async.bulk.tensor`) knows of a tensor in global memory.

use cudarc::driver::sys::{
    self, CUtensorMapDataType as Type, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

use super::driver::{check_with, init};
use crate::tensor::DType;
use crate::{Error, Result};

/// How the copy engine permutes 16-byte pieces in shared memory, so that reading columns meets no bank twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    /// The most bytes that the innermost dimension of a box may have.
    pub const fn span(self) -> u64 {
        match self {
            Swizzle::None => u64::MAX,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }
}

/// A tensor in global memory and the box that one copy moves. Dimensions are outermost first, as shapes are written;
/// the copy instruction takes its coordinates the other way round, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMapLayout {
    /// The element type; `bool` and the 8- and 16-bit integers are moved as unsigned.
    pub dtype: DType,
    /// Whether elements of f32 are rounded to TF32 as they are copied to shared memory.
    pub rounds: bool,
    /// Extents, 1 to 2^32 each, of 1 to 5 dimensions.
    pub shape: Vec<u64>,
    /// Strides in bytes of all dimensions but the innermost, whose elements are adjacent: multiples of 16, below 2^40.
    pub strides: Vec<u64>,
    /// Extents of the box, 1 to 256 each; innermost a multiple of 16 bytes, and at most the swizzle's span.
    pub box_shape: Vec<u32>,
    /// Permutation in shared memory.
    pub swizzle: Swizzle,
}

impl TensorMapLayout {
    /// A contiguous tensor.
    pub fn contiguous(dtype: DType, shape: &[u64], box_shape: &[u32], swizzle: Swizzle) -> TensorMapLayout {
        let mut strides = vec![0; shape.len().saturating_sub(1)];
        let mut stride = dtype.size() as u64;
        for (i, place) in strides.iter_mut().enumerate().rev() {
            stride = stride.saturating_mul(shape[i + 1]);
            *place = stride;
        }
        TensorMapLayout { dtype, rounds: false, shape: shape.to_vec(), strides, box_shape: box_shape.to_vec(), swizzle }
    }

    /// Checks what the driver would report as no more than an invalid value.
    fn check(&self, address: u64) -> Result<()> {
        let fail = |what: String| Err(Error::Invalid(format!("tensor map: {what}")));
        let rank = self.shape.len();
        if !(1..=5).contains(&rank) || self.strides.len() + 1 != rank || self.box_shape.len() != rank {
            let (strides, boxes) = (self.strides.len(), self.box_shape.len());
            return fail(format!(
                "{rank} dimensions, {strides} strides, {boxes} box extents; 1 to 5 dimensions, one stride fewer"
            ));
        }
        if !address.is_multiple_of(16) {
            return fail(format!("address {address:#x} is no multiple of 16"));
        }
        if let Some(extent) = self.shape.iter().find(|&&extent| extent == 0 || extent > 1 << 32) {
            return fail(format!("extent {extent} in {:?}; 1 to 2^32", self.shape));
        }
        if let Some(stride) = self.strides.iter().find(|&&stride| stride % 16 != 0 || stride >= 1 << 40) {
            return fail(format!("stride of {stride} bytes in {:?}; multiples of 16 below 2^40", self.strides));
        }
        if let Some(extent) = self.box_shape.iter().find(|&&extent| extent == 0 || extent > 256) {
            return fail(format!("box extent {extent} in {:?}; 1 to 256", self.box_shape));
        }
        let inner = u64::from(self.box_shape[rank - 1]) * self.dtype.size() as u64;
        if !inner.is_multiple_of(16) || inner > self.swizzle.span() {
            return fail(format!(
                "a box of {inner} bytes innermost; a multiple of 16, and within swizzle {:?}",
                self.swizzle
            ));
        }
        Ok(())
    }
}

/// An encoded tensor map: 128 bytes for a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

impl TensorMap {
    /// Encodes the map of a tensor at a device address. It is bound to that address and layout: encode anew where
    /// either changes. Elements outside the tensor read as zero and are not written.
    pub fn encode(address: u64, layout: &TensorMapLayout) -> Result<TensorMap> {
        layout.check(address)?;
        init()?;
        // The driver counts dimensions from the innermost.
        let shape: Vec<u64> = layout.shape.iter().rev().copied().collect();
        let strides: Vec<u64> = layout.strides.iter().rev().copied().collect();
        let box_shape: Vec<u32> = layout.box_shape.iter().rev().copied().collect();
        let element_strides = [1u32; 5];
        // As aligned as the driver's type is in any version.
        #[repr(align(128))]
        struct Place(sys::CUtensorMap);
        let mut map = Place(sys::CUtensorMap { opaque: [0; 16] });
        // SAFETY: every array has as many elements as the rank asks for, and the address is only recorded.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map.0,
                if layout.rounds { Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 } else { data_type(layout.dtype) },
                shape.len() as u32,
                address as *mut std::ffi::c_void,
                shape.as_ptr(),
                strides.as_ptr(),
                box_shape.as_ptr(),
                element_strides.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle(layout.swizzle),
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check_with(status, || format!("cuTensorMapEncodeTiled({address:#x}, {layout:?})"))?;
        Ok(TensorMap(map.0.opaque))
    }

    /// The map's 128 bytes.
    pub fn words(&self) -> &[u64; 16] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn from_words(words: [u64; 16]) -> TensorMap {
        TensorMap(words)
    }
}

fn data_type(dtype: DType) -> Type {
    match dtype {
        DType::F64 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U64 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DType::U32 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I16 | DType::U16 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        DType::I8 | DType::U8 | DType::Bool | DType::F8E4M3FN | DType::F8E5M2 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}

fn swizzle(swizzle: Swizzle) -> CUtensorMapSwizzle {
    match swizzle {
        Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides() {
        let layout = TensorMapLayout::contiguous(DType::Bf16, &[3, 5, 64], &[1, 4, 64], Swizzle::B128);
        assert_eq!(layout.strides, [640, 128]);
        assert!(TensorMapLayout::contiguous(DType::F32, &[64], &[64], Swizzle::None).strides.is_empty());
        layout.check(0x1000).unwrap();
    }

    #[test]
    fn limits_are_named() {
        let good = TensorMapLayout::contiguous(DType::Bf16, &[3, 5, 64], &[1, 4, 64], Swizzle::B128);
        let fails = |layout: TensorMapLayout, text: &str| {
            let error = layout.check(0).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        assert!(good.check(8).unwrap_err().to_string().contains("0x8"));
        fails(TensorMapLayout { strides: vec![128], ..good.clone() }, "3 dimensions, 1 strides");
        fails(TensorMapLayout::contiguous(DType::F32, &[1; 6], &[4; 6], Swizzle::None), "6 dimensions");
        fails(TensorMapLayout::contiguous(DType::F32, &[], &[], Swizzle::None), "0 dimensions");
        fails(TensorMapLayout::contiguous(DType::Bf16, &[4, 7], &[4, 8], Swizzle::None), "stride of 14");
        fails(TensorMapLayout { shape: vec![3, 0, 64], ..good.clone() }, "extent 0");
        fails(TensorMapLayout { box_shape: vec![1, 257, 64], ..good.clone() }, "257");
        fails(TensorMapLayout { swizzle: Swizzle::B64, ..good.clone() }, "128 bytes innermost");
        fails(TensorMapLayout { box_shape: vec![1, 1, 4], ..good }, "8 bytes innermost");
    }
}
