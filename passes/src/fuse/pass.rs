//! The passes `fuse` and `outline-ops`.

use super::weigh::weigh;
use super::{Class, FuseOptions, by_rows, classify, excess, fuse, scalars, sink};
use crate::plan_buffers::limit_of;
use crate::schedule::Target;
use rc_dialects::op;
use rc_ir::pass::{OptionKind, PassDef, PassKind, SymbolContext, option};
use rc_ir::{Attr, Body, Module, Result};

pub static FUSE: PassDef = PassDef {
    summary: "Groups operations that become one kernel.",
    doc: "Elementwise operations and index maps join what uses them; reductions join what reads them row by row; a product \
takes elementwise epilogues; a reduction over more than the rows that its operand is computed from first goes over each row; attention takes the index maps around it. On a GPU, kernels that use light arithmetic, or a padding with zeros, and cannot be one compute it each for itself, where that reads \
less than its stored result. Remarks say what was fused, what was not, and why. \
In a module with `rc.memory_limit = BYTES` a result is stored instead where what it is computed of would be held too long, which a remark says. \
In a module with `rc.excess_precision = true` a float that a fusion rounds to 16 bits and widens again keeps its precision.",
    options: &[option(
        "max-ops",
        OptionKind::Int { min: 1, max: 65536 },
        "64",
        "The most operations in one fusion; arithmetic on integers, and what moves or repeats elements, counts a quarter.",
    )],
    requires: &["decompose"],
    ..PassDef::new("fuse", |options| {
        let options = FuseOptions { max_ops: options.int("max-ops") as usize, ..FuseOptions::default() };
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| run(body, cx, &options)))
    })
};

pub static OUTLINE_OPS: PassDef = PassDef {
    summary: "Makes every operation that is in no fusion yet one of its own.",
    requires: &["decompose"],
    pending: Some(has_loose_ops),
    ..PassDef::new("outline-ops", |_| {
        let options = FuseOptions { fuse: false, max_ops: 1, ..FuseOptions::default() };
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| run(body, cx, &options)))
    })
};

fn run(body: &mut Body, cx: &mut SymbolContext, options: &FuseOptions) -> Result {
    if body.name(body.root()) == op::func::FUNC {
        scalars::to_tensors(body);
        let mut options = of_target(cx.module.attrs, options);
        if let Some(entry) = body.entry().filter(|_| options.fuse && options.gathers) {
            sink::finish_windows(body, entry)?;
            sink::widen_padded_last(body, entry);
        }
        if let Some(entry) = body.entry().filter(|_| options.fuse) {
            by_rows::reduce_by_rows(body, entry);
        }
        if let (Some(limit), true) = (limit_of(cx.module.attrs), options.fuse) {
            let target = Target::of("", "", cx.module.attrs).unwrap_or_default();
            let (weighed, remarks) = weigh(body, &options, limit, &target);
            options = weighed;
            remarks.into_iter().for_each(|remark| cx.report(Box::new(remark)));
        }
        for remark in fuse(body, &options) {
            cx.report(Box::new(remark));
        }
        if options.fuse && cx.module.attrs.get("rc.excess_precision").is_some_and(|a| a.as_bool() == Some(true)) {
            excess::keep(body);
        }
    }
    Ok(())
}

/// The options with what the module's target says.
pub fn of_target(attrs: Attr, options: &FuseOptions) -> FuseOptions {
    match Target::of("", "", attrs) {
        Ok(target) => FuseOptions {
            panels: target.is_cpu(),
            padded: target.cpu.as_ref().map_or([0; 2], |cpu| [cpu.windows.padded, cpu.windows.padded_lanes]),
            gathers: !target.is_cpu(),
            widened: target
                .gpu
                .as_ref()
                .filter(|_| target.has_warpgroups())
                .map_or(i64::MAX, |gpu| gpu.products.widened),
            costs: target.fusion,
            ..options.clone()
        },
        Err(_) => options.clone(),
    }
}

/// Whether a function has an operation that has to be in a fusion and is not.
fn has_loose_ops(module: &Module) -> bool {
    let functions = module.bodies.iter().filter(|b| b.name(b.root()) == op::func::FUNC);
    functions.filter_map(|b| b.entry().map(|e| (b, e))).any(|(body, entry)| {
        body.ops(entry).any(|op| {
            let op = body.op_ref(op);
            !matches!(classify(op), Class::Outside | Class::Splat) && !op.is(op::core::RESHAPE)
        })
    })
}
