//! Buckets: sizes are filled up to the next of a few, so that few programs, each of fixed sizes, serve all calls.
//!
//! That is right where what a result has for one index along a size follows from what the arguments have there, and from nothing that knows how many
//! there are: rows of a batch. Rows past the last are copies of the first, so that nothing is computed that the caller could not have asked for, and are cut
//! off again; both are part of the kernels.

use crate::Target;
use crate::pipeline::early;
use rc_dialects::func::{self, SymbolDecl, set_symbols};
use rc_dialects::loop_::{self, IterKind, Nest};
use rc_dialects::op;
use rc_ir::pass::PassManager;
use rc_ir::{Attr, AttrData, Body, Builder, Dim, Module, Name, Op, OpRef, Type, Value};
use rc_parser::pipeline::parse_pipeline;
use std::collections::HashMap;

/// Why sizes of a symbol cannot be filled up, of a module's first function, for each symbol; `None` where they can be, to at most `largest`.
pub fn refusals(module: &Module, target: &Target, largest: i64) -> Vec<(Name, Option<String>)> {
    let Some(first) = module.bodies.iter().find(|body| !body.is_private()) else { return Vec::new() };
    let lowered = lowered(module, target);
    let why = |symbol: Name| match &lowered {
        Ok(lowered) => Check { module: lowered, largest }.function(symbol).err(),
        Err(why) => Some(why.clone()),
    };
    func::symbols(first).into_iter().map(|symbol| (symbol.name, why(symbol.name))).collect()
}

fn lowered(module: &Module, target: &Target) -> Result<Module, String> {
    let mut module = module.clone();
    target.set_on(&mut module);
    let first = |errors: Vec<rc_ir::Diagnostic>| errors.first().map(|e| e.message.clone()).unwrap_or_default();
    let passes = parse_pipeline("buckets", &format!("{}lower-loops", early(target))).map_err(first)?;
    let report = PassManager::new(passes).run(&mut module);
    if report.succeeded() { Ok(module) } else { Err(first(report.errors)) }
}

/// What is looked at: a module of nests.
struct Check<'a> {
    module: &'a Module,
    largest: i64,
}

type Checked = Result<(), String>;

/// Of values that have rows in one dimension with others, how many elements lie before each row dimension that they were made of: elements of the same place
/// are of the same row where this is the same.
type Flat = HashMap<Value, Before>;
type Before = Vec<Dim>;

impl Check<'_> {
    fn function(&self, symbol: Name) -> Checked {
        let body = self.module.bodies.iter().find(|body| !body.is_private()).ok_or("there is no function")?;
        if func::updated_args(body).iter().any(Option::is_some) {
            return Err("the function updates arguments".into());
        }
        let mut flat = Flat::new();
        for op in body.walk() {
            let at = body.op_ref(op);
            let name = at.name();
            if op == body.root() {
                let ty = at.attr("function_type").and_then(Attr::as_type).and_then(Type::as_function);
                let (inputs, results) = ty.unwrap_or_default();
                inputs.iter().chain(results).try_for_each(|&ty| plain(ty, symbol, "an argument or a result"))?;
            } else if name == &loop_::LAUNCH {
                self.launch(at, symbol, &mut flat)?;
            } else if name.as_str() == op::core::RESHAPE {
                reshape(at, symbol, &mut flat)?;
            } else if name.as_str() != op::func::RETURN {
                refuse(at, symbol)?;
            }
        }
        Ok(())
    }

    fn launch(&self, at: OpRef, symbol: Name, flat: &mut Flat) -> Checked {
        let callee = at.attr("callee").and_then(|a| a.as_str()).map(Name::new);
        let kernel = callee.and_then(|name| self.module.symbol(name)).ok_or("a kernel is missing")?;
        for (name, dim) in func::bindings(at).into_iter().filter(|(_, dim)| mentions(*dim, symbol)) {
            if dim != Dim::symbol(symbol) {
                return Err(format!("a kernel works on {dim}"));
            }
            let args: Vec<Option<Before>> = at.operands().map(|value| flat.get(&value).cloned()).collect();
            let results = self.kernel(kernel, name, &args)?;
            let known = at.results().zip(results).filter_map(|(value, before)| Some((value, before?)));
            flat.extend(known);
        }
        Ok(())
    }

    /// Of each result of a kernel how many elements lie before its rows, where it has them in one dimension with others.
    fn kernel(&self, body: &Body, symbol: Name, args: &[Option<Before>]) -> Result<Vec<Option<Before>>, String> {
        let entry = body.entry().ok_or("a kernel is empty")?;
        let known = body.block_args(entry).zip(args).filter_map(|(value, before)| Some((value, before.clone()?)));
        let mut flat: Flat = known.collect();
        let (mut positions, mut gathers) = (false, false);
        let mut results = Vec::new();
        for op in body.walk() {
            let at = body.op_ref(op);
            let name = at.name();
            if name == &loop_::NEST {
                self.nest(at, symbol, &mut flat, (&mut positions, &mut gathers))?;
            } else if name == &loop_::RETURN {
                results = at.operands().map(|value| flat.get(&value).cloned()).collect();
            } else if op != body.root() && !within_nest(body, op) {
                refuse(at, symbol)?;
            }
        }
        if positions && gathers {
            return Err("elements are picked by what may follow from their positions".into());
        }
        Ok(results)
    }

    fn nest(&self, at: OpRef, symbol: Name, flat: &mut Flat, (positions, gathers): (&mut bool, &mut bool)) -> Checked {
        let nest = Nest::read(at).ok_or("a nest is malformed")?;
        let mut rows = Rows { symbol, iters: Vec::new(), flat: Vec::new(), largest: self.largest };
        for ((&iter, &extent), &kind) in nest.iters.iter().zip(&nest.extents).zip(&nest.kinds) {
            if !mentions(extent, symbol) {
                continue;
            }
            if kind != IterKind::Parallel {
                return Err(format!("a result is computed of all {extent} elements along it"));
            }
            if extent == Dim::symbol(symbol) { rows.iters.push(iter) } else { rows.flat.push((iter, extent)) }
        }
        let mut before: Option<Before> = None;
        for (value, map) in at.operands().zip(&nest.maps) {
            let ty = at.body.ty(value);
            if !rows.read(ty, map)? {
                continue;
            }
            // Elements of one place are of one row in all operands.
            let of = flat.get(&value).ok_or_else(|| unknown(ty))?;
            if before.as_ref().is_some_and(|before| before != of) {
                return Err("rows of several layouts meet".into());
            }
            before = Some(of.clone());
        }
        for (value, map) in at.results().zip(&nest.out_maps) {
            let ty = at.body.ty(value);
            if rows.written(ty, map)? {
                flat.insert(value, before.clone().ok_or_else(|| unknown(ty))?);
            }
        }
        let Some(entry) = at.entry(0) else { return Ok(()) };
        for inner in at.body.ops(entry).map(|op| at.body.op_ref(op)) {
            let shape = |name: &str| inner.attr(name).and_then(Attr::as_shape).unwrap_or_default();
            if inner.name() == &loop_::GATHER {
                *gathers |= inner.operands().len() > 1;
                let ty = at.body.ty(inner.operand(0));
                if rows.read(ty, shape("at"))? {
                    return Err(unknown(ty));
                }
            } else if inner.name() == &loop_::INDEX {
                for &expr in shape("expr") {
                    if mentions(expr, symbol) || rows.flat.iter().any(|(iter, _)| mentions(expr, *iter)) {
                        return Err("what is computed knows how many there are".into());
                    }
                    *positions |= rows.iters.iter().any(|&iter| mentions(expr, iter));
                }
            } else {
                refuse(inner, symbol)?;
            }
        }
        Ok(())
    }
}

fn unknown(ty: Type) -> String {
    format!("an intermediate result is {ty}")
}

/// The iterators of a nest that run over the rows.
struct Rows {
    symbol: Name,
    iters: Vec<Name>,
    /// Those that run over rows and other dimensions at once.
    flat: Vec<(Name, Dim)>,
    largest: i64,
}

impl Rows {
    fn is_row(&self, expr: Dim) -> bool {
        expr.as_symbol().is_some_and(|name| self.iters.contains(&name))
    }

    fn is_flat(&self, expr: Dim, size: Dim) -> bool {
        expr.as_symbol().is_some_and(|name| self.flat.contains(&(name, size)))
    }

    fn knows(&self, expr: Dim) -> bool {
        let flat = self.flat.iter().map(|(iter, _)| iter);
        mentions(expr, self.symbol) || self.iters.iter().chain(flat).any(|&iter| mentions(expr, iter))
    }

    /// Row by row, or one that there always is; what has other dimensions for the rows has enough of them. Whether it has rows in one dimension with others.
    fn read(&self, ty: Type, map: &[Dim]) -> Result<bool, String> {
        let mut is_flat = false;
        for (&size, &expr) in ty.shape().iter().zip(map) {
            let fits = match mentions(size, self.symbol) {
                true if size == Dim::symbol(self.symbol) => self.is_row(expr) || !self.knows(expr),
                true => {
                    is_flat = true;
                    self.is_flat(expr, size)
                }
                false => !self.knows(expr) || self.is_row(expr) && size.as_static().is_some_and(|n| n >= self.largest),
            };
            if !fits {
                return Err(format!("element {expr} along it is read"));
            }
        }
        Ok(is_flat)
    }

    fn written(&self, ty: Type, map: &[Dim]) -> Result<bool, String> {
        let mut is_flat = false;
        for (&size, &expr) in ty.shape().iter().zip(map) {
            let fits = match mentions(size, self.symbol) {
                true if size == Dim::symbol(self.symbol) => self.is_row(expr),
                true => {
                    is_flat = true;
                    self.is_flat(expr, size)
                }
                false => !self.knows(expr),
            };
            if !fits {
                return Err(format!("element {expr} along it is written"));
            }
        }
        Ok(is_flat)
    }
}

/// An operation that has nothing to do with the symbol.
fn refuse(at: OpRef, symbol: Name) -> Checked {
    let types = at.operand_types().into_iter().chain(at.result_types());
    let in_types = types.flat_map(Type::shape).any(|dim| mentions(dim, symbol));
    if in_types || attr_mentions(at.body.attrs(at.op), symbol) {
        return Err(format!("{} works on all of them", at.name()));
    }
    Ok(())
}

fn within_nest(body: &Body, op: Op) -> bool {
    body.parent_op(op).is_some_and(|parent| body.name(parent) == &loop_::NEST)
}

/// That a type's sizes are the symbol itself or have nothing to do with it.
fn plain(ty: Type, symbol: Name, what: &str) -> Checked {
    let odd = ty.shape().into_iter().find(|&dim| mentions(dim, symbol) && dim != Dim::symbol(symbol));
    odd.map_or(Ok(()), |dim| Err(format!("{what} has the size {dim}")))
}

/// That each row stays one: as many elements before it on both sides.
fn reshape(at: OpRef, symbol: Name, flat: &mut Flat) -> Checked {
    let before = |ty: Type| -> Before {
        let mut product = Dim::Static(1);
        let mut places = Vec::new();
        for dim in ty.shape() {
            if mentions(dim, symbol) {
                places.push(product);
            }
            product = product * dim;
        }
        places
    };
    let (from, to) = (at.operands().next(), at.results().next());
    let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
    let rows = |ty: Type| plain(ty, symbol, "an intermediate result").is_ok();
    let (from_ty, to_ty) = (at.body.ty(from), at.body.ty(to));
    let of = match flat.get(&from) {
        Some(of) => of.clone(),
        None if rows(from_ty) => before(from_ty),
        None => return Err(unknown(from_ty)),
    };
    if !rows(to_ty) {
        flat.insert(to, of);
        return Ok(());
    }
    if of == before(to_ty) { Ok(()) } else { Err("a reshape mixes rows".into()) }
}

fn mentions(dim: Dim, name: Name) -> bool {
    let mut found = false;
    dim.for_each_symbol(&mut |n| found |= n == name);
    found
}

fn attr_mentions(attr: Attr, name: Name) -> bool {
    match attr.data() {
        AttrData::Shape(dims) => dims.iter().any(|&dim| mentions(dim, name)),
        AttrData::Type(ty) | AttrData::Dense { ty, .. } => ty.shape().into_iter().any(|dim| mentions(dim, name)),
        AttrData::Array(all) => all.iter().any(|&attr| attr_mentions(attr, name)),
        AttrData::Dict(all) => all.iter().any(|&(_, attr)| attr_mentions(attr, name)),
        AttrData::Dialect { params, .. } => params.iter().any(|&(_, attr)| attr_mentions(attr, name)),
        _ => false,
    }
}

/// The module, its first function for these ranges of its symbols; of those that are `filled`, sizes are filled up to the greatest.
pub fn filled(module: &Module, ranges: &[SymbolDecl], filled: &[Name]) -> Module {
    let mut module = module.clone();
    let end = |name: Name| ranges.iter().find(|r| r.name == name && filled.contains(&name)).map(|r| Dim::Static(r.max));
    if let Some(body) = module.bodies.iter_mut().find(|body| !body.is_private()) {
        fill(body, &|dim| dim.substitute(&end));
        set_symbols(body, ranges);
    }
    module
}

fn fill(body: &mut Body, fixed: &dyn Fn(Dim) -> Dim) {
    let root = body.root();
    let Some(entry) = body.entry() else { return };
    let args: Vec<(Value, Type)> = body.block_args(entry).map(|arg| (arg, body.ty(arg))).collect();
    let declared = body.attr(root, "function_type");
    let results: Vec<Type> = declared
        .and_then(Attr::as_type)
        .and_then(Type::as_function)
        .map(|(_, results)| results.to_vec())
        .unwrap_or_default();
    for op in body.walk() {
        if op != root {
            let attrs = fixed_attr(body.attrs(op), fixed);
            body.set_attrs(op, attrs);
            for result in body.results(op).collect::<Vec<_>>() {
                let ty = body.ty(result).map_dims(fixed);
                body.set_ty(result, ty);
            }
            // Regions of the function's operations have arguments too.
            for region in body.regions(op) {
                for arg in
                    body.blocks(region).flat_map(|block| body.block_args(block).collect::<Vec<_>>()).collect::<Vec<_>>()
                {
                    let ty = body.ty(arg).map_dims(fixed);
                    body.set_ty(arg, ty);
                }
            }
        }
    }
    if let Some(last) = body.terminator(entry) {
        for (i, &ty) in results.iter().enumerate() {
            let value = body.operand(last, i);
            if ty.map_dims(fixed) != ty {
                let cut = cut(&mut Builder::before(body, last), value, ty);
                body.set_operand(last, i, cut);
            }
        }
    }
    let Some(first) = body.first_op(entry) else { return };
    for (arg, ty) in args {
        let wanted = ty.map_dims(fixed);
        if wanted == ty {
            continue;
        }
        let uses: Vec<(Op, usize)> = body.uses(arg).collect();
        let full = copies(&mut Builder::before(body, first), arg, wanted);
        for (op, operand) in uses {
            body.set_operand(op, operand, full);
        }
    }
}

/// The first rows of a value.
fn cut(b: &mut Builder, value: Value, ty: Type) -> Value {
    let starts = vec![Dim::Static(0); ty.rank()];
    let op = b.op(op::core::SLICE).operand(value);
    op.attr("starts", Attr::shape(&starts)).attr("sizes", Attr::shape(&ty.shape())).result(ty).value()
}

/// A value with copies of its first row behind it, as many as it takes, along each dimension that has too few.
fn copies(b: &mut Builder, mut value: Value, wanted: Type) -> Value {
    for d in 0..wanted.rank() {
        let (ty, size) = (b.ty(value), wanted.shape()[d]);
        let has = ty.shape()[d];
        if has == size {
            continue;
        }
        let with = |n: Dim| {
            let mut shape = ty.shape();
            shape[d] = n;
            ty.with_shape(&shape)
        };
        let first = cut(b, value, with(Dim::Static(1)));
        let row: Vec<Dim> = ty.shape().iter().enumerate().filter(|&(i, _)| i != d).map(|(_, &n)| n).collect();
        let row = b.op(op::core::RESHAPE).operand(first).result(ty.with_shape(&row)).value();
        let kept: Vec<i64> = (0..ty.rank() as i64).filter(|&i| i != d as i64).collect();
        let more = with(size - has);
        let more = b.op(op::core::BROADCAST).operand(row).attr("dims", Attr::i64s(&kept)).result(more).value();
        let whole = b.op(op::core::CONCAT).operands(&[value, more]).attr("dim", Attr::i64(d as i64));
        value = whole.result(with(size)).value();
    }
    value
}

fn fixed_attr(attr: Attr, fixed: &dyn Fn(Dim) -> Dim) -> Attr {
    let each = |all: &[Attr]| all.iter().map(|&a| fixed_attr(a, fixed)).collect::<Vec<_>>();
    match attr.data() {
        AttrData::Shape(dims) => Attr::shape(&dims.iter().map(|&dim| fixed(dim)).collect::<Vec<_>>()),
        AttrData::Type(ty) => Attr::ty(ty.map_dims(fixed)),
        AttrData::Dense { ty, data } => Attr::new(AttrData::Dense { ty: ty.map_dims(fixed), data: data.clone() }),
        AttrData::Array(all) => Attr::array(&each(all)),
        AttrData::Dict(all) => Attr::dict(all.iter().map(|&(name, a)| (name, fixed_attr(a, fixed)))),
        AttrData::Dialect { name, params } => {
            let params: Vec<(&str, Attr)> = params.iter().map(|&(n, a)| (n.as_str(), fixed_attr(a, fixed))).collect();
            Attr::dialect(name.as_str(), &params)
        }
        _ => attr,
    }
}
