//! `split-sorts`: sorts of long rows as sorts of runs that are merged.

use rc_dialects::builder::CoreBuilder;
use rc_dialects::op;
use rc_dialects::tensor::{merge, sort};
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Body, Builder, Dim, Op, Type};

pub static SPLIT_SORTS: PassDef = PassDef {
    summary: "Makes sorts of long rows sorts of runs, which are merged.",
    doc: "For machines on which a program sorts a row in registers and shared memory. Longer rows of a fixed length are cut into runs; each pass over \
them then merges pairs. What is beyond the row's end, where runs do not divide it, stands after all others.",
    options: &[option(
        "run",
        OptionKind::Int { min: 2, max: 1 << 20 },
        "8192",
        "Elements of a run, a power of two; rows of up to twice as many stay whole.",
    )],
    requires: &["decompose"],
    ..PassDef::new("split-sorts", |options| {
        let run = (options.int("run") as u64).next_power_of_two() as i64;
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let sorts: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::core::SORT).collect();
            for op in sorts {
                let length = body.ty(body.operand(op, 0)).shape().last().and_then(|n| n.as_static());
                if length.is_some_and(|n| n > 2 * run && n < i64::from(i32::MAX)) {
                    cx.remark(body.loc(op), format!("the rows are merged from runs of {run} elements"));
                    split(body, op, run);
                }
            }
            Ok(())
        }))
    })
};

fn split(body: &mut Body, op: Op, run: i64) {
    let at = body.op_ref(op);
    let (x, places, descending) = (at.operand(0), at.operands().nth(1), at.bool("descending"));
    let (shape, indices) = (body.ty(at.result(0)).shape().to_vec(), at.result_types()[1].elem());
    let mut b = Builder::before(body, op);
    let keys = sort::keys(&mut b, x, descending);
    let greatest = sort::greatest(b.ty(keys).elem().bit_width().unwrap_or(64));
    let all = merge::sorted(&mut b, keys, greatest, run);
    let from = b.slice(all, &vec![Dim::Static(0); shape.len()], &shape);
    let values = merge::along(&mut b, x, from);
    let found = match places {
        Some(places) => merge::along(&mut b, places, from),
        None => from,
    };
    let found = b.convert(found, if places.is_some() { indices } else { Type::i64() });
    body.replace_op(op, &[values, found]);
}
