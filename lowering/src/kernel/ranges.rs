//! Bounds of `index` values, which say where 32 bits are enough.

use super::KernelInfo;
use rc_dialects::op;
use rc_ir::dim_range::{Interval, Ranges, interval};
use rc_ir::{Block, Body, OpRef, Type, Value, op_def::constant_of};

/// Bounds of each `index` value of a kernel, by interval arithmetic from the ranges of its symbols. The values are those of the thread phase, whose
/// masks, shifts and choices no expression over symbols has: bounds flow from op to op instead, and what computes with them is the
/// engine's ([`rc_ir::dim_range`]).
pub(super) struct IndexRanges {
    symbols: Ranges,
    threads: i64,
    grid: [i64; 3],
    values: Vec<Option<Interval>>,
    /// Values may be kept in 32 bits at all.
    narrow: bool,
}

impl IndexRanges {
    pub fn new(body: &Body, info: &KernelInfo, gpu: bool) -> Self {
        let mut symbols = Ranges::new();
        info.symbols.iter().for_each(|s| symbols.set(s.name, s.min, s.max));
        let extent = |dim| symbols.interval(dim).map_or(i64::MAX, |range| range.1);
        let mut grid = info.grid.map(extent);
        if gpu {
            // What a launch can have.
            grid = [grid[0].min(i32::MAX.into()), grid[1].min(65535), grid[2].min(65535)];
        }
        let values = vec![None; body.value_capacity()];
        let mut ranges = Self { symbols, threads: info.threads.into(), grid, values, narrow: gpu };
        if let Some(entry) = body.entry() {
            ranges.block(body, entry);
        }
        ranges
    }

    /// Bounds of an index value, where they are known.
    pub fn of(&self, value: Value) -> Option<Interval> {
        self.values.get(value.index()).copied().flatten()
    }

    /// Bounds of an expression over the symbols, where they are known.
    pub fn of_dim(&self, dim: rc_ir::Dim) -> Option<Interval> {
        self.symbols.interval(dim).filter(|r| r.0 > i64::MIN && r.1 < i64::MAX)
    }

    /// Whether an index value is kept in 32 bits.
    pub fn is_narrow(&self, value: Value) -> bool {
        self.narrow && self.fits_32_bits(value)
    }

    /// Whether 32 bits hold an index value, be it kept in 64.
    pub fn fits_32_bits(&self, value: Value) -> bool {
        self.of(value).is_some_and(fits_i32)
    }

    /// Whether values with these bounds are kept in 32 bits.
    pub fn fits(&self, interval: Option<Interval>) -> bool {
        self.narrow && interval.is_some_and(fits_i32)
    }

    /// Whether an index value is known to be at least 0.
    pub fn non_negative(&self, value: Value) -> bool {
        self.of(value).is_some_and(|range| range.0 >= 0)
    }

    fn block(&mut self, body: &Body, block: Block) {
        for op in body.ops(block) {
            let op = body.op_ref(op);
            match op.name().as_str() {
                op::kernel::FOR => self.for_op(op),
                op::kernel::IF => self.if_op(op),
                name => {
                    for result in op.results().filter(|&r| body.ty(r).elem().is_index()) {
                        self.values[result.index()] =
                            self.result(name, op).filter(|r| r.0 > i64::MIN && r.1 < i64::MAX);
                    }
                }
            }
        }
    }

    fn for_op(&mut self, op: OpRef) {
        let Some(entry) = op.entry(0) else { return };
        let args: Vec<Value> = op.body.block_args(entry).collect();
        let bounds = (self.of(op.operand(0)), self.of(op.operand(1)), self.of(op.operand(2)));
        if let (Some(lower), Some(upper), Some(step)) = bounds {
            // The counter runs past the upper bound by less than a step before the loop ends.
            let last = upper.1.saturating_sub(1).max(lower.0);
            let counter = (lower.0, last);
            let fits = [lower, upper, step, (lower.0, last.saturating_add(step.1))].into_iter().all(fits_i32);
            self.values[args[0].index()] = (fits || !self.narrow).then_some(counter);
        }
        self.block(op.body, entry);
        // What is carried and bounded whatever it was before is bounded by that and its first value.
        let inits: Vec<Value> = op.operands().skip(3).collect();
        let mut refined = false;
        for ((&init, &next), (&arg, result)) in inits.iter().zip(&yields(op, 0)).zip(args[1..].iter().zip(op.results()))
        {
            if let (Some(a), Some(b)) = (self.of(init), self.of(next)) {
                let both = Some(interval::hull(a, b));
                (self.values[arg.index()], self.values[result.index()]) = (both, both);
                refined = true;
            }
        }
        if refined {
            self.block(op.body, entry);
        }
    }

    fn if_op(&mut self, op: OpRef) {
        for region in 0..op.body.regions(op.op).len() {
            if let Some(entry) = op.entry(region) {
                self.block(op.body, entry);
            }
        }
        for ((result, then), otherwise) in op.results().zip(yields(op, 0)).zip(yields(op, 1)) {
            if let (Some(a), Some(b)) = (self.of(then), self.of(otherwise)) {
                self.values[result.index()] = Some(interval::hull(a, b));
            }
        }
    }

    fn result(&self, name: &str, op: OpRef) -> Option<Interval> {
        let operand = |i: usize| self.of(op.operand(i));
        match name {
            op::core::CONSTANT => {
                let value = constant_of(op.body, op.result(0))?.as_int()?;
                Some((value, value))
            }
            op::core::IOTA => Some((0, op.result_types()[0].static_shape()?.into_iter().max()?)),
            op::kernel::PROGRAM_ID => {
                let extent = *self.grid.get(usize::try_from(op.int("axis")?).ok()?)?;
                Some((0, extent.saturating_sub(1).max(0)))
            }
            op::kernel::THREAD_ID => Some((0, self.threads - 1)),
            op::kernel::CLUSTER_RANK => Some((0, 15)),
            op::kernel::EXTENT => match op.attr("expr")?.as_shape()? {
                &[dim] => self.of_dim(dim),
                _ => None,
            },
            op::kernel::SPLAT | op::core::BROADCAST | op::kernel::EXTRACT | op::kernel::SLICE | op::kernel::SHUFFLE => {
                operand(0)
            }
            op::core::SELECT => Some(interval::hull(operand(1)?, operand(2)?)),
            op::core::CONVERT => integer_range(op.body.ty(op.operand(0)).elem()),
            // Memory that threads exchange indices through.
            _ if op.operands().len() == 0 => None,
            _ => arithmetic(name, operand(0)?, (op.operands().len() > 1).then(|| operand(1)).flatten()),
        }
    }
}

fn arithmetic(name: &str, a: Interval, b: Option<Interval>) -> Option<Interval> {
    match name {
        op::core::ADD => Some(interval::add(a, b?)),
        op::core::SUB => Some(interval::sub(a, b?)),
        op::core::MUL => Some(interval::mul(a, b?)),
        op::core::MAX => Some(interval::max(a, b?)),
        op::core::MIN => Some(interval::min(a, b?)),
        op::core::DIV => interval::div(a, b?),
        op::core::REM => interval::rem(a, b?),
        op::core::SHL if b?.0 >= 0 && b?.1 < 32 => Some(interval::corners(a, b?, |x, y| x.saturating_mul(1 << y))),
        op::core::SHR if b?.0 >= 0 && b?.1 < 63 => Some(interval::corners(a, b?, |x, y| x >> y)),
        // Of numbers from 0 on: what the bits of the larger one can hold.
        op::core::AND if a.0 >= 0 || b?.0 >= 0 => Some((
            0,
            if a.0 >= 0 && b?.0 >= 0 {
                a.1.min(b?.1)
            } else if a.0 >= 0 {
                a.1
            } else {
                b?.1
            },
        )),
        op::core::OR | op::core::XOR if a.0 >= 0 && b?.0 >= 0 => {
            let bits = 64 - a.1.max(b?.1).leading_zeros();
            Some((0, if bits >= 63 { i64::MAX } else { (1 << bits) - 1 }))
        }
        op::core::ABS => Some((0, a.0.saturating_abs().max(a.1.saturating_abs()))),
        op::core::NEG => Some(interval::sub((0, 0), a)),
        _ => None,
    }
}

/// What an integer type holds, where that is less than `index`.
fn integer_range(ty: Type) -> Option<Interval> {
    let width = ty.bit_width().filter(|&width| ty.is_int() && width <= 32)?;
    let unsigned = ty.is_unsigned() || width == 1;
    Some(if unsigned { (0, (1 << width) - 1) } else { (-(1 << (width - 1)), (1 << (width - 1)) - 1) })
}

fn fits_i32(range: Interval) -> bool {
    range.0 >= i32::MIN.into() && range.1 <= i32::MAX.into()
}

/// The values that a region yields.
pub(super) fn yields(op: OpRef, region: usize) -> Vec<Value> {
    let last = op.entry(region).and_then(|block| op.body.last_op(block));
    last.filter(|&last| op.body.name(last) == op::kernel::YIELD)
        .map_or(Vec::new(), |last| op.body.operands(last).collect())
}
