//! Kernels whose product runs on Hopper's warpgroups: one more warpgroup copies, the others compute.
//!
//! The function's operations are gone through twice. The *producer* (one thread of the last warpgroup) runs the loops around
//! the product's loads and starts their copies ([`super::produce`]); the *consumers* run everything else ([`super::consume`]). Tiles go through stages of shared
//! memory: of each, one `mbarrier` says that it is full, another that it is empty. Loops carry the stage at hand and the
//! parity of its barrier's phase. What the blocks of a cluster read alike, they copy together ([`super::cluster`]).
//! Further warps of the producer's bring what the epilogue reads ([`super::ahead`]).

use super::Distribute;
use super::ahead::{Reads, STAGES_AHEAD};
use super::cluster::{Cluster, Share};
use super::consume::reads_staged;
use super::flight::Flight;
use super::staged::LastStaged;
use super::turns::TURNS;
use crate::lower_tiles::layout::{Layout, WARP};
use crate::schedule::{ROWS, WARPGROUP, row_width};
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
    pub(super) last: Option<Last>,
}

/// The last tile along an operand's rows, where these do not fill it, and nothing is summed over them: of boxes past the end the copy engine brings rows, too,
/// each of which takes as long as one inside. What lies there in shared memory gives sums that nothing stores. A tile that begins elsewhere, as one of shifted rows
/// does, is none.
#[derive(Clone, Copy)]
pub(super) struct Last {
    /// For boxes of the rows that are left over.
    pub(super) map: Value,
    /// The tile's rows.
    rows: i64,
    /// The first row of a tile, and that of this one.
    at: (Value, i64),
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
    /// Rows of a part in a box of the last tile.
    pub(super) fn rows_of_last(&self, last: Last, part: i64) -> i64 {
        // Past the end no fewer rows come than a box has, so that all that is read is defined.
        let left = last.rows % self.rows;
        if (part + 1) * self.rows <= last.rows || left == 0 { self.rows } else { left }
    }
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
    pub(super) fn copies(&self) -> bool {
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
    pub(super) addresses: FxHashSet<Op>,
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
        if self.emit.body.attr(root, "min_blocks").is_none() {
            self.emit.body.set_attr(root, "min_blocks", Attr::i64(1));
        }
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
    /// What is done for an operand's last tile, and what for the others.
    pub(super) fn by_last(&mut self, last: Last, mut body: impl FnMut(&mut Self, bool) -> Result) -> Result {
        let start = self.ix(last.at.0);
        if start.value.is_none() {
            return body(self, start.plus == last.at.1);
        }
        let (start, from) = (self.emit.get(start)?, self.emit.index(last.at.1)?);
        let is_last = self.emit.compare("eq", start, from)?;
        let made = self.emit.op(op::kernel::IF, &[&[is_last]], &[], Some(&[]))?;
        self.region_of(made, |d| body(d, true))?;
        self.region_of(made, |d| body(d, false))
    }
    pub(super) fn set_registers(&mut self, count: i64, action: &str) -> Result {
        if self.roles().consumers == 1 {
            return Ok(()); // Two warpgroups have as many as a thread may have.
        }
        let attrs = [("count", Attr::i64(count)), ("action", Attr::str(action))];
        self.emit.op(op::kernel::SET_MAX_REGISTERS, &[], &attrs, None).map(drop)
    }
    /// Registers that each thread of the producer keeps: addresses of what it gathers take more.
    pub(super) fn producer_registers(&self) -> i64 {
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
            let of_last = |s: &Stream| s.last.map(|last| last.map).filter(|&map| s.map != Some(map));
            for map in ring.streams.iter().flat_map(|s| [s.map, of_last(s)]).flatten() {
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
        let stream = self.boxes(load, elem, [stages, parts, rows / parts, columns], cluster)?;
        Ok(Stream { last: self.last_tile(load, elem, stream)?, ..stream })
    }
    /// The last tile along the rows of a product's operand.
    fn last_tile(&mut self, load: OpRef<'s>, elem: Type, stream: Stream) -> Result<Option<Last>> {
        let (src, rows) = (self.src, stream.parts * stream.rows);
        let of_results = |(user, operand): (Op, usize)| {
            let user = src.op_ref(user);
            user.is(op::kernel::DOT) && (operand == 0 && !user.bool("a_t") || operand == 1 && user.bool("b_t"))
        };
        let down = load.ints("dims").unwrap_or_default()[0] as usize;
        let (memref, start) = (src.ty(load.operand(0)), load.group("indices")[down]);
        let size = memref.shape()[down].as_static().unwrap_or(0);
        let left = size % rows;
        // Of steps along the rows only some would be the last one.
        let outside = src.defining_block(start) != src.parent(load.op);
        if left == 0 || !outside || stream.share.is_some() || !src.uses(load.result(0)).all(of_results) {
            return Ok(None);
        }
        let mut extents = vec![1; memref.rank()];
        extents[down] = left % stream.rows;
        extents[memref.rank() - 1] = row_width(elem);
        let whole = left % stream.rows == 0;
        let map = if whole { stream.map.expect("of boxes") } else { self.tensor_map(load, elem, &extents)? };
        Ok(Some(Last { map, rows: left, at: (start, size - left) }))
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
        Ok(Stream { load: load.op, map, memory, parts, blocks, rows, share, last: None })
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
