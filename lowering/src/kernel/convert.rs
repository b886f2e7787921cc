//! Changes of the element type: `core.convert` and bit casts.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::emit::{FCmp, ICmp, Type, Value, same_shape};
use melior::ir::ValueLike;
use rc_ir::{self as ir, OpRef, Result, types::FloatKind};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn convert(&mut self, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let (from, to) = (self.body.ty(value).elem(), self.body.ty(result).elem());
        let parts = self.values.parts(value);
        if let Some(parts) = self.convert_words(&parts, from, to) {
            self.values.set_parts(result, parts);
            return Ok(());
        }
        let index = if to.is_index() { self.index_type(result) } else { self.b.ty.i64 };
        let scalar = if to.is_index() { index } else { self.scalar_type(op, to)? };
        let non_negative = from.is_index() && self.ranges.non_negative(value);
        let converted: Result<Parts<'m>> = parts
            .into_iter()
            .map(|x| self.convert_part(op, x, from, to, same_shape(x.r#type(), scalar), non_negative))
            .collect();
        self.values.set_parts(result, converted?);
        Ok(())
    }

    /// A word of 32 bits at a time, as GPUs convert between f32 and narrower elements.
    fn convert_words(&self, parts: &[Value<'m>], from: ir::Type, to: ir::Type) -> Option<Parts<'m>> {
        let float8 = ir::Type::float(FloatKind::F8E4M3FN);
        let bytes = from == float8 || to == float8 || is_byte(from);
        if !self.gpu || !parts.len().is_multiple_of(if bytes { 4 } else { 2 }) {
            return None;
        }
        if [from, to].contains(&float8) && !self.converts_float8() {
            return None;
        }
        match from {
            _ if from == to => None,
            _ if from == ir::Type::f32() => self.narrow_words(parts, to),
            _ if is_byte(from) && to.is_float() && to != ir::Type::f64() => {
                self.of_f32(self.bytes_to_f32(parts, from), to)
            }
            _ if from == float8 && to == ir::Type::f16() => Some(self.float8_to_f16(parts)),
            _ if from == float8 && to.is_float() && to != ir::Type::f64() => {
                let halves = self.float8_to_f16(parts);
                self.of_f32(halves.iter().map(|&half| self.widen(half, ir::Type::f16())).collect(), to)
            }
            _ if to == float8 && self.is_narrow_float(from) => {
                self.of_f32(parts.iter().map(|&part| self.widen(part, from)).collect(), to)
            }
            _ => None,
        }
    }

    fn of_f32(&self, parts: Parts<'m>, to: ir::Type) -> Option<Parts<'m>> {
        if to == ir::Type::f32() { Some(parts) } else { self.narrow_words(&parts, to) }
    }

    /// Numbers in f32 rounded to floats of 16 or 8 bits: on a GPU as many at a time as an instruction takes.
    pub fn narrow_parts(&self, parts: &[Value<'m>], to: ir::Type) -> Parts<'m> {
        let together = if to == ir::Type::float(FloatKind::F8E4M3FN) { 4 } else { 2 };
        let words = parts.len().is_multiple_of(together) && self.gpu && (together == 2 || self.converts_float8());
        words
            .then(|| self.narrow_words(parts, to))
            .flatten()
            .unwrap_or_else(|| parts.iter().map(|&x| self.narrow(x, to)).collect())
    }

    fn narrow_words(&self, parts: &[Value<'m>], to: ir::Type) -> Option<Parts<'m>> {
        let (b, p) = (self.b, self.b.ptx());
        let words = |pack: &dyn Fn(Value<'m>, Value<'m>) -> Value<'m>| -> Vec<Value<'m>> {
            parts.chunks_exact(2).map(|pair| pack(pair[0], pair[1])).collect()
        };
        match to.float_kind()? {
            FloatKind::BF16 => Some(self.unpack(&words(&|x, y| p.pack_bf16x2(x, y)), to, b.ty.i16)),
            FloatKind::F16 => Some(self.unpack(&words(&|x, y| p.pack_f16x2(x, y)), to, b.ty.i16)),
            FloatKind::F8E4M3FN => Some(self.unpack(&self.pack(&words(&|x, y| p.pack_e4m3x2(x, y))), to, b.ty.i8)),
            _ => None,
        }
    }

    fn float8_to_f16(&self, parts: &[Value<'m>]) -> Parts<'m> {
        let (b, p) = (self.b, self.b.ptx());
        let pairs = |word: Value<'m>| [word, b.lshr(word, b.i32(16))].map(|half| b.trunc(half, b.ty.i16));
        let words: Vec<Value<'m>> =
            self.pack(parts).into_iter().flat_map(pairs).map(|pair| p.e4m3x2_to_f16x2(pair)).collect();
        self.unpack(&words, ir::Type::f16(), b.ty.i16)
    }

    /// Bytes as the last digits of 2^23, which is subtracted again: a product that widens int8 took two thirds of the time so that it
    /// took with `cvt.rn.f32.s8`.
    fn bytes_to_f32(&self, parts: &[Value<'m>], from: ir::Type) -> Parts<'m> {
        let (b, p) = (self.b, self.b.ptx());
        let (one, unsigned) = (8_388_608.0, from.is_unsigned());
        let base = b.float(b.ty.f32, if unsigned { one } else { one + 128.0 });
        let float = |bits: Value<'m>| b.fsub(b.bitcast(bits, b.ty.f32), base);
        let lanes = |word: Value<'m>| {
            let digits = if unsigned { word } else { b.xor(word, b.i32(0x8080_8080_u32 as i32)) };
            // The byte, two zeros, and the upper byte of 2^23.
            [0, 1, 2, 3].map(|lane| float(p.permute_bytes(digits, b.i32(0x4b00_0000), b.i32(0x7540 + lane))))
        };
        self.pack(parts).into_iter().flat_map(lanes).collect()
    }

    fn convert_part(
        &self,
        op: OpRef,
        x: Value<'m>,
        from: ir::Type,
        to: ir::Type,
        target: Type<'m>,
        non_negative: bool,
    ) -> Result<Value<'m>> {
        let b = self.b;
        if from == to {
            return Ok(if to.is_index() { self.index_cast(x, self.scalar_type_of(target), non_negative) } else { x });
        }
        self.scalar_type(op, from)?;
        if [from, to].contains(&ir::Type::tf32()) {
            return match from == ir::Type::f32() {
                true => Ok(b.ptx().to_tf32(x)),
                false if to == ir::Type::f32() => Ok(b.bitcast(x, target)),
                false => {
                    Err(op.unsupported(format!("from {from} to {to} in machine code")).help("convert to f32 first"))
                }
            };
        }
        let bool_source = from == ir::Type::i1();
        let unsigned = |ty: ir::Type| ty.is_unsigned() || ty == ir::Type::i1();
        Ok(match (from.is_float(), to.is_float()) {
            _ if to == ir::Type::i1() && from.is_float() => {
                let x = self.as_wide_float(x, from);
                b.fcmp(FCmp::Une, x, b.float(x.r#type(), 0.0))
            }
            _ if to == ir::Type::i1() => b.icmp(ICmp::Ne, x, b.int(x.r#type(), 0)),
            (true, true) => self.float_to_float(x, from, to, target),
            (true, false) => {
                let x = self.as_wide_float(x, from);
                if to.is_unsigned() { b.fptoui_saturating(x, target) } else { b.fptosi_saturating(x, target) }
            }
            (false, true) => self.int_to_float(x, unsigned(from) || non_negative, from, to, target),
            (false, false) => {
                let (have, want) = (self.element_bits(x.r#type()), self.element_bits(target));
                match want.cmp(&have) {
                    std::cmp::Ordering::Less => b.trunc(x, target),
                    std::cmp::Ordering::Equal => x,
                    std::cmp::Ordering::Greater if bool_source || unsigned(from) || non_negative => b.zext(x, target),
                    std::cmp::Ordering::Greater => b.sext(x, target),
                }
            }
        })
    }

    /// As f32 or f64.
    fn as_wide_float(&self, x: Value<'m>, from: ir::Type) -> Value<'m> {
        if self.is_narrow_float(from) { self.widen(x, from) } else { x }
    }

    fn float_to_float(&self, x: Value<'m>, from: ir::Type, to: ir::Type, target: Type<'m>) -> Value<'m> {
        let b = self.b;
        let (f32, f64) = (ir::Type::f32(), ir::Type::f64());
        match (self.is_narrow_float(from), self.is_narrow_float(to)) {
            (false, false) if to == f64 => b.fpext(x, target),
            (false, false) => b.fptrunc(x, target),
            (true, false) => {
                let wide = self.widen(x, from);
                if to == f64 { b.fpext(wide, target) } else { wide }
            }
            (false, true) if from == f32 => self.narrow(x, to),
            (false, true) => self.narrow(self.f64_to_odd_f32(x), to),
            (true, true) => self.narrow(self.widen(x, from), to),
        }
    }

    /// An f64 as f32, rounded to odd: what was cut off stays visible in the last bit, so that rounding on to 16 or 8 bits
    /// is rounding once.
    fn f64_to_odd_f32(&self, x: Value<'m>) -> Value<'m> {
        let b = self.b;
        let shape = x.r#type();
        let (f32, i32) = (same_shape(shape, b.ty.f32), same_shape(shape, b.ty.i32));
        let nearest = b.fptrunc(x, f32);
        let back = b.fpext(nearest, shape);
        let bits = b.bitcast(nearest, i32);
        let too_far = b.fcmp(FCmp::Ogt, b.fabs(back), b.fabs(x));
        let toward_zero = b.select(too_far, b.sub(bits, b.int(i32, 1)), bits);
        let inexact = b.fcmp(FCmp::One, back, x);
        b.bitcast(b.select(inexact, b.or(toward_zero, b.int(i32, 1)), bits), f32)
    }

    fn int_to_float(&self, x: Value<'m>, unsigned: bool, from: ir::Type, to: ir::Type, target: Type<'m>) -> Value<'m> {
        let b = self.b;
        let cast = |to| if unsigned { b.uitofp(x, to) } else { b.sitofp(x, to) };
        if !self.is_narrow_float(to) {
            return cast(target);
        }
        let shape = x.r#type();
        match self.element_bits(shape) {
            ..=16 => self.narrow(cast(same_shape(shape, b.ty.f32)), to),
            32 => self.narrow(self.f64_to_odd_f32(cast(same_shape(shape, b.ty.f64))), to),
            _ => {
                // Beyond 53 bits, the low 11 of 64 matter only as "not zero".
                let low = b.and(x, b.int(shape, 0x7ff));
                let sticky = b.select(b.icmp(ICmp::Eq, low, b.int(shape, 0)), low, b.int(shape, 0x400));
                let rounded = b.or(b.and(x, b.int(shape, !0x7ff)), sticky);
                let magnitude = if unsigned || from.is_unsigned() { x } else { b.smax(x, b.sub(b.int(shape, 0), x)) };
                let large = b.icmp(ICmp::Uge, magnitude, b.int(shape, 1 << 53));
                let exact = b.select(large, rounded, x);
                let wide = same_shape(shape, b.ty.f64);
                let wide = if unsigned { b.uitofp(exact, wide) } else { b.sitofp(exact, wide) };
                self.narrow(self.f64_to_odd_f32(wide), to)
            }
        }
    }

    fn element_bits(&self, ty: Type<'m>) -> usize {
        let scalar = self.scalar_type_of(ty);
        if scalar == self.b.ty.i1 { 1 } else { 8 * self.element_bytes(scalar) }
    }

    fn scalar_type_of(&self, ty: Type<'m>) -> Type<'m> {
        crate::emit::element(ty)
    }

    /// The same bits in another type of equal size.
    pub fn bitcast(&mut self, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let (from, to) = (self.body.ty(value), self.body.ty(result));
        let bits = |ty: ir::Type| lanes_of(ty) as u64 * u64::from(ty.elem().bit_width().unwrap_or(0));
        if bits(from) != bits(to) {
            return Err(op.error(format!("casts {} bits to {}", bits(from), bits(to))));
        }
        let scalar = self.scalar_type(op, to.elem())?;
        let wide = |parts: Parts<'m>| -> Parts<'m> {
            // An index has 64 bits here.
            if !from.elem().is_index() {
                return parts;
            }
            parts.into_iter().map(|p| self.index_cast(p, self.b.ty.i64, self.ranges.non_negative(value))).collect()
        };
        let parts = wide(self.values.parts(value));
        let mut cast: Parts<'m> = if !self.gpu {
            parts.iter().map(|&part| self.b.bitcast(part, self.part_type(to, scalar))).collect()
        } else if lanes_of(from) == lanes_of(to) {
            parts.iter().map(|&part| self.b.bitcast(part, scalar)).collect()
        } else if bits(from).is_multiple_of(32)
            && self.element_bytes(scalar) <= 4
            && from.elem().bit_width() <= Some(32)
        {
            self.unpack(&self.pack(&parts), to.elem(), scalar)
        } else {
            return Err(op.unsupported(format!("from {from} to {to} on a GPU")));
        };
        if to.elem().is_index() {
            let width = self.index_type(result);
            cast = cast.into_iter().map(|part| self.index_cast(part, width, false)).collect();
        }
        self.values.set_parts(result, cast);
        Ok(())
    }
}

/// Whether elements are integers of 8 bits.
fn is_byte(ty: ir::Type) -> bool {
    !ty.is_float() && !ty.is_index() && ty.bit_width() == Some(8)
}
