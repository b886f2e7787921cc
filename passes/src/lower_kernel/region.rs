//! A nest's region on tiles: every scalar operation becomes the same operation on all elements of a tile.

use super::program::{Program, RANK};
use super::scope::{Bind, Held, Scope, Tiled};
use crate::schedule::access::{Access, mentions};
use crate::schedule::group::inverse;
use crate::schedule::nest::Nest;
use rc_dialects::loop_::{self, IterKind};
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Name, Op, OpRef, Result, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Values of a region: a constant waits for the shape that it is used at.
#[derive(Clone, Copy)]
pub(super) enum Element {
    Tile(Value),
    Constant(Attr),
}

impl Program<'_> {
    /// The yielded values number `wanted` of a nest at the points of the scope, as tiles.
    pub fn region(&mut self, nest: &Nest, scope: &Scope, wanted: &[usize]) -> Result<Vec<Value>> {
        let src = self.src;
        let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        let yielded = src.last_op(entry).expect("a verified nest yields");
        let outer = std::mem::replace(&mut self.loc, src.loc(nest.op));
        let needed = needed(src, yielded, wanted);
        let mut elements: FxHashMap<Value, Element> = FxHashMap::default();
        if self.has_branches(nest, scope) {
            for &i in wanted {
                self.value_of(nest, scope, src.operand(yielded, i), &mut elements)?;
            }
            self.loc = outer;
            let values: Vec<Value> = wanted.iter().map(|&i| src.operand(yielded, i)).collect();
            return Ok(values.into_iter().map(|v| self.tile_of(elements[&v], [1; RANK])).collect());
        }
        for (i, arg) in src.block_args(entry).enumerate().filter(|(_, a)| needed.contains(a)) {
            let tile = self.read(nest, i, scope)?;
            elements.insert(arg, Element::Tile(tile));
        }
        for &v in needed.iter().filter(|&&v| src.defining_block(v) != Some(entry)) {
            elements.insert(v, self.outer(v)?);
        }
        for op in src.ops(entry).filter(|&op| src.results(op).any(|r| needed.contains(&r))).collect::<Vec<_>>() {
            self.loc = src.loc(op);
            let element = self.element(nest, scope, src.op_ref(op), &elements)?;
            elements.insert(src.result(op, 0), element);
        }
        self.loc = outer;
        let values: Vec<Value> = wanted.iter().map(|&i| src.operand(yielded, i)).collect();
        Ok(values.into_iter().map(|v| self.tile_of(elements[&v], [1; RANK])).collect())
    }

    /// A value from outside of the region.
    pub(super) fn outer(&self, value: Value) -> Result<Element> {
        let constant = rc_ir::op_def::constant_of(self.src, value);
        let unsupported = || {
            Diagnostic::unsupported(
                self.loc,
                format!("a value of type {} from outside in a nest's region", self.src.ty(value)),
            )
            .help("give the nest a tensor of rank 0 as an operand")
        };
        constant.map(Element::Constant).ok_or_else(unsupported)
    }

    pub(super) fn tile_of(&mut self, element: Element, shape: [i64; RANK]) -> Value {
        match element {
            Element::Tile(tile) => tile,
            Element::Constant(value) => self.splat(shape, value),
        }
    }

    pub(super) fn element(
        &mut self,
        nest: &Nest,
        scope: &Scope,
        op: OpRef,
        known: &FxHashMap<Value, Element>,
    ) -> Result<Element> {
        if op.has(Traits::CONSTANT) {
            let value = op.attr("value").ok_or_else(|| op.error("expects a value"))?;
            return Ok(Element::Constant(value));
        }
        if op.name() == &loop_::INDEX {
            let expr = op.attr("expr").and_then(|a| a.as_shape()).unwrap_or_default()[0];
            let at = self.index(nest.resolve(expr), scope, Tiled::All)?;
            let shape = self.shape(at);
            return Ok(Element::Tile(self.broadcast(at, shape)));
        }
        if op.name() == &loop_::GATHER {
            return self.gathered(nest, scope, op, known).map(Element::Tile);
        }
        if !op.has(Traits::ELEMENTWISE) || op.results().len() != 1 {
            let error = Diagnostic::unsupported(op.loc(), format!("'{}' in a nest's region", op.name().pretty()));
            return Err(error.help("elementwise core ops, loop.index and loop.gather work on tiles"));
        }
        let tiles: Vec<Value> = op
            .operands()
            .filter_map(|v| match known[&v] {
                Element::Tile(t) => Some(t),
                Element::Constant(_) => None,
            })
            .collect();
        let shape = self.common(&tiles);
        let mut values: Vec<Value> = op.operands().map(|v| self.tile_of(known[&v], shape)).collect();
        let elem = op.body.ty(op.result(0));
        self.guard_division(op, scope, &mut values);
        Ok(Element::Tile(self.elementwise(op.name().as_str(), &values, op.body.attrs(op.op), elem)))
    }

    /// Divides what lies past the extents by one: there the divisor may be zero.
    fn guard_division(&mut self, op: OpRef, scope: &Scope, values: &mut [Value]) {
        let divides = op.name() == op::core::DIV || op.name() == op::core::REM;
        if !divides
            || self.ty(values[1]).elem().is_float()
            || rc_ir::op_def::constant_of(&self.out, values[1]).is_some()
        {
            return;
        }
        if let Some(mask) = self.inside(scope, &|_| true) {
            let one = self.splat([1; RANK], Attr::int(1, self.ty(values[1]).elem()));
            values[1] = self.select(mask, values[1], one);
        }
    }

    fn gathered(&mut self, nest: &Nest, scope: &Scope, op: OpRef, known: &FxHashMap<Value, Element>) -> Result<Value> {
        let at = op.attr("at").and_then(|a| a.as_shape()).unwrap_or_default();
        let exprs: Vec<_> = at.iter().map(|&e| nest.resolve(e)).collect();
        let access = Access::new(&op.body.ty(op.operand(0)).shape(), &exprs).normalized(&nest.ranges, &nest.iters);
        let mut inner = scope.clone();
        inner.indices.clear();
        for v in op.operands().skip(1) {
            let index = match self.one_index(nest, scope, v)? {
                Some(index) => index,
                None => {
                    let tile = self.tile_of(known[&v], [1; RANK]);
                    self.convert(tile, Type::index())
                }
            };
            inner.indices.push(index);
        }
        self.load(op.operand(0), &access, &inner)
    }

    /// The operand of the nest that an index is, at most converted.
    fn index_operand(&self, nest: &Nest, index: Value) -> Option<usize> {
        let src = self.src;
        let mut value = index;
        while let Some(op) = src.defining_op(value) {
            if src.name(op) != op::core::CONVERT {
                return None;
            }
            value = src.operand(op, 0);
        }
        let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        src.block_args(entry).position(|a| a == value)
    }

    /// Whether a yielded value is zero wherever a tile lies past the extent of what is reduced, as reads are there and what is made of zeros alone.
    pub(super) fn is_zero_past(&self, nest: &Nest, yielded: usize, scope: &Scope) -> bool {
        let past = |(name, bind): &(Name, Bind)| {
            let reduces = nest.iter(*name).is_some_and(|i| i.kind == IterKind::Reduce);
            (bind.axis.is_some() && !bind.exact && reduces).then_some(*name)
        };
        let names: Vec<Name> = scope.binds.iter().filter_map(past).collect();
        let src = self.src;
        let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        let value = src.operand(src.last_op(entry).expect("a verified nest yields"), yielded);
        !names.is_empty()
            && self.is_made_of_zeros(nest, value, &|i| names.iter().all(|&n| self.reads_zero_past(nest, i, n, scope)))
    }

    fn is_made_of_zeros(&self, nest: &Nest, value: Value, zero: &dyn Fn(usize) -> bool) -> bool {
        let src = self.src;
        let Some(op) = src.defining_op(value) else {
            let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
            return src.block_args(entry).position(|a| a == value).is_some_and(zero);
        };
        let name = src.name(op);
        let keeps = [op::core::CONVERT, op::core::MUL, op::core::ADD].iter().any(|&keeps| name == keeps);
        keeps && src.operands(op).all(|v| self.is_made_of_zeros(nest, v, zero))
    }

    /// Whether an operand is read from memory, and is zero past the extent of an iterator: it ends there, or its places are bounded.
    fn reads_zero_past(&self, nest: &Nest, operand: usize, name: Name, scope: &Scope) -> bool {
        let (access, value) = (&nest.inputs[operand], self.src.operand(nest.op, operand));
        let extent = nest.iter(name).map(|i| i.extent);
        let ends = |(&e, &size): (&Dim, &Dim)| e == Dim::symbol(name) && Some(size) == extent;
        let bounded = |d: usize| mentions(access.exprs[d], name) && !nest.is_inside(access, d);
        let from_memory = self.group.producer(self.src, value).is_none() && self.memory.contains_key(&value);
        from_memory
            && match access.plain(&scope.tiled()) {
                Some(_) => access.exprs.iter().zip(&access.shape).any(ends),
                None => self.is_bounded(nest, operand) && (0..access.exprs.len()).any(bounded),
            }
    }

    /// An index that is the same for the whole tile, where it is read from memory: as a number, so that what it points at can be loaded
    /// as any other tile.
    fn one_index(&mut self, nest: &Nest, scope: &Scope, index: Value) -> Result<Option<Value>> {
        let src = self.src;
        let Some(i) = self.index_operand(nest, index) else { return Ok(None) };
        let (operand, access) = (src.operand(nest.op, i), &nest.inputs[i]);
        let fits = |h: &&Held| h.value == operand && h.access == *access && scope.agrees(access, &h.binds);
        if let Some(known) = self.numbers.iter().find(fits) {
            return Ok(Some(known.tile));
        }
        let memory = self.memory.get(&operand).copied();
        match memory.filter(|_| !scope.tiled().iter().any(|&n| access.mentions(n))) {
            None => Ok(None),
            Some(memory) => self.read_index(memory, access, scope).map(Some),
        }
    }

    /// Reads the nest's indices that are the same for all that the scope stands for, once for all that reads by them later.
    pub fn hold_indices(&mut self, nest: &Nest, scope: &Scope) -> Result {
        let src = self.src;
        let entry = src.op_ref(nest.op).entry(0).expect("a verified nest has a body");
        self.numbers.clear();
        for gather in src.ops(entry).filter(|&op| src.name(op) == &loop_::GATHER) {
            for index in src.operands(gather).skip(1) {
                let Some(i) = self.index_operand(nest, index) else { continue };
                let (value, access) = (src.operand(nest.op, i), &nest.inputs[i]);
                let Some(number) = self.one_index(nest, scope, index)? else { continue };
                let binds = scope.binds.iter().filter(|b| access.mentions(b.0)).copied().collect();
                self.numbers.push(Held { value, tile: number, access: access.clone(), binds });
            }
        }
        Ok(())
    }

    /// Whether elements of operand `i` may lie outside, where they are zero.
    fn is_bounded(&self, nest: &Nest, i: usize) -> bool {
        if self.target.is_cpu() { nest.reaches_outside(i) } else { nest.zero_outside[i] }
    }

    /// The element of operand `i`: from registers, from memory, or computed again.
    pub(super) fn read(&mut self, nest: &Nest, i: usize, scope: &Scope) -> Result<Value> {
        let (value, access) = (self.src.operand(nest.op, i), &nest.inputs[i]);
        if let Some(tile) = self.held_tile(value, access, scope) {
            return Ok(tile);
        }
        if let Some(tile) = self.load_kept(value, access, scope)? {
            self.hold(value, tile, access, scope);
            return Ok(tile);
        }
        let group = self.group;
        let Some((from, result)) = group.producer(self.src, value) else {
            let tile = match self.is_bounded(nest, i) && access.plain(&scope.tiled()).is_none() {
                true => self.gather_bounded(nest, i, scope)?,
                false if self.is_inside(nest, i) => self.load_inside(nest, i, scope)?,
                false => self.load(value, access, scope)?,
            };
            self.hold(value, tile, access, scope);
            return Ok(tile);
        };
        let map = if from.is_pointwise() { inverse(from, &from.outputs[result], access) } else { None };
        let Some(map) = map else {
            let what = "a schedule that runs a nest together with one whose result it reads elsewhere";
            return Err(Diagnostic::unsupported(self.loc, what).help("give the two nests different groups"));
        };
        let changed: Vec<(Name, Dim)> = map.into_iter().filter(|(n, d)| d.as_symbol() != Some(*n)).collect();
        let again = from.substituted(&changed, nest.iters.clone());
        let tile = self.region(&again, scope, &[result])?[0];
        let tile = self.convert(tile, self.src.ty(value).elem());
        self.hold(value, tile, access, scope);
        Ok(tile)
    }
}

/// What the yielded values number `wanted` are computed from.
fn needed(src: &rc_ir::Body, yielded: Op, wanted: &[usize]) -> FxHashSet<Value> {
    let mut out = FxHashSet::default();
    let mut stack: Vec<Value> = wanted.iter().map(|&i| src.operand(yielded, i)).collect();
    while let Some(v) = stack.pop() {
        let op = src.defining_op(v).filter(|&o| src.parent(o) == src.parent(yielded));
        if out.insert(v)
            && let Some(op) = op
        {
            let skip = usize::from(src.name(op) == &loop_::GATHER);
            stack.extend(src.operands(op).skip(skip));
        }
    }
    out
}
