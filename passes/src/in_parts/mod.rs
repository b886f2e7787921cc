//! `in-parts`: under a memory limit, large values that products write or read are computed in blocks, with what makes them, what follows them while it is
//! large, and what reads that: logits with their loss, gradients of logits, attention's scores where no kernel takes them. A block's results take their places in the whole, or are
//! combined with those of the other blocks (a sum over rows, a product that contracts them).
//!
//! Which value, along which dimension, and in how many blocks is weighed by what the launches then need: the function is fused and its launches are ordered for
//! each choice.

mod along;
mod blocks;
mod region;

use crate::fuse::{FuseOptions, of_target, peak_of};
use crate::plan_buffers::limit_of;
use rc_dialects::func::FUNC;
use rc_dialects::interfaces::Contraction;
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Body, Op};
use region::{Region, bytes, regions};

pub static IN_PARTS: PassDef = PassDef {
    summary: "Under a memory limit, computes large values in blocks.",
    doc: "Logits with their loss, gradients of logits, attention's scores: what makes a large value that a product writes or reads, what follows it while it is large, and what reads that, is computed for some rows \
after the others, where all of it at once does not fit in the limit to intermediate results. Blocks' results are concatenated, or combined: sums over what is cut are formed in \
another order. The value, the dimension and the number of blocks (2 to 32) are those with which the fused launches need the least, the fewest blocks that \
keep the limit first. A remark says what was weighed.",
    options: &[option(
        "limit",
        OptionKind::Int { min: 0, max: i64::MAX },
        "0",
        "Bytes of intermediate results. 0: the module's `rc.memory_limit`; without one nothing is changed.",
    )],
    requires: &["decompose"],
    ..PassDef::new("in-parts", |options| {
        let limit = Some(options.int("limit")).filter(|&limit| limit > 0);
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| {
            if let Some(limit) = limit.or_else(|| limit_of(cx.module.attrs)).filter(|_| body.name(body.root()) == &FUNC)
            {
                keep(body, cx, limit);
            }
            Ok(())
        }))
    })
};

/// Values that are looked at, the largest first, and functions that are planned, at most.
const VALUES: usize = 6;
const TRIED: usize = 48;
/// Blocks that are tried.
const COUNTS: [i64; 5] = [2, 4, 8, 16, 32];
/// The part of the peak that blocks have to save.
const WORTH: i64 = 16;

struct Choice {
    /// What makes the large value.
    makes: Op,
    /// Which of its regions.
    region: usize,
    count: i64,
    peak: i64,
}

fn keep(body: &mut Body, cx: &mut SymbolContext, limit: i64) {
    let options = of_target(cx.module.attrs, &FuseOptions::default());
    let Some(mut peak) = peak_of(body, &options) else { return };
    let mut tried = 0;
    while peak > limit {
        let Some(choice) = best(body, &options, (peak, limit), &mut tried) else { return };
        let Some(found) = regions(body, choice.makes).into_iter().nth(choice.region) else { return };
        let result = body.result(choice.makes, 0);
        let text = format!(
            "a value of {} bytes is computed in {} blocks of {} of {} along a dimension, with {} operations: intermediate results take about {} bytes then, {peak} before; the limit is {limit}, {tried} choices were weighed",
            bytes(body, result).unwrap_or(0),
            choice.count,
            blocks::step(found.size, choice.count),
            found.size,
            found.ops.len(),
            choice.peak,
        );
        cx.remark(body.loc(choice.makes), text);
        cx.count("results in blocks", 1);
        blocks::compute(body, &found, choice.count);
        peak = choice.peak;
    }
}

/// The choice that keeps the limit with the fewest blocks, or else the one with the lowest peak; none where that saves too little.
fn best(body: &Body, options: &FuseOptions, (peak, limit): (i64, i64), tried: &mut usize) -> Option<Choice> {
    let is_product = |op: Op| body.op_ref(op).def().is_some_and(|def| def.interface::<Contraction>().is_some());
    // What a product writes or reads lies in memory.
    let reads = |op: Op| body.uses(body.result(op, 0)).any(|(user, _)| is_product(user));
    let stored = |&op: &Op| body.result_count(op) == 1 && (is_product(op) || reads(op));
    let mut values: Vec<(i64, Op)> =
        body.ops(body.entry()?).filter(stored).filter_map(|op| Some((bytes(body, body.result(op, 0))?, op))).collect();
    values.retain(|(bytes, _)| *bytes >= peak / WORTH);
    values.sort_by_key(|(bytes, op)| (std::cmp::Reverse(*bytes), op.index()));
    let mut found: Vec<Choice> = Vec::new();
    for &(_, makes) in values.iter().take(VALUES) {
        for (number, region) in regions(body, makes).iter().enumerate() {
            for count in COUNTS.into_iter().filter(|&count| count <= region.size / 2) {
                let Some(peak) = attempt(body, region, count, options, tried) else { break };
                // More blocks than keep the limit take time for nothing; more that save nothing, too.
                let last = found.last().filter(|c| (c.makes, c.region) == (makes, number));
                let better = last.is_none_or(|c| peak < c.peak - c.peak / WORTH);
                if better {
                    found.push(Choice { makes, region: number, count, peak });
                }
                if peak <= limit || !better {
                    break;
                }
            }
        }
    }
    let worth = |c: &Choice| c.peak <= peak - peak / WORTH;
    found
        .into_iter()
        .filter(worth)
        .min_by_key(|c| if c.peak <= limit { (0, c.count, c.peak) } else { (1, c.peak, c.count) })
}

/// What launches need where the region is computed in blocks.
fn attempt(body: &Body, region: &Region, count: i64, options: &FuseOptions, tried: &mut usize) -> Option<i64> {
    *tried += 1;
    let mut body = (*tried <= TRIED).then(|| body.clone())?;
    blocks::compute(&mut body, region, count);
    peak_of(&body, options)
}
