//! Operations on each register by itself: arithmetic, constants, counting, repeating.

use super::{Distribute, Mapped};
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Distribution, Holder, Layout};
use rc_dialects::core::scalar;
use rc_dialects::op;
use rc_ir::{Dim, OpRef, OpState, Result, Type, Value};

impl<'s> Distribute<'s> {
    /// An elementwise operation: the same one on each register.
    pub(super) fn elementwise(&mut self, op: OpRef<'s>) -> Result {
        let result = op.result_types()[0];
        let spread = self.spread(op, result)?;
        let layout = Layout::of(result);
        if let Some(other) = op.operand_types().iter().find(|t| Layout::of(**t) != layout) {
            return Err(op
                .error(format!("has operands in different layouts: {other} and {result}"))
                .help("convert with kernel.convert_layout"));
        }
        let ty = spread.register_type(result.elem());
        let operands: Vec<_> = op.operands().map(|v| self.registers(v)).collect();
        // Registers that are one value, of constants and broadcasts, are computed once.
        let mut made: Vec<(Vec<Value>, Value)> = Vec::new();
        let mut registers = Vec::with_capacity(spread.registers);
        for i in 0..spread.registers {
            if self.holds(op, &spread, i) {
                registers.push(self.emit.splat_constant(ty, 1.0)?);
                continue;
            }
            let inputs: Vec<Value> = operands.iter().map(|r| r[i]).collect();
            if let Some((_, known)) = made.iter().rev().take(8).find(|(key, _)| *key == inputs) {
                registers.push(*known);
                continue;
            }
            let mut state = OpState::new(op.name(), op.loc());
            state.attrs = self.src.attrs(op.op);
            state.operands = inputs.iter().copied().collect();
            state.results.push(ty);
            let new = self.emit.body.create(state);
            self.emit.body.append(self.emit.block, new);
            let value = self.emit.body.result(new, 0);
            registers.push(value);
            made.push((inputs, value));
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    /// Whether a comparison of places with a bound is seen to hold for all of a register's elements, as in the whole steps of a loop whose
    /// last one is cut off. Where a program has several threads, whose places differ, for all of the tile's elements.
    fn holds(&self, op: OpRef, spread: &Distribution, register: usize) -> bool {
        if !op.is(op::core::COMPARE) || op.str("kind") != Some("lt") {
            return false;
        }
        let unrepeated = |value: Value| match self.src.defining_op(value).map(|made| self.src.op_ref(made)) {
            Some(made) if made.is(op::kernel::BROADCAST) => made.operand(0),
            _ => value,
        };
        let [place, bound] = [0, 1].map(|i| unrepeated(op.operand(i)));
        let Some(iota) = self.src.defining_op(place).map(|made| self.src.op_ref(made)) else { return false };
        let constant = rc_ir::op_def::constant_of(self.src, bound).and_then(|c| c.as_splat());
        let bound = match constant.filter(|n| n.fract() == 0.0) {
            Some(n) => Dim::Static(n as i64),
            None => self.indices.dim(bound),
        };
        let Some(dim) = iota.int("dim").filter(|_| iota.is(op::kernel::IOTA)).map(|d| d as usize) else { return false };
        let lanes = if spread.vec_dim == Some(dim) { spread.vec } else { 1 };
        let size = iota.result_types()[0].static_shape().and_then(|shape| shape.get(dim).copied());
        let Some(end) = (if self.cuda { size } else { Some(spread.coords(register)[dim] + lanes) }) else {
            return false;
        };
        let first = self.indices.dim(iota.operand(0));
        first != Dim::Dynamic && self.indices.facts.le(first + Dim::Static(end), bound)
    }

    pub(super) fn tile_constant(&mut self, op: OpRef<'s>) -> Result {
        let ty = op.result_types()[0];
        let spread = self.spread(op, ty)?;
        let splat = op.attr("value").and_then(scalar::splat_of);
        let register = splat.and_then(|s| scalar::splat_attr(spread.register_type(ty.elem()), s));
        let register = register
            .ok_or_else(|| op.unsupported("with elements that differ, as a tile").help("load them from a memref"))?;
        let value = self.emit.constant(register)?;
        self.values.insert(op.result(0), Mapped::Registers(vec![value; spread.registers].into()));
        Ok(())
    }

    pub(super) fn iota(&mut self, op: OpRef<'s>) -> Result {
        let ty = op.result_types()[0];
        let spread = self.spread(op, ty)?;
        let dim = op.int("dim").and_then(|d| usize::try_from(d).ok()).filter(|d| *d < ty.rank());
        let dim = dim.ok_or_else(|| op.error("counts along a dimension that the tile does not have"))?;
        if ty.elem().is_float() {
            return Err(op.unsupported("with float elements").help("count in integers and convert"));
        }
        let start = self.ix(op.operand(0));
        let part = self.thread_part(&spread, dim)?;
        let base = self.emit.add(start, part)?;
        let mut registers: Vec<Value> = Vec::new();
        for r in 0..spread.registers {
            let at = spread.coords(r)[dim];
            let same = (0..r).rev().find(|&q| spread.coords(q)[dim] == at);
            registers.push(match same {
                Some(q) => registers[q],
                None => self.count_from(base.plus(at), &spread, dim, ty.elem())?,
            });
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }
    fn count_from(&mut self, first: Ix, spread: &Distribution, dim: usize, elem: Type) -> Result<Value> {
        let mut value = self.emit.get(first)?;
        if !elem.is_index() {
            value = self.emit.value(op::core::CONVERT, &[value], &[], Some(elem))?;
        }
        let value = self.emit.splat(value, spread.vec)?;
        if spread.vec_dim != Some(dim) {
            return Ok(value);
        }
        let lanes = self.emit.lane_numbers(spread.vec, elem)?;
        self.emit.core(op::core::ADD, &[value, lanes])
    }

    /// The registers of a part of a tile, where each thread has its part of it.
    pub(super) fn extract_slice(&mut self, op: OpRef<'s>) -> Result {
        let (whole, part) = (self.spread_of(op, op.operand(0))?, self.spread(op, op.result_types()[0])?);
        let offsets = op.ints("offsets").unwrap_or_default();
        let dims: Vec<usize> = (0..offsets.len()).collect();
        // The digits of threads are the lowest of an offset's: it must be a multiple of what they count.
        let span = |d: usize| {
            let threads = [Holder::Lane, Holder::Warp, Holder::Vec].into_iter().flat_map(|h| part.digits(d, h));
            threads.map(|(g, weight)| g.size * weight).max().unwrap_or(1)
        };
        let stays = whole.vec == part.vec
            && whole.same_threads(&part, &dims)
            && dims.iter().all(|&d| offsets[d] % span(d) == 0);
        if !stays {
            let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
            let error = op.unsupported(format!("of {to} from {from}, whose elements would change their threads"));
            return Err(error.help("take parts along registers alone"));
        }
        let inputs = self.registers(op.operand(0));
        let at = |r: usize| part.coords(r).iter().zip(&offsets).map(|(&c, &o)| c + o).collect::<Vec<i64>>();
        let registers = (0..part.registers).map(|r| inputs[whole.locate(&at(r)).0]).collect();
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    pub(super) fn broadcast(&mut self, op: OpRef<'s>) -> Result {
        let (from, to) = (self.src.ty(op.operand(0)), op.result_types()[0]);
        let spread = self.spread(op, to)?;
        if !from.is_tile() {
            let value = self.one(op.operand(0));
            let register = self.emit.splat(value, spread.vec)?;
            self.bind_tile(op.result(0), vec![register; spread.registers]);
            return Ok(());
        }
        if Layout::of(from) != Layout::of(to) {
            return Err(op
                .error(format!("repeats between layouts: {from} to {to}"))
                .help("convert with kernel.convert_layout"));
        }
        let source = self.spread(op, from)?;
        let inputs = self.registers(op.operand(0));
        let mut splats: Vec<Option<Value>> = vec![None; inputs.len()];
        let mut registers = Vec::with_capacity(spread.registers);
        for r in 0..spread.registers {
            let coords: Vec<i64> =
                spread.coords(r).iter().zip(&source.shape).map(|(&c, &n)| if n == 1 { 0 } else { c }).collect();
            let (at, _) = source.locate(&coords);
            if source.vec == spread.vec {
                registers.push(inputs[at]);
                continue;
            }
            let splat = match splats[at] {
                Some(known) => known,
                None => self.emit.splat(inputs[at], spread.vec)?,
            };
            splats[at] = Some(splat);
            registers.push(splat);
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }
}
