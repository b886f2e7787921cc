//! Values that are computed again, for a limit: what lies in memory over the peak and is read after it is made anew before that, by the same launches, where
//! their operands are still there or are made anew too. What saves the most bytes for its time on the target goes first.

use super::is_view;
use super::join::Joins;
use super::lives::{Buffer, Lives, Root, viewed};
use super::symbolic::example;
use crate::schedule::Target;
use rc_dialects::func::symbols;
use rc_dialects::host::LAUNCH;
use rc_dialects::op;
use rc_ir::{Attr, Body, Dim, Mapping, Module, Name, Op, OpRef, Result, Traits, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Launches that make one value anew, at most.
const CHAIN: usize = 8;
/// Values that are tried before the peak is taken to be the least, and values that are made anew, at most.
const TRIED: usize = 16;
const MOST: usize = 1024;

/// What computing something again takes on the target.
pub struct Prices {
    /// GB/s, microseconds and Tflop/s, as in the target's description.
    bandwidth: f64,
    launch_us: f64,
    flops_mma: f64,
    /// Kernels that multiply matrices.
    products: FxHashSet<Name>,
}

impl Prices {
    pub fn of(module: &Module) -> Prices {
        let target = Target::of("", "", module.attrs).unwrap_or_default();
        let multiplies = |body: &&rc_ir::Body| {
            body.walk().into_iter().any(|op| {
                let name = body.name(op).as_str();
                [op::kernel::DOT, op::kernel::DOT_WORDS, op::kernel::MMA, op::kernel::WGMMA].contains(&name)
            })
        };
        Prices {
            bandwidth: target.bandwidth,
            launch_us: target.launch_us,
            flops_mma: target.flops_mma,
            products: module.bodies.iter().filter(multiplies).filter_map(|body| body.symbol()).collect(),
        }
    }

    /// Microseconds of a launch: its bytes, and the operations of a product. Those of `m` by `k` and `k` by `n` elements are `mkn`, the root of the
    /// product of what its operands and its result have.
    fn launch(&self, op: OpRef, size: &dyn Fn(Dim) -> f64) -> f64 {
        let elements = |ty: Type| size(ty.num_elements());
        let bytes = |ty: Type| elements(ty) * ty.elem().byte_width().unwrap_or(8) as f64;
        let types = || op.operand_types().into_iter().chain(op.result_types());
        let moved = types().filter(|ty| ty.is_tensor()).map(bytes).sum::<f64>() / (self.bandwidth * 1e3);
        let multiplies = op.str("callee").is_some_and(|callee| self.products.contains(&Name::new(callee)));
        let mut largest: Vec<f64> = op.operand_types().into_iter().filter(|ty| ty.is_tensor()).map(elements).collect();
        largest.sort_by(|a, b| b.total_cmp(a));
        let factors =
            largest.iter().take(2).product::<f64>() * op.result_types().first().map_or(1.0, |&ty| elements(ty));
        let operations = if multiplies { 2.0 * factors.sqrt() / (self.flops_mma * 1e6) } else { 0.0 };
        self.launch_us + moved.max(operations)
    }
}

/// What was computed again.
#[derive(Default)]
pub struct Again {
    pub values: usize,
    pub launches: usize,
    pub microseconds: f64,
}

impl Again {
    pub fn add(&mut self, more: Again) {
        self.values += more.values;
        self.launches += more.launches;
        self.microseconds += more.microseconds;
    }
}

impl std::fmt::Display for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let ending = |n: usize, ending: &'static str| if n == 1 { "" } else { ending };
        let Again { values, launches, microseconds } = self;
        write!(
            f,
            "{values} value{} computed again by {launches} launch{}",
            ending(*values, "s"),
            ending(*launches, "es")
        )?;
        write!(f, " of {microseconds:.1} us in all, by the target's figures")
    }
}

/// Computes values again until no more than `limit` bytes are alive at once, or nothing lowers that.
///
/// # Errors
/// As [`Lives::of`].
pub fn lower(body: &mut Body, limit: i64, prices: &Prices) -> Result<Again> {
    let mut again = Again::default();
    while again.values < MOST {
        let state = State::of(body)?;
        if state.most <= limit || !state.improve(body, prices, &mut again)? {
            break;
        }
    }
    Ok(again)
}

/// What is alive at each operation.
struct State {
    ops: Vec<Op>,
    lives: Lives,
    sizes: Vec<i64>,
    most: i64,
    /// The first operation at which most is alive, and at how many operations that is so.
    peak: usize,
    peaks: usize,
    /// The arguments that the function writes to.
    updated: Vec<i64>,
}

/// A value that is alive over the peak: made before, read after, from operation `first` on.
struct Candidate {
    value: Value,
    first: usize,
    launches: Vec<Op>,
    microseconds: f64,
    bytes: i64,
}

impl State {
    fn of(body: &Body) -> Result<State> {
        let lives = Lives::of(body, Joins::default())?;
        let ops: Vec<Op> = body.entry().map(|entry| body.ops(entry).collect()).unwrap_or_default();
        let inner = |b: &Buffer| if b.result.is_some() { Dim::Static(0) } else { b.size };
        let sizes: Vec<Dim> = lives.buffers.iter().map(inner).collect();
        // Sizes beyond 63 bits are the plan's error.
        let sizes = example(&sizes, &symbols(body)).unwrap_or_else(|| vec![0; sizes.len()]);
        let mut alive = vec![0; ops.len()];
        for (buffer, size) in lives.buffers.iter().zip(&sizes) {
            alive[buffer.first..=buffer.last].iter_mut().for_each(|bytes| *bytes += size);
        }
        let most = alive.iter().copied().max().unwrap_or(0);
        let peak = alive.iter().position(|&bytes| bytes == most).unwrap_or(0);
        let peaks = alive.iter().filter(|&&bytes| bytes == most).count();
        let updated = lives.updated(body);
        Ok(State { ops, lives, sizes, most, peak, peaks, updated })
    }

    /// Makes one value anew such that the peak is lower, or is reached less often. Gives whether there is one.
    fn improve(&self, body: &mut Body, prices: &Prices, again: &mut Again) -> Result<bool> {
        let mut candidates = self.candidates(body, prices);
        let worth = |c: &Candidate| c.bytes as f64 / c.microseconds.max(1e-3);
        candidates.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        for candidate in candidates.iter().take(TRIED) {
            let undo = self.apply(body, candidate);
            let then = State::of(body)?;
            if (then.most, then.peaks) < (self.most, self.peaks) {
                again.values += 1;
                again.launches += candidate.launches.len();
                again.microseconds += candidate.microseconds;
                return Ok(true);
            }
            undo.run(body);
        }
        Ok(false)
    }

    fn candidates(&self, body: &Body, prices: &Prices) -> Vec<Candidate> {
        let (mut reads, mut number) = (FxHashMap::<Value, Vec<usize>>::default(), FxHashMap::default());
        for (at, &op) in self.ops.iter().enumerate() {
            number.insert(op, at);
            if makes(body, op) || at + 1 == self.ops.len() {
                body.operands(op).for_each(|v| reads.entry(viewed(body, v)).or_default().push(at));
            }
        }
        let bound = symbols(body);
        let size = |dim: Dim| example(&[dim], &bound).map_or(1.0, |sizes| sizes[0] as f64);
        let mut out = Vec::new();
        for &op in self.ops[..self.peak].iter().filter(|&&op| may_run_again(body, op)) {
            let value = body.result(op, 0);
            let (Root::Buffer(buffer), Some(reads_here)) = (self.lives.root(value), reads.get(&value)) else {
                continue;
            };
            let Some(&first) = reads_here.iter().find(|&&at| at > self.peak) else { continue };
            let over = self.lives.buffers[buffer].result.is_none() && !reads_here.contains(&self.peak);
            if !over || self.sizes[buffer] == 0 || first + 1 == self.ops.len() {
                continue;
            }
            let (mut launches, mut kept) = (Vec::new(), 0);
            let chain = Chain { state: self, body, reads: &reads, number: &number, first };
            if chain.add(op, &mut launches, &mut kept) && kept < self.sizes[buffer] {
                let microseconds = launches.iter().map(|&op| prices.launch(body.op_ref(op), &size)).sum();
                out.push(Candidate { value, first, launches, microseconds, bytes: self.sizes[buffer] - kept });
            }
        }
        out
    }

    /// Puts the candidate's launches before what reads it first after the peak, and has what reads it from there on read the new value.
    fn apply(&self, body: &mut Body, candidate: &Candidate) -> Undo {
        let place = self.ops[candidate.first];
        let (mut undo, mut map) = (Undo::default(), FxHashMap::default());
        for &launch in &candidate.launches {
            let mut mapping = Mapping::new();
            for operand in body.operands(launch).collect::<Vec<Value>>() {
                mapping.map(operand, anew(body, operand, place, &mut map, &mut undo));
            }
            let copy = body.clone_op(launch, &mut mapping);
            body.insert_before(place, copy);
            undo.made.push(copy);
            map.insert(body.result(launch, 0), body.result(copy, 0));
        }
        map.retain(|&from, _| from == candidate.value);
        for &op in &self.ops[candidate.first..] {
            if !makes(body, op) && Some(&op) != self.ops.last() {
                continue;
            }
            for i in 0..body.operand_count(op) {
                let operand = body.operand(op, i);
                if viewed(body, operand) == candidate.value {
                    undo.moved.push((op, i, operand));
                    let new = anew(body, operand, place, &mut map, &mut undo);
                    body.set_operand(op, i, new);
                }
            }
        }
        undo
    }
}

/// What makes a value anew before operation `first`.
struct Chain<'a> {
    state: &'a State,
    body: &'a Body,
    /// The operations that read each value, and operations' numbers.
    reads: &'a FxHashMap<Value, Vec<usize>>,
    number: &'a FxHashMap<Op, usize>,
    first: usize,
}

impl Chain<'_> {
    /// Adds the launches that it takes to run `op` again, in order; `kept` grows by what has to stay over the peak for them.
    fn add(&self, op: Op, launches: &mut Vec<Op>, kept: &mut i64) -> bool {
        if launches.contains(&op) {
            return true;
        }
        for operand in self.body.operands(op) {
            let value = viewed(self.body, operand);
            let there = match self.state.lives.root(value) {
                Root::Argument | Root::Constant => true,
                Root::Donated(i) => self.body.defining_op(value).is_none() && !self.state.updated.contains(&(i as i64)),
                Root::Buffer(buffer) => self.add_value(value, self.state.sizes[buffer], launches, kept),
            };
            if !there {
                return false;
            }
        }
        launches.push(op);
        launches.len() <= CHAIN
    }

    /// As [`Chain::add`], for a value in memory: it is there, is kept over the peak where it is alive or small, or is made anew.
    fn add_value(&self, value: Value, bytes: i64, launches: &mut Vec<Op>, kept: &mut i64) -> bool {
        let last = self.reads.get(&value).and_then(|reads| reads.last().copied()).unwrap_or(0);
        if last >= self.first || last >= self.state.peak {
            return true;
        }
        let Some(made) = self.body.defining_op(value) else { return false };
        let (before, kept_before) = (launches.len(), *kept);
        if may_run_again(self.body, made) && self.number[&made] < self.first && self.add(made, launches, kept) {
            return true;
        }
        launches.truncate(before);
        *kept = kept_before + bytes;
        makes(self.body, made)
    }
}

/// Whether an operation is a launch whose one result depends on its operands alone.
fn may_run_again(body: &Body, op: Op) -> bool {
    body.name(op) == &LAUNCH && body.result_count(op) == 1 && body.attr(op, "updates").is_none()
}

/// Whether it is neither a view nor a constant.
fn makes(body: &Body, op: Op) -> bool {
    !is_view(body, op) && !body.op_ref(op).has(Traits::CONSTANT) && body.name(op) != op::core::ASSUME_SHAPE
}

/// What was changed, to be taken back.
#[derive(Default)]
struct Undo {
    made: Vec<Op>,
    moved: Vec<(Op, usize, Value)>,
}

impl Undo {
    fn run(self, body: &mut Body) {
        self.moved.into_iter().for_each(|(op, i, value)| body.set_operand(op, i, value));
        self.made.into_iter().rev().for_each(|op| body.erase(op));
    }
}

/// The value, or the view of it, by what was made anew; itself where it is made of nothing such.
fn anew(body: &mut Body, value: Value, place: Op, map: &mut FxHashMap<Value, Value>, undo: &mut Undo) -> Value {
    if let Some(&new) = map.get(&value) {
        return new;
    }
    let Some(op) = body.defining_op(value).filter(|&op| !makes(body, op) && body.operand_count(op) > 0) else {
        return value;
    };
    let source = body.operand(op, 0);
    let new = anew(body, source, place, map, undo);
    if new == source {
        return value;
    }
    let mut mapping = Mapping::new();
    mapping.map(source, new);
    let copy = body.clone_op(op, &mut mapping);
    body.insert_before(place, copy);
    undo.made.push(copy);
    let result = body.result(copy, 0);
    map.insert(value, result);
    result
}

/// The module's limit: `rc.memory_limit`.
pub fn limit_of(attrs: Attr) -> Option<i64> {
    attrs.get("rc.memory_limit").and_then(|limit| limit.as_int()).filter(|&limit| limit > 0)
}
