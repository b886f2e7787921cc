//! Stores of products of warpgroups: results of 16 bits go through shared memory, from where the copy engine takes them, or,
//! where the target's rows do not suit it, whole rows are written by neighbouring lanes.

use super::Distribute;
use super::access::Check;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Layout, WARP};
use crate::schedule::{ROWS, WARPGROUP, WIDTH, is_mapped};
use rc_dialects::op;
use rc_ir::{Attr, Block, Dim, OpRef, Result, Type, Value};

/// Rows that a warp writes.
const WARP_ROWS: i64 = 16;
/// Parts of a warpgroup's results that may wait in shared memory.
const BUFFERS: i64 = 2;

/// A store in the making.
struct Staged<'s> {
    op: OpRef<'s>,
    /// The index of the warpgroup's first element, along each memref dimension.
    at: Vec<Ix>,
    checks: Vec<Check>,
    /// The memref dimension along which rows follow one another.
    down: usize,
    columns: i64,
    /// Rows from a warpgroup's 64 to its next.
    step: i64,
}

/// The buffer that was used last, in the block of operations where it was.
#[derive(Clone, Copy)]
pub(super) struct LastStaged {
    block: Block,
    number: i64,
    /// Whether the copy engine takes results from it.
    mapped: bool,
}

/// 64 rows and columns of a warpgroup's results.
#[derive(Clone, Copy)]
struct Part {
    /// Which 64 of its rows, and the first column.
    block: i64,
    first: i64,
}

impl<'s> Distribute<'s> {
    /// Stores through shared memory, where roles, layout and types are such; false where nothing was done.
    pub(super) fn store_staged(&mut self, op: OpRef<'s>) -> Result<bool> {
        let Some(staged) = self.staged(op)? else { return Ok(false) };
        let target = self.src.ty(op.operand(1));
        let on_line = op.group("indices").last().is_some_and(|&first| self.indices.is_on_line(first, target.elem()));
        let map = match is_mapped(target) && target.rank() <= 5 && on_line {
            true => {
                let mut extents = vec![1; target.rank()];
                extents[staged.down] = ROWS;
                extents[target.rank() - 1] = WIDTH;
                Some(self.tensor_map(op, target.elem(), &extents)?)
            }
            false => None,
        };
        let buffers = self.staging(target.elem())?;
        let group = self.warpgroup()?;
        // The last part ends with the tile: where its first columns are those of the part before, they are stored twice.
        let columns = (0..staged.columns).step_by(WIDTH as usize).map(|first| first.min(staged.columns - WIDTH));
        let blocks = self.row_blocks(op.operand(0)) as i64;
        let parts = (0..blocks).flat_map(|block| columns.clone().map(move |first| Part { block, first }));
        for part in parts {
            let follows =
                self.roles().last_staged.filter(|last| last.block == self.emit.block && last.mapped == map.is_some());
            let number = follows.map_or(0, |last| (last.number + 1) % BUFFERS);
            self.roles.as_mut().expect("set").last_staged =
                Some(LastStaged { block: self.emit.block, number, mapped: map.is_some() });
            let number = self.emit.index(number)?;
            let buffer = self.part_of(buffers, &[group, number])?;
            // Buffers take turns in a block; before the first of a block, all are free.
            if map.is_some() || follows.is_none() && self.roles().stores {
                let pending = if follows.is_some() { BUFFERS - 1 } else { 0 };
                self.as_storer(|d| {
                    let attrs = [("pending", Attr::i64(pending)), ("read", Attr::bool(true))];
                    d.emit.op(op::kernel::BULK_WAIT, &[], &attrs, None).map(drop)
                })?;
            }
            if map.is_some() || follows.is_none() {
                self.group_barrier(group)?;
            }
            self.put_fragments(&staged, buffer, part)?;
            match map {
                Some(map) => self.copy_out(&staged, map, buffer, part, group)?,
                None => self.write_rows(&staged, buffer, part, group)?,
            }
        }
        Ok(true)
    }

    fn staged(&mut self, op: OpRef<'s>) -> Result<Option<Staged<'s>>> {
        let (ty, target) = (self.src.ty(op.operand(0)), self.src.ty(op.operand(1)));
        let (dims, shape) = (op.ints("dims").unwrap_or_default(), ty.static_shape().unwrap_or_default());
        let last = target.rank() as i64 - 1;
        let fits = self.roles.is_some()
            && matches!(Layout::of(ty), Some(Layout::Mma { warps: [_, 1] }))
            && ty.elem().byte_width() == Some(2)
            && shape.len() == 2
            && shape[0] % (ROWS * self.roles().groups()) == 0
            && shape[1] >= WIDTH
            && shape[1] % 16 == 0
            && dims.len() == 2
            && dims[0] >= 0
            && dims[1] == last;
        if !fits {
            return Ok(None);
        }
        let (down, indices) = (dims[0] as usize, op.group("indices"));
        let mut at: Vec<Ix> = indices.iter().map(|&v| self.ix(v)).collect();
        let mut checks = Vec::new();
        for (d, &index) in indices.iter().enumerate() {
            let span = if d == down {
                shape[0] - 1
            } else if d as i64 == last {
                shape[1] - 1
            } else {
                0
            };
            checks.push(self.check(self.indices.dim(index), span, target.shape()[d])?);
        }
        if self.roles().groups() > 1 {
            let group = self.warpgroup()?;
            let row = self.emit.combine_digits(&[(group, ROWS)])?;
            at[down] = self.emit.add(at[down], row)?;
        }
        let step = ROWS * self.roles().groups();
        Ok(Some(Staged { op, at, checks, down, columns: shape[1], step }))
    }
    fn staging(&mut self, elem: Type) -> Result<Value> {
        if let Some(known) = self.roles().staging.filter(|&v| self.emit.ty(v).elem() == elem) {
            return Ok(known);
        }
        let shape = [self.roles().consumers, BUFFERS, ROWS, WIDTH].map(Dim::Static);
        let memory = self.emit.alloc_with(Type::memref(&shape, elem, 3), &[("align", Attr::i64(1024))])?;
        self.roles.as_mut().expect("set").staging = Some(memory);
        Ok(memory)
    }
    /// What one thread of each warpgroup does.
    fn as_storer(&mut self, body: impl FnOnce(&mut Self) -> Result) -> Result {
        let thread = self.emit.thread_id()?;
        let (size, zero) = (self.emit.index(WARPGROUP)?, self.emit.index(0)?);
        let place = self.emit.core(op::core::REM, &[thread, size])?;
        let first = self.emit.compare("eq", place, zero)?;
        self.branch(first, body)
    }
    /// The warpgroup's threads wait for one another.
    pub(super) fn group_barrier(&mut self, group: Value) -> Result {
        let attrs = [("id", Attr::i64(2)), ("threads", Attr::i64(WARPGROUP))];
        self.emit.op(op::kernel::BARRIER, &[&[group]], &attrs, None).map(drop)
    }

    /// A part of the results in the buffer: four 8 x 8 matrices at a time.
    fn put_fragments(&mut self, staged: &Staged<'s>, buffer: Value, of: Part) -> Result {
        let tile = staged.op.operand(0);
        let spread = self.spread_of(staged.op, tile)?;
        let registers = self.registers(tile);
        let warp = self.digit(1, 4, false)?;
        let (row, half) = (self.digit(1, 16, true)?, self.digit(16, 2, true)?);
        let row = self.emit.combine_digits(&[(warp, WARP_ROWS), (row, 1)])?;
        let column = self.emit.combine_digits(&[(half, 8)])?;
        let row = self.emit.get(row)?;
        for at in (0..WIDTH).step_by(16) {
            let from = [staged.step * of.block, of.first + at];
            let part = |i: i64, j: i64| registers[spread.locate(&[from[0] + 8 * i, from[1] + 8 * j]).0];
            let fragment = self.emit.concat(&[part(0, 0), part(1, 0), part(0, 1), part(1, 1)])?;
            let column = self.emit.get(column.plus(at))?;
            let groups: [&[Value]; 3] = [&[fragment], &[buffer], &[row, column]];
            self.emit.op(op::kernel::STMATRIX, &groups, &[("swizzle", Attr::i64(128))], None)?;
        }
        Ok(())
    }

    fn copy_out(&mut self, staged: &Staged<'s>, map: Value, buffer: Value, part: Part, group: Value) -> Result {
        self.emit.op(op::kernel::FENCE, &[], &[("kind", Attr::str("async_shared"))], None)?;
        self.group_barrier(group)?;
        self.roles.as_mut().expect("set").stores = true;
        let mut at = staged.at.clone();
        let last = at.len() - 1;
        at[last] = at[last].plus(part.first);
        at[staged.down] = at[staged.down].plus(staged.step * part.block);
        self.as_storer(|d| {
            let coords = at.iter().rev().map(|&ix| d.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            d.emit.op(op::kernel::TENSOR_STORE, &[&[buffer], &[map], &coords], &[], None)?;
            d.emit.op(op::kernel::BULK_COMMIT, &[], &[], None).map(drop)
        })
    }

    /// Each warp writes its rows, lanes side by side.
    fn write_rows(&mut self, staged: &Staged<'s>, buffer: Value, part: Part, group: Value) -> Result {
        // Two buffers take turns: those who read the other one have arrived here.
        self.group_barrier(group)?;
        let last = staged.at.len() - 1;
        if staged.checks[last].lower {
            return self.rows(staged, buffer, part, true);
        }
        let Some(extent) = staged.checks[last].upper else { return self.rows(staged, buffer, part, false) };
        // All columns but those of the last tile are inside.
        let end = self.emit.get(staged.at[last].plus(part.first + WIDTH))?;
        let whole = self.emit.compare("le", end, extent)?;
        let made = self.emit.op(op::kernel::IF, &[&[whole]], &[], Some(&[]))?;
        self.region_of(made, |d| d.rows(staged, buffer, part, false))?;
        self.region_of(made, |d| d.rows(staged, buffer, part, true))
    }
    /// The rows of a warp; `cut`: columns may lie outside.
    fn rows(&mut self, staged: &Staged<'s>, buffer: Value, of: Part, cut: bool) -> Result {
        let memref = self.one(staged.op.operand(1));
        let elem = self.emit.ty(memref).elem();
        let (warp, lane) = (self.digit(1, 4, false)?, self.digit(1, WARP, true)?);
        let warp_row = self.emit.combine_digits(&[(warp, WARP_ROWS)])?;
        let last = staged.at.len() - 1;
        let mut columns = Vec::new();
        for part in (0..WIDTH).step_by(WARP as usize) {
            let inner = Ix::of(lane).plus(part);
            let outer = self.emit.add(staged.at[last], inner.plus(of.first))?;
            let inside = if cut { self.inside(staged.checks[last], outer)? } else { None };
            columns.push((self.emit.get(inner)?, self.emit.get(outer)?, inside));
        }
        let mut others = None;
        for d in (0..last).filter(|&d| d != staged.down) {
            let inside = self.inside(staged.checks[d], staged.at[d])?;
            others = self.both(others, inside)?;
        }
        for row in 0..WARP_ROWS {
            let inner = warp_row.plus(row);
            let outer = self.emit.add(staged.at[staged.down], inner.plus(staged.step * of.block))?;
            let inside = self.inside(staged.checks[staged.down], outer)?;
            let inside = self.both(others, inside)?;
            let (inner, outer) = (self.emit.get(inner)?, self.emit.get(outer)?);
            // The swizzle of 128 bytes, whose part that depends on the row is known.
            let swizzle = self.emit.index(row % 8 * 8)?;
            for &(from, to, here) in &columns {
                let from = self.emit.core(op::core::XOR, &[from, swizzle])?;
                let groups: [&[Value]; 4] = [&[buffer], &[inner, from], &[], &[]];
                let read = self.emit.op(op::kernel::READ, &groups, &[], Some(&[elem]))?;
                let value = self.emit.body.result(read, 0);
                let pred = self.both(inside, here)?;
                let mut at = staged.at.iter().map(|&ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
                (at[staged.down], at[last]) = (outer, to);
                let groups: [&[Value]; 5] = [&[value], &[memref], &at, pred.as_slice(), &[]];
                self.emit.op(op::kernel::WRITE, &groups, &[], None)?;
            }
        }
        Ok(())
    }
    fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Result<Option<Value>> {
        match (a, b) {
            (Some(a), Some(b)) => self.emit.core(op::core::AND, &[a, b]).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// At the end: what is still being stored is in shared memory until it is read. That it is written before the next kernel goes on is the
    /// kernel's end.
    pub(super) fn finish_stores(&mut self) -> Result {
        if !self.roles().stores {
            return Ok(());
        }
        let attrs = [("pending", Attr::i64(0)), ("read", Attr::bool(true))];
        self.as_storer(|d| d.emit.op(op::kernel::BULK_WAIT, &[], &attrs, None).map(drop))
    }
}
