//! What keeping a value and computing it again cost on a machine, in picoseconds.

use crate::fuse::{Class, classify};
use crate::schedule::Target;
use crate::work::work;
use rc_dialects::interfaces::Contraction;
use rc_ir::dim_range::Ranges;
use rc_ir::{Body, Dim, Op, OpRef, Type, Value};
use rustc_hash::FxHashMap;

/// The attribute of ops that the user wants computed again: their results are not kept.
pub const RECOMPUTE: &str = "rc.recompute";

pub struct Prices<'a> {
    pub target: &'a Target,
    pub ranges: &'a Ranges,
    /// Whether products and attention may be computed again.
    pub products: bool,
    /// The price of kept bytes, as a multiple of the time they take.
    pub weight: f64,
}

impl Prices<'_> {
    fn most(&self, size: Dim) -> f64 {
        self.ranges.counted(size).map_or(1.0, |n| n as f64)
    }
    fn elements(&self, ty: Type) -> f64 {
        ty.shape().iter().map(|&d| self.most(d)).product()
    }
    pub fn bytes(&self, ty: Type) -> f64 {
        self.elements(ty) * ty.elem().byte_width().unwrap_or(8) as f64
    }
    /// Moving so many bytes once: GB/s are bytes per nanosecond.
    fn moving(&self, bytes: f64) -> f64 {
        1e3 * bytes / self.target.bandwidth
    }
    /// Writing a value in the forward function, where it is not `there` in any case, and reading it in the backward one.
    pub fn keeping(&self, ty: Type, there: bool) -> u64 {
        let times = if there { 1.0 } else { 2.0 };
        picoseconds(self.weight * times * self.moving(self.bytes(ty))) + 1
    }
    /// Writing a value that was computed again, and reading it: what a product reads is no part of its kernel.
    pub fn storing(&self, ty: Type) -> u64 {
        picoseconds(2.0 * self.moving(self.bytes(ty)))
    }
    /// Reading an argument, which is there all the time.
    pub fn reading(&self, ty: Type) -> u64 {
        picoseconds(self.moving(self.bytes(ty))) + 1
    }
    /// Computing an op again; none where that must not be.
    pub fn again(&self, op: OpRef) -> Option<u64> {
        let tflops = |count: f64, rate: f64| count / rate;
        let output: f64 = op.result_types().iter().map(|&t| self.elements(t)).sum();
        let input: f64 = op.operand_types().iter().map(|&t| self.elements(t)).sum();
        let launch = 1e6 * self.target.launch_us;
        let marked = op.body.attr(op.op, RECOMPUTE).is_some();
        // Tflop/s are operations per picosecond.
        let time = match classify(op) {
            Class::Splat | Class::Reindex => 0.0,
            Class::Pointwise => tflops(output * work(op), self.target.flops_f32),
            Class::Reduce | Class::Scan => launch + tflops(input, self.target.flops_f32),
            Class::Contract | Class::Attention if !self.products && !marked => return None,
            Class::Contract => launch + tflops(2.0 * output * self.contracted(op), self.target.flops_mma),
            Class::Attention => launch + tflops(self.attention(op), self.target.flops_mma),
            Class::Alone | Class::Outside if op.operands().len() == 0 => 0.0,
            Class::Alone | Class::Outside if marked => launch,
            Class::Alone | Class::Outside => return None,
        };
        Some(picoseconds(time))
    }
    fn contracted(&self, op: OpRef) -> f64 {
        let roles = op.def().and_then(|d| d.interface::<Contraction>()).and_then(|c| (c.0)(op));
        let shape = op.body.ty(op.operand(0)).shape();
        roles.map_or(1.0, |r| r.lhs_contract.iter().map(|&d| self.most(shape[d])).product())
    }
    fn attention(&self, op: OpRef) -> f64 {
        let [q, k] = [0, 1].map(|i| op.body.ty(op.operand(i)));
        let keys = k.shape().iter().rev().nth(1).map_or(1.0, |&d| self.most(d));
        4.0 * self.elements(q) * keys
    }
}

/// A price: at most an hour, of which sums stay within 64 bits.
fn picoseconds(time: f64) -> u64 {
    time.ceil().min(3.6e15) as u64
}

/// Values that follow from counters and numbers alone: random numbers, masks, positions. They are computed again.
pub fn counted(body: &Body, ops: &[Op], arguments: &[Value]) -> FxHashMap<Value, bool> {
    let mut out: FxHashMap<Value, bool> = arguments.iter().map(|&v| (v, body.ty(v).rank() == 0)).collect();
    for &op in ops {
        let at = body.op_ref(op);
        let cheap = !matches!(classify(at), Class::Alone | Class::Contract | Class::Attention);
        let all = cheap && at.operands().all(|v| out.get(&v).copied().unwrap_or(true));
        out.extend(at.results().map(|v| (v, all)));
    }
    out
}
