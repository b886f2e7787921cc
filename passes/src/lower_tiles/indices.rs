//! The indices of a kernel as expressions: each index value of the source is followed to symbols, program numbers and loop
//! counters.

use super::groups::accessed;
use crate::schedule::line;
use rc_dialects::op;
use rc_ir::dim_range::Facts;
use rc_ir::{Body, Dim, Op, OpRef, Type, Value};
use rustc_hash::FxHashMap;

/// The widest access of a GPU's thread, in bytes. Buffers are aligned to it.
pub const GPU_ACCESS: i64 = 16;

/// What a loop counts over, and the part of it that a copy of its body runs for.
#[derive(Clone, Copy)]
pub enum Part {
    All,
    /// The whole steps: the counter plus the step is at most the upper bound.
    Whole,
    /// The one step that is cut off by the upper bound.
    Rest,
}

pub struct Indices {
    pub facts: Facts,
    dims: FxHashMap<Value, Dim>,
    grid: Vec<Dim>,
    /// Programs of a cluster.
    cluster: i64,
}

impl Indices {
    pub fn new(src: &Body) -> Indices {
        let mut facts = Facts::default();
        for s in rc_dialects::func::symbols(src) {
            facts.symbol(s.name, s.min, s.max, s.divisor);
        }
        let grid = src.op_ref(src.root()).attr("grid").and_then(|a| a.as_shape()).unwrap_or_default();
        let grid = grid.iter().map(|&d| facts.normal(d)).collect();
        let cluster = src.op_ref(src.root()).ints("cluster").unwrap_or_default().iter().product();
        Indices { facts, dims: FxHashMap::default(), grid, cluster }
    }
    /// What is known of an index value.
    pub fn dim(&self, value: Value) -> Dim {
        self.dims.get(&value).copied().unwrap_or(Dim::Dynamic)
    }
    /// Whether a place in a row is always a multiple of 16 bytes, from which the copy engine takes boxes.
    pub fn is_on_line(&self, index: Value, elem: Type) -> bool {
        self.facts.divisible(self.dim(index), line(elem))
    }
    /// A dimension of a memref's type as the analysis sees it.
    pub fn extent(&self, dim: Dim) -> Dim {
        self.facts.normal(dim)
    }
    /// Notes what the results of an operation are. Call it in program order.
    pub fn note(&mut self, op: OpRef) {
        if op.results().len() != 1 || !op.result_types()[0].is_index() {
            return;
        }
        let dim = self.result(op).unwrap_or(Dim::Dynamic);
        self.dims.insert(op.result(0), dim);
    }
    /// Notes an operation of a walk through the whole function.
    pub fn meet(&mut self, src: &Body, op: Op) {
        self.note(src.op_ref(op));
        if src.name(op) == op::kernel::FOR {
            self.enter(src, op, Part::All);
        }
    }
    fn result(&mut self, op: OpRef) -> Option<Dim> {
        let operand = |i: usize| self.dim(op.operand(i));
        let nonneg = |a: Dim| self.facts.is_nonneg(a).then_some(a);
        Some(match op.name().as_str() {
            op::core::CONSTANT => Dim::Static(op.int("value")?),
            op::kernel::EXTENT => self.facts.normal(*op.attr("expr")?.as_shape()?.first()?),
            op::kernel::PROGRAM_ID => {
                let programs = *self.grid.get(usize::try_from(op.int("axis")?).ok()?)?;
                self.facts.variable("program", Dim::Static(0), programs - Dim::Static(1))
            }
            op::kernel::CLUSTER_RANK => self.facts.variable("rank", Dim::Static(0), Dim::Static(self.cluster - 1)),
            op::core::ADD => operand(0) + operand(1),
            op::core::SUB => operand(0) - operand(1),
            op::core::MUL => operand(0) * operand(1),
            op::core::MAX => operand(0).max(operand(1)),
            op::core::MIN => operand(0).min(operand(1)),
            // Division truncates: of numbers that are not negative it is floordiv.
            op::core::DIV => self.facts.quotient(nonneg(operand(0))?, nonneg(operand(1))?),
            op::core::REM => self.facts.remainder(nonneg(operand(0))?, nonneg(operand(1))?),
            _ => return None,
        })
    }
    /// Assumes that a condition holds, or not, where it compares indices. Gives how much is to be forgotten after the branch.
    pub fn assume(&mut self, src: &Body, condition: Value, holds: bool) -> usize {
        let compare = src.defining_op(condition).map(|op| src.op_ref(op)).filter(|op| op.is(op::core::COMPARE));
        let Some(op) = compare else { return 0 };
        let (a, b) = (self.dim(op.operand(0)), self.dim(op.operand(1)));
        if a == Dim::Dynamic || b == Dim::Dynamic {
            return 0;
        }
        match (op.str("kind").unwrap_or_default(), holds) {
            ("lt", true) | ("ge", false) => self.facts.assume_less(a, b),
            ("le", true) | ("gt", false) => self.facts.assume_le(a, b),
            ("gt", true) | ("le", false) => self.facts.assume_less(b, a),
            ("ge", true) | ("lt", false) => self.facts.assume_le(b, a),
            _ => return 0,
        }
        1
    }
    /// The bounds and step of a `kernel.for`.
    pub fn range(&self, op: OpRef) -> (Dim, Dim, Dim) {
        (self.dim(op.operand(0)), self.dim(op.operand(1)), self.dim(op.operand(2)))
    }
    /// How many neighbours along the last dimension of its memory a load, store or gather of a GPU may take at once at most: the greatest power of two
    /// at whose multiples they lie, wherever the tile does, and all of them inside or none.
    pub fn neighbours(&self, op: OpRef) -> i64 {
        let (memref, tile) = accessed(op);
        let (ty, indices) = (op.body.ty(memref), op.group("indices"));
        let Some(&first) = indices.last() else { return 1 };
        let (last, shape) = (indices.len() - 1, op.body.ty(tile).static_shape().unwrap_or_default());
        let dims = op.ints("dims").unwrap_or_default();
        let along = |k: usize| dims.iter().zip(&shape).filter(move |(d, _)| **d == k as i64);
        let moves = |k: usize| {
            along(k).next().is_some() || op.int("axis") == Some(k as i64) || self.dim(indices[k]) != Dim::Static(0)
        };
        let extent = self.extent(ty.shape()[last]);
        let end = self.dim(first) + Dim::Static(1 + along(last).map(|(_, n)| n - 1).sum::<i64>());
        let rows = (0..last).any(moves) || !self.facts.le(end, extent);
        let most = GPU_ACCESS / ty.elem().byte_width().unwrap_or(16).max(1) as i64;
        let strides = ty.strides().unwrap_or_default();
        let fits = |width: i64| {
            let apart = ty.is_row_major() || strides[..last].iter().all(|&stride| self.facts.divisible(stride, width));
            self.facts.divisible(self.dim(first), width) && (!rows || self.facts.divisible(extent, width) && apart)
        };
        std::iter::successors(Some(most), |width| Some(width / 2))
            .find(|&width| width <= 1 || fits(width))
            .unwrap_or(1)
            .max(1)
    }
    /// Whether a loop's steps may end beyond its upper bound.
    pub fn has_rest(&self, op: OpRef) -> bool {
        let (lower, upper, step) = self.range(op);
        match step {
            Dim::Static(n) if n > 0 => !self.facts.divisible(upper - lower, n),
            _ => true,
        }
    }
    /// Notes what a loop's counter is inside of (a copy of) its body.
    pub fn enter(&mut self, src: &Body, op: Op, part: Part) {
        let op = src.op_ref(op);
        let Some(entry) = op.entry(0) else { return };
        let counter = src.block_arg(entry, 0);
        let (lower, upper, step) = self.range(op);
        let dim = match (step, part) {
            (Dim::Static(n), _) if n < 1 => Dim::Dynamic,
            (Dim::Static(_), Part::Rest) => lower + self.facts.quotient(upper - lower, step) * step,
            // From a place that differs between programs: the counter is within the bounds.
            (Dim::Static(n), _) if !self.facts.divisible(lower, n) && self.facts.is_nonneg(lower) => {
                self.facts.variable("loop", Dim::Static(0), upper - Dim::Static(1))
            }
            (Dim::Static(_), _) => {
                let rounded =
                    if let Part::Whole = part { upper - lower } else { upper - lower + step - Dim::Static(1) };
                let trips = self.facts.quotient(rounded, step);
                lower + step * self.facts.variable("loop", Dim::Static(0), trips - Dim::Static(1))
            }
            _ => Dim::Dynamic,
        };
        self.dims.insert(counter, dim);
    }
}
