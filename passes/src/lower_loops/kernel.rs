//! The `loop.kernel` of one fusion.

use super::emit::{Emitter, NestSpec};
use super::{collapse, symbols_in};
use crate::fuse::reads::{Space, contraction_space, iterator_name, reduced_dims};
use crate::fuse::{Class, classify, forward_map, row_of, symbol_ranges};
use crate::schedule::Target;
use rc_dialects::core::attention::shared_heads;
use rc_dialects::core::dot::{EXACT_SUMS, PRECISION};
use rc_dialects::func::symbols;
use rc_dialects::interfaces::{Contraction, ReductionInfo};
use rc_dialects::loop_::{ATTENTION, KERNEL, RETURN, SCATTER, SORT};
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::dim_range::Ranges;
use rc_ir::{Attr, Block, Body, Builder, Dim, Name, Op, OpRef, Result, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// A kernel, with the types that it takes and gives: the fusion's, or with dimensions collapsed.
pub struct LoweredFusion {
    pub body: Body,
    pub inputs: Vec<Type>,
    pub results: Vec<Type>,
}

/// Makes the kernel of a fusion.
pub fn kernel_of(body: &Body, fusion: Op, target: Option<&Target>) -> Result<LoweredFusion> {
    let op = body.op_ref(fusion);
    let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
    let (inputs, results) = (op.operand_types(), op.result_types());
    let mut new = new_function(&KERNEL, "kernel", &inputs, &results, op.loc());
    let root = new.body.root();
    if let Some(kind) = op.attr("kind") {
        new.body.set_attr(root, "origin", kind);
    }
    declare_symbols(body, entry, &mut new.body);
    let mut lowering = Lowering {
        source: body,
        target,
        entry,
        ranges: symbol_ranges(body),
        tensors: FxHashMap::default(),
        ops: FxHashSet::default(),
    };
    lowering.ops = body.ops(entry).collect();
    for (arg, &value) in body.block_args(entry).zip(&new.args) {
        new.body.set_value_name(value, body.value_name(arg));
        lowering.tensors.insert(arg, value);
    }
    lowering.run(&mut new.body, new.entry)?;
    let (inputs, results) = collapse::collapse(&mut new.body);
    Ok(LoweredFusion { body: new.body, inputs, results })
}

/// Declares the symbols that the fusion's types and attributes mention, as the function around it does.
fn declare_symbols(from: &Body, entry: Block, to: &mut Body) {
    let values = from.block_args(entry).chain(from.ops(entry).flat_map(|op| from.results(op)));
    let attrs = from.ops(entry).filter_map(|op| from.attrs(op).as_dict()).flatten();
    let shapes = attrs.filter_map(|(_, attr)| attr.as_shape()).flatten().copied();
    let used = symbols_in(values.flat_map(|v| from.ty(v).shape()).chain(shapes));
    let declared: Vec<_> = symbols(from).into_iter().filter(|s| used.contains(&s.name)).collect();
    if !declared.is_empty() {
        rc_dialects::func::set_symbols(to, &declared);
    }
}

/// The iterator of queries among those of `loop.attention`.
const M: usize = 2;
/// Queries of heads that share keys that are packed into one tile.
const PACKED: i64 = 64;

pub(super) struct Lowering<'a> {
    pub(super) source: &'a Body,
    /// The machine, where the module names one.
    pub(super) target: Option<&'a Target>,
    entry: Block,
    pub(super) ranges: Ranges,
    /// Tensors of the kernel by values of the fusion: arguments and results of nests.
    pub(super) tensors: FxHashMap<Value, Value>,
    ops: FxHashSet<Op>,
}

impl Lowering<'_> {
    fn run(&mut self, kernel: &mut Body, block: Block) -> Result {
        let source = self.source;
        let end = source.last_op(self.entry).expect("a fusion ends in core.yield");
        let yielded: Vec<Value> = source.operands(end).collect();
        for op in source.ops(self.entry) {
            let op = source.op_ref(op);
            match classify(op) {
                Class::Reduce => self.reduce(kernel, block, op)?,
                Class::Scan => self.scan(kernel, block, op)?,
                Class::Contract => self.contract(kernel, block, op, &yielded)?,
                Class::Attention if op.is(op::core::ATTENTION_BACKWARD) => {
                    self.attention_backward(kernel, block, op, &yielded)?
                }
                Class::Attention => self.attention(kernel, block, op, &yielded)?,
                Class::Alone if op.is(op::core::SCATTER) => self.scatter(kernel, block, op)?,
                Class::Alone if op.is(op::core::SORT) => self.sort(kernel, block, op)?,
                Class::Alone => {
                    return Err(op
                        .unsupported("has no loop form")
                        .help("only reductions, products, attention and elementwise operations lower to loops"));
                }
                _ => {}
            }
        }
        let mut results = Vec::new();
        for &value in &yielded {
            results.push(match self.tensors.get(&value) {
                Some(&tensor) if source.defining_op(value).is_some() => tensor,
                _ => self.pointwise(kernel, block, value)?,
            });
        }
        let mut b = Builder::at_end(kernel, block);
        b.op(&RETURN).operands(&results).build();
        Ok(())
    }

    fn emitter<'e>(&'e self, kernel: &'e mut Body, block: Block, space: Space) -> Emitter<'e> {
        Emitter::new(self.source, &self.tensors, kernel, block, space)
    }

    fn pointwise(&mut self, kernel: &mut Body, block: Block, value: Value) -> Result<Value> {
        let ty = self.source.ty(value);
        let space = self.space_of_result(&ty.shape());
        let map = space.identity();
        let loc = self.source.defining_op(value).map_or(self.source.loc(self.source.root()), |op| self.source.loc(op));
        let mut emitter = self.emitter(kernel, block, space.clone());
        emitter.loc = loc;
        let scalar = emitter.scalar(value, &map)?;
        let spec = NestSpec {
            reduce: 0,
            out_map: space.symbols(),
            combiner: "none",
            acc: None,
            results: vec![(ty, self.source.value_name(value))],
        };
        Ok(emitter.finish(&[scalar], spec))
    }

    /// The space of a result: where it has the shape of the fusion's sums, with the iterators over which these are.
    fn space_of_result(&self, shape: &[Dim]) -> Space {
        let sums = self.source.ops(self.entry).filter(|&op| classify(self.source.op_ref(op)) == Class::Reduce);
        let of_shape = |&op: &Op| self.source.ty(self.source.result(op, 0)).shape().as_slice() == shape;
        let Some(dims) = sums.filter(of_shape).find_map(|op| reduced_dims(self.source.op_ref(op))) else {
            return Space::new(shape, &self.ranges);
        };
        let kept = (0..shape.len() + dims.len()).filter(|d| !dims.contains(d));
        Space::at(shape, kept, &self.ranges)
    }

    /// Lowers a reduction, with those that go beside it.
    fn reduce(&mut self, kernel: &mut Body, block: Block, op: OpRef) -> Result {
        if self.tensors.contains_key(&op.result(0)) {
            return Ok(());
        }
        let unknown = || op.error("does not say what it reduces");
        let info = ReductionInfo::of(op).ok_or_else(unknown)?;
        let shape = self.source.ty(op.operand(0)).shape();
        let space = Space::new(&shape, &self.ranges);
        let map = space.identity();
        let dims = reduced_dims(op).ok_or_else(unknown)?;
        let out_map = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| space.index(d)).collect();
        let source = self.source;
        let all: Vec<OpRef> = [op.op].into_iter().chain(self.beside(op)).map(|op| source.op_ref(op)).collect();
        let mut emitter = self.emitter(kernel, block, space);
        emitter.loc = op.loc();
        emitter.reduced = dims;
        emitter.bounded = info.combiner.kind() == "add";
        emitter.extreme = matches!(info.combiner.kind(), "max" | "argmax").then_some(f64::NEG_INFINITY);
        let scalars = all.iter().map(|op| emitter.scalar(op.operand(0), &map)).collect::<Result<Vec<_>>>()?;
        let acc = matches!(info.combiner.kind(), "add" | "mul").then_some(info.acc);
        let results = all.iter().map(|op| (source.ty(op.result(0)), source.value_name(op.result(0)))).collect();
        let spec = NestSpec { reduce: 0, out_map, combiner: info.combiner.kind(), acc, results };
        let tensors = emitter.finish_all(&scalars, spec);
        self.tensors.extend(all.iter().map(|op| op.result(0)).zip(tensors));
        Ok(())
    }

    /// Sums over columns of the same rows that do not follow from one another: on a GPU one nest has them all, which reads the rows once.
    fn beside(&self, op: OpRef) -> Vec<Op> {
        let rows =
            |op: OpRef| (op.str("kind").map(str::to_string), row_of(op.body, op.op), op.body.ty(op.result(0)).elem());
        let own = rows(op);
        let columns = own.1.as_ref().is_some_and(|(shape, dims)| !dims.contains(&(shape.len() - 1)));
        if self.target.is_none_or(|target| target.is_cpu()) || own.0.as_deref() != Some("add") || !columns {
            return Vec::new();
        }
        let others = self.source.ops(self.entry).map(|other| self.source.op_ref(other));
        let fits = |other: &OpRef| {
            other.op != op.op
                && classify(*other) == Class::Reduce
                && !self.tensors.contains_key(&other.result(0))
                && rows(*other) == own
                && self.follows_tensors(other.operand(0))
        };
        others.filter(fits).map(|other| other.op).collect()
    }

    /// Whether a value is computed element by element from what the kernel has already.
    fn follows_tensors(&self, value: Value) -> bool {
        let (mut waiting, mut seen) = (vec![value], FxHashSet::default());
        while let Some(value) = waiting.pop() {
            let made = self.source.defining_op(value).filter(|_| !self.tensors.contains_key(&value));
            let Some(op) = made.filter(|&op| seen.insert(op)) else { continue };
            if classify(self.source.op_ref(op)).is_anchor() {
                return false;
            }
            waiting.extend(self.source.operands(op));
        }
        true
    }

    fn scan(&mut self, kernel: &mut Body, block: Block, op: OpRef) -> Result {
        let unknown = || op.error("does not say what it scans");
        let info = ReductionInfo::of(op).ok_or_else(unknown)?;
        let ty = self.source.ty(op.result(0));
        let space = Space::new(&ty.shape(), &self.ranges);
        let &[dim] = info.dims.as_slice() else { return Err(unknown()) };
        // Point i of the iterator is the i-th that is met: from the end, with `reverse`.
        let mut map = space.identity();
        if op.bool("reverse") {
            map[dim] = space.extents[dim] - Dim::Static(1) - map[dim];
        }
        let mut emitter = self.emitter(kernel, block, space.clone());
        emitter.loc = op.loc();
        emitter.scanned = Some(dim);
        let scalar = match op.bool("exclusive") {
            false => emitter.scalar(op.operand(0), &map)?,
            true => {
                let identity = info.combiner.identity(ty.elem()).ok_or_else(unknown)?;
                let step = if op.bool("reverse") { Dim::Static(1) } else { Dim::Static(-1) };
                emitter.after_first(dim, identity, map[dim] + step, |e, before| {
                    let mut map = map.clone();
                    map[dim] = before;
                    e.scalar(op.operand(0), &map)
                })?
            }
        };
        let acc = matches!(info.combiner.kind(), "add" | "mul").then_some(info.acc);
        let spec = NestSpec {
            reduce: 0,
            out_map: map,
            combiner: info.combiner.kind(),
            acc,
            results: vec![(ty, self.source.value_name(op.result(0)))],
        };
        let tensor = emitter.finish(&[scalar], spec);
        self.tensors.insert(op.result(0), tensor);
        Ok(())
    }

    /// Lowers a scatter, whose operands are tensors: numbers that are the same everywhere become one. Sums of narrow
    /// floats are formed in f32 and rounded by a nest; sorted ones, which are formed a place at a time, as they are stored.
    fn scatter(&mut self, kernel: &mut Body, block: Block, op: OpRef) -> Result {
        let ty = self.source.ty(op.result(0));
        let sums = matches!(op.str("kind"), Some("add" | "mul"));
        let sorted = op.operands().len() == 5;
        let acc = if sums && !sorted { rc_dialects::constraints::default_acc(ty.elem()) } else { ty.elem() };
        let (operands, names) = (self.as_tensors(kernel, block, op)?, self.names(3));
        let mut b = Builder::at_end(kernel, block);
        b.loc = op.loc();
        let made = b.op(&SCATTER).operands(&operands).attrs(op.body.attrs(op.op)).attr("iters", names);
        let tensor = made.result(ty.with_elem(acc)).value();
        self.tensors.insert(op.result(0), tensor);
        if acc != ty.elem() {
            let space = Space::new(&ty.shape(), &self.ranges);
            let (map, out) = (space.identity(), space.symbols());
            let mut emitter = self.emitter(kernel, block, space);
            emitter.loc = op.loc();
            let sum = emitter.scalar(op.result(0), &map)?;
            let rounded = emitter.convert(sum, ty.elem());
            let spec = NestSpec {
                reduce: 0,
                out_map: out,
                combiner: "none",
                acc: None,
                results: vec![(ty, self.source.value_name(op.result(0)))],
            };
            let tensor = emitter.finish(&[rounded], spec);
            self.tensors.insert(op.result(0), tensor);
        }
        Ok(())
    }

    /// Lowers a sort, whose operands are tensors.
    fn sort(&mut self, kernel: &mut Body, block: Block, op: OpRef) -> Result {
        let (operands, names) = (self.as_tensors(kernel, block, op)?, self.names(2));
        let mut b = Builder::at_end(kernel, block);
        b.loc = op.loc();
        let made = b.op(&SORT).operands(&operands).attrs(op.body.attrs(op.op)).attr("iters", names);
        let made = made.results(&op.result_types()).build();
        for (i, value) in op.results().enumerate() {
            let tensor = kernel.result(made, i);
            kernel.set_value_name(tensor, self.source.value_name(value));
            self.tensors.insert(value, tensor);
        }
        Ok(())
    }

    /// The operands as tensors of the kernel.
    fn as_tensors(&mut self, kernel: &mut Body, block: Block, op: OpRef) -> Result<Vec<Value>> {
        let mut operands = Vec::new();
        for value in op.operands() {
            operands.push(match self.tensors.get(&value) {
                Some(&tensor) => tensor,
                None => self.pointwise(kernel, block, value)?,
            });
        }
        Ok(operands)
    }
    /// The names of so many iterators.
    fn names(&self, count: usize) -> Attr {
        let names: Vec<Attr> = (0..count).map(|d| Attr::str(iterator_name(d, &self.ranges).as_str())).collect();
        Attr::array(&names)
    }

    /// Lowers a product; its nest stores through the transposes that follow.
    fn contract(&mut self, kernel: &mut Body, block: Block, op: OpRef, yielded: &[Value]) -> Result {
        let unknown = || op.error("does not say what it contracts");
        let roles = op.def().and_then(|d| d.interface::<Contraction>()).and_then(|c| (c.0)(op)).ok_or_else(unknown)?;
        let (space, maps) = contraction_space(op, &self.ranges).ok_or_else(unknown)?;
        let result = op.result(0);
        let outs = self.source.ty(result).rank();
        let place: Vec<Dim> = (0..outs).map(|d| space.index(d)).collect();
        let end = self.end_of_moves(result, yielded);
        let out_map = self
            .out_map(result, end, &place, &space.ranges)
            .ok_or_else(|| op.error("cannot write its result's index map"))?;
        let rank = space.iters.len();
        let mut emitter = self.emitter(kernel, block, space);
        emitter.loc = op.loc();
        emitter.reduced = (outs..rank).collect();
        (emitter.bounded, emitter.contracts) = (true, true);
        let lhs = emitter.scalar(op.operand(0), &maps[0])?;
        let rhs = emitter.scalar(op.operand(1), &maps[1])?;
        let ty = self.source.ty(end);
        let results = vec![(ty, self.source.value_name(end))];
        let (scalars, spec) = if rank > outs {
            (
                vec![lhs, rhs],
                NestSpec { reduce: rank - outs, out_map, combiner: "contract", acc: Some(roles.acc), results },
            )
        } else {
            // Nothing is summed over.
            let product = emitter.product([lhs, rhs], roles.acc);
            let rounded = emitter.convert(product, ty.elem());
            (vec![rounded], NestSpec { reduce: 0, out_map, combiner: "none", acc: None, results })
        };
        let contracts = spec.combiner == "contract";
        let tensor = emitter.finish(&scalars, spec);
        if contracts {
            let nest = kernel.defining_op(tensor).expect("a nest");
            let kept = [PRECISION.name, EXACT_SUMS.name].into_iter().filter_map(|name| Some((name, op.attr(name)?)));
            kept.for_each(|(name, value)| kernel.set_attr(nest, name, value));
        }
        self.tensors.insert(end, tensor);
        Ok(())
    }

    /// The result of the kernel that is nothing but the elements of `value` put elsewhere; without one, `value` itself.
    pub(super) fn end_of_moves(&self, value: Value, yielded: &[Value]) -> Value {
        let moved = |&end: &Value| forward_map(self.source, value, end, &self.ops, &self.ranges).is_some();
        yielded.iter().copied().find(moved).unwrap_or(value)
    }

    /// Lowers attention; its nest stores through the transposes and reshapes that follow, which then need none of their own.
    fn attention(&mut self, kernel: &mut Body, block: Block, op: OpRef, yielded: &[Value]) -> Result {
        let rank = self.source.ty(op.result(0)).rank();
        if rank != 3 && rank != 4 {
            return Err(op
                .unsupported(format!("on tensors of rank {rank}"))
                .help("canonicalize before, or reshape to [batch, heads, length, size]"));
        }
        let (q, k, v) = (self.shape(op, 0), self.shape(op, 1), self.shape(op, 2));
        let heads = rank - 3;
        let h = if heads == 1 { q[1] } else { Dim::Static(1) };
        let group = shared_heads(self.source.ty(op.operand(0)), self.source.ty(op.operand(1)));
        let group = Dim::Static(group.map_err(|why| op.error(why))?);
        let packed = heads == 1 && self.packs(op, group, q[2], yielded);
        // Packed, the queries of all heads that share keys follow one another.
        let [h, m] = if packed { [k[1], group * q[2]] } else { [h, q[rank - 2]] };
        let extents = [q[0], h, m, k[rank - 2], q[rank - 1], v[rank - 1]];
        let names = self.attention_names();
        let mut ranges = self.ranges.clone();
        names.iter().zip(extents).for_each(|(&n, e)| ranges.set_iterator(n, e));
        let space = Space { iters: names, extents: extents.to_vec(), ranges };
        let place = |rest: &[usize], keys: bool| -> Vec<Dim> {
            let mut map: Vec<Dim> = (0..=heads).chain(rest.iter().copied()).map(|i| space.index(i)).collect();
            if packed && !keys {
                let (own, row) = (space.index(M).floordiv(q[2]), space.index(M).modulo(q[2]));
                map[1] = space.ranges.simplify(map[1] * group + own);
                if rest[0] == M {
                    map[2] = space.ranges.simplify(row);
                }
            } else if keys && !packed {
                map[heads] = space.ranges.simplify(map[heads].floordiv(group));
            }
            map
        };
        let (mut inputs, mut maps) = (Vec::new(), Vec::new());
        for (i, rest) in [[M, 4], [3, 4], [3, 5], [M, 3]].iter().enumerate().take(op.operands().len()) {
            let mut map = place(rest, i == 1 || i == 2);
            for (index, size) in map.iter_mut().zip(self.shape(op, i)) {
                if size == Dim::Static(1) {
                    *index = Dim::Static(0);
                }
            }
            let (tensor, map) = self.follow(kernel, block, op.operand(i), map, &space.ranges)?;
            inputs.push(tensor);
            maps.push(Attr::shape(&map));
        }
        if let Some(&counts) = op.group("mask").get(1) {
            let one = self.source.ty(counts).shape()[0] == Dim::Static(1);
            let map = vec![if one { Dim::Static(0) } else { space.index(0) }];
            let (tensor, map) = self.follow(kernel, block, counts, map, &space.ranges)?;
            inputs.push(tensor);
            maps.push(Attr::shape(&map));
        }
        let (mut ends, mut out_maps) = (Vec::new(), Vec::new());
        for (result, rest) in op.results().zip([&[M, 5][..], &[M]]) {
            let end = self.end_of_moves(result, yielded);
            let map = self
                .out_map(result, end, &place(rest, false), &space.ranges)
                .ok_or_else(|| op.error("cannot write its result's index map"))?;
            ends.push(end);
            out_maps.push(Attr::shape(&map));
        }
        let scale = op.attr("scale").and_then(|a| a.as_float());
        let scale = scale.or_else(|| q[rank - 1].as_static().map(|d| 1.0 / (d as f64).sqrt()));
        let scale = scale.ok_or_else(|| op.unsupported("with a symbolic head size").help("give 'scale'"))?;
        let mut b = Builder::at_end(kernel, block);
        b.loc = op.loc();
        let iters: Vec<Attr> = space.iters.iter().map(|n| Attr::str(n.as_str())).collect();
        let types: Vec<Type> = ends.iter().map(|&end| self.source.ty(end)).collect();
        let made = b
            .op(&ATTENTION)
            .operands(&inputs)
            .attr("iters", Attr::array(&iters))
            .attr("extents", Attr::shape(&extents))
            .attr("maps", Attr::array(&maps))
            .attr("out_maps", Attr::array(&out_maps))
            .attr("scale", Attr::float(scale, Type::f64()))
            .attr("causal", Attr::bool(op.bool("causal")))
            .results(&types)
            .build();
        for (i, end) in ends.into_iter().enumerate() {
            let tensor = kernel.result(made, i);
            kernel.set_value_name(tensor, self.source.value_name(end));
            self.tensors.insert(end, tensor);
        }
        Ok(())
    }

    /// Whether the few queries of heads that share keys are taken together, as rows of one tile: where they lie so, and a mask does not
    /// follow from their places.
    fn packs(&self, op: OpRef, group: Dim, queries: Dim, yielded: &[Value]) -> bool {
        let (Some(group), Some(queries)) = (group.as_static(), queries.as_static()) else { return false };
        let one = queries == 1;
        let lies =
            self.tensors.contains_key(&op.operand(0)) && self.end_of_moves(op.result(0), yielded) == op.result(0);
        group > 1 && queries > 0 && group * queries <= PACKED && (one || lies && !op.bool("causal"))
    }

    pub(super) fn attention_names(&self) -> Vec<Name> {
        let names = ["b", "h", "m", "n", "d", "e"];
        let fresh = |(i, n): (usize, &&str)| {
            let name = Name::new(n);
            if self.ranges.get(name).is_none() { name } else { iterator_name(i + 20, &self.ranges) }
        };
        names.iter().enumerate().map(fresh).collect()
    }

    pub(super) fn shape(&self, op: OpRef, i: usize) -> Vec<Dim> {
        self.source.ty(op.operand(i)).shape().to_vec()
    }

    /// Follows a value back through index maps to a tensor of the kernel; numbers that are the same everywhere become one.
    pub(super) fn follow(
        &mut self,
        kernel: &mut Body,
        block: Block,
        value: Value,
        map: Vec<Dim>,
        ranges: &Ranges,
    ) -> Result<(Value, Vec<Dim>)> {
        if let Some(&tensor) = self.tensors.get(&value) {
            return Ok((tensor, map));
        }
        let op = self.source.defining_op(value).expect("arguments are tensors of the kernel");
        let op = self.source.op_ref(op);
        if classify(op) == Class::Splat {
            return Ok((self.pointwise(kernel, block, value)?, map));
        }
        let sources = crate::fuse::reads::sources(op, &map, ranges).filter(|_| classify(op) == Class::Reindex);
        match sources.as_deref() {
            Some([(operand, Some(map))]) => self.follow(kernel, block, *operand, map.clone(), ranges),
            _ => Err(op.unsupported("computed inside an attention's operand").help("it has to be a fusion of its own")),
        }
    }

    /// The place in `end` of the element of `from` at `map`.
    pub(super) fn out_map(&self, from: Value, end: Value, map: &[Dim], ranges: &Ranges) -> Option<Vec<Dim>> {
        let (space, forward) = forward_map(self.source, from, end, &self.ops, &self.ranges)?;
        let bind = |n: Name| space.iters.iter().position(|&i| i == n).map(|d| map[d]);
        Some(forward.iter().map(|d| ranges.simplify(d.substitute(&bind))).collect())
    }
}
