//! Packs the constant operands of products: in panels of columns, `[panels, k, columns of a panel]`, as blocks of a product read them.

use super::{Constants, bytes};
use crate::schedule::{Target, panel_columns};
use rc_dialects::builder::CoreBuilder;
use rc_dialects::core::dot::DOT;
use rc_dialects::interfaces::Contraction;
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
    /// Columns of a panel.
    columns: i64,
}

/// A weight in panels.
struct Packed {
    of: Value,
    free: usize,
    columns: i64,
    value: Value,
}

impl Packer<'_, '_> {
    /// Makes products read packed weights, each through views that undo the packing. Gives the packed ones.
    pub fn run(mut self, body: &mut Body, entry: Block) -> FxHashSet<Value> {
        let mut all: Vec<Packed> = Vec::new();
        let dots: Vec<Op> = body.ops(entry).filter(|&op| body.name(op) == &DOT).collect();
        for dot in dots {
            let Some(w) = self.weight(body, dot) else { continue };
            let same = |p: &&Packed| (p.of, p.free, p.columns) == (w.value, w.free, w.columns);
            let packed = match all.iter().find(same) {
                Some(packed) => packed.value,
                None => {
                    let value = self.pack(body, &w);
                    all.push(Packed { of: w.value, free: w.free, columns: w.columns, value });
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
        if !roles.rhs_batch.is_empty() || left.elem() != roles.acc || right.elem() != roles.acc {
            return None;
        }
        let shape = right.static_shape()?;
        let rows = roles.lhs_free.iter().fold(Dim::Static(1), |n, &d| n * left.shape()[d]);
        let columns = panel_columns(rows.as_static(), shape[free], roles.acc, self.target)?;
        Some(Weight { dot, value, free, n: shape[free], k: shape[contracted], columns })
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
    /// Shapes of the weight: padded to whole panels, and with panels apart; and the order of the latter's dimensions in memory.
    fn shapes(&self) -> ([Dim; 2], [Dim; 3], [i64; 3]) {
        let [panels, columns, k] = [self.panels(), self.columns, self.k].map(Dim::Static);
        let whole = panels * columns;
        match self.free {
            0 => ([whole, k], [panels, columns, k], [0, 2, 1]),
            _ => ([k, whole], [k, panels, columns], [1, 0, 2]),
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
    /// The weight again. Both orders are their own inverses.
    fn unpacked(&self, b: &mut Builder, packed: Value) -> Value {
        let (whole, _, order) = self.shapes();
        let apart = b.permute(packed, &order);
        let padded = b.reshape(apart, &whole);
        let shape = b.ty(self.value).shape();
        if shape.as_slice() == whole { padded } else { b.slice(padded, &[Dim::Static(0); 2], &shape) }
    }
}
