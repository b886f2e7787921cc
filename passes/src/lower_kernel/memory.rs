//! Loads, gathers and stores of tiles.

use super::program::{Program, RANK};
use super::scope::{Bind, Scope, Tiled};
use crate::plan_buffers::bytes_of;
use crate::schedule::access::{Access, has_index, mentions};
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Name, Result, Type, Value};

impl Program<'_> {
    /// The memory of a tensor that is an argument.
    pub fn memory_of(&self, value: Value) -> Result<Value> {
        let missing = || {
            Diagnostic::unsupported(
                self.loc,
                "a schedule that runs a nest together with one whose result it reads elsewhere",
            )
            .help("give the two nests different groups")
        };
        self.memory.get(&value).copied().ok_or_else(missing)
    }

    /// The memory of an array of indices, seen as another shape.
    pub fn indices_of(&mut self, value: Value, shape: &[Dim]) -> Result<Value> {
        let memory = self.memory_of(value)?;
        Ok(self.view(memory, shape))
    }
    /// One element.
    pub fn read_scalar(&mut self, memory: Value, at: &[Value]) -> Value {
        let elem = self.ty(memory).elem();
        self.build().op(op::kernel::READ).operand(memory).operands(at).result(elem).value()
    }

    /// Writes one element.
    pub fn write_scalar(&mut self, value: Value, memory: Value, at: &[Value]) {
        self.build().op(op::kernel::WRITE).operand(value).operand(memory).operands(at).build();
    }

    /// The one integer at `access`, as an index.
    pub fn read_index(&mut self, memory: Value, access: &Access, scope: &Scope) -> Result<Value> {
        let memory = self.view(memory, &access.shape);
        let at = self.starts(access, scope)?;
        let number = self.read_scalar(memory, &at);
        Ok(self.convert(number, Type::index()))
    }

    /// The elements of a tensor at `access`: a load where each tile dimension runs along a dimension of the memory, else a gather.
    /// The result has size 1 along tile dimensions on which it does not depend.
    pub fn load(&mut self, value: Value, access: &Access, scope: &Scope) -> Result<Value> {
        let memory = self.memory_of(value)?;
        self.load_from(memory, access, scope)
    }

    /// As [`Program::load`], of memory that is no tensor's of the nests.
    pub fn load_from(&mut self, memory: Value, access: &Access, scope: &Scope) -> Result<Value> {
        let by_tiles = scope.indices.iter().any(|&index| self.ty(index).is_tile());
        let apart = by_tiles && access.exprs.iter().any(|&e| has_index(e));
        match if apart { None } else { access.plain_by_tiles(&scope.tiled(), &self.aligned(scope)) } {
            Some(along) => self.load_plain(memory, access, &along, scope),
            None => self.gather(memory, access, scope),
        }
    }

    /// The iterators whose tiles start at multiples of their sizes and are all inside of the extent, with these.
    fn aligned(&self, scope: &Scope) -> Vec<(Name, i64)> {
        let tiles = scope.binds.iter().filter(|(_, bind)| bind.axis.is_some() && bind.size > 1 && bind.exact);
        let aligned = tiles.filter(|(_, bind)| self.is_multiple(bind.base, bind.size));
        aligned.map(|(name, bind)| (*name, bind.size)).collect()
    }

    fn load_plain(&mut self, memory: Value, access: &Access, along: &[Option<Name>], scope: &Scope) -> Result<Value> {
        let passes_through = self.nearly_fits() && self.is_read_once(memory, access);
        let hint = passes_through.then(|| Attr::str("no_allocate"));
        let memory = self.view(memory, &access.shape);
        let (dims, shape) = tile_dims(along, scope);
        let starts = self.starts(access, scope)?;
        let ty = Type::tile(&shape, self.ty(memory).elem(), None);
        let mut b = self.build();
        let op = b.op(op::kernel::LOAD).operand(memory).operands(&starts).attr("dims", Attr::i64s(&dims));
        Ok(op.maybe_attr("cache", hint).result(ty).value())
    }

    /// Whether the second-level cache can hold the kernel's results if it gives up first what was read: all of it takes more than the cache, and at most
    /// twice as much. Of more, results have to leave it among the reads, and the memory takes that 5 to 10 % more slowly than one after the other.
    fn nearly_fits(&self) -> bool {
        let all: Option<i64> = self.memory.values().map(|&memory| bytes_of(self.ty(memory)).as_static()).sum();
        all.is_some_and(|all| (self.target.cache_bytes + 1..=2 * self.target.cache_bytes).contains(&all))
    }

    /// Whether no program reads what another one does, nor twice: it would only take the place in the caches of what is read again.
    fn is_read_once(&self, memory: Value, access: &Access) -> bool {
        let here = |value: &Value| self.memory.get(value) == Some(&memory);
        let reads = self.group.nests.iter().flat_map(|n| self.src.operands(n.op).zip(&n.inputs));
        let places = reads.filter(|(value, read)| here(value) && *read != access).count();
        !self.target.is_cpu()
            && places == 0
            && self.spread_over.as_ref().is_some_and(|over| over.iter().all(|&n| access.mentions(n)))
            && !access.exprs.iter().any(|&e| is_window(e))
    }

    /// The index of the first element, for each dimension.
    fn starts(&mut self, access: &Access, scope: &Scope) -> Result<Vec<Value>> {
        access.exprs.iter().map(|&e| self.index(e, scope, Tiled::First)).collect()
    }

    /// A gather along the one dimension that is not plain. Several that are not, and what lies between them, are one dimension of the memory.
    fn gather(&mut self, memory: Value, access: &Access, scope: &Scope) -> Result<Value> {
        let tiled = scope.tiled();
        let odd = |e: Dim| !is_plain(e, &tiled);
        let first = access.exprs.iter().position(|&e| odd(e)).unwrap_or(0);
        let last = access.exprs.iter().rposition(|&e| odd(e)).unwrap_or(access.exprs.len().saturating_sub(1));
        let (at, (access, along)) = match gathered_along(access, first, last, &tiled) {
            Some(found) => (first, found),
            None => {
                let all = access.exprs.len().saturating_sub(1);
                (0, gathered_along(access, 0, all, &tiled).expect("one dimension is gathered along"))
            }
        };
        let place = access.exprs[at];
        let places = self.address(place, scope)?;
        let memory = self.view(memory, &access.shape);
        let mut rest = access;
        rest.exprs[at] = Dim::Static(0);
        let tile = self.emit_gather(memory, &rest, &along, at, places, scope)?;
        if let Some((exact, steps)) = self.steps(place, scope) {
            let op = self.out.defining_op(tile).expect("a gather gives the tile");
            self.out.set_attr(op, "steps", Attr::i64s(&steps));
            if !exact {
                self.out.set_attr(op, "clamped", Attr::bool(true));
            }
        } else if let Some(Bind { axis: Some(axis), exact, .. }) = falls_along(place, scope).filter(|_| !scope.may_miss)
        {
            let op = self.out.defining_op(tile).expect("a gather gives the tile");
            self.out.set_attr(op, "falls", Attr::i64(*axis as i64));
            if !exact {
                self.out.set_attr(op, "clamped", Attr::bool(true));
            }
        }
        Ok(tile)
    }

    /// How far the places of a CPU's rows of elements lie beyond the first, where that is the same for all rows and tiles, and whether the tile is inside of its extent
    /// along them: as of every second element, or of each twice.
    fn steps(&self, place: Dim, scope: &Scope) -> Option<(bool, Vec<i64>)> {
        let last = scope.binds.iter().filter_map(|b| b.1.axis.filter(|_| b.1.size > 1)).max()?;
        let mut along = scope.binds.iter().filter(|b| b.1.axis == Some(last) && mentions(place, b.0));
        let (&(name, bind), None) = (along.next()?, along.next()) else { return None };
        let fits = self.target.is_cpu() && !scope.may_miss && !has_index(place);
        if !fits || !self.is_multiple(bind.base, bind.size) {
            return None;
        }
        let mut ranges = self.ranges.clone();
        scope.binds.iter().for_each(|(name, bind)| ranges.set_iterator(*name, bind.extent));
        let tile = Name::new(&format!("{name}_tile"));
        ranges.set_iterator(tile, bind.extent.ceildiv(Dim::Static(bind.size)));
        let first = Dim::Static(bind.size) * Dim::symbol(tile);
        let at = |n: i64| ranges.simplify(place.substitute(&|x| (x == name).then_some(first + Dim::Static(n))));
        let start = at(0);
        let beyond = |n: i64| (at(n) - start).as_static().filter(|step| *step >= 0);
        let steps: Option<Vec<i64>> = (0..bind.size).map(beyond).collect();
        Some((bind.exact, steps?))
    }

    /// Index tiles that are within bounds wherever the iterators are, and 0 or in bounds past them.
    fn address(&mut self, e: Dim, scope: &Scope) -> Result<Value> {
        let at = self.index(e, scope, Tiled::Clamped)?;
        let at = self.broadcast(at, self.shape(at));
        // What was loaded past an extent is no index; dimensions along which it is only repeated do not matter.
        let shape = self.shape(at);
        let varies = |n: Name| scope.get(n).and_then(|b| b.axis).is_some_and(|axis| shape[axis] > 1);
        let mask = if has_index(e) { self.inside(scope, &varies) } else { None };
        Ok(match mask {
            None => at,
            Some(mask) => {
                let zero = self.constant_index(0);
                self.select(mask, at, zero)
            }
        })
    }

    pub fn emit_gather(
        &mut self,
        memory: Value,
        access: &Access,
        along: &[Option<Name>],
        axis: usize,
        at: Value,
        scope: &Scope,
    ) -> Result<Value> {
        let (dims, mut shape) = tile_dims(along, scope);
        for (s, n) in shape.iter_mut().zip(self.shape(at)) {
            *s = (*s).max(n);
        }
        let starts = self.starts(access, scope)?;
        let ty = Type::tile(&shape, self.ty(memory).elem(), None);
        let mut b = self.build();
        let op = b.op(op::kernel::GATHER).operand(memory).operands(&starts).operand(at);
        let op = op.maybe_attr("bounded", scope.may_miss.then(|| Attr::bool(true)));
        Ok(op.attr("dims", Attr::i64s(&dims)).attr("axis", Attr::i64(axis as i64)).result(ty).value())
    }

    /// Combines a tile, repeated to the shape of all that runs along tile dimensions here, atomically with the elements of `value` at `access`,
    /// where `at` is the index along `axis`.
    pub fn scatter(
        &mut self,
        tile: Value,
        memory: Value,
        access: &Access,
        (axis, at): (usize, Value),
        scope: &Scope,
        kind: &str,
    ) -> Result {
        let memory = self.view(memory, &access.shape);
        let Some(along) = access.plain(&scope.tiled()) else {
            return Err(Diagnostic::unsupported(self.loc, "a schedule that tiles what a scatter cannot store along"));
        };
        let (dims, _) = tile_dims(&along, scope);
        let tile = self.convert(tile, self.ty(memory).elem());
        let tile = self.broadcast(tile, scope.shape());
        let at = self.broadcast(at, self.shape(at));
        let starts = self.starts(access, scope)?;
        let mut b = self.build();
        let op = b.op(op::kernel::SCATTER).operand(tile).operand(memory).operands(&starts).operand(at);
        let op = op.attr("dims", Attr::i64s(&dims)).attr("axis", Attr::i64(axis as i64)).attr("kind", Attr::str(kind));
        op.results(&[]).build();
        Ok(())
    }

    /// Writes a tile, repeated to the shape of all that runs along tile dimensions here.
    ///
    /// # Errors
    /// If a schedule tiles an iterator that the result cannot be stored along.
    pub fn store(&mut self, tile: Value, value: Value, access: &Access, scope: &Scope) -> Result {
        let memory = self.memory_of(value)?;
        self.store_to(memory, tile, access, scope)
    }

    /// As [`Program::store`], to memory that is no tensor's of the nests.
    pub fn store_to(&mut self, memory: Value, tile: Value, access: &Access, scope: &Scope) -> Result {
        let tiled = scope.tiled();
        let clips = |name: &Name| {
            let bind = scope.get(*name).expect("a tiled iterator is bound");
            let iter = crate::schedule::access::Iter {
                name: *name,
                extent: bind.extent,
                kind: rc_dialects::loop_::IterKind::Parallel,
            };
            bind.exact || access.clips(&iter)
        };
        let along = access.plain(&tiled).filter(|_| tiled.iter().all(clips));
        let Some(along) = along.filter(|a| tiled.iter().all(|t| a.contains(&Some(*t)))) else {
            let what = format!(
                "a schedule that tiles {} where the result's map is {:?} of {:?}",
                words(&tiled),
                access.exprs,
                access.shape
            );
            return Err(
                Diagnostic::unsupported(self.loc, what).help("tile iterators along which the result can be stored")
            );
        };
        let memory = self.view(memory, &access.shape);
        let tile = self.convert(tile, self.ty(memory).elem());
        let (dims, shape) = tile_dims(&along, scope);
        let tile = self.broadcast(tile, shape);
        let starts = self.starts(access, scope)?;
        let mut b = self.build();
        b.op(op::kernel::STORE).operand(tile).operand(memory).operands(&starts).attr("dims", Attr::i64s(&dims)).build();
        Ok(())
    }
}

/// The access with the dimensions from `first` to `last` as one, and what runs along the others; `None` where one of those is not plain.
fn gathered_along(access: &Access, first: usize, last: usize, tiled: &[Name]) -> Option<(Access, Vec<Option<Name>>)> {
    let mut merged = access.clone();
    let dims = || access.shape.iter().zip(&access.exprs).take(last + 1).skip(first);
    let size = dims().fold(Dim::Static(1), |n, (&size, _)| n * size);
    let expr = dims().fold(Dim::Static(0), |at, (&size, &e)| at * size + e);
    let range = first..(last + 1).min(access.shape.len());
    merged.shape.splice(range.clone(), [size]);
    merged.exprs.splice(range, [Dim::Static(0)]);
    let along = merged.plain(tiled)?;
    merged.exprs[first] = expr;
    Some((merged, along))
}

fn is_plain(e: Dim, tiled: &[Name]) -> bool {
    !has_index(e) && Access { shape: vec![Dim::Static(1)], exprs: vec![e] }.plain(tiled).is_some()
}

/// For each tile dimension the memory dimension along which it runs, and the tile's shape.
pub fn tile_dims(along: &[Option<Name>], scope: &Scope) -> (Vec<i64>, [i64; RANK]) {
    let (mut dims, mut shape) = (vec![-1; RANK], [1; RANK]);
    for (d, name) in along.iter().enumerate() {
        let Some(bind) = name.and_then(|n| scope.get(n)) else { continue };
        if let Some(axis) = bind.axis {
            dims[axis] = d as i64;
            shape[axis] = bind.size;
        }
    }
    (dims, shape)
}

fn words(names: &[Name]) -> String {
    names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")
}

/// The tiled iterator along which an expression falls by one in each step.
fn falls_along(e: Dim, scope: &Scope) -> Option<&Bind> {
    let falls = |name: Name| mentions(e, name) && !mentions(e + Dim::symbol(name), name);
    scope.binds.iter().find(|(name, bind)| bind.axis.is_some() && falls(*name)).map(|(_, bind)| bind)
}

/// Whether the places of two iterators are added element by element, as those of a window and within it are: neighbours then have elements in common.
fn is_window(e: Dim) -> bool {
    let mut names = Vec::new();
    e.for_each_symbol(&mut |n| names.push(n));
    names.sort();
    names.dedup();
    let at = |one: Option<Name>| e.substitute(&|n| Some(Dim::Static(i64::from(Some(n) == one))));
    names.iter().filter(|&&n| at(Some(n)) - at(None) == Dim::Static(1)).count() > 1
}
