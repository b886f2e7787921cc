//! Blocks of a cluster. What all of them read alike is copied once: each block copies a part of it, to the same place in the shared memory of each.
//! So a stage is empty once the warps of all blocks have read it: each says so to every block.

use super::Distribute;
use super::warpgroup::Stream;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::WARP;
use rc_dialects::op;
use rc_ir::body::ValueDef;
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Body, Dim, Op, OpRef, Result, Value};
use rustc_hash::FxHashSet;

/// Rows after which the pattern repeats in which boxes lie in shared memory.
const SWIZZLED_ROWS: i64 = 8;

/// The blocks that a block is one of.
pub(super) struct Cluster {
    pub(super) blocks: i64,
    /// The block's number among them.
    pub(super) rank: Value,
    /// The warp's threads that speak for it, each to the block of its lane's number.
    speaks: Value,
    lane: Value,
    /// The values of the source that may not be the same in all blocks.
    own: FxHashSet<Value>,
}

/// What of a tile each block copies for all: some of its parts, of its blocks of columns, or of its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Parts,
    Blocks,
    Rows,
}

impl Cluster {
    /// What of a tile `[parts, blocks, rows]` a block copies, where a load is of the same tile in all.
    pub(super) fn share_of(&self, load: OpRef, [parts, blocks, rows]: [i64; 3]) -> Option<Share> {
        if load.operands().any(|v| self.own.contains(&v)) {
            return None;
        }
        let ways = [(Share::Parts, parts), (Share::Blocks, blocks), (Share::Rows, rows / SWIZZLED_ROWS)];
        ways.into_iter().find(|way| way.1 % self.blocks == 0).map(|way| way.0)
    }
    /// Steps of all blocks are the same: each waits for the others'.
    pub(super) fn check_loops(&self, src: &Body, loops: &[Op]) -> Result {
        let differs = |op: &&Op| src.operands(**op).take(3).any(|v| self.own.contains(&v));
        match loops.iter().find(differs) {
            Some(&op) => Err(src
                .op_ref(op)
                .unsupported("with other steps in each program of a cluster")
                .help("leave out cluster")),
            None => Ok(()),
        }
    }
}

/// The values that depend on which of a cluster's blocks it is.
fn own_values(src: &Body, blocks: i64) -> FxHashSet<Value> {
    let mut own = FxHashSet::default();
    let program = |v: Value| src.defining_op(v).is_some_and(|op| src.name(op) == op::kernel::PROGRAM_ID);
    for op in src.walk().into_iter().filter(|&op| op != src.root()) {
        let (name, at) = (src.name(op).as_str(), src.op_ref(op));
        // Programs after one another are a cluster.
        let divisor = |v: Value| constant_of(src, v).and_then(|n| n.as_int());
        let number = name == op::core::DIV
            && program(at.operand(0))
            && divisor(at.operand(1)).is_some_and(|n| n % blocks == 0)
            && is_along_x(src, at.operand(0));
        let differs = [op::kernel::PROGRAM_ID, op::kernel::CLUSTER_RANK].contains(&name)
            || src.operands(op).any(|v| own.contains(&v));
        if differs && !number {
            own.extend(src.results(op));
        }
        for entry in (0..src.regions(op).len()).filter_map(|region| at.entry(region)) {
            // What a loop carries may become different in a later step.
            let counters = usize::from(name == op::kernel::FOR && !src.operands(op).take(3).any(|v| own.contains(&v)));
            own.extend(src.block_args(entry).skip(counters));
        }
        if !src.regions(op).is_empty() {
            own.extend(src.results(op));
        }
    }
    own
}

fn is_along_x(src: &Body, program: Value) -> bool {
    matches!(src.def(program), ValueDef::Result(op, _) if src.op_ref(op).int("axis") == Some(0))
}

impl<'s> Distribute<'s> {
    /// The cluster that the function says.
    pub(super) fn cluster(&mut self) -> Result<Option<Cluster>> {
        let root = self.src.op_ref(self.src.root());
        let extents = root.ints("cluster").unwrap_or_default();
        let blocks: i64 = extents.iter().product();
        if extents.is_empty() || blocks == 1 {
            return Ok(None);
        }
        if extents[0] != blocks || blocks > WARP {
            return Err(root.unsupported(format!("with unit = wgmma and clusters of {extents:?}")));
        }
        let (rank, lane) = (self.emit.cluster_rank()?, self.emit.lane_digit(1, WARP)?);
        let count = self.emit.index(blocks)?;
        let speaks = self.emit.compare("lt", lane, count)?;
        Ok(Some(Cluster { blocks, rank, speaks, lane, own: own_values(self.src, blocks) }))
    }
    /// All threads wait for one another, those of the cluster's other blocks too.
    pub(super) fn block_barrier(&mut self) -> Result {
        match self.roles().cluster {
            Some(_) => self.emit.op(op::kernel::CLUSTER_BARRIER, &[], &[("relaxed", Attr::bool(true))], None).map(drop),
            None => self.emit.op(op::kernel::BARRIER, &[], &[], None).map(drop),
        }
    }
    /// At the end the producer waits until every stage is empty: before, the cluster's other blocks copy to this one's memory or arrive at its barriers,
    /// which are another kernel's once the block has ended. A barrier of the cluster would have to wait for all memory to keep those arrivals before it.
    pub(super) fn outlast_the_cluster(&mut self) -> Result {
        let shared: Vec<Value> = self.roles().rings.iter().filter(|r| r.shares()).filter_map(|r| r.empty).collect();
        for _ in 0..if shared.is_empty() { 0 } else { self.roles().stages } {
            let (stage, parity) = (self.roles().stage, self.roles().parity);
            for &empty in &shared {
                self.emit.op(op::kernel::MBARRIER_WAIT, &[&[empty], &[stage], &[parity]], &[], None)?;
            }
            self.next_stage()?;
        }
        Ok(())
    }
    /// Says that a stage is empty, where `condition` holds: for the warp, to each block that copies to it.
    pub(super) fn say_empty(
        &mut self,
        empty: Value,
        condition: Option<Value>,
        stage: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result {
        let roles = self.roles();
        let shared = roles.rings.iter().any(|ring| ring.empty == Some(empty) && ring.shares());
        let (speaks, to) = match roles.cluster.as_ref().filter(|_| shared) {
            Some(cluster) => (cluster.speaks, vec![cluster.lane]),
            None => (roles.leads, Vec::new()),
        };
        let speaks = match condition {
            Some(condition) => self.emit.core(op::core::AND, &[condition, speaks])?,
            None => speaks,
        };
        self.branch(speaks, |d| {
            let stage = stage(d)?;
            d.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[empty], &[stage], &to], &[], None).map(drop)
        })
    }
    /// The mask that names all blocks.
    pub(super) fn all_blocks(&mut self) -> Result<Vec<Value>> {
        let blocks = self.roles().blocks();
        self.emit.index((1 << blocks) - 1).map(|mask| vec![mask])
    }
    /// What of a stream's `[parts, blocks, rows]` this block copies.
    pub(super) fn own_share(&self, Stream { parts, blocks, rows, share, .. }: Stream) -> [i64; 3] {
        let own = |way, count| if share == Some(way) { count / self.roles().blocks() } else { count };
        [own(Share::Parts, parts), own(Share::Blocks, blocks), own(Share::Rows, rows)]
    }
    /// The first that it copies, of so many for each block, where blocks share in this way.
    pub(super) fn first_own(&mut self, share: Option<Share>, way: Share, count: i64) -> Result<Ix> {
        match self.roles().cluster.as_ref().filter(|_| share == Some(way)) {
            Some(cluster) => {
                let rank = cluster.rank;
                self.emit.combine_digits(&[(rank, count)])
            }
            None => Ok(Ix::constant(0)),
        }
    }
    /// The place of a box in a stream's memory, or of this block's rows of it.
    pub(super) fn own_rows(&mut self, memory: Value, mut place: Vec<Value>, share: Option<Share>) -> Result<Value> {
        let Some(cluster) = self.roles().cluster.as_ref().filter(|_| share == Some(Share::Rows)) else {
            return self.part_of(memory, &place);
        };
        let (blocks, rank) = (cluster.blocks, cluster.rank);
        let ty = self.emit.ty(memory);
        let mut shape = ty.shape().to_vec();
        let rows = shape.len() - 2;
        shape[rows] = shape[rows].floordiv(Dim::Static(blocks));
        shape.insert(rows, Dim::Static(blocks));
        let parted = self.emit.value(op::kernel::VIEW, &[memory], &[], Some(ty.with_shape(&shape)))?;
        place.push(rank);
        self.part_of(parted, &place)
    }
}
