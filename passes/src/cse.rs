//! `cse`: common subexpression elimination over the dominator tree.

use rc_ir::body::{Block, Body, Op, Region};
use rc_ir::diag::Result;
use rc_ir::dominance::Dominators;
use rc_ir::effects::effects_of;
use rc_ir::op_def::{Effects, Traits};
use rc_ir::pass::{PassDef, PassKind, SymbolContext};
use rc_ir::structure::{op_hash, ops_equal};
use rustc_hash::FxHashMap;

pub static CSE: PassDef = PassDef {
    summary: "Replaces operations by equal ones that are computed before them.",
    doc: "Two operations are equal if they have the same name, attributes, result types, operands (in either order, \
          where they commute) and regions. The later one goes if the earlier one dominates it and both are pure, or if \
          both read memory in the same block and nothing between them may write. An operation without operands, such \
          as a constant, is replaced only within its region: it costs nothing to compute again, and a region that \
          becomes a kernel would have to be given the value.",
    ..PassDef::new("cse", |_| Ok(PassKind::symbol(run)))
};

fn run(body: &mut Body, cx: &mut SymbolContext) -> Result {
    let mut cse = Cse { body, seen: Vec::new(), table: FxHashMap::default(), epoch: 0, replaced: 0 };
    for region in cse.body.regions(cse.body.root()) {
        cse.region(region);
    }
    let replaced = cse.replaced;
    cx.count("operations replaced", replaced);
    Ok(())
}

struct Cse<'a> {
    body: &'a mut Body,
    /// Ops computed on the way to here, innermost last.
    seen: Vec<Available>,
    /// By hash: the place in `seen` of the innermost op.
    table: FxHashMap<u64, u32>,
    /// Goes up with each op that may write: reads before it are stale.
    epoch: u64,
    replaced: u64,
}

#[derive(Clone, Copy)]
struct Available {
    op: Op,
    hash: u64,
    epoch: u64,
    /// The place in `seen` of the next op of the same hash further out.
    outer: Option<u32>,
}

impl Cse<'_> {
    fn region(&mut self, region: Region) {
        let blocks: Vec<Block> = self.body.blocks(region).collect();
        match blocks.as_slice() {
            [] => {}
            [block] => {
                let scope = self.seen.len();
                self.block(*block);
                self.leave(scope);
            }
            _ => self.graph(region),
        }
    }

    /// Visits the blocks in preorder of the dominator tree, with what dominates each in scope.
    fn graph(&mut self, region: Region) {
        let dominators = Dominators::new(self.body, region);
        let mut children: FxHashMap<Block, Vec<Block>> = FxHashMap::default();
        for &block in dominators.order() {
            if let Some(idom) = dominators.idom(block) {
                children.entry(idom).or_default().push(block);
            }
        }
        // (block, the scope that its parent left it)
        let mut stack: Vec<(Block, usize)> =
            dominators.order().first().map(|&b| (b, self.seen.len())).into_iter().collect();
        let bottom = self.seen.len();
        while let Some((block, scope)) = stack.pop() {
            self.leave(scope);
            self.block(block);
            let scope = self.seen.len();
            stack.extend(children.get(&block).into_iter().flatten().rev().map(|&b| (b, scope)));
        }
        self.leave(bottom);
    }

    /// Forgets the ops seen since the scope began.
    fn leave(&mut self, scope: usize) {
        for entry in self.seen.drain(scope..).rev() {
            match entry.outer {
                Some(outer) => self.table.insert(entry.hash, outer),
                None => self.table.remove(&entry.hash),
            };
        }
    }

    fn block(&mut self, block: Block) {
        // Another block's reads may be stale.
        self.epoch += 1;
        let ops: Vec<Op> = self.body.ops(block).collect();
        for op in ops {
            self.inner(op);
            self.op(op);
        }
    }

    fn inner(&mut self, op: Op) {
        let regions = self.body.regions(op);
        if regions.is_empty() {
            return;
        }
        if self.body.op_ref(op).has(Traits::ISOLATED) {
            // What is outside is out of sight.
            let outside = (std::mem::take(&mut self.seen), std::mem::take(&mut self.table));
            regions.into_iter().for_each(|r| self.region(r));
            (self.seen, self.table) = outside;
        } else {
            regions.into_iter().for_each(|r| self.region(r));
        }
    }

    fn op(&mut self, op: Op) {
        let body = &self.body;
        if body.op_ref(op).has(Traits::TERMINATOR) {
            return;
        }
        let effects = effects_of(body, op);
        if !matches!(effects, Effects::Pure | Effects::Read) {
            self.epoch += 1;
            return;
        }
        if body.result_count(op) == 0 || body.op_ref(op).has(Traits::SYMBOL) {
            return;
        }
        let hash = op_hash(body, op);
        let region = |o: Op| body.parent(o).and_then(|b| body.block_region(b));
        let usable = |a: &Available| {
            (effects == Effects::Pure || (a.epoch == self.epoch && body.parent(a.op) == body.parent(op)))
                && (body.operand_count(op) > 0 || region(a.op) == region(op))
                && ops_equal(body, a.op, op)
        };
        let head = self.table.get(&hash).copied();
        let mut chain = std::iter::successors(head, |&i| self.seen[i as usize].outer).map(|i| self.seen[i as usize]);
        let earlier = chain.find(usable).map(|a| a.op);
        match earlier {
            Some(earlier) => {
                let values: Vec<_> = self.body.results(earlier).collect();
                self.body.replace_op(op, &values);
                self.replaced += 1;
            }
            None => {
                self.table.insert(hash, self.seen.len() as u32);
                self.seen.push(Available { op, hash, epoch: self.epoch, outer: head });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ops::*;

    #[test]
    fn equal_pure_ops_become_one() {
        let mut f = func("f", 2);
        let (x, y) = (f.args[0], f.args[1]);
        let mut b = f.builder();
        let s = binary(&mut b, "rc.ptest.add", x, y);
        let t = binary(&mut b, "rc.ptest.add", y, x);
        let u = binary(&mut b, "rc.ptest.add", s, t);
        let v = binary(&mut b, "rc.ptest.add", t, s);
        let p = binary(&mut b, "rc.ptest.opaque_sub", x, y);
        let q = binary(&mut b, "rc.ptest.opaque_sub", y, x);
        keep(&mut b, &[u, v, p, q]);
        f.run(&[&CSE]);
        assert_eq!(
            f.text(),
            "%2 = add %0 %1; %3 = add %2 %2; %4 = opaque_sub %0 %1; %5 = opaque_sub %1 %0; keep %3 %3 %4 %5"
        );
        f.run_changes_nothing(&[&CSE]);
    }

    #[test]
    fn regions_see_what_is_outside_and_not_the_other_way() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let mut b = f.builder();
        let s = binary(&mut b, "rc.ptest.add", x, x);
        let c = constant(&mut b, 1);
        for _ in 0..2 {
            region(&mut b, "rc.ptest.loop", |b| {
                let t = binary(b, "rc.ptest.add", x, x);
                let c = constant(b, 1);
                let u = binary(b, "rc.ptest.opaque_sub", t, t);
                keep(b, &[u, c]);
            });
        }
        keep(&mut b, &[s, c]);
        f.run(&[&CSE]);
        let inner = |c, u| format!("loop {{ %{c} = constant 1; %{u} = opaque_sub %1 %1; keep %{u} %{c} }}");
        assert_eq!(f.text(), format!("%1 = add %0 %0; %2 = constant 1; {}; {}; keep %1 %2", inner(3, 4), inner(5, 6)));
    }

    #[test]
    fn pure_regions_compare() {
        let mut f = func("f", 2);
        let (x, y) = (f.args[0], f.args[1]);
        let mut b = f.builder();
        let mut results = Vec::new();
        for (v, w) in [(x, y), (y, x), (x, x)] {
            results.push(yielding(&mut b, |b| binary(b, "rc.ptest.add", v, w)));
        }
        keep(&mut b, &results);
        f.run(&[&CSE]);
        assert_eq!(
            f.text(),
            "%2 = loop { %3 = add %0 %1; yield %3 }; %4 = loop { %5 = add %0 %0; yield %5 }; keep %2 %2 %4"
        );
    }

    #[test]
    fn reads_are_equal_until_something_writes() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let mut b = f.builder();
        let (r, s) = (read(&mut b, x), read(&mut b, x));
        keep(&mut b, &[r, s]);
        let t = read(&mut b, x);
        region(&mut b, "rc.ptest.loop", |b| {
            let u = read(b, x);
            binary(b, "rc.ptest.add", u, u);
        });
        let v = read(&mut b, x);
        keep(&mut b, &[t, v]);
        f.run(&[&CSE]);
        // `keep` may write. A region is another block, and ends what was known.
        assert_eq!(
            f.text(),
            "%1 = read %0; keep %1 %1; %2 = read %0; loop { %3 = read %0; %4 = add %3 %3 }; %5 = read %0; keep %2 %5"
        );
    }

    #[test]
    fn dominance_decides_across_blocks() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let blocks: Vec<_> = (0..3).map(|_| f.body.add_block(f.region, &[])).collect();
        let mut b = f.builder();
        let top = binary(&mut b, "rc.ptest.add", x, x);
        b.op("rc.ptest.br").operand(top).successors(&blocks[..2]).build();
        for (i, next) in [(0, vec![blocks[2]]), (1, vec![blocks[2]]), (2, vec![])] {
            b.within(blocks[i], |b| {
                let again = binary(b, "rc.ptest.add", x, x);
                let own = binary(b, "rc.ptest.opaque_sub", again, x);
                b.op("rc.ptest.br").operand(own).successors(&next).build();
            });
        }
        f.run(&[&CSE]);
        // The sum is one; the differences are in blocks of which none dominates another.
        assert_eq!(
            f.text(),
            "%1 = add %0 %0; br %1 | %2 = opaque_sub %1 %0; br %2 | %3 = opaque_sub %1 %0; br %3 | %4 = opaque_sub %1 %0; br %4"
        );
    }

    /// Run with `cargo test --release -- --ignored --nocapture passes_fast`.
    #[test]
    #[ignore = "a measurement"]
    fn passes_fast() {
        use rc_ir::pass::{PassInstance, PassManager};
        let mut f = func("f", 2);
        let (mut x, mut y) = (f.args[0], f.args[1]);
        let mut b = f.builder();
        for i in 0..50_000 {
            let c = constant(&mut b, i % 100);
            let s = binary(&mut b, "rc.ptest.add", x, y);
            let t = binary(&mut b, "rc.ptest.add", y, x);
            let u = binary(&mut b, "rc.ptest.opaque_sub", t, c);
            (x, y) = (s, u);
        }
        keep(&mut b, &[x, y]);
        let mut m = rc_ir::Module::new();
        m.push(f.body);
        let passes =
            [&CSE, &crate::canonicalize::CANONICALIZE, &crate::dce::DCE].map(|p| PassInstance::new(p).unwrap());
        println!("{}", PassManager::new(passes.into()).run(&mut m).timing);
    }
}
