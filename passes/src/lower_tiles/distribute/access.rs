//! Loads, stores and gathers of tiles: an access of memory for each register, as wide as the memory's order and
//! alignment allow, with masks only where bounds are not proved.

use super::Distribute;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::groups::run_of;
use crate::lower_tiles::layout::{Distribution, Holder, shared_swizzle};
use crate::lower_tiles::pipeline::ASYNC;
use rc_dialects::constraints::memory_space;
use rc_dialects::op;
use rc_ir::{Attr, Dim, OpRef, Result, Type, Value};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// What is checked of an index along one memref dimension.
#[derive(Clone, Copy, Default)]
pub(super) struct Check {
    /// That it is not negative.
    pub(super) lower: bool,
    /// That it is below this extent.
    pub(super) upper: Option<Value>,
}

/// How the elements of a register lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// The same element for all.
    Same,
    /// Consecutive: pieces of so many elements are accessed at once.
    Consecutive(i64),
    /// Each on its own.
    Apart,
}

/// One operation's access.
pub(super) struct Access {
    memref: Value,
    elem: Type,
    /// The memref dimension along which each tile dimension runs.
    dims: Vec<Option<usize>>,
    /// The index of this thread's first element, along each memref dimension.
    starts: Vec<Ix>,
    /// The index of the tile's first element, and how far beyond it a thread's first may lie.
    firsts: Vec<(Dim, i64)>,
    extents: Vec<Dim>,
    checks: Vec<Check>,
    pub(super) spread: Rc<Distribution>,
    order: Order,
    swizzle: i64,
    /// A load's cache hint.
    cache: Option<Attr>,
    /// On the CPU the last dimension's bounds are counts of lanes: those that are valid, and those that are skipped before.
    counts_lanes: bool,
    /// Whether elements outside are read at the nearest place inside and replaced, instead of left out.
    clamps: bool,
    /// Known predicates by memref dimension and index.
    known: FxHashMap<(usize, Option<Value>, i64), Option<Value>>,
    /// Holds only in one thread of those with copies of the tile.
    only: Option<Value>,
}

impl<'s> Distribute<'s> {
    pub(super) fn load(&mut self, op: OpRef<'s>) -> Result {
        if self.is_copied_later(op) || self.is_produced(op.op)? {
            return Ok(());
        }
        let tile = op.result_types()[0];
        let (memref, indices) = (op.operand(0), op.group("indices"));
        let mut access = self.access(op, memref, &indices, tile, None)?;
        let other = op.attr("other").and_then(|a| a.as_float()).unwrap_or(0.0);
        let mut registers = Vec::with_capacity(access.spread.registers);
        for r in 0..access.spread.registers {
            let at = access.at(self, r)?;
            registers.push(self.read(&mut access, &at, other)?);
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    pub(super) fn gather(&mut self, op: OpRef<'s>) -> Result {
        if self.is_produced(op.op)? || self.is_copied_later(op) {
            return Ok(());
        }
        let tile = op.result_types()[0];
        let (memref, indices) = (op.operand(0), op.group("indices"));
        let axis = op.int("axis").and_then(|a| usize::try_from(a).ok()).filter(|a| *a < indices.len());
        let axis = axis.ok_or_else(|| op.error("has an axis that the memref does not have"))?;
        let [places] = op.group("where")[..] else { return Err(op.unsupported("with other than one tile of places")) };
        let mut access = self.access(op, memref, &indices, tile, Some(axis))?;
        let other = op.attr("other").and_then(|a| a.as_float()).unwrap_or(0.0);
        let (bounded, zero) = (op.bool("bounded"), self.emit.index(0)?);
        if let Some((_, run)) = run_of(op).filter(|r| r.1 > 1 && r.1 == access.spread.vec) {
            access.order = Order::Consecutive(run);
        }
        let mut places = self.chosen_places(op, places)?;
        let mut registers = Vec::with_capacity(access.spread.registers);
        let reversed = self.reads_reversed(op, axis, &mut access);
        let steps = self.steps_of(op, axis, &access, &places.spread);
        if steps.is_some() {
            access.counts_lanes = true;
            if op.bool("clamped") {
                access.checks[axis].upper = Some(self.emit.extent(self.src.ty(memref).shape()[axis])?);
            }
        }
        for r in 0..access.spread.registers {
            let mut at = access.at(self, r)?;
            if reversed {
                at[axis] = Ix::of(places.of(self, &access.spread, r, 0)?).plus(1 - access.spread.vec);
                registers.push(self.read_reversed(&mut access, &at)?);
                continue;
            }
            if let Some(steps) = &steps {
                at[axis] = Ix::of(places.of(self, &access.spread, r, 0)?);
                registers.push(self.read_steps(&mut access, &at, &steps[r])?);
                continue;
            }
            let lanes = places.lanes(&access.spread);
            let mut parts = Vec::new();
            for lane in 0..lanes {
                let mut at = at.clone();
                let place = places.of(self, &access.spread, r, lane)?;
                at[axis] = Ix::of(place);
                access.only = match bounded {
                    true => Some(self.emit.compare("ge", place, zero)?),
                    false => None,
                };
                parts.push(if lanes == 1 {
                    self.read(&mut access, &at, other)?
                } else {
                    self.read_lane(&mut access, &at, lane, other)?
                });
            }
            registers.push(self.emit.concat(&parts)?);
        }
        self.bind_tile(op.result(0), registers);
        Ok(())
    }

    /// Whether the elements of a CPU's vector lie one before the other. Past what is used they may lie before the memory's first: they are skipped.
    fn reads_reversed(&self, op: OpRef<'s>, axis: usize, access: &mut Access) -> bool {
        let falls = op.int("falls").and_then(|d| usize::try_from(d).ok());
        let last = axis + 1 == access.starts.len();
        let reversed = !self.cuda && last && access.spread.vec > 1 && falls.is_some() && access.spread.vec_dim == falls;
        if reversed {
            access.counts_lanes = true;
            access.checks[axis].lower = op.bool("clamped");
        }
        reversed
    }
    /// The vector whose last element is the first in memory, at `at`.
    fn read_reversed(&mut self, access: &mut Access, at: &[Ix]) -> Result<Value> {
        let vec = access.spread.vec;
        let value = self.read_piece(access, at, vec, 0.0)?;
        let lanes: Vec<i64> = (0..vec).rev().collect();
        self.emit.permute([value, value], &lanes)
    }

    /// For each register of a CPU's tile, how far the places of its lanes lie beyond the first, if two vectors have them all.
    fn steps_of(&self, op: OpRef<'s>, axis: usize, access: &Access, places: &Distribution) -> Option<Vec<Vec<i64>>> {
        let (steps, spread) = (op.ints("steps")?, &access.spread);
        let (along, vec) = (spread.vec_dim?, spread.vec as usize);
        // Lanes along another dimension than the places move in have one place.
        let moves = steps.len() as i64 == spread.shape[along] && places.shape[along] == spread.shape[along];
        let fits = !self.cuda && vec > 1 && axis + 1 == access.starts.len() && moves;
        let register = |r: usize| {
            let from = spread.coords(r)[along] as usize;
            let steps: Vec<i64> = steps.get(from..from + vec)?.iter().map(|step| step - steps[from]).collect();
            steps.iter().all(|step| (0..2 * spread.vec).contains(step)).then_some(steps)
        };
        if fits { (0..spread.registers).map(register).collect() } else { None }
    }
    /// Lanes at these places beyond `at`: of one vector from there on, or of the first and the last of what lies between.
    fn read_steps(&mut self, access: &mut Access, at: &[Ix], steps: &[i64]) -> Result<Value> {
        let count = steps.iter().max().expect("a lane") + 1;
        let whole = count.count_ones() == 1 && count <= access.spread.vec;
        let width = if whole { count } else { 1 << (count - 1).ilog2() };
        let first = self.read_piece(access, at, width, 0.0)?;
        if width == 1 {
            return self.emit.splat(first, access.spread.vec);
        }
        if whole {
            return self.emit.permute([first, first], steps);
        }
        let mut beyond = at.to_vec();
        let last = beyond.last_mut().expect("an index");
        *last = last.plus(count - width);
        let second = self.read_piece(access, &beyond, width, 0.0)?;
        let lane = |&step: &i64| if step < width { step } else { step - (count - width) + width };
        self.emit.permute([first, second], &steps.iter().map(lane).collect::<Vec<_>>())
    }

    /// Atomic updates of the elements that `where` names; one that it places outside is left out.
    pub(super) fn scatter(&mut self, op: OpRef<'s>) -> Result {
        let (tile, memref, indices) = (op.operand(0), op.operand(1), op.group("indices"));
        let axis = op.int("axis").and_then(|a| usize::try_from(a).ok()).filter(|a| *a < indices.len());
        let axis = axis.ok_or_else(|| op.error("has an axis that the memref does not have"))?;
        let [places] = op.group("where")[..] else { return Err(op.unsupported("with other than one tile of places")) };
        let kind = [("kind", op.attr("kind").ok_or_else(|| op.error("needs 'kind'"))?)];
        let mut access = self.access(op, memref, &indices, self.src.ty(tile), Some(axis))?;
        access.only = self.one_of_copies(&access.spread.clone())?;
        access.checks[axis] = Check { lower: true, upper: Some(self.emit.extent(self.src.ty(memref).shape()[axis])?) };
        let values = self.registers(tile);
        let mut places = self.chosen_places(op, places)?;
        for r in 0..access.spread.registers {
            let at = access.at(self, r)?;
            let whole = places.lanes(&access.spread) == 1;
            let width = if let (Order::Consecutive(width), true) = (access.order, whole) { width } else { 1 };
            for lane in (0..access.spread.vec).step_by(width as usize) {
                let mut at = access.lane(&at, lane);
                at[axis] = Ix::of(places.of(self, &access.spread, r, if whole { 0 } else { lane })?);
                let part = if access.spread.vec == 1 { values[r] } else { self.emit.slice(values[r], lane, width)? };
                let pred = self.predicate(&mut access, &at, width)?;
                let at = at.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
                let (part, memref) = ([part], [access.memref]);
                let groups: [&[Value]; 4] = [&part, &memref, &at, pred.as_slice()];
                let mut attrs = self.access_attrs(&access, width);
                attrs.extend(kind);
                let ty = self.emit.ty(part[0]);
                self.emit.op(op::kernel::ATOMIC, &groups, &attrs, Some(&[ty]))?;
            }
        }
        Ok(())
    }

    fn chosen_places(&mut self, op: OpRef<'s>, tile: Value) -> Result<Chosen> {
        let spread = self.spread_of(op, tile)?;
        Ok(Chosen { spread, registers: self.registers(tile), known: FxHashMap::default() })
    }

    /// Whether a tile that is loaded or gathered goes nowhere but into an asynchronous copy.
    fn is_copied_later(&self, op: OpRef<'s>) -> bool {
        let is_async = |user: rc_ir::Op| self.src.name(user) == op::kernel::STORE && self.src.op_ref(user).bool(ASYNC);
        let tile = op.result(0);
        self.src.has_one_use(tile) && self.src.uses(tile).all(|(user, _)| is_async(user))
    }
    /// A load and its store as copies of 4 to 16 bytes from memory to shared memory, or through registers where alignment does not
    /// allow for that.
    fn copy_tile(&mut self, load: OpRef<'s>, store: OpRef<'s>) -> Result {
        let tile = load.result_types()[0];
        let mut from = self.access(load, load.operand(0), &load.group("indices"), tile, None)?;
        let mut to = self.access(store, store.operand(1), &store.group("indices"), tile, None)?;
        to.only = self.one_of_copies(&to.spread.clone())?;
        let (bytes, vec) = (from.elem.byte_width().unwrap_or(1) as i64, from.spread.vec);
        let width = match (from.order, to.order) {
            (Order::Consecutive(a), Order::Consecutive(b))
                if to.only.is_none() && [4, 8, 16].contains(&(a.min(b) * bytes)) =>
            {
                a.min(b)
            }
            _ => 0,
        };
        for r in 0..from.spread.registers {
            let (source, target) = (from.at(self, r)?, to.at(self, r)?);
            if width == 0 {
                let value = self.read(&mut from, &source, 0.0)?;
                self.write(&mut to, &target, value)?;
                continue;
            }
            for lane in (0..vec).step_by(width as usize) {
                let (source, target) = (from.lane(&source, lane), to.lane(&target, lane));
                let room = self.predicate(&mut to, &target, width)?;
                let valid = match self.predicate(&mut from, &source, width)? {
                    None => None,
                    Some(inside) => {
                        let (all, none) = (self.emit.index(width)?, self.emit.index(0)?);
                        Some(self.emit.core(op::core::SELECT, &[inside, all, none])?)
                    }
                };
                let source = source.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
                let target = target.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
                let groups: [&[Value]; 5] = [&[to.memref], &target, &[from.memref], &source, valid.as_slice()];
                let attrs = [("bytes", Attr::i64(width * bytes)), ("swizzle", Attr::i64(to.swizzle))];
                self.only_if(room, |work| work.emit.op(op::kernel::ASYNC_COPY, &groups, &attrs, None).map(drop))?;
            }
        }
        Ok(())
    }

    /// A gather in runs of neighbours and its store as copies of up to 16 bytes; runs outside are zeros.
    fn copy_runs(&mut self, gather: OpRef<'s>, store: OpRef<'s>) -> Result {
        let (tile, &[place]) = (gather.result_types()[0], &gather.group("where")[..]) else {
            return Err(gather.unsupported("with other than one tile of places"));
        };
        let mut to = self.access(store, store.operand(1), &store.group("indices"), tile, None)?;
        to.only = self.one_of_copies(&to.spread.clone())?;
        let (bytes, run) = (to.elem.byte_width().unwrap_or(1) as i64, to.spread.vec);
        let width = run.min(16 / bytes);
        if to.order != Order::Consecutive(run) || ![4, 8, 16].contains(&(width * bytes)) {
            return Err(gather
                .unsupported(format!("of {run} elements of {} for a product", to.elem))
                .help("choose no stages"));
        }
        let mut places = self.chosen_places(gather, place)?;
        let (source, zero, all) = (self.one(gather.operand(0)), self.emit.index(0)?, self.emit.index(width)?);
        for r in 0..to.spread.registers {
            let (target, place) = (to.at(self, r)?, places.of(self, &to.spread.clone(), r, 0)?);
            let inside = self.emit.compare("ge", place, zero)?;
            let valid = self.emit.core(op::core::SELECT, &[inside, all, zero])?;
            let start = self.emit.core(op::core::MAX, &[place, zero])?;
            for lane in (0..run).step_by(width as usize) {
                let target = to.lane(&target, lane);
                let room = self.predicate(&mut to, &target, width)?;
                let target = target.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
                let from = self.emit.get(Ix::of(start).plus(lane))?;
                let groups: [&[Value]; 5] = [&[to.memref], &target, &[source], &[from], &[valid]];
                let attrs = [("bytes", Attr::i64(width * bytes)), ("swizzle", Attr::i64(to.swizzle))];
                self.only_if(room, |work| work.emit.op(op::kernel::ASYNC_COPY, &groups, &attrs, None).map(drop))?;
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, op: OpRef<'s>) -> Result {
        let from = self.src.defining_op(op.operand(0)).map(|from| self.src.op_ref(from));
        if let Some(from) = from.filter(|&from| self.is_copied_later(from)) {
            if from.is(op::kernel::LOAD) {
                return self.copy_tile(from, op);
            }
            if from.is(op::kernel::GATHER) {
                return self.copy_runs(from, op);
            }
        }
        if self.store_staged(op)? {
            return Ok(());
        }
        let (tile, memref, indices) = (op.operand(0), op.operand(1), op.group("indices"));
        let mut access = self.access(op, memref, &indices, self.src.ty(tile), None)?;
        if access.dims.iter().zip(&access.spread.shape).any(|(d, &n)| d.is_none() && n > 1) {
            return Err(op.error("stores a tile dimension along no memref dimension"));
        }
        access.only = self.one_of_copies(&access.spread.clone())?;
        let registers = self.registers(tile);
        for r in 0..access.spread.registers {
            let at = access.at(self, r)?;
            self.write(&mut access, &at, registers[r])?;
        }
        Ok(())
    }

    /// `i1`: whether this thread is the first of those that hold the same elements; `None` where none do.
    pub(super) fn one_of_copies(&mut self, spread: &Distribution) -> Result<Option<Value>> {
        if !self.cuda {
            return Ok(None);
        }
        let mut holds: Option<Value> = None;
        for (holder, total) in [(Holder::Lane, super::super::layout::WARP), (Holder::Warp, self.warps)] {
            for (stride, size) in spread.copies(holder, total) {
                let digit = self.digit(stride, size, holder == Holder::Lane)?;
                let zero = self.emit.index(0)?;
                let first = self.emit.compare("eq", digit, zero)?;
                holds = Some(match holds {
                    Some(holds) => self.emit.core(op::core::AND, &[holds, first])?,
                    None => first,
                });
            }
        }
        Ok(holds)
    }

    pub(super) fn access(
        &mut self,
        op: OpRef<'s>,
        memref: Value,
        indices: &[Value],
        tile: Type,
        gathered: Option<usize>,
    ) -> Result<Access> {
        let ty = self.src.ty(memref);
        let spread = self.spread(op, tile)?;
        let dims: Vec<Option<usize>> =
            op.ints("dims").unwrap_or_default().iter().map(|&d| usize::try_from(d).ok()).collect();
        let shape = ty.shape();
        let (mut starts, mut firsts) = (Vec::new(), Vec::new());
        let mut checks = Vec::new();
        for (k, &index) in indices.iter().enumerate() {
            let mut start = if gathered == Some(k) { Ix::constant(0) } else { self.ix(index) };
            let (mut span, mut beyond) = (0, 0);
            for d in (0..dims.len()).filter(|&d| dims[d] == Some(k)) {
                span += spread.shape[d] - 1;
                let part = self.thread_part(&spread, d)?;
                start = self.emit.add(start, part)?;
                let digits = [Holder::Lane, Holder::Warp].into_iter().flat_map(|holder| spread.digits(d, holder));
                beyond += digits.map(|(g, weight)| (g.size - 1) * weight).sum::<i64>();
            }
            starts.push(start);
            firsts.push((self.indices.dim(index), beyond));
            checks.push(if gathered == Some(k) {
                Check::default()
            } else {
                self.check(self.indices.dim(index), span, shape[k])?
            });
        }
        let spread_vec = spread.vec;
        let mut access = Access {
            memref: self.one(memref),
            elem: ty.elem(),
            dims,
            starts,
            firsts,
            extents: shape.iter().map(|&extent| self.indices.extent(extent)).collect(),
            checks,
            spread,
            order: Order::Apart,
            swizzle: if memory_space(ty) == 3 { shared_swizzle(ty) } else { 0 },
            cache: op.attr("cache").filter(|c| self.cuda && c.as_str() != Some("default")),
            counts_lanes: false,
            clamps: self.clamps && spread_vec == 1 && memory_space(ty) != 3,
            known: FxHashMap::default(),
            only: None,
        };
        access.order = self.order(op, &mut access, ty, gathered);
        Ok(access)
    }

    /// What is to be checked of indices from `start` to `start + span`.
    pub(super) fn check(&mut self, start: Dim, span: i64, extent: Dim) -> Result<Check> {
        let facts = &self.indices.facts;
        let lower = !facts.is_nonneg(start);
        let inside = facts.le(start + Dim::Static(span + 1), self.indices.extent(extent));
        Ok(Check { lower, upper: if inside { None } else { Some(self.emit.extent(extent)?) } })
    }

    fn order(&self, op: OpRef, access: &mut Access, memref: Type, gathered: Option<usize>) -> Order {
        let spread = access.spread.clone();
        let Some(vec_dim) = spread.vec_dim else { return Order::Consecutive(1) };
        let Some(k) = access.dims[vec_dim] else { return Order::Same };
        let runs = access.dims.iter().filter(|d| **d == Some(k)).count();
        if k + 1 != memref.rank() || gathered == Some(k) || runs > 1 {
            return Order::Apart;
        }
        if !self.cuda {
            let Check { lower, upper } = access.checks[k];
            if lower && !(op.is(op::kernel::LOAD) || op.is(op::kernel::GATHER)) {
                return Order::Apart;
            }
            access.counts_lanes = lower || upper.is_some();
            return Order::Consecutive(spread.vec);
        }
        // Both are powers of two, but for a vector that a person's layout asks for.
        let most = self.indices.neighbours(op);
        Order::Consecutive(
            (1..=most.min(spread.vec)).rev().find(|width| spread.vec % width == 0 && most % width == 0).unwrap_or(1),
        )
    }

    /// The elements of the register whose first is at `at`.
    fn read(&mut self, access: &mut Access, at: &[Ix], other: f64) -> Result<Value> {
        let vec = access.spread.vec;
        match access.order {
            Order::Same => {
                let scalar = self.read_piece(access, at, 1, other)?;
                self.emit.splat(scalar, vec)
            }
            Order::Consecutive(width) => {
                let mut parts = Vec::new();
                for lane in (0..vec).step_by(width as usize) {
                    parts.push(self.read_piece(access, &access.lane(at, lane), width, other)?);
                }
                self.emit.concat(&parts)
            }
            Order::Apart => {
                let mut parts = Vec::new();
                for lane in 0..vec {
                    parts.push(self.read_piece(access, &access.lane(at, lane), 1, other)?);
                }
                self.emit.concat(&parts)
            }
        }
    }
    /// The element of one lane.
    fn read_lane(&mut self, access: &mut Access, at: &[Ix], lane: i64, other: f64) -> Result<Value> {
        self.read_piece(access, &access.lane(at, lane), 1, other)
    }
    fn read_piece(&mut self, access: &mut Access, at: &[Ix], width: i64, other: f64) -> Result<Value> {
        if access.clamps
            && let Some(near) = self.nearest(access, at)?
        {
            let inside = self.predicate(access, at, 1)?;
            let indices = near.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let groups: [&[Value]; 2] = [&[access.memref], &indices];
            let attrs: Vec<_> = access.cache.map(|cache| ("cache", cache)).into_iter().collect();
            let op = self.emit.op(op::kernel::READ, &groups, &attrs, Some(&[access.elem]))?;
            let value = self.emit.body.result(op, 0);
            let Some(inside) = inside else { return Ok(value) };
            let outside = self.emit.splat_constant(access.elem, other)?;
            return self.emit.core(op::core::SELECT, &[inside, value, outside]);
        }
        let pred = self.predicate(access, at, width)?;
        let (valid, skip) = (self.valid(access, at, width)?, self.skip(access, at, width)?);
        let indices = at.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
        let ty = if width > 1 { Type::vector(&[width], access.elem) } else { access.elem };
        let memref = [access.memref];
        let groups: [&[Value]; 5] = [&memref, &indices, pred.as_slice(), valid.as_slice(), skip.as_slice()];
        let mut attrs = self.access_attrs(access, width);
        attrs.extend(access.cache.map(|cache| ("cache", cache)));
        let op = self.emit.op(op::kernel::READ, &groups, &attrs, Some(&[ty]))?;
        let value = self.emit.body.result(op, 0);
        // What is not read is zero.
        if (pred.is_none() && valid.is_none() && skip.is_none()) || (other == 0.0 && other.is_sign_positive()) {
            return Ok(value);
        }
        let mut mask = match pred {
            Some(pred) => Some(self.emit.splat(pred, width)?),
            None => None,
        };
        for (kind, bound) in [("lt", valid), ("ge", skip)] {
            let Some(bound) = bound else { continue };
            let (count, lanes) = (self.emit.splat(bound, width)?, self.emit.lane_numbers(width, Type::index())?);
            let inside = self.emit.compare(kind, lanes, count)?;
            mask = Some(match mask {
                Some(mask) => self.emit.core(op::core::AND, &[mask, inside])?,
                None => inside,
            });
        }
        let outside = self.emit.splat_constant(ty, other)?;
        match mask {
            Some(mask) => self.emit.core(op::core::SELECT, &[mask, value, outside]),
            None => Ok(value),
        }
    }

    /// The nearest place inside; `None` where that of an index is not known to be inside.
    fn nearest(&mut self, access: &Access, at: &[Ix]) -> Result<Option<Vec<Ix>>> {
        let mut near = at.to_vec();
        for (k, ix) in near.iter_mut().enumerate() {
            let check = self.check_of(access, k, *ix, 1);
            let has_some = access.extents[k].as_static().is_some_and(|n| n > 0);
            if check.lower || check.upper.is_some() && !has_some {
                return Ok(None);
            }
            if let Some(extent) = check.upper {
                let (index, last) = (self.emit.get(*ix)?, self.emit.sub(Ix::of(extent), Ix::constant(1))?);
                let last = self.emit.get(last)?;
                *ix = Ix::of(self.emit.core(op::core::MIN, &[index, last])?);
            }
        }
        Ok(Some(near).filter(|_| access.only.is_none()))
    }

    fn write(&mut self, access: &mut Access, at: &[Ix], value: Value) -> Result {
        let vec = access.spread.vec;
        let width = if let Order::Consecutive(width) = access.order { width } else { 1 };
        for lane in (0..vec).step_by(width as usize) {
            let part = if vec == 1 { value } else { self.emit.slice(value, lane, width)? };
            let at = access.lane(at, lane);
            let pred = self.predicate(access, &at, width)?;
            let valid = self.valid(access, &at, width)?;
            let indices = at.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let (part, memref) = ([part], [access.memref]);
            let groups: [&[Value]; 5] = [&part, &memref, &indices, pred.as_slice(), valid.as_slice()];
            let attrs = self.access_attrs(access, width);
            self.emit.op(op::kernel::WRITE, &groups, &attrs, None)?;
        }
        Ok(())
    }
    fn access_attrs(&self, access: &Access, width: i64) -> Vec<(&'static str, Attr)> {
        let mut attrs = Vec::new();
        if self.cuda && width > 1 {
            attrs.push(("align", Attr::i64(width * access.elem.byte_width().unwrap_or(1) as i64)));
        }
        if access.swizzle != 0 {
            attrs.push(("swizzle", Attr::i64(access.swizzle)));
        }
        attrs
    }

    /// How many lanes of a CPU's vector are inside along the last dimension.
    fn valid(&mut self, access: &Access, at: &[Ix], width: i64) -> Result<Option<Value>> {
        let last = at.len().wrapping_sub(1);
        match access.checks.get(last).and_then(|c| c.upper) {
            Some(extent) if access.counts_lanes && width > 1 => {
                let count = self.emit.sub(Ix::of(extent), at[last])?;
                self.emit.get(count).map(Some)
            }
            _ => Ok(None),
        }
    }
    /// How many lanes of a CPU's vector lie before the last dimension's first element, where some may.
    fn skip(&mut self, access: &Access, at: &[Ix], width: i64) -> Result<Option<Value>> {
        let last = at.len().wrapping_sub(1);
        if !access.checks.get(last).is_some_and(|c| c.lower) || !access.counts_lanes || width == 1 {
            return Ok(None);
        }
        let count = self.emit.sub(Ix::constant(0), at[last])?;
        self.emit.get(count).map(Some)
    }
    /// Whether a piece is to be accessed; `None`: yes.
    fn predicate(&mut self, access: &mut Access, at: &[Ix], width: i64) -> Result<Option<Value>> {
        let mut all = access.only;
        for (k, &ix) in at.iter().enumerate() {
            let counted = access.counts_lanes && width > 1 && k + 1 == at.len();
            let inside = match access.known.get(&(k, ix.value, ix.plus)) {
                _ if counted => None,
                Some(&known) => known,
                None => {
                    let inside = self.inside(self.check_of(access, k, ix, width), ix)?;
                    access.known.insert((k, ix.value, ix.plus), inside);
                    inside
                }
            };
            all = match (all, inside) {
                (Some(a), Some(b)) => Some(self.emit.core(op::core::AND, &[a, b])?),
                (a, b) => a.or(b),
            };
        }
        Ok(all)
    }
    /// What is to be checked of one index: less than of all those of the tile, where it is further from the end that the tile passes.
    fn check_of(&self, access: &Access, k: usize, ix: Ix, width: i64) -> Check {
        let (check, (first, beyond)) = (access.checks[k], access.firsts[k]);
        if !self.cuda || ix.value != access.starts[k].value || !check.lower && check.upper.is_none() {
            return check;
        }
        let facts = &self.indices.facts;
        let at = first + Dim::Static(ix.plus - access.starts[k].plus);
        let own = if k + 1 == access.starts.len() { width } else { 1 };
        let last = at + Dim::Static(beyond + own);
        let inside = facts.le(last, access.extents[k]);
        Check { lower: check.lower && !facts.is_nonneg(at), upper: check.upper.filter(|_| !inside) }
    }
    pub(super) fn inside(&mut self, check: Check, ix: Ix) -> Result<Option<Value>> {
        let mut inside = None;
        if let Some(extent) = check.upper {
            let index = self.emit.get(ix)?;
            inside = Some(self.emit.compare("lt", index, extent)?);
        }
        if check.lower {
            let (index, zero) = (self.emit.get(ix)?, self.emit.index(0)?);
            let positive = self.emit.compare("ge", index, zero)?;
            inside = Some(match inside {
                Some(inside) => self.emit.core(op::core::AND, &[inside, positive])?,
                None => positive,
            });
        }
        Ok(inside)
    }
}

/// The tile that says where along the axis the elements of another one are.
struct Chosen {
    spread: Rc<Distribution>,
    registers: Rc<[Value]>,
    known: FxHashMap<(usize, i64), Value>,
}

impl Chosen {
    /// One place for a whole register of `tile`, or one for each of its elements.
    fn lanes(&self, tile: &Distribution) -> i64 {
        if self.spread.vec > 1 { tile.vec } else { 1 }
    }
    /// The place of register `r` of `tile`, as an index.
    fn of(&mut self, work: &mut Distribute, tile: &Distribution, r: usize, lane: i64) -> Result<Value> {
        let coords = tile.coords(r);
        // A place may be for all along a dimension, or for a run of neighbours.
        let place_at = |d: usize| coords[d] / (tile.shape[d] / self.spread.shape[d]);
        let repeated: Vec<i64> = (0..coords.len()).map(place_at).collect();
        let (register, _) = self.spread.locate(&repeated);
        if let Some(&known) = self.known.get(&(register, lane)) {
            return Ok(known);
        }
        let mut place = work.emit.extract(self.registers[register], lane)?;
        if !work.emit.ty(place).is_index() {
            place = work.emit.value(op::core::CONVERT, &[place], &[], Some(Type::index()))?;
        }
        self.known.insert((register, lane), place);
        Ok(place)
    }
}

impl Access {
    /// The indices of register `r`'s first element.
    pub(super) fn at(&self, _: &Distribute, r: usize) -> Result<Vec<Ix>> {
        let coords = self.spread.coords(r);
        let mut at = self.starts.clone();
        for (d, k) in self.dims.iter().enumerate() {
            if let Some(k) = *k {
                at[k] = at[k].plus(coords[d]);
            }
        }
        Ok(at)
    }
    /// The indices of the element in place `lane` of a register.
    fn lane(&self, at: &[Ix], lane: i64) -> Vec<Ix> {
        let mut at = at.to_vec();
        if let Some(k) = self.spread.vec_dim.and_then(|d| self.dims[d]) {
            at[k] = at[k].plus(lane);
        }
        at
    }
}
