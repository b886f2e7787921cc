//! Schedules of attention's gradients: a program takes a block of queries (for q's) or of keys (for k's and v's) of one head and
//! walks over the others.

use super::Plan;
use super::attention::{D, E, M, N, iters};
use super::attr::{Attention, Kind, Schedule};
use super::nest::{extent_of, symbol_ranges};
use super::target::Target;
use super::tiles::pow2;
use rc_dialects::loop_::gradients_of;
use rc_ir::{Body, Op, Type};
use rc_machine::Unit;

/// `None` if the op does not have the six iterators b, h, m, n, d, e.
pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let ([b, h, m, n, d, e], extents) = iters(body, op)?;
    let ranges = symbol_ranges(&rc_dialects::func::symbols(body));
    let size = |i: usize| extent_of(&ranges, extents[i]);
    let at = body.op_ref(op);
    let of = gradients_of(at);
    let of_queries = of == ["q"];
    let (rows, row, inner, inner_size) = if of_queries { (m, size(M), n, size(N)) } else { (n, size(N), m, size(M)) };
    let programs = |block: i64| size(0) * size(1) * ((row + block - 1) / block);
    let (this, other) = if of_queries { ("queries", "keys") } else { ("keys", "queries") };
    let mut s = Schedule::new(Kind::Attention(Attention::default()));
    s.axes = [rows, inner];
    s.grid = vec![b, h, rows];
    if target.is_cpu() {
        let (taken, step) = (if target.registers >= 32 { 12 } else { 6 }, 2 * target.lanes(Type::f32()));
        let taken = row.clamp(1, taken);
        // Turning the others around pays for itself over many rows; a few programs for each core keep all busy.
        let mut block = taken * 16;
        while block > taken && programs(block) < 4 * target.cores {
            block = (block / 2 + taken - 1) / taken * taken;
        }
        s.tile = vec![(rows, taken), (inner, step), (d, size(D)), (e, size(E))];
        s.kind = Kind::Attention(Attention { block: vec![(rows, block)], ..Attention::default() });
        return Some(Plan {
            schedules: vec![s],
            why: format!(
                "gradients of {}: {taken} {this} and {step} {other} at a time, {block} {this} for each of {} programs",
                of.join(", "),
                programs(block)
            ),
            other: format!("{} {this} at a time: more registers than the machine's {}", taken + 2, target.registers),
        });
    }
    let half = at.operand_types()[0].elem().bit_width() == Some(16);
    let widths = [size(D), size(E)].map(|n| (n + 15) / 16 * 16);
    // Columns of sums in registers, for each row.
    let sums: i64 = of.iter().map(|&name| widths[usize::from(name == "v")]).sum();
    let fits = |want: i64, size: i64| want.min(pow2(size)).max(16);
    // The sums of 256 columns of one gradient leave few registers for the operands of another product.
    let limit = if sums < 256 || of.len() == 2 { 32 } else { 16 };
    let (taken, step) = match half {
        true => (fits(64, row), fits(if sums <= 128 { 64 } else { limit }, inner_size)),
        false => (fits(32, row), fits(32, inner_size)),
    };
    s.tile = vec![(rows, taken), (inner, step), (d, widths[0]), (e, widths[1])];
    s.threads = if half { taken / 16 * 32 } else { 128 };
    let unit = Some(if half { Unit::Mma } else { Unit::Fma });
    s.kind = Kind::Attention(Attention { unit, ..Attention::default() });
    if at.bool("causal") {
        s.grid = vec![rows, b, h]; // The longest rows of all heads first.
    }
    Some(Plan {
        schedules: vec![s],
        why: format!(
            "gradients of {}: {taken} {this} and {step} {other} at a time, {} programs",
            of.join(", "),
            programs(taken)
        ),
        other: format!("{} {this}: {} programs", 2 * taken, programs(2 * taken)),
    })
}
