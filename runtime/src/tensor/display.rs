//! Tensors as people read them.

use std::fmt;

use super::{DType, Tensor};

/// Values shown at each end of a dimension that is longer than twice as many.
const EDGE: usize = 3;

/// `tensor<2x?xf32>`: a tensor type as the IR writes it.
pub(super) fn type_text(shape: &[Option<usize>], dtype: DType) -> String {
    let extents: String =
        shape.iter().map(|extent| extent.map_or("?x".into(), |extent| format!("{extent}x"))).collect();
    format!("tensor<{extents}{dtype}>")
}

impl fmt::Display for Tensor {
    /// The type, then the values in nested brackets; long dimensions show their first and last three.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape().iter().map(|&extent| Some(extent)).collect();
        write!(f, "{} ", type_text(&shape, self.dtype()))?;
        write_values(f, self, 0, 0)
    }
}

/// Writes the sub-tensor at dimension `depth` whose first element is the `start`-th of the whole.
fn write_values(f: &mut fmt::Formatter<'_>, tensor: &Tensor, depth: usize, start: usize) -> fmt::Result {
    let Some(&extent) = tensor.shape().get(depth) else {
        return write_value(f, tensor, start);
    };
    // Written for an empty tensor too, whose other extents may be too large to multiply.
    let stride = if tensor.is_empty() { 0 } else { tensor.shape()[depth + 1..].iter().product() };
    f.write_str("[")?;
    let mut i = 0;
    while i < extent && (depth == 0 || !tensor.is_empty()) {
        if i > 0 {
            f.write_str(", ")?;
        }
        if tensor.is_empty() {
            f.write_str("[]")?;
            break;
        }
        if i == EDGE && extent > 2 * EDGE {
            f.write_str("..., ")?;
            i = extent - EDGE;
        }
        write_values(f, tensor, depth + 1, start + i * stride)?;
        i += 1;
    }
    f.write_str("]")
}

fn write_value(f: &mut fmt::Formatter<'_>, tensor: &Tensor, index: usize) -> fmt::Result {
    match tensor.dtype() {
        DType::Bool => write!(f, "{}", tensor.get_i64(index) != 0),
        // f32 prints as f32, so that 0.1 is not 0.10000000149011612; halves have so few digits that f32 serves them.
        dtype if dtype.is_float() && dtype != DType::F64 => {
            write!(f, "{:?}", tensor.get_f64(index) as f32)
        }
        DType::F64 => write!(f, "{:?}", tensor.get_f64(index)),
        // Kept as the i64 of the same bits.
        DType::U64 => write!(f, "{}", tensor.get_i64(index) as u64),
        _ => write!(f, "{}", tensor.get_i64(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i) / 10.0).collect();
        let tensor = Tensor::from_f64(DType::F32, &[2, 10], &values).unwrap();
        assert_eq!(
            tensor.to_string(),
            "tensor<2x10xf32> [[0.0, 0.1, 0.2, ..., 0.7, 0.8, 0.9], [1.0, 1.1, 1.2, ..., 1.7, 1.8, 1.9]]"
        );
        assert_eq!(
            Tensor::from_i64(DType::I64, &[], &[i64::MAX]).unwrap().to_string(),
            "tensor<i64> 9223372036854775807"
        );
        assert_eq!(Tensor::from_i64(DType::Bool, &[2], &[0, 1]).unwrap().to_string(), "tensor<2xi1> [false, true]");
    }

    #[test]
    fn empty() {
        assert_eq!(Tensor::zeros(DType::F32, &[0]).unwrap().to_string(), "tensor<0xf32> []");
        assert_eq!(
            Tensor::zeros(DType::F32, &[9, 0, usize::MAX]).unwrap().to_string(),
            "tensor<9x0x18446744073709551615xf32> [[]]"
        );
    }
}
