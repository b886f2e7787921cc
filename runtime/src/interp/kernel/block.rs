//! One program of a kernel, or those of a cluster: their threads, run in turn, each until it must wait for others.

use std::collections::BTreeMap;
use std::sync::Arc;

use rc_ir::{Loc, OpRef, Result, Type};

use super::barriers::{Mbarriers, Visits};
use super::code::{Code, Inst, Kind};
use super::copies::Copies;
use crate::interp::exec::Frame;
use crate::interp::memory::{Agent, Clock, MemRef, Memory};
use crate::interp::value::{Element, Format, Value};

/// What an instruction of one thread does.
pub(crate) type Run = fn(&mut Program<'_, '_>, usize, &Inst) -> Result<Step>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Done: on to the next instruction.
    Next,
    /// Not yet: the thread comes back to this instruction when others have gone on.
    Wait,
}

pub(crate) struct Thread {
    pub pc: usize,
    pub registers: Vec<Option<Value>>,
    pub clock: Clock,
    pub copies: Copies,
    pub done: bool,
    /// Waits to meet others at its instruction.
    pub meeting: bool,
    /// The thread's own time at its last `fence {kind = async_shared}`.
    pub fenced: u32,
}

/// A program, or a cluster of them, while it runs.
pub(crate) struct Program<'r, 'a> {
    pub frame: &'r Frame<'a>,
    pub code: &'r Code<'a>,
    pub memory: &'r mut Memory,
    /// Of all blocks, those of one after those of another.
    pub threads: Vec<Thread>,
    /// Threads of a block.
    pub block: usize,
    /// Each block's place in the grid, and the cluster's number.
    pub ids: Vec<[i64; 3]>,
    pub number: u32,
    /// Allocations by op, and by block or thread: a thread's own, or shared by its block.
    pub allocations: BTreeMap<(usize, Owner), MemRef>,
    pub mbarriers: Mbarriers,
    pub visits: Visits,
    /// What asynchronous copies have done so far, as a thread of its own.
    pub engine: u32,
}

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Thread(usize),
    Block(usize),
}

impl Program<'_, '_> {
    /// The rank of a thread's block in the cluster.
    pub fn rank(&self, t: usize) -> usize {
        t / self.block
    }
    /// The same place in the shared memory of the block with another rank.
    pub fn in_block(&self, inst: &Inst, buffer: usize, rank: i64) -> Result<usize> {
        let of_buffer = |a: &(&(usize, Owner), &MemRef)| matches!(a.0.1, Owner::Block(_)) && a.1.buffer == buffer;
        let place = self.allocations.iter().find(of_buffer).map(|a| a.0.0);
        let rank = usize::try_from(rank).ok().filter(|&rank| rank < self.ids.len());
        let there = place.zip(rank).and_then(|(op, rank)| self.allocations.get(&(op, Owner::Block(rank))));
        there.map(|memref| memref.buffer).ok_or_else(|| {
            inst.op
                .error("names shared memory of another block that this one does not know to be there")
                .help("kernel.cluster_barrier before, and a rank of the cluster")
        })
    }
    /// Runs the program to its end; `order` is the order in which threads get their turns.
    pub fn run(&mut self, order: &[usize]) -> Result {
        loop {
            let mut moved = false;
            for &t in order {
                moved |= self.advance(t)?;
            }
            moved |= self.meet()?;
            if self.threads.iter().all(|t| t.done) {
                return self.check_visits();
            }
            if !moved {
                return Err(self.deadlock());
            }
        }
    }

    /// Runs a thread until it waits or ends; whether it got anywhere.
    fn advance(&mut self, t: usize) -> Result<bool> {
        let code = self.code;
        let mut moved = false;
        while !self.threads[t].done && !self.threads[t].meeting {
            let inst = &code.insts[self.threads[t].pc];
            match self.step(t, inst)? {
                Step::Next => moved = true,
                Step::Wait => return Ok(moved || self.threads[t].meeting),
            }
        }
        Ok(moved)
    }

    fn step(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let mut next = self.threads[t].pc + 1;
        match &inst.kind {
            Kind::Elementwise(ready) => {
                let value = match self.scalars(t, inst) {
                    Some(args) => ready.element(&args[..inst.args.len()]).map(Element::value),
                    None => ready.apply(&self.operands(t, inst)?),
                };
                let value = value.ok_or_else(|| inst.op.error("divides an integer by zero"))?;
                self.set(t, inst.outs[0], value);
            }
            Kind::Constant(value) => self.set(t, inst.outs[0], value.clone()),
            Kind::Copy => {
                let values: Vec<Option<Value>> =
                    inst.args.iter().map(|&r| self.threads[t].registers[r].clone()).collect();
                inst.outs.iter().zip(values).for_each(|(&r, v)| self.threads[t].registers[r] = v);
            }
            Kind::Jump(target) => next = *target,
            Kind::Unless(target) => {
                if self.int(t, inst.args[0], inst)? == 0 {
                    next = *target;
                }
            }
            Kind::UnlessBelow(target) => {
                if self.int(t, inst.args[0], inst)? >= self.int(t, inst.args[1], inst)? {
                    next = *target;
                }
            }
            Kind::Step => {
                let (at, by) = (self.int(t, inst.args[0], inst)?, self.int(t, inst.args[1], inst)?);
                if by <= 0 {
                    return Err(inst.op.error(format!("has the step {by}, which is not positive")));
                }
                self.set(t, inst.outs[0], Value::Int(at.saturating_add(by)));
            }
            Kind::Return => {
                self.threads[t].done = true;
                return Ok(Step::Next);
            }
            Kind::Run(run) => {
                if run(self, t, inst)? == Step::Wait {
                    return Ok(Step::Wait);
                }
            }
            Kind::Meet(_) => {
                self.threads[t].meeting = true;
                return Ok(Step::Wait);
            }
        }
        self.threads[t].pc = next;
        Ok(Step::Next)
    }

    // ---- registers ----

    /// The operands, where each is a scalar and there are three at most.
    fn scalars(&self, t: usize, inst: &Inst) -> Option<[Element; 3]> {
        let registers = &self.threads[t].registers;
        let mut args = [Element::Int(0); 3];
        for (i, &register) in inst.args.iter().enumerate() {
            *args.get_mut(i)? = Element::of(registers[register].as_ref()?)?;
        }
        Some(args)
    }
    fn operands(&self, t: usize, inst: &Inst) -> Result<smallvec::SmallVec<[&Value; 3]>> {
        let args: smallvec::SmallVec<[&Value; 3]> =
            inst.args.iter().map(|&r| self.get(t, r, inst)).collect::<Result<_>>()?;
        check_shapes(inst.op, &args)?;
        Ok(args)
    }
    pub fn get(&self, t: usize, register: usize, inst: &Inst) -> Result<&Value> {
        match &self.threads[t].registers[register] {
            Some(Value::InFlight(..)) => {
                Err(inst.op.error("uses accumulators of a wgmma before kernel.wgmma_wait has passed them"))
            }
            Some(value) => Ok(value),
            None => Err(inst.op.error("uses a value that has not been computed")),
        }
    }
    pub fn set(&mut self, t: usize, register: usize, value: Value) {
        self.threads[t].registers[register] = Some(value);
    }
    pub fn int(&self, t: usize, register: usize, inst: &Inst) -> Result<i64> {
        match self.get(t, register, inst)? {
            Value::Int(n) => Ok(*n),
            Value::Array(a) if a.len() == 1 && !a.is_float() => Ok(a.as_ints()[0]),
            _ => Err(inst.op.error("needs an integer")),
        }
    }
    pub fn ints(&self, t: usize, registers: &[usize], inst: &Inst) -> Result<Vec<i64>> {
        registers.iter().map(|&r| self.int(t, r, inst)).collect()
    }
    pub fn memref(&self, t: usize, register: usize, inst: &Inst) -> Result<MemRef> {
        match self.get(t, register, inst)? {
            Value::Memory(memref) => Ok(memref.clone()),
            _ => Err(inst.op.error("needs memory")),
        }
    }

    // ---- types ----

    pub fn result_type(&self, inst: &Inst) -> Type {
        inst.op.body.ty(inst.op.result(0))
    }
    pub fn format(&self, inst: &Inst, ty: Type) -> Result<Format> {
        self.frame.format(inst.op, ty)
    }

    // ---- memory ----

    pub fn read(&mut self, t: usize, memref: &MemRef, at: usize, loc: Loc) -> Result<Value> {
        self.memory.read(memref.buffer, at, &agent(self.number, t, &self.threads[t].clock, loc))
    }
    pub fn write(&mut self, t: usize, memref: &MemRef, at: usize, value: &Value, loc: Loc) -> Result {
        self.memory.write(memref.buffer, at, value, &agent(self.number, t, &self.threads[t].clock, loc))
    }

    /// Everything that these threads did so far comes before what any of them does next.
    pub fn synchronize(&mut self, threads: &[usize]) {
        let mut seen = self.threads[threads[0]].clock.seen.clone();
        for &t in threads {
            let clock = &self.threads[t].clock;
            if !Arc::ptr_eq(&seen, &clock.seen) {
                let other = clock.seen.clone();
                Arc::make_mut(&mut seen).iter_mut().zip(other.iter()).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
        let all = Arc::make_mut(&mut seen);
        for &t in threads {
            all[t] = all[t].max(self.threads[t].clock.own);
        }
        for &t in threads {
            let clock = &mut self.threads[t].clock;
            clock.own += 1;
            clock.seen = seen.clone();
        }
    }

    /// Lets threads that met go on after the instruction they met at.
    pub fn release(&mut self, threads: &[usize]) {
        for &t in threads {
            self.threads[t].meeting = false;
            self.threads[t].pc += 1;
        }
    }

    fn deadlock(&self) -> Box<rc_ir::Diagnostic> {
        let mut places: Vec<(usize, Vec<usize>)> = Vec::new();
        for (t, thread) in self.threads.iter().enumerate().filter(|t| !t.1.done) {
            match places.iter_mut().find(|p| p.0 == thread.pc) {
                Some(place) => place.1.push(t),
                None => places.push((thread.pc, vec![t])),
            }
        }
        let first = self.code.insts[places[0].0].op;
        let waiting: usize = places.iter().map(|p| p.1.len()).sum();
        let what = format!(
            "deadlock in program {}: {waiting} of {} threads wait and none can go on",
            self.number,
            self.threads.len()
        );
        places.iter().fold(rc_ir::Diagnostic::error(first.loc(), what), |error, (pc, threads)| {
            let op = self.code.insts[*pc].op;
            error.note(op.loc(), format!("{} waits here at '{}'", span(threads), op.name().pretty()))
        })
    }
}

/// `threads 0 to 31`.
fn span(threads: &[usize]) -> String {
    let (first, last) = (threads[0], threads[threads.len() - 1]);
    match threads.len() {
        1 => format!("thread {first}"),
        n if n == last - first + 1 => format!("each of the threads {first} to {last}"),
        n => format!("each of {n} threads from {first} to {last}"),
    }
}

/// A thread as memory sees it.
pub(crate) fn agent(program: u32, t: usize, clock: &Clock, loc: Loc) -> Agent<'_> {
    Agent { program, thread: t as u32, time: clock.own, seen: &clock.seen, loc, atomic: false }
}

fn check_shapes(op: OpRef, args: &[&Value]) -> Result {
    let mut shapes = args.iter().filter_map(|a| if let Value::Array(a) = a { Some(&a.shape) } else { None });
    let Some(first) = shapes.next() else { return Ok(()) };
    match shapes.find(|s| *s != first) {
        Some(other) => Err(op.error(format!("has operands of shapes {first:?} and {other:?}"))),
        None => Ok(()),
    }
}
