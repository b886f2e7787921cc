//! The order of launches: what is alive at once is to be little. A beam search goes over orders that respect the data; each state is
//! the set of launches done, with the least peak that reaches it. Where the beam holds all of them, the order is the best.

use super::control::scratch_sizes;
use super::symbolic::example;
use super::{bytes_of, is_view};
use rc_dialects::core::fusion::FUSION;
use rc_dialects::func::{symbols, updated_args};
use rc_dialects::host::LAUNCH;
use rc_ir::{Block, Body, Diagnostic, Dim, Op, Traits, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::rc::Rc;

/// Reorders the launches of a function where that lowers the peak of its intermediate results by a hundredth or more, or at all where each byte counts. The
/// remark has both peaks, and who holds them.
pub fn reorder(body: &mut Body, any: bool) -> Option<Diagnostic> {
    let entry = body.entry()?;
    let graph = Graph::of(body, entry).filter(|graph| graph.nodes.len() > 2)?;
    let before: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let (old, holder) = graph.peak(&before);
    if old <= graph.least() {
        return None;
    }
    let order = graph.search(EFFORT)?;
    let (new, _) = graph.peak(&order);
    let least = if any { 1 } else { (old / 100).max(1) };
    if new > old - least {
        return None;
    }
    let loc = body.loc(graph.nodes[holder].op);
    apply(body, entry, &graph, &order);
    let text =
        format!("launches are reordered: intermediate results take {new} bytes at once, {old} in the order as written");
    Some(*Diagnostic::remark(body.loc(body.root()), text).note(loc, format!("the {old} bytes were held here")))
}

/// The bytes of intermediate results of a fused function, in the best order that a short search finds: of what is stored, without what kernels need besides and
/// without what is computed in place.
pub fn least_peak(body: &Body) -> Option<i64> {
    let graph = Graph::of(body, body.entry()?)?;
    let written: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let (peak, least) = (graph.peak(&written).0, graph.least());
    let found = if peak > least { graph.search(EFFORT / 16).map(|order| graph.peak(&order).0) } else { None };
    Some(found.map_or(peak, |found| found.min(peak)))
}

struct Node {
    op: Op,
    /// Nodes that must come before.
    needs: SmallVec<[u32; 4]>,
    users: SmallVec<[u32; 4]>,
    /// Bytes of results, and those of scratch, which live while the node runs.
    results: SmallVec<[u32; 2]>,
    scratch: i64,
}

struct Memory {
    bytes: i64,
    /// How many nodes read it. What the function gives back stays: it takes none of the arena.
    readers: u32,
}

struct Graph {
    nodes: Vec<Node>,
    memories: Vec<Memory>,
    /// Memories that each node reads, each once.
    reads: Vec<SmallVec<[u32; 4]>>,
}

impl Graph {
    fn of(body: &Body, entry: Block) -> Option<Graph> {
        let ops: Vec<Op> = body.ops(entry).collect();
        let (&end, ops) = ops.split_last()?;
        let mut roots: FxHashMap<Value, Value> = FxHashMap::default();
        let given: FxHashSet<Value> = {
            for &op in ops.iter().filter(|&&op| is_view(body, op)) {
                let source = body.operand(op, 0);
                roots.insert(body.result(op, 0), roots.get(&source).copied().unwrap_or(source));
            }
            body.operands(end).map(|v| roots.get(&v).copied().unwrap_or(v)).collect()
        };
        let joined = joined(body, ops, &given);
        let mut sizes: Vec<Dim> = Vec::new();
        let mut graph = Graph { nodes: Vec::new(), memories: Vec::new(), reads: Vec::new() };
        let mut made: FxHashMap<Value, (u32, u32)> = FxHashMap::default();
        let mut readers: FxHashMap<Value, Vec<u32>> = FxHashMap::default();
        let left: FxHashMap<Value, Value> = body
            .operands(end)
            .zip(updated_args(body))
            .filter_map(|(v, arg)| Some((roots.get(&v).copied().unwrap_or(v), body.block_arg(entry, arg?))))
            .collect();
        let mut barrier: Option<u32> = None;
        for &op in ops.iter().filter(|&&op| !is_view(body, op) && !body.op_ref(op).has(Traits::CONSTANT)) {
            let number = graph.nodes.len() as u32;
            let (mut needs, mut reads) = (SmallVec::<[u32; 4]>::new(), SmallVec::<[u32; 4]>::new());
            for operand in body.operands(op) {
                let root = roots.get(&operand).copied().unwrap_or(operand);
                if let Some(&(node, memory)) = made.get(&root) {
                    needs.push(node);
                    reads.push(memory);
                }
                readers.entry(root).or_default().push(number);
            }
            // What is left in an argument comes after all that reads what it holds.
            for arg in body.results(op).filter_map(|result| left.get(&result)) {
                needs.extend(readers.get(arg).into_iter().flatten().copied().filter(|&reader| reader < number));
            }
            // Whatever is no launch keeps its place among all.
            if body.name(op) != &LAUNCH && body.name(op) != &FUSION {
                needs.extend(barrier.unwrap_or(0)..number);
                barrier = Some(number);
            } else {
                needs.extend(barrier);
            }
            for list in [&mut needs, &mut reads] {
                list.sort_unstable();
                list.dedup();
            }
            let mut results = SmallVec::new();
            for result in body.results(op) {
                let memory = sizes.len() as u32;
                sizes.push(if given.contains(&result) || joined.contains(&result) {
                    Dim::Static(0)
                } else {
                    bytes_of(body.ty(result))
                });
                results.push(memory);
                made.insert(result, (number, memory));
            }
            sizes.push(scratch_sizes(body.op_ref(op)).into_iter().fold(Dim::Static(0), |sum, bytes| sum + bytes));
            graph.nodes.push(Node { op, needs, users: SmallVec::new(), results, scratch: sizes.len() as i64 - 1 });
            graph.reads.push(reads);
        }
        let sizes = example(&sizes, &symbols(body))?;
        graph.memories = sizes.iter().map(|&bytes| Memory { bytes, readers: 0 }).collect();
        for number in 0..graph.nodes.len() {
            graph.nodes[number].scratch = sizes[graph.nodes[number].scratch as usize];
            for need in graph.nodes[number].needs.clone() {
                graph.nodes[need as usize].users.push(number as u32);
            }
            graph.reads[number].iter().for_each(|&m| graph.memories[m as usize].readers += 1);
        }
        Some(graph)
    }

    /// What a node's run takes besides what is alive before it.
    fn taken(&self, node: u32) -> (i64, i64) {
        let node = &self.nodes[node as usize];
        let results: i64 = node.results.iter().map(|&m| self.memories[m as usize].bytes).sum();
        (results + node.scratch, results)
    }

    /// No order has a lower peak: every node's operands and results are alive at once.
    fn least(&self) -> i64 {
        let of = |n: usize| {
            let reads: i64 = self.reads[n].iter().map(|&m| self.memories[m as usize].bytes).sum();
            reads + self.taken(n as u32).0
        };
        (0..self.nodes.len()).map(of).max().unwrap_or(0)
    }

    /// The peak of an order, and the node at which it is reached.
    fn peak(&self, order: &[u32]) -> (i64, usize) {
        let mut readers: Vec<u32> = self.memories.iter().map(|m| m.readers).collect();
        let (mut alive, mut peak) = (0, (0, 0));
        for &n in order {
            let (during, after) = self.taken(n);
            if alive + during > peak.0 {
                peak = (alive + during, n as usize);
            }
            alive += after - self.freed(n, &mut readers);
        }
        peak
    }

    /// Bytes that are dead once the node has run.
    fn freed(&self, n: u32, readers: &mut [u32]) -> i64 {
        let mut bytes = 0;
        for &m in &self.reads[n as usize] {
            readers[m as usize] -= 1;
            if readers[m as usize] == 0 {
                bytes += self.memories[m as usize].bytes;
            }
        }
        let unread = self.nodes[n as usize].results.iter().filter(|&&m| self.memories[m as usize].readers == 0);
        bytes + unread.map(|&m| self.memories[m as usize].bytes).sum::<i64>()
    }
}

/// Copies of numbers that a search makes at most: a few hundredths of a second.
const EFFORT: usize = 20_000_000;
/// The widest beam, and the most launches that each of its states goes on with.
const WIDEST: usize = 4096;
const CHOICES: usize = 8;

/// What is done, and what that costs.
#[derive(Clone)]
struct State {
    peak: i64,
    alive: i64,
    /// A hash of the set of nodes that are done.
    done: u64,
    /// Per node, how many of its needs are not done; per memory, how many of its readers.
    waits: Vec<u32>,
    readers: Vec<u32>,
    ready: Vec<u32>,
    path: Option<Rc<Path>>,
}

struct Path {
    node: u32,
    before: Option<Rc<Path>>,
}

impl Graph {
    fn search(&self, effort: usize) -> Option<Vec<u32>> {
        let count = self.nodes.len();
        let width = (effort / (count * (count + self.memories.len()) * 2)).clamp(1, WIDEST);
        let waits: Vec<u32> = self.nodes.iter().map(|n| n.needs.len() as u32).collect();
        let ready = (0..count as u32).filter(|&n| waits[n as usize] == 0).collect();
        let readers = self.memories.iter().map(|m| m.readers).collect();
        let mut beam = vec![State { peak: 0, alive: 0, done: 0, waits, readers, ready, path: None }];
        for _ in 0..count {
            let mut next: Vec<(i64, i64, u64, usize, u32)> = Vec::new();
            for (number, state) in beam.iter().enumerate() {
                next.extend(
                    self.choices(state)
                        .into_iter()
                        .map(|(peak, alive, n)| (peak, alive, state.done ^ hash(n), number, n)),
                );
            }
            // The least peak, then the least that stays alive; equal sets once.
            next.sort_unstable();
            let mut seen = FxHashSet::default();
            next.retain(|c| seen.insert(c.2));
            next.truncate(width);
            beam =
                next.iter().map(|&(peak, alive, done, from, n)| self.step(&beam[from], n, peak, alive, done)).collect();
        }
        let mut order = Vec::new();
        let mut path = beam.first()?.path.clone();
        while let Some(step) = path {
            order.push(step.node);
            path = step.before.clone();
        }
        order.reverse();
        Some(order)
    }

    /// The launches that a state may go on with, those that leave the least alive first: the peak then, what is alive then, the node.
    fn choices(&self, state: &State) -> Vec<(i64, i64, u32)> {
        let mut out: Vec<(i64, i64, u32)> = Vec::new();
        for &n in &state.ready {
            let (during, after) = self.taken(n);
            let last = |&&m: &&u32| state.readers[m as usize] == 1;
            let mut freed: i64 =
                self.reads[n as usize].iter().filter(last).map(|&m| self.memories[m as usize].bytes).sum();
            let unread = self.nodes[n as usize].results.iter().filter(|&&m| self.memories[m as usize].readers == 0);
            freed += unread.map(|&m| self.memories[m as usize].bytes).sum::<i64>();
            out.push((state.peak.max(state.alive + during), state.alive + after - freed, n));
        }
        out.sort_unstable();
        // What frees memory without a new peak is never worse than anything else.
        if let Some(&free) = out.iter().find(|c| c.0 == state.peak && c.1 <= state.alive) {
            return vec![free];
        }
        out.truncate(CHOICES);
        out
    }

    fn step(&self, from: &State, n: u32, peak: i64, alive: i64, done: u64) -> State {
        let mut state = State { peak, alive, done, path: None, ..from.clone() };
        state.path = Some(Rc::new(Path { node: n, before: from.path.clone() }));
        state.ready.retain(|&r| r != n);
        self.reads[n as usize].iter().for_each(|&m| state.readers[m as usize] -= 1);
        for &user in &self.nodes[n as usize].users {
            state.waits[user as usize] -= 1;
            if state.waits[user as usize] == 0 {
                let place = state.ready.partition_point(|&r| r < user);
                state.ready.insert(place, user);
            }
        }
        state
    }
}

/// The operands of fusions that do nothing but concatenate, for a result of the function: they will lie in it.
fn joined(body: &Body, ops: &[Op], given: &FxHashSet<Value>) -> FxHashSet<Value> {
    let concatenates = |op: &&Op| body.name(**op) == &FUSION && body.op_ref(**op).str("kind") == Some("concat");
    let whole = ops.iter().filter(concatenates).filter(|&&op| body.results(op).all(|v| given.contains(&v)));
    whole.flat_map(|&op| body.operands(op)).collect()
}

/// A number with random bits for each node: the exclusive or over a set names the set.
fn hash(n: u32) -> u64 {
    // The finalizer of splitmix64.
    let mut z = (u64::from(n) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Puts the launches in the order; views and constants go before what reads them first.
fn apply(body: &mut Body, entry: Block, graph: &Graph, order: &[u32]) {
    let end = body.last_op(entry).expect("a graph has an end");
    let mut moved: FxHashSet<Op> = FxHashSet::default();
    let mut put = |body: &mut Body, op: Op| {
        if moved.insert(op) {
            body.move_before(end, op);
        }
    };
    let light = |body: &Body, op: Op| is_view(body, op) || body.op_ref(op).has(Traits::CONSTANT);
    // What nothing uses would stay behind, before what it views.
    for op in body.ops(entry).collect::<Vec<_>>().into_iter().rev() {
        if light(body, op) && body.results(op).all(|value| !body.has_uses(value)) {
            body.erase(op);
        }
    }
    let launches = order.iter().map(|&n| graph.nodes[n as usize].op).chain([end]).collect::<Vec<Op>>();
    for launch in launches {
        let mut chain: Vec<Op> = Vec::new();
        let mut waiting: Vec<Value> = body.operands(launch).collect();
        while let Some(value) = waiting.pop() {
            if let Some(op) = body.defining_op(value).filter(|&op| light(body, op)) {
                chain.push(op);
                waiting.extend(body.operands(op));
            }
        }
        chain.into_iter().rev().for_each(|op| put(body, op));
        if launch != end {
            put(body, launch);
        }
    }
}
