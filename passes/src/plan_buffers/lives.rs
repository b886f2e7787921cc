//! Which buffers a function needs, and from which launch to which each is alive.

use super::control::scratch_sizes;
use super::join::Joins;
use super::{ALIGNMENT, bytes_of};
use rc_dialects::core::foreign::FOREIGN;
use rc_dialects::func::{calls, donated_args, updated_args};
use rc_dialects::host::LAUNCH;
use rc_ir::{Body, Diagnostic, Dim, Op, Result, Traits, Value};
use rustc_hash::FxHashMap;

/// Memory for one or more values, one after the other where they are updated in place.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Bytes, a multiple of the alignment.
    pub size: Dim,
    /// Alive from operation number `first` to `last`, both included.
    pub first: usize,
    pub last: usize,
    /// The function's result that it is, which the caller's memory holds.
    pub result: Option<usize>,
}

/// Where a value's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    Argument,
    /// The memory of this argument, which may be written to.
    Donated(usize),
    Constant,
    Buffer(usize),
}

pub struct Lives {
    pub buffers: Vec<Buffer>,
    roots: FxHashMap<Value, Root>,
    /// The last operation that uses what lies in the memory of each donated argument; none where nothing does.
    donated: FxHashMap<usize, Option<usize>>,
    /// Scratch buffers by launch; of the function's end, those of results that are copied to arguments.
    pub scratch: FxHashMap<Op, Vec<usize>>,
    /// For each result the argument whose memory it is left in.
    pub updates: Vec<Option<usize>>,
    /// The arguments that results are copied to.
    overwritten: Vec<usize>,
    /// Of the results of operations, those that are left in an argument: it, and the operation's number.
    left_in: FxHashMap<Value, (usize, usize)>,
    /// The last operation that uses each value, or a view of it.
    last_uses: FxHashMap<Value, usize>,
    end: usize,
    /// The parts of concatenations that lie in the result, and the buffers of those results.
    joins: Joins,
    wholes: FxHashMap<Value, usize>,
    /// That of the last foreign call, up to which no argument is written to: one that fails leaves them as they are.
    last_foreign: Option<usize>,
}

impl Lives {
    pub fn of(body: &Body, joins: Joins) -> Result<Lives> {
        let entry = body.entry().ok_or_else(|| body.op_ref(body.root()).error("has no body"))?;
        let ops: Vec<Op> = body.ops(entry).collect();
        let updates = updated_args(body);
        let mut lives = Lives {
            buffers: Vec::new(),
            roots: body.block_args(entry).map(|v| (v, Root::Argument)).collect(),
            donated: FxHashMap::default(),
            scratch: FxHashMap::default(),
            left_in: left_in(body, &ops, &updates),
            last_uses: last_uses(body, &ops),
            end: ops.len().saturating_sub(1),
            last_foreign: ops.iter().rposition(|&op| body.name(op) == &FOREIGN),
            overwritten: Vec::new(),
            joins,
            wholes: FxHashMap::default(),
            updates,
        };
        for i in donated_args(body) {
            let arg = body.block_arg(entry, i);
            lives.roots.insert(arg, Root::Donated(i));
            lives.donated.insert(i, lives.last_uses.get(&arg).copied());
        }
        for (number, &op) in ops.iter().enumerate() {
            lives.visit(body, op, number);
        }
        if let Some(&end) = ops.last() {
            lives.give(body, end);
        }
        Ok(lives)
    }

    fn visit(&mut self, body: &Body, op: Op, number: usize) {
        if !makes_memory(body, op) {
            for result in body.results(op) {
                let root = match body.op_ref(op).has(Traits::CONSTANT) {
                    true => Root::Constant,
                    false => body.operands(op).next().map_or(Root::Constant, |v| self.root(v)),
                };
                self.roots.insert(result, root);
            }
            return;
        }
        let mut taken: Vec<Root> = Vec::new();
        for (i, result) in body.results(op).enumerate() {
            let part = self.joins.part(result).map(|part| part.whole);
            if let Some(whole) = part.or_else(|| self.joins.is_left_out(op).then_some(result)) {
                let root = Root::Buffer(self.whole(body, whole, number));
                taken.push(root);
                self.roots.insert(result, root);
                continue;
            }
            let size = bytes_of(body.ty(result));
            let free = |root: &Root| !taken.contains(root);
            let root = self.given(body, op, i, number).or_else(|| self.reused(body, op, i, number)).filter(free);
            let root = root.unwrap_or_else(|| Root::Buffer(self.add(size, number)));
            taken.push(root);
            self.roots.insert(result, root);
            let last = self.last_use(result, number);
            match root {
                Root::Donated(i) => _ = self.donated.insert(i, Some(last)),
                Root::Buffer(b) => self.buffers[b].last = last,
                _ => {}
            }
        }
        let scratch = scratch_sizes(body.op_ref(op)).into_iter().map(|bytes| {
            let bytes = bytes.ceildiv(Dim::Static(ALIGNMENT)) * Dim::Static(ALIGNMENT);
            self.add(bytes, number)
        });
        let scratch = scratch.collect();
        self.scratch.insert(op, scratch);
    }

    /// The buffer of a concatenation, from the first part that is written to the last use of it or of a part.
    fn whole(&mut self, body: &Body, whole: Value, number: usize) -> usize {
        if let Some(&buffer) = self.wholes.get(&whole) {
            return buffer;
        }
        let buffer = self.add(bytes_of(body.ty(whole)), number);
        let uses = self.joins.parts_of(whole).chain([whole]).map(|value| self.last_use(value, number)).max();
        self.buffers[buffer].last = uses.unwrap_or(number);
        self.wholes.insert(whole, buffer);
        buffer
    }

    /// The number of the function's end.
    pub fn end(&self) -> usize {
        self.end
    }

    pub fn joins(&self) -> &Joins {
        &self.joins
    }

    /// Results with memory of their own lie in it; those that change their places among arguments need memory in between.
    fn give(&mut self, body: &Body, end: Op) {
        let values: Vec<Value> = body.operands(end).collect();
        for (i, &value) in values.iter().enumerate() {
            if let (Root::Buffer(b), None) = (self.root(value), self.updates[i]) {
                self.buffers[b].result.get_or_insert(i);
            }
        }
        let in_place = |(value, arg): (&Value, usize)| self.root(*value) == Root::Donated(arg);
        let updates = values.iter().zip(&self.updates).filter_map(|(value, arg)| Some((value, (*arg)?)));
        self.overwritten = updates.filter(|&pair| !in_place(pair)).map(|pair| pair.1).collect();
        let moved = values.iter().enumerate().filter(|&(i, &value)| self.moves(i, value)).map(|(_, &value)| value);
        let sizes: Vec<Dim> = moved.map(|value| bytes_of(body.ty(value))).collect();
        let scratch = sizes.into_iter().map(|size| self.add(size, self.end)).collect();
        self.scratch.insert(end, scratch);
    }

    /// Whether a result lies in an argument that another result is copied to, and is itself to be left in a third.
    pub fn moves(&self, result: usize, value: Value) -> bool {
        let overwritten = matches!(self.root(value), Root::Donated(from) if self.overwritten.contains(&from));
        overwritten && self.updates[result].is_some_and(|to| self.root(value) != Root::Donated(to))
    }

    fn add(&mut self, size: Dim, number: usize) -> usize {
        self.buffers.push(Buffer { size, first: number, last: number, result: None });
        self.buffers.len() - 1
    }

    fn last_use(&self, value: Value, number: usize) -> usize {
        self.last_uses.get(&value).copied().unwrap_or(number)
    }

    /// The argument that a result is to be left in, where nothing reads what it holds after this operation, nor this one elsewhere.
    fn given(&self, body: &Body, op: Op, result: usize, number: usize) -> Option<Root> {
        let &(arg, _) = self.left_in.get(&body.result(op, result)).filter(|_| self.writes_arguments(number))?;
        let (root, last) = (Root::Donated(arg), *self.donated.get(&arg)?);
        let here = last == Some(number);
        let free = last.is_none_or(|last| last < number) || here && self.is_paired(body, op, result, root);
        free.then_some(root)
    }

    fn writes_arguments(&self, number: usize) -> bool {
        self.last_foreign.is_none_or(|last| number > last)
    }

    /// Whether the operation may give a result this memory, which one of its operands is in.
    fn is_paired(&self, body: &Body, op: Op, result: usize, root: Root) -> bool {
        let inside = body.operands(op).filter(|&v| self.root(v) == root).count();
        inside == 1 && paired(body, op, result).any(|v| self.root(v) == root)
    }

    /// The memory of an operand that ends its life here and has the size.
    fn reused(&self, body: &Body, op: Op, result: usize, number: usize) -> Option<Root> {
        let value = body.result(op, result);
        let (size, last) = (bytes_of(body.ty(value)), self.last_use(value, number));
        let fits = |&root: &Root| match root {
            Root::Buffer(b) => self.buffers[b].size == size && self.buffers[b].last == number,
            Root::Donated(i) if self.writes_arguments(number) => {
                // What is to be left there comes later, and ends the life of what lies there till then.
                let left = self.left_in.values().find(|left| left.0 == i).map(|left| left.1);
                // A result would be copied from there; one that begins as an operand is copied at any rate.
                let before = left.unwrap_or(if begins_as_operand(body, op, result) { self.end } else { self.end - 1 });
                self.donated.get(&i) == Some(&Some(number)) && last <= before
            }
            _ => false,
        };
        let mut roots = paired(body, op, result).filter(|&v| self.joins.memory(v).is_none()).map(|v| self.root(v));
        roots.find(|root| fits(root) && self.is_paired(body, op, result, *root))
    }

    /// The arguments that the function writes to.
    pub fn updated(&self, body: &Body) -> Vec<i64> {
        let made = body.entry().into_iter().flat_map(|e| body.ops(e)).filter(|&op| makes_memory(body, op));
        let mut out: Vec<i64> = made
            .flat_map(|op| body.results(op))
            .filter_map(|value| match self.root(value) {
                Root::Donated(i) => Some(i as i64),
                _ => None,
            })
            .chain(self.updates.iter().flatten().map(|&i| i as i64))
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Remarks on results that are not computed in the argument that they are left in.
    pub fn copied(&self, body: &Body) -> Vec<Diagnostic> {
        let end = body.entry().and_then(|entry| body.last_op(entry));
        let values: Vec<Value> = end.into_iter().flat_map(|end| body.operands(end)).collect();
        let beside = |(i, &value): (usize, &Value)| {
            let arg = self.updates[i].filter(|&arg| self.root(value) != Root::Donated(arg))?;
            let source = viewed(body, value);
            let why = match self.left_in.get(&source) {
                Some(&(other, number)) if other == arg => {
                    let held = body.block_arg(body.entry()?, arg);
                    match self.last_use(held, 0) > number {
                        true => "is read afterwards",
                        false => "is read elsewhere by the kernel that computes it",
                    }
                }
                _ => "is not where it is computed",
            };
            let text = format!("result {i} is copied to argument {arg}, which {why}");
            Some(*Diagnostic::remark(body.defining_op(source).map_or(body.loc(body.root()), |op| body.loc(op)), text))
        };
        values.iter().enumerate().filter_map(beside).collect()
    }

    pub fn root(&self, value: Value) -> Root {
        self.roots.get(&value).copied().unwrap_or(Root::Constant)
    }
}

/// Whether the results of an operation need memory: it is no view and no constant.
fn makes_memory(body: &Body, op: Op) -> bool {
    [&LAUNCH, &FOREIGN].iter().any(|made| body.name(op) == *made) || !calls(body.op_ref(op)).is_empty()
}

/// The operands whose memory a result may have.
fn paired(body: &Body, op: Op, result: usize) -> impl Iterator<Item = Value> {
    let pairs = [pairs(body, op, "updates"), pairs(body, op, "inplace")].concat();
    pairs.into_iter().filter(move |pair| pair.0 == result).map(move |pair| body.operand(op, pair.1))
}

pub fn begins_as_operand(body: &Body, op: Op, result: usize) -> bool {
    pairs(body, op, "updates").iter().any(|pair| pair.0 == result)
}

/// Whether a result of the operation begins as this operand.
pub fn is_updated(body: &Body, op: Op, operand: usize) -> bool {
    pairs(body, op, "updates").iter().any(|pair| pair.1 == operand)
}

/// Pairs of result and operand numbers.
fn pairs(body: &Body, op: Op, name: &str) -> Vec<(usize, usize)> {
    let list = body.attr(op, name).and_then(|a| a.as_ints()).unwrap_or_default();
    list.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect()
}

/// What a value is a view of: it, where it is none.
pub fn viewed(body: &Body, mut value: Value) -> Value {
    while let Some(op) = body.defining_op(value).filter(|&op| !makes_memory(body, op)) {
        let Some(source) = body.operands(op).next() else { break };
        value = source;
    }
    value
}

/// The results of operations that are to be left in arguments: which, and the operation's number.
fn left_in(body: &Body, ops: &[Op], updates: &[Option<usize>]) -> FxHashMap<Value, (usize, usize)> {
    let mut out = FxHashMap::default();
    let returned = ops.last().into_iter().flat_map(|&end| body.operands(end));
    for (value, arg) in returned.zip(updates).filter_map(|(value, arg)| Some((viewed(body, value), (*arg)?))) {
        if let Some(number) = body.defining_op(value).and_then(|op| ops.iter().position(|&other| other == op)) {
            out.entry(value).or_insert((arg, number));
        }
    }
    out
}

/// The number of the last operation that uses each value, or a view of it.
fn last_uses(body: &Body, ops: &[Op]) -> FxHashMap<Value, usize> {
    let mut out = FxHashMap::default();
    for (number, &op) in ops.iter().enumerate() {
        out.extend(body.operands(op).map(|v| (viewed(body, v), number)));
    }
    out
}
