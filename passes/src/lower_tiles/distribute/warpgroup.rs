//! Kernels whose product runs on Hopper's warpgroups: one more warpgroup copies, the others compute.
//!
//! The function's operations are gone through twice. The *producer* (one thread of the last warpgroup) runs the loops around
//! the product's loads and starts their copies; the *consumers* run everything else. Tiles go through stages of shared
//! memory: of each, one `mbarrier` says that it is full, another that it is empty. Loops carry the stage at hand and the
//! parity of its barrier's phase. What the blocks of a cluster read alike, they copy together ([`super::cluster`]).
//! Further warps of the producer's bring what the epilogue reads ([`super::ahead`]).

use super::ahead::{Reads, STAGES_AHEAD};
use super::cluster::{Cluster, Share};
use super::flight::Flight;
use super::staged::LastStaged;
use super::turns::TURNS;
use super::{Distribute, Mapped};
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Distribution, Layout, WARP};
use crate::schedule::{ROW_BYTES, ROWS, WARPGROUP, WIDTH, row_width};
use rc_dialects::op;
use rc_ir::{Attr, Block, Body, Dim, Op, OpRef, Result, Type, Value};
use rustc_hash::FxHashSet;

/// Depth of one instruction, in elements that are multiplied as they are: a quarter of a row.
pub(super) fn depth_of(elem: Type) -> i64 {
    row_width(elem) / 4
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Producer,
    Consumer,
}

/// A load that the producer carries out.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) load: Op,
    /// What the copy engine copies boxes of; without it, the producer's threads gather runs.
    pub(super) map: Option<Value>,
    /// All stages: `[stages, parts, blocks, rows, 64]`, dimensions of one element left out (but stages). The rows of a left
    /// operand are parted by the warpgroups that read them.
    pub(super) memory: Value,
    pub(super) parts: i64,
    pub(super) blocks: i64,
    pub(super) rows: i64,
    /// Which part of the tile each block of the cluster copies for all, where all read the same one.
    pub(super) share: Option<Share>,
}

/// Tiles that arrive together: what one product reads of each step of the loop, or what is loaded once before it.
#[derive(Clone)]
pub(super) struct Ring {
    pub(super) streams: Vec<Stream>,
    /// A barrier for each stage.
    pub(super) full: Value,
    /// The same, where stages are filled again.
    pub(super) empty: Option<Value>,
    /// Whether it is filled for each tile of results, not for each step: it has one stage then.
    pub(super) by_tile: bool,
    /// The first and the last product that reads them, or what threads read them for.
    pub(super) readers: [Op; 2],
    /// Whether threads read them: each says then that it has, instead of one for its warp.
    pub(super) by_threads: bool,
}

impl Stream {
    /// Elements of a row of shared memory.
    pub(super) fn width(&self, work: &Distribute) -> i64 {
        row_width(work.emit.ty(self.memory).elem())
    }
}

impl Roles {
    /// Warpgroups that compute a tile.
    pub(super) fn groups(&self) -> i64 {
        self.consumers / self.turns
    }
    /// Whether some of what products read is loaded for each tile of results.
    pub(super) fn loads_by_tile(&self) -> bool {
        self.rings.iter().any(|ring| ring.by_tile)
    }
    /// How many blocks are a cluster.
    pub(super) fn blocks(&self) -> i64 {
        self.cluster.as_ref().map_or(1, |cluster| cluster.blocks)
    }
}

impl Ring {
    /// Whether the producer's threads gather some of it.
    pub(super) fn gathers(&self) -> bool {
        self.streams.iter().any(|s| s.map.is_none())
    }
    /// Whether another block of the cluster copies some of it.
    pub(super) fn shares(&self) -> bool {
        self.streams.iter().any(|s| s.share.is_some())
    }
    /// Whether the copy engine brings some of it.
    fn copies(&self) -> bool {
        self.streams.iter().any(|s| s.map.is_some())
    }
}

/// What a function with a producer and consumers needs to know.
pub(super) struct Roles {
    pub(super) role: Role,
    /// The loops around the products, innermost first.
    pub(super) loops: Vec<Op>,
    pub(super) rings: Vec<Ring>,
    pub(super) stages: i64,
    /// Warpgroups that compute, and how many of these, or of groups of them, have tiles of their own, in turns.
    pub(super) consumers: i64,
    pub(super) turns: i64,
    /// Where they take turns, a barrier for each says that those before have been through their steps.
    pub(super) order: Option<Value>,
    /// The stage at hand of what the innermost loop loads, and the parity of the phase that is waited for.
    pub(super) stage: Value,
    pub(super) parity: Value,
    /// The same parity of what is loaded for each tile.
    pub(super) tile_parity: Value,
    /// Where two warpgroups start products in turns: the parity of how many turns there were in the tiles before.
    pub(super) past_turns: Value,
    /// The products of the loop that are under way.
    pub(super) flight: Flight,
    /// Whether this thread speaks for its warp, and for the producer.
    pub(super) leads: Value,
    pub(super) copies: Value,
    /// The blocks that the function's block is one of, where they are several.
    pub(super) cluster: Option<Cluster>,
    /// What the epilogue reads in boxes.
    pub(super) reads: Reads,
    /// Arithmetic on tiles that only says where the producer gathers from.
    addresses: FxHashSet<Op>,
    /// Where results wait for their stores, and whether the copy engine stores some.
    pub(super) staging: Option<Value>,
    pub(super) last_staged: Option<LastStaged>,
    pub(super) stores: bool,
}

/// The products of warpgroups in a function.
pub(super) fn warpgroup_dots(body: &Body) -> Vec<Op> {
    body.walk().into_iter().filter(|&op| is_warpgroup_dot(body, op)).collect()
}
pub(super) fn is_warpgroup_dot(body: &Body, op: Op) -> bool {
    body.name(op) == op::kernel::DOT && body.op_ref(op).str("unit") == Some("wgmma")
}

impl<'s> Distribute<'s> {
    /// The whole function, by roles.
    pub(super) fn specialized(&mut self, entry: Block, dots: &[Op]) -> Result {
        let src = self.src;
        let turns = src.op_ref(src.root()).int(TURNS).unwrap_or(1);
        let consumers = self.warps / 4 * turns;
        let block = src.parent(dots[0]);
        if let Some(&other) = dots.iter().find(|&&dot| src.parent(dot) != block) {
            let error = src.op_ref(other).unsupported("with unit = wgmma beside another one in another loop");
            return Err(error.help("choose unit = mma"));
        }
        let cluster = self.cluster()?;
        let (rings, stages) = self.rings(entry, dots, cluster.as_ref())?;
        let zero = self.emit.index(0)?;
        let lane = self.emit.lane_digit(1, WARP)?;
        let leads = self.emit.compare("eq", lane, zero)?;
        let loops = enclosing_loops(src, dots[0]);
        if loops.is_empty() {
            let error = src.op_ref(dots[0]).unsupported("with unit = wgmma outside of a loop");
            return Err(error.help("choose unit = mma"));
        }
        if let Some(cluster) = &cluster {
            cluster.check_loops(src, &loops)?;
        }
        let order = match turns > 1 {
            true => Some(self.order_of_turns(&loops, turns)?),
            false => None,
        };
        let (stage, parity, tile_parity, past_turns) = (zero, zero, zero, zero);
        let role = Role::Producer;
        let mut flight = Flight::new(src, loops[0], dots);
        if consumers == 2 && flight.alternates() {
            flight.turns = Some(self.barriers(consumers)?);
        }
        let thread = self.emit.thread_id()?;
        let first = self.emit.index(consumers * WARPGROUP)?;
        let copies = self.emit.compare("eq", thread, first)?;
        let gathers = rings.iter().any(Ring::gathers);
        // One thread copies; only where registers move between warpgroups, or all of them gather, is it more than one warp's.
        let alone = consumers == 1 && !gathers;
        let reads = self.epilogue_reads(&loops, [turns, self.warps / 4], !gathers)?;
        let helpers = match alone {
            true => WARP * if reads.has_loaders() { 2 } else { 1 },
            false => WARPGROUP,
        };
        let addresses = addresses(src, &rings);
        self.roles = Some(Roles {
            role,
            loops,
            rings,
            stages,
            consumers,
            turns,
            order,
            stage,
            parity,
            tile_parity,
            past_turns,
            flight,
            leads,
            copies,
            cluster,
            reads,
            addresses,
            staging: None,
            last_staged: None,
            stores: false,
        });
        self.branch(copies, |d| d.set_up_barriers())?;
        self.block_barrier()?;
        self.await_inputs()?;
        let produces = self.emit.compare("ge", thread, first)?;
        let made = self.emit.op(op::kernel::IF, &[&[produces]], &[], Some(&[]))?;
        let at = self.emit.block;
        self.region_of(made, |d| {
            d.set_registers(d.producer_registers(), "decrease")?;
            match gathers {
                true => d.gather_all(entry),
                false => d.branch(copies, |d| d.produce(entry)),
            }?;
            d.bring_ahead(entry, first)
        })?;
        self.region_of(made, |d| d.consume(entry))?;
        self.emit.block = at;
        self.roles = None;
        self.emit.op(op::kernel::RETURN, &[], &[], None)?;
        let root = self.emit.body.root();
        self.emit.body.set_attr(root, "threads", Attr::i64(consumers * WARPGROUP + helpers));
        self.emit.body.remove_attr(root, TURNS);
        self.emit.body.remove_attr(root, STAGES_AHEAD);
        self.emit.body.set_attr(root, "min_blocks", Attr::i64(1));
        Ok(())
    }

    /// What the products read through shared memory, and in how many stages.
    fn rings(&mut self, entry: Block, dots: &[Op], cluster: Option<&Cluster>) -> Result<(Vec<Ring>, i64)> {
        let src = self.src;
        let (mut rings, mut most): (Vec<Ring>, i64) = (Vec::new(), 1);
        for dot in dots.iter().map(|&dot| src.op_ref(dot)) {
            let (mut streams, mut looped) = (Vec::new(), false);
            for i in 0..2 {
                let ty = src.ty(dot.operand(i));
                let Some(Layout::Shared { stages }) = Layout::of(ty) else { continue };
                let load = src.defining_op(dot.operand(i));
                let load = load.filter(|&op| src.name(op) == op::kernel::LOAD || src.name(op) == op::kernel::GATHER);
                let load = load.ok_or_else(|| dot.error("expects operands that are loaded to shared memory"))?;
                looped |= src.parent(load) == src.parent(dot.op);
                if let Some(ring) = rings.iter_mut().find(|r| r.streams.iter().any(|s| s.load == load)) {
                    self.check_shared(ring, load, i)?;
                    ring.readers[1] = dot.op;
                } else if src.parent(load) == src.parent(dot.op) {
                    streams.push(self.stream(dot, i, stages, cluster)?);
                    most = stages;
                } else if src.name(load) == op::kernel::GATHER {
                    let error = src.op_ref(load).unsupported("for a product on warpgroups outside of its loop");
                    return Err(error.help("choose unit = mma"));
                } else if src.parent(load) == Some(entry) {
                    let stream = self.stream(dot, i, 1, None)?;
                    let full = self.barriers(1)?;
                    rings.push(Ring {
                        streams: vec![stream],
                        full,
                        empty: None,
                        by_tile: false,
                        readers: [dot.op; 2],
                        by_threads: false,
                    });
                } else if self.is_by_tile(load, dot.op) {
                    let stream = self.stream(dot, i, 1, None)?;
                    let (full, empty) = (self.barriers(1)?, Some(self.barriers(1)?));
                    let (streams, readers) = (vec![stream], [dot.op; 2]);
                    rings.push(Ring { streams, full, empty, by_tile: true, readers, by_threads: false });
                } else {
                    return Err(src
                        .op_ref(load)
                        .unsupported("by the copy engine in an outer loop")
                        .help("choose unit = mma"));
                }
            }
            if !looped {
                let error = dot.unsupported("with unit = wgmma of nothing that its loop loads");
                return Err(error.help("choose unit = mma"));
            }
            if !streams.is_empty() {
                let (full, empty) = (self.barriers(most)?, Some(self.barriers(most)?));
                rings.push(Ring { streams, full, empty, by_tile: false, readers: [dot.op; 2], by_threads: false });
            }
        }
        let block = src.parent(dots[0]).expect("in a block");
        for op in src.ops(block).filter(|&op| reads_staged(src, op)) {
            let stream = self.staged_tile(src.op_ref(op), most)?;
            let (full, empty) = (self.barriers(most)?, Some(self.barriers(most)?));
            let (streams, readers) = (vec![stream], [op; 2]);
            rings.push(Ring { streams, full, empty, by_tile: false, readers, by_threads: true });
        }
        Ok((rings, most))
    }
    /// Whether a load is for all steps of a tile of results: it stands in the loop over tiles, beside the one over steps.
    fn is_by_tile(&self, load: Op, dot: Op) -> bool {
        let src = self.src;
        matches!(enclosing_loops(src, dot).as_slice(), &[_, tiles] if src.parent_op(load) == Some(tiles))
    }
    /// A tile that two products read lies as both want it: whole, or in the same parts.
    fn check_shared(&self, ring: &Ring, load: Op, operand: usize) -> Result {
        let stream = ring.streams.iter().find(|s| s.load == load).expect("just found");
        if stream.parts == 1 && (operand == 1 || self.warps == 4) {
            return Ok(());
        }
        let error = self.src.op_ref(load).unsupported("for the left operand of one product and another one's");
        Err(error.help("choose unit = mma"))
    }
    pub(super) fn barriers(&mut self, stages: i64) -> Result<Value> {
        self.emit.alloc_with(Type::memref(&[Dim::Static(stages)], Type::i64(), 3), &[("align", Attr::i64(8))])
    }

    pub(super) fn roles(&self) -> &Roles {
        self.roles.as_ref().expect("only asked for in functions with roles")
    }
    /// Operations in a new region of `made`, which ends in a yield.
    pub(super) fn region_of(&mut self, made: Op, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let at = self.emit.block;
        let region = self.emit.body.add_region(made);
        self.emit.block = self.emit.body.add_block(region, &[]);
        body(self)?;
        self.emit.op(op::kernel::YIELD, &[&[]], &[], None)?;
        self.emit.block = at;
        Ok(())
    }
    pub(super) fn branch(&mut self, condition: Value, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let made = self.emit.op(op::kernel::IF, &[&[condition]], &[], Some(&[]))?;
        self.region_of(made, body)
    }
    fn set_registers(&mut self, count: i64, action: &str) -> Result {
        if self.roles().consumers == 1 {
            return Ok(()); // Two warpgroups have as many as a thread may have.
        }
        let attrs = [("count", Attr::i64(count)), ("action", Attr::str(action))];
        self.emit.op(op::kernel::SET_MAX_REGISTERS, &[], &attrs, None).map(drop)
    }
    /// Registers that each thread of the producer keeps: addresses of what it gathers take more.
    fn producer_registers(&self) -> i64 {
        if self.roles().rings.iter().any(Ring::gathers) { 104 } else { 40 }
    }
    /// Whether a function's producer gathers: the threads of all its warps have places in tiles.
    pub(super) fn has_gatherers(&self) -> bool {
        self.roles.as_ref().is_some_and(|r| r.rings.iter().any(Ring::gathers))
    }
    /// Whether an operation is for the producer alone.
    pub(super) fn is_address(&self, op: Op) -> bool {
        self.roles.as_ref().is_some_and(|r| r.role == Role::Consumer && r.addresses.contains(&op))
    }
    fn set_up_barriers(&mut self) -> Result {
        let (rings, stages, consumers) = (self.roles().rings.clone(), self.roles().stages, self.roles().consumers);
        for ring in &rings {
            for map in ring.streams.iter().filter_map(|s| s.map) {
                self.emit.op(op::kernel::TENSOR_PREFETCH, &[&[map]], &[], None)?;
            }
            let count = if ring.empty.is_some() && !ring.by_tile { stages } else { 1 };
            let arrivals = i64::from(ring.copies()) + if ring.gathers() { WARPGROUP } else { 0 };
            let readers = if ring.shares() { self.roles().blocks() } else { 1 };
            let done = readers * self.roles().groups() * if ring.by_threads { WARPGROUP } else { WARPGROUP / WARP };
            let kinds = [(Some(ring.full), arrivals), (ring.empty, done)];
            for (barriers, arrivals) in kinds.into_iter().filter_map(|(b, n)| Some((b?, n))) {
                for stage in 0..count {
                    let at = self.emit.index(stage)?;
                    let attrs = [("count", Attr::i64(arrivals))];
                    self.emit.op(op::kernel::MBARRIER_INIT, &[&[barriers], &[at]], &attrs, None)?;
                }
            }
        }
        for turns in [self.roles().flight.turns, self.roles().order].into_iter().flatten() {
            for group in 0..consumers {
                let at = self.emit.index(group)?;
                self.emit.op(op::kernel::MBARRIER_INIT, &[&[turns], &[at]], &[("count", Attr::i64(4))], None)?;
            }
        }
        self.set_up_ahead()?;
        self.emit.op(op::kernel::FENCE, &[], &[("kind", Attr::str("mbarrier_init"))], None).map(drop)
    }

    // ---- copies ----

    /// The copies of operand `i` of a product.
    fn stream(&mut self, dot: OpRef<'s>, i: usize, stages: i64, cluster: Option<&Cluster>) -> Result<Stream> {
        let src = self.src;
        let tile = dot.operand(i);
        let (ty, load) = (src.ty(tile), src.op_ref(src.defining_op(tile).expect("checked to be a load")));
        let Some(&[rows, columns]) = ty.static_shape().as_deref() else {
            return Err(dot.error("expects tiles of two dimensions"));
        };
        if load.is(op::kernel::GATHER) {
            return self.gathered_stream(load, dot, i, stages);
        }
        let parts = if i == 0 && !dot.bool("a_t") { rows / ROWS } else { 1 };
        // The copy engine rounds what it copies as another type.
        let elem = dot.attr("of").and_then(|of| of.as_type()).unwrap_or(ty.elem());
        self.boxes(load, elem, [stages, parts, rows / parts, columns], cluster)
    }
    /// The copies of a tile that threads read: a bias.
    fn staged_tile(&mut self, converted: OpRef<'s>, stages: i64) -> Result<Stream> {
        let src = self.src;
        let tile = converted.operand(0);
        let load = src.defining_op(tile).map(|op| src.op_ref(op)).filter(|op| op.is(op::kernel::LOAD));
        let load = load.ok_or_else(|| converted.error("expects a tile that is loaded to shared memory"))?;
        let Some(&[rows, columns]) = src.ty(tile).static_shape().as_deref() else {
            return Err(converted.error("expects a tile of two dimensions"));
        };
        self.boxes(load, src.ty(tile).elem(), [stages, 1, rows, columns], None)
    }
    /// A load as copies of boxes of elements of type `elem`: so many parts of a tile, each of so many rows.
    fn boxes(
        &mut self,
        load: OpRef<'s>,
        elem: Type,
        [stages, parts, rows, columns]: [i64; 4],
        cluster: Option<&Cluster>,
    ) -> Result<Stream> {
        let (ty, memref) = (load.result_types()[0], self.src.ty(load.operand(0)));
        let dims = load.ints("dims").unwrap_or_default();
        let last = memref.rank() as i64 - 1;
        // Columns past those of the tile fill the last block: they are copied, and nothing reads them.
        let width = row_width(elem);
        let blocks = (columns + width - 1) / width;
        let fits = dims.len() == 2 && dims[0] >= 0 && dims[1] == last && columns % depth_of(elem) == 0 && rows <= 256;
        let typed = elem.byte_width() == Some(2) || elem == Type::tf32() && ty.elem() == Type::f32();
        if !fits || !typed || memref.rank() > 5 {
            let error = load.unsupported(format!("by the copy engine of {ty} from {memref} along {dims:?}"));
            return Err(error.help("choose unit = mma"));
        }
        let share = cluster.and_then(|cluster| cluster.share_of(load, [parts, blocks, rows]));
        let mut extents = vec![1; memref.rank()];
        let parted = cluster.filter(|_| share == Some(Share::Rows));
        extents[dims[0] as usize] = parted.map_or(rows, |cluster| rows / cluster.blocks);
        extents[last as usize] = width;
        let map = Some(self.tensor_map(load, elem, &extents)?);
        let memory = self.stages_of(load.result(0), elem, [stages, parts, blocks, rows])?;
        Ok(Stream { load: load.op, map, memory, parts, blocks, rows, share })
    }
    /// Shared memory for the stages of a tile, of elements of type `elem`.
    pub(super) fn stages_of(
        &mut self,
        tile: Value,
        elem: Type,
        [stages, parts, blocks, rows]: [i64; 4],
    ) -> Result<Value> {
        let shape = [(stages, true), (parts, parts > 1), (blocks, blocks > 1), (rows, true), (row_width(elem), true)];
        let shape: Vec<Dim> = shape.into_iter().filter(|s| s.1).map(|s| Dim::Static(s.0)).collect();
        let ty = Type::memref(&shape, elem, 3);
        let memory = self.emit.alloc_with(ty, &[("align", Attr::i64(1024))])?;
        let name = self.src.value_name(tile);
        if !name.is_empty() {
            self.emit.body.set_value_name(memory, name);
        }
        Ok(memory)
    }

    /// A new argument: the tensor map of the memory that a load or store accesses, for boxes of these extents, whose elements become `elem`.
    pub(super) fn tensor_map(&mut self, access: OpRef<'s>, elem: Type, extents: &[i64]) -> Result<Value> {
        let (src, entry) = (self.src, self.emit.entry());
        let memory = access.group(if access.is(op::kernel::STORE) { "target" } else { "source" })[0];
        let Some(arg) = self.argument_of(memory) else {
            return Err(access
                .unsupported("by the copy engine of memory that is no argument")
                .help("choose unit = mma"));
        };
        let map = Attr::dialect(
            "tensor_map",
            &[
                ("arg", Attr::i64(arg as i64)),
                ("tensor", Attr::ty(src.ty(memory).with_elem(elem))),
                ("box", Attr::i64s(extents)),
                ("swizzle", Attr::i64(128)),
            ],
        );
        let ty = Type::dialect("tensor_map", &[]);
        let body = &mut self.emit.body;
        let value = body.add_block_arg(entry, ty);
        let name = src.value_name(src.block_arg(src.entry().expect("has arguments"), arg));
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

    /// The producer's part of a block: scalars, the loops around the products, the copies.
    pub(super) fn produce(&mut self, block: Block) -> Result {
        if block == self.src.entry().expect("a function has a body") {
            let (zero, one) = (self.emit.index(0)?, self.emit.index(1)?);
            let roles = self.roles.as_mut().expect("set");
            (roles.role, roles.stage, roles.parity, roles.tile_parity) = (Role::Producer, zero, one, one);
        }
        let src = self.src;
        for op in src.ops(block).map(|op| src.op_ref(op)) {
            self.emit.loc = op.loc();
            self.indices.note(op);
            if let Some((ring, stream)) = self.stream_of(op.op) {
                self.copy_in(&ring, stream, op)?;
            } else if self.roles().loops.contains(&op.op) {
                self.piped_loop(op)?;
            } else if self.roles().addresses.contains(&op.op) {
                self.op(op)?;
            } else if super::is_scalar(op) {
                self.copy(op)?;
            } else {
                self.prefetch(op)?;
            }
        }
        if block == src.entry().expect("a function has a body") { self.outlast_the_cluster() } else { Ok(()) }
    }
    /// A loop without values, in a role that does not compute: over the tiles of a turn, or as it is.
    pub(super) fn plain_loop(&mut self, op: OpRef<'s>, body: impl FnOnce(&mut Self, Block) -> Result) -> Result {
        let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        let bounds = [0, 1, 2].map(|i| self.ix(op.operand(i)));
        let mut values = [self.emit.get(bounds[0])?, self.emit.get(bounds[1])?, self.emit.get(bounds[2])?];
        if self.roles().loops.get(1) == Some(&op.op) && self.takes_turns() {
            let turn = self.ahead().turn;
            values = self.tiles_of_turn(turn, values)?;
        }
        let at = self.emit.block;
        let made = self.emit.op(op::kernel::FOR, &[&values[..1], &values[1..2], &values[2..], &[]], &[], Some(&[]))?;
        let region = self.emit.body.add_region(made);
        self.emit.block = self.emit.body.add_block(region, &[Type::index()]);
        let counter = self.emit.body.block_arg(self.emit.block, 0);
        self.indices.enter(self.src, op.op, crate::lower_tiles::indices::Part::All);
        self.bind(self.src.block_arg(entry, 0), counter);
        body(self, entry)?;
        self.emit.op(op::kernel::YIELD, &[&[]], &[], None)?;
        self.emit.block = at;
        Ok(())
    }
    /// The number of the argument that memory is, or is a view of.
    pub(super) fn argument_of(&self, memory: Value) -> Option<usize> {
        let src = self.src;
        let view = |&v: &Value| {
            let view = src.defining_op(v).filter(|&op| src.name(op) == op::kernel::VIEW && src.operands(op).len() == 1);
            view.map(|view| src.operand(view, 0))
        };
        let base = std::iter::successors(Some(memory), view).last()?;
        src.block_args(src.entry()?).position(|arg| arg == base)
    }
    /// The ring of a load that the copy engine carries out, and which of its streams it is.
    pub(super) fn stream_of(&self, load: Op) -> Option<(Ring, usize)> {
        let rings = self.roles.as_ref()?.rings.iter();
        rings.into_iter().find_map(|ring| Some((ring.clone(), ring.streams.iter().position(|s| s.load == load)?)))
    }
    /// Where a ring's tiles are at hand: its stage, always the first where it has one alone.
    pub(super) fn stage_of(&mut self, ring: &Ring) -> Result<Value> {
        if ring.empty.is_some() && !ring.by_tile { Ok(self.roles().stage) } else { self.emit.index(0) }
    }
    /// A ring's first load waits for an empty stage and says how much will come; each starts its copies.
    fn copy_in(&mut self, ring: &Ring, stream: usize, load: OpRef<'s>) -> Result {
        let stage = self.stage_of(ring)?;
        let block = self.src.parent(load.op).expect("in a block");
        let loads: Vec<Op> = self.src.ops(block).filter(|&op| ring.streams.iter().any(|s| s.load == op)).collect();
        if loads.first() == Some(&load.op) {
            if let Some(empty) = ring.empty {
                let parity = if ring.by_tile { self.roles().tile_parity } else { self.roles().parity };
                self.emit.op(op::kernel::MBARRIER_WAIT, &[&[empty], &[stage], &[parity]], &[], None)?;
            }
            if ring.copies() {
                self.as_copier(ring, |d| d.expect(ring, stage))?;
            }
        }
        match ring.streams[stream].map {
            Some(map) => self.as_copier(ring, |d| d.copy_boxes(ring, ring.streams[stream], map, load))?,
            None => self.gather_in(ring.streams[stream], stage, load)?,
        }
        if ring.gathers() && loads.last() == Some(&load.op) {
            self.emit.op(op::kernel::ASYNC_ARRIVE, &[&[ring.full], &[stage]], &[], None)?;
        }
        Ok(())
    }
    /// What one thread does: where others gather, this is a branch.
    fn as_copier(&mut self, ring: &Ring, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let copies = self.roles().copies;
        if ring.gathers() { self.branch(copies, body) } else { body(self) }
    }
    fn expect(&mut self, ring: &Ring, stage: Value) -> Result {
        let copied = ring.streams.iter().filter(|s| s.map.is_some());
        let bytes: i64 = copied.map(|s| s.parts * s.blocks * s.rows * ROW_BYTES).sum();
        let attrs = [("bytes", Attr::i64(bytes))];
        self.emit.op(op::kernel::MBARRIER_EXPECT, &[&[ring.full], &[stage]], &attrs, None).map(drop)
    }
    /// Starts the copies of one step's boxes.
    fn copy_boxes(&mut self, ring: &Ring, stream: Stream, map: Value, load: OpRef<'s>) -> Result {
        let stage = self.stage_of(ring)?;
        let Stream { memory, parts, blocks, rows, share, .. } = stream;
        let width = stream.width(self);
        let to = if share.is_some() { self.all_blocks()? } else { Vec::new() };
        let [own_parts, own_blocks, own_rows] = self.own_share(stream);
        let first_part = self.first_own(share, Share::Parts, own_parts)?;
        let first_block = self.first_own(share, Share::Blocks, own_blocks)?;
        let mut start = load.group("indices").iter().map(|&v| self.ix(v)).collect::<Vec<Ix>>();
        let (down, last) = (load.ints("dims").unwrap_or_default()[0] as usize, start.len() - 1);
        for (dim, way, count) in [
            (down, Share::Parts, own_parts * rows),
            (down, Share::Rows, own_rows),
            (last, Share::Blocks, own_blocks * width),
        ] {
            let first = self.first_own(share, way, count)?;
            start[dim] = self.emit.add(start[dim], first)?;
        }
        for (part, block) in (0..own_parts).flat_map(|part| (0..own_blocks).map(move |block| (part, block))) {
            let mut at = start.clone();
            at[down] = at[down].plus(part * rows);
            at[last] = at[last].plus(block * width);
            let coords = at.iter().rev().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let mut place = vec![stage];
            for (number, first, count) in [(part, first_part, parts), (block, first_block, blocks)] {
                if count > 1 {
                    place.push(self.emit.get(first.plus(number))?);
                }
            }
            let target = self.own_rows(memory, place, share)?;
            let groups: [&[Value]; 6] = [&[target], &[map], &coords, &[ring.full], &[stage], &to];
            self.emit.op(op::kernel::TENSOR_LOAD, &groups, &[], None)?;
        }
        Ok(())
    }
    /// The part of shared memory at leading indices.
    pub(super) fn part_of(&mut self, memory: Value, at: &[Value]) -> Result<Value> {
        let ty = self.emit.ty(memory);
        let part = ty.with_shape(&ty.shape()[at.len()..]);
        let op = self.emit.op(op::kernel::VIEW, &[&[memory], at], &[], Some(&[part]))?;
        Ok(self.emit.body.result(op, 0))
    }

    // ---- loops ----

    /// A loop around the product, in either role: it carries the stage and the parity beside its values.
    pub(super) fn piped_loop(&mut self, op: OpRef<'s>) -> Result {
        let consumes = self.roles().role == Role::Consumer;
        let innermost = self.roles().loops[0] == op.op;
        let entry = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        let carried: Vec<Value> = if consumes { op.operands().skip(3).collect() } else { Vec::new() };
        // What products in flight accumulate into stays one vector for 64 rows.
        let flies = |i: usize| innermost && self.roles().flight.carries(i);
        let flies: Vec<bool> = (0..carried.len()).map(flies).collect();
        let mut init = Vec::new();
        for (&value, &flies) in carried.iter().zip(&flies) {
            let registers = self.registers(value).to_vec();
            match flies {
                true => init.extend(self.in_flight(value, &registers)?),
                false => init.extend(registers),
            }
        }
        let bounds = [0, 1, 2].map(|i| self.ix(op.operand(i)));
        let mut values = [self.emit.get(bounds[0])?, self.emit.get(bounds[1])?, self.emit.get(bounds[2])?];
        let own_tiles = consumes && !innermost && self.takes_turns();
        if own_tiles {
            values = self.own_tiles(values)?;
        }
        init.extend(self.phases(innermost));
        let in_turn = consumes && innermost && self.takes_turns();
        if in_turn {
            self.await_turn()?;
        }
        let types: Vec<Type> = init.iter().map(|&v| self.emit.ty(v)).collect();
        let at = self.emit.block;
        let groups: [&[Value]; 4] = [&values[..1], &values[1..2], &values[2..], &init];
        let made = self.emit.op(op::kernel::FOR, &groups, &[], Some(&types))?;
        let region = self.emit.body.add_region(made);
        let arguments: Vec<Type> = std::iter::once(Type::index()).chain(types).collect();
        self.emit.block = self.emit.body.add_block(region, &arguments);
        let args: Vec<Value> = self.emit.body.block_args(self.emit.block).collect();
        self.indices.enter(self.src, op.op, crate::lower_tiles::indices::Part::All);
        self.bind(self.src.block_arg(entry, 0), args[0]);
        self.set_phases(&args, innermost);
        let last = self.src.last_op(entry).expect("a loop yields");
        self.loops += 1;
        match consumes {
            true => {
                let inner: Vec<Value> = self.src.block_args(entry).skip(1).collect();
                self.bind_piped(&inner, &args[1..], &flies);
                if innermost {
                    self.take_off();
                }
                for inner in self.src.ops(entry).filter(|&o| o != last) {
                    self.op(self.src.op_ref(inner))?;
                }
                if innermost {
                    self.land_before_the_next_step()?;
                    self.release_what_is_read()?;
                }
            }
            false => self.produce(entry)?,
        }
        self.loops -= 1;
        if innermost {
            self.next_stage()?;
        } else if self.roles().loads_by_tile() {
            self.next_tile()?;
        }
        if own_tiles {
            self.pass_others_tiles()?;
        }
        let mut next = if consumes { self.flatten(self.src.operands(last)) } else { Vec::new() };
        next.extend(self.phases(innermost));
        self.emit.op(op::kernel::YIELD, &[&next], &[], None)?;
        self.emit.block = at;
        let results: Vec<Value> = self.emit.body.results(made).collect();
        self.set_phases(&results, innermost);
        if in_turn {
            self.end_turn()?;
        }
        if consumes {
            let outer: Vec<Value> = op.results().collect();
            self.bind_piped(&outer, &results, &flies);
            if innermost {
                self.finish_products(op)?;
            }
        }
        Ok(())
    }
    fn bind_piped(&mut self, values: &[Value], flat: &[Value], flies: &[bool]) {
        let mut rest = flat;
        for (&value, &flies) in values.iter().zip(flies) {
            let count = match self.spreads.get(&self.src.ty(value)) {
                _ if flies => self.row_blocks(value),
                Some(spread) => spread.registers,
                None => 1,
            };
            let (these, tail) = rest.split_at(count);
            rest = tail;
            match flies {
                true => drop(self.values.insert(value, Mapped::Sums(these.into()))),
                false => self.bind_carried(std::iter::once(value), these),
            }
        }
    }

    // ---- consumers ----

    fn consume(&mut self, entry: Block) -> Result {
        let consumers = self.roles().consumers;
        let left = self.registers - self.producer_registers() * WARPGROUP;
        self.set_registers((left / (consumers * WARPGROUP) / 8 * 8).min(240), "increase")?;
        let zero = self.emit.index(0)?;
        let roles = self.roles.as_mut().expect("set");
        (roles.role, roles.stage, roles.parity) = (Role::Consumer, zero, zero);
        (roles.tile_parity, roles.past_turns) = (zero, zero);
        let turn = if self.takes_turns() { self.warpgroup()? } else { zero };
        self.set_turn(turn);
        let src = self.src;
        let last = src.last_op(entry);
        src.ops(entry).filter(|&op| Some(op) != last).try_for_each(|op| self.op(src.op_ref(op)))?;
        self.finish_stores()
    }
    /// Whether the producer carries out this load. What it loads once is waited for here.
    pub(super) fn is_produced(&mut self, load: Op) -> Result<bool> {
        let Some((ring, _)) = self.stream_of(load) else { return Ok(false) };
        if ring.empty.is_none() || ring.by_tile {
            let (zero, parity) = (self.emit.index(0)?, self.roles().tile_parity);
            let parity = if ring.by_tile { parity } else { zero };
            self.emit.op(op::kernel::MBARRIER_WAIT, &[&[ring.full], &[zero], &[parity]], &[], None)?;
        }
        Ok(true)
    }
    /// Reads a tile of the step at hand from shared memory as the accumulators of a product lie.
    pub(super) fn read_staged(&mut self, op: OpRef<'s>) -> Result<bool> {
        let (src, tile) = (self.src, op.operand(0));
        let stream = src.defining_op(tile).filter(|_| reads_staged(src, op.op)).and_then(|load| self.stream_of(load));
        let Some((ring, stream)) = stream else { return Ok(false) };
        let (stream, to) = (ring.streams[stream], op.result_types()[0]);
        let (spread, warps) = (self.spread(op, to)?, self.warps);
        if Layout::of(to) != Some(Layout::Mma { warps: [warps, 1] }) {
            return Err(op
                .unsupported(format!("from shared memory to {to}"))
                .help("choose a schedule without staged_bias"));
        }
        let Roles { stage, parity, .. } = *self.roles();
        self.emit.op(op::kernel::MBARRIER_WAIT, &[&[ring.full], &[stage], &[parity]], &[], None)?;
        let (rows, columns) = (16 * warps, spread.shape[1]);
        let mut registers = vec![stage; spread.registers];
        for at in (0..spread.shape[0])
            .step_by(rows as usize)
            .flat_map(|i| (0..columns).step_by(WIDTH as usize).map(move |j| [i, j]))
        {
            let mut place = vec![stage];
            if stream.blocks > 1 {
                place.push(self.emit.index(at[1] / WIDTH)?);
            }
            let block = self.part_of(stream.memory, &place)?;
            self.read_box(block, at[0], &spread, at, (columns - at[1]).min(WIDTH), &mut registers)?;
        }
        self.bind_tile(op.result(0), registers);
        Ok(true)
    }
    /// Reads 16 rows of each warp and up to 64 columns from shared memory, from a row on, as accumulators lie: into the registers of a tile's rows and columns from `at` on.
    pub(super) fn read_box(
        &mut self,
        memory: Value,
        first: i64,
        spread: &Distribution,
        at: [i64; 2],
        columns: i64,
        registers: &mut [Value],
    ) -> Result {
        // Four matrices of 8 x 8: rows 0-7 and 8-15, each for columns 0-7, then for 8-15.
        let (row, chunk) = (self.digit(1, 16, true)?, self.digit(16, 2, true)?);
        let warp = self.digit(1, self.warps, false)?;
        let down = self.emit.combine_digits(&[(warp, 16), (row, 1)])?;
        let along = self.emit.combine_digits(&[(chunk, 8)])?;
        let row = self.emit.get(down.plus(first))?;
        let result = Type::vector(&[8], self.emit.ty(memory).elem());
        for column in (0..columns).step_by(16) {
            let place = [row, self.emit.get(along.plus(column))?];
            let attrs = [("trans", Attr::bool(false)), ("swizzle", Attr::i64(128))];
            let read = self.emit.op(op::kernel::LDMATRIX, &[&[memory], &place], &attrs, Some(&[result]))?;
            let four = self.emit.body.result(read, 0);
            for (part, (down, across)) in [(0, 0), (8, 0), (0, 8), (8, 8)].into_iter().enumerate() {
                let register = spread.locate(&[at[0] + down, at[1] + column + across]).0;
                registers[register] = self.emit.slice(four, 2 * part as i64, 2)?;
            }
        }
        Ok(())
    }
    /// At the end of a step: what threads have read is empty. Its products, which depend on that, have been started: a read that is issued may wait
    /// for long behind those of other products, and an arrival does not wait for it.
    fn release_what_is_read(&mut self) -> Result {
        let stage = self.roles().stage;
        let read: Vec<Value> = self.roles().rings.iter().filter(|r| r.by_threads).filter_map(|r| r.empty).collect();
        read.into_iter().try_for_each(|empty| {
            self.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[empty], &[stage], &[]], &[], None).map(drop)
        })
    }
    /// Whether this loop is around the product.
    pub(super) fn is_piped(&self, op: Op) -> bool {
        self.roles.as_ref().is_some_and(|r| r.loops.contains(&op))
    }
    /// All consumers of a tile wait for one another; without roles, all threads.
    pub(super) fn barrier(&mut self) -> Result {
        if self.takes_turns() {
            let group = self.warpgroup()?;
            return self.group_barrier(group);
        }
        let attrs = match &self.roles {
            Some(roles) => vec![("id", Attr::i64(1)), ("threads", Attr::i64(roles.consumers * WARPGROUP))],
            None => Vec::new(),
        };
        self.emit.op(op::kernel::BARRIER, &[], &attrs, None).map(drop)
    }
}

/// Whether threads read a tile from shared memory into registers.
fn reads_staged(body: &Body, op: Op) -> bool {
    let of = |v: Value| Layout::of(body.ty(v));
    body.name(op) == op::kernel::CONVERT_LAYOUT && matches!(of(body.operand(op, 0)), Some(Layout::Shared { .. }))
}

/// The operations on tiles that compute the places of what the rings gather.
fn addresses(src: &Body, rings: &[Ring]) -> FxHashSet<Op> {
    let mut found = FxHashSet::default();
    let gathers = rings.iter().flat_map(|r| &r.streams).filter(|s| s.map.is_none());
    let mut stack: Vec<Value> = gathers.flat_map(|s| src.op_ref(s.load).group("where")).collect();
    while let Some(value) = stack.pop() {
        let Some(op) = src.defining_op(value).filter(|_| src.ty(value).is_tile()) else { continue };
        if found.insert(op) {
            stack.extend(src.operands(op));
        }
    }
    found
}

fn enclosing_loops(body: &Body, op: Op) -> Vec<Op> {
    let parents = std::iter::successors(body.parent_op(op), |&o| body.parent_op(o));
    parents.take_while(|&o| o != body.root()).collect()
}
