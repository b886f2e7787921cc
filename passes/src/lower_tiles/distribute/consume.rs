//! The consumers of a kernel on warpgroups: everything but the products' loads, which they wait for.

use super::Distribute;
use super::warpgroup::{Role, Roles};
use crate::lower_tiles::layout::{Distribution, Layout};
use crate::schedule::{WARPGROUP, WIDTH};
use rc_dialects::op;
use rc_ir::{Attr, Block, Body, Op, OpRef, Result, Type, Value};

impl<'s> Distribute<'s> {
    pub(super) fn consume(&mut self, entry: Block) -> Result {
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
    pub(super) fn release_what_is_read(&mut self) -> Result {
        let stage = self.roles().stage;
        let read: Vec<Value> = self.roles().rings.iter().filter(|r| r.by_threads).filter_map(|r| r.empty).collect();
        read.into_iter().try_for_each(|empty| {
            self.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[empty], &[stage], &[]], &[], None).map(drop)
        })
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
pub(super) fn reads_staged(body: &Body, op: Op) -> bool {
    let of = |v: Value| Layout::of(body.ty(v));
    body.name(op) == op::kernel::CONVERT_LAYOUT && matches!(of(body.operand(op, 0)), Some(Layout::Shared { .. }))
}
