//! `core.fma` where the processor has no instruction for it: x86-64 before AVX2.

use super::Lowering;
use crate::backend::Processor;
use crate::emit::{FCmp, Value, same_shape};
use melior::ir::ValueLike;
use rc_ir as ir;

/// Splits a double into two halves of its digits (Veltkamp): 2^27 + 1.
const SPLITTER: f64 = 134_217_729.0;

impl<'m> Lowering<'_, 'm> {
    /// `x * y + z`. Without the instruction the product is exact all the same: in f64 for an f32; of an f64, as the sum of two
    /// (T. J. Dekker, A floating-point technique for extending the available precision, 1971). The sum may be rounded twice.
    pub(super) fn fma(&self, elem: ir::Type, x: Value<'m>, y: Value<'m>, z: Value<'m>) -> Value<'m> {
        let b = self.b;
        match self.target {
            Processor::Cpu(cpu) if !cpu.has_fma() => {}
            _ => return b.fma(x, y, z),
        }
        if elem == ir::Type::f64() {
            return self.fma_of_halves(x, y, z);
        }
        let (narrow, wide) = (x.r#type(), same_shape(x.r#type(), b.ty.f64));
        let [x, y, z] = [x, y, z].map(|v| b.fpext(v, wide));
        b.fptrunc(b.fadd(b.fmul(x, y), z), narrow)
    }

    fn fma_of_halves(&self, x: Value<'m>, y: Value<'m>, z: Value<'m>) -> Value<'m> {
        let b = self.b;
        let number = |n: f64| b.float(x.r#type(), n);
        let halves = |v: Value<'m>| {
            let scaled = b.fmul(v, number(SPLITTER));
            let high = b.fsub(scaled, b.fsub(scaled, v));
            (high, b.fsub(v, high))
        };
        let product = b.fmul(x, y);
        let ((xh, xl), (yh, yl)) = (halves(x), halves(y));
        let high = b.fsub(b.fmul(xh, yh), product);
        let below = b.fadd(b.fadd(b.fadd(high, b.fmul(xh, yl)), b.fmul(xl, yh)), b.fmul(xl, yl));
        // The sum of product and z, and what its rounding lost (Knuth).
        let sum = b.fadd(product, z);
        let back = b.fsub(sum, product);
        let lost = b.fadd(b.fsub(product, b.fsub(sum, back)), b.fsub(z, back));
        let rest = b.fadd(lost, below);
        // Of infinities, and of numbers whose halves overflow, the rest is no number.
        let finite = b.fcmp(FCmp::Olt, b.fabs(rest), number(f64::INFINITY));
        b.select(finite, b.fadd(sum, rest), sum)
    }
}
