//! `kernel.reduce`: in registers, then a register's lanes, then the lanes of a warp, then across warps through
//! shared memory. Every thread that held a part gets the result.

use super::Distribute;
use crate::lower_tiles::layout::{Distribution, Holder};
use rc_dialects::interfaces::Combiner;
use rc_dialects::op;
use rc_ir::{Attr, Dim, OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
    pub(super) fn reduce(&mut self, op: OpRef<'s>) -> Result {
        let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
        let (source, result) = (self.spread(op, from)?, self.spread(op, to)?);
        let dims: Vec<usize> = op.ints("dims").unwrap_or_default().iter().map(|&d| d as usize).collect();
        let kind = op.str("kind").unwrap_or("add");
        let combine = Combiner::from_kind(kind).and_then(Combiner::core_op);
        let combine = combine.ok_or_else(|| op.unsupported(format!("with the combiner '{kind}'")))?;
        let mut parts = self.reduce_registers(op, &source, &result, &dims, combine)?;
        if source.vec_dim.is_some_and(|d| dims.contains(&d)) {
            for part in &mut parts {
                *part = self.emit.value(op::kernel::VECTOR_REDUCE, &[*part], &[("kind", Attr::str(kind))], None)?;
            }
        }
        self.reduce_lanes(&source, &dims, combine, &mut parts)?;
        self.reduce_warps(op, &source, &result, &dims, combine, &mut parts)?;
        self.bind_tile(op.result(0), parts);
        Ok(())
    }

    /// One value for each register of the result: the combination of those that become it, as a tree.
    fn reduce_registers(
        &mut self,
        op: OpRef<'s>,
        source: &Distribution,
        result: &Distribution,
        dims: &[usize],
        combine: &str,
    ) -> Result<Vec<Value>> {
        let inputs = self.registers(op.operand(0));
        let mut groups: Vec<Vec<Value>> = vec![Vec::new(); result.registers];
        for r in 0..source.registers {
            let mut coords = source.coords(r);
            dims.iter().for_each(|&d| coords[d] = 0);
            groups[result.locate(&coords).0].push(inputs[r]);
        }
        groups.into_iter().map(|group| self.tree(group, combine)).collect()
    }
    pub(super) fn tree(&mut self, mut values: Vec<Value>, combine: &str) -> Result<Value> {
        while values.len() > 1 {
            let mut next = Vec::with_capacity(values.len().div_ceil(2));
            for pair in values.chunks(2) {
                next.push(match pair {
                    [a, b] => self.emit.core(combine, &[*a, *b])?,
                    _ => pair[0],
                });
            }
            values = next;
        }
        Ok(values[0])
    }

    fn reduce_lanes(&mut self, source: &Distribution, dims: &[usize], combine: &str, parts: &mut [Value]) -> Result {
        let digits: Vec<_> = dims.iter().flat_map(|&d| source.digits(d, Holder::Lane)).map(|(g, _)| g).collect();
        for digit in digits {
            let mut distance = digit.stride * digit.size / 2;
            while distance >= digit.stride && distance > 0 {
                for part in parts.iter_mut() {
                    let attrs = [("mode", Attr::str("xor")), ("by", Attr::i64(distance))];
                    let other =
                        self.emit.op(op::kernel::SHUFFLE, &[&[*part], &[]], &attrs, Some(&[self.emit.ty(*part)]))?;
                    let other = self.emit.body.result(other, 0);
                    *part = self.emit.core(combine, &[*part, other])?;
                }
                distance /= 2;
            }
        }
        Ok(())
    }

    /// Each warp leaves its parts in shared memory and combines all warps' in order.
    fn reduce_warps(
        &mut self,
        op: OpRef<'s>,
        source: &Distribution,
        result: &Distribution,
        dims: &[usize],
        combine: &str,
        parts: &mut [Value],
    ) -> Result {
        let digits: Vec<_> = dims.iter().flat_map(|&d| source.digits(d, Holder::Warp)).map(|(g, _)| g).collect();
        let among: i64 = digits.iter().map(|g| g.size).product();
        if among <= 1 {
            return Ok(());
        }
        let mut weight = 1;
        let mut number = Vec::new();
        for g in &digits {
            number.push((self.digit(g.stride, g.size, false)?, weight));
            weight *= g.size;
        }
        let mine = self.emit.combine_digits(&number)?;
        // The tile of the result without its dimensions of one element, in front of it the warps whose parts are combined.
        let elem = op.result_types()[0].elem();
        let shape: Vec<i64> = std::iter::once(among).chain(result.shape.iter().copied().filter(|&n| n > 1)).collect();
        let ty = Type::memref(&shape.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>(), elem, 3);
        let memory = self.shared(ty)?;
        let mut thread = Vec::new();
        for d in 0..result.shape.len() {
            thread.push(self.thread_part(result, d)?);
        }
        if self.loops > 0 {
            self.barrier()?;
        }
        for (r, part) in parts.iter().enumerate() {
            self.partial(memory, mine, result, &thread, r, Some(*part))?;
        }
        self.barrier()?;
        for (r, part) in parts.iter_mut().enumerate() {
            let mut all = Vec::new();
            for warp in 0..among {
                all.push(
                    self.partial(memory, crate::lower_tiles::emit::Ix::constant(warp), result, &thread, r, None)?
                        .unwrap_or(*part),
                );
            }
            *part = self.tree(all, combine)?;
        }
        Ok(())
    }
    /// Writes, or reads, register `r` of warp `warp`'s part.
    pub(super) fn partial(
        &mut self,
        memory: Value,
        warp: crate::lower_tiles::emit::Ix,
        result: &Distribution,
        thread: &[crate::lower_tiles::emit::Ix],
        r: usize,
        value: Option<Value>,
    ) -> Result<Option<Value>> {
        let mut indices = vec![self.emit.get(warp)?];
        for ((&part, &c), &size) in thread.iter().zip(&result.coords(r)).zip(&result.shape) {
            if size > 1 {
                indices.push(self.emit.get(part.plus(c))?);
            }
        }
        match value {
            Some(value) => {
                let (value, memory) = ([value], [memory]);
                self.emit.op(op::kernel::WRITE, &[&value, &memory, &indices, &[], &[]], &[], None).map(|_| None)
            }
            None => {
                let ty = result.register_type(self.emit.ty(memory).elem());
                let memory = [memory];
                let op = self.emit.op(op::kernel::READ, &[&memory, &indices, &[], &[]], &[], Some(&[ty]))?;
                Ok(Some(self.emit.body.result(op, 0)))
            }
        }
    }
}
