//! Asynchronous copies. Their data arrive as late as the program allows: when it waits. Until then the target may be
//! neither read nor written.

use std::collections::VecDeque;

use rc_ir::{Loc, Result, Type};

use super::block::{Program, Step, agent};
use super::code::Inst;
use super::position;
use super::thread::swizzled;
use crate::interp::memory::Clock;
use crate::interp::value::{Array, Value};

/// One element on its way: buffer, position, value.
pub(crate) type Element = (usize, usize, Value);

/// A thread's `cp.async` groups, and its wgmma groups.
#[derive(Default)]
pub(crate) struct Copies {
    open: Vec<Element>,
    closed: VecDeque<Vec<Element>>,
    /// wgmma groups committed so far.
    pub committed: u32,
    /// Shared memory that wgmmas of a group are still reading: group, buffer, positions.
    pub reading: VecDeque<(u32, usize, Vec<usize>, Loc)>,
    /// Registers that wgmmas of a group are still reading, with what was in them: group, register, value.
    pub held: VecDeque<(u32, usize, Array)>,
}

impl Copies {
    /// All copies that nothing has waited for.
    pub fn take_all(&mut self) -> Vec<Element> {
        let closed = std::mem::take(&mut self.closed).into_iter().flatten();
        closed.chain(std::mem::take(&mut self.open)).collect()
    }
}

/// A box that a tensor map copies to shared memory.
pub(crate) struct Box {
    pub buffer: usize,
    pub elements: Vec<(usize, Value)>,
    pub bytes: i64,
    /// What the thread that issued the copy had seen.
    pub clock: Clock,
    pub loc: Loc,
}

impl Program<'_, '_> {
    pub fn async_copy(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let target = self.memref(t, inst.group(0)[0], inst)?;
        let to = self.ints(t, inst.group(1), inst)?;
        let source = self.memref(t, inst.group(2)[0], inst)?;
        let from = self.ints(t, inst.group(3), inst)?;
        let bytes = inst.op.int("bytes").unwrap_or(16);
        if ![4, 8, 16].contains(&bytes) {
            return Err(inst.op.error(format!("copies {bytes} bytes: 4, 8 or 16 are possible")));
        }
        let lanes = bytes as usize / target.width;
        let valid = match inst.group(4).first() {
            Some(&v) => self.int(t, v, inst)?.clamp(0, lanes as i64) as usize,
            None => lanes,
        };
        let float = inst.op.body.ty(inst.op.operand(0)).elem().is_float();
        let zero = if float { Value::Float(0.0) } else { Value::Int(0) };
        let targets = self.lanes(inst, &target, &to, lanes, "copies to")?;
        // The swizzle is the target's; the source is read as it lies.
        let first = if valid > 0 { self.element(inst, &source, &from, "copies from")? } else { 0 };
        if valid > 1 {
            let mut last = from.clone();
            if let Some(i) = last.last_mut() {
                *i += valid as i64 - 1;
            }
            self.element(inst, &source, &last, "copies from")?;
        }
        for (lane, at) in targets.into_iter().enumerate() {
            let value = if lane < valid { self.read(t, &source, first + lane, inst.op.loc())? } else { zero.clone() };
            let who = agent(self.number, t, &self.threads[t].clock, inst.op.loc());
            self.memory.start_copy(target.buffer, at, &who)?;
            self.threads[t].copies.open.push((target.buffer, at, value));
        }
        Ok(Step::Next)
    }

    pub fn async_commit(&mut self, t: usize, _: &Inst) -> Result<Step> {
        let copies = &mut self.threads[t].copies;
        let group = std::mem::take(&mut copies.open);
        copies.closed.push_back(group);
        Ok(Step::Next)
    }

    pub fn async_wait(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let pending = inst.op.int("pending").unwrap_or(0).max(0) as usize;
        while self.threads[t].copies.closed.len() > pending {
            for (buffer, at, value) in self.threads[t].copies.closed.pop_front().unwrap_or_default() {
                let who = agent(self.number, t, &self.threads[t].clock, inst.op.loc());
                self.memory.finish_copy(buffer, at, &value, &who)?;
            }
        }
        Ok(Step::Next)
    }

    pub fn tensor_load(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let target = self.memref(t, inst.group(0)[0], inst)?;
        let map = match self.get(t, inst.group(1)[0], inst)? {
            Value::TensorMap(map) => map.clone(),
            _ => return Err(inst.op.error("needs a tensor map")),
        };
        let coords = self.ints(t, inst.group(2), inst)?;
        let (barriers, number) = self.mbarrier(t, inst, 3)?;
        let count: usize = map.sizes.iter().product();
        if coords.len() != map.sizes.len() || target.len() < count {
            let what = format!("copies a box of {:?} at {coords:?} to {:?}", map.sizes, target.shape);
            return Err(inst.op.error(what));
        }
        let elem = inst.op.body.ty(inst.op.operand(0)).elem();
        let zero = if elem.is_float() { Value::Float(0.0) } else { Value::Int(0) };
        // Memory of f32 may be copied as TF32.
        let format = self.format(inst, elem)?;
        let mut values = Vec::with_capacity(count);
        for i in 0..count {
            let index = box_index(i, &map.sizes, &coords);
            let value = match position(&map.tensor.shape, &index) {
                Ok(_) => match self.read(t, &map.tensor, map.tensor.at(&index), inst.op.loc())? {
                    Value::Float(x) if elem == Type::tf32() => Value::Float(format.round(x)),
                    value => value,
                },
                Err(_) => zero.clone(),
            };
            values.push((swizzled(target.start + i, target.width, map.swizzle), value));
        }
        // Nothing may depend on what lies after the box.
        let undefined = if elem.is_float() { Value::Float(f64::NAN) } else { Value::Int(-1) };
        let after = (count..target.len()).map(|i| swizzled(target.start + i, target.width, map.swizzle));
        values.extend(after.map(|at| (at, undefined.clone())));
        for (buffer, barriers) in self.multicast(t, inst, target.buffer, barriers)? {
            let who = agent(self.number, t, &self.threads[t].clock, inst.op.loc());
            values.iter().try_for_each(|&(at, _)| self.memory.start_copy(buffer, at, &who))?;
            let clock = self.threads[t].clock.clone();
            let bytes = (count * target.width) as i64;
            let copy = Box { buffer, elements: values.clone(), bytes, clock, loc: inst.op.loc() };
            let barrier = self.mbarriers.get_mut(&(barriers, number));
            barrier.ok_or_else(|| inst.op.error("counts at an mbarrier that is not initialized"))?.boxes.push(copy);
        }
        Ok(Step::Next)
    }
    /// Where a box goes to, and where it is counted: in the thread's own block, or in each of the cluster's blocks that a mask names.
    fn multicast(&self, t: usize, inst: &Inst, target: usize, barriers: usize) -> Result<Vec<(usize, usize)>> {
        let Some(&mask) = inst.group(5).first() else { return Ok(vec![(target, barriers)]) };
        let mask = self.int(t, mask, inst)?;
        let ranks = (0..16).filter(|rank| mask >> rank & 1 == 1);
        ranks.map(|rank| Ok((self.in_block(inst, target, rank)?, self.in_block(inst, barriers, rank)?))).collect()
    }

    /// The copy is done at once: what a later wait allows is not checked.
    pub fn tensor_store(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let source = self.memref(t, inst.args[0], inst)?;
        let map = match self.get(t, inst.args[1], inst)? {
            Value::TensorMap(map) => map.clone(),
            _ => return Err(inst.op.error("needs a tensor map")),
        };
        let coords = self.ints(t, &inst.args[2..], inst)?;
        let count: usize = map.sizes.iter().product();
        if coords.len() != map.sizes.len() || source.len() != count {
            let what = format!("copies a box of {:?} at {coords:?} from {:?}", map.sizes, source.shape);
            return Err(inst.op.error(what));
        }
        for i in 0..count {
            let index = box_index(i, &map.sizes, &coords);
            if position(&map.tensor.shape, &index).is_ok() {
                let from = swizzled(source.start + i, source.width, map.swizzle);
                let value = self.read(t, &source, from, inst.op.loc())?;
                self.check_fenced(inst, source.buffer, from)?;
                self.write(t, &map.tensor, map.tensor.at(&index), &value, inst.op.loc())?;
            }
        }
        Ok(Step::Next)
    }

    /// Whether a store by a thread was followed by the fence that lets asynchronous units see it.
    pub fn check_fenced(&self, inst: &Inst, buffer: usize, at: usize) -> Result {
        match self.memory.last_write(buffer, at) {
            Some((thread, time, loc)) if self.threads.get(thread).is_some_and(|w| time > w.fenced) => {
                let what =
                    format!("reads shared memory that thread {thread} wrote without a fence for asynchronous units");
                Err(inst
                    .op
                    .error(what)
                    .note(loc, "written here")
                    .help("kernel.fence {kind = async_shared} after the writes, then a barrier"))
            }
            _ => Ok(()),
        }
    }
}

/// The tensor's index of element `i` of a box; coordinates are innermost first.
fn box_index(i: usize, sizes: &[usize], coords: &[i64]) -> Vec<i64> {
    let rank = sizes.len();
    let mut index = vec![0; rank];
    let mut rest = i;
    for d in (0..rank).rev() {
        index[d] = coords[rank - 1 - d] + (rest % sizes[d]) as i64;
        rest /= sizes[d];
    }
    index
}
