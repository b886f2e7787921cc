//! Constants and counting vectors.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::emit::{Type, Value};
use rc_dialects::op;
use rc_ir::attr::{AttrData, float_from_bits, float_to_bits, scalar_value};
use rc_ir::types::FloatKind;
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn constant(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let ty = self.body.ty(result);
        let scalar = self.part_types(op, result)?[0];
        let scalar = crate::emit::element(scalar);
        let lanes = match op.name().as_str() {
            op::core::IOTA => {
                (0..lanes_of(ty)).map(|i| self.number(scalar, ty.elem(), Number::Int(i as i64))).collect()
            }
            _ => self.constant_lanes(op, ty, scalar)?,
        };
        let parts = self.joined(ty, lanes);
        self.values.set_parts(result, parts);
        Ok(())
    }

    fn constant_lanes(&self, op: OpRef, ty: ir::Type, scalar: Type<'m>) -> Result<Vec<Value<'m>>> {
        let elem = ty.elem();
        let Some(value) = op.attr("value") else { return Err(op.error("has no 'value'")) };
        match value.data() {
            AttrData::Bool(value) => Ok(vec![self.b.int(scalar, i64::from(*value))]),
            AttrData::Int { value, .. } => Ok(vec![self.number(scalar, elem, Number::Int(*value as i64))]),
            AttrData::Float { bits, .. } => match elem.float_kind() {
                Some(kind) => Ok(vec![self.number(scalar, elem, Number::Float(float_from_bits(kind, *bits)))]),
                None => Err(op.error(format!("gives a float as {elem}"))),
            },
            AttrData::Dense { data, .. } => {
                let width = elem.byte_width().unwrap_or(1) as usize;
                let lane = |bytes: &[u8]| match elem.is_float() {
                    true => self.number(scalar, elem, Number::Float(scalar_value(elem, bytes))),
                    false => self.number(scalar, elem, Number::Int(integer(bytes))),
                };
                let all: Vec<Value<'m>> = data.bytes.chunks_exact(width).map(lane).collect();
                Ok(if data.splat { vec![all[0]; lanes_of(ty)] } else { all })
            }
            _ => Err(op.unsupported("with this kind of value in a kernel").help("pass large constants as arguments")),
        }
    }

    fn number(&self, scalar: Type<'m>, elem: ir::Type, value: Number) -> Value<'m> {
        match value {
            Number::Int(value) if elem.is_float() => self.number(scalar, elem, Number::Float(value as f64)),
            Number::Int(value) if elem == ir::Type::i1() => self.b.int(scalar, value & 1),
            Number::Int(value) => self.b.int(scalar, value),
            Number::Float(value) => match elem.float_kind() {
                Some(kind @ (FloatKind::F16 | FloatKind::BF16)) => {
                    self.b.int(scalar, i64::from(float_to_bits(kind, value) as u16 as i16))
                }
                Some(kind @ (FloatKind::F8E4M3FN | FloatKind::F8E5M2)) => {
                    self.b.int(scalar, i64::from(float_to_bits(kind, value) as u8 as i8))
                }
                _ => self.b.float(scalar, value),
            },
        }
    }

    /// A value of type `ty` from its lanes.
    pub fn joined(&self, ty: ir::Type, lanes: Vec<Value<'m>>) -> Parts<'m> {
        if ty.is_vector() && !self.gpu {
            let equal = lanes.iter().all(|lane| *lane == lanes[0]);
            let vector = if equal { self.b.splat(lanes[0], lanes.len()) } else { self.b.vector(&lanes) };
            return Parts::from_iter([vector]);
        }
        Parts::from_vec(lanes)
    }
}

enum Number {
    Int(i64),
    Float(f64),
}

/// The little-endian integer, extended by its sign.
fn integer(bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let shift = 64 - 8 * bytes.len() as u32;
    (i64::from_le_bytes(word) << shift) >> shift
}
