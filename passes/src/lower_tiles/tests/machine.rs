//! Runs thread-phase kernels, all threads of a program in lockstep. It refuses what real machines do not forgive: accesses out of
//! bounds or misaligned, and shared memory that two threads use without a barrier in between.

use rc_dialects::core::scalar::{self, Scalar};
use rc_dialects::op;
use rc_ir::attr::{AttrData, scalar_bytes, scalar_value};
use rc_ir::op_def::constant_of;
use rc_ir::{Attr, Block, Body, Dim, Name, OpRef, Type, Value};
use std::collections::HashMap;

pub struct Buffer {
    pub shape: Vec<i64>,
    pub elem: Type,
    pub data: Vec<Scalar>,
    shared: bool,
    /// Of each element: the epoch and thread of the last write, and of the last read (-1: several threads).
    marks: Vec<[(u64, i64); 2]>,
}

impl Buffer {
    pub fn new(shape: &[i64], elem: Type, data: Vec<Scalar>) -> Buffer {
        let total: i64 = shape.iter().product();
        assert_eq!(total as usize, data.len());
        Buffer { shape: shape.to_vec(), elem, data, shared: false, marks: Vec::new() }
    }
    pub fn floats(shape: &[i64], elem: Type, values: &[f64]) -> Buffer {
        let round = |&x: &f64| Scalar::Float(scalar_value(elem, &scalar_bytes(elem, x)));
        Buffer::new(shape, elem, values.iter().map(round).collect())
    }
    pub fn to_floats(&self) -> Vec<f64> {
        self.data.iter().map(|s| s.float()).collect()
    }
}

/// A value: a buffer, or the lanes of each thread.
#[derive(Clone)]
enum Held {
    /// A buffer, the first element of a view of it, and the view's shape.
    Memory(usize, i64, Vec<i64>),
    Lanes(Vec<Vec<Scalar>>),
}

struct Machine<'a> {
    body: &'a Body,
    buffers: Vec<Buffer>,
    values: HashMap<Value, Held>,
    symbols: &'a [(&'a str, i64)],
    program: [i64; 3],
    threads: usize,
    epoch: u64,
    cuda: bool,
    /// Groups of asynchronous copies, the last one open: where to, by whom, what.
    copies: Vec<Vec<(usize, usize, usize, Scalar)>>,
}

/// Runs every program of the grid; the buffers are the function's arguments and are returned.
pub fn run(body: &Body, args: Vec<Buffer>, symbols: &[(&str, i64)]) -> Vec<Buffer> {
    let root = body.op_ref(body.root());
    let bind = |n: Name| symbols.iter().find(|s| n == s.0).map(|s| s.1);
    let grid: Vec<i64> =
        root.attr("grid").and_then(|a| a.as_shape()).unwrap().iter().map(|d| d.evaluate(&bind).unwrap()).collect();
    let threads = root.int("threads").unwrap_or(1) as usize;
    let count = args.len();
    let mut m = Machine {
        body,
        buffers: args,
        values: HashMap::new(),
        symbols,
        program: [0; 3],
        threads,
        epoch: 1,
        cuda: root.str("target") == Some("cuda"),
        copies: Vec::new(),
    };
    let at = |i: usize| grid.get(i).copied().unwrap_or(1);
    for z in 0..at(2) {
        for y in 0..at(1) {
            for x in 0..at(0) {
                m.program = [x, y, z];
                m.buffers.truncate(count);
                m.values.clear();
                m.copies = vec![Vec::new()];
                let entry = body.entry().unwrap();
                for (i, v) in body.block_args(entry).enumerate() {
                    let shape = m.buffers[i].shape.clone();
                    m.values.insert(v, Held::Memory(i, 0, shape));
                }
                m.block(entry);
            }
        }
    }
    m.buffers.truncate(count);
    m.buffers
}

fn int(s: Scalar) -> i64 {
    s.int().expect("an integer") as i64
}

impl<'a> Machine<'a> {
    fn lanes(&self, v: Value) -> &[Vec<Scalar>] {
        match &self.values[&v] {
            Held::Lanes(l) => l,
            Held::Memory(..) => panic!("memory as a value"),
        }
    }
    fn memory(&self, v: Value) -> (usize, i64, Vec<i64>) {
        match &self.values[&v] {
            Held::Memory(m, first, shape) => (*m, *first, shape.clone()),
            Held::Lanes(_) => panic!("a value as memory"),
        }
    }
    fn uniform(&self, v: Value) -> Scalar {
        let all = self.lanes(v);
        assert!(all.iter().all(|t| t[0] == all[0][0]), "control flow differs between threads");
        all[0][0]
    }
    fn set(&mut self, v: Value, lanes: Vec<Vec<Scalar>>) {
        let width = self.body.ty(v).static_shape().map_or(1, |s| s.iter().product::<i64>()) as usize;
        assert!(lanes.len() == self.threads && lanes.iter().all(|l| l.len() == width), "{} lanes", self.body.ty(v));
        self.values.insert(v, Held::Lanes(lanes));
    }
    fn each(&mut self, op: OpRef, f: impl Fn(&[&[Scalar]]) -> Vec<Scalar>) {
        let lanes = (0..self.threads)
            .map(|t| {
                let args: Vec<&[Scalar]> = op.operands().map(|v| self.lanes(v)[t].as_slice()).collect();
                f(&args)
            })
            .collect();
        self.set(op.result(0), lanes);
    }

    fn block(&mut self, block: Block) -> Vec<Held> {
        for op in self.body.ops(block) {
            let op = self.body.op_ref(op);
            match op.name().as_str() {
                op::kernel::YIELD | op::kernel::RETURN => {
                    return op.operands().map(|v| self.values[&v].clone()).collect();
                }
                _ => self.op(op),
            }
        }
        Vec::new()
    }

    fn op(&mut self, op: OpRef) {
        let name = op.name().as_str();
        match name {
            op::core::CONSTANT => self.constant(op),
            op::kernel::EXTENT => {
                let dim: Dim = op.attr("expr").unwrap().as_shape().unwrap()[0];
                let n = dim.evaluate(&|n| self.symbols.iter().find(|s| n == s.0).map(|s| s.1)).unwrap();
                self.set(op.result(0), vec![vec![Scalar::Int(n.into())]; self.threads]);
            }
            op::kernel::PROGRAM_ID => {
                let n = self.program[op.int("axis").unwrap() as usize];
                self.set(op.result(0), vec![vec![Scalar::Int(n.into())]; self.threads]);
            }
            op::kernel::THREAD_ID => {
                self.set(op.result(0), (0..self.threads).map(|t| vec![Scalar::Int(t as i128)]).collect());
            }
            op::kernel::ALLOC => self.alloc(op),
            op::kernel::VIEW => {
                let (memory, first, shape) = self.memory(op.operand(0));
                let at: Vec<i64> = op.operands().skip(1).map(|v| int(self.uniform(v))).collect();
                let rest: i64 = shape[at.len()..].iter().product();
                assert!(at.iter().zip(&shape).all(|(&i, &n)| (0..n).contains(&i)));
                let offset = at.iter().zip(&shape).fold(0, |sum, (&i, &n)| sum * n + i) * rest;
                let ty = self.body.ty(op.result(0)).static_shape().unwrap();
                self.values.insert(op.result(0), Held::Memory(memory, first + offset, ty));
            }
            op::kernel::ASYNC_COPY => self.async_copy(op),
            op::kernel::ASYNC_COMMIT => self.copies.push(Vec::new()),
            op::kernel::ASYNC_WAIT => {
                let keep = op.int("pending").unwrap() as usize + 1;
                while self.copies.len() > keep {
                    for (memory, place, thread, value) in self.copies.remove(0) {
                        self.mark(memory, place, thread, true, op);
                        self.buffers[memory].data[place] = value;
                    }
                }
            }
            op::kernel::READ => self.read(op),
            op::kernel::WRITE => self.write(op),
            op::kernel::BARRIER => self.epoch += 1,
            op::kernel::GRID_WAIT | op::kernel::GRID_LAUNCH => {}
            op::kernel::FOR => self.for_loop(op),
            op::kernel::IF => {
                let region = usize::from(!self.uniform(op.operand(0)).is_true());
                let results = op.entry(region).map_or(Vec::new(), |b| self.block(b));
                op.results().zip(results).for_each(|(r, held)| drop(self.values.insert(r, held)));
            }
            op::kernel::SHUFFLE => {
                assert_eq!(op.str("mode"), Some("xor"));
                let (by, source) = (op.int("by").unwrap() as usize, self.lanes(op.operand(0)).to_vec());
                self.set(op.result(0), (0..self.threads).map(|t| source[t ^ by].clone()).collect());
            }
            op::kernel::LDMATRIX => self.ldmatrix(op),
            op::kernel::MMA => self.mma(op),
            op::kernel::SPLAT => {
                let n = self.body.ty(op.result(0)).static_shape().unwrap()[0] as usize;
                self.each(op, |a| vec![a[0][0]; n]);
            }
            op::kernel::EXTRACT => self.each(op, |a| vec![a[0][op.int("lane").unwrap() as usize]]),
            op::kernel::SLICE => {
                let n = self.body.ty(op.result(0)).static_shape().unwrap()[0] as usize;
                let start = op.int("start").unwrap() as usize;
                self.each(op, |a| a[0][start..start + n].to_vec());
            }
            op::kernel::CONCAT => self.each(op, |a| a.concat()),
            op::kernel::PERMUTE => {
                let lanes = op.ints("lanes").unwrap();
                self.each(op, |a| lanes.iter().map(|&lane| a.concat()[lane as usize]).collect());
            }
            op::kernel::VECTOR_REDUCE => {
                let core = format!("rc.core.{}", op.str("kind").unwrap());
                let elem = self.body.ty(op.result(0));
                self.each(op, |a| vec![a[0][1..].iter().fold(a[0][0], |x, &y| eval(&core, elem, &[x, y]))]);
            }
            _ if name.starts_with("rc.core.") => {
                let last = self.body.ty(op.operands().next_back().unwrap()).elem();
                let (to, attrs, def) = (self.body.ty(op.result(0)).elem(), self.body.attrs(op.op), op.def().unwrap());
                self.each(op, |a| {
                    (0..a[0].len())
                        .map(|i| {
                            let args: Vec<Scalar> = a.iter().map(|l| l[i]).collect();
                            scalar::eval(def, attrs, last, to, &args).unwrap_or_else(|| panic!("{name} of {args:?}"))
                        })
                        .collect()
                });
            }
            _ => panic!("{name}: not on this machine"),
        }
    }

    fn constant(&mut self, op: OpRef) {
        let value = constant_of(self.body, op.result(0)).unwrap();
        let lanes = match value.data() {
            AttrData::Dense { ty, data } if !data.splat => {
                let width = ty.elem().byte_width().unwrap() as usize;
                let decode = |b: &[u8]| {
                    let mut word = [0; 8];
                    word[..width].copy_from_slice(b);
                    Scalar::from_bits(u64::from_le_bytes(word), ty.elem()).unwrap()
                };
                data.bytes.chunks(width).map(decode).collect()
            }
            _ => {
                let n = self.body.ty(op.result(0)).static_shape().map_or(1, |s| s.iter().product::<i64>());
                vec![scalar::splat_of(value).unwrap(); n as usize]
            }
        };
        self.set(op.result(0), vec![lanes; self.threads]);
    }

    fn alloc(&mut self, op: OpRef) {
        let ty = self.body.ty(op.result(0));
        let shape = ty.static_shape().unwrap();
        let total = shape.iter().product::<i64>() as usize;
        let poison = if ty.elem().is_float() { Scalar::Float(f64::NAN) } else { Scalar::Int(0x5a) };
        let mut buffer = Buffer::new(&shape, ty.elem(), vec![poison; total]);
        buffer.shared = true;
        buffer.marks = vec![[(0, 0); 2]; total];
        self.buffers.push(buffer);
        self.values.insert(op.result(0), Held::Memory(self.buffers.len() - 1, 0, shape));
    }

    /// The places of `width` elements from `at` on, after the swizzle.
    fn places(
        &self,
        op: OpRef,
        (memory, start, shape): &(usize, i64, Vec<i64>),
        at: &[i64],
        width: usize,
    ) -> Vec<usize> {
        let buffer = &self.buffers[*memory];
        let first = start
            + at.iter().zip(shape).fold(0, |sum, (&i, &n)| {
                assert!((0..n).contains(&i), "{} at {at:?} of {shape:?}", op.name());
                sum * n + i
            });
        let last = at.last().copied().unwrap_or(0) + width as i64;
        assert!(last <= shape.last().copied().unwrap_or(1), "{width} elements at {at:?} of {shape:?}");
        let bytes = buffer.elem.byte_width().unwrap() as i64;
        if self.cuda && width > 1 {
            let align = op.int("align").or(op.int("bytes")).expect("a GPU's vector access states its alignment");
            assert!(
                align >= width as i64 * bytes && align <= 16 && first * bytes % align == 0,
                "aligned to {align} at {at:?}"
            );
        }
        let swizzle = op.int("swizzle").unwrap_or(0);
        (0..width as i64).map(|i| (swizzled((first + i) * bytes, swizzle) / bytes) as usize).collect()
    }
    fn access(&self, op: OpRef, t: usize, width: usize) -> Option<(Vec<i64>, usize)> {
        let at = op.group("indices").iter().map(|&v| int(self.lanes(v)[t][0])).collect();
        if op.group("pred").first().is_some_and(|&p| !self.lanes(p)[t][0].is_true()) {
            return None;
        }
        let valid =
            op.group("valid").first().map_or(width as i64, |&v| int(self.lanes(v)[t][0])).clamp(0, width as i64);
        (valid > 0).then_some((at, valid as usize))
    }
    fn read(&mut self, op: OpRef) {
        let ty = self.body.ty(op.result(0));
        let width = ty.static_shape().map_or(1, |s| s.iter().product::<i64>()) as usize;
        let memory = self.memory(op.operand(0));
        let zero = if ty.elem().is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        let mut out = vec![vec![zero; width]; self.threads];
        for (t, lanes) in out.iter_mut().enumerate() {
            let Some((mut at, valid)) = self.access(op, t, width) else { continue };
            let skipped = op.group("skip").first().map_or(0, |&v| int(self.lanes(v)[t][0])).clamp(0, valid as i64);
            *at.last_mut().unwrap() += skipped;
            if skipped == valid as i64 {
                continue;
            }
            for (i, place) in self.places(op, &memory, &at, valid - skipped as usize).into_iter().enumerate() {
                self.mark(memory.0, place, t, false, op);
                lanes[skipped as usize + i] = self.buffers[memory.0].data[place];
            }
        }
        self.set(op.result(0), out);
    }
    fn write(&mut self, op: OpRef) {
        let width = self.lanes(op.operand(0))[0].len();
        let memory = self.memory(op.operand(1));
        for t in 0..self.threads {
            let Some((at, valid)) = self.access(op, t, width) else { continue };
            for (lane, place) in self.places(op, &memory, &at, valid).into_iter().enumerate() {
                self.mark(memory.0, place, t, true, op);
                self.buffers[memory.0].data[place] = self.lanes(op.operand(0))[t][lane];
            }
        }
    }
    fn async_copy(&mut self, op: OpRef) {
        let (target, source) = (self.memory(op.group("target")[0]), self.memory(op.group("source")[0]));
        let width = (op.int("bytes").unwrap() / self.buffers[target.0].elem.byte_width().unwrap() as i64) as usize;
        for t in 0..self.threads {
            let at = |m: &Self, group: &str| -> Vec<i64> {
                op.group(group).iter().map(|&v| int(m.lanes(v)[t][0])).collect()
            };
            let valid =
                op.group("valid").first().map_or(width, |&v| int(self.lanes(v)[t][0]).clamp(0, width as i64) as usize);
            let (to, from) = (at(self, "at"), at(self, "from"));
            // The source's bounds and alignment are checked; the swizzle is the target's alone.
            let read: Vec<usize> = if valid == 0 {
                Vec::new()
            } else {
                self.places(op, &source, &from, valid);
                let first = source.1 + from.iter().zip(&source.2).fold(0, |sum, (&i, &n)| sum * n + i);
                (first as usize..first as usize + valid).collect()
            };
            for (lane, place) in self.places(op, &target, &to, width).into_iter().enumerate() {
                self.mark(target.0, place, t, true, op);
                let value = read.get(lane).map_or(Scalar::Float(0.0), |&p| self.buffers[source.0].data[p]);
                self.buffers[target.0].data[place] = Scalar::Float(f64::NAN);
                self.copies.last_mut().unwrap().push((target.0, place, t, value));
            }
        }
    }
    fn mark(&mut self, memory: usize, place: usize, thread: usize, write: bool, op: OpRef) {
        let epoch = self.epoch;
        let buffer = &mut self.buffers[memory];
        if !buffer.shared {
            return;
        }
        let [written, read] = &mut buffer.marks[place];
        let (now, thread) = (|m: (u64, i64)| m.0 == epoch, thread as i64);
        assert!(
            !now(*written) || written.1 == thread || write,
            "{}: reads what thread {} writes, no barrier",
            op.name(),
            written.1
        );
        if write {
            assert!(!now(*read) || read.1 == thread, "{}: overwrites what another thread reads, no barrier", op.name());
            *written = (epoch, thread);
        } else {
            *read = (epoch, if now(*read) && read.1 != thread { -1 } else { thread });
        }
    }

    fn for_loop(&mut self, op: OpRef) {
        let [lower, upper, step] = [0, 1, 2].map(|i| int(self.uniform(op.operand(i))));
        let entry = op.entry(0).unwrap();
        let mut carried: Vec<Held> = op.operands().skip(3).map(|v| self.values[&v].clone()).collect();
        let mut i = lower;
        while i < upper {
            let args: Vec<Value> = self.body.block_args(entry).collect();
            self.values.insert(args[0], Held::Lanes(vec![vec![Scalar::Int(i.into())]; self.threads]));
            args[1..].iter().zip(&carried).for_each(|(&a, held)| drop(self.values.insert(a, held.clone())));
            carried = self.block(entry);
            i += step;
        }
        op.results().zip(carried).for_each(|(r, held)| drop(self.values.insert(r, held)));
    }

    fn ldmatrix(&mut self, op: OpRef) {
        let (memory, start, shape) = self.memory(op.operand(0));
        let indices: Vec<Value> = op.operands().skip(1).collect();
        let mut out = vec![vec![Scalar::Float(0.0); 8]; self.threads];
        for warp in 0..self.threads / 32 {
            // Row r of matrix i, of eight elements, at the address that thread 8 i + r gives.
            let mut rows = Vec::new();
            for t in 0..32 {
                let at: Vec<i64> = indices.iter().map(|&v| int(self.lanes(v)[32 * warp + t][0])).collect();
                let first = start + at.iter().zip(&shape).fold(0, |sum, (&i, &n)| sum * n + i);
                assert!(first * 2 % 16 == 0, "a row of ldmatrix is aligned to 16 bytes");
                let swizzle = op.int("swizzle").unwrap_or(0);
                let places: Vec<usize> = (0..8).map(|i| (swizzled((first + i) * 2, swizzle) / 2) as usize).collect();
                for &p in &places {
                    self.mark(memory, p, 32 * warp + t, false, op);
                }
                rows.push(places.iter().map(|&p| self.buffers[memory].data[p]).collect::<Vec<_>>());
            }
            for t in 0..32 {
                for i in 0..4 {
                    for e in 0..2 {
                        let (r, c) = (t / 4, 2 * (t % 4) + e);
                        out[32 * warp + t][2 * i + e] =
                            if op.bool("trans") { rows[8 * i + c][r] } else { rows[8 * i + r][c] };
                    }
                }
            }
        }
        self.set(op.result(0), out);
    }

    /// m16n8k16, from the fragments as the PTX manual lays them out.
    fn mma(&mut self, op: OpRef) {
        let [a, b, c] = [0, 1, 2].map(|i| self.lanes(op.operand(i)).to_vec());
        let mut out = c.clone();
        for warp in 0..self.threads / 32 {
            let at = |t: usize| 32 * warp + t;
            let mut sum = [[0.0f64; 8]; 16];
            let (mut left, mut right) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
            for t in 0..32 {
                let (g, q) = (t / 4, t % 4);
                for i in 0..8 {
                    left[g + if i & 2 != 0 { 8 } else { 0 }][2 * q + (i & 1) + if i >= 4 { 8 } else { 0 }] =
                        a[at(t)][i].float();
                }
                for i in 0..4 {
                    right[2 * q + (i & 1) + if i >= 2 { 8 } else { 0 }][g] = b[at(t)][i].float();
                }
            }
            for (m, row) in sum.iter_mut().enumerate() {
                for (n, x) in row.iter_mut().enumerate() {
                    *x = (0..16).map(|k| left[m][k] * right[k][n]).sum();
                }
            }
            for t in 0..32 {
                for i in 0..4 {
                    let (m, n) = (t / 4 + if i >= 2 { 8 } else { 0 }, 2 * (t % 4) + (i & 1));
                    out[at(t)][i] = Scalar::Float(f64::from((c[at(t)][i].float() + sum[m][n]) as f32));
                }
            }
        }
        self.set(op.result(0), out);
    }
}

fn eval(name: &str, elem: Type, args: &[Scalar]) -> Scalar {
    let def = rc_ir::OpName::new(name).def().unwrap();
    scalar::eval(def, Attr::empty_dict(), elem, elem, args).unwrap()
}

/// The tensor-map swizzle of a byte address.
fn swizzled(address: i64, swizzle: i64) -> i64 {
    match swizzle {
        128 => address ^ ((address >> 3) & 0x70),
        64 => address ^ ((address >> 3) & 0x30),
        32 => address ^ ((address >> 3) & 0x10),
        _ => address,
    }
}
