//! `order-scatters`: in which order the updates of scatters are combined, on machines where many are at work at once.
//!
//! - In any order, by atomic instructions ([`any_order`]): one pass over the updates. Sums of floats may differ in their last bits
//!   from run to run.
//!   What is widened before and rounded afterwards is summed as it is ([`narrow`]).
//! - Sorted by index ([`sorted`]), where a module is `rc.deterministic`, for products, and where it takes less time ([`price`]).

mod any_order;
mod narrow;
mod price;
mod sorted;

use rc_dialects::op;
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Body, Diagnostic, Loc, Op};
use rc_machine::Target;

pub static ORDER_SCATTERS: PassDef = PassDef {
    summary: "Chooses the order in which scatters' updates are combined.",
    doc: "For machines where each program has places or updates of its own. Sums, extremes and the last of several elements are combined in any order, by atomic instructions. Where the module has `rc.deterministic = true`, sums of floats are formed in the same order at every run, as products are: the updates' numbers are sorted by index, and where those of each place start is searched for. So are sums of long slices for which that takes less time: atomic sums of narrow floats need a table of wide ones that is filled before and rounded after. Scatters of few updates stay as they are, and products of a symbolic number. What is written with `any_order` becomes what atomic instructions combine, or keeps its order where none do.",
    options: &[option(
        "min-updates",
        OptionKind::Int { min: 1, max: 1 << 30 },
        "64",
        "Scatters of fewer updates stay as they are.",
    )],
    requires: &["decompose"],
    ..PassDef::new("order-scatters", |options| {
        let least = options.int("min-updates");
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            let target = Target::of("", "", cx.module.attrs).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?;
            let deterministic = cx.module.attrs.get("rc.deterministic").and_then(|a| a.as_bool()) == Some(true);
            let scatters: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == op::core::SCATTER).collect();
            for scatter in scatters {
                if body.op_ref(scatter).bool("any_order") {
                    any_order::complete(body, scatter);
                    continue;
                }
                if !is_open(body, scatter, least) {
                    continue;
                }
                let scatter = narrow::narrowed(body, scatter).unwrap_or(scatter);
                let sizes = sorted::sizes(body, scatter, least);
                let known = is_float_sum(body, scatter) && sizes.is_some();
                let times = price::times(body, scatter, &target).filter(|_| known);
                if let Some([atomic, sorted]) = times {
                    let what = format!("updates in any order take about {atomic} us, sorted by place {sorted} us");
                    cx.remark(body.loc(scatter), what);
                }
                let in_order = deterministic || times.is_some_and(|[atomic, sorted]| sorted < atomic);
                if !(in_order && is_float_sum(body, scatter)) && any_order::rewrite(body, scatter) {
                    cx.count("scatters in any order", 1);
                } else if let Some(sizes) = sizes {
                    sorted::sort(body, scatter, sizes);
                    cx.count("scatters sorted", 1);
                }
            }
            crate::decompose::decompose(body).map(drop)
        }))
    })
};

/// Whether a scatter has no order yet, and updates enough for one.
fn is_open(body: &Body, scatter: Op, least: i64) -> bool {
    let op = body.op_ref(scatter);
    let updates = body.ty(op.operand(1)).num_elements().as_static();
    op.operands().len() == 3 && updates.is_none_or(|n| n >= least)
}

fn is_float_sum(body: &Body, scatter: Op) -> bool {
    let op = body.op_ref(scatter);
    op.str("kind") == Some("add") && op.result_types()[0].elem().is_float()
}
