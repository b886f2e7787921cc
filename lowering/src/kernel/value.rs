//! What values of the kernel are in LLVM, and the types of both.

use super::Lowering;
use crate::emit::{Type, Value, same_shape};
use melior::ir::ValueLike;
use rc_ir::types::FloatKind;
use rc_ir::{self as ir, OpRef, Result, TypeData};
use smallvec::{SmallVec, smallvec};
use std::{cell::RefCell, collections::HashMap};

/// The LLVM values that one value of the kernel is made of: one for a scalar, a pointer, a tensor map or a vector on
/// the CPU; one for each lane of a vector on a GPU.
pub(super) type Parts<'m> = SmallVec<[Value<'m>; 1]>;

/// The lowered values of a kernel.
pub(super) struct Values<'m> {
    parts: Vec<Parts<'m>>,
    /// The 32-bit words whose lanes are known as scalars. Looked up only.
    pub words: RefCell<HashMap<Vec<usize>, Value<'m>>>,
}

impl<'m> Values<'m> {
    pub fn new(capacity: usize) -> Self {
        Self { parts: vec![Parts::new(); capacity], words: RefCell::default() }
    }
    pub fn set(&mut self, value: ir::Value, lowered: Value<'m>) {
        self.parts[value.index()] = smallvec![lowered];
    }
    pub fn set_parts(&mut self, value: ir::Value, parts: Parts<'m>) {
        self.parts[value.index()] = parts;
    }
    /// All parts; none for a value that is not lowered yet, which a verified kernel does not use.
    pub fn parts(&self, value: ir::Value) -> Parts<'m> {
        self.parts[value.index()].clone()
    }
    /// The one part of a scalar, a pointer, a tensor map.
    pub fn one(&self, value: ir::Value) -> Value<'m> {
        self.parts[value.index()][0]
    }
}

/// The lanes of a vector type; 1 for a scalar.
pub(super) fn lanes_of(ty: ir::Type) -> usize {
    ty.static_shape().map_or(1, |shape| shape.iter().product::<i64>() as usize)
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// The LLVM type of a scalar of type `ty` in registers; of an index, the wide one. A float of 16 or 8 bits, or a TF32, is its bits:
    /// arithmetic on it is done in f32, and LLVM would make library calls of what is left.
    pub fn scalar_type(&self, op: OpRef, ty: ir::Type) -> Result<Type<'m>> {
        let t = &self.b.ty;
        Ok(match ty.data() {
            TypeData::Index => t.i64,
            TypeData::Integer { width: 1, .. } => t.i1,
            TypeData::Integer { width: 8, .. } | TypeData::Float(FloatKind::F8E4M3FN | FloatKind::F8E5M2) => t.i8,
            TypeData::Integer { width: 16, .. } | TypeData::Float(FloatKind::F16 | FloatKind::BF16) => t.i16,
            TypeData::Integer { width: 32, .. } => t.i32,
            TypeData::Float(FloatKind::TF32) if self.gpu => t.i32,
            TypeData::Integer { width: 64, .. } => t.i64,
            TypeData::Float(FloatKind::F32) => t.f32,
            TypeData::Float(FloatKind::F64) => t.f64,
            _ => return Err(op.unsupported(format!("on elements of type {ty} in machine code"))),
        })
    }

    /// The types of the parts of a value.
    pub fn part_types(&self, op: OpRef, value: ir::Value) -> Result<Vec<Type<'m>>> {
        let ty = self.body.ty(value);
        if ty.is_memref() || !ty.elem().is_scalar() {
            return Err(op.unsupported(format!("with a carried value of type {ty}")));
        }
        let scalar = if ty.elem().is_index() { self.index_type(value) } else { self.scalar_type(op, ty.elem())? };
        Ok(match (ty.is_vector(), self.gpu) {
            (false, _) => vec![scalar],
            (true, false) => vec![self.b.ty.vector(lanes_of(ty), scalar)],
            (true, true) => vec![scalar; lanes_of(ty)],
        })
    }

    /// The type of parts of `value`'s kind with another scalar.
    pub fn part_type(&self, ty: ir::Type, scalar: Type<'m>) -> Type<'m> {
        if ty.is_vector() && !self.gpu { self.b.ty.vector(lanes_of(ty), scalar) } else { scalar }
    }

    /// How wide an index value is kept.
    pub fn index_type(&self, value: ir::Value) -> Type<'m> {
        self.index_width(self.ranges.is_narrow(value))
    }

    pub fn index_width(&self, narrow: bool) -> Type<'m> {
        if narrow { self.b.ty.i32 } else { self.b.ty.i64 }
    }

    /// An index (or a vector of them) in another width.
    pub fn index_cast(&self, value: Value<'m>, to: Type<'m>, non_negative: bool) -> Value<'m> {
        let to = same_shape(value.r#type(), to);
        let wide = same_shape(value.r#type(), self.b.ty.i64);
        match (value.r#type() == to, to == wide) {
            (true, _) => value,
            (false, true) if non_negative => self.b.zext(value, to),
            (false, true) => self.b.sext(value, to),
            (false, false) => self.b.trunc(value, to),
        }
    }

    /// A scalar index in a width.
    pub fn index(&self, value: ir::Value, to: Type<'m>) -> Value<'m> {
        self.index_cast(self.values.one(value), to, self.ranges.non_negative(value))
    }

    /// A scalar index in 32 bits, as instructions take it.
    pub fn index32(&self, value: ir::Value) -> Value<'m> {
        self.index(value, self.b.ty.i32)
    }

    /// The parts of a value, indices cast to the width in which `like` is kept.
    pub fn parts_like(&self, value: ir::Value, like: ir::Value) -> Parts<'m> {
        let parts = self.values.parts(value);
        if !self.body.ty(value).elem().is_index() {
            return parts;
        }
        let (to, non_negative) = (self.index_type(like), self.ranges.non_negative(value));
        parts.into_iter().map(|part| self.index_cast(part, to, non_negative)).collect()
    }
}
