//! Packed weights ahead of their use. A panel is read once for each tile of rows, and the first tile waits for memory, which gives a core less than its products
//! take in. So each tile brings a part of the panel that comes next to the caches, a little with each k.

use super::super::program::Program;
use super::super::scope::Scope;
use super::Blocked;
use rc_dialects::op;
use rc_ir::{Dim, Result, Value};

/// The part of the next panel that comes with a tile of rows.
pub(super) struct Ahead {
    /// The weight, as one row of elements.
    memory: Value,
    first: Value,
    /// Elements that each k brings.
    step: Value,
}

impl Ahead {
    pub(super) fn prefetch(&self, p: &mut Program, k: Value) {
        let at = p.mul_index(k, self.step);
        let at = p.add_index(self.first, at);
        p.build().op(op::kernel::PREFETCH).operand(self.memory).operand(at).build();
    }
}

impl Blocked<'_, '_> {
    /// What comes with the tile at a row within the block, whose sums go over k from `first` on; `None` where a weight is not packed, or one tile reads each panel.
    pub(super) fn ahead(&self, p: &mut Program, scope: &Scope, row: Value, first: Value) -> Result<Option<Ahead>> {
        let tiles = (self.m.block as u64).div_ceil(self.m.tile as u64) as i64;
        let Some(weight) = self.panels(p)?.filter(|_| tiles > 1) else { return Ok(None) };
        let Some(&[panels, length, elements]) = p.ty(weight).static_shape().as_deref() else { return Ok(None) };
        let step = (elements as u64).div_ceil(tiles as u64) as i64;
        let memory = p.view(weight, &[Dim::Static(panels * length * elements)]);
        let column = scope.get(self.n.iter.name).expect("bound by the loop over tiles").base;
        let [one, rows, columns] = [1, self.m.tile, self.n.tile].map(|n| p.constant_index(n));
        let [step, of_tile, of_panel] = [step, step * length, length * elements].map(|n| p.constant_index(n));
        let (panel, tile) = (p.binary(op::core::DIV, column, columns), p.binary(op::core::DIV, row, rows));
        let next = p.add_index(panel, one);
        let parts = [(next, of_panel), (tile, of_tile), (self.word(p, first), step)];
        let first = parts.into_iter().fold(p.constant_index(0), |sum, (number, size)| {
            let part = p.mul_index(number, size);
            p.add_index(sum, part)
        });
        Ok(Some(Ahead { memory, first, step }))
    }

    /// The right operand where it lies in panels, `[panels, k, elements of a row]`.
    fn panels(&self, p: &mut Program) -> Result<Option<Value>> {
        if let (Some(words), Some(from)) = (self.product.words, self.in_words) {
            return self.panels_of_words(p, from, words.width).map(Some);
        }
        let nest = self.product.nest;
        let is_panelled = |&from: &usize| nest.inputs[from].panels(self.n.iter.name) == Some(self.n.tile);
        let Some(from) = (0..nest.inputs.len()).find(is_panelled) else { return Ok(None) };
        let memory = p.memory_of(p.src.operand(nest.op, from))?;
        Ok(Some(p.view(memory, &nest.inputs[from].shape)))
    }
}
