//! Tensor maps that kernels take as parameters, encoded for the addresses and sizes of a launch.

use crate::cuda::{Swizzle, TensorMap, TensorMapLayout};
use crate::{DType, Error, Result};
use rc_ir::{Attr, Dim, Name, Type};

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
        let unknown = || Error::Invalid(format!("{} has an unknown symbol", self.tensor));
        TensorMap::encode(address, &self.layout(bind).ok_or_else(unknown)??)
    }

    /// `None` where a symbol has no value.
    fn layout(&self, bind: &dyn Fn(Name) -> Option<i64>) -> Option<Result<TensorMapLayout>> {
        let number = |dim: &Dim| dim.evaluate(bind).and_then(|n| u64::try_from(n).ok());
        // Of an empty tensor nothing is copied, and the driver takes no empty ones.
        let extent = |dim: &Dim| number(dim).map(|n| n.max(1));
        let shape: Vec<u64> = self.tensor.shape().iter().map(extent).collect::<Option<_>>()?;
        // Memory of f32, rounded on its way.
        let rounds = self.tensor.elem() == Type::tf32();
        let elem = if rounds { Type::f32() } else { self.tensor.elem() };
        let (Ok(dtype), Some(strides)) = (elem.to_string().parse::<DType>(), self.tensor.strides()) else {
            return Some(Err(Error::Invalid(format!("a tensor map of {}", self.tensor))));
        };
        let mut layout = TensorMapLayout::contiguous(dtype, &shape, &self.box_shape, self.swizzle);
        layout.rounds = rounds;
        if !self.tensor.is_row_major() {
            let bytes = |dim: &Dim| Some(number(dim)?.saturating_mul(dtype.size() as u64));
            layout.strides = strides.iter().take(layout.strides.len()).map(bytes).collect::<Option<_>>()?;
        }
        Some(Ok(layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_lie_apart() {
        let sizes = |list: &[i64]| list.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>();
        let dense = Type::memref(&sizes(&[2, 12, 64]), Type::float(rc_ir::FloatKind::BF16), 0);
        let of = |tensor| MapParam { param: 0, arg: 0, tensor, box_shape: vec![1, 4, 64], swizzle: Swizzle::B128 };
        let strides = |tensor| of(tensor).layout(&|_| None).unwrap().unwrap().strides;
        assert_eq!(strides(dense), [1536, 128]);
        assert_eq!(strides(dense.with_strides(&sizes(&[1536, 128, 1]))), [3072, 256]);
    }
}
