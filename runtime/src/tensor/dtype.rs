//! Element types.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 8 bits, 3 of them the mantissa's; no infinity.
    F8E4M3FN,
    /// The upper half of a binary16.
    F8E5M2,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 64 bits.
    U64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 8 bits.
    U8,
    /// `i1`, a byte each in memory: 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype.
    pub const ALL: [DType; 15] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::F8E4M3FN,
        DType::F8E5M2,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::Bool,
    ];

    /// The size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 2,
            DType::F8E4M3FN | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The type's name in the IR: `f32`, `bf16`, `i64`, `ui8`, `i1`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4M3FN => "f8E4M3FN",
            DType::F8E5M2 => "f8E5M2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "ui64",
            DType::U32 => "ui32",
            DType::U16 => "ui16",
            DType::U8 => "ui8",
            DType::Bool => "i1",
        }
    }

    /// Whether the type is a float.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4M3FN | DType::F8E5M2)
    }

    /// The distance from 1 to the next larger value; 0 for integers.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F64 => f64::EPSILON,
            DType::F32 => f32::EPSILON as f64,
            DType::F16 => 1.0 / 1024.0,
            DType::Bf16 => 1.0 / 128.0,
            DType::F8E4M3FN => 1.0 / 8.0,
            DType::F8E5M2 => 1.0 / 4.0,
            _ => 0.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = crate::Error;

    /// Reads the IR's names, and `bool` and `u8`.
    fn from_str(text: &str) -> crate::Result<DType> {
        match text {
            "bool" => Ok(DType::Bool),
            "u8" => Ok(DType::U8),
            _ => DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
                let known: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
                crate::Error::Invalid(format!("unknown dtype `{text}`; expected one of {}", known.join(", ")))
            }),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is a dtype's elements, any bit pattern of which is valid.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i64 => I64, i32 => I32, i16 => I16, i8 => I8, u64 => U64, u32 => U32, u16 => U16, u8 => U8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        assert!("f8".parse::<DType>().unwrap_err().to_string().contains("`f8`"));
    }

    #[test]
    fn epsilons_are_the_gap_above_one() {
        let f16_next = f16::from_bits(f16::ONE.to_bits() + 1).to_f64() - 1.0;
        let bf16_next = bf16::from_bits(bf16::ONE.to_bits() + 1).to_f64() - 1.0;
        assert_eq!((DType::F16.epsilon(), DType::Bf16.epsilon()), (f16_next, bf16_next));
    }
}
