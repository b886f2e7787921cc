//! Threads that wait for one another: barriers, warps that work together, mbarriers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rc_ir::{Loc, Result};

use super::block::{Program, Step, agent};
use super::code::{Inst, Kind};
use super::copies::{Box as TensorBox, Element};
use super::ops::Meeting;
use crate::interp::memory::Clock;

/// The mbarriers of a block, by buffer and element.
pub(crate) type Mbarriers = BTreeMap<(usize, usize), Mbarrier>;

pub(crate) struct Mbarrier {
    /// Arrivals that complete a phase, and those that this one still waits for.
    count: i64,
    pending: i64,
    /// Bytes that this phase still waits for.
    bytes: i64,
    /// The parity of the phase that is under way.
    phase: i64,
    /// What those who arrived in this phase, and in the one before, had seen and done.
    arrived: Arc<Vec<u32>>,
    completed: Arc<Vec<u32>>,
    /// Copies that will be counted here, not yet delivered.
    pub boxes: Vec<TensorBox>,
    /// Threads that arrive once copies of theirs are done.
    pub arrivals: Vec<Arrival>,
}

/// A thread's arrival that waits for its copies, and what the thread had seen then.
pub(crate) struct Arrival {
    pub thread: usize,
    pub copies: Vec<Element>,
    pub clock: Clock,
    pub loc: Loc,
}

/// The latest arrivals at barriers of other blocks of the cluster, by thread and the block's rank: the thread's own time, and where.
pub(crate) type Visits = BTreeMap<(usize, usize), (u32, Loc)>;

impl Mbarrier {
    fn advance(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase ^= 1;
            self.pending = self.count;
            self.completed = self.arrived.clone();
        }
    }
}

impl Program<'_, '_> {
    /// Does what threads that have met do together; whether any could.
    pub fn meet(&mut self) -> Result<bool> {
        let mut moved = self.meet_at_barriers()?;
        let (count, block) = (self.threads.len(), self.block);
        for size in [32, 128] {
            let groups = (0..count).step_by(block).flat_map(|start| {
                (start..start + block).step_by(size).map(move |first| first..(start + block).min(first + size))
            });
            for group in groups.map(|threads| threads.collect::<Vec<usize>>()) {
                let first = group[0];
                let pc = self.threads[first].pc;
                if !group.iter().all(|&t| self.threads[t].meeting && self.threads[t].pc == pc) {
                    continue;
                }
                let code = self.code;
                let inst = &code.insts[pc];
                let together = match inst.kind {
                    Kind::Meet(Meeting::Warp(together)) if size == 32 => together,
                    Kind::Meet(Meeting::Warpgroup(together)) if size == 128 => together,
                    _ => continue,
                };
                if group.len() != size {
                    return Err(inst.op.error(format!("needs {size} threads, and there are {} left", group.len())));
                }
                together(self, &group, inst)?;
                self.release(&group);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn meet_at_barriers(&mut self) -> Result<bool> {
        // Threads at each barrier of each block (or, without one, of the cluster), with how many it needs.
        let mut waiting: BTreeMap<(Option<usize>, i64), (usize, Vec<usize>)> = BTreeMap::new();
        for (t, thread) in self.threads.iter().enumerate().filter(|t| t.1.meeting) {
            let inst = &self.code.insts[thread.pc];
            if matches!(inst.kind, Kind::Meet(Meeting::Cluster)) {
                waiting.entry((None, 0)).or_insert((self.threads.len(), Vec::new())).1.push(t);
            }
            if matches!(inst.kind, Kind::Meet(Meeting::Barrier)) {
                let mut id = inst.op.int("id").unwrap_or(0);
                if let Some(&offset) = inst.group(0).first() {
                    id += self.int(t, offset, inst)?;
                }
                let needed = inst.op.int("threads").map_or(self.block, |n| n.max(0) as usize);
                let entry = waiting.entry((Some(self.rank(t)), id)).or_insert((needed, Vec::new()));
                if entry.0 != needed {
                    return Err(inst.op.error(format!(
                        "waits for {needed} threads at barrier {id}, where others wait for {}",
                        entry.0
                    )));
                }
                entry.1.push(t);
            }
        }
        let mut moved = false;
        for ((_, id), (needed, threads)) in waiting {
            if threads.len() > needed {
                let inst = &self.code.insts[self.threads[threads[0]].pc];
                return Err(inst
                    .op
                    .error(format!("has {} threads at barrier {id}, which is for {needed}", threads.len())));
            }
            if threads.len() == needed {
                if !self.code.insts[self.threads[threads[0]].pc].op.bool("relaxed") {
                    self.synchronize(&threads);
                }
                self.release(&threads);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// The key of the mbarrier that an op's groups `barriers` and `indices` name.
    pub fn mbarrier(&self, t: usize, inst: &Inst, barriers: usize) -> Result<(usize, usize)> {
        let memref = self.memref(t, inst.group(barriers)[0], inst)?;
        let index = self.ints(t, inst.group(barriers + 1), inst)?;
        let at = self.element(inst, &memref, &index, "names the mbarrier at")?;
        Ok((memref.buffer, at))
    }

    fn initialized(&mut self, inst: &Inst, key: (usize, usize)) -> Result<&mut Mbarrier> {
        self.mbarriers.get_mut(&key).ok_or_else(|| {
            inst.op
                .error("uses an mbarrier that is not initialized")
                .help("kernel.mbarrier_init, then a barrier, come first")
        })
    }

    pub fn mbarrier_init(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let key = self.mbarrier(t, inst, 0)?;
        let count = inst.op.int("count").unwrap_or(1);
        if count < 1 {
            return Err(inst.op.error(format!("waits for {count} arrivals")));
        }
        let none = Arc::new(vec![0; self.threads.len() + 1]);
        let fresh = Mbarrier {
            count,
            pending: count,
            bytes: 0,
            phase: 0,
            arrived: none.clone(),
            completed: none,
            boxes: Vec::new(),
            arrivals: Vec::new(),
        };
        self.mbarriers.insert(key, fresh);
        Ok(Step::Next)
    }

    pub fn mbarrier_arrive(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let (mut buffer, at) = self.mbarrier(t, inst, 0)?;
        if let Some(&rank) = inst.group(2).first() {
            let rank = self.int(t, rank, inst)?;
            buffer = self.in_block(inst, buffer, rank)?;
            self.visits.insert((t, rank as usize), (self.threads[t].clock.own, inst.op.loc()));
        }
        self.arrive(t, inst, (buffer, at), 0)
    }

    /// At the end: whether each block has lasted until the others' arrivals at its barriers were there, which a thread of it has to have waited for.
    pub fn check_visits(&self) -> Result {
        let early = self.visits.iter().find(|&(&(thread, rank), &(time, _))| {
            let block = &self.threads[rank * self.block..(rank + 1) * self.block];
            self.rank(thread) != rank && block.iter().all(|t| t.clock.seen[thread] < time)
        });
        let Some((&(_, rank), &(_, loc))) = early else { return Ok(()) };
        let what = format!("arrives at a barrier of block {rank} of the cluster, which may have ended before");
        Err(rc_ir::Diagnostic::error(loc, what).help("wait for the barrier's last phase at the end of that block"))
    }

    /// The copies are done, and the arrival counts, as late as is allowed: when someone waits for the barrier.
    pub fn async_arrive(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let key = self.mbarrier(t, inst, 0)?;
        let thread = &mut self.threads[t];
        let clock = thread.clock.clone();
        thread.clock.own += 1;
        let copies = thread.copies.take_all();
        let loc = inst.op.loc();
        self.initialized(inst, key)?.arrivals.push(Arrival { thread: t, copies, clock, loc });
        Ok(Step::Next)
    }

    pub fn mbarrier_expect(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let key = self.mbarrier(t, inst, 0)?;
        self.arrive(t, inst, key, inst.op.int("bytes").unwrap_or(0))
    }

    fn arrive(&mut self, t: usize, inst: &Inst, key: (usize, usize), bytes: i64) -> Result<Step> {
        let clock = &mut self.threads[t].clock;
        let mut seen = clock.seen.clone();
        Arc::make_mut(&mut seen)[t] = clock.own;
        clock.own += 1;
        let barrier = self.initialized(inst, key)?;
        if barrier.pending == 0 {
            return Err(inst
                .op
                .error(format!("arrives more often than the {} times that a phase takes", barrier.count)));
        }
        barrier.pending -= 1;
        barrier.bytes += bytes;
        let arrived = Arc::make_mut(&mut barrier.arrived);
        arrived.iter_mut().zip(seen.iter()).for_each(|(a, s)| *a = (*a).max(*s));
        barrier.advance();
        Ok(Step::Next)
    }

    pub fn mbarrier_wait(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let key = self.mbarrier(t, inst, 0)?;
        let Some(&parity) = inst.group(2).first() else { return Err(inst.op.error("needs a parity")) };
        let parity = self.int(t, parity, inst)?;
        if !(0..=1).contains(&parity) {
            return Err(inst.op.error(format!("waits for the parity {parity}, which is neither 0 nor 1")));
        }
        if self.initialized(inst, key)?.phase == parity {
            self.deliver(key, inst)?;
        }
        let barrier = self.initialized(inst, key)?;
        if barrier.phase == parity {
            return Ok(Step::Wait);
        }
        let completed = barrier.completed.clone();
        self.threads[t].clock.join(&completed);
        Ok(Step::Next)
    }

    /// Delivers the copies counted by an mbarrier: as late as is allowed, when someone waits for them.
    fn deliver(&mut self, key: (usize, usize), inst: &Inst) -> Result {
        for Arrival { thread, copies, clock, loc } in std::mem::take(&mut self.initialized(inst, key)?.arrivals) {
            for (buffer, at, value) in &copies {
                let who = agent(self.number, thread, &clock, loc);
                self.memory.finish_copy(*buffer, *at, value, &who)?;
            }
            let barrier = self.initialized(inst, key)?;
            if barrier.pending == 0 {
                let what = format!("is arrived at more often than the {} times that a phase takes", barrier.count);
                return Err(inst.op.error(what));
            }
            barrier.pending -= 1;
            let arrived = Arc::make_mut(&mut barrier.arrived);
            arrived.iter_mut().zip(clock.seen.iter()).for_each(|(a, s)| *a = (*a).max(*s));
            arrived[thread] = arrived[thread].max(clock.own);
            barrier.advance();
        }
        let boxes = std::mem::take(&mut self.initialized(inst, key)?.boxes);
        for copy in boxes {
            self.engine += 1;
            let time = self.engine;
            let engine = self.threads.len();
            let mut clock = copy.clock.clone();
            clock.own = time;
            for (at, value) in &copy.elements {
                let who = agent(self.number, engine, &clock, copy.loc);
                self.memory.finish_copy(copy.buffer, *at, value, &who)?;
            }
            let barrier = self.initialized(inst, key)?;
            barrier.bytes -= copy.bytes;
            let arrived = Arc::make_mut(&mut barrier.arrived);
            arrived.iter_mut().zip(clock.seen.iter()).for_each(|(a, s)| *a = (*a).max(*s));
            arrived[engine] = time;
            barrier.advance();
        }
        Ok(())
    }

    pub fn fence(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        if inst.op.str("kind") == Some("async_shared") {
            // What this thread and those it has waited for have written.
            let clock = &mut self.threads[t].clock;
            let (own, seen) = (clock.own, clock.seen.clone());
            clock.own += 1;
            self.threads.iter_mut().zip(seen.iter()).for_each(|(w, &time)| w.fenced = w.fenced.max(time));
            self.threads[t].fenced = own;
        }
        Ok(Step::Next)
    }
}
