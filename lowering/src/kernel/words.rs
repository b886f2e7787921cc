//! Dot products of words, by the instructions of a CPU that has them.

use super::Lowering;
use super::value::lanes_of;
use crate::backend::Processor;
use rc_ir::{self as ir, OpRef, Result};
use rc_machine::Unit;

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn dot_words(&mut self, op: OpRef) -> Result {
        let lanes = lanes_of(self.body.ty(op.result(0)));
        let ty = &self.b.ty;
        let floats = op.attr("of").and_then(|of| of.as_type()) == Some(ir::Type::bf16());
        let (unit, instruction, words, sums) = match floats {
            true => (Unit::Avx512Bf16, "llvm.x86.avx512bf16.dpbf16ps", ty.vector(2 * lanes, ty.bf16), ty.f32),
            false => (Unit::Vnni, "llvm.x86.avx512.vpdpbusd", ty.vector(4 * lanes, ty.i8), ty.i32),
        };
        let has = matches!(self.target, Processor::Cpu(cpu) if cpu.has_unit(unit));
        if !has || !matches!(lanes, 4 | 8 | 16) {
            let error = op.unsupported(format!("with {lanes} lanes on {}", self.target.cpu_name()));
            return Err(error.help(format!("it takes 4, 8 or 16 lanes of a CPU with the unit {}", unit.word())));
        }
        let [a, b] = [0, 1].map(|i| self.b.bitcast(self.values.one(op.operand(i)), words));
        let acc = self.values.one(op.operand(2));
        let name = format!("{instruction}.{}", 32 * lanes);
        let result = self.b.intrinsic1(&name, &[acc, a, b], ty.vector(lanes, sums));
        self.values.set(op.result(0), result);
        Ok(())
    }
}
