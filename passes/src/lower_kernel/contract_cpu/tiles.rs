//! Products by the CPU's unit for tiles. Its sums lie in memory of the program's own, from where what follows takes them a few rows at a time.

use super::{Blocked, Finish, Panel, for_each};
use crate::lower_kernel::program::Program;
use crate::lower_kernel::run::bind;
use crate::lower_kernel::scope::Scope;
use rc_dialects::kernel::UNIT_TILE;
use rc_dialects::op;
use rc_ir::{Attr, Result, Value};
use rc_machine::Unit;

/// Rows of sums that are in registers at once.
const ROWS: i64 = 8;
/// Words at a multiple of which the rows of a panel would share sets of the first-level cache.
const COLLIDING: i64 = 256;

impl Blocked<'_, '_> {
    pub(super) fn multiplies_tiles(&self) -> bool {
        self.product.words.is_some_and(|words| words.unit == Unit::Amx)
    }
    /// The words from one row of a panel of so many to the next.
    pub(super) fn apart(&self, length: i64) -> i64 {
        if length % COLLIDING == 0 { length + UNIT_TILE } else { length }
    }
    /// Elements along k, up to the end of their last tile.
    pub(super) fn whole_tiles(&self, p: &mut Program, length: Value) -> Value {
        if !self.multiplies_tiles() {
            return length;
        }
        let size = UNIT_TILE * self.width();
        let (size, rest) = (p.constant_index(size), p.constant_index(size - 1));
        let length = p.add_index(length, rest);
        let tiles = p.binary(op::core::DIV, length, size);
        p.mul_index(tiles, size)
    }
    /// Memory for the sums of one tile.
    pub(super) fn one_tile(&self, p: &mut Program) -> Value {
        p.alloc(&[1, self.m.tile, self.n.tile], self.product.acc)
    }

    /// The products of a block's tile in `sums`, or added to what is there.
    pub(super) fn dot_tiles(
        &self,
        p: &mut Program,
        scope: &Scope,
        sums: Value,
        at: [Value; 2],
        [first, length]: [Value; 2],
        adds: bool,
    ) -> Result {
        let words = self.product.words.expect("the unit multiplies words");
        let (zero, place) = (p.constant_index(0), self.place_in(p, sums, at));
        let left = self.left.expect("checked: the left operand is packed").memory;
        let (right, panel, word) = match (self.right, self.in_words) {
            (None, Some(from)) => {
                let column = scope.get(self.n.iter.name).expect("bound by the loop over tiles").base;
                let tile = p.constant_index(self.n.tile);
                let panel = p.binary(op::core::DIV, column, tile);
                (self.panels_of_words(p, from, words.width)?, panel, self.word(p, first))
            }
            (Some(Panel { memory, .. }), _) => (memory, self.n.number(p, at[1]), zero),
            (None, None) => {
                let op = p.src.op_ref(self.product.nest.op);
                let error = op.unsupported("with unit = amx where the right operand is not packed");
                return Err(error.help("give the schedule pack = [left, right]"));
            }
        };
        let count = self.count_words(p, length);
        let mut b = p.build();
        b.op(op::kernel::DOT_TILES)
            .operand(left)
            .operands(&[at[0], zero])
            .operand(right)
            .operands(&[panel, word, zero])
            .operand(sums)
            .operands(&place)
            .operand(count)
            .attr("of", Attr::ty(words.of))
            .attr("shape", Attr::i64s(&[self.m.tile, self.n.tile]))
            .maybe_attr("add", adds.then(|| Attr::bool(true)))
            .build();
        Ok(())
    }

    /// Gives `finish` the sums of a tile, a few rows at a time.
    pub(super) fn finish_tile(
        &self,
        p: &mut Program,
        scope: &Scope,
        sums: Value,
        at: [Value; 2],
        finish: &mut Finish,
    ) -> Result {
        let [number, start, zero] = self.place_in(p, sums, at);
        self.for_rows(p, scope, |p, scope, row| {
            let row = p.add_index(start, row);
            let tile = super::load(p, sums, &[number, row, zero], [ROWS, self.n.tile], [1, 2]);
            finish(p, scope, tile)
        })
    }

    /// Over the program's tiles, or the rows of them that are in registers at once: `body` gets the first row and column within the block, and how many rows.
    pub(super) fn for_parts(
        &self,
        p: &mut Program,
        scope: &Scope,
        mut body: impl FnMut(&mut Program, &Scope, [Value; 2], i64) -> Result,
    ) -> Result {
        self.for_tiles(p, scope, |p, scope, at| match self.multiplies_tiles() {
            false => body(p, scope, at, self.rows(scope)),
            true => self.for_rows(p, scope, |p, scope, row| {
                let row = p.add_index(at[0], row);
                body(p, scope, [row, at[1]], ROWS)
            }),
        })
    }
    /// Over a tile's rows, `ROWS` at a time.
    fn for_rows(
        &self,
        p: &mut Program,
        scope: &Scope,
        mut body: impl FnMut(&mut Program, &Scope, Value) -> Result,
    ) -> Result {
        let base = scope.get(self.m.iter.name).expect("bound by the loop over tiles").base;
        let bounds = [0, self.m.tile, ROWS].map(|n| p.constant_index(n));
        for_each(p, bounds, |p, row| {
            let first = p.add_index(base, row);
            body(p, &scope.with(self.m.iter.name, bind(&self.m.iter, first, Some(0), ROWS)), row)
        })
    }
}
