//! The producer of a kernel on warpgroups: the loops around the products' loads, and their copies to shared memory.

use super::Distribute;
use super::cluster::Share;
use super::warpgroup::{Last, Ring, Role, Stream};
use crate::lower_tiles::emit::Ix;
use crate::schedule::ROW_BYTES;
use rc_dialects::op;
use rc_ir::{Attr, Block, Op, OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
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
        let lasts: Vec<Stream> = ring.streams.iter().filter(|s| s.last.is_some()).copied().collect();
        self.expect_bytes(ring, stage, &lasts, bytes)
    }
    /// Says how much will come, which is less of operands' last tiles.
    fn expect_bytes(&mut self, ring: &Ring, stage: Value, lasts: &[Stream], bytes: i64) -> Result {
        let Some((stream, rest)) = lasts.split_first() else {
            let attrs = [("bytes", Attr::i64(bytes))];
            return self.emit.op(op::kernel::MBARRIER_EXPECT, &[&[ring.full], &[stage]], &attrs, None).map(drop);
        };
        let last = stream.last.expect("of those that have one");
        let rows: i64 = (0..stream.parts).map(|part| stream.rows - stream.rows_of_last(last, part)).sum();
        let fewer = rows * stream.blocks * ROW_BYTES;
        self.by_last(last, |d, is_last| d.expect_bytes(ring, stage, rest, bytes - if is_last { fewer } else { 0 }))
    }
    /// Starts the copies of one step's boxes.
    fn copy_boxes(&mut self, ring: &Ring, stream: Stream, map: Value, load: OpRef<'s>) -> Result {
        match stream.last {
            Some(last) => {
                self.by_last(last, |d, is_last| d.copy_rows(ring, stream, map, is_last.then_some(last), load))
            }
            None => self.copy_rows(ring, stream, map, None, load),
        }
    }
    /// Starts the copies of the boxes of a tile, or of the last one.
    fn copy_rows(&mut self, ring: &Ring, stream: Stream, map: Value, last: Option<Last>, load: OpRef<'s>) -> Result {
        let stage = self.stage_of(ring)?;
        let Stream { memory, parts, blocks, rows, share, .. } = stream;
        let width = stream.width(self);
        let to = if share.is_some() { self.all_blocks()? } else { Vec::new() };
        let [own_parts, own_blocks, own_rows] = self.own_share(stream);
        let first_part = self.first_own(share, Share::Parts, own_parts)?;
        let first_block = self.first_own(share, Share::Blocks, own_blocks)?;
        let mut start = load.group("indices").iter().map(|&v| self.ix(v)).collect::<Vec<Ix>>();
        let (down, across) = (load.ints("dims").unwrap_or_default()[0] as usize, start.len() - 1);
        for (dim, way, count) in [
            (down, Share::Parts, own_parts * rows),
            (down, Share::Rows, own_rows),
            (across, Share::Blocks, own_blocks * width),
        ] {
            let first = self.first_own(share, way, count)?;
            start[dim] = self.emit.add(start[dim], first)?;
        }
        for (part, block) in (0..own_parts).flat_map(|part| (0..own_blocks).map(move |block| (part, block))) {
            let map = last.filter(|&last| stream.rows_of_last(last, part) < rows).map_or(map, |last| last.map);
            let mut at = start.clone();
            at[down] = at[down].plus(part * rows);
            at[across] = at[across].plus(block * width);
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
}
