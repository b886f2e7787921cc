//! The region of a nest: the scalars that a point of the space computes, and the operands it reads for them.

use super::joined;
use crate::fuse::padding::{padding_value, pads_windows, pads_with_zeros, stays_outside};
use crate::fuse::reads::{Source, Space, index_dims, sources};
use crate::fuse::{Class, classify};
use rc_dialects::loop_::{GATHER, INDEX, NEST, YIELD};
use rc_dialects::op;
use rc_ir::{Attr, Block, Body, Builder, Dim, InsertPoint, Loc, Name, Op, OpRef, OpState, Result, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a nest gives.
pub struct NestSpec {
    /// How many of the innermost iterators are reduced, where [`Emitter::reduced`] does not say which.
    pub reduce: usize,
    pub out_map: Vec<Dim>,
    pub combiner: &'static str,
    pub acc: Option<Type>,
    /// The type and the name of each result; all lie where `out_map` says.
    pub results: Vec<(Type, Name)>,
}

/// Builds one nest.
pub struct Emitter<'a> {
    source: &'a Body,
    tensors: &'a FxHashMap<Value, Value>,
    kernel: &'a mut Body,
    space: Space,
    nest: Op,
    region: Block,
    inputs: Vec<(Value, Vec<Dim>)>,
    /// Whether what is read at the cursor is zero outside, and the inputs for which that is so.
    pads: bool,
    zero_outside: Vec<bool>,
    memo: FxHashMap<(Value, Vec<Dim>, bool), Value>,
    /// Symbols for places that only count within bounds, by the places and the bounds: what is computed from them may rely on these.
    places: Vec<(Name, Dim, Dim)>,
    pub loc: Loc,
    /// The reduced iterators.
    pub reduced: Vec<usize>,
    /// The iterator along which every prefix is combined.
    pub scanned: Option<usize>,
    /// Whether operands that are padded with zeros, for windows or (`contracts`) as factors of a product, are read so.
    pub bounded: bool,
    pub contracts: bool,
    /// Of windows' maxima or minima: the padding that is none of them, instead of which an element of the same window is read.
    pub extreme: Option<f64>,
}

impl<'a> Emitter<'a> {
    pub fn new(
        source: &'a Body,
        tensors: &'a FxHashMap<Value, Value>,
        kernel: &'a mut Body,
        block: Block,
        space: Space,
    ) -> Self {
        // The nest is made anew once its operands and result are known; this one only holds the region.
        let mut state = OpState::new(&NEST, Loc::UNKNOWN);
        state.regions = 1;
        let nest = kernel.create(state);
        kernel.append(block, nest);
        let region = kernel.regions(nest)[0];
        let region = kernel.add_block(region, &[]);
        let (inputs, memo) = (Vec::new(), FxHashMap::default());
        Emitter {
            source,
            tensors,
            kernel,
            space,
            nest,
            region,
            inputs,
            pads: false,
            zero_outside: Vec::new(),
            memo,
            places: Vec::new(),
            loc: Loc::UNKNOWN,
            reduced: Vec::new(),
            scanned: None,
            bounded: false,
            contracts: false,
            extreme: None,
        }
    }

    fn builder(&mut self) -> Builder<'_> {
        Builder { body: self.kernel, at: InsertPoint::End(self.region), loc: self.loc }
    }

    /// The element of a value of the fusion at a map over the space.
    pub fn scalar(&mut self, value: Value, map: &[Dim]) -> Result<Value> {
        let map: Vec<Dim> = map.iter().map(|&d| self.space.ranges.simplify(d)).collect();
        let mut stack = vec![value];
        // What it is made of by elementwise operations alone comes first, in this loop: such chains may be long.
        loop {
            let next = stack[stack.len() - 1];
            let place = if self.source.ty(next).is_tensor() { map.clone() } else { Vec::new() };
            if let Some(operand) = self.missing_operand(next, &map) {
                stack.push(operand);
                continue;
            }
            let scalar = self.scalar_of_made(next, place)?;
            stack.pop();
            if stack.is_empty() {
                return Ok(scalar);
            }
        }
    }

    /// An operand of an elementwise operation, read where its result is, that has no scalar yet.
    fn missing_operand(&self, value: Value, map: &[Dim]) -> Option<Value> {
        let known = |v: Value| {
            let place = if self.source.ty(v).is_tensor() { map.to_vec() } else { Vec::new() };
            self.memo.contains_key(&(v, place, self.pads))
        };
        let is_made = !self.tensors.contains_key(&value) && !known(value);
        let op = self.source.defining_op(value).filter(|_| is_made)?;
        let elementwise = self.source.op_ref(op).has(Traits::ELEMENTWISE);
        self.source.operands(op).filter(|_| elementwise).find(|&v| !known(v))
    }

    /// As [`Emitter::scalar`], of a value whose operands have theirs.
    fn scalar_of_made(&mut self, value: Value, map: Vec<Dim>) -> Result<Value> {
        if let Some(&scalar) = self.memo.get(&(value, map.clone(), self.pads)) {
            return Ok(scalar);
        }
        let scalar = match self.tensors.get(&value) {
            Some(&tensor) => self.input(tensor, &map),
            None => {
                let op = self.source.defining_op(value).expect("arguments are tensors of the kernel");
                let outer = std::mem::replace(&mut self.loc, self.source.loc(op));
                let scalar = self.compute(self.source.op_ref(op), &map);
                self.loc = outer;
                scalar?
            }
        };
        self.memo.insert((value, map, self.pads), scalar);
        Ok(scalar)
    }

    fn input(&mut self, tensor: Value, map: &[Dim]) -> Value {
        let ty = self.kernel.ty(tensor);
        if !ty.is_tensor() {
            return tensor;
        }
        let map = self.at_places(map);
        let same =
            |i: &usize| self.inputs[*i].0 == tensor && self.inputs[*i].1 == map && self.zero_outside[*i] == self.pads;
        if let Some(i) = (0..self.inputs.len()).find(same) {
            return self.kernel.block_arg(self.region, i);
        }
        self.inputs.push((tensor, map));
        self.zero_outside.push(self.pads);
        let arg = self.kernel.add_block_arg(self.region, ty.elem());
        let name = self.kernel.value_name(tensor);
        self.kernel.set_value_name(arg, name);
        arg
    }

    fn compute(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        let elem = self.source.ty(op.result(0)).elem();
        match classify(op) {
            Class::Splat if op.has(Traits::CONSTANT) => return Ok(self.constant(op, elem)),
            Class::Splat if op.is(op::core::EXTENT) => {
                let expr = op.attr("expr").and_then(|a| a.as_shape()).unwrap_or_default();
                return Ok(self.index(expr[0]));
            }
            Class::Splat => {
                let operands: Vec<Source> = op.operands().map(|v| (v, Some(Vec::new()))).collect();
                return self.elementwise(op, &operands, elem);
            }
            Class::Reindex | Class::Pointwise => {}
            _ => return Err(op.error("is used before its nest")),
        }
        match op.name().as_str() {
            op::core::IOTA => {
                let dim = op.int("dim").unwrap_or(0) as usize;
                let index = self.index(map[dim]);
                return Ok(self.convert(index, elem));
            }
            op::core::GATHER => return self.gather(op, map),
            op::core::CONCAT => return self.concat(op, map),
            op::core::PAD
                if self.bounded
                    && pads_with_zeros(op)
                    && (self.contracts || pads_windows(op, false))
                    && stays_outside(op, &|value| self.tensors.contains_key(&value)) =>
            {
                return self.pad_operand(op, map);
            }
            op::core::PAD if self.extreme.is_some() && padding_value(op) == self.extreme && pads_windows(op, true) => {
                return self.pad_extreme(op, map);
            }
            op::core::PAD => return self.pad(op, map),
            _ => {}
        }
        let unknown = || op.error("has no index map");
        let operands = sources(op, map, &self.space.ranges).ok_or_else(unknown)?;
        if classify(op) == Class::Reindex {
            let (operand, at) = &operands[0];
            return self.scalar(*operand, &at.clone().ok_or_else(unknown)?);
        }
        self.elementwise(op, &operands, elem)
    }

    fn elementwise(&mut self, op: OpRef, operands: &[Source], elem: Type) -> Result<Value> {
        let mut scalars = Vec::new();
        for (operand, at) in operands {
            scalars.push(self.scalar(*operand, &at.clone().unwrap_or_default())?);
        }
        let mut state = OpState::new(op.name(), op.loc());
        state.operands = scalars.into_iter().collect();
        state.results.push(elem);
        state.attrs = op.body.attrs(op.op);
        let made = self.kernel.create(state);
        self.kernel.append(self.region, made);
        let value = self.kernel.result(made, 0);
        self.kernel.set_value_name(value, self.source.value_name(op.result(0)));
        Ok(value)
    }

    fn constant(&mut self, op: OpRef, elem: Type) -> Value {
        let value = op.attr("value").expect("a constant has a value");
        let scalar = match value.data() {
            rc_ir::AttrData::Dense { data, .. } => scalar_attr(elem, &data.bytes),
            _ => value,
        };
        self.builder().op(op::core::CONSTANT).attr("value", scalar).result(elem).value()
    }

    fn index(&mut self, expr: Dim) -> Value {
        let expr = self.at_places(&[expr])[0];
        self.builder().op(&INDEX).attr("expr", Attr::shape(&[expr])).value()
    }

    pub fn convert(&mut self, value: Value, ty: Type) -> Value {
        if self.kernel.ty(value) == ty {
            value
        } else {
            self.builder().op(op::core::CONVERT).operand(value).result(ty).value()
        }
    }

    /// The product of two factors in the type `acc`.
    pub fn product(&mut self, factors: [Value; 2], acc: Type) -> Value {
        let factors = factors.map(|factor| self.convert(factor, acc));
        self.builder().op(op::core::MUL).operands(&factors).value()
    }

    fn gather(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        let axis = op.int("axis").unwrap_or(0) as usize;
        let (batch, own) = index_dims(op).ok_or_else(|| op.error("has more batch dimensions than its indices"))?;
        // One number everywhere has no memory to look into.
        let constant =
            self.source.defining_op(op.operand(0)).filter(|&o| classify(self.source.op_ref(o)) == Class::Splat);
        if constant.is_some() {
            return self.scalar(op.operand(0), &[]);
        }
        let table = self.tensors.get(&op.operand(0)).copied();
        let table = table.ok_or_else(|| op.unsupported("of a table computed in the same kernel"))?;
        let index = self.scalar(op.operand(1), &[&map[..batch], &map[axis..axis + own]].concat())?;
        let mut at = map[..axis].to_vec();
        at.push(Dim::symbol("_0"));
        at.extend_from_slice(&map[axis + own..]);
        let at = self.at_places(&at);
        Ok(self.builder().op(&GATHER).operands(&[table, index]).attr("at", Attr::shape(&at)).value())
    }

    /// The operand that holds the place: later ones are chosen where the place is not before them.
    fn concat(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        if let Some((value, at)) = joined::joined(op, map, &self.space.ranges) {
            return self.scalar(value, &at);
        }
        let dim = op.int("dim").unwrap_or(0) as usize;
        let mut start = Dim::Static(0);
        let mut chosen: Option<Value> = None;
        for operand in op.operands() {
            let size = self.source.ty(operand).shape()[dim];
            if size == Dim::Static(0) {
                continue;
            }
            let mut at = map.to_vec();
            at[dim] = map[dim] - start;
            let element = self.within(operand, &at, &[(dim, size)])?;
            chosen = Some(match chosen {
                None => element,
                Some(before) => {
                    let here = self.not_before(map[dim], start);
                    self.builder().op(op::core::SELECT).operands(&[here, element, before]).value()
                }
            });
            start = start + size;
        }
        // Of empty tensors only there is no element to compute; any number stands for it.
        Ok(chosen.unwrap_or_else(|| {
            let elem = self.source.ty(op.result(0)).elem();
            let zero = rc_dialects::core::scalar::scalar_attr(elem, rc_dialects::core::scalar::Scalar::Int(0));
            let zero = zero.expect("a scalar type has a zero");
            self.builder().op(op::core::CONSTANT).attr("value", zero).result(elem).value()
        }))
    }

    /// Of a product's operand: it is read where the map leads, and is zero outside of its bounds.
    fn pad_operand(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        let low = op.attr("low").and_then(|a| a.as_shape()).unwrap_or(&[]);
        let at: Vec<Dim> = map.iter().zip(low).map(|(&i, &l)| i - l).collect();
        self.zero_outside(op.operand(0), &at)
    }

    fn zero_outside(&mut self, value: Value, at: &[Dim]) -> Result<Value> {
        let outer = std::mem::replace(&mut self.pads, true);
        let value = self.scalar(value, at);
        self.pads = outer;
        value
    }

    /// The element at a place of which `sizes` counts where it is within the value's bounds; elsewhere any number. Memory is read where the map
    /// leads, so that neighbours are read together; where a table of indices is computed on the way, the place is moved into the bounds.
    fn within(&mut self, value: Value, at: &[Dim], sizes: &[(usize, Dim)]) -> Result<Value> {
        let clamped: Vec<Dim> = (0..at.len())
            .map(|d| sizes.iter().find(|s| s.0 == d).map_or(at[d], |&(_, size)| self.clamp(at[d], size)))
            .collect();
        if clamped.iter().zip(at).all(|(a, b)| a == b) {
            return self.scalar(value, at);
        }
        if !self.is_read_by_maps(value) {
            return self.scalar(value, &clamped);
        }
        let mut symbols = at.to_vec();
        for &(d, size) in sizes.iter().filter(|s| clamped[s.0] != at[s.0]) {
            symbols[d] = self.symbol_within(at[d], size);
        }
        self.zero_outside(value, &symbols)
    }

    /// A symbol for a place of which only what is in `0..size` counts: a reshape from there on need not carry from one dimension to the next.
    fn symbol_within(&mut self, place: Dim, size: Dim) -> Dim {
        let known = self.places.iter().find(|p| (p.1, p.2) == (place, size)).map(|p| p.0);
        let name = known.unwrap_or_else(|| {
            let name = Name::new(&format!("within {}", self.places.len()));
            self.space.ranges.set_iterator(name, size);
            self.places.push((name, place, size));
            name
        });
        Dim::symbol(name)
    }

    /// Expressions with the places that symbols stand for.
    fn at_places(&self, exprs: &[Dim]) -> Vec<Dim> {
        let mut exprs = exprs.to_vec();
        for &(name, place, _) in self.places.iter().rev() {
            exprs.iter_mut().for_each(|e| *e = e.substitute(&|n| (n == name).then_some(place)));
        }
        exprs
    }

    /// Whether all that a value of the fusion is computed from is read at index maps, not at computed indices.
    fn is_read_by_maps(&self, value: Value) -> bool {
        let (mut waiting, mut seen) = (vec![value], FxHashSet::default());
        while let Some(value) = waiting.pop() {
            if self.tensors.contains_key(&value) || !seen.insert(value) {
                continue;
            }
            let Some(op) = self.source.defining_op(value).map(|op| self.source.op_ref(op)) else { continue };
            if op.is(op::core::GATHER) {
                return false;
            }
            waiting.extend(op.operands());
        }
        true
    }

    /// Of what windows have maxima of: the nearest element, which is in the same window.
    fn pad_extreme(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        let low = op.attr("low").and_then(|a| a.as_shape()).unwrap_or(&[]);
        let shape = self.source.ty(op.operand(0)).shape();
        let at: Vec<Dim> = map.iter().zip(low).zip(&shape).map(|((&i, &l), &n)| self.clamp(i - l, n)).collect();
        self.scalar(op.operand(0), &at)
    }

    fn pad(&mut self, op: OpRef, map: &[Dim]) -> Result<Value> {
        let low = op.attr("low").and_then(|a| a.as_shape()).unwrap_or(&[]);
        let shape = self.source.ty(op.operand(0)).shape();
        let outside = self.scalar(op.operand(1), &[])?;
        if shape.contains(&Dim::Static(0)) {
            return Ok(outside);
        }
        let at: Vec<Dim> = map.iter().zip(low).map(|(&i, &l)| i - l).collect();
        let sizes: Vec<(usize, Dim)> = shape.iter().copied().enumerate().collect();
        let mut value = self.within(op.operand(0), &at, &sizes)?;
        for ((&i, &l), &n) in map.iter().zip(low).zip(&shape) {
            if !self.space.ranges.always_le(l, i) {
                let inside = self.not_before(i, l);
                value = self.builder().op(op::core::SELECT).operands(&[inside, value, outside]).value();
            }
            if !self.space.ranges.always_le(i, l + n - Dim::Static(1)) {
                let beyond = self.not_before(i, l + n);
                value = self.builder().op(op::core::SELECT).operands(&[beyond, outside, value]).value();
            }
        }
        Ok(value)
    }

    /// `first` where iterator `dim` is 0, else what `rest` reads at the place `at`, moved into the extent for the first point's sake.
    pub fn after_first(
        &mut self,
        dim: usize,
        first: Attr,
        at: Dim,
        rest: impl FnOnce(&mut Self, Dim) -> Result<Value>,
    ) -> Result<Value> {
        let clamped = self.clamp(at, self.space.extents[dim]);
        let value = rest(self, clamped)?;
        let ty = self.kernel.ty(value);
        let first = self.builder().op(op::core::CONSTANT).attr("value", first).result(ty).value();
        let later = self.not_before(self.space.index(dim), Dim::Static(1));
        Ok(self.builder().op(op::core::SELECT).operands(&[later, value, first]).value())
    }

    /// `index >= bound`.
    fn not_before(&mut self, index: Dim, bound: Dim) -> Value {
        let (a, b) = (self.index(index), self.index(bound));
        self.builder().op(op::core::COMPARE).operands(&[a, b]).attr("kind", Attr::str("ge")).result(Type::i1()).value()
    }

    /// The index moved into `0..size`.
    fn clamp(&self, index: Dim, size: Dim) -> Dim {
        let last = size - Dim::Static(1);
        let r = &self.space.ranges;
        let low = if r.always_le(Dim::Static(0), index) { index } else { index.max(Dim::Static(0)) };
        if r.always_le(low, last) { low } else { low.min(last) }
    }

    /// Ends the region with `scalars` and gives the nest's one result.
    pub fn finish(self, scalars: &[Value], spec: NestSpec) -> Value {
        self.finish_all(scalars, spec)[0]
    }

    /// Ends the region with `scalars` and gives the nest's results.
    pub fn finish_all(mut self, scalars: &[Value], spec: NestSpec) -> Vec<Value> {
        self.builder().op(&YIELD).operands(scalars).build();
        let rank = self.space.iters.len();
        let reduced = |d: usize| self.reduced.contains(&d) || d >= rank - spec.reduce;
        let kind = |d: usize| match () {
            () if self.scanned == Some(d) => "scan",
            () if reduced(d) => "reduce",
            () => "parallel",
        };
        let words = |items: Vec<&str>| Attr::array(&items.into_iter().map(Attr::str).collect::<Vec<_>>());
        let maps: Vec<Attr> = self.inputs.iter().map(|(_, m)| Attr::shape(m)).collect();
        let operands: Vec<Value> = self.inputs.iter().map(|i| i.0).collect();
        let attrs = [
            ("iters", words(self.space.iters.iter().map(|n| n.as_str()).collect())),
            ("kinds", words((0..rank).map(kind).collect())),
            ("extents", Attr::shape(&self.space.extents)),
            ("maps", Attr::array(&maps)),
            ("out_maps", Attr::array(&vec![Attr::shape(&spec.out_map); spec.results.len()])),
            ("combiner", words(vec![spec.combiner; spec.results.len()])),
        ];
        let mut state = OpState::new(&NEST, self.loc);
        state.operands = operands.into_iter().collect();
        state.results.extend(spec.results.iter().map(|(ty, _)| *ty));
        let acc = spec.acc.map(|t| ("acc", Attr::ty(t)));
        let outside: Vec<i64> = (0..).zip(&self.zero_outside).filter(|z| *z.1).map(|z| z.0).collect();
        let outside = (!outside.is_empty()).then(|| ("zero_outside", Attr::i64s(&outside)));
        state.attrs = Attr::dict(attrs.into_iter().chain(acc).chain(outside).map(|(k, v)| (Name::new(k), v)));
        state.regions = 1;
        let nest = self.kernel.create(state);
        let region = self.kernel.regions(nest)[0];
        let from = self.region;
        let types: Vec<Type> = self.kernel.block_args(from).map(|v| self.kernel.ty(v)).collect();
        let to = self.kernel.add_block(region, &types);
        for i in 0..types.len() {
            let (old, new) = (self.kernel.block_arg(from, i), self.kernel.block_arg(to, i));
            self.kernel.set_value_name(new, self.kernel.value_name(old));
            self.kernel.replace_all_uses(old, new);
        }
        let ops: Vec<Op> = self.kernel.ops(from).collect();
        for op in ops {
            self.kernel.move_to_end(to, op);
        }
        self.kernel.insert_before(self.nest, nest);
        self.kernel.erase(self.nest);
        let results: Vec<Value> = self.kernel.results(nest).collect();
        for (&result, (_, name)) in results.iter().zip(spec.results) {
            self.kernel.set_value_name(result, name);
        }
        results
    }
}

/// A scalar attribute of `elem` from the bytes of a splat.
fn scalar_attr(elem: Type, bytes: &[u8]) -> Attr {
    use rc_dialects::core::scalar::{Scalar, scalar_attr};
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    if elem.is_float() {
        return Attr::new(rc_ir::AttrData::Float { bits, ty: elem });
    }
    let value = Scalar::from_bits(bits, elem).and_then(|value| scalar_attr(elem, value));
    value.expect("an element is a float or an integer")
}
