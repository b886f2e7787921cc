//! What the epilogue of a product on warpgroups reads of memory, in boxes of a tensor map, while the product's steps run. A warp of the producer for each
//! turn brings the boxes to shared memory, in the order in which the epilogue reads them; without room there, the producer has the second-level cache hold
//! them.

use super::Distribute;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::groups::steps_of;
use crate::lower_tiles::indices::Indices;
use crate::lower_tiles::layout::{Layout, WARP};
use crate::schedule::{ROW_BYTES, ROWS, WARPGROUP, WIDTH, is_mapped};
use rc_dialects::op;
use rc_ir::{Attr, Block, Dim, Op, OpRef, Result, Type, Value};

/// The attribute of a function that says how many boxes each warpgroup has in shared memory at once.
pub(super) const STAGES_AHEAD: &str = "epilogue_stages";

/// The loads, in order, and where their boxes are.
#[derive(Default)]
pub(super) struct Reads {
    loads: Vec<Read>,
    ahead: Option<Ahead>,
}

/// A load of so many boxes, of 64 columns each.
#[derive(Clone, Copy)]
struct Read {
    load: Op,
    map: Value,
    /// Rows of a box.
    rows: i64,
    /// How many there are of the load's rows and columns.
    boxes: [i64; 2],
    /// How many boxes of a tile of results come before.
    first: i64,
    /// The epilogue's loop that it is in, and how many boxes a step of it reads.
    looped: Option<(Op, i64)>,
}

/// Boxes in shared memory. Those of a turn have so many stages, with a barrier each that says that it is full, and one that it is empty.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// `[turns * stages, rows, 64]`.
    memory: Value,
    full: Value,
    empty: Value,
    /// Stages of all turns, and of each.
    count: i64,
    stages: i64,
    /// Boxes of a tile of results.
    boxes: i64,
    /// The number of the thread's turn.
    pub(super) turn: Value,
}

impl Reads {
    fn of(&self, load: Op) -> Option<Read> {
        self.loads.iter().copied().find(|read| read.load == load)
    }
    /// Whether a warp of the producer for each turn brings boxes.
    pub(super) fn has_loaders(&self) -> bool {
        self.ahead.is_some()
    }
}

impl<'s> Distribute<'s> {
    /// What the epilogue reads in boxes, after a product in these loops, innermost first; ahead of it where the schedule says so and `may_load`.
    pub(super) fn epilogue_reads(&mut self, loops: &[Op], [turns, groups]: [i64; 2], may_load: bool) -> Result<Reads> {
        let &[product, tiles] = loops else { return Ok(Reads::default()) };
        let found = self.loads_after(product, tiles);
        let stages = self.src.op_ref(self.src.root()).int(STAGES_AHEAD).filter(|&stages| stages > 0);
        let stages = stages.filter(|_| may_load && self.can_come_ahead(&found, tiles, groups));
        let mut loads = Vec::new();
        for &load in &found {
            let shape = load.result_types()[0].static_shape().unwrap_or_default();
            let rows = if stages.is_some() { ROWS * groups } else { shape[0] };
            let mut extents = vec![1; self.src.ty(load.operand(0)).rank()];
            extents[load.ints("dims").unwrap_or_default()[0] as usize] = rows;
            *extents.last_mut().expect("of two dimensions at least") = WIDTH;
            let map = self.tensor_map(load, load.result_types()[0].elem(), &extents)?;
            let boxes = [shape[0] / rows, (shape[1] + WIDTH - 1) / WIDTH];
            loads.push(Read { load: load.op, map, rows, boxes, first: 0, looped: None });
        }
        let Some(stages) = stages.filter(|_| !loads.is_empty()) else { return Ok(Reads { loads, ahead: None }) };
        let boxes = self.number_boxes(&mut loads, tiles);
        let (count, turn) = (turns * stages, self.emit.index(0)?);
        let ty = Type::memref(&[count, ROWS * groups, WIDTH].map(Dim::Static), found[0].result_types()[0].elem(), 3);
        let memory = self.emit.alloc_with(ty, &[("align", Attr::i64(1024))])?;
        let [full, empty] = [self.barriers(count)?, self.barriers(count)?];
        Ok(Reads { loads, ahead: Some(Ahead { memory, full, empty, count, stages, boxes, turn }) })
    }
    /// The loads of the epilogue that boxes cover: beside the product's loop, or in a loop over parts of the tile.
    fn loads_after(&self, product: Op, tiles: Op) -> Vec<OpRef<'s>> {
        let src = self.src;
        let mut indices = Indices::new(src);
        let mut found = Vec::new();
        for op in src.walk() {
            indices.meet(src, op);
            let around = src.parent_op(op).filter(|&parent| parent != product);
            let in_parts = |parent| src.name(parent) == op::kernel::FOR && src.parent_op(parent) == Some(tiles);
            let after = around.is_some_and(|parent| parent == tiles || in_parts(parent));
            if after && self.is_in_boxes(src.op_ref(op), &indices) {
                found.push(src.op_ref(op));
            }
        }
        found
    }
    /// Whether boxes of a tensor map cover what a load reads.
    fn is_in_boxes(&self, op: OpRef<'s>, indices: &Indices) -> bool {
        if !op.is(op::kernel::LOAD) {
            return false;
        }
        let (tile, memory) = (op.result_types()[0], self.src.ty(op.operand(0)));
        let (dims, shape) = (op.ints("dims").unwrap_or_default(), tile.static_shape().unwrap_or_default());
        matches!((&dims[..], &shape[..]), (&[down, last], &[rows, columns]) if down >= 0
                && last == memory.rank() as i64 - 1 && rows <= 256 && columns >= WIDTH)
            && tile.elem().byte_width() == Some(2)
            && memory.rank() <= 5
            && is_mapped(memory)
            && op.group("indices").last().is_some_and(|&first| indices.is_on_line(first, memory.elem()))
            && self.argument_of(op.operand(0)).is_some()
    }
    /// Whether all loads are of one type, lie as a product's sums do, in matrices of 16 columns, and are in loops of a known number of steps, if in any.
    fn can_come_ahead(&self, loads: &[OpRef<'s>], tiles: Op, groups: i64) -> bool {
        let elem = loads.first().map(|load| load.result_types()[0].elem());
        let sums = Some(Layout::Mma { warps: [4 * groups, 1] });
        loads.iter().all(|load| {
            let ty = load.result_types()[0];
            let shape = ty.static_shape().unwrap_or_default();
            let whole = shape[0] % (ROWS * groups) == 0 && shape[1] % 16 == 0;
            let counted = self.loop_of(load.op, tiles).is_none_or(|looped| steps_of(looped).is_some());
            Layout::of(ty) == sums && Some(ty.elem()) == elem && whole && counted
        })
    }
    /// The loop over parts of a tile of results that an operation is in.
    fn loop_of(&self, op: Op, tiles: Op) -> Option<OpRef<'s>> {
        self.src.parent_op(op).filter(|&parent| parent != tiles).map(|parent| self.src.op_ref(parent))
    }
    /// Numbers the boxes of a tile of results, and says how many they are.
    fn number_boxes(&self, loads: &mut [Read], tiles: Op) -> i64 {
        let mut total = 0;
        let looped = |read: &Read| self.loop_of(read.load, tiles);
        for of_loop in loads.chunk_by_mut(|a, b| looped(a).map(|l| l.op) == looped(b).map(|l| l.op)) {
            let mut step = 0;
            for read in of_loop.iter_mut() {
                read.first = total + step;
                step += read.boxes[0] * read.boxes[1];
            }
            let looped = looped(&of_loop[0]);
            of_loop.iter_mut().for_each(|read| read.looped = looped.map(|looped| (looped.op, step)));
            total += step * looped.and_then(steps_of).unwrap_or(1);
        }
        total
    }

    // ---- the producer ----

    pub(super) fn set_up_ahead(&mut self) -> Result {
        let Some(Ahead { full, empty, count, .. }) = self.roles().reads.ahead else { return Ok(()) };
        for read in self.roles().reads.loads.clone() {
            self.emit.op(op::kernel::TENSOR_PREFETCH, &[&[read.map]], &[], None)?;
        }
        let readers = self.roles().groups() * WARPGROUP;
        for (barriers, arrivals) in [(full, 1), (empty, readers)] {
            for stage in 0..count {
                let at = self.emit.index(stage)?;
                let attrs = [("count", Attr::i64(arrivals))];
                self.emit.op(op::kernel::MBARRIER_INIT, &[&[barriers], &[at]], &attrs, None)?;
            }
        }
        Ok(())
    }
    /// One thread of a warp for each turn, after the producer's first, brings the boxes of its tiles.
    pub(super) fn bring_ahead(&mut self, entry: Block, first: Value) -> Result {
        if !self.roles().reads.has_loaders() {
            return Ok(());
        }
        let (thread, leads, turns) = (self.emit.thread_id()?, self.roles().leads, self.roles().turns);
        let [zero, one, warp] = [0, 1, WARP].map(|n| self.emit.index(n));
        let place = self.emit.core(op::core::SUB, &[thread, first])?;
        let number = self.emit.core(op::core::DIV, &[place, warp?])?;
        let turn = self.emit.core(op::core::SUB, &[number, one?])?;
        let last = self.emit.index(turns)?;
        let after = self.emit.compare("gt", number, zero?)?;
        let before = self.emit.compare("le", number, last)?;
        let brings = self.emit.core(op::core::AND, &[after, before])?;
        let brings = self.emit.core(op::core::AND, &[brings, leads])?;
        self.set_turn(turn);
        self.branch(brings, |d| d.bring(entry))
    }
    /// The boxes that the thread brings; on whose tiles it works.
    pub(super) fn set_turn(&mut self, turn: Value) {
        self.roles.as_mut().expect("set").reads.ahead.iter_mut().for_each(|ahead| ahead.turn = turn);
    }
    fn bring(&mut self, block: Block) -> Result {
        let src = self.src;
        for op in src.ops(block).map(|op| src.op_ref(op)) {
            self.emit.loc = op.loc();
            self.indices.note(op);
            let around = |read: &Read| read.looped.is_some_and(|l| l.0 == op.op) || self.roles().loops[1] == op.op;
            if let Some(read) = self.roles().reads.of(op.op) {
                self.bring_boxes(op, read)?;
            } else if self.roles().reads.loads.iter().any(around) {
                self.plain_loop(op, |d, entry| d.bring(entry))?;
            } else if super::is_scalar(op) {
                self.copy(op)?;
            }
        }
        Ok(())
    }
    fn bring_boxes(&mut self, load: OpRef<'s>, read: Read) -> Result {
        let Ahead { memory, full, empty, .. } = self.ahead();
        for (number, at) in self.places(load, read).into_iter().enumerate() {
            let [stage, parity] = self.stage_ahead(read, number as i64)?;
            let one = self.emit.index(1)?;
            let parity = self.emit.core(op::core::SUB, &[one, parity])?;
            self.emit.op(op::kernel::MBARRIER_WAIT, &[&[empty], &[stage], &[parity]], &[], None)?;
            let attrs = [("bytes", Attr::i64(read.rows * ROW_BYTES))];
            self.emit.op(op::kernel::MBARRIER_EXPECT, &[&[full], &[stage]], &attrs, None)?;
            let coords = at.iter().rev().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let target = self.part_of(memory, &[stage])?;
            let groups: [&[Value]; 6] = [&[target], &[read.map], &coords, &[full], &[stage], &[]];
            self.emit.op(op::kernel::TENSOR_LOAD, &groups, &[], None)?;
        }
        Ok(())
    }
    /// Where the boxes of a load start, those of 64 columns after one another.
    fn places(&mut self, load: OpRef<'s>, read: Read) -> Vec<Vec<Ix>> {
        let start = load.group("indices").iter().map(|&v| self.ix(v)).collect::<Vec<Ix>>();
        let (down, last) = (load.ints("dims").unwrap_or_default()[0] as usize, start.len() - 1);
        let at = |(row, column): (i64, i64)| {
            let mut at = start.clone();
            at[down] = at[down].plus(row * read.rows);
            at[last] = at[last].plus(column * WIDTH);
            at
        };
        let [rows, columns] = read.boxes;
        (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).map(at).collect()
    }
    /// Has the second-level cache hold what an operation of the epilogue reads, if that is not brought further.
    pub(super) fn prefetch(&mut self, op: OpRef<'s>) -> Result {
        let reads = &self.roles().reads;
        let inside = reads.loads.iter().any(|read| self.src.parent_op(read.load) == Some(op.op));
        match reads.of(op.op) {
            _ if reads.has_loaders() => Ok(()),
            Some(read) => self.prefetch_boxes(op, read),
            None if inside => self.plain_loop(op, |d, entry| d.produce(entry)),
            None => Ok(()),
        }
    }
    fn prefetch_boxes(&mut self, load: OpRef<'s>, read: Read) -> Result {
        for at in self.places(load, read) {
            let coords = at.iter().rev().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let fetch =
                |d: &mut Self| d.emit.op(op::kernel::BOX_PREFETCH, &[&[read.map], &coords], &[], None).map(drop);
            match self.has_gatherers() {
                true => self.branch(self.roles().copies, fetch)?,
                false => fetch(self)?,
            }
        }
        Ok(())
    }

    // ---- both ----

    pub(super) fn ahead(&self) -> Ahead {
        self.roles().reads.ahead.expect("only asked for where warps bring boxes")
    }
    /// The stage of a box of a load, and the parity of the phase in which it is full.
    fn stage_ahead(&mut self, read: Read, number: i64) -> Result<[Value; 2]> {
        let Ahead { stages, boxes, turn, .. } = self.ahead();
        let tile = self.own_tile()?;
        let [stages, boxes, two] = [stages, boxes, 2].map(|n| self.emit.index(n));
        let (stages, two) = (stages?, two?);
        let mut before = self.emit.core(op::core::MUL, &[tile, boxes?])?;
        if let Some((looped, boxes)) = read.looped {
            let looped = self.src.op_ref(looped);
            let (counter, boxes) = (self.steps_before(looped)?, self.emit.index(boxes)?);
            let steps = self.emit.core(op::core::MUL, &[counter, boxes])?;
            before = self.emit.core(op::core::ADD, &[before, steps])?;
        }
        let number = self.emit.get(Ix::of(before).plus(read.first + number))?;
        let round = self.emit.core(op::core::DIV, &[number, stages])?;
        let parity = self.emit.core(op::core::REM, &[round, two])?;
        let stage = self.emit.core(op::core::REM, &[number, stages])?;
        let first = self.emit.core(op::core::MUL, &[turn, stages])?;
        Ok([self.emit.core(op::core::ADD, &[first, stage])?, parity])
    }

    // ---- consumers ----

    /// Reads a load's boxes from shared memory as the sums of a product lie.
    pub(super) fn read_ahead(&mut self, load: OpRef<'s>) -> Result<bool> {
        let reads = self.roles.as_ref().map(|roles| &roles.reads).filter(|reads| reads.has_loaders());
        let Some(read) = reads.and_then(|reads| reads.of(load.op)) else { return Ok(false) };
        let Ahead { memory, full, empty, .. } = self.ahead();
        let spread = self.spread_of(load, load.result(0))?;
        let zero = self.emit.index(0)?;
        let mut registers = vec![zero; spread.registers];
        let (blocks, columns) = (read.boxes[1], spread.shape[1]);
        for number in 0..read.boxes[0] * blocks {
            let [stage, parity] = self.stage_ahead(read, number)?;
            self.emit.op(op::kernel::MBARRIER_WAIT, &[&[full], &[stage], &[parity]], &[], None)?;
            let from = self.part_of(memory, &[stage])?;
            let at = [number / blocks * read.rows, number % blocks * WIDTH];
            self.read_box(from, 0, &spread, at, (columns - at[1]).min(WIDTH), &mut registers)?;
            // What the copy engine writes there comes after what has been read.
            self.emit.op(op::kernel::FENCE, &[], &[("kind", Attr::str("async_shared"))], None)?;
            self.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[empty], &[stage], &[]], &[], None)?;
        }
        self.bind_tile(load.result(0), registers);
        Ok(true)
    }
}
