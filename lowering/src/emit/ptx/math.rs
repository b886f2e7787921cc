//! Approximations and packed conversions.

use super::{Ptx, Value, instructions};

instructions! {
    EX2 = "ex2.approx.f32 $0, $1;", "f", "f", Pure;
    EX2_FTZ = "ex2.approx.ftz.f32 $0, $1;", "f", "f", Pure;
    LG2 = "lg2.approx.f32 $0, $1;", "f", "f", Pure;
    TANH = "tanh.approx.f32 $0, $1;", "f", "f", Pure;
    RCP = "rcp.approx.f32 $0, $1;", "f", "f", Pure;
    RCP_FTZ = "rcp.approx.ftz.f32 $0, $1;", "f", "f", Pure;
    RSQRT = "rsqrt.approx.f32 $0, $1;", "f", "f", Pure;
    SIN = "sin.approx.f32 $0, $1;", "f", "f", Pure;
    COS = "cos.approx.f32 $0, $1;", "f", "f", Pure;
    CVT_BF16X2 = "cvt.rn.bf16x2.f32 $0, $1, $2;", "r", "ff", Pure;
    CVT_F16X2 = "cvt.rn.f16x2.f32 $0, $1, $2;", "r", "ff", Pure;
    CVT_E4M3X2 = "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "h", "ff", Pure;
    CVT_F16X2_E4M3X2 = "cvt.rn.f16x2.e4m3x2 $0, $1;", "r", "h", Pure;
    PRMT = "prmt.b32 $0, $1, $2, $3;", "r", "rrr", Pure;
    CVT_TF32 = "cvt.rna.tf32.f32 $0, $1;", "r", "f", Pure;
}

/// Methods of one f32 operand and an f32 result.
macro_rules! approximations {
    ($($(#[$doc:meta])* $method:ident => $instruction:ident;)+) => {
        impl<'m> Ptx<'_, 'm> {
            $(
                $(#[$doc])*
                pub fn $method(&self, x: Value<'m>) -> Value<'m> {
                    self.value($instruction, &[x])
                }
            )+
        }
    };
}

approximations! {
    /// 2 to the power of x, to 2 ulp.
    ex2_approx => EX2;
    /// [`Ptx::ex2_approx`] with subnormal numbers as zero: one instruction of the hardware.
    ex2_approx_ftz => EX2_FTZ;
    /// The binary logarithm, to an absolute error of 2^-22 for x in [0.5, 2] and 2 ulp elsewhere.
    lg2_approx => LG2;
    /// The hyperbolic tangent, to a relative error of 2^-11.
    tanh_approx => TANH;
    /// The reciprocal, to 1 ulp.
    rcp_approx => RCP;
    /// [`Ptx::rcp_approx`] with subnormal numbers as zero.
    rcp_approx_ftz => RCP_FTZ;
    /// The reciprocal square root, to a relative error of 2^-22.9.
    rsqrt_approx => RSQRT;
    /// The sine, to an absolute error of 2^-20.5 for x in [-pi, pi].
    sin_approx => SIN;
    /// The cosine, to an absolute error of 2^-20.5 for x in [-pi, pi].
    cos_approx => COS;
}

impl<'m> Ptx<'_, 'm> {
    /// Two f32, rounded to nearest even, as bf16 in an `i32`: `low` in the lower half.
    pub fn pack_bf16x2(&self, low: Value<'m>, high: Value<'m>) -> Value<'m> {
        self.value(CVT_BF16X2, &[high, low])
    }

    /// Two f32, rounded to nearest even, as f16 in an `i32`: `low` in the lower half.
    pub fn pack_f16x2(&self, low: Value<'m>, high: Value<'m>) -> Value<'m> {
        self.value(CVT_F16X2, &[high, low])
    }

    /// Two f32, rounded to nearest even, what is too large to the largest, as f8E4M3FN in an `i16`: `low` in the lower half.
    pub fn pack_e4m3x2(&self, low: Value<'m>, high: Value<'m>) -> Value<'m> {
        self.value(CVT_E4M3X2, &[high, low])
    }

    /// The two f8E4M3FN of an `i16` as f16 in an `i32`, exactly.
    pub fn e4m3x2_to_f16x2(&self, pair: Value<'m>) -> Value<'m> {
        self.value(CVT_F16X2_E4M3X2, &[pair])
    }

    /// Four bytes of two words: digit i of `selector`, from the lowest, says which byte i is, those of `low` first.
    pub fn permute_bytes(&self, low: Value<'m>, high: Value<'m>, selector: Value<'m>) -> Value<'m> {
        self.value(PRMT, &[low, high, selector])
    }

    /// An f32 rounded to TF32, halves away from zero, as the `i32` that `mma` takes.
    pub fn to_tf32(&self, x: Value<'m>) -> Value<'m> {
        self.value(CVT_TF32, &[x])
    }
}
