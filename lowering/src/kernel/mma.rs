//! A warp's matrix instructions: `ldmatrix`, `stmatrix`, `mma.sync`.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::emit::ptx::Mma;
use rc_dialects::op;
use rc_ir::{self as ir, OpRef, Result};

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn ldmatrix(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let ty = self.body.ty(result);
        let matrices = self.matrices(op, ty)?;
        let row = self.shared_address(op, op.operand(0), &op.group("indices"))?;
        let words = self.b.ptx().ldmatrix(matrices, op.bool("trans"), row);
        let element = self.scalar_type(op, ty.elem())?;
        let parts = self.unpack(&words, ty.elem(), element);
        self.values.set_parts(result, parts);
        Ok(())
    }

    pub fn stmatrix(&mut self, op: OpRef) -> Result {
        self.needs_hopper(op)?;
        let fragments = op.operand(0);
        self.matrices(op, self.body.ty(fragments))?;
        let row = self.shared_address(op, op.operand(1), &op.group("indices"))?;
        let words = self.pack(&self.values.parts(fragments));
        self.b.ptx().stmatrix(op.bool("trans"), row, &words);
        Ok(())
    }

    /// How many 8x8 matrices a thread's part of the fragments is.
    fn matrices(&self, op: OpRef, ty: ir::Type) -> Result<usize> {
        // A matrix is a word of each thread.
        let count = match ty.elem().bit_width() {
            Some(16) => lanes_of(ty) / 2,
            Some(32) if op.is(op::kernel::LDMATRIX) && !op.bool("trans") => lanes_of(ty),
            _ => 0,
        };
        if matches!(count, 1 | 2 | 4) {
            Ok(count)
        } else {
            Err(op.error(format!(
                "moves vectors of 2, 4 or 8 elements of 16 bits, or loads 1, 2 or 4 of 32 as they lie, not {ty}"
            )))
        }
    }

    pub fn mma(&mut self, op: OpRef) -> Result {
        let [a, b, acc] = [0, 1, 2].map(|i| op.operand(i));
        let (from, to) = (self.body.ty(a).elem(), self.body.ty(acc).elem());
        let shape = match from {
            _ if to != ir::Type::f32() || self.body.ty(b).elem() != from => None,
            _ if from == ir::Type::bf16() => Some(Mma::M16N8K16Bf16),
            _ if from == ir::Type::f16() => Some(Mma::M16N8K16F16),
            _ if from == ir::Type::tf32() => Some(Mma::M16N8K8Tf32),
            _ => None,
        };
        let Some(shape) = shape else {
            return Err(op.unsupported(format!("of {from} and {} in {to}", self.body.ty(b).elem())));
        };
        let words = |value| self.pack(&self.values.parts(value));
        let (a, b, c) = (words(a), words(b), self.values.parts(acc));
        let result = self.b.ptx().mma(shape, [a[0], a[1], a[2], a[3]], [b[0], b[1]], [c[0], c[1], c[2], c[3]]);
        self.values.set_parts(op.result(0), Parts::from_slice(&result));
        Ok(())
    }
}
