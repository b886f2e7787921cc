//! Conversions between a tensor's elements and f64 or i64.

use half::{bf16, f16};

use rc_ir::attr::{float_from_bits, float_to_bits};
pub use rc_ir::half_float::{f64_to_bf16, f64_to_f16};
use rc_ir::types::FloatKind;

use super::{DType, Element, Tensor, check_count};
use crate::Result;

/// Evaluates `$body` with `$T` bound to the Rust type of `$dtype`'s elements.
macro_rules! dispatch {
    ($dtype:expr, |$T:ident| $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::Bf16 => {
                type $T = bf16;
                $body
            }
            DType::F8E4M3FN => {
                type $T = F8E4M3FN;
                $body
            }
            DType::F8E5M2 => {
                type $T = F8E5M2;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::U64 => {
                type $T = u64;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U16 => {
                type $T = u16;
                $body
            }
            DType::U8 => {
                type $T = u8;
                $body
            }
            DType::Bool => {
                type $T = Truth;
                $body
            }
        }
    };
}

/// A `bool` element's byte.
#[derive(Clone, Copy)]
struct Truth(u8);

/// Conversions of one element.
trait Convert: Copy {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    fn to_i64(self) -> i64;
    fn from_i64(value: i64) -> Self;
}

macro_rules! convert_numbers {
    ($($T:ty),*) => { $(impl Convert for $T {
        fn to_f64(self) -> f64 { self as f64 }
        fn from_f64(value: f64) -> Self { value as $T }
        fn to_i64(self) -> i64 { self as i64 }
        fn from_i64(value: i64) -> Self { value as $T }
    })* };
}
convert_numbers!(f64, f32, i64, i32, i16, i8, u64, u32, u16, u8);

macro_rules! convert_halves {
    ($($T:ty, $round:ident);*) => { $(impl Convert for $T {
        fn to_f64(self) -> f64 { <$T>::to_f64(self) }
        fn from_f64(value: f64) -> Self { $round(value) }
        fn to_i64(self) -> i64 { <$T>::to_f64(self) as i64 }
        fn from_i64(value: i64) -> Self { $round(sticky(value)) }
    })* };
}
convert_halves!(f16, f64_to_f16; bf16, f64_to_bf16);

macro_rules! convert_float8 {
    ($($T:ident),*) => { $(
        /// A code of this format.
        #[derive(Clone, Copy)]
        struct $T(u8);

        impl Convert for $T {
            fn to_f64(self) -> f64 { float_from_bits(FloatKind::$T, u64::from(self.0)) }
            fn from_f64(value: f64) -> Self { $T(float_to_bits(FloatKind::$T, value) as u8) }
            fn to_i64(self) -> i64 { self.to_f64() as i64 }
            fn from_i64(value: i64) -> Self { Self::from_f64(sticky(value)) }
        }
    )* };
}
convert_float8!(F8E4M3FN, F8E5M2);

/// An i64 as an f64 that rounds to few bits as the i64 itself would: the bits beyond f64's 53 are folded into one.
fn sticky(value: i64) -> f64 {
    let magnitude = value.unsigned_abs();
    let folded =
        if magnitude >> 53 == 0 { magnitude } else { magnitude & !0x7ff | u64::from(magnitude & 0x7ff != 0) << 11 };
    if value < 0 { -(folded as f64) } else { folded as f64 }
}

impl Convert for Truth {
    fn to_f64(self) -> f64 {
        f64::from(self.0 != 0)
    }
    fn from_f64(value: f64) -> Self {
        Truth(u8::from(value != 0.0))
    }
    fn to_i64(self) -> i64 {
        i64::from(self.0 != 0)
    }
    fn from_i64(value: i64) -> Self {
        Truth(u8::from(value != 0))
    }
}

/// Reads the element of type `T` at `index`, wherever it lies.
fn load<T: Copy>(bytes: &[u8], index: usize) -> T {
    let size = size_of::<T>();
    let element = &bytes[index * size..][..size];
    // SAFETY: `element` has the size of `T`, one of the plain types above, of which every bit pattern is valid.
    unsafe { element.as_ptr().cast::<T>().read_unaligned() }
}

fn store<T: Copy>(bytes: &mut [u8], index: usize, value: T) {
    let size = size_of::<T>();
    let element = &mut bytes[index * size..][..size];
    // SAFETY: as in `load`.
    unsafe { element.as_mut_ptr().cast::<T>().write_unaligned(value) }
}

impl Tensor {
    /// A tensor of `values` rounded to `dtype`: floats to nearest, ties to even; integers toward zero and clamped to
    /// the type's range (NaN gives 0); `bool` is whether the value differs from 0.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        check_count(&tensor, values.len())?;
        tensor.write_f64(0, values)?;
        Ok(tensor)
    }

    /// A tensor of `values` converted to `dtype`: integers wrap modulo 2^n, floats round to nearest, ties to even.
    pub fn from_i64(dtype: DType, shape: &[usize], values: &[i64]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        check_count(&tensor, values.len())?;
        let bytes = tensor.bytes_mut()?;
        dispatch!(dtype, |T| values.iter().enumerate().for_each(|(i, &value)| store(bytes, i, <T>::from_i64(value))));
        Ok(tensor)
    }

    /// A tensor with `value` in every element, converted as by [`from_f64`](Tensor::from_f64).
    pub fn full(dtype: DType, shape: &[usize], value: f64) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let bytes = tensor.bytes_mut()?;
        let element = dtype.size();
        if let Some((first, _)) = bytes.split_at_mut_checked(element) {
            dispatch!(dtype, |T| store(first, 0, <T>::from_f64(value)));
        }
        for i in 1..bytes.len() / element {
            bytes.copy_within(0..element, i * element);
        }
        Ok(tensor)
    }

    /// The element at `index` in row-major order, as f64 (an i64 beyond 2^53 is rounded). Panics where `index` is not
    /// below [`len`](Tensor::len), as indexing a slice does.
    pub fn get_f64(&self, index: usize) -> f64 {
        dispatch!(self.dtype, |T| load::<T>(self.bytes(), index).to_f64())
    }

    /// The element at `index` in row-major order, as i64 (floats toward zero, clamped; NaN gives 0). Panics as
    /// [`get_f64`](Tensor::get_f64) does.
    pub fn get_i64(&self, index: usize) -> i64 {
        dispatch!(self.dtype, |T| load::<T>(self.bytes(), index).to_i64())
    }

    /// Every element as f64, in row-major order.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut values = vec![0.0; self.len()];
        self.read_f64(0, &mut values);
        values
    }

    /// Every element as i64, in row-major order.
    pub fn to_i64(&self) -> Vec<i64> {
        let bytes = self.bytes();
        dispatch!(self.dtype, |T| (0..self.len()).map(|i| load::<T>(bytes, i).to_i64()).collect())
    }

    /// Fills `values` with the elements from `start` on, as f64. Panics where they do not reach so far.
    pub fn read_f64(&self, start: usize, values: &mut [f64]) {
        let bytes = &self.bytes()[start * self.dtype.size()..];
        dispatch!(self.dtype, |T| values.iter_mut().enumerate().for_each(|(i, v)| *v = load::<T>(bytes, i).to_f64()));
    }

    /// Overwrites the elements from `start` on with `values`, converted as by [`from_f64`](Tensor::from_f64). Panics
    /// where they do not reach so far.
    pub fn write_f64(&mut self, start: usize, values: &[f64]) -> Result<()> {
        let dtype = self.dtype;
        let bytes = &mut self.bytes_mut()?[start * dtype.size()..];
        dispatch!(dtype, |T| values.iter().enumerate().for_each(|(i, &v)| store(bytes, i, <T>::from_f64(v))));
        Ok(())
    }

    /// As [`write_f64`](Tensor::write_f64), converted as by [`from_i64`](Tensor::from_i64).
    pub fn write_i64(&mut self, start: usize, values: &[i64]) -> Result<()> {
        let dtype = self.dtype;
        let bytes = &mut self.bytes_mut()?[start * dtype.size()..];
        dispatch!(dtype, |T| values.iter().enumerate().for_each(|(i, &v)| store(bytes, i, <T>::from_i64(v))));
        Ok(())
    }

    /// The tensor converted to `dtype`: from floats as [`from_f64`](Tensor::from_f64) does, from integers as
    /// [`from_i64`](Tensor::from_i64) does. Shares the bytes where nothing changes.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let mut result = Tensor::zeros(dtype, &self.shape)?;
        let (input, output) = (self.bytes(), result.bytes_mut()?);
        let count = self.len();
        // The greatest ui64 are no i64.
        let through_f64 = self.dtype.is_float() || self.dtype == DType::U64 && dtype.is_float();
        dispatch!(self.dtype, |S| dispatch!(dtype, |T| for i in 0..count {
            let value = load::<S>(input, i);
            store(output, i, if through_f64 { <T>::from_f64(value.to_f64()) } else { <T>::from_i64(value.to_i64()) });
        }));
        Ok(result)
    }

    /// The elements as a vector of `T`, whose dtype must be the tensor's.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.as_slice::<T>()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::philox4x32_10;

    /// Every finite value of a 16-bit format in ascending order of magnitude, positive ones only.
    fn nearest(value: f64, decode: impl Fn(u16) -> f64, infinity: u16) -> u16 {
        // Binary search for the largest code at or below |value|; then compare with the next.
        let magnitude = value.abs();
        let (mut low, mut high) = (0u16, infinity);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if decode(middle) <= magnitude { low = middle } else { high = middle }
        }
        // The code after the largest finite one stands, for rounding, where the next value would be.
        let next = if low + 1 == infinity { 2.0 * decode(low) - decode(low - 1) } else { decode(low + 1) };
        let (below, above) = (magnitude - decode(low), next - magnitude);
        let up = above < below || (above == below && low & 1 == 1);
        (if up { low + 1 } else { low }) | (if value.is_sign_negative() { 0x8000 } else { 0 })
    }

    #[test]
    fn halves_round_once() {
        let mut cases = vec![0.0, -0.0, 1.0, 65504.0, 65519.99999, 65520.0, 1e-8, 5.96e-8, 2.98e-8, 1e308, 1e-320];
        for code in 1..0x7bffu16 {
            // Ties, and values a hair to each side of them, which a rounding by way of f32 gets wrong.
            let tie = (f16::from_bits(code).to_f64() + f16::from_bits(code + 1).to_f64()) / 2.0;
            cases.extend([tie, tie * (1.0 + f64::EPSILON), tie * (1.0 - f64::EPSILON)]);
        }
        for code in (1..0x7f7fu16).step_by(7) {
            let tie = (bf16::from_bits(code).to_f64() + bf16::from_bits(code + 1).to_f64()) / 2.0;
            cases.extend([tie, -tie * (1.0 + f64::EPSILON), tie * (1.0 - f64::EPSILON)]);
        }
        for value in cases {
            assert_eq!(
                f64_to_f16(value).to_bits(),
                nearest(value, |c| f16::from_bits(c).to_f64(), 0x7c00),
                "{value:e}"
            );
            assert_eq!(
                f64_to_bf16(value).to_bits(),
                nearest(value, |c| bf16::from_bits(c).to_f64(), 0x7f80),
                "{value:e}"
            );
        }
        assert!(f64_to_bf16(f64::NAN).is_nan() && f64_to_f16(f64::NAN).is_nan());
        assert_eq!(f64_to_f16(f64::NEG_INFINITY), f16::NEG_INFINITY);
    }

    #[test]
    fn integers_clamp_and_wrap() {
        let from = |dtype| Tensor::from_f64(dtype, &[5], &[-300.7, f64::NAN, 1e30, 255.9, -1.9]).unwrap().to_i64();
        assert_eq!(from(DType::I8), [-128, 0, 127, 127, -1]);
        assert_eq!(from(DType::U8), [0, 0, 255, 255, 0]);
        assert_eq!(from(DType::I64), [-300, 0, i64::MAX, 255, -1]);
        assert_eq!(from(DType::Bool), [1, 1, 1, 1, 1]);
        let wrapped = Tensor::from_i64(DType::I8, &[3], &[300, -129, 5]).unwrap();
        assert_eq!(wrapped.to_i64(), [44, 127, 5]);
        assert_eq!(Tensor::from_i64(DType::I64, &[1], &[i64::MAX]).unwrap().cast(DType::I32).unwrap().to_i64(), [-1]);
    }

    #[test]
    fn large_integers_round_once_to_halves() {
        // 2^60 + 2^52 is a tie of bf16; one more breaks it upward, though f64 cannot hold the one.
        let tie = (1i64 << 60) + (1 << 52);
        let tensor = Tensor::from_i64(DType::Bf16, &[3], &[tie, tie + 1, -tie - 1]).unwrap();
        let up = 2f64.powi(60) + 2f64.powi(53);
        assert_eq!(tensor.to_f64(), [2f64.powi(60), up, -up]);
    }

    #[test]
    fn every_dtype_round_trips_through_f64() {
        for (k, dtype) in DType::ALL.into_iter().enumerate() {
            let values: Vec<f64> = (0..257u32)
                .map(|i| {
                    let word = philox4x32_10([i, k as u32, 0, 0], [7, 9])[0];
                    // Integers that the type holds.
                    let below = match dtype {
                        DType::Bool => 2,
                        DType::F8E4M3FN | DType::F8E5M2 => 8,
                        _ => 100,
                    };
                    f64::from(word % below)
                })
                .collect();
            let tensor = Tensor::from_f64(dtype, &[257], &values).unwrap();
            assert_eq!(tensor.to_f64(), values, "{dtype}");
            assert_eq!(tensor.cast(DType::F64).unwrap().to_vec::<f64>().unwrap(), values, "{dtype}");
            assert_eq!(tensor.get_f64(256), values[256]);
        }
    }

    #[test]
    fn full_fills() {
        assert_eq!(Tensor::full(DType::Bf16, &[3, 2], 1.5).unwrap().to_f64(), [1.5; 6]);
        assert!(Tensor::full(DType::F32, &[0], 1.5).unwrap().is_empty());
    }
}
