//! Attention in two kernels, where few programs go over many keys: programs of the first take a part of the keys each and leave their
//! results with the logarithms of their sums, those of the second weigh the parts.

use super::attention::{Attention, E, M};
use super::grid::{Spread, scope_of};
use super::program::Program;
use super::run::bind;
use super::{Memory, Scheduled, begin, end, interface, spread_of};
use crate::schedule::Target;
use crate::schedule::access::{Access, Iter};
use rc_dialects::loop_::IterKind;
use rc_dialects::op;
use rc_ir::{Attr, Body, Dim, Name, Result, Type, Value};

/// What both kernels are made from.
pub struct AttentionSplit<'a> {
    src: &'a Body,
    target: &'a Target,
    scheduled: &'a Scheduled,
    /// The number of the part.
    part: Iter,
}

/// Threads of the second kernel: a program has the parts of one query, an element of a head's 64 to 256 for each thread.
const THREADS: i64 = 128;

impl<'a> AttentionSplit<'a> {
    pub fn new(src: &'a Body, target: &'a Target, scheduled: &'a Scheduled, parts: i64) -> AttentionSplit<'a> {
        let part = Iter { name: Name::new("part"), extent: Dim::Static(parts), kind: IterKind::Parallel };
        AttentionSplit { src, target, scheduled, part }
    }
    fn op(&self) -> rc_ir::Op {
        self.scheduled.group.ops[0]
    }
    fn read(&self, p: &Program) -> Result<Attention<'a>> {
        Attention::read(p, self.op(), &self.scheduled.schedules[0])
    }
    /// Where the parts' results, and the logarithms of their sums, lie.
    fn accesses(&self, attention: &Attention) -> [Access; 2] {
        let access = |iters: &[Iter]| Access {
            shape: iters.iter().map(|i| i.extent).collect(),
            exprs: iters.iter().map(|i| Dim::symbol(i.name)).collect(),
        };
        let [b, h, m, _, _, e] = attention.iters;
        [access(&[self.part, b, h, m, e]), access(&[self.part, b, h, m])]
    }
    /// What the first kernel leaves to the second.
    ///
    /// # Errors
    /// If the nest is malformed.
    pub fn partial_types(&self) -> Result<Vec<Type>> {
        let (p, _) = begin(self.src, self.target, &self.scheduled.group, Name::new("unused"), &[]);
        let attention = self.read(&p)?;
        Ok(self.accesses(&attention).iter().map(|a| Type::tensor(&a.shape, attention.acc)).collect())
    }

    /// The kernel in which each program takes a part of the keys.
    ///
    /// # Errors
    /// If the schedule does not fit the nest.
    pub fn parts(&self, name: Name) -> Result<Body> {
        let (group, schedule) = (&self.scheduled.group, &self.scheduled.schedules[0]);
        let read = interface(self.src, group).0.into_iter().map(Memory::Of);
        let args: Vec<Memory> = read.chain(self.partial_types()?.into_iter().map(Memory::Other)).collect();
        let (mut p, memory) = begin(self.src, self.target, group, name, &args);
        p.loc = self.src.loc(self.op());
        let attention = self.read(&p)?;
        let mut over = vec![Spread { iter: self.part, step: 1 }];
        over.extend(spread_of(self.src, self.op(), schedule, &attention.iters)?);
        let (grid, starts) = p.spread(&over);
        let scope = scope_of(&over, &starts, schedule);
        let first = scope.get(attention.iters[M].name).expect("the grid has the queries").base;
        let last = attention.last_key(&mut p, &scope, first, attention.rows())?;
        let length = self.length(&mut p, &attention, last);
        let lower = p.mul_index(starts[0], length);
        let upper = p.add_index(lower, length);
        let upper = p.binary(op::core::MIN, upper, last);
        let [best, sum, total] = attention.walk(&mut p, &scope, [lower, upper])?;
        let [results, logs] = self.accesses(&attention);
        let log = attention.logs(&mut p, best, sum);
        p.store_to(memory[1], log, &logs, &scope)?;
        let out = attention.quotient(&mut p, total, sum);
        let across = attention.across(&mut p, &scope)?;
        p.store_to(memory[0], out, &results, &across)?;
        Ok(end(p, grid, schedule.threads))
    }

    /// Keys of a part: parts are as long as one another, in whole tiles, but for those at the end.
    fn length(&self, p: &mut Program, attention: &Attention, last: Value) -> Value {
        let (whole, Dim::Static(parts)) = (attention.keys(), self.part.extent) else { unreachable!("made so") };
        if !attention.counts_keys() {
            let extent = attention.iters[super::attention::N].extent;
            return p.size(extent.ceildiv(Dim::Static(parts * whole)) * Dim::Static(whole));
        }
        let (whole, all, rest) =
            (p.constant_index(whole), p.constant_index(parts * whole), p.constant_index(parts * whole - 1));
        let filled = p.add_index(last, rest);
        let tiles = p.binary(op::core::DIV, filled, all);
        p.binary(op::core::MUL, tiles, whole)
    }

    /// The kernel that weighs the parts.
    ///
    /// # Errors
    /// If the nest is malformed.
    pub fn combine(&self, name: Name, outputs: &[Value]) -> Result<Body> {
        let group = &self.scheduled.group;
        let partial = self.partial_types()?.into_iter().map(Memory::Other);
        let args: Vec<Memory> = partial.chain(outputs.iter().map(|&v| Memory::Of(v))).collect();
        let (mut p, memory) = begin(self.src, self.target, group, name, &args);
        p.loc = self.src.loc(self.op());
        let attention = self.read(&p)?;
        let [results, logs] = self.accesses(&attention);
        let over: Vec<Spread> = attention.iters[..=M].iter().map(|&iter| Spread { iter, step: 1 }).collect();
        let (grid, starts) = p.spread(&over);
        let mut scope = super::scope::Scope::default();
        for (spread, &start) in over.iter().zip(&starts) {
            scope.binds.push((spread.iter.name, bind(&spread.iter, start, None, 1)));
        }
        let (zero, Dim::Static(parts)) = (p.constant_index(0), self.part.extent) else { unreachable!("made so") };
        let width = (attention.head_size(&p, E)? as u64).next_power_of_two() as i64;
        let every = scope.with(self.part.name, bind(&self.part, zero, Some(0), parts));
        let across = attention.with(&every, E, zero, Some(1), width);
        let log = p.load_from(memory[1], &logs, &every)?;
        let part = p.load_from(memory[0], &results, &across)?;
        // Weights of the parts; where no part sees a key, all are 0.
        let low = p.splat([1; 2], Attr::float(f64::NEG_INFINITY, attention.acc));
        let none = p.zeros([1; 2], attention.acc);
        let best = p.reduce(log, &[0], "max");
        let unseen = p.compare("eq", best, low);
        let shift = p.select(unseen, none, best);
        let shifted = p.binary(op::core::SUB, log, shift);
        let weight = p.unary(op::core::EXP, shifted);
        let sum = p.reduce(weight, &[0], "add");
        let weighed = p.binary(op::core::MUL, part, weight);
        let total = p.reduce(weighed, &[0], "add");
        let out = attention.quotient(&mut p, total, sum);
        let one = attention.with(&scope, E, zero, Some(1), width);
        p.store(out, self.src.result(self.op(), 0), &attention.output, &one)?;
        if let Some((target, access)) = attention.sums() {
            let log = p.unary(op::core::LOG, sum);
            let all = p.binary(op::core::ADD, log, shift);
            p.store(all, target, access, &scope)?;
        }
        Ok(end(p, grid, THREADS))
    }
}
