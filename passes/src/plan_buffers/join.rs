//! Concatenations and paddings without copies: the parts are computed where they lie in the result, each in a strided part of its memory.
//!
//! A launch that does nothing but concatenate or pad says so (`joins`, `pads`). It is left out where its operands are results of other launches, and all kernels
//! that write or read those can do so at other strides. Each of these is then a kernel of its own, which takes strided memrefs. What is around a padded operand
//! is filled by a small kernel.

use super::is_view;
use super::lives::viewed;
use super::pad::Padding;
use super::rows::{self, Divided};
use rc_dialects::func::updated_args;
use rc_dialects::host::{FUNC, LAUNCH};
use rc_dialects::op;
use rc_dialects::op::kernel::{GATHER, LOAD, READ, STORE, VIEW, WRITE};
use rc_ir::{Attr, Body, Diagnostic, Dim, Module, Name, Op, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

/// Bytes at whose multiples parts and their rows must lie: the widest accesses and tensor maps ask for it.
const ACCESS: i64 = 16;

/// What each kernel does with its arguments.
pub struct Kernels(FxHashMap<Name, Vec<Argument>>);

struct Argument {
    /// The types that it is seen as; `None` where it is used by other than loads and stores.
    seen: Option<Vec<Type>>,
    /// The sizes of its tiles along each dimension, where each starts at a multiple of them.
    tiles: Option<Vec<Option<Vec<i64>>>>,
}

impl Argument {
    fn of(body: &Body, arg: Value) -> Argument {
        let types = |values: Vec<Value>| values.into_iter().map(|value| body.ty(value)).collect();
        Argument { seen: seen_as(body, arg).map(types), tiles: rows::tiles(body, arg) }
    }
    /// Whether its memory can have this type: other strides, or rows that are the places of several dimensions.
    fn can_be(&self, ty: Type) -> bool {
        let Some(seen) = self.seen.as_ref().filter(|_| has_rows(ty)) else { return false };
        let at_strides = |own: Type| seen.iter().all(|ty| own.seen_as(&ty.shape()).is_some_and(has_rows));
        let divided = || Some(Divided::of(seen[0], ty)?.holds(self.tiles.as_ref()?));
        strided(seen[0], ty).is_some_and(at_strides) || divided() == Some(true)
    }
}

impl Kernels {
    pub fn of(module: &Module) -> Kernels {
        let arguments = |body: &Body| -> Option<Vec<_>> {
            Some(body.block_args(body.entry()?).map(|arg| Argument::of(body, arg)).collect())
        };
        let kernels = module.bodies.iter().filter(|body| is_kernel(body));
        Kernels(kernels.filter_map(|body| Some((body.symbol()?, arguments(body)?))).collect())
    }

    /// Whether a kernel can take an argument in memory of type `ty`.
    fn takes(&self, callee: Name, argument: usize, ty: Type) -> bool {
        self.0.get(&callee).and_then(|arguments| arguments.get(argument)).is_some_and(|found| found.can_be(ty))
    }
}

fn is_kernel(body: &Body) -> bool {
    body.name(body.root()) == op::kernel::FUNC
}

/// Whether the elements along a memref's last dimension are neighbours, as kernels take them to be.
fn has_rows(ty: Type) -> bool {
    ty.strides().and_then(|strides| strides.last().copied()).is_none_or(|last| last == Dim::Static(1))
}

/// The memory of a memref of as many dimensions, in this one's shape; `None` where no strides give that.
fn strided(ty: Type, like: Type) -> Option<Type> {
    like.seen_as(&ty.shape()).filter(|_| like.rank() == ty.rank())
}

/// Memory and all views of it; `None` where it is used by other than loads and stores.
fn seen_as(body: &Body, memory: Value) -> Option<Vec<Value>> {
    let mut out = vec![memory];
    for (op, operand) in body.uses(memory) {
        match (body.name(op).as_str(), operand) {
            (LOAD | GATHER | READ, 0) | (STORE | WRITE, 1) => {}
            (VIEW, 0) if body.operands(op).len() == 1 => out.extend(seen_as(body, body.result(op, 0))?),
            _ => return None,
        }
    }
    Some(out)
}

/// Where a launch's result lies.
#[derive(Clone, Copy)]
pub struct Part {
    /// The concatenation's result.
    pub whole: Value,
    /// The first byte in it.
    pub offset: Dim,
}

/// The parts of concatenations and paddings that are computed in place.
#[derive(Default)]
pub struct Joins {
    parts: FxHashMap<Value, Part>,
    /// The strided memory of parts and of views of them.
    types: FxHashMap<Value, Type>,
    left_out: FxHashSet<Op>,
}

/// Whether a launch does nothing but concatenate or pad.
fn only_places(body: &Body, op: Op) -> bool {
    body.name(op) == &LAUNCH && ["joins", "pads"].iter().any(|name| body.attr(op, name).is_some())
}

impl Joins {
    pub fn of(body: &Body, kernels: &Kernels) -> Joins {
        let mut joins = Joins::default();
        let ops: Vec<Op> = body.entry().map(|entry| body.ops(entry).collect()).unwrap_or_default();
        let end: Vec<Value> =
            ops.last().map(|&end| body.operands(end).map(|v| viewed(body, v)).collect()).unwrap_or_default();
        for &op in ops.iter().filter(|&&op| only_places(body, op)) {
            let left = end.iter().zip(updated_args(body)).any(|(&v, arg)| v == body.result(op, 0) && arg.is_some());
            if !left {
                joins.join(body, kernels, op, &end);
                joins.pad(body, kernels, op, &end);
            }
        }
        joins
    }

    pub fn part(&self, value: Value) -> Option<Part> {
        self.parts.get(&value).copied()
    }

    /// The memory of a part, or of a view of one.
    pub fn memory(&self, value: Value) -> Option<Type> {
        self.types.get(&value).copied()
    }

    pub fn is_left_out(&self, op: Op) -> bool {
        self.left_out.contains(&op)
    }

    /// What is not copied.
    pub fn remarks(&self, body: &Body) -> Vec<Diagnostic> {
        let ops = body.entry().into_iter().flat_map(|entry| body.ops(entry)).filter(|op| self.is_left_out(*op));
        let text = |op: Op| match body.operands(op).len() {
            _ if body.attr(op, "pads").is_some() => {
                "what it pads is computed in its memory: only what is around it is written".to_string()
            }
            parts => format!("its {parts} parts are computed in its memory: nothing is copied"),
        };
        ops.map(|op| *Diagnostic::remark(body.loc(op), text(op))).collect()
    }

    /// The parts of a whole.
    pub fn parts_of(&self, whole: Value) -> impl Iterator<Item = Value> {
        self.parts.iter().filter(move |(_, part)| part.whole == whole).map(|(&value, _)| value)
    }

    /// Puts the parts of a concatenation into its result, where all of them can be there. `given`: what the function gives back.
    fn join(&mut self, body: &Body, kernels: &Kernels, op: Op, given: &[Value]) -> Option<()> {
        let whole = body.result(op, 0);
        let width = Dim::Static(body.ty(whole).elem().byte_width()? as i64);
        let aligned = |elements: Dim| (elements * width).modulo(Dim::Static(ACCESS)) == Dim::Static(0);
        let (&rows, places) = body.attr(op, "joins")?.as_shape()?.split_first()?;
        let pitch = places.iter().skip(1).step_by(2).fold(Dim::Static(0), |sum, &columns| sum + columns);
        let (mut parts, mut types) = (Vec::new(), Vec::new());
        for (value, place) in body.operands(op).zip(places.chunks_exact(2)) {
            let part = viewed(body, value);
            let memory = part_of(body.ty(value), rows, place[1], pitch)?;
            let taken = self.parts.contains_key(&part) || parts.iter().any(|&(other, _)| other == part);
            let fits = aligned(place[0]) && (memory.is_row_major() || aligned(pitch));
            if taken || given.contains(&part) || !fits || !self.is_free(body, kernels, part, op, memory, &mut types) {
                return None;
            }
            parts.push((part, Part { whole, offset: place[0] * width }));
        }
        self.parts.extend(parts);
        self.types.extend(types);
        self.left_out.insert(op);
        Some(())
    }

    /// Puts what is padded into the result, where it can be there.
    fn pad(&mut self, body: &Body, kernels: &Kernels, op: Op, given: &[Value]) -> Option<()> {
        let padding = Padding::of(body.op_ref(op))?;
        let (whole, part) = (body.result(op, 0), viewed(body, body.operands(op).next()?));
        let elem = body.ty(whole).elem();
        let (memory, width) = (padding.memory(elem), elem.byte_width()? as i64);
        let mut types = Vec::new();
        let is_aligned = |elements: i64| elements * width % ACCESS == 0;
        let (last, rows) = padding.strides().split_last().map(|(&last, rows)| (last, rows.to_vec()))?;
        let fits = last == 1 && rows.into_iter().all(is_aligned) && is_aligned(padding.offset());
        if !fits
            || self.parts.contains_key(&part)
            || given.contains(&part)
            || !self.is_free(body, kernels, part, op, memory, &mut types)
        {
            return None;
        }
        self.parts.insert(part, Part { whole, offset: Dim::Static(padding.offset() * width) });
        self.types.extend(types);
        self.left_out.insert(op);
        Some(())
    }

    /// Whether a launch's result can lie at these strides for all that writes or reads it; adds its memory and that of its views.
    fn is_free(
        &self,
        body: &Body,
        kernels: &Kernels,
        part: Value,
        join: Op,
        memory: Type,
        types: &mut Vec<(Value, Type)>,
    ) -> bool {
        let Some(writer) =
            body.defining_op(part).filter(|&op| body.name(op) == &LAUNCH && !self.left_out.contains(&op))
        else {
            return false;
        };
        let number = body.results(writer).position(|result| result == part).unwrap_or(0);
        let shape = body.ty(part).shape();
        let divided = || memory.seen_as(&rows::common(&memory.shape(), &shape)?);
        let own = memory.seen_as(&shape).or_else(divided).unwrap_or(memory);
        let writes = takes(body, kernels, writer, body.operands(writer).len() + number, own);
        let begins = super::lives::begins_as_operand(body, writer, number);
        writes && !begins && self.are_free(body, kernels, part, join, own, types)
    }

    fn are_free(
        &self,
        body: &Body,
        kernels: &Kernels,
        value: Value,
        join: Op,
        memory: Type,
        types: &mut Vec<(Value, Type)>,
    ) -> bool {
        types.push((value, memory));
        body.uses(value).all(|(user, operand)| match body.name(user) {
            _ if user == join => true,
            name if name == &LAUNCH => {
                takes(body, kernels, user, operand, memory) && !super::lives::is_updated(body, user, operand)
            }
            _ if is_view(body, user) => {
                let view = body.result(user, 0);
                let memory = memory.seen_as(&body.ty(view).shape());
                memory.is_some_and(|memory| self.are_free(body, kernels, view, join, memory, types))
            }
            _ => false,
        })
    }
}

fn takes(body: &Body, kernels: &Kernels, launch: Op, argument: usize, ty: Type) -> bool {
    let callee = body.op_ref(launch).str("callee").map(Name::new);
    callee.is_some_and(|callee| kernels.takes(callee, argument, ty))
}

/// The memory of a tensor that is some columns of rows that lie `pitch` elements apart.
fn part_of(ty: Type, rows: Dim, columns: Dim, pitch: Dim) -> Option<Type> {
    if rows == Dim::Static(1) {
        return Some(super::memref_of(ty));
    }
    let strides = [pitch, Dim::Static(1)];
    let table = Type::memref(&[rows, columns], ty.elem(), 0).with_strides(&strides);
    table.seen_as(&ty.shape()).filter(|_| pitch.is_static())
}

/// Gives launches on strided memory kernels that take it, and what is around padded memory kernels that fill it; kernels that nothing launches any more are dropped.
pub fn specialize(module: &mut Module) {
    fill_around(module);
    let mut made: FxHashMap<(Name, Vec<Type>), Name> = FxHashMap::default();
    for index in 0..module.bodies.len() {
        let body = &module.bodies[index];
        if body.name(body.root()) != &FUNC {
            continue;
        }
        let launches: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &LAUNCH).collect();
        for op in launches {
            let body = &module.bodies[index];
            let types: Vec<Type> = body.operands(op).map(|v| body.ty(v)).collect();
            let Some(callee) = body.op_ref(op).str("callee").map(Name::new) else { continue };
            if types.iter().all(|ty| ty.is_row_major()) {
                continue;
            }
            let Some(kernel) = module.symbol(callee) else { continue };
            let name = match made.entry((callee, types)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let mut kernel = with_strides(kernel, &new.key().1);
                    let name = *new.insert(module.fresh_symbol(callee.as_str()));
                    let root = kernel.root();
                    kernel.set_attr(root, "sym_name", Attr::str(name.as_str()));
                    module.bodies.push(kernel);
                    name
                }
            };
            module.bodies[index].set_attr(op, "callee", Attr::str(name.as_str()));
        }
    }
    if !made.is_empty() {
        drop_unused(module);
    }
}

/// Has the launches that say what they pad fill what is around it.
fn fill_around(module: &mut Module) {
    let mut made: FxHashMap<(Padding, Type), Name> = FxHashMap::default();
    for index in 0..module.bodies.len() {
        let body = &module.bodies[index];
        let launches: Vec<Op> = body.walk().into_iter().filter(|&op| body.name(op) == &LAUNCH).collect();
        for op in launches {
            let body = &module.bodies[index];
            let Some(padding) = Padding::of(body.op_ref(op)) else { continue };
            let (memory, loc) = (body.ty(body.operand(op, 0)), body.loc(op));
            let name = match made.entry((padding, memory)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let name = module.fresh_symbol("pad");
                    module.bodies.push(new.key().0.kernel(name.as_str(), memory, loc));
                    *new.insert(name)
                }
            };
            let body = &mut module.bodies[index];
            body.set_attr(op, "callee", Attr::str(name.as_str()));
            ["pads", "padding"].iter().for_each(|name| body.remove_attr(op, name));
        }
    }
}

/// The kernel on arguments with the strides of these memrefs.
fn with_strides(kernel: &Body, types: &[Type]) -> Body {
    let mut kernel = kernel.clone();
    let arguments: Vec<Value> = kernel.entry().map(|entry| kernel.block_args(entry).collect()).unwrap_or_default();
    for (&arg, &ty) in arguments.iter().zip(types).filter(|(_, ty)| !ty.is_row_major()) {
        if let Some(divided) = Divided::of(kernel.ty(arg), ty) {
            divided.divide(&mut kernel, arg, ty);
            continue;
        }
        let own = strided(kernel.ty(arg), ty).expect("checked when it was joined");
        for seen in seen_as(&kernel, arg).expect("checked when it was joined") {
            let ty = own.seen_as(&kernel.ty(seen).shape()).expect("checked when it was joined");
            kernel.set_ty(seen, ty);
        }
    }
    let types: Vec<Type> = arguments.iter().map(|&arg| kernel.ty(arg)).collect();
    let root = kernel.root();
    kernel.set_attr(root, "function_type", Attr::ty(Type::function(&types, &[])));
    kernel
}

fn drop_unused(module: &mut Module) {
    let callees = |body: &Body| {
        body.walk().into_iter().filter_map(|op| body.op_ref(op).str("callee").map(Name::new)).collect::<Vec<_>>()
    };
    let used: FxHashSet<Name> = module.bodies.iter().flat_map(callees).collect();
    module.bodies.retain(|body| !is_kernel(body) || body.symbol().is_none_or(|name| used.contains(&name)));
}
