//! Which buffers a function needs, and from which launch to which each is alive.

use super::control::scratch_sizes;
use super::{ALIGNMENT, bytes_of};
use rc_dialects::func::{calls, donated_args};
use rc_dialects::host::LAUNCH;
use rc_ir::{Body, Dim, Op, Result, Traits, Value};
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
    /// The last operation that uses the memory of each donated argument.
    donated: FxHashMap<usize, usize>,
    /// Scratch buffers by launch.
    pub scratch: FxHashMap<Op, Vec<usize>>,
}

impl Lives {
    pub fn of(body: &Body) -> Result<Lives> {
        let entry = body.entry().ok_or_else(|| body.op_ref(body.root()).error("has no body"))?;
        let mut lives = Lives {
            buffers: Vec::new(),
            roots: FxHashMap::default(),
            donated: FxHashMap::default(),
            scratch: FxHashMap::default(),
        };
        lives.roots.extend(body.block_args(entry).map(|v| (v, Root::Argument)));
        let ops: Vec<Op> = body.ops(entry).collect();
        let last_uses = last_uses(body, &ops);
        for i in donated_args(body) {
            let arg = body.block_arg(entry, i);
            lives.roots.insert(arg, Root::Donated(i));
            lives.donated.insert(i, last_uses.get(&arg).copied().unwrap_or(0));
        }
        for (number, &op) in ops.iter().enumerate() {
            lives.visit(body, op, number, &last_uses);
        }
        if let Some(&end) = ops.last() {
            for (i, value) in body.operands(end).enumerate() {
                if let Root::Buffer(b) = lives.root(value) {
                    lives.buffers[b].result.get_or_insert(i);
                }
            }
        }
        Ok(lives)
    }

    fn visit(&mut self, body: &Body, op: Op, number: usize, last_uses: &FxHashMap<Value, usize>) {
        let last_use = |v: Value| last_uses.get(&v).copied().unwrap_or(number);
        for operand in body.operands(op) {
            self.extend(operand, number);
        }
        if body.name(op) == &LAUNCH || !calls(body.op_ref(op)).is_empty() {
            let pairs = |name: &str| body.attr(op, name).and_then(|a| a.as_ints()).unwrap_or_default();
            let inplace = [pairs("inplace"), pairs("updates")].concat();
            for (i, result) in body.results(op).enumerate() {
                let size = bytes_of(body.ty(result));
                let pair = inplace.chunks(2).find(|p| p[0] == i as i64).map(|p| body.operand(op, p[1] as usize));
                let reused = pair.and_then(|input| self.reusable(input, size, number, last_use(input)));
                let root = reused.unwrap_or_else(|| Root::Buffer(self.add(size, number)));
                self.roots.insert(result, root);
                self.extend(result, last_use(result));
            }
            let scratch = scratch_sizes(body.op_ref(op)).into_iter().map(|bytes| {
                let bytes = bytes.ceildiv(Dim::Static(ALIGNMENT)) * Dim::Static(ALIGNMENT);
                self.add(bytes, number)
            });
            let scratch = scratch.collect();
            self.scratch.insert(op, scratch);
            return;
        }
        for result in body.results(op) {
            let root = match body.op_ref(op).has(Traits::CONSTANT) {
                true => Root::Constant,
                false => body.operands(op).next().map_or(Root::Constant, |v| self.root(v)),
            };
            self.roots.insert(result, root);
            self.extend(result, last_use(result));
        }
    }

    fn add(&mut self, size: Dim, number: usize) -> usize {
        self.buffers.push(Buffer { size, first: number, last: number, result: None });
        self.buffers.len() - 1
    }

    fn extend(&mut self, value: Value, number: usize) {
        let last = match self.root(value) {
            Root::Buffer(b) => &mut self.buffers[b].last,
            Root::Donated(i) => self.donated.entry(i).or_insert(number),
            _ => return,
        };
        *last = number.max(*last);
    }

    /// The memory of an operand that ends its life here and has the size.
    fn reusable(&self, input: Value, size: Dim, number: usize, last_use: usize) -> Option<Root> {
        let root = self.root(input);
        let ends = match root {
            Root::Buffer(b) => self.buffers[b].size == size && self.buffers[b].last == number,
            Root::Donated(i) => self.donated.get(&i) == Some(&number),
            _ => false,
        };
        (ends && last_use == number).then_some(root)
    }

    /// The arguments that a launch writes to.
    pub fn updated(&self, body: &Body) -> Vec<i64> {
        let made = body.entry().into_iter().flat_map(|e| body.ops(e)).filter(|&op| body.name(op) == &LAUNCH);
        let mut out: Vec<i64> = made
            .flat_map(|op| body.results(op))
            .filter_map(|value| match self.root(value) {
                Root::Donated(i) => Some(i as i64),
                _ => None,
            })
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    pub fn root(&self, value: Value) -> Root {
        self.roots.get(&value).copied().unwrap_or(Root::Constant)
    }
}

/// The number of the last operation that uses each value.
fn last_uses(body: &Body, ops: &[Op]) -> FxHashMap<Value, usize> {
    let mut out = FxHashMap::default();
    for (number, &op) in ops.iter().enumerate() {
        out.extend(body.operands(op).map(|v| (v, number)));
    }
    out
}
