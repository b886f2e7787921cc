//! Kernels whose product runs on Hopper's warpgroups: one more warpgroup copies, the others compute.
//!
//! The function's operations are gone through twice. The *producer* (one thread of the last warpgroup) runs the loops around
//! the product's loads and starts their copies; the *consumers* run everything else. Tiles go through stages of shared
//! memory: of each, one `mbarrier` says that it is full, another that it is empty. Loops carry the stage at hand and the
//! parity of its barrier's phase.

use super::{Distribute, Mapped};
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Layout, WARP};
use rc_ir::{Attr, Block, Body, Dim, Op, OpRef, Result, Type, Value};

/// Threads of a warpgroup.
pub(super) const WARPGROUP: i64 = 4 * WARP;
/// Elements of 16 bits in a row of shared memory, which one swizzle spans.
pub(super) const WIDTH: i64 = 64;
/// Registers of a multiprocessor.
const REGISTERS: i64 = 65536;
/// Depth of one instruction, in elements.
const DEPTH: i64 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Producer,
    Consumer,
}

/// A load that the copy engine carries out.
struct Stream {
    load: Op,
    map: Value,
    /// All stages: `[stages, rows, 64]`, or `[stages, blocks, rows, 64]` where rows are wider.
    memory: Value,
    rows: i64,
    blocks: i64,
}

/// What a function with a producer and consumers needs to know.
pub(super) struct Roles {
    role: Role,
    /// The loops around the product, innermost first.
    loops: Vec<Op>,
    streams: [Stream; 2],
    stages: i64,
    full: Value,
    empty: Value,
    /// Warpgroups that compute.
    pub(super) consumers: i64,
    /// The stage at hand, and the parity of the phase that is waited for.
    stage: Value,
    parity: Value,
    /// Whether this thread speaks for its warp.
    leads: Value,
    /// Where results wait for their stores, and whether the copy engine stores some.
    pub(super) staging: Option<Value>,
    pub(super) stores: bool,
}

/// The products of warpgroups in a function.
pub(super) fn warpgroup_dots(body: &Body) -> Vec<Op> {
    let dots = body.walk().into_iter().filter(|&op| body.name(op) == "rc.kernel.dot");
    dots.filter(|&op| body.op_ref(op).str("unit") == Some("wgmma")).collect()
}

impl<'s> Distribute<'s> {
    /// The whole function, by roles.
    pub(super) fn specialized(&mut self, entry: Block, dots: &[Op]) -> Result {
        let src = self.src;
        let dot = src.op_ref(dots[0]);
        if dots.len() > 1 {
            let error = src.op_ref(dots[1]).unsupported("with unit = wgmma beside another one in a kernel");
            return Err(error.help("choose unit = mma"));
        }
        let consumers = self.warps / 4;
        let streams = [self.stream(dot, 0)?, self.stream(dot, 1)?];
        let Some(Layout::Shared { stages }) = Layout::of(dot.operand_types()[0]) else {
            unreachable!("checked by stream")
        };
        let barriers = Type::memref(&[Dim::Static(stages)], Type::i64(), 3);
        let align = [("align", Attr::i64(8))];
        let (full, empty) = (self.emit.alloc_with(barriers, &align)?, self.emit.alloc_with(barriers, &align)?);
        let zero = self.emit.index(0)?;
        let lane = self.emit.lane_digit(1, WARP)?;
        let leads = self.emit.compare("eq", lane, zero)?;
        let loops = enclosing_loops(src, dot.op);
        let roles = Roles {
            role: Role::Producer,
            loops,
            streams,
            stages,
            full,
            empty,
            consumers,
            stage: zero,
            parity: zero,
            leads,
            staging: None,
            stores: false,
        };
        self.roles = Some(roles);
        let thread = self.emit.thread_id()?;
        let first = self.emit.index(consumers * WARPGROUP)?;
        let copies = self.emit.compare("eq", thread, first)?;
        self.branch(copies, |d| d.set_up_barriers())?;
        self.emit.op("rc.kernel.barrier", &[], &[], None)?;
        let produces = self.emit.compare("ge", thread, first)?;
        let made = self.emit.op("rc.kernel.if", &[&[produces]], &[], Some(&[]))?;
        let at = self.emit.block;
        self.region_of(made, |d| {
            d.set_registers(40, "decrease")?;
            d.branch(copies, |d| d.produce(entry))
        })?;
        self.region_of(made, |d| d.consume(entry))?;
        self.emit.block = at;
        self.roles = None;
        self.emit.op("rc.kernel.return", &[], &[], None)?;
        let root = self.emit.body.root();
        self.emit.body.set_attr(root, "threads", Attr::i64((consumers + 1) * WARPGROUP));
        self.emit.body.set_attr(root, "min_blocks", Attr::i64(1));
        Ok(())
    }

    pub(super) fn roles(&self) -> &Roles {
        self.roles.as_ref().expect("only asked for in functions with roles")
    }
    /// Operations in a new region of `made`, which ends in a yield.
    fn region_of(&mut self, made: Op, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let at = self.emit.block;
        let region = self.emit.body.add_region(made);
        self.emit.block = self.emit.body.add_block(region, &[]);
        body(self)?;
        self.emit.op("rc.kernel.yield", &[&[]], &[], None)?;
        self.emit.block = at;
        Ok(())
    }
    pub(super) fn branch(&mut self, condition: Value, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let made = self.emit.op("rc.kernel.if", &[&[condition]], &[], Some(&[]))?;
        self.region_of(made, body)
    }
    fn set_registers(&mut self, count: i64, action: &str) -> Result {
        if self.roles().consumers == 1 {
            return Ok(()); // Two warpgroups have as many as a thread may have.
        }
        let attrs = [("count", Attr::i64(count)), ("action", Attr::str(action))];
        self.emit.op("rc.kernel.set_max_registers", &[], &attrs, None).map(drop)
    }
    fn set_up_barriers(&mut self) -> Result {
        let Roles { stages, full, empty, consumers, .. } = *self.roles();
        let maps = [self.roles().streams[0].map, self.roles().streams[1].map];
        for map in maps {
            self.emit.op("rc.kernel.tensor_prefetch", &[&[map]], &[], None)?;
        }
        for stage in 0..stages {
            let at = self.emit.index(stage)?;
            for (barriers, count) in [(full, 1), (empty, 4 * consumers)] {
                self.emit.op("rc.kernel.mbarrier_init", &[&[barriers], &[at]], &[("count", Attr::i64(count))], None)?;
            }
        }
        self.emit.op("rc.kernel.fence", &[], &[("kind", Attr::str("mbarrier_init"))], None).map(drop)
    }

    // ---- copies ----

    /// The copies of operand `i` of the product.
    fn stream(&mut self, dot: OpRef<'s>, i: usize) -> Result<Stream> {
        let src = self.src;
        let tile = dot.operand(i);
        let (ty, load) = (src.ty(tile), src.defining_op(tile));
        let load = load.filter(|&op| src.name(op) == "rc.kernel.load").map(|op| src.op_ref(op));
        let (Some(Layout::Shared { stages }), Some(load)) = (Layout::of(ty), load) else {
            return Err(dot
                .error("expects operands that are loaded to shared memory")
                .help("run lower-tiles' place first"));
        };
        let Some(&[rows, columns]) = ty.static_shape().as_deref() else {
            return Err(dot.error("expects tiles of two dimensions"));
        };
        let memref = src.ty(load.operand(0));
        let dims = load.ints("dims").unwrap_or_default();
        let last = memref.rank() as i64 - 1;
        let fits = dims.len() == 2 && dims[0] >= 0 && dims[1] == last && columns % WIDTH == 0 && rows <= 256;
        if !fits || ty.elem().byte_width() != Some(2) || memref.rank() > 5 {
            let error = load.unsupported(format!("by the copy engine of {ty} from {memref} along {dims:?}"));
            return Err(error.help("choose unit = mma"));
        }
        let mut extents = vec![1; memref.rank()];
        extents[dims[0] as usize] = rows;
        extents[last as usize] = WIDTH;
        let map = self.tensor_map(load, &extents)?;
        let blocks = columns / WIDTH;
        let mut shape = vec![stages, blocks, rows, WIDTH];
        if blocks == 1 {
            shape.remove(1);
        }
        let shape: Vec<Dim> = shape.into_iter().map(Dim::Static).collect();
        let memory = self.emit.alloc_with(Type::memref(&shape, ty.elem(), 3), &[("align", Attr::i64(1024))])?;
        let name = src.value_name(tile);
        if !name.is_empty() {
            self.emit.body.set_value_name(memory, name);
        }
        Ok(Stream { load: load.op, map, memory, rows, blocks })
    }

    /// A new argument: the tensor map of the memory that a load or store accesses, for boxes of these extents.
    pub(super) fn tensor_map(&mut self, access: OpRef<'s>, extents: &[i64]) -> Result<Value> {
        let (src, entry) = (self.src, self.emit.entry());
        let memory = access.group(if access.is("rc.kernel.store") { "target" } else { "source" })[0];
        let mut base = memory;
        while let Some(view) =
            src.defining_op(base).filter(|&op| src.name(op) == "rc.kernel.view" && src.operands(op).len() == 1)
        {
            base = src.operand(view, 0);
        }
        let args = src.entry().map(|e| src.block_args(e).collect::<Vec<_>>()).unwrap_or_default();
        let Some(arg) = args.iter().position(|&a| a == base) else {
            return Err(access
                .unsupported("by the copy engine of memory that is no argument")
                .help("choose unit = mma"));
        };
        let map = Attr::dialect(
            "tensor_map",
            &[
                ("arg", Attr::i64(arg as i64)),
                ("tensor", Attr::ty(src.ty(memory))),
                ("box", Attr::i64s(extents)),
                ("swizzle", Attr::i64(128)),
            ],
        );
        let ty = Type::dialect("tensor_map", &[]);
        let body = &mut self.emit.body;
        let value = body.add_block_arg(entry, ty);
        let name = src.value_name(base);
        if !name.is_empty() {
            body.set_value_name(value, rc_ir::Name::new(&format!("{name}_map")));
        }
        let root = body.root();
        let mut maps = body.attr(root, "tensor_maps").and_then(|a| a.as_array()).unwrap_or_default().to_vec();
        maps.push(map);
        body.set_attr(root, "tensor_maps", Attr::array(&maps));
        let types: Vec<Type> = body.block_args(entry).map(|a| body.ty(a)).collect();
        body.set_attr(root, "function_type", Attr::ty(Type::function(&types, &[])));
        Ok(value)
    }

    /// The producer's part of a block: scalars, the loops around the loads, the copies.
    fn produce(&mut self, block: Block) -> Result {
        if block == self.src.entry().expect("a function has a body") {
            let (zero, one) = (self.emit.index(0)?, self.emit.index(1)?);
            let roles = self.roles.as_mut().expect("set");
            (roles.role, roles.stage, roles.parity) = (Role::Producer, zero, one);
        }
        let src = self.src;
        for op in src.ops(block).map(|op| src.op_ref(op)) {
            self.emit.loc = op.loc();
            self.indices.note(op);
            let is_copied = self.roles().streams.iter().position(|s| s.load == op.op);
            if let Some(i) = is_copied {
                if i == 0 || self.is_first(op.op) {
                    self.begin_copies(op.op)?;
                }
                self.start_copy(i, op)?;
            } else if self.roles().loops.contains(&op.op) {
                self.piped_loop(op)?;
            } else if src.regions(op.op).is_empty()
                && !super::touches_tiles(op)
                && rc_ir::effects::is_pure(src, op.op)
                && op.results().len() == 1
            {
                self.copy(op)?;
            }
        }
        Ok(())
    }
    /// Whether a load is the first of the streams in its block.
    fn is_first(&self, load: Op) -> bool {
        let block = self.src.parent(load).expect("in a loop");
        let mut loads = self.src.ops(block).filter(|&op| self.roles().streams.iter().any(|s| s.load == op));
        loads.next() == Some(load)
    }
    /// Waits for an empty stage and says how much will come.
    fn begin_copies(&mut self, load: Op) -> Result {
        if !self.is_first(load) {
            return Ok(());
        }
        let Roles { full, empty, stage, parity, .. } = *self.roles();
        let bytes: i64 = self.roles().streams.iter().map(|s| s.rows * s.blocks * WIDTH * 2).sum();
        self.emit.op("rc.kernel.mbarrier_wait", &[&[empty], &[stage], &[parity]], &[], None)?;
        self.emit.op("rc.kernel.mbarrier_expect", &[&[full], &[stage]], &[("bytes", Attr::i64(bytes))], None).map(drop)
    }
    fn start_copy(&mut self, i: usize, load: OpRef<'s>) -> Result {
        let Roles { full, stage, .. } = *self.roles();
        let Stream { map, memory, blocks, .. } = self.roles().streams[i];
        let mut at = load.group("indices").iter().map(|&v| self.ix(v)).collect::<Vec<Ix>>();
        let last = at.len() - 1;
        let inner = at[last];
        for block in 0..blocks {
            at[last] = inner.plus(block * WIDTH);
            let coords = at.iter().rev().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let block = self.emit.index(block)?;
            let place: &[Value] = if blocks > 1 { &[stage, block] } else { &[stage] };
            let target = self.part_of(memory, place)?;
            let groups: [&[Value]; 6] = [&[target], &[map], &coords, &[full], &[stage], &[]];
            self.emit.op("rc.kernel.tensor_load", &groups, &[], None)?;
        }
        Ok(())
    }
    /// The part of shared memory at leading indices.
    pub(super) fn part_of(&mut self, memory: Value, at: &[Value]) -> Result<Value> {
        let ty = self.emit.ty(memory);
        let part = ty.with_shape(&ty.shape()[at.len()..]);
        let op = self.emit.op("rc.kernel.view", &[&[memory], at], &[], Some(&[part]))?;
        Ok(self.emit.body.result(op, 0))
    }

    // ---- loops ----

    /// A loop around the product, in either role: it carries the stage and the parity beside its values.
    pub(super) fn piped_loop(&mut self, op: OpRef<'s>) -> Result {
        let consumes = self.roles().role == Role::Consumer;
        let innermost = self.roles().loops[0] == op.op;
        let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        let carried: Vec<Value> = if consumes { op.operands().skip(3).collect() } else { Vec::new() };
        let mut init = Vec::new();
        for &value in &carried {
            let registers = self.registers(value).to_vec();
            // What products in flight accumulate into stays one vector.
            match innermost && self.src.ty(value).is_tile() {
                true => init.push(self.in_flight(&registers)?),
                false => init.extend(registers),
            }
        }
        init.extend([self.roles().stage, self.roles().parity]);
        let bounds = [0, 1, 2].map(|i| self.ix(op.operand(i)));
        let values = [self.emit.get(bounds[0])?, self.emit.get(bounds[1])?, self.emit.get(bounds[2])?];
        let types: Vec<Type> = init.iter().map(|&v| self.emit.ty(v)).collect();
        let at = self.emit.block;
        let groups: [&[Value]; 4] = [&values[..1], &values[1..2], &values[2..], &init];
        let made = self.emit.op("rc.kernel.for", &groups, &[], Some(&types))?;
        let region = self.emit.body.add_region(made);
        let arguments: Vec<Type> = std::iter::once(Type::index()).chain(types).collect();
        self.emit.block = self.emit.body.add_block(region, &arguments);
        let args: Vec<Value> = self.emit.body.block_args(self.emit.block).collect();
        self.indices.enter(self.src, op.op, crate::lower_tiles::indices::Part::All);
        self.bind(self.src.block_arg(entry, 0), args[0]);
        self.set_stage(&args);
        if consumes {
            let inner: Vec<Value> = self.src.block_args(entry).skip(1).collect();
            self.bind_piped(&inner, &args[1..], innermost);
        }
        self.loops += 1;
        let last = self.src.last_op(entry).expect("a loop yields");
        match consumes {
            true => {
                for inner in self.src.ops(entry).filter(|&o| o != last) {
                    self.op(self.src.op_ref(inner))?;
                }
            }
            false => self.produce(entry)?,
        }
        self.loops -= 1;
        if innermost {
            self.next_stage()?;
        }
        let mut next = if consumes { self.flatten(self.src.operands(last)) } else { Vec::new() };
        next.extend([self.roles().stage, self.roles().parity]);
        self.emit.op("rc.kernel.yield", &[&next], &[], None)?;
        self.emit.block = at;
        let results: Vec<Value> = self.emit.body.results(made).collect();
        self.set_stage(&results);
        if consumes {
            let outer: Vec<Value> = op.results().collect();
            self.bind_piped(&outer, &results, innermost);
            if innermost {
                self.finish_products(op, &outer)?;
            }
        }
        Ok(())
    }
    /// The last two of a loop's values.
    fn set_stage(&mut self, values: &[Value]) {
        let roles = self.roles.as_mut().expect("set");
        [roles.stage, roles.parity] = [values[values.len() - 2], values[values.len() - 1]];
    }
    fn bind_piped(&mut self, values: &[Value], flat: &[Value], innermost: bool) {
        if !innermost {
            return self.bind_carried(values.iter().copied(), flat);
        }
        for (&value, &one) in values.iter().zip(flat) {
            match self.src.ty(value).is_tile() {
                true => drop(self.values.insert(value, Mapped::InFlight(one))),
                false => self.bind(value, one),
            }
        }
    }
    fn next_stage(&mut self) -> Result {
        let Roles { stage, parity, stages, .. } = *self.roles();
        let (zero, one, count) = (self.emit.index(0)?, self.emit.index(1)?, self.emit.index(stages)?);
        let next = self.emit.core("rc.core.add", &[stage, one])?;
        let wraps = self.emit.compare("eq", next, count)?;
        let other = self.emit.core("rc.core.sub", &[one, parity])?;
        let stage = self.emit.core("rc.core.select", &[wraps, zero, next])?;
        let parity = self.emit.core("rc.core.select", &[wraps, other, parity])?;
        let roles = self.roles.as_mut().expect("set");
        (roles.stage, roles.parity) = (stage, parity);
        Ok(())
    }

    // ---- consumers ----

    fn consume(&mut self, entry: Block) -> Result {
        let consumers = self.roles().consumers;
        self.set_registers(((REGISTERS - 40 * WARPGROUP) / (consumers * WARPGROUP) / 8 * 8).min(240), "increase")?;
        let zero = self.emit.index(0)?;
        let roles = self.roles.as_mut().expect("set");
        (roles.role, roles.stage, roles.parity) = (Role::Consumer, zero, zero);
        let src = self.src;
        let last = src.last_op(entry);
        src.ops(entry).filter(|&op| Some(op) != last).try_for_each(|op| self.op(src.op_ref(op)))?;
        self.finish_stores()
    }
    /// Whether the producer carries out this load.
    pub(super) fn is_produced(&self, load: Op) -> bool {
        self.roles.as_ref().is_some_and(|r| r.streams.iter().any(|s| s.load == load))
    }
    /// Whether this loop is around the product.
    pub(super) fn is_piped(&self, op: Op) -> bool {
        self.roles.as_ref().is_some_and(|r| r.loops.contains(&op))
    }
    /// All consumers wait for one another; without roles, all threads.
    pub(super) fn barrier(&mut self) -> Result {
        let attrs = match &self.roles {
            Some(roles) => vec![("id", Attr::i64(1)), ("threads", Attr::i64(roles.consumers * WARPGROUP))],
            None => Vec::new(),
        };
        self.emit.op("rc.kernel.barrier", &[], &attrs, None).map(drop)
    }

    /// One step of the product: starts it, and waits for the step before, whose stage is empty then.
    pub(super) fn dot_warpgroup(&mut self, op: OpRef<'s>) -> Result {
        let Some(Roles { full, stage, parity, consumers, .. }) = self.roles else {
            return Err(op
                .error("is a product of warpgroups outside of their kernel")
                .help("run lower-tiles' place first"));
        };
        let Mapped::InFlight(mut sums) = self.values[&op.operand(2)].clone() else {
            return Err(op
                .unsupported("with unit = wgmma whose sums are not carried by its loop")
                .help("choose unit = mma"));
        };
        self.emit.op("rc.kernel.mbarrier_wait", &[&[full], &[stage], &[parity]], &[], None)?;
        let (a_t, b_t) = (op.bool("a_t"), !op.bool("b_t"));
        let [a, b] = [0, 1].map(|i| self.roles().streams[i].memory);
        let group = self.digit(4, consumers, false)?;
        let left = if consumers == 1 {
            self.part_of(a, &[stage])?
        } else if a_t {
            self.part_of(a, &[stage, group])?
        } else {
            let rows = self.emit.index(64)?;
            let row = self.emit.core("rc.core.mul", &[group, rows])?;
            let part = Type::memref(&[Dim::Static(64), Dim::Static(WIDTH)], self.emit.ty(a).elem(), 3);
            let view = self.emit.op("rc.kernel.view", &[&[a], &[stage, row]], &[], Some(&[part]))?;
            self.emit.body.result(view, 0)
        };
        let right = self.part_of(b, &[stage])?;
        let n = op.result_types()[0].static_shape().unwrap_or_default()[1];
        self.emit.op("rc.kernel.wgmma_fence", &[], &[], None)?;
        for k in (0..self.depth(op)?).step_by(DEPTH as usize) {
            let mut attrs = vec![("n", Attr::i64(n)), ("k_offset", Attr::i64(k))];
            attrs.extend(a_t.then(|| ("a_t", Attr::bool(true))));
            attrs.extend(b_t.then(|| ("b_t", Attr::bool(true))));
            sums = self.emit.value("rc.kernel.wgmma", &[left, right, sums], &attrs, None)?;
        }
        self.emit.op("rc.kernel.wgmma_commit", &[], &[], None)?;
        sums = self.emit.value("rc.kernel.wgmma_wait", &[sums], &[("pending", Attr::i64(1))], None)?;
        self.values.insert(op.result(0), Mapped::InFlight(sums));
        let looped = self.src.op_ref(self.roles().loops[0]);
        let (lower, counter) = (self.ix(looped.operand(0)), self.src.block_arg(looped.entry(0).expect("verified"), 0));
        let (lower, counter) = (self.emit.get(lower)?, self.one(counter));
        let later = self.emit.compare("gt", counter, lower)?;
        self.release(later)
    }
    /// The stage before the one at hand is empty, where `condition` holds.
    fn release(&mut self, condition: Value) -> Result {
        let Roles { stage, stages, empty, leads, .. } = *self.roles();
        let speaks = self.emit.core("rc.core.and", &[condition, leads])?;
        self.branch(speaks, |d| {
            let (zero, one, last) = (d.emit.index(0)?, d.emit.index(1)?, d.emit.index(stages - 1)?);
            let wraps = d.emit.compare("eq", stage, zero)?;
            let before = d.emit.core("rc.core.sub", &[stage, one])?;
            let before = d.emit.core("rc.core.select", &[wraps, last, before])?;
            d.emit.op("rc.kernel.mbarrier_arrive", &[&[empty], &[before], &[]], &[], None).map(drop)
        })
    }
    /// After the loop: all products are done, and the last stage is empty.
    fn finish_products(&mut self, op: OpRef<'s>, results: &[Value]) -> Result {
        for &result in results {
            let Mapped::InFlight(sums) = self.values[&result].clone() else { continue };
            let done = self.emit.value("rc.kernel.wgmma_wait", &[sums], &[("pending", Attr::i64(0))], None)?;
            let registers = self.registers_of(op, result, done)?;
            self.bind_tile(result, registers);
        }
        let (lower, upper) = (self.ix(op.operand(0)), self.ix(op.operand(1)));
        let (lower, upper) = (self.emit.get(lower)?, self.emit.get(upper)?);
        let ran = self.emit.compare("lt", lower, upper)?;
        self.release(ran)
    }
    /// The registers of accumulators as one vector, in wgmma's order: of eight columns, two of the first row, two of the row
    /// eight below.
    fn in_flight(&mut self, registers: &[Value]) -> Result<Value> {
        if let Some(zero) = self.zero_of(registers) {
            return Ok(zero);
        }
        let columns = registers.len() / 2;
        let parts: Vec<Value> = (0..columns).flat_map(|j| [registers[j], registers[columns + j]]).collect();
        self.emit.concat(&parts)
    }
    /// A vector of zeros for accumulators that all are.
    fn zero_of(&mut self, registers: &[Value]) -> Option<Value> {
        let constant = |v: &Value| rc_ir::op_def::constant_of(&self.emit.body, *v).and_then(|a| a.as_splat());
        let zeros = registers.iter().all(|v| constant(v) == Some(0.0));
        let ty = Type::vector(&[2 * registers.len() as i64], self.emit.ty(registers[0]).elem());
        if zeros { self.emit.splat_constant(ty, 0.0).ok() } else { None }
    }
    fn registers_of(&mut self, op: OpRef<'s>, tile: Value, sums: Value) -> Result<Vec<Value>> {
        let spread = self.spread_of(op, tile)?;
        let columns = spread.registers as i64 / 2;
        let mut out = Vec::with_capacity(spread.registers);
        for half in 0..2 {
            for j in 0..columns {
                out.push(self.emit.slice(sums, 4 * j + 2 * half, 2)?);
            }
        }
        Ok(out)
    }
}

fn enclosing_loops(body: &Body, op: Op) -> Vec<Op> {
    let parents = std::iter::successors(body.parent_op(op), |&o| body.parent_op(o));
    parents.take_while(|&o| o != body.root()).collect()
}
