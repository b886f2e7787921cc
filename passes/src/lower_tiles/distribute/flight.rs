//! Products of warpgroups under way. They run asynchronously, in the order in which they are started; what reads a product's sums waits for it
//! and so for all before it, while those started later go on. The last products of a step stay under way into the next one: the loop carries
//! their sums. A stage of shared memory is empty once the last product that reads it is done.

use super::warpgroup::{Ring, Role, Roles, Stream, depth_of, is_warpgroup_dot};
use super::{Distribute, Mapped};
use crate::lower_tiles::emit::Ix;
use rc_dialects::op;
use rc_ir::{Attr, Body, Op, OpRef, Result, Type, Value};
use std::rc::Rc;

/// The products of one loop.
pub(super) struct Flight {
    dots: Vec<Op>,
    /// The last ones, whose sums only the next step's same product reads, or what scales them for it.
    trailing: Vec<Trailing>,
    /// Those started and not waited for.
    under_way: Vec<Started>,
    /// Where two warpgroups compute, a barrier for each says that it is its turn to start products, while the other one has work of another kind.
    pub(super) turns: Option<Value>,
}

#[derive(Clone, Copy)]
struct Trailing {
    dot: Op,
    /// The number of the carried value, and what it is in the loop.
    number: usize,
    arg: Value,
}

#[derive(Clone, Copy)]
struct Started {
    dot: Op,
    /// What stands for its sums.
    tile: Value,
    /// Whether the step before started it.
    earlier: bool,
}

impl Flight {
    pub(super) fn new(body: &Body, looped: Op, dots: &[Op]) -> Flight {
        let stays = |&&dot: &&Op| !rounds_in_registers(body, dot);
        let last = dots.iter().rev().take_while(stays);
        let mut trailing: Vec<Trailing> = last.map_while(|&dot| Trailing::of(body, looped, dot)).collect();
        trailing.reverse();
        Flight { dots: dots.to_vec(), trailing, under_way: Vec::new(), turns: None }
    }
    /// Whether carried value `number` of the loop is under way from one step to the next.
    pub(super) fn carries(&self, number: usize) -> bool {
        self.trailing.iter().any(|t| t.number == number)
    }
    /// Whether work of another kind lies between a step's two products.
    pub(super) fn alternates(&self) -> bool {
        self.dots.len() == 2 && self.trailing.len() == 1
    }
    fn trails(&self, dot: Op) -> bool {
        self.trailing.iter().any(|t| t.dot == dot)
    }
    /// How many of those under way come no later than the last that `holds`.
    fn up_to(&self, holds: impl Fn(&Started) -> bool) -> usize {
        self.under_way.iter().rposition(holds).map_or(0, |i| i + 1)
    }
}

/// Whether a product's left operand becomes TF32 in registers: threads gather it, where the copy engine would round it. Registers that a product under way reads
/// must stay as they are, so that it ends with its step.
fn rounds_in_registers(body: &Body, dot: Op) -> bool {
    let gathered = body.defining_op(body.operand(dot, 0)).is_some_and(|op| body.name(op) == op::kernel::GATHER);
    gathered && body.op_ref(dot).attr("of").and_then(|of| of.as_type()) == Some(Type::tf32())
}

impl Trailing {
    fn of(body: &Body, looped: Op, dot: Op) -> Option<Trailing> {
        let (entry, sums) = (body.op_ref(looped).entry(0)?, body.result(dot, 0));
        let number = body.operands(body.last_op(entry)?).position(|v| v == sums)?;
        let (arg, start) = (body.block_arg(entry, number + 1), body.operand(dot, 2));
        let scaled = || {
            let mul = body.defining_op(start).filter(|&op| body.name(op) == op::core::MUL)?;
            (body.parent(mul) == Some(entry) && body.has_one_use(start)).then(|| body.operands(mul).any(|v| v == arg))
        };
        let follows = start == arg || scaled() == Some(true);
        (follows && body.has_one_use(arg) && body.has_one_use(sums)).then_some(Trailing { dot, number, arg })
    }
}

impl<'s> Distribute<'s> {
    fn flight(&mut self) -> &mut Flight {
        &mut self.roles.as_mut().expect("only asked for in functions with roles").flight
    }

    /// Starts one step of a product.
    pub(super) fn dot_warpgroup(&mut self, op: OpRef<'s>) -> Result {
        if self.roles.is_none() {
            return Err(op
                .error("is a product of warpgroups outside of their kernel")
                .help("run lower-tiles' place first"));
        }
        let load = |i: usize| self.src.defining_op(op.operand(i)).and_then(|load| self.stream_of(load));
        let (left, Some(right)) = (load(0), load(1)) else {
            return Err(op
                .unsupported("with unit = wgmma whose right operand is not loaded")
                .help("choose unit = mma"));
        };
        self.await_tiles(op)?;
        let (turns, trails) = (self.roles().flight.turns, self.roles().flight.trails(op.op));
        if let Some(turns) = turns {
            self.take_turn(turns, trails)?;
        }
        let (a_t, b_t) = (op.bool("a_t"), !op.bool("b_t"));
        let blocks = self.row_blocks(op.result(0));
        let a: Option<Vec<Value>> = match &left {
            Some((ring, stream)) => {
                let tile = |block| self.left_tile(ring, ring.streams[*stream], a_t, block);
                Some((0..blocks).map(tile).collect::<Result<_>>()?)
            }
            None => None,
        };
        let depth = depth_of(op.operand_types()[1].elem());
        let steps: Vec<i64> = (0..self.depth(op)?).step_by(depth as usize).collect();
        let at = self.stage_of(&right.0)?;
        let b = self.part_of(right.0.streams[right.1].memory, &[at])?;
        let n = op.result_types()[0].static_shape().unwrap_or_default()[1];
        let (mut sums, new) = match self.values[&op.operand(2)].clone() {
            Mapped::Sums(sums) => (sums.to_vec(), false),
            _ => {
                let registers = self.registers(op.operand(2)).to_vec();
                (self.in_flight(op.operand(2), &registers)?, true)
            }
        };
        let constant = |&sums: &Value| rc_ir::op_def::constant_of(&self.emit.body, sums).is_some();
        let from_zero = new && sums.iter().all(constant);
        let rounds = rounds_in_registers(self.src, op.op);
        let mut lefts = Vec::new();
        for &k in &steps {
            for block in 0..blocks {
                lefts.push(match &a {
                    Some(tiles) if rounds => self.fragment_of_group(tiles[block], k)?,
                    Some(tiles) => tiles[block],
                    None => self.fragment_of_registers(op, [self.warps, 1], block as i64, k)?,
                });
            }
        }
        self.emit.op(op::kernel::WGMMA_FENCE, &[], &[], None)?;
        for (lefts, &k) in lefts.chunks(blocks).zip(&steps) {
            let mut attrs = vec![("n", Attr::i64(n)), ("k_offset", Attr::i64(k))];
            let flags = [("a_t", a_t), ("b_t", b_t), ("zero", from_zero && k == 0)];
            attrs.extend(flags.into_iter().filter(|f| f.1).map(|f| (f.0, Attr::bool(true))));
            for (&left, sums) in lefts.iter().zip(&mut sums) {
                *sums = self.emit.value(op::kernel::WGMMA, &[left, b, *sums], &attrs, None)?;
            }
        }
        self.emit.op(op::kernel::WGMMA_COMMIT, &[], &[], None)?;
        self.values.insert(op.result(0), Mapped::Sums(sums.into()));
        if let Some(turns) = turns.filter(|_| !trails) {
            self.pass_turn(turns)?;
        }
        self.started(op)
    }
    /// Waits for the tiles that this product is the first to read.
    fn await_tiles(&mut self, op: OpRef<'s>) -> Result {
        let Roles { stage, parity, ref rings, .. } = *self.roles();
        let rings: Vec<Ring> =
            rings.iter().filter(|r| r.readers[0] == op.op && r.empty.is_some() && !r.by_tile).cloned().collect();
        for ring in rings {
            self.emit.op(op::kernel::MBARRIER_WAIT, &[&[ring.full], &[stage], &[parity]], &[], None)?;
            if ring.gathers() {
                self.emit.op(op::kernel::FENCE, &[], &[("kind", Attr::str("async_shared"))], None)?;
            }
        }
        Ok(())
    }
    /// Notes that a product is under way. After a step's last one, those of the step before are waited for: their stages are empty then.
    fn started(&mut self, op: OpRef<'s>) -> Result {
        let (start, tile) = (op.operand(2), op.result(0));
        let flight = self.flight();
        flight.under_way.iter_mut().filter(|s| s.tile == start).for_each(|s| s.tile = tile);
        flight.under_way.push(Started { dot: op.op, tile, earlier: false });
        if flight.dots.last() != Some(&op.op) {
            return Ok(());
        }
        let earlier = flight.up_to(|s| s.earlier);
        self.land(earlier)
    }

    /// At the start of a step: what the one before left under way.
    pub(super) fn take_off(&mut self) {
        let flight = self.flight();
        let earlier = |t: &Trailing| Started { dot: t.dot, tile: t.arg, earlier: true };
        flight.under_way = flight.trailing.iter().map(earlier).collect();
    }
    /// At the end of a step: only its last products stay under way.
    pub(super) fn land_before_the_next_step(&mut self) -> Result {
        let flight = self.flight();
        let others = flight.up_to(|s| !flight.trails(s.dot));
        self.land(others)?;
        self.flight().under_way.clear();
        Ok(())
    }
    /// Waits for the products whose sums an operation reads, other than to add to them.
    pub(super) fn land_what_is_read(&mut self, op: OpRef<'s>) -> Result {
        let consumes = self.roles.as_ref().is_some_and(|r| r.role == Role::Consumer);
        if !consumes || self.roles().flight.under_way.is_empty() {
            return Ok(());
        }
        let mut read: Vec<Value> = match is_warpgroup_dot(self.src, op.op) {
            true => vec![op.operand(0)],
            false => op.operands().collect(),
        };
        if !self.src.regions(op.op).is_empty() {
            read.extend(self.src.walk_from(op.op).into_iter().flat_map(|inner| self.src.operands(inner)));
        }
        let count = self.roles().flight.up_to(|s| read.contains(&s.tile));
        self.land(count)
    }
    /// Waits for the first `count` of the products under way.
    fn land(&mut self, count: usize) -> Result {
        if count == 0 {
            return Ok(());
        }
        let flight = self.flight();
        let landed: Vec<Started> = flight.under_way.drain(..count).collect();
        let pending = flight.under_way.len() as i64;
        self.wait(&landed.iter().map(|s| s.tile).collect::<Vec<_>>(), pending)?;
        for started in landed.iter().filter(|s| !s.earlier) {
            self.emptied_by(started.dot).into_iter().try_for_each(|ring| self.arrive(ring))?;
            self.release_tiles_read_by(started.dot)?;
        }
        let before: Vec<Value> = landed.iter().filter(|s| s.earlier).flat_map(|s| self.emptied_by(s.dot)).collect();
        if before.is_empty() {
            return Ok(());
        }
        let later = self.after_first()?;
        before.into_iter().try_for_each(|ring| self.release(ring, later))
    }
    /// Waits until at most `pending` products are under way, of which these are none. Their sums are registers, but for those that a product adds to
    /// as they are.
    fn wait(&mut self, tiles: &[Value], pending: i64) -> Result {
        let mut tiles = tiles.to_vec();
        tiles.dedup();
        let sums = self.flatten(tiles.iter().copied());
        let waited = self.emit.op(op::kernel::WGMMA_WAIT, &[&sums], &[("pending", Attr::i64(pending))], None)?;
        let mut results = self.emit.body.results(waited).collect::<Vec<_>>().into_iter();
        for &tile in &tiles {
            let sums: Rc<[Value]> = results.by_ref().take(self.row_blocks(tile)).collect();
            if self.stays_whole(tile) {
                self.values.insert(tile, Mapped::Sums(sums));
            } else {
                let registers = self.registers_of(tile, &sums)?;
                self.bind_tile(tile, registers);
            }
        }
        Ok(())
    }
    /// Whether only products add to these sums, and the loop carries them as one vector if it does.
    fn stays_whole(&self, tile: Value) -> bool {
        let src = self.src;
        let carried = self.roles().flight.trailing.iter().any(|t| src.result(t.dot, 0) == tile);
        src.uses(tile).all(|(user, number)| {
            is_warpgroup_dot(src, user) && number == 2 || carried && src.name(user) == op::kernel::YIELD
        })
    }
    /// The barriers of what this product is the last to read of each step.
    fn emptied_by(&self, dot: Op) -> Vec<Value> {
        let rings = self.roles().rings.iter().filter(|r| r.readers[1] == dot && !r.by_tile);
        rings.filter_map(|r| r.empty).collect()
    }
    /// The barriers of what this product is the last to read of each tile of results.
    fn emptied_with_tile(&self, dot: Op) -> Vec<Value> {
        let rings = self.roles().rings.iter().filter(|r| r.readers[1] == dot && r.by_tile);
        rings.filter_map(|r| r.empty).collect()
    }
    /// The step's product was the last to read what was loaded for the tile, if the step is the last.
    fn release_tiles_read_by(&mut self, dot: Op) -> Result {
        let empty = self.emptied_with_tile(dot);
        if empty.is_empty() {
            return Ok(());
        }
        let looped = self.src.op_ref(self.roles().loops[0]);
        let ([_, counter, step], upper) = (self.counters()?, self.ix(looped.operand(1)));
        let (next, upper) = (self.emit.core(op::core::ADD, &[counter, step])?, self.emit.get(upper)?);
        let last = self.emit.compare("ge", next, upper)?;
        empty.into_iter().try_for_each(|ring| self.say_empty(ring, Some(last), |d| d.emit.index(0)))
    }
    /// After the loop: what was loaded for the tile is empty, if no step of the loop has said so.
    fn release_tiles(&mut self, [lower, upper]: [Value; 2]) -> Result {
        for dot in self.roles().flight.dots.clone() {
            let (empty, trails) = (self.emptied_with_tile(dot), self.roles().flight.trails(dot));
            for ring in empty {
                let never_ran = if trails { None } else { Some(self.emit.compare("ge", lower, upper)?) };
                self.say_empty(ring, never_ran, |d| d.emit.index(0))?;
            }
        }
        Ok(())
    }
    /// After the loop: all products are done, and the last stage is empty.
    pub(super) fn finish_products(&mut self, op: OpRef<'s>) -> Result {
        let trailing = self.roles().flight.trailing.clone();
        if !trailing.is_empty() {
            let tiles: Vec<Value> = trailing.iter().map(|t| op.result(t.number)).collect();
            self.wait(&tiles, 0)?;
        }
        let (lower, upper) = (self.ix(op.operand(0)), self.ix(op.operand(1)));
        let bounds = [self.emit.get(lower)?, self.emit.get(upper)?];
        self.release_tiles(bounds)?;
        if trailing.is_empty() {
            return Ok(());
        }
        let ran = self.emit.compare("lt", bounds[0], bounds[1])?;
        for ring in trailing.iter().flat_map(|t| self.emptied_by(t.dot)).collect::<Vec<_>>() {
            self.release(ring, ran)?;
        }
        match self.roles().flight.turns {
            Some(turns) => {
                self.branch(ran, |d| d.pass_turn(turns))?;
                if self.roles().loops.len() > 1 { self.count_turns(bounds, ran) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    /// The innermost loop's first counter, its counter and its step.
    fn counters(&mut self) -> Result<[Value; 3]> {
        let looped = self.src.op_ref(self.roles().loops[0]);
        let counter = self.src.block_arg(looped.entry(0).expect("verified"), 0);
        let (lower, step) = (self.ix(looped.operand(0)), self.ix(looped.operand(2)));
        Ok([self.emit.get(lower)?, self.one(counter), self.emit.get(step)?])
    }
    /// Whether this is not the loop's first step.
    fn after_first(&mut self) -> Result<Value> {
        let [lower, counter, _] = self.counters()?;
        self.emit.compare("gt", counter, lower)
    }
    /// Waits until it is this warpgroup's turn to start products: before the trailing one of each step, which the next step's first one
    /// follows, and before a tile's very first, where only the first warpgroup's of the first tile waits for nobody. So one warpgroup's products run
    /// beside the other's softmax.
    fn take_turn(&mut self, turns: Value, trails: bool) -> Result {
        let group = self.digit(4, 2, false)?;
        let [lower, counter, step] = self.counters()?;
        let (one, two) = (self.emit.index(1)?, self.emit.index(2)?);
        let turns_before = self.roles().past_turns;
        if !trails {
            let first = self.emit.compare("eq", counter, lower)?;
            // The phase before a barrier's first counts as completed.
            let other = self.emit.core(op::core::SUB, &[one, group])?;
            let number = self.emit.core(op::core::ADD, &[turns_before, other])?;
            let parity = self.emit.core(op::core::REM, &[number, two])?;
            return self.branch(first, |d| {
                d.emit.op(op::kernel::MBARRIER_WAIT, &[&[turns], &[group], &[parity]], &[], None).map(drop)
            });
        }
        let span = self.emit.core(op::core::SUB, &[counter, lower])?;
        let number = self.emit.core(op::core::DIV, &[span, step])?;
        let number = self.emit.core(op::core::ADD, &[number, group])?;
        let number = self.emit.core(op::core::ADD, &[number, turns_before])?;
        let parity = self.emit.core(op::core::REM, &[number, two])?;
        self.emit.op(op::kernel::MBARRIER_WAIT, &[&[turns], &[group], &[parity]], &[], None).map(drop)
    }
    /// After a tile whose loop goes from `lower` to `upper`: there was a turn for each step, and one before the first.
    fn count_turns(&mut self, [lower, upper]: [Value; 2], ran: Value) -> Result {
        let [_, _, step] = self.counters()?;
        let (zero, one, two) = (self.emit.index(0)?, self.emit.index(1)?, self.emit.index(2)?);
        let span = self.emit.core(op::core::SUB, &[upper, lower])?;
        // Rounded up, and one more.
        let span = self.emit.core(op::core::ADD, &[span, step])?;
        let span = self.emit.core(op::core::SUB, &[span, one])?;
        let steps = self.emit.core(op::core::DIV, &[span, step])?;
        let turns = self.emit.core(op::core::ADD, &[steps, one])?;
        let turns = self.emit.core(op::core::SELECT, &[ran, turns, zero])?;
        let past = self.emit.core(op::core::ADD, &[self.roles().past_turns, turns])?;
        let past = self.emit.core(op::core::REM, &[past, two])?;
        self.roles.as_mut().expect("set").past_turns = past;
        Ok(())
    }
    /// This warp has started its products.
    fn pass_turn(&mut self, turns: Value) -> Result {
        let (group, one, leads) = (self.digit(4, 2, false)?, self.emit.index(1)?, self.roles().leads);
        let other = self.emit.core(op::core::SUB, &[one, group])?;
        self.branch(leads, |d| d.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[turns], &[other], &[]], &[], None).map(drop))
    }

    /// How many times a warpgroup's 64 rows a tile has for each warpgroup.
    pub(super) fn row_blocks(&self, tile: Value) -> usize {
        let shape = self.src.ty(tile).static_shape().unwrap_or_default();
        (shape[0] / (16 * self.warps)).max(1) as usize
    }
    /// The warpgroup's 64 rows of a left operand: of all that it has, those with number `block`.
    fn left_tile(&mut self, ring: &Ring, stream: Stream, transposed: bool, block: usize) -> Result<Value> {
        let mut place = vec![self.stage_of(ring)?];
        let (groups, parts) = (self.roles().groups(), if transposed { stream.blocks } else { stream.parts });
        if parts > 1 {
            let number = if groups > 1 { Ix::of(self.warpgroup()?) } else { Ix::constant(0) };
            place.push(self.emit.get(number.plus(groups * block as i64))?);
        }
        self.part_of(stream.memory, &place)
    }
    /// This warp no longer reads the stage at hand.
    fn arrive(&mut self, empty: Value) -> Result {
        self.say_empty(empty, None, |d| Ok(d.roles().stage))
    }
    /// The stage before the one at hand is empty, where `condition` holds.
    fn release(&mut self, empty: Value, condition: Value) -> Result {
        self.say_empty(empty, Some(condition), |d| {
            let Roles { stage, stages, .. } = *d.roles();
            let (zero, one, last) = (d.emit.index(0)?, d.emit.index(1)?, d.emit.index(stages - 1)?);
            let wraps = d.emit.compare("eq", stage, zero)?;
            let before = d.emit.core(op::core::SUB, &[stage, one])?;
            d.emit.core(op::core::SELECT, &[wraps, last, before])
        })
    }

    /// The registers of a tile's accumulators as one vector for 64 rows, in wgmma's order: of eight columns, two of the first row, two of the row
    /// eight below.
    pub(super) fn in_flight(&mut self, tile: Value, registers: &[Value]) -> Result<Vec<Value>> {
        let rows = registers.chunks(registers.len() / self.row_blocks(tile));
        rows.map(|registers| self.vector_of(registers)).collect()
    }
    fn vector_of(&mut self, registers: &[Value]) -> Result<Value> {
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
    fn registers_of(&mut self, tile: Value, sums: &[Value]) -> Result<Vec<Value>> {
        let src = self.src;
        let spread = self.spread_of(src.op_ref(src.root()), tile)?;
        let columns = (spread.registers / sums.len()) as i64 / 2;
        let mut out = Vec::with_capacity(spread.registers);
        for (&sums, half) in sums.iter().flat_map(|sums| [(sums, 0), (sums, 1)]) {
            for j in 0..columns {
                out.push(self.emit.slice(sums, 4 * j + 2 * half, 2)?);
            }
        }
        Ok(out)
    }
}
