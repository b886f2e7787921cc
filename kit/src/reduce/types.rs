//! Smaller sizes, fixed sizes for symbols, common element types, throughout a module.

use super::Search;
use super::ops::set_function_type;
use rc_ir::attr::{AttrData, DenseData, scalar_bytes, scalar_value};
use rc_ir::op_def::InferArgs;
use rc_ir::types::TypeData;
use rc_ir::{Attr, Body, Dim, Module, Name, Op, Traits, Type, Value};
use std::collections::BTreeSet;

/// What is replaced everywhere.
#[derive(Clone, Copy)]
enum Change {
    Size(i64, i64),
    Symbol(Name, i64),
    Element(Type, Type),
}

/// Makes sizes, symbols and element types smaller or simpler, each in the whole module.
pub fn reduce(module: Module, search: &mut Search) -> Module {
    let mut best = module;
    for kind in [elements, symbols, sizes] {
        for changes in kind(&best) {
            let proposals = changes.iter().map(|&change| changed(&best, change));
            if let Some((_, simpler)) = search.first(proposals) {
                best = simpler;
            }
        }
    }
    best
}

/// For each size in the module, from the largest: what it may become, the smallest first.
fn sizes(module: &Module) -> Vec<Vec<Change>> {
    let mut all = BTreeSet::new();
    each_type(module, &mut |ty| all.extend(ty.shape().iter().filter_map(|d| d.as_static()).filter(|&n| n > 1)));
    let smaller = |n: i64| {
        let mut to = vec![1, 2, 3, 4, n / 2];
        to.retain(|&m| m > 0 && m < n);
        to.sort_unstable();
        to.dedup();
        to.into_iter().map(|m| Change::Size(n, m)).collect()
    };
    all.into_iter().rev().map(smaller).collect()
}

fn symbols(module: &Module) -> Vec<Vec<Change>> {
    let mut all = BTreeSet::new();
    each_type(module, &mut |ty| {
        ty.shape().iter().for_each(|d| {
            d.for_each_symbol(&mut |name| {
                let _ = all.insert(name);
            })
        })
    });
    all.into_iter().map(|name| [1, 2, 7].map(|n| Change::Symbol(name, n)).to_vec()).collect()
}

/// Floats become f32, integers i32.
fn elements(module: &Module) -> Vec<Vec<Change>> {
    let mut all: Vec<Type> = Vec::new();
    each_type(module, &mut |ty| {
        if !all.contains(&ty.elem()) {
            all.push(ty.elem());
        }
    });
    let simpler = |ty: Type| match () {
        _ if ty.is_float() && ty != Type::f32() => Some(vec![Change::Element(ty, Type::f32())]),
        _ if ty.is_int() && ty != Type::i1() && ty != Type::i32() => Some(vec![Change::Element(ty, Type::i32())]),
        _ => None,
    };
    all.into_iter().filter_map(simpler).collect()
}

fn each_type(module: &Module, f: &mut dyn FnMut(Type)) {
    for body in &module.bodies {
        for value in values(body) {
            f(body.ty(value));
        }
    }
}

/// Arguments of blocks and results of operations, in program order.
fn values(body: &Body) -> Vec<Value> {
    let mut all = Vec::new();
    for op in body.walk() {
        all.extend(body.results(op));
        for region in body.regions(op) {
            all.extend(body.blocks(region).flat_map(|block| body.block_args(block)));
        }
    }
    all
}

fn changed(module: &Module, change: Change) -> Option<Module> {
    let mut new = module.clone();
    for body in &mut new.bodies {
        change_body(body, change);
    }
    Some(new)
}

fn change_body(body: &mut Body, change: Change) {
    for op in body.walk() {
        let attrs = change.attr(body.attrs(op));
        body.set_attrs(op, attrs);
        if let Change::Symbol(name, _) = change {
            undeclare(body, op, name);
        }
        for region in body.regions(op) {
            let args: Vec<Value> = body.blocks(region).flat_map(|block| body.block_args(block)).collect();
            args.into_iter().for_each(|v| body.set_ty(v, change.ty(body.ty(v))));
        }
        let inferred = infer(body, op);
        let results: Vec<Value> = body.results(op).collect();
        for (i, value) in results.into_iter().enumerate() {
            let ty = inferred.as_ref().and_then(|types| types.get(i).copied());
            body.set_ty(value, ty.unwrap_or_else(|| change.ty(body.ty(value))));
        }
    }
    if body.op_ref(body.root()).has(Traits::FUNCTION) {
        set_function_type(body);
    }
}

/// The result types that the declaration infers.
fn infer(body: &Body, op: Op) -> Option<Vec<Type>> {
    let def = body.name(op).def()?;
    let operands = body.op_ref(op).operand_types();
    let types = def.infer?(&InferArgs { operands: &operands, attrs: body.attrs(op), def }).ok()?;
    (types.len() == body.result_count(op)).then(|| types.to_vec())
}

/// Removes the declaration of a symbol that is a number now.
fn undeclare(body: &mut Body, op: Op, name: Name) {
    let Some(AttrData::Dialect { name: kind, params }) = body.attr(op, "rc.symbols").map(|a| a.data()) else { return };
    let left: Vec<(Name, Attr)> = params.iter().copied().filter(|p| p.0 != name).collect();
    match left.is_empty() {
        true => body.remove_attr(op, "rc.symbols"),
        false => {
            let attr = Attr::new(AttrData::Dialect { name: *kind, params: left.into() });
            body.set_attr(op, "rc.symbols", attr);
        }
    }
}

impl Change {
    fn dim(self, dim: Dim) -> Dim {
        match self {
            Change::Size(from, to) if dim == Dim::Static(from) => Dim::Static(to),
            Change::Symbol(name, to) => dim.substitute(&|s| (s == name).then_some(Dim::Static(to))),
            _ => dim,
        }
    }

    fn ty(self, ty: Type) -> Type {
        match (self, ty.data()) {
            (_, TypeData::Function { inputs, results }) => {
                let all = |types: &[Type]| -> Vec<Type> { types.iter().map(|&t| self.ty(t)).collect() };
                Type::function(&all(inputs), &all(results))
            }
            (Change::Element(from, to), _) if ty.elem() == from => ty.with_elem(to),
            (Change::Element(..), _) => ty,
            _ if ty.is_tensor() || ty.is_memref() || ty.is_vector() || ty.is_tile() => {
                let shape: Vec<Dim> = ty.shape().iter().map(|&d| self.dim(d)).collect();
                if shape[..] == ty.shape()[..] { ty } else { ty.with_shape(&shape) }
            }
            _ => ty,
        }
    }

    fn attr(self, attr: Attr) -> Attr {
        let size = |n: i64| match self {
            Change::Size(from, to) if n == from => to,
            _ => n,
        };
        match attr.data() {
            AttrData::Shape(dims) => Attr::shape(&dims.iter().map(|&d| self.dim(d)).collect::<Vec<_>>()),
            AttrData::DenseArray { elem, values } if elem.is_int() => {
                let values = values.iter().map(|&n| size(n)).collect();
                Attr::new(AttrData::DenseArray { elem: *elem, values })
            }
            AttrData::Array(items) => Attr::array(&items.iter().map(|&a| self.attr(a)).collect::<Vec<_>>()),
            AttrData::Dict(entries) => Attr::dict(entries.iter().map(|&(key, a)| (key, self.attr(a)))),
            AttrData::Type(ty) => Attr::ty(self.ty(*ty)),
            AttrData::Float { ty, .. } if self.ty(*ty) != *ty => match attr.as_float() {
                Some(value) if self.ty(*ty).is_float() => Attr::float(value, self.ty(*ty)),
                _ => attr,
            },
            AttrData::Int { value, ty } if self.ty(*ty) != *ty => {
                Attr::new(AttrData::Int { value: *value, ty: self.ty(*ty) })
            }
            AttrData::Dense { ty, data } if self.ty(*ty) != *ty => self.dense(*ty, data),
            _ => attr,
        }
    }

    /// A dense constant of the changed type: its first element everywhere.
    fn dense(self, ty: Type, data: &DenseData) -> Attr {
        let new = self.ty(ty);
        let (Some(old_width), Some(_)) = (ty.elem().byte_width(), new.elem().byte_width()) else {
            return Attr::new(AttrData::Dense { ty, data: data.clone() });
        };
        let first = data.bytes.get(..old_width as usize).map_or(0.0, |bytes| scalar_value(ty.elem(), bytes));
        let data = DenseData { splat: true, bytes: scalar_bytes(new.elem(), first) };
        Attr::new(AttrData::Dense { ty: new, data })
    }
}
