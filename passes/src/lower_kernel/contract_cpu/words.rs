//! Products of words: several neighbours along k in 32 bits, which one instruction multiplies and adds.

use super::{Blocked, Side, load};
use crate::lower_kernel::program::Program;
use crate::lower_kernel::scope::Scope;
use rc_dialects::op;
use rc_ir::{Attr, Diagnostic, Dim, Result, Type, Value};
use rc_machine::Unit;

impl Blocked<'_, '_> {
    /// Elements along k that are multiplied at once.
    pub(super) fn width(&self) -> i64 {
        self.product.words.map_or(1, |words| words.width)
    }
    /// What so many elements along k are multiplied in.
    pub(super) fn words_in(&self, elements: i64) -> i64 {
        (elements + self.width() - 1) / self.width()
    }
    /// A tile of an operand as it lies in a panel, and its place there: `other` is the dimension along k, from `k` on.
    pub(super) fn to_panel(
        &self,
        p: &mut Program,
        side: Side,
        tile: Value,
        shape: [i64; 2],
        other: usize,
        k: Value,
    ) -> (Value, Value) {
        let Some(words) = self.product.words else {
            let tile = p.convert(tile, self.product.acc);
            return (p.broadcast(tile, shape), k);
        };
        let tile = p.broadcast(tile, shape);
        let mut packed = pack(p, tile, other, words.width);
        if let Some(offset) = self.offset().filter(|_| side == Side::Left) {
            let bits = p.splat([1; 2], offset);
            packed = p.binary(op::core::XOR, packed, bits);
        }
        (packed, self.word(p, k))
    }
    /// What is added to each signed byte of the left operand, as the unit multiplies unsigned ones: 128, in a word.
    pub(super) fn offset(&self) -> Option<Attr> {
        let words = self.product.words?;
        (words.unit == Unit::Vnni).then(|| Attr::int(i64::from(0x8080_8080_u32 as i32), Type::i32()))
    }
    /// The words in which so many elements are.
    pub(super) fn count_words(&self, p: &mut Program, length: Value) -> Value {
        if self.width() == 1 {
            return length;
        }
        let rest = p.constant_index(self.width() - 1);
        let length = p.add_index(length, rest);
        self.word(p, length)
    }
    /// The word that starts at an element.
    pub(super) fn word(&self, p: &mut Program, k: Value) -> Value {
        if self.width() == 1 {
            return k;
        }
        let width = p.constant_index(self.width());
        p.binary(op::core::DIV, k, width)
    }
    /// A row of a panel of the right operand that lies in words, as operand `from` of the nest.
    pub(super) fn packed_words(
        &self,
        p: &mut Program,
        from: usize,
        width: i64,
        scope: &Scope,
        [first, k]: [Value; 2],
    ) -> Result<Value> {
        let memory = self.panels_of_words(p, from, width)?;
        let tile = p.constant_index(self.n.tile);
        let column = scope.get(self.n.iter.name).expect("bound by the loop over tiles").base;
        let (panel, first, zero) = (p.binary(op::core::DIV, column, tile), self.word(p, first), p.constant_index(0));
        let word = p.add_index(first, k);
        let elements = load(p, memory, &[panel, word, zero], [1, self.n.tile * width], [1, 2]);
        Ok(pack(p, elements, 1, width))
    }
    /// The memory of an operand that lies in words, `[panels, words along k, elements of a row]`.
    pub(super) fn panels_of_words(&self, p: &mut Program, from: usize, width: i64) -> Result<Value> {
        let value = p.src.operand(self.product.nest.op, from);
        let shape = &self.product.nest.inputs[from].shape;
        let [words, columns, _] = shape[shape.len() - 3..] else { unreachable!("in words") };
        let panels = if shape.len() == 4 { shape[0] } else { Dim::Static(1) };
        let memory = p.memory_of(value)?;
        Ok(p.view(memory, &[panels, words, columns * Dim::Static(width)]))
    }
    /// The same where the left operand is stored with an offset, which the columns' sums put right.
    pub(super) fn sums_of_offset(
        &self,
        p: &mut Program,
        scope: &Scope,
        [row, column]: [Value; 2],
        [first, length]: [Value; 2],
        start: Value,
    ) -> Result<Value> {
        let offset = self.offset().expect("words of signed bytes");
        let columns = p.zeros([1, self.n.tile], self.product.acc);
        let bounds = [p.constant_index(0), self.count_words(p, length), p.constant_index(1)];
        let ends = p.unrolled_loop(self.unrolled(p, scope), bounds, &[start, columns], |p, k, acc| {
            let a = self.operand(p, Side::Left, scope, row, [first, k])?;
            let b = self.operand(p, Side::Right, scope, column, [first, k])?;
            let repeated = p.splat([1; 2], offset);
            let sums = self.product.dot(p, a, b, acc[0], false, false);
            Ok::<_, Box<Diagnostic>>(vec![sums, self.product.dot(p, repeated, b, acc[1], false, false)])
        })?;
        Ok(p.binary(op::core::SUB, ends[0], ends[1]))
    }
}

/// Words of `width` neighbours along a dimension.
fn pack(p: &mut Program, tile: Value, dim: usize, width: i64) -> Value {
    let mut shape = p.shape(tile);
    shape[dim] /= width;
    let ty = Type::tile(&shape, Type::i32(), None);
    p.build().op(op::kernel::PACK).operand(tile).attr("dim", Attr::i64(dim as i64)).result(ty).value()
}
