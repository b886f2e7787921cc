//! Programs of a CPU whose tiles lie in memory as a whole, as all but the last of a row do. They run in a branch of their own, without masks: where
//! vectors have none in registers, each access would branch, and the chains of what is computed wait for one another. Where they have, elements that are
//! read one by one, as those of a table are, need not be asked whether they are there (upsample_bicubic of 2 x 64 x 56 x 56: 4.6 ms with masks, 2.5 so), and
//! rows of a table are read 6 to 10 % faster (Zen 5).

use super::{Distribute, constant_of, touches_tiles};
use crate::lower_tiles::groups::accessed;
use rc_dialects::op;
use rc_ir::{Block, Dim, Op, Result, Value};

/// Tile operations of a program at most, which the branches have twice.
const LARGEST: usize = 64;
/// Dimensions along which programs may be cut off, at most.
const DIMS: usize = 2;

/// An index that a tile starts at, which is to be below a bound, of the kernel's symbols, so that the tile ends inside.
struct Bound {
    start: Value,
    below: Dim,
}

impl<'s> Distribute<'s> {
    /// All operations of the function.
    pub(super) fn program(&mut self, entry: Block) -> Result {
        let src = self.src;
        let ops: Vec<Op> = src.ops(entry).collect();
        let begins =
            |&op: &Op| touches_tiles(src.op_ref(op)) && constant_of(src, op).is_none() || !src.regions(op).is_empty();
        let first = ops.iter().position(begins).unwrap_or(ops.len());
        ops[..first].iter().try_for_each(|&op| self.op(src.op_ref(op)))?;
        let (Some((end, body)), Some(bounds)) = (ops[first..].split_last(), self.bounds(&ops[first..])) else {
            return ops[first..].iter().try_for_each(|&op| self.op(src.op_ref(op)));
        };
        self.whole_or_cut_off(body, &bounds)?;
        self.op(src.op_ref(*end))
    }

    /// What has all tiles end inside, if that is not known, is not the same for all programs, and pays.
    fn bounds(&self, ops: &[Op]) -> Option<Vec<Bound>> {
        let src = self.src;
        let all: Vec<Op> = ops.iter().flat_map(|&op| src.walk_from(op)).collect();
        let large = [op::kernel::DOT, op::kernel::SORT, op::kernel::SCATTER];
        if self.cuda || all.len() > LARGEST || all.iter().any(|&op| large.contains(&src.name(op).as_str())) {
            return None;
        }
        let mut bounds: Vec<Bound> = Vec::new();
        for &op in all.iter().filter(|&&op| [op::kernel::LOAD, op::kernel::STORE].contains(&src.name(op).as_str())) {
            let op = src.op_ref(op);
            let (memref, tile) = accessed(op);
            let (extents, shape) = (src.ty(memref).shape(), src.ty(tile).static_shape()?);
            let dims = op.ints("dims").unwrap_or_default();
            for (k, &start) in op.group("indices").iter().enumerate() {
                let span: i64 = dims.iter().zip(&shape).filter(|(d, _)| **d == k as i64).map(|(_, n)| n - 1).sum();
                let (facts, below) = (&self.indices.facts, extents[k] - Dim::Static(span));
                let (at, end) = (self.indices.dim(start), self.indices.extent(below));
                let known = facts.le(at + Dim::Static(1), end);
                if span == 0 || known || !self.values.contains_key(&start) || !facts.is_nonneg(at) {
                    continue;
                }
                if !bounds.iter().any(|b| end - at == self.indices.extent(b.below) - self.indices.dim(b.start)) {
                    bounds.push(Bound { start, below });
                }
            }
        }
        (1..=DIMS).contains(&bounds.len()).then_some(bounds)
    }

    fn whole_or_cut_off(&mut self, ops: &[Op], bounds: &[Bound]) -> Result {
        let src = self.src;
        let mut whole: Option<Value> = None;
        for bound in bounds {
            let (start, below) = (self.emit.get(self.ix(bound.start))?, self.emit.extent(bound.below)?);
            let inside = self.emit.compare("lt", start, below)?;
            whole = Some(match whole {
                Some(whole) => self.emit.core(op::core::AND, &[whole, inside])?,
                None => inside,
            });
        }
        let made = self.emit.op(op::kernel::IF, &[whole.as_slice()], &[], Some(&[]))?;
        let at = self.emit.block;
        for assumed in [bounds, &[]] {
            let region = self.emit.body.add_region(made);
            self.emit.block = self.emit.body.add_block(region, &[]);
            for bound in assumed {
                self.indices.facts.assume_less(self.indices.dim(bound.start), self.indices.extent(bound.below));
            }
            ops.iter().try_for_each(|&op| self.op(src.op_ref(op)))?;
            assumed.iter().for_each(|_| self.indices.facts.forget());
            self.emit.op(op::kernel::YIELD, &[&[]], &[], None)?;
        }
        self.emit.block = at;
        Ok(())
    }
}
