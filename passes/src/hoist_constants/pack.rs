//! Packs the constant operands of products: in panels of columns, `[panels, k, columns of a panel]`, as blocks of a product read them.

use super::{Constants, bytes};
use crate::schedule::{Target, panel_columns, tile_columns};
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::DOT;
use rc_dialects::interfaces::Contraction;
use rc_dialects::kernel::word_width;
use rc_ir::pass::PassContext;
use rc_ir::{Block, Body, Builder, Dim, Name, Op, Value};
use rustc_hash::FxHashSet;

pub struct Packer<'a, 'p> {
    pub target: &'a Target,
    pub constants: &'a Constants,
    pub cx: &'a mut PassContext<'p>,
}

/// A product's constant right operand, a matrix.
struct Weight {
    dot: Op,
    value: Value,
    /// Its dimension that is not summed over.
    free: usize,
    /// Elements of it, and of the other dimension.
    n: i64,
    k: i64,
    /// Columns of a panel, elements of k that are multiplied at once, and those to a multiple of which k is filled up.
    columns: i64,
    word: i64,
    depth: i64,
}

/// A weight in panels.
struct Packed {
    of: Value,
    free: usize,
    columns: i64,
    word: i64,
    value: Value,
}

impl Packer<'_, '_> {
    /// Makes products read packed weights, each through views that undo the packing. Gives the packed ones.
    pub fn run(mut self, body: &mut Body, entry: Block) -> FxHashSet<Value> {
        let mut all: Vec<Packed> = Vec::new();
        let dots: Vec<Op> = body.ops(entry).filter(|&op| body.name(op) == &DOT).collect();
        for dot in dots {
            let Some(w) = self.weight(body, dot) else { continue };
            let same = |p: &&Packed| (p.of, p.free, p.columns, p.word) == (w.value, w.free, w.columns, w.word);
            let packed = match all.iter().find(same) {
                Some(packed) => packed.value,
                None => {
                    let value = self.pack(body, &w);
                    all.push(Packed { of: w.value, free: w.free, columns: w.columns, word: w.word, value });
                    value
                }
            };
            let view = w.unpacked(&mut Builder::before(body, dot), packed);
            body.set_operand(dot, 1, view);
        }
        all.iter().map(|p| p.value).collect()
    }

    /// The constant operand, if its product goes by blocks that would pack it.
    fn weight(&self, body: &Body, dot: Op) -> Option<Weight> {
        let value = body.operand(dot, 1);
        if !self.constants.values.contains(&value) {
            return None;
        }
        let op = body.op_ref(dot);
        let roles = (op.def()?.interface::<Contraction>()?.0)(op)?;
        let (&[free], &[contracted]) = (roles.rhs_free.as_slice(), roles.rhs_contract.as_slice()) else { return None };
        let (left, right) = (body.ty(body.operand(dot, 0)), body.ty(value));
        // Elements of another type than the sums' would be converted for every tile; packing a short row only adds to it.
        let tiles = self.target.tiles(right.elem(), roles.acc);
        let word = match tiles.or_else(|| self.target.words(right.elem(), roles.acc)) {
            Some(_) => word_width(right.elem())?,
            None if right.elem() == roles.acc => 1,
            None => return None,
        };
        if !roles.rhs_batch.is_empty() || left.elem() != right.elem() {
            return None;
        }
        let shape = right.static_shape()?;
        let rows = roles.lhs_free.iter().fold(Dim::Static(1), |n, &d| n * left.shape()[d]);
        let columns = panel_columns(rows.as_static(), shape[free], roles.acc, self.target)?;
        let (columns, depth) =
            tiles.map_or((columns, word), |tiles| (tile_columns(tiles, shape[free]), tiles.shape[2]));
        Some(Weight { dot, value, free, n: shape[free], k: shape[contracted], columns, word, depth })
    }

    fn pack(&mut self, body: &mut Body, w: &Weight) -> Value {
        let packed = w.packed(&mut Builder::before(body, w.dot));
        let name = body.value_name(w.value);
        if !name.is_empty() {
            body.set_value_name(packed, Name::new(&format!("{name}.packed")));
        }
        self.cx.remark(
            body.loc(w.dot),
            format!(
                "the product's weight is packed once, in {} panels of {} columns: {} bytes that no call copies",
                w.panels(),
                w.columns,
                bytes(body.ty(packed))
            ),
        );
        self.cx.count("weights packed", 1);
        packed
    }
}

impl Weight {
    fn panels(&self) -> i64 {
        (self.n as u64).div_ceil(self.columns as u64) as i64
    }
    /// Shapes of the weight: padded to whole panels and words, and with these apart; and the order of the latter's dimensions in memory.
    fn shapes(&self) -> ([Dim; 2], Vec<Dim>, Vec<i64>) {
        let words = (self.k as u64).next_multiple_of(self.depth as u64) as i64 / self.word;
        let [panels, columns, words, word] = [self.panels(), self.columns, words, self.word].map(Dim::Static);
        let (n, k) = (panels * columns, words * word);
        match (self.free, self.word) {
            (0, 1) => ([n, k], vec![panels, columns, k], vec![0, 2, 1]),
            (_, 1) => ([k, n], vec![k, panels, columns], vec![1, 0, 2]),
            (0, _) => ([n, k], vec![panels, columns, words, word], vec![0, 2, 1, 3]),
            _ => ([k, n], vec![words, word, panels, columns], vec![2, 0, 3, 1]),
        }
    }
    fn packed(&self, b: &mut Builder) -> Value {
        let (whole, apart, order) = self.shapes();
        let zero = [Dim::Static(0); 2];
        let shape = b.ty(self.value).shape();
        let rest = [whole[0] - shape[0], whole[1] - shape[1]];
        let padded = b.pad_or_crop(self.value, 0.0, &zero, &rest);
        let apart = b.reshape(padded, &apart);
        b.permute(apart, &order)
    }
    /// The weight again.
    fn unpacked(&self, b: &mut Builder, packed: Value) -> Value {
        let (whole, _, order) = self.shapes();
        let place = |d: usize| order.iter().position(|&at| at == d as i64).expect("a permutation") as i64;
        let inverse: Vec<i64> = (0..order.len()).map(place).collect();
        let apart = b.permute(packed, &inverse);
        let padded = b.reshape(apart, &whole);
        let shape = b.ty(self.value).shape();
        if shape.as_slice() == whole { padded } else { b.slice(padded, &[Dim::Static(0); 2], &shape) }
    }
}
