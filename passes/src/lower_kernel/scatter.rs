//! `loop.scatter` on tiles.

use super::program::Program;
use super::run::bind;
use super::scope::{Bind, Scope, Tiled};
use crate::schedule::Schedule;
use crate::schedule::access::{Access, Iter};
use crate::schedule::nest::Nest;
use crate::schedule::scatter::Scatter as Sizes;
use rc_dialects::constraints::default_acc;
use rc_dialects::interfaces::Combiner;
use rc_dialects::op;
use rc_ir::{Dim, Name, Op, OpRef, Result, Type, Value};

pub struct Scatter {
    pub sizes: Sizes,
    x: Value,
    indices: Value,
    updates: Value,
    /// What computes the updates where they are not in memory, over the iterators of programs that have updates.
    computed: Option<Nest>,
    /// The updates' numbers sorted by index, and where those of each index start.
    sorted: Option<[Value; 2]>,
    result: Value,
    /// None: the update replaces what is there.
    combiner: Option<Combiner>,
    elem: Type,
}

impl Scatter {
    pub fn read(p: &Program, op: Op) -> Result<Scatter> {
        let at = p.src.op_ref(op);
        let sizes = Sizes::read(at).ok_or_else(|| at.error("has malformed attributes"))?;
        let (x, indices, updates, result) = (at.operand(0), at.operand(1), at.operand(2), at.result(0));
        let sorted = (at.operands().len() == 5).then(|| [at.operand(3), at.operand(4)]);
        let combiner = Combiner::from_kind(at.str("kind").unwrap_or("set"));
        // Sorted, all updates of a place are combined before the result is rounded.
        let elem = p.src.ty(result).elem();
        let sums = sorted.is_some() && matches!(combiner, Some(Combiner::Add | Combiner::Mul));
        let elem = if sums { default_acc(elem) } else { elem };
        let computed = p.group.nests.first().map(|nest| over_updates(nest, &sizes, at));
        Ok(Scatter { sizes, x, indices, updates, computed, sorted, result, combiner, elem })
    }

    fn names(&self) -> [Name; 3] {
        self.sizes.iters.map(|i| i.name)
    }
    /// The element of x or of the result that the scope's places and lanes name.
    fn place(&self) -> Access {
        let [o, a, l] = self.sizes.iters;
        Access { shape: vec![o.extent, a.extent, l.extent], exprs: [o, a, l].map(|i| Dim::symbol(i.name)).to_vec() }
    }
    /// Where update number `k` is.
    fn update(&self, k: Name) -> Access {
        let [o, _, l] = self.sizes.iters;
        let shape = vec![o.extent, self.sizes.k, l.extent];
        Access { shape, exprs: [o.name, k, l.name].map(Dim::symbol).to_vec() }
    }
    /// The batch that a slice is in.
    fn batch(&self) -> Dim {
        let slice = Dim::symbol(self.names()[0]);
        if self.sizes.b == Dim::Static(1) { Dim::Static(0) } else { slice.floordiv(self.sizes.o) }
    }

    fn combined(&self, p: &mut Program, before: Value, update: Value) -> Value {
        match self.combiner.and_then(|c| c.core_op()) {
            Some(name) => p.binary(name, before, update),
            None => update,
        }
    }
    fn at_update(&self, scope: &Scope, k: Name, number: Value) -> Scope {
        scope.with(k, Bind { base: number, axis: None, size: 1, extent: self.sizes.k, exact: true })
    }
    fn read_update(&self, p: &mut Program, scope: &Scope, k: Name) -> Result<Value> {
        let tile = match &self.computed {
            None => p.load(self.updates, &self.update(k), scope)?,
            Some(nest) => {
                p.hold_indices(nest, scope)?;
                let tile = p.region(nest, scope, &[0])?[0];
                p.convert(tile, p.src.ty(self.updates).elem())
            }
        };
        Ok(p.convert(tile, self.elem))
    }

    /// On a CPU: x is copied, unless the result begins as it; then each update is combined with its place in memory.
    pub fn run_on_cpu(&self, p: &mut Program, schedule: &Schedule, scope: &Scope, begun: bool) -> Result {
        if !begun {
            self.copy(p, schedule, scope)?;
        }
        let ([_, a, _], k) = (self.sizes.iters, self.sizes.updates().name);
        let batch = p.index(self.batch(), scope, Tiled::First)?;
        let indices = p.indices_of(self.indices, &[self.sizes.b, self.sizes.k])?;
        let bounds = [p.constant_index(0), p.size(self.sizes.k), p.constant_index(1)];
        p.for_loop(bounds, &[], |p, number, _| {
            let scope = self.at_update(scope, k, number);
            let index = p.read_scalar(indices, &[batch, number]);
            let at = p.convert(index, Type::index());
            let scope = scope.with(a.name, Bind { base: at, axis: None, size: 1, extent: a.extent, exact: true });
            let update = self.read_update(p, &scope, k)?;
            let value = if self.combiner.is_some() {
                let before = p.load(self.result, &self.place(), &scope)?;
                self.combined(p, before, update)
            } else {
                update
            };
            p.store(value, self.result, &self.place(), &scope).map(|()| Vec::new())
        })
        .map(drop)
    }
    fn copy(&self, p: &mut Program, schedule: &Schedule, scope: &Scope) -> Result {
        let [_, a, _] = self.sizes.iters;
        let (axis, size) = (schedule.axis_of(a.name), schedule.tile_of(a.name));
        let bounds = [p.constant_index(0), p.size(a.extent), p.constant_index(size)];
        p.for_loop(bounds, &[], |p, first, _| {
            let scope = scope.with(a.name, bind(&a, first, axis, size));
            let tile = p.load(self.x, &self.place(), &scope)?;
            let tile = p.convert(tile, self.elem);
            p.store(tile, self.result, &self.place(), &scope).map(|()| Vec::new())
        })
        .map(drop)
    }

    /// On a GPU: a tile of places in registers takes the updates that name one of them.
    pub fn run(&self, p: &mut Program, scope: &Scope) -> Result {
        let ([_, a, _], k) = (self.sizes.iters, self.sizes.updates().name);
        let start = self.start(p, scope)?;
        let start = p.broadcast(start, scope.shape());
        let rows = p.index(Dim::symbol(a.name), scope, Tiled::All)?;
        let rows = p.broadcast(rows, p.shape(rows));
        let rows = p.convert(rows, Type::i64());
        let shape = vec![self.sizes.b, self.sizes.k];
        let named = Access { shape, exprs: vec![self.batch(), Dim::symbol(k)] };
        let (bounds, order) = self.updates_of(p, scope)?;
        let ends = p.for_loop(bounds, &[start], |p, number, carried| {
            let number = match order {
                Some((order, batch)) => {
                    let number = p.read_scalar(order, &[batch, number]);
                    p.convert(number, Type::index())
                }
                None => number,
            };
            let scope = self.at_update(scope, k, number);
            let index = p.load(self.indices, &named, &scope)?;
            let index = p.convert(index, Type::i64());
            let here = p.compare("eq", rows, index);
            let update = self.read_update(p, &scope, k)?;
            let value = self.combined(p, carried[0], update);
            Result::Ok(vec![p.select(here, value, carried[0])])
        })?;
        p.store(ends[0], self.result, &self.place(), scope)
    }

    /// Places, one after the other, each with its own updates: those that `order` has from where the place's start to where the next one's do.
    pub fn run_by_place(&self, p: &mut Program, schedule: &Schedule, scope: &Scope) -> Result {
        let [_, a, _] = self.sizes.iters;
        let Some([order, starts]) = self.sorted else {
            return Err(p.src.op_ref(p.group.ops[0]).error("has a schedule by places, and no order of its updates"));
        };
        let batch = p.index(self.batch(), scope, Tiled::First)?;
        let starts = p.indices_of(starts, &[self.sizes.b, a.extent + Dim::Static(1)])?;
        let (first, places) = (scope.get(a.name).expect("bound by the grid").base, schedule.tile_of(a.name));
        let begin = |p: &mut Program, place: Value| {
            let begin = p.read_scalar(starts, &[batch, place]);
            p.convert(begin, Type::index())
        };
        if places == 1 {
            let next = p.constant_index(1);
            let next = p.add_index(first, next);
            let own = [first, next].map(|place| begin(p, place));
            return self.run_one_place(p, schedule, scope, order, own);
        }
        let past = p.constant_index(places);
        let (past, end) = (p.add_index(first, past), p.size(a.extent));
        let bounds = [first, p.binary(op::core::MIN, past, end), p.constant_index(1)];
        let of_first = begin(p, first);
        p.for_loop(bounds, &[of_first], |p, place, carried| {
            let next = p.constant_index(1);
            let next = p.add_index(place, next);
            let next = begin(p, next);
            let scope = scope.with(a.name, Bind { base: place, axis: None, size: 1, extent: a.extent, exact: true });
            self.run_one_place(p, schedule, &scope, order, [carried[0], next])?;
            Result::Ok(vec![next])
        })
        .map(drop)
    }
    /// A place takes its own updates, some at a time.
    fn run_one_place(
        &self,
        p: &mut Program,
        schedule: &Schedule,
        scope: &Scope,
        order: Value,
        [first, end]: [Value; 2],
    ) -> Result {
        let k = self.sizes.updates();
        let start = self.start(p, scope)?;
        let start = p.broadcast(start, scope.shape());
        let size = schedule.tile_of(k.name);
        let bounds = [first, end, p.constant_index(size)];
        let ends = p.for_loop(bounds, &[start], |p, number, carried| {
            let here =
                scope.with(k.name, Bind { base: number, axis: Some(0), size, extent: self.sizes.k, exact: true });
            // What the last step has too many belongs to the next place.
            let (at, none) = (p.iota(number, 0, size), p.constant_index(-1));
            let own = p.compare("lt", at, end);
            let at = p.select(own, at, number);
            let shape = vec![self.sizes.b, self.sizes.k];
            let sorted = Access { shape, exprs: vec![self.batch(), Dim::symbol(Name::new("_0"))] };
            let numbers = p.load(order, &sorted, &Scope { indices: vec![at], ..here.clone() })?;
            let numbers = p.convert(numbers, Type::index());
            let numbers = p.select(own, numbers, none);
            let updates = self.chosen_updates(p, &here, numbers)?;
            let updates = self.or_identity(p, updates, own)?;
            let all = p.reduce(updates, &[0], self.combiner.map_or("add", |c| c.kind()));
            Result::Ok(vec![self.combined(p, carried[0], all)])
        })?;
        p.store(ends[0], self.result, &self.place(), scope)
    }
    /// What the places begin as: a number that is the same everywhere is not in memory.
    fn start(&self, p: &mut Program, scope: &Scope) -> Result<Value> {
        let tile = match super::filled_with(p.src, self.x) {
            Some(number) => p.splat([1; 2], number),
            None => p.load(self.x, &self.place(), scope)?,
        };
        Ok(p.convert(tile, self.elem))
    }
    /// The updates of these numbers; none where a number is negative.
    fn chosen_updates(&self, p: &mut Program, scope: &Scope, numbers: Value) -> Result<Value> {
        let mut scope = scope.clone();
        (scope.indices, scope.may_miss) = (vec![numbers], true);
        let tile = p.load(self.updates, &self.update(Name::new("_0")), &scope)?;
        Ok(p.convert(tile, self.elem))
    }
    fn or_identity(&self, p: &mut Program, updates: Value, own: Value) -> Result<Value> {
        let combiner = self.combiner.filter(|&c| c != Combiner::Add);
        let Some(identity) = combiner.and_then(|c| c.identity(self.elem)) else { return Ok(updates) };
        let identity = p.splat([1; 2], identity);
        Ok(p.select(own, updates, identity))
    }

    /// On a GPU: a tile of updates is combined with the places that it names, atomically. The result begins as x.
    pub fn run_in_memory(&self, p: &mut Program, scope: &Scope) -> Result {
        let ([_, a, _], k) = (self.sizes.iters, self.sizes.updates().name);
        if self.combiner.is_none() {
            return self.put(p, scope);
        }
        let at = self.places_of(p, scope)?;
        let tile = self.read_update(p, scope, k)?;
        let place = at_first(&self.place(), a.name);
        let kind = self.combiner.map_or("set", |c| c.kind());
        let memory = p.memory_of(self.result)?;
        p.scatter(tile, memory, &place, (1, at), scope, kind)
    }

    /// The places that a tile of updates names; past the updates' end there are none.
    fn places_of(&self, p: &mut Program, scope: &Scope) -> Result<Value> {
        let k = self.sizes.updates().name;
        let shape = vec![self.sizes.b, self.sizes.k];
        let named = Access { shape, exprs: vec![self.batch(), Dim::symbol(k)] };
        let at = p.load(self.indices, &named, scope)?;
        let at = p.convert(at, Type::index());
        let Some(mask) = p.inside(scope, &|name| name == k || named.mentions(name)) else { return Ok(at) };
        let none = p.constant_index(-1);
        Ok(p.select(mask, at, none))
    }

    /// The updates of each of so many programs, in whole tiles.
    ///
    /// # Errors
    /// If the number of updates is symbolic.
    pub fn part(&self, p: &Program, schedule: &Schedule, programs: i64) -> Result<i64> {
        let tile = schedule.tile_of(self.sizes.updates().name);
        let known =
            || p.src.op_ref(p.group.ops[0]).error("has a schedule with 'programs', and a symbolic number of updates");
        Ok((self.sizes.k.as_static().ok_or_else(known)? + programs * tile - 1) / (programs * tile) * tile)
    }

    /// On a GPU: a program combines its part of the updates in a table of all places in shared memory, and that with the result.
    pub fn run_together(&self, p: &mut Program, schedule: &Schedule, scope: &Scope, part: i64) -> Result {
        let table = self.table(p, schedule)?;
        let k = self.sizes.updates();
        let (tile, axis) = (schedule.tile_of(k.name), schedule.axis_of(k.name));
        let kind = self.combiner.map_or("add", |c| c.kind());
        let identity = self.combiner.and_then(|c| c.identity(self.elem));
        let identity =
            identity.ok_or_else(|| p.src.op_ref(p.group.ops[0]).unsupported("of such elements in shared memory"))?;
        self.over_places(p, &table, scope, |p, here, _| {
            let here = table.at(here);
            let start = p.splat(here.shape(), identity);
            p.store_to(table.memory, start, &table.access, &here)
        })?;
        p.barrier();
        let first = scope.get(k.name).expect("bound by the grid").base;
        let (length, end) = (p.constant_index(part), p.size(k.extent));
        let past = p.add_index(first, length);
        let bounds = [first, p.binary(op::core::MIN, past, end), p.constant_index(tile)];
        p.for_loop(bounds, &[], |p, number, _| {
            let here = scope.with(k.name, bind(&k, number, axis, tile));
            let at = self.places_of(p, &here)?;
            let updates = self.read_update(p, &here, k.name)?;
            let (here, place) = (table.at(&here), at_first(&table.access, table.places.name));
            p.scatter(updates, table.memory, &place, (0, at), &here, kind).map(|()| Vec::new())
        })?;
        p.barrier();
        let memory = p.memory_of(self.result)?;
        let lookup = |name: Name| (name == self.names()[1]).then_some(Dim::Static(0));
        let place =
            Access { exprs: self.place().exprs.iter().map(|e| e.substitute(&lookup)).collect(), ..self.place() };
        self.over_places(p, &table, scope, |p, here, at| {
            let sums = p.load_from(table.memory, &table.access, &table.at(here))?;
            p.scatter(sums, memory, &place, (1, at), here, kind)
        })
    }

    /// A table in shared memory of all places and a tile's elements of their slices.
    fn table(&self, p: &mut Program, schedule: &Schedule) -> Result<Table> {
        let [_, a, l] = self.sizes.iters;
        let known =
            || p.src.op_ref(p.group.ops[0]).error("has a schedule with 'programs', and a symbolic number of places");
        let places = Iter { extent: Dim::Static(a.extent.as_static().ok_or_else(known)?), ..a };
        let width = schedule.tile_of(l.name);
        let column = Iter { name: Name::new("_column"), extent: Dim::Static(width), ..l };
        let axis = schedule.axis_of(l.name);
        let (mut shape, mut exprs) = (vec![places.extent], vec![Dim::symbol(places.name)]);
        if axis.is_some() {
            // One column more than elements: rows begin in different banks, and lie as they are, without a swizzle.
            shape.push(column.extent + Dim::Static(1));
            exprs.push(Dim::symbol(column.name));
        }
        let sizes: Vec<i64> = shape.iter().map(|d| d.as_static().expect("of fixed sizes")).collect();
        let memory = p.alloc(&sizes, self.elem);
        let column = (column.name, bind(&column, p.constant_index(0), axis, width));
        let k = self.sizes.updates().name;
        let rows = (schedule.axis_of(k), schedule.tile_of(k));
        Ok(Table { memory, access: Access { shape, exprs }, places, column, rows, updates: k, elements: l.name })
    }

    /// Goes over the table's places, as many at a time as a tile has updates; `body` has the scope with their tile, and their numbers.
    fn over_places(
        &self,
        p: &mut Program,
        table: &Table,
        scope: &Scope,
        body: impl Fn(&mut Program, &Scope, Value) -> Result,
    ) -> Result {
        let (places, (axis, size)) = (table.places, table.rows);
        let bounds = [p.constant_index(0), p.size(places.extent), p.constant_index(size)];
        p.for_loop(bounds, &[], |p, first, _| {
            let mut here = scope.with(places.name, bind(&places, first, axis, size));
            here.binds.retain(|b| b.0 != table.updates);
            let at = p.iota(first, axis.unwrap_or(0), size);
            body(p, &here, at).map(|()| Vec::new())
        })
        .map(drop)
    }

    /// The one update of a slice replaces what is at its place.
    fn put(&self, p: &mut Program, scope: &Scope) -> Result {
        let ([_, a, _], k) = (self.sizes.iters, self.sizes.updates().name);
        let zero = p.constant_index(0);
        let batch = p.index(self.batch(), scope, Tiled::First)?;
        let indices = p.indices_of(self.indices, &[self.sizes.b, self.sizes.k])?;
        let index = p.read_scalar(indices, &[batch, zero]);
        let at = p.convert(index, Type::index());
        let update = self.read_update(p, &self.at_update(scope, k, zero), k)?;
        let scope = scope.with(a.name, Bind { base: at, axis: None, size: 1, extent: a.extent, exact: true });
        p.store(update, self.result, &self.place(), &scope)
    }

    /// The updates that a program asks: all of them, or those of its own places by their order, with its memory and the batch.
    fn updates_of(&self, p: &mut Program, scope: &Scope) -> Result<([Value; 3], Option<(Value, Value)>)> {
        let one = p.constant_index(1);
        let Some([order, starts]) = self.sorted else {
            return Ok(([p.constant_index(0), p.size(self.sizes.k), one], None));
        };
        let [_, a, _] = self.sizes.iters;
        let batch = p.index(self.batch(), scope, Tiled::First)?;
        let order = p.indices_of(order, &[self.sizes.b, self.sizes.k])?;
        let starts = p.indices_of(starts, &[self.sizes.b, a.extent + Dim::Static(1)])?;
        let first = p.index(Dim::symbol(a.name), scope, Tiled::First)?;
        let places = scope.get(a.name).map_or(1, |bind| bind.size);
        let end = (Dim::symbol(a.name) + Dim::Static(places)).min(a.extent);
        let end = p.index(end, scope, Tiled::First)?;
        let bounds = [first, end].map(|at| {
            let place = p.read_scalar(starts, &[batch, at]);
            p.convert(place, Type::index())
        });
        Ok(([bounds[0], bounds[1], one], Some((order, batch))))
    }
}

/// Places in shared memory.
struct Table {
    memory: Value,
    access: Access,
    places: Iter,
    /// A slice's elements in the table.
    column: (Name, Bind),
    /// The tile dimension along which updates and places run, and how many at a time.
    rows: (Option<usize>, i64),
    updates: Name,
    elements: Name,
}

impl Table {
    /// The scope with the table's columns in the place of the slice's elements.
    fn at(&self, scope: &Scope) -> Scope {
        let mut here = scope.with(self.column.0, self.column.1);
        here.binds.retain(|b| b.0 != self.elements);
        here
    }
}

/// The access with the first value of an iterator: places are named beside it.
fn at_first(access: &Access, iterator: Name) -> Access {
    let first = |name: Name| (name == iterator).then_some(Dim::Static(0));
    Access { exprs: access.exprs.iter().map(|e| e.substitute(&first)).collect(), shape: access.shape.clone() }
}

/// A nest over the dimensions of the updates as one over slices, updates and a slice's elements.
fn over_updates(nest: &Nest, sizes: &Sizes, scatter: OpRef) -> Nest {
    let batch = scatter.int("batch").unwrap_or(0) as usize;
    let axis = scatter.int("axis").unwrap_or(0) as usize;
    let own = scatter.body.ty(scatter.operand(1)).rank() - batch;
    let (lead, rest) = nest.iters.split_at(axis);
    let (updates, elements) = rest.split_at(own);
    let iters = sizes.update_iters();
    let parts = [lead, updates, elements].into_iter().zip(&iters);
    let map: Vec<(Name, Dim)> = parts.flat_map(|(dims, whole)| digits(dims, Dim::symbol(whole.name))).collect();
    nest.substituted(&map, iters.to_vec())
}

/// What iterators are of the number of their point, the last one the fastest.
fn digits(iters: &[Iter], number: Dim) -> Vec<(Name, Dim)> {
    let mut rest = number;
    let mut out = Vec::new();
    for (i, iter) in iters.iter().enumerate().rev() {
        let digit = if i == 0 { rest } else { rest.modulo(iter.extent) };
        out.push((iter.name, digit));
        rest = rest.floordiv(iter.extent);
    }
    out
}
