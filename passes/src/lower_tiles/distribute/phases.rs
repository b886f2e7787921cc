//! Which stage of shared memory is at hand, and which phase of its barriers: loops around products carry both.

use super::Distribute;
use super::warpgroup::Roles;
use rc_dialects::op;
use rc_ir::{Result, Value};

impl Distribute<'_> {
    /// What a loop carries of the rings, after its values.
    pub(super) fn phases(&self, innermost: bool) -> Vec<Value> {
        let roles = self.roles();
        let mut phases = Vec::new();
        if !innermost && roles.loads_by_tile() {
            phases.push(roles.tile_parity);
            phases.extend(roles.flight.turns.map(|_| roles.past_turns));
        }
        phases.extend([roles.stage, roles.parity]);
        phases
    }
    /// The same from the loop's values.
    pub(super) fn set_phases(&mut self, values: &[Value], innermost: bool) {
        let by_tile = !innermost && self.roles().loads_by_tile();
        let roles = self.roles.as_mut().expect("set");
        let mut last = values.iter().rev();
        let mut put = |phase: &mut Value| last.next().into_iter().for_each(|&value| *phase = value);
        put(&mut roles.parity);
        put(&mut roles.stage);
        if by_tile {
            if roles.flight.turns.is_some() {
                put(&mut roles.past_turns);
            }
            put(&mut roles.tile_parity);
        }
    }
    /// What is loaded for each tile is in its next phase.
    pub(super) fn next_tile(&mut self) -> Result {
        let one = self.emit.index(1)?;
        let other = self.emit.core(op::core::SUB, &[one, self.roles().tile_parity])?;
        self.roles.as_mut().expect("set").tile_parity = other;
        Ok(())
    }
    /// The stage after the one at hand; past the last one, the first, in the barriers' next phase.
    pub(super) fn next_stage(&mut self) -> Result {
        let Roles { stage, parity, stages, .. } = *self.roles();
        let (zero, one, count) = (self.emit.index(0)?, self.emit.index(1)?, self.emit.index(stages)?);
        let next = self.emit.core(op::core::ADD, &[stage, one])?;
        let wraps = self.emit.compare("eq", next, count)?;
        let other = self.emit.core(op::core::SUB, &[one, parity])?;
        let stage = self.emit.core(op::core::SELECT, &[wraps, zero, next])?;
        let parity = self.emit.core(op::core::SELECT, &[wraps, other, parity])?;
        let roles = self.roles.as_mut().expect("set");
        (roles.stage, roles.parity) = (stage, parity);
        Ok(())
    }
}
