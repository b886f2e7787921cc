//! `kernel.dot` on a warp's matrix units, `mma.sync`: fragments come from shared memory.

use super::Distribute;
use crate::lower_tiles::emit::Ix;
use crate::lower_tiles::layout::{Layout, shared_swizzle};
use rc_dialects::op;
use rc_ir::{Attr, OpRef, Result, Type, Value};

/// A product in the making.
struct Mma<'s> {
    op: OpRef<'s>,
    warps: [i64; 2],
    /// The length of k that one instruction takes: 16, or 8 of f32.
    depth: i64,
    /// Whether k is taken in another order, in which lanes read rows of shared memory that lie in different banks: of
    /// f32 whose rows in memory are along neither operand's k.
    by_rows: bool,
}

impl Mma<'_> {
    /// Elements of 16 bytes.
    fn chunk(&self) -> i64 {
        self.depth / 2
    }
    /// Whether elements are f32, which become TF32 in registers.
    fn rounds(&self) -> bool {
        self.depth == 8
    }
}

impl<'s> Distribute<'s> {
    pub(super) fn dot_mma(&mut self, op: OpRef<'s>) -> Result {
        let acc_ty = op.result_types()[0];
        let spread = self.spread(op, acc_ty)?;
        let Some(Layout::Mma { warps }) = Layout::of(acc_ty) else {
            return Err(op
                .error(format!("expects accumulators in an mma layout, got {acc_ty}"))
                .help("run lower-tiles' place first"));
        };
        let (rows, columns) = (spread.shape[0] / 16 / warps[0], spread.shape[1] / 8 / warps[1]);
        let length = self.depth(op)?;
        let depth = self.depth_of_mma(op).filter(|depth| length % depth == 0 && columns % 2 == 0).ok_or_else(|| {
            let types = op.operand_types();
            let message = format!("with unit = mma for {}, {} and {acc_ty}", types[0], types[1]);
            op.unsupported(message)
                .help("mma takes bf16, f16 or, with of = tf32, f32 into f32, k a multiple of 16 or, of f32, 8, and of n 16 for each warp")
        })?;
        let mma = Mma { op, warps, depth, by_rows: depth == 8 && op.bool("a_t") && !op.bool("b_t") };
        let inputs = self.registers(op.operand(2));
        let register = |i: i64, half: i64, j: i64| spread.locate(&[16 * warps[0] * i + 8 * half, 8 * j]).0;
        let mut acc = Vec::new();
        for i in 0..rows {
            for j in 0..columns {
                acc.push(self.emit.concat(&[inputs[register(i, 0, j)], inputs[register(i, 1, j)]])?);
            }
        }
        let half = mma.chunk() / 2;
        for k in (0..length).step_by(depth as usize) {
            let a = (0..rows).map(|i| self.fragment_a(&mma, i, k)).collect::<Result<Vec<_>>>()?;
            for pair in 0..columns / 2 {
                let b = self.fragment_b(&mma, pair, k)?;
                for side in 0..2 {
                    let b = self.emit.slice(b, half * side, half)?;
                    for (i, a) in a.iter().enumerate() {
                        let at = i * columns as usize + (2 * pair + side) as usize;
                        acc[at] = self.emit.value(op::kernel::MMA, &[*a, b, acc[at]], &[], None)?;
                    }
                }
            }
        }
        let mut out = inputs.to_vec();
        for i in 0..rows {
            for j in 0..columns {
                let sums = acc[(i * columns + j) as usize];
                out[register(i, 0, j)] = self.emit.slice(sums, 0, 2)?;
                out[register(i, 1, j)] = self.emit.slice(sums, 2, 2)?;
            }
        }
        self.bind_tile(op.result(0), out);
        Ok(())
    }

    /// The length of k of the instruction for these types; `None` where there is none.
    fn depth_of_mma(&self, op: OpRef) -> Option<i64> {
        let types = op.operand_types();
        let [a, b, acc] = [0, 1, 2].map(|i| types[i].elem());
        let rounded = op.attr("of").and_then(|of| of.as_type()) == Some(Type::tf32());
        match () {
            () if a != b || acc != Type::f32() => None,
            () if rounded && a == Type::f32() => Some(8),
            () if !rounded && (a == Type::bf16() || a == Type::f16()) => Some(16),
            () => None,
        }
    }

    /// The warp's i-th 16 rows, from k on.
    fn fragment_a(&mut self, mma: &Mma<'s>, i: i64, k: i64) -> Result<Value> {
        let op = mma.op;
        if op.operand_types()[0].is_tile() {
            return self.fragment_of_registers(op, mma.warps, i, k);
        }
        let warp = (self.digit(mma.warps[1], mma.warps[0], false)?, 16);
        let first = 16 * mma.warps[0] * i;
        let transposed = op.bool("a_t");
        if mma.rounds() && transposed {
            // Rows 0-7, rows 8-15, each for the first half of k, then for the second.
            return self.read_fragments(mma, op.operand(0), warp, [first, k], |part| [part % 2, part / 2]);
        }
        // The matrices: rows 0-7, rows 8-15, each for the first 16 bytes of k, then for the next.
        let (row, half, chunk) = (self.digit(1, 8, true)?, self.digit(8, 2, true)?, self.digit(16, 2, true)?);
        let (free, along) = if transposed {
            (self.emit.combine_digits(&[warp, (half, 8)])?, self.emit.combine_digits(&[(row, 1), (chunk, 8)])?)
        } else {
            let along = self.emit.combine_digits(&[(chunk, mma.chunk())])?;
            (self.emit.combine_digits(&[warp, (row, 1), (half, 8)])?, along)
        };
        self.ldmatrix(mma, op.operand(0), [free.plus(first), along.plus(k)], transposed)
    }
    /// Columns 16 pair to 16 pair + 15 of the warp's: two fragments of eight.
    fn fragment_b(&mut self, mma: &Mma<'s>, pair: i64, k: i64) -> Result<Value> {
        let op = mma.op;
        let columns = op.result_types()[0].static_shape().unwrap_or_default()[1];
        let warp = (self.digit(1, mma.warps[1], false)?, columns / mma.warps[1]);
        let transposed = op.bool("b_t");
        if mma.rounds() && !transposed {
            // Both halves of k for columns 0-7, then for columns 8-15.
            return self.read_fragments(mma, op.operand(1), warp, [16 * pair, k], |part| [part / 2, part % 2]);
        }
        // The matrices: the first 16 bytes of k, the next, each for columns 0-7, then for columns 8-15.
        let (row, half, chunk) = (self.digit(1, 8, true)?, self.digit(8, 2, true)?, self.digit(16, 2, true)?);
        let (free, along) = if transposed {
            let along = self.emit.combine_digits(&[(half, mma.chunk())])?;
            (self.emit.combine_digits(&[warp, (row, 1), (chunk, 8)])?, along)
        } else {
            (self.emit.combine_digits(&[warp, (chunk, 8)])?, self.emit.combine_digits(&[(row, 1), (half, 8)])?)
        };
        self.ldmatrix(mma, op.operand(1), [free.plus(16 * pair), along.plus(k)], !transposed)
    }
    /// Four matrices, in memory [free, k] or, with `trans`, [k, free].
    fn ldmatrix(&mut self, mma: &Mma<'s>, source: Value, [free, k]: [Ix; 2], trans: bool) -> Result<Value> {
        let ty = self.src.ty(source);
        let memref = [self.one(source)];
        let (free, k) = (self.emit.get(free)?, self.emit.get(k)?);
        let at = if trans { [k, free] } else { [free, k] };
        let attrs = [("trans", Attr::bool(trans)), ("swizzle", Attr::i64(shared_swizzle(ty)))];
        let result = Type::vector(&[mma.chunk()], ty.elem());
        let op = self.emit.op(op::kernel::LDMATRIX, &[&memref, &at], &attrs, Some(&[result]))?;
        let words = self.emit.body.result(op, 0);
        if mma.rounds() { self.round_to_tf32(words) } else { Ok(words) }
    }
    /// What [`Distribute::ldmatrix`] would give of f32 in memory [k, free], which no instruction turns: element by element. `place` says which
    /// eight of the free index and which half of k each of the four parts is.
    fn read_fragments(
        &mut self,
        mma: &Mma<'s>,
        source: Value,
        warp: (Value, i64),
        [free, k]: [i64; 2],
        place: impl Fn(i64) -> [i64; 2],
    ) -> Result<Value> {
        let ty = self.src.ty(source);
        let memref = self.one(source);
        let (own, row) = (self.digit(4, 8, true)?, self.digit(1, 4, true)?);
        let [down, next] = if mma.by_rows { [2, 1] } else { [1, 4] };
        let (across, down) = (self.emit.combine_digits(&[warp, (own, 1)])?, self.emit.combine_digits(&[(row, down)])?);
        let mut words = Vec::new();
        for part in 0..4 {
            let [eight, half] = place(part);
            let k = self.emit.get(down.plus(k + next * half))?;
            let at = [k, self.emit.get(across.plus(free + 8 * eight))?];
            words.push(self.read_chunk(memref, &at, 1, ty.elem(), shared_swizzle(ty))?);
        }
        let words = self.emit.concat(&words)?;
        self.round_to_tf32(words)
    }
    /// The warp's 16 rows of a warpgroup's tile of f32, `[64, width]` in shared memory, for k on: what `wgmma` takes in registers.
    pub(super) fn fragment_of_group(&mut self, tile: Value, k: i64) -> Result<Value> {
        let warp = (self.digit(1, 4, false)?, 16);
        let (row, half, chunk) = (self.digit(1, 8, true)?, self.digit(8, 2, true)?, self.digit(16, 2, true)?);
        let row = self.emit.combine_digits(&[warp, (row, 1), (half, 8)])?;
        let column = self.emit.combine_digits(&[(chunk, 4)])?;
        let at = [self.emit.get(row)?, self.emit.get(column.plus(k))?];
        let attrs = [("trans", Attr::bool(false)), ("swizzle", Attr::i64(128))];
        let result = Type::vector(&[4], self.emit.ty(tile).elem());
        let op = self.emit.op(op::kernel::LDMATRIX, &[&[tile], &at], &attrs, Some(&[result]))?;
        let words = self.emit.body.result(op, 0);
        self.round_to_tf32(words)
    }
    fn round_to_tf32(&mut self, words: Value) -> Result<Value> {
        let ty = self.emit.ty(words).with_elem(Type::tf32());
        self.emit.value(op::core::CONVERT, &[words], &[], Some(ty))
    }
    /// Accumulators of an earlier product, converted, lie as the next one's left operand does.
    pub(super) fn fragment_of_registers(&mut self, op: OpRef<'s>, warps: [i64; 2], i: i64, k: i64) -> Result<Value> {
        let ty = op.operand_types()[0];
        let fits = Layout::of(ty) == Some(Layout::Mma { warps: [warps[0], 1] }) && warps[1] == 1 && !op.bool("a_t");
        if !fits {
            return Err(op.unsupported(format!("with {ty} in registers")).help("run lower-tiles' place first"));
        }
        let spread = self.spread(op, ty)?;
        let values = self.registers(op.operand(0));
        let part = |half: i64, column: i64| values[spread.locate(&[16 * warps[0] * i + 8 * half, 8 * column]).0];
        let column = k / 8;
        let parts = [part(0, column), part(1, column), part(0, column + 1), part(1, column + 1)];
        self.emit.concat(&parts)
    }
}
