//! Products whose warps divide k among themselves: each has its parts of the operands in registers, as memory has them, and a part of every
//! sum. Shared memory is where the parts meet, once.

use super::Distribute;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Distribution, Layout};
use crate::schedule::{PART, PART_ROW};
use rc_dialects::op;
use rc_ir::{Dim, OpRef, Result, Type, Value};
use std::rc::Rc;

/// Elements of a row that one `mma` takes of a lane.
const TAKEN: i64 = 4;

/// An operand in registers.
struct Part {
    values: Rc<[Value]>,
    spread: Rc<Distribution>,
}

impl<'s> Distribute<'s> {
    /// A lane's neighbours along k are of several `mma`, of each the first two of its k and the two 8 further on. So they are of both operands, and any order
    /// along k will do.
    pub(super) fn dot_parts(&mut self, op: OpRef<'s>) -> Result {
        let acc_ty = op.result_types()[0];
        let spread = self.spread(op, acc_ty)?;
        let (a, b) = (self.divided(op, 0)?, self.divided(op, 1)?);
        let each = PART_ROW * self.warps;
        let inputs = self.registers(op.operand(2));
        let (rows, columns) = (spread.shape[0] / 16, spread.shape[1] / 8);
        let register = |i: i64, half: i64, j: i64| spread.locate(&[16 * i + 8 * half, 8 * j]).0;
        let mut out = inputs.to_vec();
        for i in 0..rows {
            for j in 0..columns {
                let [upper, lower] = [0, 1].map(|half| register(i, half, j));
                let mut sums = self.emit.concat(&[inputs[upper], inputs[lower]])?;
                for k in (0..a.spread.shape[1]).step_by(each as usize) {
                    for first in (0..PART).step_by(TAKEN as usize) {
                        let left = self.left_fragment(&a, 16 * i, k, first)?;
                        let right = self.emit.slice(b.values[b.spread.locate(&[8 * j, k]).0], first, TAKEN)?;
                        sums = self.emit.value(op::kernel::MMA, &[left, right, sums], &[], None)?;
                    }
                }
                out[upper] = self.emit.slice(sums, 0, 2)?;
                out[lower] = self.emit.slice(sums, 2, 2)?;
            }
        }
        self.bind_tile(op.result(0), out);
        Ok(())
    }

    /// An operand whose k, last in memory, lies among lanes and warps as `mma` takes it.
    fn divided(&mut self, op: OpRef<'s>, i: usize) -> Result<Part> {
        let ty = op.operand_types()[i];
        let k_last = op.bool("b_t") && !op.bool("a_t");
        let half = ty.elem() == Type::bf16() || ty.elem() == Type::f16();
        let spread = self.spread(op, ty)?;
        let whole = spread.shape[0] % 8 == 0 && spread.shape[1] % (PART_ROW * self.warps) == 0;
        match half && k_last && whole && Layout::of(ty) == Some(Layout::divided(self.warps)) {
            true => Ok(Part { values: self.registers(op.operand(i)), spread }),
            false => Err(op.unsupported(format!("with parts for {ty}")).help(
                "parts take bf16 or f16 whose rows lie along k, with b_t, a multiple of 8 rows and of 64 elements of k for each warp",
            )),
        }
    }

    /// The operand's 16 rows for the `TAKEN` neighbours from `first` on: of both rows that a lane has the first two, then of both the others.
    fn left_fragment(&mut self, a: &Part, row: i64, k: i64, first: i64) -> Result<Value> {
        let [upper, lower] = [0, 8].map(|further| a.values[a.spread.locate(&[row + further, k]).0]);
        let mut parts = Vec::new();
        for start in [first, first + 2] {
            parts.push(self.emit.slice(upper, start, 2)?);
            parts.push(self.emit.slice(lower, start, 2)?);
        }
        self.emit.concat(&parts)
    }

    /// The sums of the warps' parts, in the layout of the result.
    pub(super) fn sum_parts(&mut self, op: OpRef<'s>, warps: i64) -> Result {
        let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
        let (source, result) = (self.spread(op, from)?, self.spread(op, to)?);
        let shape: Vec<Dim> = [warps].iter().chain(&source.shape).map(|&n| Dim::Static(n)).collect();
        let memory = self.shared(Type::memref(&shape, from.elem(), 3))?;
        if self.loops > 0 {
            self.barrier()?;
        }
        let warp = Ix::of(self.digit(1, warps, false)?);
        let thread = [self.thread_part(&source, 0)?, self.thread_part(&source, 1)?];
        for (r, &value) in self.registers(op.operand(0)).iter().enumerate() {
            self.partial(memory, warp, &source, &thread, r, Some(value))?;
        }
        self.barrier()?;
        let thread = [self.thread_part(&result, 0)?, self.thread_part(&result, 1)?];
        let mut sums = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let mut parts = Vec::new();
            for warp in 0..warps {
                parts.extend(self.partial(memory, Ix::constant(warp), &result, &thread, r, None)?);
            }
            sums.push(self.tree(parts, op::core::ADD)?);
        }
        self.bind_tile(op.result(0), sums);
        Ok(())
    }
}
