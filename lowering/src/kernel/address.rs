//! Addresses: an element of a memref, with or without swizzling of shared memory.

use super::Lowering;
use crate::emit::{Space, Type, Value};
use rc_dialects::constraints::memory_space;
use rc_dialects::op;
use rc_ir::{self as ir, OpRef, Result, op_def::constant_of};
use smallvec::SmallVec;

/// An index while an address is computed: constants are kept apart, so that terms of zero make no code.
#[derive(Clone, Copy)]
enum Term<'m> {
    Constant(i64),
    Value(Value<'m>),
}

impl<'a, 'm> Lowering<'a, 'm> {
    /// The address of the element of `memref` at `indices`; fewer indices than dimensions name a leading part.
    pub fn address(&mut self, op: OpRef, memref: ir::Value, indices: &[ir::Value]) -> Result<Value<'m>> {
        let ty = self.body.ty(memref);
        if indices.len() > ty.rank() {
            return Err(op.error(format!("indexes {ty} with {} indices", indices.len())));
        }
        let base = self.values.one(memref);
        let element = self.memory_type(op, ty.elem())?;
        // What skips its first lanes may start before the first element.
        let outside = !op.group("skip").is_empty();
        Ok(match self.offset(op, ty, indices)? {
            Term::Constant(offset) if outside => self.b.gep_outside(element, base, self.b.i64(offset)),
            Term::Value(offset) if outside => self.b.gep_outside(element, base, offset),
            Term::Constant(offset) => match i32::try_from(offset) {
                Ok(offset) => self.b.gep_const(element, base, offset),
                Err(_) => self.b.gep(element, base, self.b.i64(offset)),
            },
            Term::Value(offset) => self.b.gep(element, base, offset),
        })
    }

    /// The address of an element in shared memory whose 16-byte pieces are permuted as a tensor map with the operation's `swizzle`
    /// permutes them: by xoring bits of the address itself. Whole turns of the permutation, eight rows, are added behind, where
    /// neighbouring accesses share what comes before.
    pub fn shared_address(&mut self, op: OpRef, memref: ir::Value, indices: &[ir::Value]) -> Result<Value<'m>> {
        let swizzle = op.int("swizzle").unwrap_or(0);
        let mask = match swizzle {
            0 => return self.address(op, memref, indices),
            32 => 0x10,
            64 => 0x30,
            128 => 0x70,
            _ => return Err(op.error(format!("has 'swizzle' = {swizzle}: 0, 32, 64 or 128"))),
        };
        let ty = self.body.ty(memref);
        let width = ty.elem().byte_width().unwrap_or(1) as i64;
        let (to, strides) = (self.b.ty.i32, strides(op, ty)?);
        let (mut start, mut constant) = (Term::Value(self.b.ptrtoint(self.values.one(memref), to)), 0i64);
        for (&index, &stride) in indices.iter().zip(&strides) {
            let Some(stride) = stride.as_static() else {
                return Err(op.unsupported(format!("with 'swizzle' of {ty}")));
            };
            let (index, fixed) = self.without_constant(index);
            constant += fixed * stride * width;
            if let Some(index) = index {
                let part = self.times(Term::Value(self.index(index, to)), Term::Constant(stride * width), to);
                start = self.plus(start, part, to);
            }
        }
        let turn = 8 * swizzle;
        start = self.plus(start, Term::Constant(constant.rem_euclid(turn)), to);
        let (b, bytes) = (self.b, self.term(start, to));
        let row = b.and(b.lshr(bytes, b.i32(3)), b.i32(mask));
        let place = b.inttoptr(b.xor(bytes, row), b.ty.ptr_in(Space::Shared));
        Ok(match constant.div_euclid(turn) * turn {
            0 => place,
            turns => b.gep(b.ty.i8, place, b.i64(turns)),
        })
    }

    /// An index less the constant that was added to it last.
    fn without_constant(&self, index: ir::Value) -> (Option<ir::Value>, i64) {
        let number = |v: ir::Value| constant_of(self.body, v).and_then(|a| a.as_int());
        if let Some(constant) = number(index) {
            return (None, constant);
        }
        let added = self.body.defining_op(index).filter(|&op| self.body.name(op) == op::core::ADD);
        let constant = added.and_then(|op| Some((self.body.operand(op, 0), number(self.body.operand(op, 1))?)));
        constant.map_or((Some(index), 0), |(value, constant)| (Some(value), constant))
    }

    /// How many elements behind the first an element lies.
    fn offset(&mut self, op: OpRef, ty: ir::Type, indices: &[ir::Value]) -> Result<Term<'m>> {
        let strides = strides(op, ty)?;
        let to = self.offset_type(ty, indices, &strides);
        let mut sum = Term::Constant(0);
        for (&index, &stride) in indices.iter().zip(&strides) {
            let index = match constant_of(self.body, index).and_then(|a| a.as_int()) {
                Some(constant) => Term::Constant(constant),
                None => Term::Value(self.index(index, to)),
            };
            let stride = match stride.as_static() {
                Some(constant) => Term::Constant(constant),
                None => Term::Value(self.dim(stride, to)?),
            };
            let product = self.times(index, stride, to);
            sum = self.plus(sum, product, to);
        }
        Ok(sum)
    }

    /// 32 bits where all terms and their sum fit; shared memory is never larger.
    fn offset_type(&self, ty: ir::Type, indices: &[ir::Value], strides: &[ir::Dim]) -> Type<'m> {
        if self.gpu && memory_space(ty) == 3 {
            return self.b.ty.i32;
        }
        let terms = indices.iter().zip(strides).map(|(&index, &stride)| {
            let (i, s) = (self.ranges.of(index)?, self.ranges.of_dim(stride)?);
            Some((i.0.saturating_mul(s.1).min(i.0), i.1.saturating_mul(s.1).max(i.1)))
        });
        let sum = terms.reduce(|a, b| Some((a?.0.saturating_add(b?.0), a?.1.saturating_add(b?.1))));
        self.index_width(self.ranges.fits(sum.unwrap_or(Some((0, 0)))))
    }

    fn times(&self, x: Term<'m>, y: Term<'m>, to: Type<'m>) -> Term<'m> {
        match (x, y) {
            (Term::Constant(x), Term::Constant(y)) => Term::Constant(x.saturating_mul(y)),
            (Term::Constant(0), _) | (_, Term::Constant(0)) => Term::Constant(0),
            (Term::Constant(1), x) | (x, Term::Constant(1)) => x,
            (x, y) => Term::Value(self.b.mul(self.term(x, to), self.term(y, to))),
        }
    }

    fn plus(&self, x: Term<'m>, y: Term<'m>, to: Type<'m>) -> Term<'m> {
        match (x, y) {
            (Term::Constant(x), Term::Constant(y)) => Term::Constant(x.saturating_add(y)),
            (Term::Constant(0), x) | (x, Term::Constant(0)) => x,
            (x, y) => Term::Value(self.b.add(self.term(x, to), self.term(y, to))),
        }
    }

    fn term(&self, term: Term<'m>, to: Type<'m>) -> Value<'m> {
        match term {
            Term::Constant(constant) => self.b.int(to, constant),
            Term::Value(value) => value,
        }
    }

    /// How an element lies in memory: an `i1` as a byte, an index in 8 bytes.
    pub fn memory_type(&self, op: OpRef, ty: ir::Type) -> Result<Type<'m>> {
        if ty == ir::Type::i1() { Ok(self.b.ty.i8) } else { self.scalar_type(op, ty) }
    }
}

/// The strides of a memref in elements.
///
/// # Errors
/// If its layout is no `strided<[…]>`.
pub(super) fn strides(op: OpRef, ty: ir::Type) -> Result<SmallVec<[ir::Dim; 4]>> {
    ty.strides().ok_or_else(|| op.unsupported(format!("of {ty}")).help("use a row-major memref, or strided<[…]>"))
}
