//! What the threads of a warp or a warpgroup do together: shuffles and matrix units, with fragments as PTX lays them out.

use std::sync::Arc;

use rc_ir::{Result, Type};

use super::block::{Program, Step};
use super::code::Inst;
use super::thread::{gathered, swizzled};
use crate::interp::dot::{Sizes, product_of_floats};
use crate::interp::memory::{MemRef, check_class};
use crate::interp::value::{Array, Value};

/// (row, column) of lane `i` of thread `t` of a warp, in fragments of `mma.m16n8k16` and, of TF32, `mma.m16n8k8`.
fn a_place(t: usize, i: usize) -> (usize, usize) {
    (t / 4 + if i & 2 != 0 { 8 } else { 0 }, t % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
}
fn a_place_tf32(t: usize, i: usize) -> (usize, usize) {
    (t / 4 + 8 * (i % 2), t % 4 + 4 * (i / 2))
}
fn b_place_tf32(t: usize, i: usize) -> (usize, usize) {
    (t % 4 + 4 * i, t / 4)
}
fn b_place(t: usize, i: usize) -> (usize, usize) {
    (t % 4 * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, t / 4)
}
fn c_place(t: usize, i: usize) -> (usize, usize) {
    (t / 4 + if i & 2 != 0 { 8 } else { 0 }, t % 4 * 2 + (i & 1) + 8 * (i / 4))
}

impl Program<'_, '_> {
    pub fn shuffle(&mut self, warp: &[usize], inst: &Inst) -> Result {
        let [by, keep] = ["by", "keep"].map(|name| inst.op.int(name).unwrap_or(0));
        let mode = inst.op.str("mode").unwrap_or("xor");
        let values = warp.iter().map(|&t| self.get(t, inst.group(0)[0], inst).cloned()).collect::<Result<Vec<_>>>()?;
        for (lane, &t) in warp.iter().enumerate() {
            let lane = lane as i64;
            let from = match mode {
                "xor" => lane ^ by,
                "up" => lane - by,
                "down" => lane + by,
                "within" => lane & keep | by & !keep,
                "index" => match inst.group(1).first() {
                    Some(&r) => self.int(t, r, inst)?.rem_euclid(32),
                    None => return Err(inst.op.error("needs the lane")),
                },
                other => return Err(inst.op.error(format!("has the unknown mode '{other}'"))),
            };
            let from = if (0..32).contains(&from) { from } else { lane };
            self.set(t, inst.outs[0], values[from as usize].clone());
        }
        Ok(())
    }

    /// The places of a matrix's row of 16 bytes, whose start thread `t` names by the groups `memory` and the next.
    fn row(&self, t: usize, inst: &Inst, memory: usize) -> Result<(MemRef, Vec<usize>)> {
        let memref = self.memref(t, inst.group(memory)[0], inst)?;
        let index = self.ints(t, inst.group(memory + 1), inst)?;
        let at = self.lanes(inst, &memref, &index, 16 / memref.width, "takes a row at")?;
        Ok((memref, at))
    }

    pub fn ldmatrix(&mut self, warp: &[usize], inst: &Inst) -> Result {
        let format = inst.format()?;
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(32);
        for &t in warp {
            let (memref, at) = self.row(t, inst, 0)?;
            let mut row = Vec::with_capacity(8);
            for at in at {
                let value = self.read(t, &memref, at, inst.op.loc())?;
                check_class(&value, format, inst.op.loc())?;
                row.push(value);
            }
            rows.push(row);
        }
        let trans = inst.op.bool("trans");
        // Elements of a matrix's word.
        let each = rows[0].len() / 4;
        for (lane, &t) in warp.iter().enumerate() {
            let element = |i: usize| {
                let (row, col) = (lane / 4, lane % 4 * each + i % each);
                let (row, col) = if trans { (col, row) } else { (row, col) };
                rows[i / each * 8 + row][col].clone()
            };
            let values: Vec<Value> = (0..4 * each).map(element).collect();
            self.set(t, inst.outs[0], Value::Array(gathered(vec![4 * each], &values, format)));
        }
        Ok(())
    }

    pub fn stmatrix(&mut self, warp: &[usize], inst: &Inst) -> Result {
        let trans = inst.op.bool("trans");
        let fragments = warp.iter().map(|&t| self.elements(t, inst.group(0)[0], inst)).collect::<Result<Vec<_>>>()?;
        if fragments.iter().any(|f| f.len() != 8) {
            return Err(inst.op.error("needs vectors of 8"));
        }
        for (number, &t) in warp.iter().enumerate() {
            let (memref, at) = self.row(t, inst, 1)?;
            let (matrix, row) = (number / 8, number % 8);
            for (col, at) in at.into_iter().enumerate() {
                let (r, c) = if trans { (col, row) } else { (row, col) };
                let value = fragments[r * 4 + c / 2][matrix * 2 + c % 2].clone();
                self.write(t, &memref, at, &value, inst.op.loc())?;
            }
        }
        Ok(())
    }

    /// A matrix of the warp's fragments: `place` says where each lane's elements go.
    fn fragments(
        &self,
        warp: &[usize],
        register: usize,
        inst: &Inst,
        (rows, cols): (usize, usize),
        place: fn(usize, usize) -> (usize, usize),
    ) -> Result<Vec<f64>> {
        let mut out = vec![0.0; rows * cols];
        for (lane, &t) in warp.iter().enumerate() {
            let Value::Array(values) = self.get(t, register, inst)? else { return Err(inst.op.error("needs vectors")) };
            for (i, &x) in values.as_floats().iter().enumerate() {
                let (row, col) = place(lane, i);
                *out.get_mut(row * cols + col).ok_or_else(|| inst.op.error("has fragments of another size"))? = x;
            }
        }
        Ok(out)
    }

    pub fn mma(&mut self, warp: &[usize], inst: &Inst) -> Result {
        let (k, a, b) = match inst.op.operand_types()[0].elem() == Type::tf32() {
            true => {
                let a = self.fragments(warp, inst.args[0], inst, (16, 8), a_place_tf32)?;
                (8, a, self.fragments(warp, inst.args[1], inst, (8, 8), b_place_tf32)?)
            }
            false => {
                let a = self.fragments(warp, inst.args[0], inst, (16, 16), a_place)?;
                (16, a, self.fragments(warp, inst.args[1], inst, (16, 8), b_place)?)
            }
        };
        let c = self.fragments(warp, inst.args[2], inst, (16, 8), c_place)?;
        let format = inst.format()?;
        let sums = product_of_floats(Sizes { b: 1, m: 16, n: 8, k }, &a, [0, k as isize, 1], &b, [0, 1, 8], |x| x);
        for (lane, &t) in warp.iter().enumerate() {
            let element = |i: usize| {
                let (row, col) = c_place(lane, i);
                format.round(c[row * 8 + col] + sums[row * 8 + col])
            };
            self.set(t, inst.outs[0], Value::Array(Array::floats(vec![4], (0..4).map(element).collect())));
        }
        Ok(())
    }

    pub fn wgmma(&mut self, group: &[usize], inst: &Inst) -> Result {
        let n = inst.op.int("n").unwrap_or(0).max(0) as usize;
        let format = inst.format()?;
        let leader = group[0];
        let number = self.threads[leader].copies.committed;
        let left = inst.group(0)[0];
        let from_shared = matches!(self.get(leader, left, inst)?, Value::Memory(_));
        let words = inst.op.body.ty(inst.op.group("b")[0]).elem() == Type::tf32();
        let k = if words { 8 } else { 16 };
        let a = if from_shared {
            self.matrix(leader, inst, 0, "a_t", [64, k])?
        } else {
            let place = if words { a_place_tf32 } else { a_place };
            self.hold(group, left, inst)?;
            let warps = group.chunks(32).map(|w| self.fragments(w, left, inst, (16, k), place));
            warps.collect::<Result<Vec<_>>>()?.concat()
        };
        let b = self.matrix(leader, inst, 1, "b_t", [n, k])?;
        let steps = [0, k as isize, 1];
        let sums = product_of_floats(Sizes { b: 1, m: 64, n, k }, &a, steps, &b, steps, |x| x);
        let zero = inst.op.bool("zero");
        for (i, &t) in group.iter().enumerate() {
            let acc = match &self.threads[t].registers[inst.group(2)[0]] {
                Some(Value::InFlight(inner, _)) => (**inner).clone(),
                Some(value) => value.clone(),
                None => return Err(inst.op.error("uses a value that has not been computed")),
            };
            let Value::Array(acc) = acc else { return Err(inst.op.error("needs a vector of accumulators")) };
            if acc.len() != n / 2 {
                return Err(inst.op.error(format!("needs {} accumulators, and has {}", n / 2, acc.len())));
            }
            let old = acc.as_floats();
            let element = |j: usize| {
                let (row, col) = c_place(i % 32, j);
                let sum = sums[(i / 32 * 16 + row) * n + col];
                format.round(if zero { sum } else { old[j] + sum })
            };
            let result = Array::floats(vec![n / 2], (0..n / 2).map(element).collect());
            self.set(t, inst.outs[0], Value::InFlight(Arc::new(Value::Array(result)), number));
        }
        Ok(())
    }

    /// Notes what a wgmma reads from registers.
    fn hold(&mut self, group: &[usize], register: usize, inst: &Inst) -> Result {
        for &t in group {
            let Value::Array(fragment) = self.get(t, register, inst)? else {
                return Err(inst.op.error("needs vectors"));
            };
            let fragment = fragment.clone();
            let copies = &mut self.threads[t].copies;
            copies.held.push_back((copies.committed, register, fragment));
        }
        Ok(())
    }

    /// A [rows, depth] operand of a wgmma in shared memory. A tile is [rows, width] or, where it is wider, blocks of such,
    /// `width` elements being the swizzle's bytes.
    fn matrix(
        &mut self,
        t: usize,
        inst: &Inst,
        operand: usize,
        transposed: &str,
        [rows, steps]: [usize; 2],
    ) -> Result<Vec<f64>> {
        let memref = self.memref(t, inst.group(operand)[0], inst)?;
        let swizzle = inst.op.int("swizzle").unwrap_or(128).max(0) as usize;
        let width = swizzle / memref.width;
        let depth = match memref.shape[..] {
            [rows, w] | [_, rows, w] if w == width => rows,
            _ => {
                return Err(inst
                    .op
                    .error(format!("has a tile of shape {:?} whose rows are not {width} elements", memref.shape)));
            }
        };
        let mut k0 = inst.op.int("k_offset").unwrap_or(0);
        if let Some(&k) = inst.group(3).first() {
            k0 += self.int(t, k, inst)?;
        }
        let transposed = inst.op.bool(transposed);
        let mut out = Vec::with_capacity(rows * steps);
        let mut places = Vec::with_capacity(rows * steps);
        for row in 0..rows {
            for k in 0..steps {
                let k = k0 as usize + k;
                let (down, along) = if transposed { (k, row) } else { (row, k) };
                let at = along / width * depth * width + down * width + along % width;
                if down >= depth || at >= memref.len() {
                    return Err(inst.op.error(format!("reads ({row}, {k}) of a tile of shape {:?}", memref.shape)));
                }
                let at = swizzled(memref.start + at, memref.width, swizzle);
                let value = self.read(t, &memref, at, inst.op.loc())?;
                self.check_fenced(inst, memref.buffer, at)?;
                match value {
                    Value::Float(x) => out.push(x),
                    _ => return Err(inst.op.error("reads elements that are no floats")),
                }
                places.push(at);
            }
        }
        let copies = &mut self.threads[t].copies;
        copies.reading.push_back((copies.committed, memref.buffer, places, inst.op.loc()));
        Ok(out)
    }

    pub fn wgmma_commit(&mut self, t: usize, _: &Inst) -> Result<Step> {
        self.threads[t].copies.committed += 1;
        Ok(Step::Next)
    }

    /// A warp's threads wait together: what the finished groups have read, each of them has.
    pub fn wgmma_wait(&mut self, warp: &[usize], inst: &Inst) -> Result {
        warp.iter().try_for_each(|&t| self.finish_wgmmas(t, inst))?;
        self.synchronize(warp);
        Ok(())
    }
    /// Passes accumulators through; those of groups that may still run stay undefined.
    fn finish_wgmmas(&mut self, t: usize, inst: &Inst) -> Result {
        let pending = inst.op.int("pending").unwrap_or(0).max(0) as u32;
        let finished = self.threads[t].copies.committed.saturating_sub(pending);
        for (&from, &to) in inst.args.iter().zip(&inst.outs) {
            let value = match self.threads[t].registers[from].clone() {
                Some(Value::InFlight(inner, group)) if group < finished => Some((*inner).clone()),
                other => other,
            };
            self.threads[t].registers[to] = value;
        }
        // What the finished groups read must have stayed as it was until now.
        while self.threads[t].copies.reading.front().is_some_and(|r| r.0 < finished) {
            let Some((_, buffer, places, loc)) = self.threads[t].copies.reading.pop_front() else { break };
            let memref = MemRef { buffer, start: 0, shape: Arc::from([]), strides: None, width: 1 };
            for at in places {
                self.read(t, &memref, at, loc)?;
            }
        }
        while self.threads[t].copies.held.front().is_some_and(|h| h.0 < finished) {
            let Some((_, register, fragment)) = self.threads[t].copies.held.pop_front() else { break };
            if !matches!(&self.threads[t].registers[register], Some(Value::Array(now)) if now.is(&fragment)) {
                let what =
                    "waits for a wgmma whose left operand was computed anew, in the same registers, while it ran";
                return Err(inst.op.error(what).help("a wait before a loop comes to its next step"));
            }
        }
        Ok(())
    }
}
