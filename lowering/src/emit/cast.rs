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

    /// The bits of an f16 as f32, exactly, in integer arithmetic and one product: for CPUs without F16C LLVM makes `llvm.fpext` a call into a library.
    pub fn f16_to_f32(&self, x: Value<'m>) -> Value<'m> {
        let shape = x.r#type();
        let (i32, f32) = (same_shape(shape, self.ty.i32), same_shape(shape, self.ty.f32));
        let bits = self.zext(x, i32);
        let number = |n: i64| self.int(i32, n);
        let magnitude = self.shl(self.and(bits, number(0x7fff)), number(13));
        // The exponent's bias grows by 112, subnormal numbers become normal.
        let scaled = self.fmul(self.bitcast(magnitude, f32), self.float(f32, 2f64.powi(112)));
        let none = self.icmp(ICmp::Uge, magnitude, number(0x7c00 << 13));
        let finite = self.bitcast(scaled, i32);
        let chosen = self.select(none, self.or(magnitude, number(0x7f80_0000)), finite);
        let sign = self.shl(self.and(bits, number(0x8000)), number(16));
        self.bitcast(self.or(chosen, sign), f32)
    }

    /// The bits of an f32 rounded to f16, to nearest even, NaN to a quiet NaN, in the same way.
    pub fn f32_to_f16(&self, x: Value<'m>) -> Value<'m> {
        let shape = x.r#type();
        let (i16, i32) = (same_shape(shape, self.ty.i16), same_shape(shape, self.ty.i32));
        let number = |n: i64| self.int(i32, n);
        let bits = self.bitcast(x, i32);
        let magnitude = self.and(bits, number(0x7fff_ffff));
        let odd = self.and(self.lshr(magnitude, number(13)), number(1));
        let normal = self.add(self.add(magnitude, number((-112 << 23) + 0xfff)), odd);
        let normal = self.lshr(normal, number(13));
        // Added to one half, a subnormal number's digits move to the last bits, and are rounded there.
        let half = number(0x3f00_0000);
        let sum = self.fadd(self.bitcast(magnitude, shape), self.bitcast(half, shape));
        let subnormal = self.sub(self.bitcast(sum, i32), half);
        let small = self.icmp(ICmp::Ult, magnitude, number(113 << 23));
        let finite = self.select(small, subnormal, normal);
        let large = self.icmp(ICmp::Uge, magnitude, number(143 << 23));
        let none = self.select(self.fcmp(FCmp::Uno, x, x), number(0x7e00), number(0x7c00));
        let sign = self.and(self.lshr(bits, number(16)), number(0x8000));
        self.trunc(self.or(self.select(large, none, finite), sign), i16)
    }
}
