//! Constants: numbers, `dense<…>` and `dense_resource<…>`.

use rc_dialects::core::scalar::{Scalar, splat_of};
use rc_ir::attr::AttrData;
use rc_ir::{Attr, OpRef, Result, Type};

use super::exec::Frame;
use super::value::{Array, Format, Value, dtype_of};
use crate::tensor::Tensor;

impl Frame<'_> {
    /// The value of a constant attribute of type `ty`.
    pub fn constant(&self, op: OpRef, attr: Attr, ty: Type) -> Result<Value> {
        let shape = self.shape_of(op, ty)?;
        let format = self.format(op, ty)?;
        match attr.data() {
            AttrData::Dense { data, .. } if !data.splat => elements(op, format, shape, &data.bytes),
            AttrData::Resource { name, .. } => {
                let blob =
                    self.interp.module.resources.get(name).ok_or_else(|| {
                        op.error(format!("names the resource '{name}', which the module does not hold"))
                    })?;
                elements(op, format, shape, blob.bytes())
            }
            _ => {
                let splat = splat_of(attr).ok_or_else(|| op.unsupported("with a value that is no number"))?;
                let value = Value::from_scalar(splat);
                Ok(if ty.is_scalar() { value } else { Value::Array(Array::splat(shape, &value)) })
            }
        }
    }
}

/// Little-endian elements in row-major order.
fn elements(op: OpRef, format: Format, shape: Vec<usize>, bytes: &[u8]) -> Result<Value> {
    let width = format.ty.byte_width().unwrap_or(1) as usize;
    let count: usize = shape.iter().product();
    if bytes.len() != count * width {
        return Err(op.error(format!("holds {} bytes, and its {count} elements take {}", bytes.len(), count * width)));
    }
    if let Some(dtype) = dtype_of(format.ty) {
        let tensor = Tensor::from_bytes(dtype, &shape, bytes).map_err(|e| op.error(e))?;
        return Ok(Value::Array(Array::host(tensor)));
    }
    let element = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(chunk);
        Scalar::from_bits(u64::from_le_bytes(word), format.ty).unwrap_or(Scalar::Int(0))
    };
    let scalars = bytes.chunks(width).map(element);
    Ok(Value::Array(if format.is_float() {
        Array::floats(shape, scalars.map(Scalar::float).collect())
    } else {
        Array::ints(shape, scalars.map(|s| s.int().unwrap_or(0) as i64).collect())
    }))
}
