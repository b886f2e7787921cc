//! Tiles of products on warpgroups that the producer's threads gather: runs of neighbours, each copied by one `cp.async` to where a tensor
//! map would put it.

use super::Distribute;
use super::warpgroup::Stream;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::groups::run_of;
use crate::schedule::{ROW_BYTES, ROWS, row_width};
use rc_dialects::op;
use rc_ir::{Attr, Block, OpRef, Result, Value};

impl<'s> Distribute<'s> {
    /// The producer's part of a function, by all its threads.
    pub(super) fn gather_all(&mut self, entry: Block) -> Result {
        self.produce(entry)?;
        self.emit.op(op::kernel::ASYNC_COMMIT, &[], &[], None)?;
        self.emit.op(op::kernel::ASYNC_WAIT, &[], &[("pending", Attr::i64(0))], None).map(drop)
    }

    /// The stages of an operand that is gathered.
    pub(super) fn gathered_stream(
        &mut self,
        gather: OpRef<'s>,
        dot: OpRef<'s>,
        i: usize,
        stages: i64,
    ) -> Result<Stream> {
        let tile = dot.operand(i);
        let ty = self.src.ty(tile);
        let Some(&[rows, columns]) = ty.static_shape().as_deref() else {
            return Err(dot.error("expects tiles of two dimensions"));
        };
        let parts = if i == 0 && !dot.bool("a_t") { rows / ROWS } else { 1 };
        let (width, bytes) = (row_width(ty.elem()), ty.elem().byte_width().unwrap_or(1) as i64);
        let run = run_of(gather).filter(|r| r.0 == 1 && [4, 8, 16].contains(&(r.1 * bytes)));
        if run.is_none() || columns % width != 0 || bytes < 2 {
            let error = gather.unsupported(format!("into shared memory of {ty}"));
            return Err(error.help("choose unit = mma"));
        }
        let (rows, blocks) = (rows / parts, columns / width);
        let memory = self.stages_of(tile, ty.elem(), [stages, parts, blocks, rows])?;
        Ok(Stream { load: gather.op, map: None, memory, parts, blocks, rows, share: None, last: None })
    }

    /// Starts this thread's copies of one step's tile. Runs outside are zeros.
    pub(super) fn gather_in(&mut self, stream: Stream, stage: Value, gather: OpRef<'s>) -> Result {
        let (_, run) = run_of(gather).expect("checked when the stream was made");
        let places = gather.group("where")[0];
        let spread = self.spread_of(gather, places)?;
        let registers = self.registers(places);
        let (row, column) = (self.thread_part(&spread, 0)?, self.thread_part(&spread, 1)?);
        let length = self.emit.index(run)?;
        let column = self.emit.get(column)?;
        let column = self.emit.core(op::core::MUL, &[column, length])?;
        let source = self.one(gather.operand(0));
        let zero = self.emit.index(0)?;
        let (width, bytes) = (stream.width(self), run * ROW_BYTES / stream.width(self));
        for (r, &place) in registers.iter().enumerate() {
            let coords = spread.coords(r);
            let (down, across) = (coords[0], coords[1] * run);
            let mut part = vec![stage];
            for (number, count) in [(down / stream.rows, stream.parts), (across / width, stream.blocks)] {
                if count > 1 {
                    part.push(self.emit.index(number)?);
                }
            }
            let target = self.part_of(stream.memory, &part)?;
            let at = [row.plus(down % stream.rows), Ix::of(column).plus(across % width)];
            let at = at.into_iter().map(|ix| self.emit.get(ix)).collect::<Result<Vec<_>>>()?;
            let inside = self.emit.compare("ge", place, zero)?;
            let valid = self.emit.core(op::core::SELECT, &[inside, length, zero])?;
            let from = self.emit.core(op::core::MAX, &[place, zero])?;
            let groups: [&[Value]; 5] = [&[target], &at, &[source], &[from], &[valid]];
            let attrs = [("bytes", Attr::i64(bytes)), ("swizzle", Attr::i64(128))];
            self.emit.op(op::kernel::ASYNC_COPY, &groups, &attrs, None)?;
        }
        Ok(())
    }
}
