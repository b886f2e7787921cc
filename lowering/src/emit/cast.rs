//! Conversions, on scalars and on vectors alike; `to` is the whole result type.

use super::{Builder, FCmp, ICmp, Space, Type, Value, same_shape};
use melior::ir::ValueLike;

macro_rules! casts {
    ($($(#[$doc:meta])* $method:ident => $op:literal;)+) => {
        impl<'m> Builder<'m> {
            $(
                $(#[$doc])*
                pub fn $method(&self, x: Value<'m>, to: Type<'m>) -> Value<'m> {
                    if x.r#type() == to { x } else { self.op1($op, &[x], to, &[]) }
                }
            )+
        }
    };
}

casts! {
    sext => "llvm.sext";
    zext => "llvm.zext";
    trunc => "llvm.trunc";
    /// To a wider float type.
    fpext => "llvm.fpext";
    /// To a narrower float type, to nearest even. On the CPU see [`Builder::f32_to_bf16`].
    fptrunc => "llvm.fptrunc";
    sitofp => "llvm.sitofp";
    uitofp => "llvm.uitofp";
    /// Toward zero; poison where the integer type cannot hold it. See [`Builder::fptosi_saturating`].
    fptosi => "llvm.fptosi";
    /// Toward zero; poison where the integer type cannot hold it.
    fptoui => "llvm.fptoui";
    /// The same bits as another type of the same size.
    bitcast => "llvm.bitcast";
    ptrtoint => "llvm.ptrtoint";
    inttoptr => "llvm.inttoptr";
}

impl<'m> Builder<'m> {
    /// Toward zero; the nearest integer the type has where it is out of range, 0 for NaN.
    // By the intrinsic, since LLVM 22 does not translate MLIR's operation of that name.
    pub fn fptosi_saturating(&self, x: Value<'m>, to: Type<'m>) -> Value<'m> {
        self.intrinsic1("llvm.fptosi.sat", &[x], to)
    }

    /// Toward zero; the nearest integer the type has where it is out of range, 0 for NaN.
    pub fn fptoui_saturating(&self, x: Value<'m>, to: Type<'m>) -> Value<'m> {
        self.intrinsic1("llvm.fptoui.sat", &[x], to)
    }

    /// A pointer in another memory space.
    pub fn space_cast(&self, pointer: Value<'m>, space: Space) -> Value<'m> {
        let to = self.ty.ptr_in(space);
        if pointer.r#type() == to { pointer } else { self.op1("llvm.addrspacecast", &[pointer], to, &[]) }
    }

    /// bf16 to f32, exactly, by a shift: every CPU has it.
    pub fn bf16_to_f32(&self, x: Value<'m>) -> Value<'m> {
        let shape = x.r#type();
        let (i16, i32) = (same_shape(shape, self.ty.i16), same_shape(shape, self.ty.i32));
        let wide = self.zext(self.bitcast(x, i16), i32);
        self.bitcast(self.shl(wide, self.int(i32, 16)), same_shape(shape, self.ty.f32))
    }

    /// f32 to bf16, to nearest even, NaN to a quiet NaN, in integer arithmetic: for CPUs without AVX-512 BF16 LLVM
    /// makes `llvm.fptrunc` a call into a library.
    pub fn f32_to_bf16(&self, x: Value<'m>) -> Value<'m> {
        let shape = x.r#type();
        let (i16, i32) = (same_shape(shape, self.ty.i16), same_shape(shape, self.ty.i32));
        let bits = self.bitcast(x, i32);
        let sixteen = self.int(i32, 16);
        let odd = self.and(self.lshr(bits, sixteen), self.int(i32, 1));
        let rounded = self.add(self.add(bits, self.int(i32, 0x7fff)), odd);
        let quiet = self.or(bits, self.int(i32, 0x0040_0000));
        let chosen = self.select(self.fcmp(FCmp::Uno, x, x), quiet, rounded);
        let half = self.trunc(self.lshr(chosen, sixteen), i16);
        self.bitcast(half, same_shape(shape, self.ty.bf16))
    }

    /// The bits of a narrower float as f32, exactly, in integer arithmetic and one difference: for processors without instructions LLVM makes
    /// `llvm.fpext` a call into a library, or has no such type.
    pub fn narrow_to_f32(&self, x: Value<'m>, format: &Format) -> Value<'m> {
        let shape = x.r#type();
        let (i32, f32) = (same_shape(shape, self.ty.i32), same_shape(shape, self.ty.f32));
        let bits = self.zext(x, i32);
        let number = |n: i64| self.int(i32, n);
        let digits = i64::from(23 - format.mantissa);
        let magnitude = self.shl(self.and(bits, number(format.sign() - 1)), number(digits));
        // The exponent's bias grows. Subnormal numbers get a leading digit, which is subtracted again: as f32 they would be flushed to zero.
        let rebias = i64::from(127 - format.bias) << 23;
        let normal = self.add(magnitude, number(rebias));
        let one = 1 << 23;
        let leading = self.bitcast(number(rebias + one), f32);
        let subnormal = self.fsub(self.bitcast(self.add(normal, number(one)), f32), leading);
        let small = self.icmp(ICmp::Ult, magnitude, number(one));
        let finite = self.select(small, self.bitcast(subnormal, i32), normal);
        let none = self.icmp(ICmp::Uge, magnitude, number(format.first_special() << digits));
        let chosen = self.select(none, self.or(magnitude, number(0x7f80_0000)), finite);
        let sign = self.shl(self.and(bits, number(format.sign())), number(32 - i64::from(format.bits)));
        self.bitcast(self.or(chosen, sign), f32)
    }

    /// The bits of an f32 rounded to a narrower float, to nearest even, NaN to a quiet NaN, in the same way.
    pub fn f32_to_narrow(&self, x: Value<'m>, format: &Format) -> Value<'m> {
        let shape = x.r#type();
        let i32 = same_shape(shape, self.ty.i32);
        let number = |n: i64| self.int(i32, n);
        let digits = 23 - i64::from(format.mantissa);
        let rebias = i64::from(127 - format.bias);
        let bits = self.bitcast(x, i32);
        let magnitude = self.and(bits, number(0x7fff_ffff));
        let odd = self.and(self.lshr(magnitude, number(digits)), number(1));
        let normal = self.add(self.add(magnitude, number(-(rebias << 23) + (1 << (digits - 1)) - 1)), odd);
        let normal = self.umin(self.lshr(normal, number(digits)), number(format.too_large));
        // Added to a number of which it is the last digit's size, a subnormal number's digits move to the last bits, and are rounded there.
        let moved = number((rebias + 1 + digits) << 23);
        let sum = self.fadd(self.bitcast(magnitude, shape), self.bitcast(moved, shape));
        let subnormal = self.sub(self.bitcast(sum, i32), moved);
        let small = self.icmp(ICmp::Ult, magnitude, number((rebias + 1) << 23));
        let finite = self.select(small, subnormal, normal);
        let code = self.select(self.fcmp(FCmp::Uno, x, x), number(format.nan), finite);
        let sign = self.and(self.lshr(bits, number(32 - i64::from(format.bits))), number(format.sign()));
        let scalar = if format.bits == 16 { self.ty.i16 } else { self.ty.i8 };
        self.trunc(self.or(code, sign), same_shape(shape, scalar))
    }
}

/// A float format of 8 or 16 bits.
pub struct Format {
    bits: u32,
    mantissa: u32,
    bias: i32,
    /// The code of what is too large.
    too_large: i64,
    nan: i64,
    /// Whether the greatest exponent has infinity and NaN only.
    infinite: bool,
}

impl Format {
    pub const F16: Format = Format { bits: 16, mantissa: 10, bias: 15, too_large: 0x7c00, nan: 0x7e00, infinite: true };
    pub const F8E4M3FN: Format = Format { bits: 8, mantissa: 3, bias: 7, too_large: 0x7e, nan: 0x7f, infinite: false };
    pub const F8E5M2: Format = Format { bits: 8, mantissa: 2, bias: 15, too_large: 0x7c, nan: 0x7f, infinite: true };

    fn sign(&self) -> i64 {
        1 << (self.bits - 1)
    }

    /// The least code that is no number.
    fn first_special(&self) -> i64 {
        if self.infinite { self.too_large } else { self.nan }
    }
}
