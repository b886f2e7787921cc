//! A reduction in two kernels, where its results are fewer than the machine has cores for: programs of the first combine a part of
//! the elements each, those of the second the parts, and run what follows.

use super::contract::Product;
use super::grid::{Spread, scope_of};
use super::program::Program;
use super::reduce::{Accumulator, How};
use super::run::{bind, divides, steps};
use super::scope::Scope;
use super::{Memory, Scheduled, begin, end, interface, spread_of};
use crate::schedule::access::{Access, Iter};
use crate::schedule::group::Group;
use crate::schedule::nest::{Nest, symbol_ranges};
use crate::schedule::{Kind, NONE, Schedule, Target};
use rc_dialects::func::symbols;
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::{Body, Dim, Name, Result, Type, Value};

/// Rows and columns of a product that a program combines, at most: with 128 threads 16 elements of each, 64 bytes of a part in flight.
const COMBINED: [i64; 2] = [16, 128];

/// Neighbouring sums of which a program combines all parts, where parts take the place of its tile's rows: a sector of f32.
const COLUMNS: i64 = 8;

/// More parts of a product than a thread adds of its own sums, one load after the other.
const MANY: i64 = 16;

/// Elements of all parts that a program combines at once, at most, where parts take the place of rows.
const AT_ONCE: i64 = 4096;

/// What both kernels are made from.
pub struct Split<'a> {
    src: &'a Body,
    target: &'a Target,
    scheduled: &'a Scheduled,
    /// The reduction alone, which is the group's first nest.
    first: Group,
    /// The number of the part.
    part: Iter,
    /// The iterator of the sums' tiles, which of a product is the one that is cut.
    along: Iter,
    accumulators: Vec<Accumulator>,
    /// Tensors that the first kernel reads, and those that the second one does, besides the parts.
    pub read_by_parts: Vec<Value>,
    pub read_at_end: Vec<Value>,
}

impl<'a> Split<'a> {
    /// # Errors
    /// If the schedule cuts what is no reduction, or one that cannot be combined from parts.
    pub fn new(src: &'a Body, target: &'a Target, scheduled: &'a Scheduled, parts: i64) -> Result<Split<'a>> {
        let op = scheduled.group.ops[0];
        let fail = |what: &str| src.op_ref(op).unsupported(format!("with a schedule that splits {what}"));
        let Some(nest) = scheduled.group.nests.first() else { return Err(fail("attention")) };
        let schedule = &scheduled.schedules[0];
        // Of a product the first iterator that has an element for each part, before the one that tiles go along.
        let outer = |i: &&Iter, inner| i.extent.as_static().is_some_and(|n| n >= parts) && Some(i.name) != inner;
        let cut = |i: &&Iter| match &schedule.kind {
            Kind::Contract(own) => Some(i.name) == own.inner,
            _ => schedule.axis_of(i.name).is_some(),
        };
        // Without one the sums are of elements, one by one.
        let apart = || nest.of_kind(IterKind::Reduce).next().filter(|_| schedule.contract().is_none());
        let before = schedule.contract().and_then(|own| nest.of_kind(IterKind::Reduce).find(|i| outer(i, own.inner)));
        let along = before.or_else(|| nest.of_kind(IterKind::Reduce).find(cut)).or_else(apart);
        let along = *along.ok_or_else(|| fail("a nest without a reduce iterator among its axes"))?;
        if scheduled.group.nests[1..].iter().any(|n| !n.is_pointwise()) {
            return Err(fail("a reduction that is run together with another"));
        }
        let first = Group { ops: vec![op], nests: vec![nest.clone()], class: scheduled.group.class };
        let made = new_function(op::kernel::FUNC, "unused", &[], &[], src.loc(op));
        let accumulators =
            Accumulator::of(&Program::new(src, target, &first, symbol_ranges(&symbols(src)), made.body), nest)?;
        if accumulators.iter().any(|a| matches!(a.how, How::Store | How::Scan(_))) {
            return Err(fail("a nest with a scan, or results of single points"));
        }
        let read_by_parts = interface(src, &first).0;
        let rest = Group { ops: scheduled.group.ops[1..].to_vec(), nests: Vec::new(), class: scheduled.group.class };
        let results: Vec<Value> = src.results(op).collect();
        let read_at_end = match rest.ops.is_empty() {
            true => Vec::new(),
            false => interface(src, &rest).0.into_iter().filter(|v| !results.contains(v)).collect(),
        };
        let part = Iter { name: Name::new("part"), extent: Dim::Static(parts), kind: IterKind::Parallel };
        Ok(Split { src, target, scheduled, first, part, along, accumulators, read_by_parts, read_at_end })
    }
    fn nest(&self) -> &Nest {
        &self.scheduled.group.nests[0]
    }
    fn schedule(&self) -> &Schedule {
        &self.scheduled.schedules[0]
    }
    fn spread(&self) -> Result<Vec<Spread>> {
        spread_of(self.src, self.nest().op, self.schedule(), &self.nest().iters)
    }
    /// Where the parts of result `i` lie: one after the other, and of sums apart those of neighbouring lanes side by side, as these store them.
    fn access(&self, i: usize) -> Access {
        let whole = &self.nest().outputs[i];
        let mut dims: Vec<(Dim, Dim)> = whole.shape.iter().copied().zip(whole.exprs.iter().copied()).collect();
        if let Some((lanes, _)) = self.lanes() {
            dims.sort_by_key(|&(_, at)| at == Dim::symbol(lanes));
        }
        dims.insert(0, (self.part.extent, Dim::symbol(self.part.name)));
        let (shape, exprs) = dims.into_iter().unzip();
        Access { shape, exprs }
    }
    /// Tensors of the parts of each result, in the types that are accumulated in: of an index of an extreme, the extreme too.
    pub fn partial_types(&self) -> Vec<Type> {
        let of = |(i, a): (usize, &Accumulator)| {
            let shape = self.access(i).shape;
            a.types().into_iter().map(move |ty| Type::tensor(&shape, ty))
        };
        self.accumulators.iter().enumerate().flat_map(of).collect()
    }
    /// The parts of each result, of those of all.
    fn of_each<'m>(&self, mut all: &'m [Value]) -> Vec<&'m [Value]> {
        let mut take = |a: &Accumulator| {
            let (own, rest) = all.split_at(a.tiles());
            all = rest;
            own
        };
        self.accumulators.iter().map(&mut take).collect()
    }

    /// The kernel in which each program combines one part.
    pub fn parts(&self, name: Name) -> Result<Body> {
        let read = self.read_by_parts.iter().map(|&v| Memory::Of(v));
        let args: Vec<Memory> = read.chain(self.partial_types().into_iter().map(Memory::Other)).collect();
        let (mut p, memory) = begin(self.src, self.target, &self.first, name, &args);
        let mut over = vec![Spread { iter: self.part, step: 1 }];
        over.extend(self.spread()?);
        if self.schedule().contract().is_some() {
            let grid = self.product_parts(&mut p, &over, memory[0])?;
            return Ok(end(p, grid, self.schedule().threads));
        }
        let (grid, starts) = p.spread(&over);
        let scope = scope_of(&over, &starts, self.schedule());
        let several = |s: &&Spread| s.iter.name != self.part.name && s.iter.extent != Dim::Static(s.step);
        let reduced = self.nest().of_kind(IterKind::Reduce).filter(|i| i.extent != Dim::Static(1));
        p.spread_over = Some(over.iter().filter(several).map(|s| s.iter.name).chain(reduced.map(|i| i.name)).collect());
        let steps = steps(self.nest(), self.schedule(), &scope);
        let bounds = self.bounds(&mut p, starts[0], steps, 1);
        let none = vec![false; self.accumulators.len()];
        let (ends, dims) = p.reduced(self.nest(), self.schedule(), &scope, Some(bounds), &none)?;
        for (i, ((a, values), memory)) in ends.iter().zip(self.of_each(&memory)).enumerate() {
            for (tile, &memory) in a.part(&mut p, values, &dims).into_iter().zip(memory) {
                p.store_to(memory, tile, &self.access(i), &scope)?;
            }
        }
        Ok(end(p, grid, self.schedule().threads))
    }
    /// Programs of a product that each add one part of the sums of a tile.
    fn product_parts(&self, p: &mut Program, over: &[Spread], memory: Value) -> Result<[Dim; 3]> {
        let product = Product::new(p, self.nest(), self.schedule())?;
        let body = |p: &mut Program, starts: &[Value]| {
            let scope = scope_of(over, starts, self.schedule());
            let bounds = self.bounds(p, starts[0], self.along.extent, self.schedule().tile_of(self.along.name));
            p.hold_indices(product.nest, &scope)?;
            let tile = product.sums(p, &scope, Some((self.along.name, bounds)))?;
            p.store_to(memory, tile, &self.access(0), &scope)
        };
        if self.schedule().contract().is_some_and(|own| own.programs.is_some()) {
            return p.tile_after_tile(over, self.schedule(), body);
        }
        let (grid, starts) = p.spread(over);
        body(p, &starts)?;
        Ok(grid)
    }
    /// How the parts are combined: of a product, tiles whose elements, of each part, threads load side by side.
    fn combining(&self) -> Schedule {
        let Some((lanes, width)) = self.lanes() else {
            return if self.schedule().contract().is_some() { self.in_tiles() } else { self.in_columns() };
        };
        let mut schedule = self.schedule().clone();
        for name in schedule.axes {
            schedule.set_tile(name, 1);
        }
        schedule.set_tile(lanes, width);
        schedule.axes = [Name::new(NONE), lanes];
        schedule.threads = 128;
        schedule
    }
    fn in_tiles(&self) -> Schedule {
        let mut schedule = self.schedule().clone();
        for (name, most) in schedule.axes.into_iter().zip(COMBINED) {
            let tile = power_in(&schedule, name);
            schedule.set_tile(name, tile.min(most));
        }
        schedule.threads = 128;
        schedule
    }
    /// Of rows or columns: fewer side by side than the programs of parts had, where threads would have many elements of all parts.
    fn in_columns(&self) -> Schedule {
        let (mut schedule, Dim::Static(parts)) = (self.schedule().clone(), self.part.extent) else {
            unreachable!("made so")
        };
        let (lanes, most) = (schedule.axes[1], (AT_ONCE / parts).max(COLUMNS));
        if lanes != self.along.name && schedule.tile_of(lanes) > most {
            schedule.set_tile(lanes, power_in(&schedule, lanes).min(most));
        }
        schedule
    }
    /// Where parts take the place of the tile's rows: the iterator that neighbouring lanes combine the parts of, and how many of it. So it is where each element
    /// of the tile is a sum of its own, and for many parts of a product whose results are too few for a tile of them on each core.
    fn lanes(&self) -> Option<(Name, i64)> {
        let schedule = self.schedule();
        if schedule.contract().is_none() {
            let lanes = schedule.axes[1];
            let apart = schedule.axis_of(self.along.name).is_none();
            return apart.then(|| (lanes, power_in(schedule, lanes).min(COLUMNS)));
        }
        let parts = self.part.extent.as_static()?;
        let lanes = self.nest().outputs[0].innermost().filter(|name| schedule.axes.contains(name))?;
        let programs = |size: i64| (self.nest().results() / size as f64) as i64;
        let tiles = self.in_tiles();
        let few = programs(tiles.axes.iter().map(|&name| tiles.tile_of(name)).product()) < self.target.cores;
        let widths = std::iter::successors(Some(COMBINED[1]), |width| Some(width / 2)).take_while(|&w| w > COLUMNS);
        let fits = |&width: &i64| {
            width <= power_in(schedule, lanes) && width * parts <= AT_ONCE && programs(width) >= 2 * self.target.cores
        };
        let width = widths.into_iter().find(fits).unwrap_or(COLUMNS.min(power_in(schedule, lanes)));
        (parts > MANY && few).then_some((lanes, width))
    }
    /// The sum of a product's parts at the scope, all loads in flight.
    fn sum_of_parts(&self, p: &mut Program, memory: Value, scope: &Scope) -> Result<Value> {
        let Dim::Static(parts) = self.part.extent else { unreachable!("made so") };
        let mut tiles = Vec::new();
        for part in 0..parts {
            let mut access = self.access(0);
            access.exprs[0] = Dim::Static(part);
            tiles.push(p.load_from(memory, &access, scope)?);
        }
        let mut tiles = tiles.into_iter();
        let first = tiles.next().expect("a product has parts");
        Ok(tiles.fold(first, |sum, tile| p.binary(op::core::ADD, sum, tile)))
    }
    /// Where a part of `extent` begins and ends: all are as long, in whole tiles, but those at the end.
    fn bounds(&self, p: &mut Program, part: Value, extent: Dim, tile: i64) -> [Value; 2] {
        let Dim::Static(parts) = self.part.extent else { unreachable!("made so") };
        let length = extent.ceildiv(Dim::Static(parts * tile)) * Dim::Static(tile);
        let whole = divides(parts * tile, extent);
        let length = p.size(length);
        let first = p.mul_index(part, length);
        let end = p.add_index(first, length);
        if whole {
            return [first, end];
        }
        let size = p.size(extent);
        [first, p.binary(op::core::MIN, end, size)]
    }

    /// The kernel that combines the parts and runs the nests after the reduction.
    pub fn combine(&self, name: Name, outputs: &[Value]) -> Result<Body> {
        let group = &self.scheduled.group;
        let tensors = self.read_at_end.iter().chain(outputs).map(|&v| Memory::Of(v));
        let args: Vec<Memory> = self.partial_types().into_iter().map(Memory::Other).chain(tensors).collect();
        let (mut p, memory) = begin(self.src, self.target, group, name, &args);
        let own = self.combining();
        let over = spread_of(self.src, self.nest().op, &own, &self.nest().iters)?;
        let (grid, starts) = p.spread(&over);
        let scope = scope_of(&over, &starts, &own);
        let by_lanes = self.lanes().is_some();
        let (zero, Dim::Static(parts)) = (p.constant_index(0), self.part.extent) else { unreachable!("made so") };
        let product = own.contract().is_some();
        let axis = if by_lanes { Some(0) } else { own.axis_of(self.along.name).filter(|_| !product) };
        let all = scope.with(self.part.name, bind(&self.part, zero, axis, parts));
        let stores = |n: &Nest| self.src.results(n.op).map(|v| outputs.contains(&v)).collect::<Vec<bool>>();
        for (i, (a, memory)) in self.accumulators.iter().zip(self.of_each(&memory)).enumerate() {
            let tile = match axis {
                None => self.sum_of_parts(&mut p, memory[0], &scope)?,
                Some(axis) => {
                    let load = |&memory: &Value| p.load_from(memory, &self.access(i), &all);
                    let tiles = memory.iter().map(load).collect::<Result<Vec<_>>>()?;
                    a.finish(&mut p, &tiles, &[axis])
                }
            };
            p.result(self.nest(), i, tile, &scope, stores(self.nest())[i])?;
        }
        for (nest, schedule) in group.nests.iter().zip(&self.scheduled.schedules).skip(1) {
            p.run(nest, if product || by_lanes { &own } else { schedule }, &scope, &stores(nest))?;
        }
        Ok(end(p, grid, own.threads))
    }
}

/// The power of two in an iterator's tile.
fn power_in(schedule: &Schedule, name: Name) -> i64 {
    1 << schedule.tile_of(name).trailing_zeros()
}
