//! Structural hash and equality of operations: the same ops on the same values, whatever they are named
//! and wherever they come from. Locations, value names and block labels do not count.

use crate::attr::Attr;
use crate::body::{Block, Body, Op, Region, Value};
use crate::intern::Name;
use crate::op_def::Traits;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::Hasher;

/// A hash of an op with its attributes, operands, result types and regions, equal for [equal](ops_equal) ops of
/// one body. It depends on the order of interning: use it in tables, never print it or sort by it.
pub fn op_hash(body: &Body, op: Op) -> u64 {
    let mut hasher = StructureHasher {
        body,
        state: FxHasher::default(),
        values: FxHashMap::default(),
        blocks: FxHashMap::default(),
    };
    hasher.op(op, body.attrs(op));
    hasher.state.finish()
}

/// A hash of a whole body, equal for [equal](bodies_equal) ones. `ignore` names attributes of the root that do
/// not count, such as `sym_name`.
pub fn body_hash(body: &Body, ignore: &[&str]) -> u64 {
    let mut hasher = StructureHasher {
        body,
        state: FxHasher::default(),
        values: FxHashMap::default(),
        blocks: FxHashMap::default(),
    };
    hasher.op(body.root(), without(body.attrs(body.root()), ignore));
    hasher.state.finish()
}

/// Whether two ops of one body do the same: same name, attributes, result types and operands, where those of
/// commutative ops may be swapped, and equal regions.
pub fn ops_equal(body: &Body, a: Op, b: Op) -> bool {
    let attrs = body.attrs(a) == body.attrs(b);
    attrs
        && Comparison { a: body, b: body, same: true, values: FxHashMap::default(), blocks: FxHashMap::default() }
            .ops(a, b)
}

/// Whether two bodies are the same but for the root's attributes named in `ignore`: two symbols of which one will do.
pub fn bodies_equal(a: &Body, b: &Body, ignore: &[&str]) -> bool {
    let attrs = without(a.attrs(a.root()), ignore) == without(b.attrs(b.root()), ignore);
    attrs
        && Comparison { a, b, same: false, values: FxHashMap::default(), blocks: FxHashMap::default() }
            .ops(a.root(), b.root())
}

fn without(dict: Attr, ignore: &[&str]) -> Attr {
    ignore.iter().fold(dict, |dict, key| dict.with(Name::new(key), None))
}

struct StructureHasher<'a> {
    body: &'a Body,
    state: FxHasher,
    /// Numbers of the values and blocks defined inside what is hashed.
    values: FxHashMap<Value, u64>,
    blocks: FxHashMap<Block, u64>,
}

impl StructureHasher<'_> {
    fn value(&self, value: Value) -> u64 {
        // Values from outside count as themselves; the mark keeps them apart from inner numbers.
        self.values.get(&value).copied().unwrap_or(1 << 40 | value.index() as u64)
    }
    fn op(&mut self, op: Op, attrs: Attr) {
        let body = self.body;
        self.state.write_u32(body.name(op).id());
        self.state.write_u32(attrs.id());
        self.state.write_u32(body.props(op).map_or(u32::MAX, |p| p.id()));
        let mut operands: SmallVec<[u64; 4]> = body.operands(op).map(|v| self.value(v)).collect();
        if commutes(body, op) {
            operands.sort_unstable();
        }
        operands.iter().for_each(|&o| self.state.write_u64(o));
        body.results(op).for_each(|r| self.state.write_u32(body.ty(r).id()));
        for block in body.successors(op) {
            let number = self.blocks.get(&block).copied().unwrap_or(1 << 40 | block.index() as u64);
            self.state.write_u64(number);
        }
        for region in body.regions(op) {
            self.region(region);
        }
    }
    fn region(&mut self, region: Region) {
        let body = self.body;
        self.state.write_u64(body.blocks(region).len() as u64);
        for block in body.blocks(region) {
            self.blocks.insert(block, self.blocks.len() as u64);
        }
        // All definitions first, so that uses before them (back edges) have numbers.
        for block in body.blocks(region) {
            for arg in body.block_args(block) {
                self.values.insert(arg, self.values.len() as u64);
                self.state.write_u32(body.ty(arg).id());
            }
            for result in body.ops(block).flat_map(|op| body.results(op)) {
                self.values.insert(result, self.values.len() as u64);
            }
        }
        for op in body.blocks(region).flat_map(|block| body.ops(block)) {
            self.op(op, body.attrs(op));
        }
    }
}

fn commutes(body: &Body, op: Op) -> bool {
    let r = body.op_ref(op);
    r.has(Traits::COMMUTATIVE) && !r.has(Traits::INDEXED) && body.operand_count(op) == 2
}

struct Comparison<'a> {
    a: &'a Body,
    b: &'a Body,
    /// One body: a value from outside equals itself.
    same: bool,
    values: FxHashMap<Value, Value>,
    blocks: FxHashMap<Block, Block>,
}

impl Comparison<'_> {
    fn value(&self, a: Value, b: Value) -> bool {
        match self.values.get(&a) {
            Some(&mapped) => mapped == b,
            None => self.same && a == b,
        }
    }
    /// Compares all but attributes of the first op.
    fn ops(&mut self, a: Op, b: Op) -> bool {
        let (x, y) = (self.a, self.b);
        let types = |body: &Body, op| -> SmallVec<[_; 2]> { body.op_ref(op).result_types() };
        if x.name(a) != y.name(b) || x.props(a) != y.props(b) || types(x, a) != types(y, b) || !self.operands(a, b) {
            return false;
        }
        let (s, t) = (x.successors(a), y.successors(b));
        let branch = |(p, q): (&Block, &Block)| self.blocks.get(p).map_or(self.same && p == q, |m| m == q);
        if s.len() != t.len() || !s.iter().zip(&t).all(branch) {
            return false;
        }
        let (r, q) = (x.regions(a), y.regions(b));
        r.len() == q.len() && r.into_iter().zip(q).all(|(r, q)| self.regions(r, q))
    }
    fn operands(&self, a: Op, b: Op) -> bool {
        let (x, y) = (self.a, self.b);
        if x.operand_count(a) != y.operand_count(b) {
            return false;
        }
        let straight = x.operands(a).zip(y.operands(b)).all(|(v, w)| self.value(v, w));
        straight || (commutes(x, a) && x.operands(a).zip(y.operands(b).rev()).all(|(v, w)| self.value(v, w)))
    }
    fn regions(&mut self, a: Region, b: Region) -> bool {
        let (x, y) = (self.a, self.b);
        if x.blocks(a).len() != y.blocks(b).len() {
            return false;
        }
        self.blocks.extend(x.blocks(a).zip(y.blocks(b)));
        // All definitions first, so that uses before them (back edges) compare as well.
        for (p, q) in x.blocks(a).zip(y.blocks(b)) {
            let types =
                |body: &Body, block| -> SmallVec<[_; 4]> { body.block_args(block).map(|v| body.ty(v)).collect() };
            if types(x, p) != types(y, q) {
                return false;
            }
            self.values.extend(x.block_args(p).zip(y.block_args(q)));
            let (mut ops, mut others) = (x.ops(p), y.ops(q));
            loop {
                match (ops.next(), others.next()) {
                    (Some(o), Some(p)) if x.result_count(o) == y.result_count(p) => {
                        self.values.extend(x.results(o).zip(y.results(p)))
                    }
                    (None, None) => break,
                    _ => return false,
                }
            }
        }
        let mut pairs = x.blocks(a).zip(y.blocks(b)).flat_map(|(p, q)| x.ops(p).zip(y.ops(q)));
        pairs.all(|(o, p)| x.attrs(o) == y.attrs(p) && self.ops(o, p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::test_dialect::*;
    use crate::types::Type;

    #[test]
    fn commutative_operands_and_regions() {
        let mut f = func("f", &[Type::i64(), Type::i64()]);
        let (x, y) = (f.args[0], f.args[1]);
        let mut b = Builder::at_end(&mut f.body, f.entry);
        let sums: Vec<_> = [(x, y), (y, x), (x, x)].map(|(v, w)| add(&mut b, v, w)).into();
        let loops: Vec<Op> = [(x, y), (y, x), (x, x)]
            .map(|(v, w)| {
                let (op, inner) = region_op(&mut b, "rc.test.loop");
                b.within(inner, |b| {
                    let s = add(b, v, w);
                    let t = add(b, s, v);
                    b.name(t, &format!("t{}", op.index()));
                    ret(b, &[t]);
                });
                op
            })
            .into();
        let op = |i: usize| f.body.defining_op(sums[i]).unwrap();
        let hash = |op| op_hash(&f.body, op);
        assert!(ops_equal(&f.body, op(0), op(1)) && hash(op(0)) == hash(op(1)));
        assert!(!ops_equal(&f.body, op(0), op(2)));
        // The inner `add s, v` differs: v is x in one, y in the other.
        assert!(!ops_equal(&f.body, loops[0], loops[1]) && !ops_equal(&f.body, loops[0], loops[2]));
        let mut map = crate::clone::Mapping::new();
        let copy = f.body.clone_op(loops[0], &mut map);
        assert!(ops_equal(&f.body, loops[0], copy) && op_hash(&f.body, copy) == op_hash(&f.body, loops[0]));
    }

    #[test]
    fn bodies_but_for_their_names() {
        let build = |name: &str, n: i64| {
            let mut f = func(name, &[Type::i64()]);
            let mut b = Builder::at_end(&mut f.body, f.entry);
            let c = constant(&mut b, n);
            let s = add(&mut b, f.args[0], c);
            ret(&mut b, &[s]);
            f.body
        };
        let (a, b, c) = (build("a", 1), build("b", 1), build("c", 2));
        assert!(
            bodies_equal(&a, &b, &["sym_name"]) && !bodies_equal(&a, &b, &[]) && !bodies_equal(&a, &c, &["sym_name"])
        );
        assert_eq!(body_hash(&a, &["sym_name"]), body_hash(&b, &["sym_name"]));
        assert_ne!(body_hash(&a, &[]), body_hash(&b, &[]));
        assert_ne!(body_hash(&a, &["sym_name"]), body_hash(&c, &["sym_name"]));
    }
}
