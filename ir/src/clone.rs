//! Copying operations within and between bodies: the one primitive behind inlining, outlining and compaction.

use crate::body::{Block, Body, Op, OpState, Region, Value};
use crate::loc::Loc;
use rustc_hash::FxHashMap;

/// What copied operations refer to instead of the originals.
#[derive(Default)]
pub struct Mapping {
    values: FxHashMap<Value, Value>,
    blocks: FxHashMap<Block, Block>,
    /// Gives the locations of copies; the original's where `None`.
    pub loc: Option<Box<dyn Fn(Loc) -> Loc>>,
}

impl Mapping {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn map(&mut self, from: Value, to: Value) {
        self.values.insert(from, to);
    }
    pub fn map_block(&mut self, from: Block, to: Block) {
        self.blocks.insert(from, to);
    }
    pub fn get(&self, value: Value) -> Option<Value> {
        self.values.get(&value).copied()
    }
    /// The copy of a value, or the value itself: for copies within one body.
    pub fn lookup(&self, value: Value) -> Value {
        self.get(value).unwrap_or(value)
    }
}

/// The body copied from: another one, or the destination itself.
#[derive(Clone, Copy)]
enum Source<'a> {
    Other(&'a Body),
    Same,
}
impl<'a> Source<'a> {
    fn of<'b>(self, dst: &'b Body) -> &'b Body
    where
        'a: 'b,
    {
        match self {
            Source::Other(body) => body,
            Source::Same => dst,
        }
    }
}

impl Body {
    /// A detached copy, in `self`, of `op` of `src` with its regions. Operands must be mapped.
    ///
    /// # Panics
    /// If an operand or successor from outside `op` is not mapped.
    pub fn clone_from_body(&mut self, src: &Body, op: Op, map: &mut Mapping) -> Op {
        copy(self, Source::Other(src), op, map)
    }
    /// A detached copy of `op` in the same body; values that are not mapped stay.
    pub fn clone_op(&mut self, op: Op, map: &mut Mapping) -> Op {
        copy(self, Source::Same, op, map)
    }
    /// Copies the blocks of `from` of `src` to the end of region `to` of `self`.
    pub fn clone_region_from(&mut self, src: &Body, from: Region, to: Region, map: &mut Mapping) {
        copy_region(self, Source::Other(src), from, to, map);
    }
    /// Copies the operations of a block of `src` before the end of `to`, except its terminator, whose
    /// mapped operands are returned: the results of an inlined region.
    pub fn clone_block_ops(&mut self, src: &Body, from: Block, to: Block, map: &mut Mapping) -> Vec<Value> {
        let terminator = src.terminator(from);
        for op in src.ops(from).filter(|&op| Some(op) != terminator) {
            let copied = self.clone_from_body(src, op, map);
            self.append(to, copied);
        }
        terminator.map_or(Vec::new(), |t| src.operands(t).map(|v| map.get(v).expect("mapped values")).collect())
    }
    /// A dense copy without erased operations, and how values moved.
    pub fn compact(&self) -> (Body, Mapping) {
        let mut state = self.state(self.root());
        let mut map = Mapping::new();
        state.operands.clear();
        let mut out = Body::new(state);
        for (from, to) in self.regions(self.root()).into_iter().zip(out.regions(out.root())) {
            copy_region(&mut out, Source::Other(self), from, to, &mut map);
        }
        (out, map)
    }
}

fn copy(dst: &mut Body, source: Source, op: Op, map: &mut Mapping) -> Op {
    let src = source.of(dst);
    let mut state: OpState = src.state(op);
    let resolve = |v: &Value| match source {
        Source::Other(_) => map.get(*v).unwrap_or_else(|| panic!("an operand of {} is not mapped", state.name)),
        Source::Same => map.lookup(*v),
    };
    let operands = state.operands.iter().map(resolve).collect();
    let successors = state.successors.iter().map(|b| match (map.blocks.get(b), source) {
        (Some(b), _) => *b,
        (None, Source::Same) => *b,
        (None, Source::Other(_)) => panic!("a successor of {} is not mapped", state.name),
    });
    state.successors = successors.collect();
    state.operands = operands;
    if let Some(loc) = &map.loc {
        state.loc = loc(state.loc);
    }
    let regions = src.regions(op);
    let results: Vec<Value> = src.results(op).collect();
    let names: Vec<_> = results.iter().map(|&r| src.value_name(r)).collect();
    let copied = dst.create(state);
    for (i, (&old, name)) in results.iter().zip(names).enumerate() {
        let new = dst.result(copied, i);
        map.map(old, new);
        if !name.is_empty() {
            dst.set_value_name(new, name);
        }
    }
    let copied_regions = dst.regions(copied);
    for (from, to) in regions.into_iter().zip(copied_regions) {
        copy_region(dst, source, from, to, map);
    }
    copied
}

fn copy_region(dst: &mut Body, source: Source, from: Region, to: Region, map: &mut Mapping) {
    let blocks: Vec<Block> = source.of(dst).blocks(from).collect();
    for &block in &blocks {
        let src = source.of(dst);
        let args: Vec<_> = src.block_args(block).map(|v| (v, src.ty(v), src.value_name(v))).collect();
        let label = src.block_label(block);
        let types: Vec<_> = args.iter().map(|a| a.1).collect();
        let copied = dst.add_block(to, &types);
        dst.set_block_label(copied, label);
        map.map_block(block, copied);
        for (i, (old, _, name)) in args.into_iter().enumerate() {
            let new = dst.block_arg(copied, i);
            map.map(old, new);
            if !name.is_empty() {
                dst.set_value_name(new, name);
            }
        }
    }
    // Uses may come before definitions across blocks (loops in a CFG), so values that are not
    // copied yet are patched once all blocks are.
    let mut later: Vec<(Op, usize, Value)> = Vec::new();
    for block in blocks {
        let target = map.blocks[&block];
        let ops: Vec<Op> = source.of(dst).ops(block).collect();
        for op in ops {
            if let Source::Other(src) = source {
                let missing: Vec<(usize, Value)> =
                    src.operands(op).enumerate().filter(|(_, v)| map.get(*v).is_none()).collect();
                if !missing.is_empty() {
                    let stand_in = missing_stand_in(dst, src, &missing, map);
                    let copied = copy(dst, source, op, map);
                    for (&(i, v), _) in missing.iter().zip(&stand_in) {
                        later.push((copied, i, v));
                    }
                    missing.iter().for_each(|(_, v)| {
                        if stand_in.contains(&map.values[v]) {
                            map.values.remove(v);
                        }
                    });
                    dst.append(target, copied);
                    continue;
                }
            }
            let copied = copy(dst, source, op, map);
            dst.append(target, copied);
        }
    }
    for (op, i, value) in later {
        let mapped = map.get(value).unwrap_or_else(|| panic!("operand {i} of {} is not mapped", dst.name(op)));
        dst.set_operand(op, i, mapped);
    }
}

/// Values that stand for ones not copied yet: arguments of a block that stays outside any region.
fn missing_stand_in(dst: &mut Body, src: &Body, missing: &[(usize, Value)], map: &mut Mapping) -> Vec<Value> {
    let block = dst.detached_block();
    let mut out = Vec::new();
    for &(_, value) in missing {
        let stand_in = dst.add_block_arg(block, src.ty(value));
        map.map(value, stand_in);
        out.push(stand_in);
    }
    out
}
