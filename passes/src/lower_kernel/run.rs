//! Runs a nest in a program: loops over what is not in the grid, accumulators, results.

use super::program::Program;
use super::reduce::{Accumulator, How};
use super::scope::{Bind, Scope};
use crate::schedule::Schedule;
use crate::schedule::access::{Iter, mentions};
use crate::schedule::nest::Nest;
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Dim, Name, Result, Value};
use rc_machine::Gpu;

/// An iterator that a nest runs over within a program.
#[derive(Clone, Copy)]
struct Local {
    iter: Iter,
    chunk: i64,
    axis: Option<usize>,
    /// Whether there is no loop, but all steps, one after the other.
    unrolled: bool,
}

impl Local {
    /// How many chunks it takes.
    fn chunks(&self) -> Dim {
        self.iter.extent.ceildiv(Dim::Static(self.chunk))
    }
    /// The steps that are unrolled within one of its loop.
    fn step(&self) -> Local {
        let iter = Iter { extent: Dim::Static(self.chunk), ..self.iter };
        Local { iter, chunk: 1, axis: None, unrolled: true }
    }
    /// Whether its elements are combined one by one.
    fn is_summed_over(&self) -> bool {
        self.iter.kind == IterKind::Reduce && self.axis.is_none()
    }
}

/// Steps of a CPU's sums that start from zero, and are added to the others' then.
const LONG: i64 = 64;

/// How many steps the iterators of a nest take together that are not in the grid.
pub fn steps(nest: &Nest, schedule: &Schedule, grid: &Scope) -> Dim {
    chunks(&locals(nest, schedule, grid))
}

fn chunks(locals: &[Local]) -> Dim {
    locals.iter().fold(Dim::Static(1), |n, local| n * local.chunks())
}

/// Whether the extent is known to be a multiple of the tile.
pub fn divides(tile: i64, extent: Dim) -> bool {
    tile == 1 || extent.modulo(Dim::Static(tile)) == Dim::Static(0)
}

/// How an iterator stands in tiles of `size`, from `base` on.
pub fn bind(iter: &Iter, base: Value, axis: Option<usize>, size: i64) -> Bind {
    let axis = axis.filter(|_| size > 1);
    Bind {
        base,
        axis,
        size: if axis.is_some() { size } else { 1 },
        extent: iter.extent,
        exact: axis.is_none() || divides(size, iter.extent),
    }
}

impl Program<'_> {
    /// Runs a nest whose grid iterators are bound in `grid`; `stores` says which results are needed in memory.
    pub fn run(&mut self, nest: &Nest, schedule: &Schedule, grid: &Scope, stores: &[bool]) -> Result {
        let (ends, dims) = self.reduced(nest, schedule, grid, None, stores)?;
        for (i, (a, values)) in ends.iter().enumerate() {
            if !matches!(a.how, How::Store | How::Scan(_)) {
                let tile = a.finish(self, values, &dims);
                self.result(nest, i, tile, grid, stores[i])?;
            }
        }
        Ok(())
    }

    /// Runs a nest, or a part of its reduction: the chunks whose numbers are within bounds. Gives the accumulators with their values, and the tile dimensions over which these
    /// are still to be combined.
    pub fn reduced(
        &mut self,
        nest: &Nest,
        schedule: &Schedule,
        grid: &Scope,
        part: Option<[Value; 2]>,
        stores: &[bool],
    ) -> Result<(Vec<(Accumulator, Vec<Value>)>, Vec<usize>)> {
        self.loc = self.src.loc(nest.op);
        let accumulators = Accumulator::of(self, nest)?;
        let mut locals = locals(nest, schedule, grid);
        if let Some(l) = locals.iter().find(|l| l.axis.is_none() && !divides(l.chunk, l.iter.extent)) {
            let what =
                format!("with a schedule that unrolls {} steps along {}, of {}", l.chunk, l.iter.name, l.iter.extent);
            return Err(self.src.op_ref(nest.op).unsupported(what).help("choose a number that divides the extent"));
        }
        let numbers = accumulators.iter().any(|a| matches!(a.how, How::Arg(_)));
        if !self.target.is_cpu() && !numbers && part.is_none() {
            unroll(nest, &mut locals, grid, schedule.threads, self.target.gpu());
        }
        locals.extend(locals.iter().filter(|l| l.axis.is_none() && l.chunk > 1).map(Local::step).collect::<Vec<_>>());
        let mut shape = grid.shape();
        let mut reduced = Vec::new();
        for local in locals.iter().filter(|l| l.iter.kind == IterKind::Reduce) {
            if let Some(axis) = local.axis.filter(|_| local.chunk > 1) {
                shape[axis] = local.chunk;
                reduced.push(axis);
            }
        }
        let mut starts = Vec::new();
        for a in &accumulators {
            starts.extend(a.start(self, shape)?);
        }
        let ends = match part {
            None => self.loops(nest, &accumulators, &locals, grid, &starts, stores)?,
            Some(part) => self.loop_of_part(nest, &accumulators, &locals, grid, &starts, part)?,
        };
        let mut ends = ends.into_iter();
        let of_each = accumulators.into_iter().map(|a| {
            let values = ends.by_ref().take(a.tiles()).collect();
            (a, values)
        });
        Ok((of_each.collect(), reduced))
    }

    /// Keeps result `i` at hand for nests after this one, and stores it if need be.
    pub fn result(&mut self, nest: &Nest, i: usize, tile: Value, scope: &Scope, store: bool) -> Result {
        let value = self.src.result(nest.op, i);
        let tile = self.convert(tile, self.src.ty(value).elem());
        self.hold(value, tile, &nest.outputs[i], scope);
        self.store_kept(value, tile, scope)?;
        if store { self.store(tile, value, &nest.outputs[i], scope) } else { Ok(()) }
    }

    fn loops(
        &mut self,
        nest: &Nest,
        accumulators: &[Accumulator],
        locals: &[Local],
        scope: &Scope,
        carried: &[Value],
        stores: &[bool],
    ) -> Result<Vec<Value>> {
        let windows = matches!(accumulators, [only] if matches!(only.how, How::Combine(_)));
        let steps: Vec<Iter> = locals.iter().map(|l| l.iter).collect();
        if windows
            && locals.iter().all(|local| local.unrolled)
            && let Some((inside, starts)) = self.reads_no_padding(nest, &steps, scope)?
        {
            let step = |p: &mut Self| p.unbranched(nest, accumulators, locals, scope, carried, stores).map(|v| v[0]);
            let whole = |p: &mut Self| {
                p.no_padding = Some(starts);
                let next = step(p);
                p.no_padding = None;
                next
            };
            return Ok(vec![self.if_else(inside, whole, step)?]);
        }
        self.unbranched(nest, accumulators, locals, scope, carried, stores)
    }

    /// The loops; where not all of the last steps, unrolled, are known to read no padding, each has its own branch.
    fn unbranched(
        &mut self,
        nest: &Nest,
        accumulators: &[Accumulator],
        locals: &[Local],
        scope: &Scope,
        carried: &[Value],
        stores: &[bool],
    ) -> Result<Vec<Value>> {
        let Some((local, rest)) = locals.split_first() else {
            return self.point(nest, accumulators, scope, carried, stores);
        };
        let next = if self.no_padding.is_some() { Self::unbranched } else { Self::loops };
        let zero = self.constant_index(0);
        // One chunk that surely covers the whole extent needs no loop; what lies past it is masked.
        let covers = self.ranges.interval(local.iter.extent).is_some_and(|(low, high)| low > 0 && high <= local.chunk);
        if covers {
            let inner = scope.with(local.iter.name, bind(&local.iter, zero, local.axis, local.chunk));
            return next(self, nest, accumulators, rest, &inner, carried, stores);
        }
        if let Some(steps) = local.iter.extent.as_static().filter(|_| local.unrolled) {
            let mut carried = carried.to_vec();
            for step in 0..steps {
                let here = match scope.get(local.iter.name) {
                    Some(_) => nest.moved(local.iter.name, step),
                    None => nest.at(local.iter.name, step),
                };
                carried = next(self, &here, accumulators, rest, scope, &carried, stores)?;
            }
            return Ok(carried);
        }
        let sums = self.target.is_cpu() && local.is_summed_over() && accumulators.iter().all(Accumulator::is_float_sum);
        let apart = sums && chunks(rest).as_static().is_none_or(|n| n >= LONG);
        if sums && !apart && self.ranges.interval(local.iter.extent).is_none_or(|(_, high)| high > 2 * LONG) {
            return self.loop_of_sums(nest, accumulators, local, rest, scope, carried);
        }
        let bounds = [zero, self.size(local.iter.extent), self.constant_index(local.chunk)];
        self.for_loop(bounds, carried, |p, counter, carried| {
            let first = if nest.reverse && local.iter.kind == IterKind::Scan {
                let chunk = Dim::Static(local.chunk);
                let last = p.size((local.iter.extent.ceildiv(chunk) - Dim::Static(1)) * chunk);
                p.binary(op::core::SUB, last, counter)
            } else {
                counter
            };
            let inner = scope.with(local.iter.name, bind(&local.iter, first, local.axis, local.chunk));
            let steps = |p: &mut Self, sums: &[Value]| p.loops(nest, accumulators, rest, &inner, sums, stores);
            if apart { p.added(accumulators, carried, steps) } else { steps(p, carried) }
        })
    }

    /// Sums over an iterator, so many steps at a time.
    fn loop_of_sums(
        &mut self,
        nest: &Nest,
        accumulators: &[Accumulator],
        local: &Local,
        rest: &[Local],
        scope: &Scope,
        carried: &[Value],
    ) -> Result<Vec<Value>> {
        let step = |p: &mut Self, at: Value, carried: &[Value]| {
            let inner = scope.with(local.iter.name, bind(&local.iter, at, None, 1));
            p.loops(nest, accumulators, rest, &inner, carried, &[])
        };
        let [zero, one, long] = [0, 1, LONG].map(|n| self.constant_index(n));
        let size = self.size(local.iter.extent);
        let whole = match local.iter.extent {
            Dim::Static(n) => self.constant_index(n / LONG * LONG),
            _ => {
                let number = self.binary(op::core::DIV, size, long);
                self.mul_index(number, long)
            }
        };
        let carried = self.for_loop([zero, whole, long], carried, |p, first, carried| {
            let end = p.add_index(first, long);
            p.added(accumulators, carried, |p, none| p.for_loop([first, end, one], none, step))
        })?;
        if divides(LONG, local.iter.extent) { Ok(carried) } else { self.for_loop([whole, size, one], &carried, step) }
    }

    /// Sums with those that a loop adds to none: the shorter a sum, the less it loses to rounding.
    fn added(
        &mut self,
        accumulators: &[Accumulator],
        before: &[Value],
        sums: impl FnOnce(&mut Self, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let mut none = Vec::new();
        for (a, &sum) in accumulators.iter().zip(before) {
            none.extend(a.start(self, self.shape(sum))?);
        }
        let sums = sums(self, &none)?;
        Ok(before.iter().zip(sums).map(|(&before, sum)| self.binary(op::core::ADD, before, sum)).collect())
    }

    /// The chunks of a reduction whose numbers are within bounds, one after the other, those of the last iterator the fastest.
    fn loop_of_part(
        &mut self,
        nest: &Nest,
        accumulators: &[Accumulator],
        locals: &[Local],
        scope: &Scope,
        carried: &[Value],
        [first, end]: [Value; 2],
    ) -> Result<Vec<Value>> {
        let bounds = [first, end, self.constant_index(1)];
        let (unrolled, locals): (Vec<Local>, Vec<Local>) = locals.iter().partition(|l| l.unrolled);
        self.for_loop(bounds, carried, |p, number, carried| {
            let (mut inner, mut number) = (scope.clone(), number);
            for (i, local) in locals.iter().enumerate().rev() {
                let [chunks, around] = [local.chunks(), chunks(&locals[..i])];
                let at = match (chunks, around) {
                    (Dim::Static(1), _) => p.constant_index(0),
                    (_, Dim::Static(1)) => number,
                    _ => {
                        let chunks = p.size(chunks);
                        let at = p.binary(op::core::REM, number, chunks);
                        number = p.binary(op::core::DIV, number, chunks);
                        at
                    }
                };
                let chunk = p.constant_index(local.chunk);
                let base = p.mul_index(at, chunk);
                inner = inner.with(local.iter.name, bind(&local.iter, base, local.axis, local.chunk));
            }
            p.loops(nest, accumulators, &unrolled, &inner, carried, &[])
        })
    }

    /// One step: the region at one place.
    fn point(
        &mut self,
        nest: &Nest,
        accumulators: &[Accumulator],
        scope: &Scope,
        carried: &[Value],
        stores: &[bool],
    ) -> Result<Vec<Value>> {
        let mut next = Vec::new();
        let plain: Vec<usize> = (0..accumulators.len()).filter(|&i| accumulators[i].how == How::Store).collect();
        let wanted: Vec<usize> = plain.iter().map(|&i| accumulators[i].first).collect();
        let tiles = if wanted.is_empty() { Vec::new() } else { self.region(nest, scope, &wanted)? };
        for (&i, tile) in plain.iter().zip(tiles) {
            self.result(nest, i, tile, scope, stores[i])?;
        }
        let mut at = 0;
        for (i, a) in accumulators.iter().enumerate() {
            if let How::Scan(c) = a.how {
                let (here, end) = a.scan(self, nest, scope, c, carried[at])?;
                self.result(nest, i, here, scope, stores[i])?;
                next.push(end);
            } else {
                next.extend(a.step(self, nest, scope, &carried[at..at + a.tiles()])?);
            }
            at += a.tiles();
        }
        Ok(next)
    }
}

/// The iterators that are not in the grid, in the nest's order.
fn locals(nest: &Nest, schedule: &Schedule, grid: &Scope) -> Vec<Local> {
    let outside = |name: Name| grid.get(name).is_none();
    let local = |iter: &Iter| {
        let axis = schedule.axis_of(iter.name);
        Local { iter: *iter, chunk: schedule.tile_of(iter.name), axis, unrolled: false }
    };
    nest.iters.iter().filter(|i| outside(i.name)).map(local).collect()
}

/// Marks the innermost loops of reductions that are unrolled: a GPU's thread has then all loads of a window in flight, computes once what their
/// addresses have in common, and reads once what the windows of its results share. All steps together combine so many elements of each of the
/// program's threads at most; fewer where no operand's index slides along, so that each step loads its own.
fn unroll(nest: &Nest, locals: &mut [Local], grid: &Scope, threads: i64, gpu: &Gpu) {
    let chunks: i64 = locals.iter().filter(|l| l.axis.is_some()).map(|l| l.chunk).product();
    let mut elements = (grid.shape().iter().product::<i64>() * chunks / threads.max(1)).max(1);
    let reduced: Vec<Iter> = nest.of_kind(IterKind::Reduce).copied().collect();
    for local in locals.iter_mut().rev() {
        let steps = local.iter.extent.as_static().map(|n| (n + local.chunk - 1) / local.chunk);
        elements = elements.saturating_mul(steps.unwrap_or(i64::MAX));
        let loads = nest.inputs.iter().filter(|a| reduced.iter().any(|i| a.mentions(i.name))).count() as i64;
        let slides = nest.inputs.iter().any(|a| a.exprs.iter().any(|&e| is_window(nest, e, local.iter.name)));
        let most = if loads > 0 && !slides { gpu.in_flight / loads } else { gpu.unroll };
        if elements > most || local.iter.kind != IterKind::Reduce {
            return;
        }
        local.unrolled = local.axis.is_none() && local.chunk == 1;
    }
}

/// Whether an index slides along an iterator, so that neighbouring results read the same elements.
fn is_window(nest: &Nest, index: Dim, along: Name) -> bool {
    mentions(index, along) && nest.of_kind(IterKind::Parallel).any(|i| mentions(index, i.name))
}
