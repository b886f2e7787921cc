//! The `host` dialect: launches on tensors and on memory, buffers in an arena.

mod control;
mod foreign;
mod order;

use rc_dialects::op;
use std::collections::BTreeMap;

use rc_ir::{Name, OpRef, Result, Type, TypeData};

use super::Interpreter;
use super::bind::Signature;
use super::exec::{Frame, Symbols};
use super::kernel;
use super::memory::{MemRef, Memory, steps_of, width_of};
use super::value::{Array, TensorMap, Value};

impl Frame<'_> {
    /// `host.launch` on tensors: the results are the kernel's last arguments.
    pub fn launch_on_tensors(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let mut memory = Memory::default();
        let mut args = Vec::new();
        for (i, ty) in op.operand_types().into_iter().enumerate() {
            let array = self.array(op, i)?;
            args.push(memory.given(format!("input {i}"), array, width_of(ty)));
        }
        for (i, ty) in op.result_types().into_iter().enumerate() {
            let pairs = op.ints("updates").unwrap_or_default();
            let from = pairs.chunks(2).find(|pair| pair[0] == i as i64).map(|pair| pair[1] as usize);
            args.push(match from {
                Some(input) => memory.given(format!("output {i}"), self.array(op, input)?, width_of(ty)),
                None => memory.unwritten(format!("output {i}"), self.shape_of(op, ty)?, width_of(ty)),
            });
        }
        for (i, bytes) in op.attr("scratch").and_then(|a| a.as_shape()).unwrap_or_default().iter().enumerate() {
            let bytes = self.dim(op, *bytes)?.max(0) as usize;
            args.push(memory.unwritten(format!("scratch {i}"), vec![bytes], 1));
        }
        let inputs = op.operands().len();
        self.launch(op, &mut memory, &args)?;
        let results = op.result_types().into_iter().zip(&args[inputs..]).enumerate();
        results
            .map(|(i, (ty, memref))| {
                let array = memory.array(memref, ty.elem().is_float());
                array.map(Value::Array).map_err(|why| op.error(format!("leaves result {i} incomplete: {why}")))
            })
            .collect()
    }

    /// Runs the callee on memory.
    fn launch(&self, op: OpRef, memory: &mut Memory, args: &[MemRef]) -> Result {
        let callee = op.str("callee").ok_or_else(|| op.error("needs 'callee'"))?;
        let body = self.interp.module.symbol(callee);
        let body = body.ok_or_else(|| op.error(format!("launches '{callee}', which the module does not have")))?;
        let root = body.op_ref(body.root());
        if !root.is(op::kernel::FUNC) {
            return Err(op
                .unsupported(format!("of '{callee}' in the interpreter: it is a {}", root.name().pretty()))
                .help("run the module before its kernels become machine code"));
        }
        let mut bound = Vec::new();
        for (name, dim) in rc_dialects::func::bindings(op) {
            bound.push((name, self.dim(op, dim)?));
        }
        let symbols = Symbols::new(bound);
        symbols.check(op.loc(), &rc_dialects::func::symbols(body), false)?;
        let frame = Frame::new(self.interp, body, symbols, self.depth + 1)?;
        let kept = memory.count();
        let values = frame.kernel_args(op, memory, args)?;
        kernel::launch(&frame, memory, &values)?;
        memory.truncate(kept);
        Ok(())
    }

    /// The launch's memory as this kernel's arguments see it.
    fn kernel_args(&self, launch: OpRef, memory: &mut Memory, args: &[MemRef]) -> Result<Vec<Value>> {
        let root = self.body.op_ref(self.body.root());
        let entry = self.body.entry().ok_or_else(|| root.error("has no body"))?;
        let types: Vec<Type> = self.body.block_args(entry).map(|v| self.body.ty(v)).collect();
        let maps = root.attr("tensor_maps").and_then(|a| a.as_array()).unwrap_or_default();
        let more = maps.iter().filter(|map| map.get("arg").is_some()).count();
        if types.len() != args.len() + more {
            return Err(launch.error(format!(
                "passes {} buffers to a kernel of {} arguments",
                args.len(),
                types.len()
            )));
        }
        let mut maps = maps.iter();
        let mut values = Vec::new();
        for (i, ty) in types.into_iter().enumerate() {
            if let TypeData::Dialect { .. } = ty.data() {
                let map = maps
                    .next()
                    .ok_or_else(|| root.error(format!("does not say what the tensor map of argument {i} describes")))?;
                let operand = map.get("arg").map_or(Some(i), |a| usize::try_from(a.as_int()?).ok());
                let arg = operand
                    .and_then(|i| args.get(i))
                    .ok_or_else(|| root.error(format!("has a tensor map of no operand: {map}")))?;
                let tensor = map
                    .get("tensor")
                    .and_then(|a| a.as_type())
                    .ok_or_else(|| root.error("has a malformed tensor map"))?;
                let sizes = map.get("box").and_then(|a| a.as_ints()).unwrap_or_default();
                values.push(Value::TensorMap(std::sync::Arc::new(TensorMap {
                    tensor: self.as_type(launch, memory, i, arg, tensor)?,
                    sizes: sizes.iter().map(|&n| n.max(0) as usize).collect(),
                    swizzle: map.get("swizzle").and_then(|a| a.as_int()).unwrap_or(0).max(0) as usize,
                })));
                continue;
            }
            values.push(Value::Memory(self.as_type(launch, memory, i, &args[i], ty)?));
        }
        Ok(values)
    }

    /// A buffer as a memref of another type with as many bytes.
    fn as_type(&self, launch: OpRef, memory: &mut Memory, i: usize, arg: &MemRef, ty: Type) -> Result<MemRef> {
        let shape = self.shape_of(launch, ty)?;
        let (len, width) = (shape.iter().product::<usize>(), width_of(ty));
        if len * width > arg.len() * arg.width || (len != arg.len() && width == arg.width) {
            return Err(launch.error(format!(
                "passes memory of shape {:?} for argument {i} of type {ty}, which has {shape:?}",
                arg.shape
            )));
        }
        if width != arg.width {
            // Scratch, given in bytes: nothing in it is read before it is written.
            return Ok(memory.unwritten(format!("scratch argument {i}"), shape, width));
        }
        Ok(MemRef { shape: shape.into(), strides: steps_of(ty), ..arg.clone() })
    }
}

/// A planned function while it runs.
struct Planned<'r, 'a> {
    frame: &'r mut Frame<'a>,
    memory: Memory,
    /// The buffer of the arena's bytes, of which views are made.
    arena: Option<usize>,
    /// Views of the arena by offset, number of bytes, and bytes of an element.
    views: BTreeMap<(usize, usize, usize), MemRef>,
}

impl Interpreter<'_> {
    /// Runs a `host.func`: its arguments are `inputs` inputs, the results, and the arena.
    pub(super) fn run_planned(
        &self,
        frame: &mut Frame,
        signature: &Signature,
        args: Vec<Array>,
    ) -> Result<Vec<(Value, Type)>> {
        let body = frame.body;
        let root = body.op_ref(body.root());
        let entry = body.entry().ok_or_else(|| root.error("has no body"))?;
        let mut planned = Planned { memory: Memory::default(), arena: None, views: BTreeMap::new(), frame };
        let names: Vec<_> = body.block_args(entry).collect();
        let mut results = Vec::new();
        let updates = root.ints("updates").unwrap_or_default();
        let left_in = |result: usize| updates.chunks_exact(2).find(|p| p[0] == result as i64).map(|p| p[1] as usize);
        for (i, &name) in names.iter().enumerate() {
            let ty = body.ty(name);
            let memref = if let Some(array) = args.get(i) {
                planned.memory.given(format!("input {i}"), array.clone(), width_of(ty))
            } else if let Some(input) = left_in(i - args.len()).and_then(|input| names.get(input)) {
                let Value::Memory(memref) = planned.frame.get(*input)?.clone() else {
                    return Err(root.error("leaves a result in what is no memory"));
                };
                results.push((memref.clone(), ty));
                memref
            } else if i < signature.outputs() {
                let shape = planned.frame.shape_of(root, ty)?;
                let memref = planned.memory.unwritten(format!("output {}", i - args.len()), shape, width_of(ty));
                results.push((memref.clone(), ty));
                memref
            } else {
                let bytes = planned.frame.sizes(root, "arena")?.first().copied().unwrap_or(0).max(0) as usize;
                // Only views of it hold values.
                let memref =
                    MemRef { shape: [bytes].into(), ..planned.memory.unwritten("the arena".into(), vec![0], 1) };
                planned.arena = Some(memref.buffer);
                memref
            };
            planned.frame.set(name, Value::Memory(memref));
        }
        for op in order::latest_first(body, entry) {
            planned.exec(body.op_ref(op))?;
        }
        let result = |(memref, ty): (MemRef, Type)| {
            let array = planned.memory.array(&memref, ty.elem().is_float());
            array.map(|a| (Value::Array(a), ty)).map_err(|why| root.error(format!("leaves a result incomplete: {why}")))
        };
        results.into_iter().map(result).collect()
    }
}

impl Planned<'_, '_> {
    fn memref(&self, op: OpRef, i: usize) -> Result<MemRef> {
        match self.frame.get(op.operand(i))? {
            Value::Memory(memref) => Ok(memref.clone()),
            _ => Err(op.error("needs memory")),
        }
    }

    fn exec(&mut self, op: OpRef) -> Result {
        match op.name().as_str() {
            op::host::VIEW => {
                let view = self.view(op)?;
                self.frame.set(op.result(0), Value::Memory(view));
            }
            op::host::CONSTANT => {
                let attr = op.attr("value").ok_or_else(|| op.error("needs 'value'"))?;
                let ty = op.body.ty(op.result(0));
                let shape = self.frame.shape_of(op, ty)?;
                let array = match self.frame.constant(op, attr, ty)? {
                    Value::Array(array) => array,
                    scalar => Array::splat(shape, &scalar),
                };
                let memref = self.memory.given("a constant".into(), array, width_of(ty));
                self.frame.set(op.result(0), Value::Memory(memref));
            }
            op::host::COPY => {
                let (from, to) = (self.memref(op, 0)?, self.memref(op, 1)?);
                if from.len() * from.width != to.len() * to.width || from.width != to.width {
                    return Err(op.error(format!("copies {:?} to {:?}", from.shape, to.shape)));
                }
                let float = op.body.ty(op.operand(0)).elem().is_float();
                let array = self.read(op, &from, float)?;
                self.write(&to, &array);
            }
            op::host::ASSERT => {
                let (sizes, expected) = (self.frame.sizes(op, "sizes")?, self.frame.sizes(op, "expected")?);
                if sizes != expected {
                    return Err(op.error(format!("does not hold: the sizes are {sizes:?}, not {expected:?}")));
                }
            }
            op::host::LAUNCH => {
                let args = (0..op.operands().len()).map(|i| self.memref(op, i)).collect::<Result<Vec<_>>>()?;
                self.check_overlap(op, &args)?;
                let callee = op.str("callee").unwrap_or_default();
                let written = written_arguments(self.frame, Name::new(callee));
                self.overwrite(&written.iter().filter_map(|&i| args.get(i)).collect::<Vec<_>>());
                self.frame.launch(op, &mut self.memory, &args)?;
            }
            op::host::FOREIGN => self.foreign(op)?,
            op::host::CALL | op::host::IF | op::host::WHILE | op::host::FOR => self.control(op)?,
            _ => return Err(op.unsupported("in a host.func in the interpreter")),
        }
        Ok(())
    }

    fn read(&self, op: OpRef, from: &MemRef, float: bool) -> Result<Array> {
        self.memory.array(from, float).map_err(|why| op.error(format!("reads what is incomplete: {why}")))
    }

    fn write(&mut self, to: &MemRef, array: &Array) {
        self.overwrite(&[to]);
        self.memory.fill(to, array);
    }

    /// A view of the arena is a buffer of its own; where it overlaps others, writing it makes them lose what they hold.
    fn view(&mut self, op: OpRef) -> Result<MemRef> {
        let source = self.memref(op, 0)?;
        let offset = self.frame.sizes(op, "offset")?.first().copied().unwrap_or(0);
        let ty = op.body.ty(op.result(0));
        let (shape, width) = (self.frame.shape_of(op, ty)?, width_of(ty));
        let bytes = shape.iter().product::<usize>() * width;
        let size = source.len() * source.width;
        if offset < 0 || offset as usize + bytes > size {
            return Err(op.error(format!("views {bytes} bytes from {offset} of memory of {size} bytes")));
        }
        let offset = offset as usize;
        if Some(source.buffer) == self.arena {
            if !offset.is_multiple_of(width) {
                return Err(op.error(format!("starts at byte {offset}, which is not aligned to its elements")));
            }
            let count = shape.iter().product();
            let memory = &mut self.memory;
            let what = format!("the arena's bytes {offset} to {}", offset + bytes);
            let made = || memory.unwritten(what, vec![count], width);
            let known = self.views.entry((offset, bytes, width)).or_insert_with(made);
            return Ok(MemRef { shape: shape.into(), ..known.clone() });
        }
        if width != source.width || !offset.is_multiple_of(width) {
            return Err(op.unsupported("with elements of another size in the interpreter"));
        }
        let strides = steps_of(ty);
        Ok(MemRef { start: source.start + offset / width, shape: shape.into(), strides, ..source })
    }

    /// Where the buffer lies in the arena: offset and bytes.
    fn place(&self, memref: &MemRef) -> Option<(usize, usize)> {
        self.views.iter().find(|v| v.1.buffer == memref.buffer).map(|(&(start, bytes, _), _)| (start, bytes))
    }

    /// Forgets what buffers held that share memory with these.
    fn overwrite(&mut self, targets: &[&MemRef]) {
        for target in targets {
            let Some((start, bytes)) = self.place(target) else { continue };
            let others: Vec<_> = self.views.iter().map(|(&key, view)| (key, view.clone())).collect();
            for ((other, size, _), view) in others {
                let (low, high) = (start.max(other), (start + bytes).min(other + size));
                if view.buffer != target.buffer && low < high {
                    let (first, last) = ((low - other) / view.width, (high - other).div_ceil(view.width));
                    self.memory.forget(view.buffer, first..last);
                }
            }
        }
    }

    /// Two arguments of a launch are the same buffer, or share no byte.
    fn check_overlap(&self, op: OpRef, args: &[MemRef]) -> Result {
        for (i, a) in args.iter().enumerate() {
            for (j, b) in args.iter().enumerate().skip(i + 1) {
                if let (Some((x, n)), Some((y, m))) = (self.place(a), self.place(b))
                    && a.buffer != b.buffer
                    && x < y + m
                    && y < x + n
                {
                    return Err(op.error(format!(
                        "has arguments {i} and {j} that overlap in the arena: bytes {x} to {} and {y} to {}",
                        x + n,
                        y + m
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The numbers of a kernel's arguments that it writes.
fn written_arguments(frame: &Frame, callee: Name) -> Vec<usize> {
    frame.interp.module.symbol(callee).map_or(Vec::new(), |body| kernel::written(body.op_ref(body.root())))
}
