//! Schedules of attention: a program takes a block of queries of one head and walks over the keys.

use super::attr::{Kind, Schedule};
use super::nest::extent_of;
use super::target::Target;
use super::tiles::pow2;
use super::{Plan, nest};
use rc_ir::{Body, Dim, Name, Op};

/// The iterators of `loop.attention`, by role.
pub fn iters(body: &Body, op: Op) -> Option<([Name; 6], [Dim; 6])> {
    let op = body.op_ref(op);
    let names: Vec<Name> = op.attr("iters")?.as_array()?.iter().map(|a| a.as_str().map(Name::new)).collect::<Option<_>>()?;
    let extents = op.attr("extents")?.as_shape()?;
    Some((names.try_into().ok()?, extents.try_into().ok()?))
}

/// `None` if the op does not have the six iterators b, h, m, n, d, e.
pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let ([b, h, m, n, d, e], extents) = iters(body, op)?;
    let ranges = nest::symbol_ranges(&rc_dialects::func::symbols(body));
    let size = |i: usize| extent_of(&ranges, extents[i]);
    let mut s = Schedule::new(Kind::Attention);
    s.grid = vec![b, h, m];
    s.axes = [m, n];
    let ty = body.op_ref(op).operand_types()[0].elem();
    let half = ty.bit_width() == Some(16);
    let fits = |want: i64, i: usize| want.min(pow2(size(i)));
    let (why, other);
    if target.is_cpu() {
        let rows = if target.registers >= 32 { 4 } else { 2 }.min(size(2).max(1));
        s.tile = vec![(m, rows), (n, target.lanes(rc_ir::Type::f32()))];
        why = format!("{rows} queries and a vector of keys at a time; scores never leave the core");
        other = "more queries at a time: too few vector registers".to_string();
    } else {
        let (bm, bn) = if half { (fits(64, 2).max(16), fits(64, 3).max(16)) } else { (fits(32, 2).max(16), fits(32, 3).max(16)) };
        s.tile = vec![(m, bm), (n, bn), (d, pow2(size(4))), (e, pow2(size(5)))];
        s.threads = if half { (bm / 16 * 32).clamp(32, 128) } else { 128 };
        s.unit = Some(if half && size(4) % 16 == 0 { "mma" } else { "fma" });
        let programs = size(0) * size(1) * (size(2) + bm - 1) / bm;
        why = format!("{bm} queries and {bn} keys at a time, {programs} programs");
        other = format!("{} queries: {} programs", 2 * bm, programs / 2);
    }
    Some(Plan { schedules: vec![s], why, other })
}
