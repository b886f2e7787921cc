//! Tiles that change layout or are transposed: within each thread where its elements stay with it, else through shared
//! memory.

use super::Distribute;
use crate::lower_tiles::layout::Distribution;
use rc_ir::{Dim, OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
    /// The tile with dimension i of the result being dimension `perm[i]` of the operand.
    pub(super) fn permute(&mut self, op: OpRef<'s>, perm: &[usize]) -> Result {
        let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
        let (source, result) = (self.spread(op, from)?, self.spread(op, to)?);
        let inputs = self.registers(op.operand(0));
        let registers = if result.same_threads(&source, perm) {
            self.within_thread(&inputs, &source, &result, perm)?
        } else {
            self.through_shared(&inputs, &source, &result, perm, to.elem())?
        };
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    fn within_thread(
        &mut self,
        inputs: &[Value],
        source: &Distribution,
        result: &Distribution,
        perm: &[usize],
    ) -> Result<Vec<Value>> {
        let mut registers = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let mut places = Vec::new();
            for lane in 0..result.vec {
                let mut coords = result.coords(r);
                if let Some(d) = result.vec_dim {
                    coords[d] += lane;
                }
                let mut from = vec![0; coords.len()];
                perm.iter().zip(&coords).for_each(|(&p, &c)| from[p] = c);
                places.push(source.locate(&from));
            }
            registers.push(self.pick(inputs, &places)?);
        }
        Ok(registers)
    }
    /// The vector of elements at (register, lane) places.
    pub(super) fn pick(&mut self, inputs: &[Value], places: &[(usize, i64)]) -> Result<Value> {
        let (first, start) = places[0];
        let consecutive = places.iter().enumerate().all(|(i, &p)| p == (first, start + i as i64));
        if consecutive {
            return if places.len() == 1 {
                self.emit.extract(inputs[first], start)
            } else {
                self.emit.slice(inputs[first], start, places.len() as i64)
            };
        }
        let parts = places.iter().map(|&(r, lane)| self.emit.extract(inputs[r], lane)).collect::<Result<Vec<_>>>()?;
        self.emit.concat(&parts)
    }

    /// Everyone writes, all wait, everyone reads.
    fn through_shared(
        &mut self,
        inputs: &[Value],
        source: &Distribution,
        result: &Distribution,
        perm: &[usize],
        elem: Type,
    ) -> Result<Vec<Value>> {
        // An odd row length in words keeps columns in different banks.
        let mut shape: Vec<Dim> = source.shape.iter().map(|&n| Dim::Static(n)).collect();
        let narrow = 4 / elem.byte_width().unwrap_or(4).clamp(1, 4) as i64;
        if let Some(last) = shape.last_mut() {
            *last = *last + Dim::Static(narrow);
        }
        let memory = self.shared(Type::memref(&shape, elem, 3))?;
        if self.loops > 0 {
            self.barrier()?;
        }
        let only = self.one_of_copies(source)?;
        for (r, &value) in inputs.iter().enumerate() {
            for lane in 0..source.vec {
                let at = self.shared_place(source, r, lane)?;
                let part = [self.emit.extract(value, lane)?];
                self.emit.op("rc.kernel.write", &[&part, &[memory], &at, only.as_slice(), &[]], &[], None)?;
            }
        }
        self.barrier()?;
        let mut registers = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let mut parts = Vec::new();
            for lane in 0..result.vec {
                let at = self.shared_place(result, r, lane)?;
                let mut from = at.clone();
                perm.iter().zip(&at).for_each(|(&p, &ix)| from[p] = ix);
                let op = self.emit.op("rc.kernel.read", &[&[memory], &from, &[], &[]], &[], Some(&[elem]))?;
                parts.push(self.emit.body.result(op, 0));
            }
            registers.push(self.emit.concat(&parts)?);
        }
        Ok(registers)
    }
    /// The coordinates of an element that this thread holds.
    fn shared_place(&mut self, spread: &Distribution, register: usize, lane: i64) -> Result<Vec<Value>> {
        let mut coords = spread.coords(register);
        if let Some(d) = spread.vec_dim {
            coords[d] += lane;
        }
        let mut at = Vec::with_capacity(coords.len());
        for (d, c) in coords.into_iter().enumerate() {
            let part = self.thread_part(spread, d)?;
            at.push(self.emit.get(part.plus(c))?);
        }
        Ok(at)
    }

    /// Shared memory for the whole function.
    pub(super) fn shared(&mut self, ty: Type) -> Result<Value> {
        self.emit.alloc(ty)
    }
    pub(super) fn barrier(&mut self) -> Result {
        self.emit.op("rc.kernel.barrier", &[], &[], None).map(drop)
    }
}
