//! Tiles that change layout or are transposed: within each thread where its elements stay with it, else through shared
//! memory.

use super::Distribute;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Distribution, Holder};
use rc_dialects::op;
use rc_ir::{Attr, Dim, OpRef, Result, Type, Value};
use rustc_hash::FxHashMap;

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

    /// A row of which one lane has each element, as eight lanes have it: each takes elements from the eight lanes whose numbers agree with its own in the last two
    /// bits.
    pub(super) fn spread_row(&mut self, op: OpRef<'s>) -> Result {
        let (source, result) = (self.spread_of(op, op.operand(0))?, self.spread(op, op.result_types()[0])?);
        let inputs = self.registers(op.operand(0));
        let mut registers = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let first = result.coords(r);
            let mut vector = Vec::with_capacity(2);
            for column in (0..result.vec).map(|place| first[1] + place) {
                let from = inputs[source.locate(&[0, column]).0];
                let lanes = source.digits(1, Holder::Lane).filter(|(g, _)| g.stride > 1);
                let lane = lanes.map(|(g, weight)| column / weight % g.size * g.stride).sum();
                let attrs = [("mode", Attr::str("within")), ("by", Attr::i64(lane)), ("keep", Attr::i64(3))];
                vector.push(self.emit.value(op::kernel::SHUFFLE, &[from], &attrs, None)?);
            }
            registers.push(self.emit.concat(&vector)?);
        }
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
        let places = |r: usize| -> Vec<(usize, i64)> {
            let place = |lane: i64| {
                let mut coords = result.coords(r);
                if let Some(d) = result.vec_dim {
                    coords[d] += lane;
                }
                let mut from = vec![0; coords.len()];
                perm.iter().zip(&coords).for_each(|(&p, &c)| from[p] = c);
                source.locate(&from)
            };
            (0..result.vec).map(place).collect()
        };
        let places: Vec<_> = (0..result.registers).map(places).collect();
        let squares: Vec<_> = places.iter().map(|p| square(p, source.vec)).collect();
        let mut turned: FxHashMap<&[usize], Vec<Value>> = FxHashMap::default();
        let mut registers = Vec::with_capacity(result.registers);
        for (places, square) in places.iter().zip(&squares) {
            // A square pays where at least half of its registers are needed.
            let needed = squares.iter().flatten().filter(|s| Some(&s.0) == square.as_ref().map(|s| &s.0)).count();
            let Some((from, lane)) = square.as_ref().filter(|s| 2 * needed >= s.0.len()) else {
                registers.push(self.pick(inputs, places)?);
                continue;
            };
            if !turned.contains_key(from.as_slice()) {
                let vectors = from.iter().map(|&r| inputs[r]).collect();
                turned.insert(from, self.transposed(vectors)?);
            }
            registers.push(turned[from.as_slice()][*lane]);
        }
        Ok(registers)
    }
    /// The transpose of a square of as many vectors as each has lanes, a power of two: blocks across the diagonal change places, halves of the
    /// square first, then halves of its quarters, and so on.
    fn transposed(&mut self, mut vectors: Vec<Value>) -> Result<Vec<Value>> {
        let n = vectors.len();
        for half in std::iter::successors(Some(n / 2), |half| Some(half / 2)).take_while(|&half| half > 0) {
            let high = |lane: &usize| lane & half != 0;
            let upper: Vec<i64> = (0..n).map(|q| if high(&q) { n + q - half } else { q } as i64).collect();
            let lower: Vec<i64> = (0..n).map(|q| if high(&q) { n + q } else { q + half } as i64).collect();
            for i in (0..n).filter(|i| !high(i)) {
                let pair = [vectors[i], vectors[i + half]];
                vectors[i] = self.emit.permute(pair, &upper)?;
                vectors[i + half] = self.emit.permute(pair, &lower)?;
            }
        }
        Ok(vectors)
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
        let places = Places::of(source, result, perm, elem);
        let (memory, is_used) = self.exchange_memory(places.size, elem)?;
        if self.loops > 0 || is_used {
            self.barrier()?;
        }
        let only = self.one_of_copies(source)?;
        let own: Vec<usize> = (0..perm.len()).collect();
        let base = self.shared_base(&places, source, &own)?;
        for (r, &value) in inputs.iter().enumerate() {
            for lane in (0..source.vec).step_by(places.width as usize) {
                let at = [self.emit.get(base.plus(places.place(source, &own, r, lane)))?];
                let part = match source.vec {
                    1 => [value],
                    _ => [self.emit.slice(value, lane, places.width)?],
                };
                let align = [("align", Attr::i64(places.width * places.bytes))];
                self.emit.op(op::kernel::WRITE, &[&part, &[memory], &at, only.as_slice(), &[]], &align, None)?;
            }
        }
        self.barrier()?;
        let base = self.shared_base(&places, result, perm)?;
        let mut registers = Vec::with_capacity(result.registers);
        for r in 0..result.registers {
            let mut parts = Vec::new();
            for lane in 0..result.vec {
                let at = [self.emit.get(base.plus(places.place(result, perm, r, lane)))?];
                let op = self.emit.op(op::kernel::READ, &[&[memory], &at, &[], &[]], &[], Some(&[elem]))?;
                parts.push(self.emit.body.result(op, 0));
            }
            registers.push(self.emit.concat(&parts)?);
        }
        Ok(registers)
    }
    /// The thread's part of places; dimension d of `spread` is dimension `perm[d]` of what lies in memory.
    fn shared_base(&mut self, places: &Places, spread: &Distribution, perm: &[usize]) -> Result<Ix> {
        let mut base = Ix::constant(0);
        for (d, &at) in perm.iter().enumerate() {
            let part = self.thread_part(spread, d)?;
            let Some(value) = part.value else { continue };
            let stride = self.emit.index(places.strides[at])?;
            let term = self.emit.core(op::core::MUL, &[value, stride])?;
            base = self.emit.add(base, Ix::of(term))?;
            if let Some((_, run, skew)) = places.skew.filter(|s| s.0 == at) {
                let (run, skew) = (self.emit.index(run)?, self.emit.index(skew)?);
                let runs = self.emit.core(op::core::DIV, &[value, run])?;
                let term = self.emit.core(op::core::MUL, &[runs, skew])?;
                base = self.emit.add(base, Ix::of(term))?;
            }
        }
        Ok(base)
    }

    /// Shared memory for so many elements that change threads, and whether others did there before: each exchange has its own, while there is room.
    fn exchange_memory(&mut self, size: i64, elem: Type) -> Result<(Value, bool)> {
        let bytes = size * elem.byte_width().unwrap_or(4).max(1) as i64;
        let taken: i64 = self.exchanges.iter().map(|e| e.bytes).sum();
        let fits = |e: &&Exchange| e.elem == elem && e.bytes >= bytes;
        if taken + bytes > self.exchange_room
            && let Some(known) = self.exchanges.iter().find(fits)
        {
            return Ok((known.memory, true));
        }
        let memory = self.shared(Type::memref(&[Dim::Static(size)], elem, 3))?;
        self.exchanges.push(Exchange { memory, elem, bytes });
        Ok((memory, false))
    }

    /// Shared memory for the whole function; for each of the warpgroups that have tiles of their own, where there are such.
    pub(super) fn shared(&mut self, ty: Type) -> Result<Value> {
        if !self.takes_turns() {
            return self.emit.alloc(ty);
        }
        let (turns, group) = (self.roles().turns, self.warpgroup()?);
        let all: Vec<Dim> = std::iter::once(Dim::Static(turns)).chain(ty.shape()).collect();
        let all = self.emit.alloc(ty.with_shape(&all))?;
        self.emit.part_everywhere(all, group, ty)
    }
}

/// Shared memory by which elements changed threads.
pub(super) struct Exchange {
    memory: Value,
    elem: Type,
    bytes: i64,
}

/// Where a register takes the same lane of as many registers as it has lanes, those and the lane: a column of a square.
fn square(places: &[(usize, i64)], vec: i64) -> Option<(Vec<usize>, usize)> {
    let lane = places[0].1;
    let whole = places.len() as i64 == vec && vec >= 4 && places.len().is_power_of_two();
    let from: Vec<usize> = places.iter().map(|p| p.0).collect();
    let apart = from.windows(2).all(|pair| pair[0] < pair[1]);
    (whole && apart && places.iter().all(|p| p.1 == lane)).then_some((from, lane as usize))
}

/// Where a tile's elements lie in shared memory: rows along the dimension of the writers' vectors, which are written as they are.
/// Readers take vectors across the rows: sixteen bytes are left out after as many rows as a vector has elements, so that
/// neighbouring readers meet different banks, and twice as many after each row, so that writers of neighbouring rows do.
struct Places {
    /// Of the source's dimensions.
    strides: Vec<i64>,
    /// A dimension, and after how many of its elements how many places are left out.
    skew: Option<(usize, i64, i64)>,
    /// Elements in all.
    size: i64,
    /// Elements written at once, and bytes of one.
    width: i64,
    bytes: i64,
}

impl Places {
    fn of(source: &Distribution, result: &Distribution, perm: &[usize], elem: Type) -> Places {
        let bytes = elem.byte_width().unwrap_or(4).max(1) as i64;
        let rank = source.shape.len();
        let along = source.vec_dim.unwrap_or(rank.saturating_sub(1));
        let mut order: Vec<usize> = (0..rank).filter(|&d| d != along).collect();
        order.extend((along < rank).then_some(along));
        let mut strides = vec![1; rank];
        let mut size = 1;
        let chunk = (16 / bytes).max(1);
        let across = result.vec_dim.map(|d| (perm[d], result.vec)).filter(|&(d, _)| d != along);
        for &d in order.iter().rev() {
            strides[d] = size;
            size *= source.shape[d];
            if d == along && across.is_some() {
                size += 2 * chunk;
            }
        }
        // Threads' and registers' parts of a coordinate divide by powers of two on their own: they have no digits in common.
        let even = source.shape.iter().all(|n| n.count_ones() == 1);
        let skewed = across.or_else(|| order.iter().rev().find(|&&d| d != along).map(|&d| (d, 1)));
        let skew = skewed.filter(|_| even).map(|(d, run)| (d, run, chunk));
        if let Some((d, run, skew)) = skew {
            size += (source.shape[d] - 1) / run * skew;
        }
        Places { strides, skew, size, width: source.vec.min(chunk), bytes }
    }
    /// The part of a place that is the same in all threads.
    fn place(&self, spread: &Distribution, perm: &[usize], register: usize, lane: i64) -> i64 {
        let mut coords = spread.coords(register);
        if let Some(d) = spread.vec_dim {
            coords[d] += lane;
        }
        let left_out = |at: usize, c: i64| self.skew.filter(|s| s.0 == at).map_or(0, |(_, run, skew)| c / run * skew);
        perm.iter().zip(coords).map(|(&at, c)| c * self.strides[at] + left_out(at, c)).sum()
    }
}
