//! Tensor maps that kernels take as parameters, encoded for the addresses and sizes of a launch.

use crate::cuda::{Swizzle, TensorMap, TensorMapLayout};
use crate::{Error, Result};
use rc_ir::{Attr, Name, Type};

/// A tensor map among a kernel's parameters.
#[derive(Clone, Debug)]
pub struct MapParam {
    /// Its place among the parameters.
    pub param: usize,
    /// The launch's operand whose address it holds.
    pub arg: usize,
    /// The memref that it describes.
    tensor: Type,
    box_shape: Vec<u32>,
    swizzle: Swizzle,
}

impl MapParam {
    /// Reads an element of `tensor_maps` of a `host.binary`; `None` if it is malformed.
    pub fn read(map: Attr) -> Option<MapParam> {
        let number = |key: &str| usize::try_from(map.get(key)?.as_int()?).ok();
        let extents = map.get("box")?.as_ints()?;
        let swizzle = match map.get("swizzle")?.as_int()? {
            0 => Swizzle::None,
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            _ => return None,
        };
        Some(MapParam {
            param: number("param")?,
            arg: number("arg")?,
            tensor: map.get("tensor")?.as_type().filter(|t| t.is_memref())?,
            box_shape: extents.iter().map(|&n| u32::try_from(n).ok()).collect::<Option<_>>()?,
            swizzle,
        })
    }

    /// The map for an address, where the kernel's symbols have the values that `bind` gives.
    pub fn encode(&self, address: u64, bind: &dyn Fn(Name) -> Option<i64>) -> Result<TensorMap> {
        let extent = |dim: &rc_ir::Dim| dim.evaluate(bind).and_then(|n| u64::try_from(n).ok());
        let shape: Option<Vec<u64>> = self.tensor.shape().iter().map(extent).collect();
        let mut shape = shape.ok_or_else(|| Error::Invalid(format!("{} has an unknown symbol", self.tensor)))?;
        // Of an empty tensor nothing is copied, and the driver takes no empty ones.
        shape.iter_mut().for_each(|n| *n = (*n).max(1));
        let elem = self.tensor.elem().to_string();
        let invalid = || Error::Invalid(format!("a tensor map of {}", self.tensor));
        let dtype = elem.parse().map_err(|_| invalid())?;
        let mut layout = TensorMapLayout::contiguous(dtype, &shape, &self.box_shape, self.swizzle);
        if !self.tensor.is_row_major() {
            let strides = self.tensor.strides().ok_or_else(invalid)?;
            let bytes = |dim: &rc_ir::Dim| extent(dim).map(|n| n.saturating_mul(dtype.size() as u64));
            layout.strides = strides[..shape.len().saturating_sub(1)]
                .iter()
                .map(bytes)
                .collect::<Option<_>>()
                .ok_or_else(invalid)?;
        }
        TensorMap::encode(address, &layout)
    }
}
