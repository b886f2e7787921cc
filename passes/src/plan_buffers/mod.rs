//! `plan-buffers`: a function of launches on tensors becomes a `host.func` on memory: one arena, every
//! intermediate at a planned offset in it, results written where the caller wants them.
//!
//! First the order of the launches is chosen (`order`), then places (`place`): a portfolio of packings (`pack`) that stops at the lower
//! bound. Under a limit values are computed again (`recompute`). A reshape is another view of the same bytes. Symbolic sizes are packed at an example of them, whose order of places holds for
//! every value (`symbolic`).

mod control;
mod copies;
mod join;
mod linger;
mod lives;
pub(crate) mod order;
pub mod pack;
mod pad;
mod place;
mod recompute;
mod rows;
mod slabs;
mod symbolic;
mod timeline;

use crate::schedule::Target;
use join::{Joins, Kernels};
use lives::{Buffer, Lives, Root};
use rc_dialects::core::foreign::FOREIGN;
use rc_dialects::func::{INIT, SYMBOLS, arg_names, calls, constant_args, symbols};
use rc_dialects::host::{self, ASSERT, CONSTANT, COPY, FUNC, LAUNCH, RETURN, VIEW};
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::pass::{OptionKind, PassContext, PassDef, PassKind, SymbolContext, option, run_on_symbols};
use rc_ir::print::name_in_text;
use rc_ir::{Attr, Body, Builder, Diagnostic, Dim, Module, Name, Op, OpRef, Result, Traits, Type, Value};
pub(crate) use recompute::limit_of;
use rustc_hash::FxHashMap;
use slabs::Slabs;
use timeline::Timeline;

pub static PLAN_BUFFERS: PassDef = PassDef {
    summary: "Gives every tensor its place in memory: arguments, results, one arena.",
    doc: "Buffers whose lives do not meet share memory; a launch that allows it updates an operand in place. \
A result that is to be left in an argument (`rc.updates`) is computed there once nothing reads what the argument holds, else beside it and copied, which a \
remark says. On a GPU a copy of 64 KiB or more is a kernel, \
and an eighth of the second-level cache waits before it is used again, where there is no limit. A remark gives the arena's size \
beside the least that any plan needs, how much is alive over the operations, and who holds the most. Launches are put in another order first where less is alive at once then; a remark has both peaks. \
A module with `rc.memory_limit = BYTES` has that limit in each of its functions.",
    options: &[
        option(
            "limit",
            OptionKind::Int { min: 0, max: i64::MAX },
            "0",
            "An error where the arena takes more bytes, at the greatest values of symbols; before, the order and the places are searched longer, and values are computed again where they are used. 0: the module's `rc.memory_limit`, if any.",
        ),
        option(
            "guard",
            OptionKind::Int { min: 0, max: 1 << 20 },
            "0",
            "Bytes before and after each buffer in the arena that nothing may write to, rounded up to the alignment: compiled for a CPU, the program fills the arena with NaN before each run, and stops at the first kernel that writes there.",
        ),
    ],
    requires: &["lower-kernel"],
    pending: Some(|module| module.bodies.iter().any(is_planned)),
    ..PassDef::new("plan-buffers", |options| {
        let limit = Some(options.int("limit")).filter(|&limit| limit > 0);
        let guard = (options.int("guard") + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        Ok(PassKind::module(move |module: &mut Module, cx: &mut PassContext| run(module, cx, limit, guard)))
    })
};

fn run(module: &mut Module, cx: &mut PassContext, limit: Option<i64>, guard: i64) -> Result {
    let limit = limit.or_else(|| limit_of(module.attrs));
    let limit = limit.map(|bytes| Limit { bytes, prices: recompute::Prices::of(module) });
    let kernels = Kernels::of(module);
    let gpu = Target::of("", "", module.attrs).ok().filter(|target| !target.is_cpu());
    let waiting = gpu.as_ref().filter(|_| guard == 0).map(|target| target.cache_bytes / linger::SHARE);
    let plan = |body: &mut Body, cx: &mut SymbolContext| {
        if is_planned(body) {
            let (planned, remarks) = plan_buffers(body, &kernels, limit.as_ref(), guard, waiting)?;
            *body = planned;
            remarks.into_iter().for_each(|remark| cx.report(Box::new(remark)));
        }
        Ok(())
    };
    let Err(errors) = run_on_symbols(module, None, cx, &plan) else {
        join::specialize(module);
        if gpu.is_some() {
            copies::launch_copies(module);
        }
        return Ok(());
    };
    let mut errors = errors.into_iter();
    let first = errors.next();
    errors.for_each(|error| cx.report(Box::new(error)));
    first.map_or(Ok(()), |error| Err(Box::new(error)))
}

/// A limit to intermediate results, in bytes, and what computing them again takes.
pub struct Limit {
    bytes: i64,
    prices: recompute::Prices,
}

/// Alignment of buffers in the arena, in bytes.
pub const ALIGNMENT: i64 = 256;

/// Plans the memory of a function; gives the `host.func` and remarks with the numbers. `guard`: bytes around each buffer; `waiting`, on a GPU, where
/// callers may hold the arena in slabs: how many bytes wait before they are used again.
///
/// # Errors
/// If the buffers' sizes are more than 63 bits hold, or the arena is larger than the limit.
pub fn plan_buffers(
    body: &mut Body,
    kernels: &Kernels,
    limit: Option<&Limit>,
    guard: i64,
    waiting: Option<i64>,
) -> Result<(Body, Vec<Diagnostic>)> {
    let reordered = order::reorder(body, limit.is_some());
    let mut again = recompute::Again::default();
    let (mut lives, mut placement) = placed(body, kernels, limit, guard, waiting)?;
    let before = placement.planned;
    let mut wanted = limit.map_or(i64::MAX, |limit| limit.bytes);
    while let Some(limit) = limit.filter(|limit| placement.planned > limit.bytes) {
        let more = recompute::lower(body, wanted, &limit.prices)?;
        if more.values == 0 {
            break;
        }
        again.add(more);
        (lives, placement) = placed(body, kernels, Some(limit), guard, waiting)?;
        // Places may waste what is free.
        wanted = wanted.min(placement.bound) - wanted / WASTE;
    }
    let loc = body.loc(body.root());
    let timeline = Timeline::of(&lives.buffers, &placement.sizes);
    if let Some(limit) = limit.map(|limit| limit.bytes).filter(|&limit| placement.planned > limit) {
        let text = format!("the limit of {limit} bytes is not kept: intermediate results take {}", placement.planned);
        let anew = if again.values > 0 { format!(", with {again}") } else { String::new() };
        let help = match placement.bound > limit {
            true => format!("no places for these launches in this order take less than {}{anew}", placement.bound),
            false => format!("other places may keep it, which were not found{anew}"),
        };
        return Err(timeline.explain(body, Diagnostic::error(loc, text)).help(help));
    }
    let kept = (again.values > 0).then(|| {
        let text = format!("{again}: intermediate results take {} bytes, {before} without that", placement.planned);
        *Diagnostic::remark(loc, text)
    });
    let remark = timeline.explain(body, Diagnostic::remark(loc, remark(&lives.buffers, &placement)));
    let slabs = waiting.and_then(|_| Slabs::of(body, &lives, &placement));
    let divided = slabs.as_ref().map(|slabs| slabs.remark(body));
    let remarks = reordered.into_iter().chain(kept).chain([*remark]).chain(divided);
    let remarks = remarks.chain(lives.joins().remarks(body)).chain(lives.copied(body)).collect();
    Ok((Rewriter::rewrite(body, &lives, &placement, slabs.as_ref(), guard)?, remarks))
}

/// The part of a limit by which less is to be alive where places do not keep it.
const WASTE: i64 = 64;

/// The function's buffers and their places. Under a limit no memory waits.
fn placed(
    body: &Body,
    kernels: &Kernels,
    limit: Option<&Limit>,
    guard: i64,
    waiting: Option<i64>,
) -> Result<(Lives, place::Placement)> {
    let mut lives = Lives::of(body, Joins::of(body, kernels))?;
    for buffer in lives.buffers.iter_mut().filter(|b| b.result.is_none()) {
        buffer.size = buffer.size + Dim::Static(2 * guard);
    }
    let symbols = symbols(body);
    let planned = || match waiting.filter(|_| limit.is_none()) {
        Some(bytes) => {
            place::place_apart(&lives.buffers, &linger::linger(&lives.buffers, bytes, lives.end()), &symbols)
        }
        None => place::place(&lives.buffers, &symbols, limit.map(|limit| limit.bytes)),
    };
    let error = |why: String| Diagnostic::error(body.loc(body.root()), format!("not supported: {why}"));
    let placement = planned().map_err(error)?;
    Ok((lives, placement))
}

fn remark(buffers: &[Buffer], placement: &place::Placement) -> String {
    let total = buffers.iter().fold(Dim::Static(0), |sum, b| sum + b.size);
    let count = buffers.len();
    let place::Placement { size, bound, planned, .. } = placement;
    match size.is_static() {
        true => format!(
            "{count} buffers of {total} bytes in all lie in an arena of {size} bytes; no plan needs less than {bound}"
        ),
        false => format!(
            "{count} buffers of {total} bytes in all lie in an arena of {size} bytes; at the symbols' greatest values {planned} were planned, and no plan needs less than {bound}"
        ),
    }
}

/// Whether an operation gives other sizes to the same bytes.
fn is_view(body: &Body, op: Op) -> bool {
    body.name(op) == op::core::RESHAPE
}

/// A tensor's type in memory.
pub fn memref_of(ty: Type) -> Type {
    Type::memref(&ty.shape(), ty.elem(), 0)
}

/// The bytes of a tensor, rounded up to the alignment.
pub fn bytes_of(ty: Type) -> Dim {
    let bytes = ty.num_elements() * Dim::Static(ty.elem().byte_width().unwrap_or(8) as i64);
    bytes.ceildiv(Dim::Static(ALIGNMENT)) * Dim::Static(ALIGNMENT)
}

struct Rewriter<'a> {
    from: &'a Body,
    lives: &'a Lives,
    placement: &'a place::Placement,
    slabs: Option<&'a Slabs>,
    /// Memory by tensor value.
    memory: FxHashMap<Value, Value>,
    arguments: Vec<Value>,
    results: Vec<Value>,
    arena: Value,
    guard: i64,
}

impl Rewriter<'_> {
    fn rewrite(
        from: &Body,
        lives: &Lives,
        placement: &place::Placement,
        slabs: Option<&Slabs>,
        guard: i64,
    ) -> Result<Body> {
        let root = from.op_ref(from.root());
        let (inputs, results) = root.attr("function_type").and_then(|t| t.as_type()?.as_function()).expect("verified");
        let arena = Type::memref(&[Dim::Dynamic], Type::i8(), 0);
        let types: Vec<Type> = inputs.iter().chain(results).map(|&t| memref_of(t)).chain([arena]).collect();
        let name = from.symbol().unwrap_or_default();
        let mut new = new_function(&FUNC, name.as_str(), &types, &[], root.loc());
        let target = new.body.root();
        for kept in [SYMBOLS, INIT, "sym_visibility"] {
            if let Some(attr) = from.attr(from.root(), kept) {
                new.body.set_attr(target, kept, attr);
            }
        }
        new.body.set_attr(target, "inputs", Attr::i64(inputs.len() as i64));
        new.body.set_attr(target, "arena", Attr::shape(&[placement.size]));
        if guard > 0 {
            new.body.set_attr(target, "guard", Attr::i64(guard));
        }
        if let Some(slabs) = slabs {
            new.body.set_attr(target, "slabs", Attr::i64s(&slabs.ranges()));
        }
        let entry = from.entry().expect("planned functions have a body");
        let is_read = |&i: &usize| from.has_uses(from.block_arg(entry, i));
        let constant: Vec<i64> = constant_args(from).into_iter().filter(is_read).map(|i| i as i64).collect();
        if !constant.is_empty() {
            new.body.set_attr(target, "constant", Attr::i64s(&constant));
        }
        let called = arg_names(from);
        if from.block_args(entry).zip(&called).any(|(arg, &name)| name_in_text(from.value_name(arg)) != name) {
            let names: Vec<Attr> = called.iter().map(|name| Attr::str(name.as_str())).collect();
            new.body.set_attr(target, "names", Attr::array(&names));
        }
        let updated = lives.updated(from);
        if !updated.is_empty() {
            new.body.set_attr(target, "updated", Attr::i64s(&updated));
        }
        let left = lives.updates.iter().enumerate().filter_map(|(i, arg)| Some([i as i64, (*arg)? as i64]));
        let left: Vec<i64> = left.flatten().collect();
        if !left.is_empty() {
            new.body.set_attr(target, "updates", Attr::i64s(&left));
        }
        let mut memory = FxHashMap::default();
        let mut names = Vec::new();
        for (i, arg) in from.block_args(entry).enumerate() {
            new.body.set_value_name(new.args[i], from.value_name(arg));
            names.push(from.value_name(arg));
            memory.insert(arg, new.args[i]);
        }
        let arguments = new.args[..inputs.len()].to_vec();
        let results = new.args[inputs.len()..inputs.len() + results.len()].to_vec();
        let arena = *new.args.last().expect("an arena");
        new.body.set_value_name(arena, Name::new("arena"));
        let mut rewriter = Rewriter { from, lives, placement, slabs, memory, arguments, results, arena, guard };
        let mut b = Builder::at_end(&mut new.body, new.entry);
        for op in from.ops(entry) {
            b.loc = from.loc(op);
            rewriter.op(&mut b, from.op_ref(op))?;
        }
        Ok(new.body)
    }

    fn op(&mut self, b: &mut Builder, op: OpRef) -> Result {
        match op.name() {
            name if name == &LAUNCH => self.launch(b, op),
            name if name == &FOREIGN => self.foreign(b, op),
            name if name == op::func::RETURN => self.finish(b, op),
            name if name == op::core::RESHAPE => {
                let source = self.memory[&op.operand(0)];
                let to = self.memory_type(op.result(0));
                let view = view(b, source, Dim::Static(0), to);
                self.define(b, op.result(0), view);
                Ok(())
            }
            name if name == op::core::ASSUME_SHAPE => self.assume(b, op),
            _ if op.has(Traits::CONSTANT) => {
                let value = op.attr("value").ok_or_else(|| op.error("has no value"))?;
                let memory = b.op(&CONSTANT).attr("value", value).result(memref_of(op.body.ty(op.result(0)))).value();
                self.define(b, op.result(0), memory);
                Ok(())
            }
            _ if !calls(op).is_empty() => self.call(b, op),
            _ => Err(op.unsupported("between launches").help("run fuse, lower-loops and lower-kernel first")),
        }
    }

    /// The same bytes, by sizes that are checked when the program runs.
    fn assume(&mut self, b: &mut Builder, op: OpRef) -> Result {
        let (value, result) = (op.operand(0), op.result(0));
        let (from, to) = (op.body.ty(value).shape(), op.body.ty(result).shape());
        let entry = self.from.entry().expect("planned functions have a body");
        let known = symbols_of(self.from.block_args(entry).flat_map(|arg| self.from.ty(arg).shape()));
        if let Some(new) = symbols_of(to.iter().copied()).into_iter().find(|name| !known.contains(name)) {
            let error = op.unsupported(format!("that gives the symbol '{new}' its value, in compiled code"));
            return Err(error.help("give an argument of the function a dimension of this size"));
        }
        let differ: Vec<(Dim, Dim)> = from.iter().copied().zip(to.iter().copied()).filter(|(a, b)| a != b).collect();
        if !differ.is_empty() {
            let [sizes, expected] = [0, 1].map(|i| {
                let side: Vec<Dim> = differ.iter().map(|d| if i == 0 { d.0 } else { d.1 }).collect();
                Attr::shape(&side)
            });
            b.op(&ASSERT).attr("sizes", sizes).attr("expected", expected).build();
        }
        let view = view(b, self.memory[&value], Dim::Static(0), self.memory_type(result));
        self.define(b, result, view);
        Ok(())
    }

    fn define(&mut self, b: &mut Builder, value: Value, memory: Value) {
        // An argument keeps its name, whatever is left in it.
        if !self.arguments.contains(&memory) {
            b.body.set_value_name(memory, self.from.value_name(value));
        }
        self.memory.insert(value, memory);
    }

    /// The type of a value's memory.
    fn memory_type(&self, value: Value) -> Type {
        self.lives.joins().memory(value).unwrap_or_else(|| memref_of(self.from.ty(value)))
    }

    /// The memory of a buffer: the caller's for a result, a view of the arena otherwise.
    fn buffer(&self, b: &mut Builder, index: usize, ty: Type) -> Value {
        match self.lives.buffers[index].result {
            Some(i) => view(b, self.results[i], Dim::Static(0), memref_of(ty)),
            None => {
                let offset = self.placement.offsets[index] + Dim::Static(self.guard);
                let buffer = view(b, self.arena, offset, memref_of(ty));
                if let Some(slab) = self.slabs.and_then(|slabs| slabs.of_buffer(index)) {
                    let op = b.body.defining_op(buffer).expect("a view");
                    b.body.set_attr(op, "slab", Attr::i64(slab as i64));
                }
                buffer
            }
        }
    }

    /// The memory of an operation's results.
    fn results(&mut self, b: &mut Builder, op: OpRef) -> Result<Vec<Value>> {
        let mut memories = Vec::new();
        for result in op.results() {
            let ty = op.body.ty(result);
            let memory = match self.lives.root(result) {
                Root::Buffer(index) => match self.lives.joins().part(result) {
                    Some(part) => {
                        let whole = self.buffer(b, index, self.from.ty(part.whole));
                        view(b, whole, part.offset, self.memory_type(result))
                    }
                    None => self.buffer(b, index, ty),
                },
                Root::Donated(i) => view(b, self.arguments[i], Dim::Static(0), memref_of(ty)),
                _ => return Err(op.error("gives a result without memory")),
            };
            self.define(b, result, memory);
            memories.push(memory);
        }
        Ok(memories)
    }

    fn scratch(&self, op: OpRef) -> &[usize] {
        self.lives.scratch.get(&op.op).map_or(&[], Vec::as_slice)
    }

    /// Copies operands to the results that begin as them.
    fn begin(&self, b: &mut Builder, op: OpRef) {
        for pair in op.ints("updates").unwrap_or_default().chunks(2) {
            let (result, input) = (op.result(pair[0] as usize), op.operand(pair[1] as usize));
            if self.lives.root(result) != self.lives.root(input) {
                b.op(&COPY).operands(&[self.memory[&input], self.memory[&result]]).build();
            }
        }
    }

    fn foreign(&mut self, b: &mut Builder, op: OpRef) -> Result {
        let args: Vec<Value> = op.operands().map(|v| self.memory[&v]).collect();
        let results = self.results(b, op)?;
        self.begin(b, op);
        let call = b.op(&host::FOREIGN).operands(&args).operands(&results);
        let kept = ["function", "config", "sizes"].into_iter().filter_map(|n| Some((Name::new(n), op.attr(n)?)));
        call.attrs(Attr::dict(kept)).build();
        Ok(())
    }

    fn launch(&mut self, b: &mut Builder, op: OpRef) -> Result {
        if self.lives.joins().is_left_out(op.op) {
            let results = self.results(b, op)?;
            // What is around padded memory is filled; see `join::specialize`.
            if op.attr("pads").is_some() {
                let attrs = ["callee", "bind", "pads", "padding"].map(|name| (Name::new(name), op.attr(name)));
                let kept = attrs.into_iter().filter_map(|(name, attr)| Some((name, attr?)));
                b.op(&LAUNCH).operands(&results).attrs(Attr::dict(kept)).results(&[]).build();
            }
            return Ok(());
        }
        let mut args: Vec<Value> = op.operands().map(|v| self.memory[&v]).collect();
        let results = self.results(b, op)?;
        self.begin(b, op);
        args.extend(results);
        for &index in self.scratch(op) {
            let bytes = self.lives.buffers[index].size - Dim::Static(2 * self.guard);
            args.push(self.buffer(b, index, Type::tensor(&[bytes], Type::i8())));
        }
        let mut attrs = op.body.attrs(op.op);
        for gone in ["scratch", "inplace", "updates", "joins", "pads", "padding"] {
            attrs = attrs.with(Name::new(gone), None);
        }
        b.op(&LAUNCH).operands(&args).attrs(attrs).results(&[]).build();
        Ok(())
    }

    fn finish(&mut self, b: &mut Builder, op: OpRef) -> Result {
        let values: Vec<Value> = op.operands().collect();
        let copy = |b: &mut Builder, from: Value, to: Value| _ = b.op(&COPY).operands(&[from, to]).build();
        // What arguments hold is read before anything is written to them.
        for (i, value) in values.iter().enumerate().filter(|&(i, _)| self.lives.updates[i].is_none()) {
            let written = matches!(self.lives.root(*value), Root::Buffer(b) if self.lives.buffers[b].result == Some(i));
            if !written {
                copy(b, self.memory[value], self.results[i]);
            }
        }
        let mut between = self.scratch(op).to_vec().into_iter();
        let mut left: Vec<(Value, usize)> = Vec::new();
        for (i, &value) in values.iter().enumerate() {
            let Some(arg) = self.lives.updates[i].filter(|&arg| self.lives.root(value) != Root::Donated(arg)) else {
                continue;
            };
            let mut from = self.memory[&value];
            if self.lives.moves(i, value) {
                let place = self.buffer(b, between.next().expect("one for each"), op.body.ty(value));
                copy(b, from, place);
                from = place;
            }
            left.push((from, arg));
        }
        left.into_iter().for_each(|(from, arg)| copy(b, from, self.arguments[arg]));
        b.op(&RETURN).build();
        Ok(())
    }
}

/// The same memory from a byte on, as another type.
fn view(b: &mut Builder, memory: Value, offset: Dim, to: Type) -> Value {
    if b.ty(memory) == to && offset == Dim::Static(0) {
        return memory;
    }
    b.op(&VIEW).operand(memory).attr("offset", Attr::shape(&[offset])).result(to).value()
}

fn symbols_of(dims: impl Iterator<Item = Dim>) -> Vec<Name> {
    let mut out = Vec::new();
    dims.for_each(|d| d.for_each_symbol(&mut |name| out.push(name)));
    out
}

/// The functions of a module that can be planned: those with a body of launches.
pub fn is_planned(body: &Body) -> bool {
    body.name(body.root()) == op::func::FUNC && body.entry().is_some()
}
