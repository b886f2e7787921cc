//! Warpgroups that have tiles of their own, in turns: the epilogue of one runs beside the other's products. The producer brings the steps of one tile after
//! those of another; each warpgroup leaves out the steps of tiles that are not its own.

use super::Distribute;
use rc_dialects::op;
use rc_ir::{Op, OpRef, Result, Value};

/// The attribute of a function that says how many warpgroups, or groups of them, take turns.
pub(super) const TURNS: &str = "turns";

impl<'s> Distribute<'s> {
    /// Whether warpgroups have tiles of their own.
    pub(super) fn takes_turns(&self) -> bool {
        self.roles.as_ref().is_some_and(|roles| roles.turns > 1)
    }
    /// The number of the thread's warpgroup among those that compute.
    pub(super) fn warpgroup(&mut self) -> Result<Value> {
        self.digit(4, self.roles().consumers, false)
    }
    /// The barriers of turns, for loops in which all tiles take the same steps, known before.
    pub(super) fn order_of_turns(&mut self, loops: &[Op], turns: i64) -> Result<Value> {
        let src = self.src;
        let wrong = |what: &str| {
            let error = src.op_ref(loops[0]).unsupported(format!("with turns and {what}"));
            Err(error.help("leave out turns"))
        };
        let &[steps, tiles] = loops else { return wrong("other loops than over tiles and steps") };
        let inside = |v: Value| {
            let block = src.defining_block(v);
            block.is_some_and(|block| src.op_ref(tiles).entry(0) == Some(block))
        };
        match src.operands(steps).take(3).any(inside) || src.operands(tiles).len() > 3 || self.warps != 4 || turns != 2
        {
            true => wrong("steps that differ from tile to tile, or tiles of several warpgroups"),
            false => self.barriers(turns),
        }
    }
    /// Waits until the warpgroup before has been through the steps of its tile: a barrier's parity tells one phase from the next alone.
    pub(super) fn await_turn(&mut self) -> Result {
        let own = self.own_tile()?;
        let (group, two, one) = (self.warpgroup()?, self.emit.index(2)?, self.emit.index(1)?);
        // The first one's first turn comes after the phase that counts as completed at the start.
        let own = self.emit.core(op::core::ADD, &[own, group])?;
        let own = self.emit.core(op::core::ADD, &[own, one])?;
        let parity = self.emit.core(op::core::REM, &[own, two])?;
        let order = self.roles().order.expect("only asked for where warpgroups take turns");
        self.emit.op(op::kernel::MBARRIER_WAIT, &[&[order], &[group], &[parity]], &[], None).map(drop)
    }
    /// How many tiles of the same turn were before the one at hand.
    pub(super) fn own_tile(&mut self) -> Result<Value> {
        let number = self.steps_before(self.src.op_ref(self.roles().loops[1]))?;
        let turns = self.roles().turns;
        if turns == 1 {
            return Ok(number);
        }
        let turns = self.emit.index(turns)?;
        self.emit.core(op::core::DIV, &[number, turns])
    }
    /// How many steps of a loop come before the one at hand.
    pub(super) fn steps_before(&mut self, looped: OpRef<'s>) -> Result<Value> {
        let counter = self.src.block_arg(looped.entry(0).expect("verified"), 0);
        let (lower, step, counter) = (self.ix(looped.operand(0)), self.ix(looped.operand(2)), self.ix(counter));
        let span = self.emit.sub(counter, lower)?;
        let (span, step) = (self.emit.get(span)?, self.emit.get(step)?);
        self.emit.core(op::core::DIV, &[span, step])
    }
    /// The other warpgroup's turn.
    pub(super) fn end_turn(&mut self) -> Result {
        let (group, one, leads) = (self.warpgroup()?, self.emit.index(1)?, self.roles().leads);
        let order = self.roles().order.expect("only asked for where warpgroups take turns");
        let other = self.emit.core(op::core::SUB, &[one, group])?;
        self.branch(leads, |d| d.emit.op(op::kernel::MBARRIER_ARRIVE, &[&[order], &[other], &[]], &[], None).map(drop))
    }
    /// The steps of a tile.
    fn steps(&mut self) -> Result<Value> {
        let looped = self.src.op_ref(self.roles().loops[0]);
        let [lower, upper, step] = [0, 1, 2].map(|i| self.ix(looped.operand(i)));
        let span = self.emit.sub(upper, lower)?;
        if let (None, None) = (span.value, step.value) {
            return self.emit.index((span.plus + step.plus - 1) / step.plus);
        }
        let (span, step, one) = (self.emit.get(span)?, self.emit.get(step)?, self.emit.index(1)?);
        let last = self.emit.core(op::core::SUB, &[step, one])?;
        let up = self.emit.core(op::core::ADD, &[span, last])?;
        self.emit.core(op::core::DIV, &[up, step])
    }
    /// A loop's bounds and step over the warpgroup's own tiles. The stage at hand is the first of these.
    pub(super) fn own_tiles(&mut self, [lower, upper, step]: [Value; 3]) -> Result<[Value; 3]> {
        let (group, steps) = (self.warpgroup()?, self.steps()?);
        let before = self.emit.core(op::core::MUL, &[group, steps])?;
        self.pass_steps(before)?;
        self.tiles_of_turn(group, [lower, upper, step])
    }
    /// A loop's bounds and step over the tiles of a turn.
    pub(super) fn tiles_of_turn(&mut self, turn: Value, [lower, upper, step]: [Value; 3]) -> Result<[Value; 3]> {
        let first = self.emit.core(op::core::MUL, &[turn, step])?;
        let turns = self.emit.index(self.roles().turns)?;
        Ok([self.emit.core(op::core::ADD, &[lower, first])?, upper, self.emit.core(op::core::MUL, &[step, turns])?])
    }
    /// After one of its own tiles: the next stage of its own comes after those of the others.
    pub(super) fn pass_others_tiles(&mut self) -> Result {
        let (steps, others) = (self.steps()?, self.emit.index(self.roles().turns - 1)?);
        let count = self.emit.core(op::core::MUL, &[steps, others])?;
        self.pass_steps(count)
    }
    fn pass_steps(&mut self, count: Value) -> Result {
        let (stages, two) = (self.emit.index(self.roles().stages)?, self.emit.index(2)?);
        let total = self.emit.core(op::core::ADD, &[self.roles().stage, count])?;
        let rounds = self.emit.core(op::core::DIV, &[total, stages])?;
        let stage = self.emit.core(op::core::REM, &[total, stages])?;
        let parity = self.emit.core(op::core::ADD, &[self.roles().parity, rounds])?;
        let parity = self.emit.core(op::core::REM, &[parity, two])?;
        let roles = self.roles.as_mut().expect("set");
        (roles.stage, roles.parity) = (stage, parity);
        Ok(())
    }
}
