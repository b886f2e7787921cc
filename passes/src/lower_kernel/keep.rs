//! Results of nests that wait in the program's own memory for the nests after them: of each, what one program computes.

use super::program::Program;
use super::scope::{Scope, Tiled};
use crate::lower_tiles::ASYNC;
use crate::schedule::Schedule;
use crate::schedule::access::{Access, mentions};
use crate::schedule::nest::Nest;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Result, Type, Value};

/// Where a result waits.
#[derive(Clone)]
pub struct Kept {
    memory: Value,
    at: Access,
    /// Where the nest writes it.
    written: Access,
}

impl Program<'_> {
    /// Allocates memory for the result of a nest whose schedule says `keep`: on a CPU for whole tiles, so that what is past the extents
    /// needs no masks; on a GPU of its shared memory, each row at a multiple of 16 bytes.
    ///
    /// # Errors
    /// If a row of the result has no bound, is not stored along the iterators, or does not fit the shared memory.
    pub fn keep_result(&mut self, nest: &Nest, schedule: &Schedule) -> Result {
        let written = &nest.outputs[0];
        let (value, shared) = (self.src.result(nest.op, 0), !self.target.is_cpu());
        let elem = self.src.ty(value).elem();
        let width = elem.byte_width().unwrap_or(8) as i64;
        let in_grid = |e: Dim| schedule.grid.iter().any(|&g| mentions(e, g));
        let mut at = Access { shape: Vec::new(), exprs: Vec::new() };
        for (&e, &size) in written.exprs.iter().zip(&written.shape) {
            if in_grid(e) && shared {
                continue;
            }
            if in_grid(e) {
                at.shape.push(Dim::Static(1));
                at.exprs.push(Dim::Static(0));
                continue;
            }
            let bound = nest.ranges.interval(size).map(|r| r.1).filter(|&n| n < 1 << 28);
            let (Some(bound), Some(iter)) = (bound, e.as_symbol()) else {
                let error = Diagnostic::unsupported(self.loc, "a schedule that keeps a result without a bound");
                return Err(error.help("leave 'keep' away"));
            };
            let tile = if shared { 1 } else { schedule.tile_of(iter).max(1) as u64 };
            at.shape.push(Dim::Static((bound.max(1) as u64).next_multiple_of(tile) as i64));
            at.exprs.push(e);
        }
        if shared {
            let no_row = || {
                Diagnostic::unsupported(self.loc, "a schedule that keeps a result of one element for each program")
                    .help("leave 'keep' away: it stays in registers")
            };
            let row = at.shape.last_mut().ok_or_else(no_row)?;
            *row = row.ceildiv(Dim::Static(16 / width)) * Dim::Static(16 / width);
        }
        let shape: Vec<i64> = at.shape.iter().filter_map(|d| d.as_static()).collect();
        let bytes = shape.iter().fold(width, |n, d| n.saturating_mul(*d));
        if shared && bytes > self.target.shared_bytes {
            let what = format!("a schedule that keeps {bytes} bytes in shared memory of {}", self.target.shared_bytes);
            return Err(Diagnostic::unsupported(self.loc, what).help("leave 'keep' away"));
        }
        let memory = self.alloc(&shape, elem);
        self.kept.insert(value, Kept { memory, at, written: written.clone() });
        Ok(())
    }

    /// What is copied to shared memory is there for all threads.
    pub fn await_kept(&mut self) {
        self.build().op(op::kernel::ASYNC_COMMIT).build();
        self.build().op(op::kernel::ASYNC_WAIT).attr("pending", Attr::i64(0)).build();
        self.build().op(op::kernel::BARRIER).build();
    }

    /// Writes a tile of a result that is kept; of any other, nothing.
    ///
    /// # Errors
    /// If the tile does not run along the memory.
    pub fn store_kept(&mut self, value: Value, tile: Value, scope: &Scope) -> Result {
        let Some(Kept { memory, at, .. }) = self.kept.get(&value).cloned() else { return Ok(()) };
        let (dims, shape, starts) = self.place_kept(&at, scope)?;
        let tile = self.broadcast(tile, shape);
        let later = (!self.target.is_cpu()).then(|| Attr::bool(true));
        let mut b = self.build();
        let store = b.op(op::kernel::STORE).operand(tile).operand(memory).operands(&starts);
        store.attr("dims", Attr::i64s(&dims)).maybe_attr(ASYNC, later).build();
        Ok(())
    }

    /// The tile of a result that is kept, where it is read as it was written; `None` elsewhere.
    ///
    /// # Errors
    /// If the tile does not run along the memory.
    pub fn load_kept(&mut self, value: Value, access: &Access, scope: &Scope) -> Result<Option<Value>> {
        let kept = self.kept.get(&value).filter(|k| k.written == *access).cloned();
        let Some(Kept { memory, at, .. }) = kept else { return Ok(None) };
        let (dims, shape, starts) = self.place_kept(&at, scope)?;
        let ty = Type::tile(&shape, self.ty(memory).elem(), None);
        let mut b = self.build();
        let load = b.op(op::kernel::LOAD).operand(memory).operands(&starts).attr("dims", Attr::i64s(&dims));
        Ok(Some(load.result(ty).value()))
    }

    fn place_kept(&mut self, at: &Access, scope: &Scope) -> Result<(Vec<i64>, [i64; 2], Vec<Value>)> {
        let tiled = scope.tiled();
        let along = at.plain(&tiled).ok_or_else(|| {
            Diagnostic::unsupported(self.loc, "a schedule that keeps a result across its tiles")
                .help("leave 'keep' away")
        })?;
        let (dims, shape) = super::memory::tile_dims(&along, scope);
        let starts = at.exprs.iter().map(|&e| self.index(e, scope, Tiled::First)).collect::<Result<_>>()?;
        Ok((dims, shape, starts))
    }
}
