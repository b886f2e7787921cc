//! What one thread does alone: memory of its own and shared, loads, stores, vectors.

use rc_dialects::constraints::memory_space;
use rc_dialects::core::scalar::Scalar;
use rc_dialects::interfaces::Combiner;
use rc_ir::Result;

use super::block::{Owner, Program, Step, agent};
use super::code::Inst;
use crate::interp::Mode;
use crate::interp::memory::{Agent, MemRef, check_class, steps_of, width_of};
use crate::interp::reduce::{float_fn, int_fn, reduce};
use crate::interp::value::{Array, Format, Value};

impl Program<'_, '_> {
    pub fn nothing(&mut self, _: usize, _: &Inst) -> Result<Step> {
        Ok(Step::Next)
    }
    pub fn program_id(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let axis = inst.op.int("axis").unwrap_or(0).clamp(0, 2) as usize;
        self.set(t, inst.outs[0], Value::Int(self.ids[self.rank(t)][axis]));
        Ok(Step::Next)
    }
    pub fn thread_id(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        self.set(t, inst.outs[0], Value::Int((t % self.block) as i64));
        Ok(Step::Next)
    }
    pub fn cluster_rank(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        self.set(t, inst.outs[0], Value::Int(self.rank(t) as i64));
        Ok(Step::Next)
    }
    pub fn extent(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let value = self.frame.sizes(inst.op, "expr")?;
        let &[value] = value.as_slice() else { return Err(inst.op.error("needs one expression")) };
        self.set(t, inst.outs[0], Value::Int(value));
        Ok(Step::Next)
    }
    /// The first thread of each warp.
    pub fn elect(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        self.set(t, inst.outs[0], Value::Int(i64::from((t % self.block).is_multiple_of(32))));
        Ok(Step::Next)
    }

    // ---- memory ----

    pub fn alloc(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let ty = self.result_type(inst);
        let shared = memory_space(ty) == 3;
        let key = (inst.op.op.index(), if shared { Owner::Block(self.rank(t)) } else { Owner::Thread(t) });
        let memref = match self.allocations.get(&key) {
            Some(memref) => memref.clone(),
            None => {
                let shape = inst.shape.clone();
                let name = inst.op.body.value_name(inst.op.result(0));
                let what = if shared {
                    format!("the shared memory %{name}")
                } else {
                    format!("the memory %{name} of thread {t}")
                };
                let memref = self.memory.unwritten(what, shape, width_of(ty));
                if shared && self.threads.len() > 1 {
                    self.memory.watch(memref.buffer);
                }
                if let Some(overlay) = inst.op.str("overlay") {
                    let name = format!("{overlay} of block {}", self.rank(t));
                    self.memory.set_overlay(memref.buffer, &name);
                }
                self.allocations.insert(key, memref.clone());
                memref
            }
        };
        self.set(t, inst.outs[0], Value::Memory(memref));
        Ok(Step::Next)
    }

    pub fn choose(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let number = self.ints(t, &inst.args[..1], inst)?[0];
        let chosen = usize::try_from(number).ok().and_then(|number| inst.args[1..].get(number).copied());
        let Some(chosen) = chosen else {
            return Err(inst.op.error(format!("chooses buffer {number} of {}", inst.args.len() - 1)));
        };
        let buffer = self.get(t, chosen, inst)?.clone();
        self.set(t, inst.outs[0], buffer);
        Ok(Step::Next)
    }

    pub fn view(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let source = self.memref(t, inst.args[0], inst)?;
        let mut index = self.ints(t, &inst.args[1..], inst)?;
        index.resize(source.shape.len(), 0);
        let shape = inst.shape.clone();
        let len: usize = shape.iter().product();
        let start = if len == 0 { source.start } else { self.element(inst, &source, &index, "views from")? };
        if source.strides.is_none() && start + len > source.start + source.len() {
            let what = format!("views {len} elements from {index:?} of memory of shape {:?}", source.shape);
            return Err(inst.op.error(what));
        }
        let view = MemRef { start, shape: shape.into(), strides: steps_of(self.result_type(inst)), ..source };
        self.set(t, inst.outs[0], Value::Memory(view));
        Ok(Step::Next)
    }

    /// The positions of `lanes` elements along the last dimension, with the op's swizzle.
    pub fn lanes(&self, inst: &Inst, memref: &MemRef, index: &[i64], lanes: usize, does: &str) -> Result<Vec<usize>> {
        if lanes == 0 {
            return Ok(Vec::new());
        }
        let first = self.element(inst, memref, index, does)?;
        if lanes > 1 {
            let mut last = index.to_vec();
            if let Some(i) = last.last_mut() {
                *i += lanes as i64 - 1;
            }
            self.element(inst, memref, &last, does)?;
        }
        let swizzle = inst.op.int("swizzle").unwrap_or(0) as usize;
        Ok((first..first + lanes).map(|at| swizzled(at, memref.width, swizzle)).collect())
    }

    /// How many of `lanes` an access touches, by its `pred` and `valid` groups.
    fn touched(&self, t: usize, inst: &Inst, pred: usize, lanes: usize) -> Result<usize> {
        if let Some(&p) = inst.group(pred).first()
            && self.int(t, p, inst)? == 0
        {
            return Ok(0);
        }
        match inst.group(pred + 1).first() {
            Some(&v) => Ok(self.int(t, v, inst)?.clamp(0, lanes as i64) as usize),
            None => Ok(lanes),
        }
    }

    pub fn read_vector(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let memref = self.memref(t, inst.group(0)[0], inst)?;
        let mut index = self.ints(t, inst.group(1), inst)?;
        let ty = self.result_type(inst);
        let (shape, format) = (inst.shape.clone(), inst.format()?);
        let lanes = shape.iter().product();
        let touched = self.touched(t, inst, 2, lanes)?;
        let skipped = match inst.group(4).first() {
            Some(&skip) => self.int(t, skip, inst)?.clamp(0, touched as i64) as usize,
            None => 0,
        };
        if let Some(last) = index.last_mut() {
            *last += skipped as i64;
        }
        let at = self.lanes(inst, &memref, &index, touched - skipped, "reads")?;
        let zero = || if format.is_float() { Value::Float(0.0) } else { Value::Int(0) };
        let mut values = Vec::with_capacity(lanes);
        values.resize_with(skipped, zero);
        for at in at {
            let value = self.read(t, &memref, at, inst.op.loc())?;
            check_class(&value, format, inst.op.loc())?;
            values.push(value);
        }
        values.resize_with(lanes, zero);
        let value = if ty.is_vector() { Value::Array(gathered(shape, &values, format)) } else { values[0].clone() };
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn write_vector(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let value = self.get(t, inst.group(0)[0], inst)?.clone();
        let memref = self.memref(t, inst.group(1)[0], inst)?;
        let index = self.ints(t, inst.group(2), inst)?;
        let lanes = if let Value::Array(a) = &value { a.len() } else { 1 };
        let touched = self.touched(t, inst, 3, lanes)?;
        for (i, at) in self.lanes(inst, &memref, &index, touched, "writes")?.into_iter().enumerate() {
            let element = if let Value::Array(a) = &value { a.element(i) } else { value.clone() };
            self.write(t, &memref, at, &element, inst.op.loc())?;
        }
        Ok(Step::Next)
    }

    pub fn atomic(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let value = self.get(t, inst.group(0)[0], inst)?.clone();
        let memref = self.memref(t, inst.group(1)[0], inst)?;
        let index = self.ints(t, inst.group(2), inst)?;
        let values = self.elements(t, inst.group(0)[0], inst)?;
        let touched = self.touched(t, inst, 3, values.len())?;
        if touched == 0 {
            self.set(t, inst.outs[0], value);
            return Ok(Step::Next);
        }
        let places = self.lanes(inst, &memref, &index, touched, "updates")?;
        let olds: Vec<Value> = places
            .into_iter()
            .zip(&values)
            .map(|(at, value)| self.combine_atomically(t, inst, (&memref, at), value, inst.format()?))
            .collect::<Result<_>>()?;
        self.set_lanes(t, inst, &olds)
    }

    /// Combines a value with an element of memory, as the instruction's `kind` says; gives the old one.
    pub fn combine_atomically(
        &mut self,
        t: usize,
        inst: &Inst,
        (memref, at): (&MemRef, usize),
        value: &Value,
        format: Format,
    ) -> Result<Value> {
        let kind = inst.op.str("kind").unwrap_or("exchange");
        let who = Agent { atomic: true, ..agent(self.number, t, &self.threads[t].clock, inst.op.loc()) };
        let old = self.memory.read(memref.buffer, at, &who)?;
        let combiner = Combiner::from_kind(kind);
        let no = || inst.op.unsupported(format!("with the kind '{kind}' on {}", format.ty));
        let new = match (combiner, &old, value) {
            (None, ..) => value.clone(),
            (Some(c), Value::Float(a), Value::Float(b)) => {
                Value::Float(format.round(float_fn(c).ok_or_else(no)?(*a, *b)))
            }
            (Some(c), Value::Int(a), Value::Int(b)) => Value::Int(int_fn(c, format).ok_or_else(no)?(*a, *b)),
            _ => return Err(no()),
        };
        self.memory.write(memref.buffer, at, &new, &who)?;
        Ok(old)
    }

    // ---- vectors ----

    fn vector(&self, t: usize, register: usize, inst: &Inst) -> Result<Array> {
        match self.get(t, register, inst)? {
            Value::Array(array) => Ok(array.clone()),
            _ => Err(inst.op.error("needs a vector")),
        }
    }
    /// The lanes of a scalar or vector.
    pub fn elements(&self, t: usize, register: usize, inst: &Inst) -> Result<Vec<Value>> {
        Ok(match self.get(t, register, inst)? {
            Value::Array(array) => (0..array.len()).map(|i| array.element(i)).collect(),
            scalar => vec![scalar.clone()],
        })
    }
    /// Sets the result to a scalar or a vector of these lanes.
    pub fn set_lanes(&mut self, t: usize, inst: &Inst, values: &[Value]) -> Result<Step> {
        let ty = self.result_type(inst);
        let (shape, format) = (inst.shape.clone(), inst.format()?);
        if values.len() != shape.iter().product::<usize>() {
            return Err(inst.op.error(format!("gives {} lanes for {ty}", values.len())));
        }
        let value = if ty.is_vector() { Value::Array(gathered(shape, values, format)) } else { values[0].clone() };
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn splat(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let shape = inst.shape.clone();
        let value = Array::splat(shape, self.get(t, inst.args[0], inst)?);
        self.set(t, inst.outs[0], Value::Array(value));
        Ok(Step::Next)
    }
    pub fn extract(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let vector = self.vector(t, inst.args[0], inst)?;
        let lane = inst.op.int("lane").unwrap_or(0) as usize;
        if lane >= vector.len() {
            return Err(inst.op.error(format!("takes lane {lane} of {}", vector.len())));
        }
        self.set(t, inst.outs[0], vector.element(lane));
        Ok(Step::Next)
    }
    pub fn insert(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let value = self.get(t, inst.args[0], inst)?.clone();
        let mut lanes = self.elements(t, inst.args[1], inst)?;
        let lane = inst.op.int("lane").unwrap_or(0) as usize;
        *lanes.get_mut(lane).ok_or_else(|| inst.op.error(format!("sets lane {lane}, which is not there")))? = value;
        self.set_lanes(t, inst, &lanes)
    }
    pub fn concat(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let parts = inst.args.iter().map(|&r| self.elements(t, r, inst)).collect::<Result<Vec<_>>>()?;
        self.set_lanes(t, inst, &parts.concat())
    }
    pub fn slice(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let lanes = self.elements(t, inst.args[0], inst)?;
        let start = inst.op.int("start").unwrap_or(0).max(0) as usize;
        let count: usize = inst.shape.clone().iter().product();
        let part = lanes.get(start..start + count);
        let part =
            part.ok_or_else(|| inst.op.error(format!("takes {count} lanes from {start} of {}", lanes.len())))?.to_vec();
        self.set_lanes(t, inst, &part)
    }
    pub fn permute(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let parts = inst.args.iter().map(|&r| self.elements(t, r, inst)).collect::<Result<Vec<_>>>()?.concat();
        let numbers = inst.op.ints("lanes").unwrap_or_default();
        let lanes: Vec<_> = numbers.iter().filter_map(|&lane| parts.get(lane as usize).cloned()).collect();
        self.set_lanes(t, inst, &lanes)
    }
    pub fn vector_reduce(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let vector = self.vector(t, inst.args[0], inst)?;
        let vector = vector.clone().with_shape(vec![vector.len()]);
        let format = inst.format()?;
        let combiner =
            inst.op.str("kind").and_then(Combiner::from_kind).ok_or_else(|| inst.op.error("needs 'kind'"))?;
        let value = match reduce(inst.op, &vector, &[0], combiner, format, format)? {
            Value::Array(a) => a.element(0),
            scalar => scalar,
        };
        self.set(t, inst.outs[0], value);
        Ok(Step::Next)
    }

    pub fn bitcast(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let from = inst.op.body.ty(inst.op.operand(0)).elem();
        let to = self.result_type(inst).elem();
        let input = self.format(inst, from)?;
        let widths = (from.bit_width().unwrap_or(8), to.bit_width().unwrap_or(8));
        let mut bits: Vec<bool> = Vec::new();
        for value in self.elements(t, inst.args[0], inst)? {
            let word = value.scalar(input).to_bits(from).unwrap_or(0);
            bits.extend((0..widths.0).map(|i| word >> i & 1 == 1));
        }
        let word = |bits: &[bool]| bits.iter().enumerate().fold(0u64, |w, (i, &b)| w | u64::from(b) << i);
        let scalar = |bits: &[bool]| Value::from_scalar(Scalar::from_bits(word(bits), to).unwrap_or(Scalar::Int(0)));
        let values: Vec<Value> = bits.chunks(widths.1 as usize).map(scalar).collect();
        self.set_lanes(t, inst, &values)
    }

    pub fn approx(&mut self, t: usize, inst: &Inst) -> Result<Step> {
        let f: fn(f64) -> f64 = match inst.op.str("fn") {
            Some("ex2") => f64::exp2,
            Some("tanh") => f64::tanh,
            Some("rcp") => |x| 1.0 / x,
            Some("rsqrt") => |x| 1.0 / x.sqrt(),
            Some("lg2") => f64::log2,
            Some("sin") => f64::sin,
            Some("cos") => f64::cos,
            other => return Err(inst.op.unsupported(format!("of the function {other:?}"))),
        };
        let format = inst.format()?;
        let flushes = self.frame.mode() == Mode::Typed && !matches!(inst.op.str("fn"), Some("lg2" | "rsqrt"));
        let flush = |x: f64| {
            if flushes && x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0f64.copysign(x) } else { x }
        };
        let one = |v: &Value| match v {
            Value::Float(x) => Value::Float(flush(format.round(f(flush(*x))))),
            other => other.clone(),
        };
        let values: Vec<Value> = self.elements(t, inst.args[0], inst)?.iter().map(one).collect();
        self.set_lanes(t, inst, &values)
    }
}

/// A vector of these scalars.
pub(crate) fn gathered(shape: Vec<usize>, values: &[Value], format: Format) -> Array {
    if format.is_float() {
        return Array::floats(shape, values.iter().map(|v| if let Value::Float(x) = v { *x } else { 0.0 }).collect());
    }
    Array::ints(shape, values.iter().map(|v| if let Value::Int(n) = v { *n } else { 0 }).collect())
}

/// Where an element lies whose 16-byte piece of the address is permuted as a tensor map's swizzle permutes it.
pub(crate) fn swizzled(at: usize, width: usize, swizzle: usize) -> usize {
    let byte = at * width;
    let mask = match swizzle {
        128 => 0x70,
        64 => 0x30,
        32 => 0x10,
        _ => 0,
    };
    (byte ^ (byte >> 3 & mask)) / width
}
