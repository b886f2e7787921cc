//! `canonicalize`: folds, applies the ops' own patterns, and keeps one of equal constants.

use crate::rules::{RuleSet, canonicalizations};
use rc_ir::attr::Attr;
use rc_ir::body::{Body, Op, Region};
use rc_ir::diag::Result;
use rc_ir::effects::is_constant;
use rc_ir::op_def::{OpName, Traits};
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::rewrite::{PatternSet, RewriteConfig, apply_patterns};
use rc_ir::types::Type;
use rustc_hash::FxHashMap;

pub static CANONICALIZE: PassDef = PassDef {
    summary: "Brings operations into their simplest form.",
    doc: "Folds operations by their declarations, applies the rewrite rules of `passes/rules/canonicalize.rules` and the patterns of their `Canonicalize` interface, puts \
          constants on the right of commutative operations, erases dead operations, and moves the constants of a \
          region to its start, one of each. It stops when nothing changes: running it again does nothing.",
    ..PassDef::new("canonicalize", |_| {
        let (mut patterns, rules) = (PatternSet::canonicalization(), canonicalizations());
        rules.add_to(&mut patterns);
        Ok(PassKind::symbol(move |body: &mut Body, cx: &mut SymbolContext| run(body, &patterns, rules, cx)))
    })
};

/// Merging constants can let patterns match that ask for equal operands, and those make new constants.
fn run(body: &mut Body, patterns: &PatternSet, rules: &RuleSet, cx: &mut SymbolContext) -> Result {
    let in_rust = patterns.len() - rules.rules.len();
    loop {
        let outcome = apply_patterns(body, patterns, &RewriteConfig::default())?;
        let merged = gather_constants(body);
        cx.count("operations folded", outcome.folded as u64);
        cx.count("patterns applied", outcome.applied.iter().sum::<usize>() as u64);
        rules.count(&outcome.applied[in_rust..], cx);
        cx.count("dead operations erased", outcome.erased as u64);
        cx.count("constants merged", merged);
        if merged == 0 {
            return Ok(());
        }
    }
}

/// Moves the constants of each region to the start of its entry block, in their order, and keeps one of equal
/// ones; how many went.
///
/// They do not move out of a region, so that a kernel's or a loop's body keeps what it computes with.
fn gather_constants(body: &mut Body) -> u64 {
    let mut merged = 0;
    for op in body.walk() {
        // Unregistered ops may mean anything by the order of their regions' ops.
        if body.name(op).def().is_some_and(|d| !d.has(Traits::GRAPH_REGION)) && !body.is_erased(op) {
            for region in body.regions(op) {
                merged += gather_in(body, region);
            }
        }
    }
    merged
}

fn gather_in(body: &mut Body, region: Region) -> u64 {
    let Some(entry) = body.first_block(region) else { return 0 };
    let constants: Vec<Op> =
        body.blocks(region).flat_map(|b| body.ops(b)).filter(|&op| is_constant(body, op)).collect();
    let mut first: FxHashMap<(OpName, Attr, Type), Op> = FxHashMap::default();
    let mut last: Option<Op> = None;
    let mut merged = 0;
    for op in constants {
        let key = (body.name(op), body.attrs(op), body.ty(body.result(op, 0)));
        if let Some(&same) = first.get(&key) {
            let value = body.result(same, 0);
            body.replace_op(op, &[value]);
            merged += 1;
            continue;
        }
        first.insert(key, op);
        let place = match last {
            Some(last) => body.next_op(last),
            None => body.first_op(entry),
        };
        if let Some(before) = place.filter(|&before| before != op) {
            body.move_before(before, op);
        } else if place.is_none() {
            body.move_to_end(entry, op);
        }
        last = Some(op);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ops::*;

    #[test]
    fn folds_merges_and_orders_constants() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let mut b = f.builder();
        let a = constant(&mut b, 7);
        let s = binary(&mut b, "rc.ptest.add", x, a);
        let c = constant(&mut b, 3);
        let d = constant(&mut b, 4);
        let e = binary(&mut b, "rc.ptest.add", c, d);
        let t = binary(&mut b, "rc.ptest.add", e, s);
        let u = constant(&mut b, 9);
        keep(&mut b, &[t, u, c]);
        f.run(&[&CANONICALIZE]);
        // 7 and 3 + 4 are one constant; it and 3 and 9 stand first, in the order in which they came.
        assert_eq!(
            f.text(),
            "%1 = constant 7; %2 = constant 3; %3 = constant 9; %4 = add %0 %1; %5 = add %4 %1; keep %5 %3 %2"
        );
        f.run_changes_nothing(&[&CANONICALIZE]);
    }

    #[test]
    fn patterns_match_what_merging_makes_equal() {
        let mut f = func("f", 1);
        let mut b = f.builder();
        // x - x is 0 (a pattern of sub); the operands become equal only when the constants are one.
        let one = constant(&mut b, 1);
        let other = constant(&mut b, 1);
        let difference = binary(&mut b, "rc.ptest.opaque_sub", one, other);
        keep(&mut b, &[difference]);
        f.run(&[&CANONICALIZE]);
        assert_eq!(f.text(), "%1 = constant 0; keep %1");
    }

    #[test]
    fn constants_stay_in_their_region() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let mut b = f.builder();
        let outer = constant(&mut b, 5);
        region(&mut b, "rc.ptest.loop", |b| {
            let s = binary(b, "rc.ptest.add", x, outer);
            let inner = constant(b, 5);
            let t = binary(b, "rc.ptest.add", s, inner);
            keep(b, &[t]);
        });
        f.run(&[&CANONICALIZE]);
        assert_eq!(f.text(), "%1 = constant 5; loop { %2 = constant 5; %3 = add %0 %1; %4 = add %3 %2; keep %4 }");
    }
}
