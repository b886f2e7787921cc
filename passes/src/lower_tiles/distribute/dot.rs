//! `kernel.dot`: outer products of registers, on a CPU; of shared memory into registers, on a GPU's arithmetic units.

use super::{Distribute, Mapped};
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Distribution, Layout, shared_swizzle};
use crate::schedule::line;
use rc_dialects::op;
use rc_ir::{Attr, OpRef, Result, Type, Value};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The rows and the columns of a product: which index of an element of the result an operand shares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// a: [free, k].
    Rows,
    /// b: [k, free].
    Columns,
}

/// An operand as a function of its free index and k.
struct Factor {
    source: Source,
    elem: Type,
    /// Stored with k as the last dimension.
    k_last: bool,
    known: FxHashMap<(i64, i64, i64), Value>,
    chunks: FxHashMap<(i64, i64), Value>,
}

enum Source {
    Registers {
        values: Rc<[Value]>,
        spread: Rc<Distribution>,
    },
    /// Shared memory; the thread's part of the free index; elements of a chunk along k, or of the thread's neighbours along the free index.
    Shared {
        memref: Value,
        thread: Ix,
        chunk: i64,
        neighbours: i64,
        swizzle: i64,
    },
}

impl Factor {
    /// Elements along k that are read at once.
    fn chunk(&self) -> i64 {
        match self.source {
            Source::Registers { .. } => 1,
            Source::Shared { chunk, .. } => chunk,
        }
    }
}

impl<'s> Distribute<'s> {
    pub(super) fn dot(&mut self, op: OpRef<'s>) -> Result {
        match op.str("unit") {
            Some("mma") if op.attr("parts").is_some() => self.dot_parts(op),
            Some("mma") => self.dot_mma(op),
            Some("wgmma") => self.dot_warpgroup(op),
            _ => self.dot_fma(op),
        }
    }

    fn dot_fma(&mut self, op: OpRef<'s>) -> Result {
        let acc_ty = op.result_types()[0];
        let spread = self.spread(op, acc_ty)?;
        let (mut a, mut b) = (self.factor(op, Side::Rows, &spread)?, self.factor(op, Side::Columns, &spread)?);
        let depth = self.depth(op)?;
        let mut acc = self.registers(op.operand(2)).to_vec();
        // A chunk of k at a time, row by row, so that few elements of a are live at once.
        let step = a.chunk().max(b.chunk());
        for first in (0..depth).step_by(step as usize) {
            for (r, sum) in acc.iter_mut().enumerate() {
                for k in first..(first + step).min(depth) {
                    let factors = self.factors(op, [&mut a, &mut b], &spread, r, k)?;
                    *sum = self.multiply_add(op, factors, *sum)?;
                }
            }
        }
        self.bind_tile(op.result(0), acc);
        Ok(())
    }

    /// What is multiplied at `k` for register `r` of the result: words, or elements in the accumulators' type.
    fn factors(
        &mut self,
        op: OpRef,
        [a, b]: [&mut Factor; 2],
        spread: &Distribution,
        r: usize,
        k: i64,
    ) -> Result<[Value; 2]> {
        let (at, acc) = (spread.coords(r), op.result_types()[0].elem());
        let [left, right] = if op.attr("of").is_some() { [a.elem, b.elem] } else { [acc; 2] };
        let x = self.factor_at(a, at[0], k, spread.vec, spread.vec_dim == Some(0), left)?;
        let y = self.factor_at(b, at[1], k, spread.vec, spread.vec_dim == Some(1), right)?;
        Ok([x, y])
    }

    /// The sum plus the product.
    fn multiply_add(&mut self, op: OpRef, [x, y]: [Value; 2], sum: Value) -> Result<Value> {
        if let Some(of) = op.attr("of") {
            return self.emit.value(op::kernel::DOT_WORDS, &[x, y, sum], &[("of", of)], None);
        }
        if self.emit.ty(sum).elem().is_float() {
            return self.emit.core(op::core::FMA, &[x, y, sum]);
        }
        let product = self.emit.core(op::core::MUL, &[x, y])?;
        self.emit.core(op::core::ADD, &[product, sum])
    }

    /// The length of the contracted dimension.
    pub(super) fn depth(&self, op: OpRef) -> Result<i64> {
        let shape = op.operand_types()[0].static_shape().filter(|s| s.len() == 2);
        let shape = shape.ok_or_else(|| op.error("expects operands of two fixed dimensions"))?;
        Ok(shape[usize::from(!op.bool("a_t"))])
    }

    fn factor(&mut self, op: OpRef<'s>, side: Side, acc: &Distribution) -> Result<Factor> {
        let (i, transposed) = if side == Side::Rows { (0, op.bool("a_t")) } else { (1, op.bool("b_t")) };
        let value = op.operand(i);
        let ty = self.src.ty(value);
        let k_last = transposed == (side == Side::Columns);
        let source = match self.values.get(&value) {
            Some(Mapped::Registers(values)) if ty.is_tile() => {
                let values = values.clone();
                let spread = self.spread(op, ty)?;
                if self.cuda {
                    return Err(op.unsupported("with an operand in registers").help("run lower-tiles' place first"));
                }
                Source::Registers { values, spread }
            }
            _ => {
                let thread = self.thread_part(acc, i)?;
                let row = ty.static_shape().and_then(|s| s.last().copied()).unwrap_or(1);
                let most = largest_power(row, 16 / ty.elem().byte_width().unwrap_or(16) as i64);
                let own = match Layout::of(op.result_types()[0]) {
                    Some(Layout::Blocked { own: Some((dim, own)), .. }) if dim == i => own,
                    _ => 1,
                };
                let [chunk, neighbours] = if k_last { [most, 1] } else { [1, own.min(most)] };
                Source::Shared { memref: self.one(value), thread, chunk, neighbours, swizzle: shared_swizzle(ty) }
            }
        };
        Ok(Factor { source, elem: ty.elem(), k_last, known: FxHashMap::default(), chunks: FxHashMap::default() })
    }

    /// What `factor` contributes to a register of `vec` elements that starts at `free`: the elements along it, or one repeated; in
    /// the accumulator's element type.
    fn factor_at(
        &mut self,
        factor: &mut Factor,
        free: i64,
        k: i64,
        vec: i64,
        along: bool,
        elem: Type,
    ) -> Result<Value> {
        let lanes = if along { vec } else { 1 };
        if let Some(&known) = factor.known.get(&(free, k, lanes)) {
            return Ok(known);
        }
        let mut value = match &factor.source {
            Source::Registers { values, spread } => {
                let place = |lane: i64| {
                    let at = if factor.k_last { [free + lane, k] } else { [k, free + lane] };
                    spread.locate(&at)
                };
                let places: Vec<(usize, i64)> = (0..lanes).map(place).collect();
                let values = values.clone();
                self.pick(&values, &places)?
            }
            Source::Shared { .. } => self.read_shared(factor, free, k, lanes)?,
        };
        if factor.elem != elem {
            let ty = self.emit.ty(value).with_elem(elem);
            value = self.emit.value(op::core::CONVERT, &[value], &[], Some(ty))?;
        }
        if !along {
            value = self.emit.splat(value, vec)?;
        }
        factor.known.insert((free, k, lanes), value);
        Ok(value)
    }
    fn read_shared(&mut self, factor: &mut Factor, free: i64, k: i64, lanes: i64) -> Result<Value> {
        let Source::Shared { memref, thread, chunk, neighbours, swizzle } = factor.source else {
            unreachable!("checked by the caller")
        };
        if !factor.k_last && lanes == 1 && neighbours > 1 {
            let first = free / neighbours * neighbours;
            let read = match factor.chunks.get(&(first, k)) {
                Some(&known) => known,
                None => {
                    let at = [self.emit.index(k)?, self.emit.get(thread.plus(first))?];
                    self.read_chunk(memref, &at, neighbours, factor.elem, swizzle)?
                }
            };
            factor.chunks.insert((first, k), read);
            return self.emit.extract(read, free - first);
        }
        if !factor.k_last {
            // The swizzle moves chunks of 16 bytes.
            let most = lanes.min(line(factor.elem));
            let mut parts = Vec::new();
            for lane in (0..lanes).step_by(most as usize) {
                let at = [self.emit.index(k)?, self.emit.get(thread.plus(free + lane))?];
                parts.push(self.read_chunk(memref, &at, most, factor.elem, swizzle)?);
            }
            return self.emit.concat(&parts);
        }
        let mut parts = Vec::new();
        for lane in 0..lanes {
            let first = k / chunk * chunk;
            let key = (free + lane, first);
            let read = match factor.chunks.get(&key) {
                Some(&known) => known,
                None => {
                    let at = [self.emit.get(thread.plus(free + lane))?, self.emit.index(first)?];
                    self.read_chunk(memref, &at, chunk, factor.elem, swizzle)?
                }
            };
            factor.chunks.insert(key, read);
            parts.push(self.emit.extract(read, k - first)?);
        }
        self.emit.concat(&parts)
    }
    pub(super) fn read_chunk(
        &mut self,
        memref: Value,
        at: &[Value],
        lanes: i64,
        elem: Type,
        swizzle: i64,
    ) -> Result<Value> {
        let ty = if lanes > 1 { Type::vector(&[lanes], elem) } else { elem };
        let mut attrs = vec![("align", Attr::i64(lanes * elem.byte_width().unwrap_or(1) as i64))];
        if swizzle != 0 {
            attrs.push(("swizzle", Attr::i64(swizzle)));
        }
        let op = self.emit.op(op::kernel::READ, &[&[memref], at, &[], &[]], &attrs, Some(&[ty]))?;
        Ok(self.emit.body.result(op, 0))
    }
}

/// The largest power of two that divides `n`, at most `limit`.
fn largest_power(n: i64, limit: i64) -> i64 {
    let mut power = 1;
    while power * 2 <= limit && n % (power * 2) == 0 {
        power *= 2;
    }
    power
}
