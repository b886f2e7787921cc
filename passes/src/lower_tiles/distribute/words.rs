//! `kernel.pack`: the elements of words side by side in a register, which is then seen as one of words.

use super::Distribute;
use crate::lower_tiles::layout::{Distribution, Layout};
use rc_dialects::kernel::word_width;
use rc_dialects::op;
use rc_ir::{OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
    pub(super) fn pack(&mut self, op: OpRef<'s>) -> Result {
        let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
        let (dim, width) = (op.int("dim").unwrap_or(0) as usize, word_width(from.elem()).unwrap_or(1));
        if self.cuda || Layout::of(from) != Layout::of(to) {
            return Err(op.unsupported(format!("of {from} as {to}")).help("words are for a CPU's products"));
        }
        let (source, result) = (self.spread(op, from)?, self.spread(op, to)?);
        let inputs = self.registers(op.operand(0));
        let mut registers = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let mut at = result.coords(r);
            at[dim] *= width;
            let elements = match result.vec_dim.is_none_or(|d| d == dim) {
                true => self.neighbours(&inputs, &source, &at, dim, result.vec * width)?,
                false => self.interleaved(&inputs, &source, &at, dim, width)?,
            };
            registers.push(self.emit.value(
                op::kernel::BITCAST,
                &[elements],
                &[],
                Some(result.register_type(to.elem())),
            )?);
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    /// `count` elements along `dim`.
    fn neighbours(
        &mut self,
        inputs: &[Value],
        source: &Distribution,
        at: &[i64],
        dim: usize,
        count: i64,
    ) -> Result<Value> {
        let vec = if source.vec_dim == Some(dim) { source.vec } else { 1 };
        let place = |i: i64| {
            let mut at = at.to_vec();
            at[dim] += i;
            inputs[source.locate(&at).0]
        };
        let mut parts: Vec<Value> = (0..count).step_by(vec as usize).map(place).collect();
        while vec > 1 && parts.len() > 2 {
            parts = parts.chunks(2).map(|pair| self.emit.concat(pair)).collect::<Result<_>>()?;
        }
        self.emit.concat(&parts)
    }

    /// The elements of `width` registers that follow one another along `dim`, in turns.
    fn interleaved(
        &mut self,
        inputs: &[Value],
        source: &Distribution,
        at: &[i64],
        dim: usize,
        width: i64,
    ) -> Result<Value> {
        let row = |i: i64| {
            let mut at = at.to_vec();
            at[dim] += i;
            inputs[source.locate(&at).0]
        };
        let mut rows: Vec<Value> = (0..width).map(row).collect();
        let lanes: Vec<i64> = (0..source.vec).flat_map(|lane| [lane, source.vec + lane]).collect();
        loop {
            let pairs = rows.chunks(2).map(|pair| self.emit.permute([pair[0], pair[1]], &lanes));
            rows = pairs.collect::<Result<_>>()?;
            if let [all] = rows[..] {
                return Ok(all);
            }
            let pair = Type::vector(&[source.vec], Type::int(16));
            rows = rows
                .iter()
                .map(|&row| self.emit.value(op::kernel::BITCAST, &[row], &[], Some(pair)))
                .collect::<Result<_>>()?;
        }
    }
}
