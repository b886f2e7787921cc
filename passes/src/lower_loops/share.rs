//! Equal kernels are one symbol: found by comparing their structure, names and locations left out.

use rc_ir::{Attr, Body, Dim, Module, Name, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// The kernels that the module has, by structure.
pub struct Kernels {
    by_structure: FxHashMap<String, Name>,
    taken: FxHashSet<Name>,
}

impl Kernels {
    pub fn of(module: &Module) -> Kernels {
        let taken = module.bodies.iter().filter_map(|b| b.symbol()).collect();
        Kernels { by_structure: FxHashMap::default(), taken }
    }

    /// The symbol of a kernel equal to `body`, which is added to `made` if it is the first of its kind,
    /// and the binding of its symbols, each to the caller's of the same name.
    pub fn intern(&mut self, mut body: Body, made: &mut Vec<Body>) -> (Name, Attr) {
        let key = structure(&body);
        let bind = bind_same(&body);
        if let Some(&name) = self.by_structure.get(&key) {
            return (name, bind);
        }
        let name = self.fresh(&body);
        body.set_attr(body.root(), "sym_name", Attr::str(name.as_str()));
        self.by_structure.insert(key, name);
        made.push(body);
        (name, bind)
    }

    /// `dot_add_tanh`, from the operations it came from.
    fn fresh(&mut self, body: &Body) -> Name {
        let origin = body.attr(body.root(), "origin").and_then(|a| a.as_str()).unwrap_or("kernel");
        let base: String = origin.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let names = std::iter::once(base.clone()).chain((1..).map(|i| format!("{base}_{i}")));
        let name = names.map(|n| Name::new(&n)).find(|n| !self.taken.contains(n)).expect("an endless range");
        self.taken.insert(name);
        name
    }
}

fn bind_same(body: &Body) -> Attr {
    let symbols = rc_dialects::func::symbols(body);
    let params: Vec<(&str, Attr)> = symbols
        .iter()
        .map(|s| (s.name.as_str(), Attr::shape(&[Dim::symbol(s.name)])))
        .collect();
    Attr::dialect("bind", &params)
}

/// A text that is equal for equal structures: operations, operands by number, attributes and types.
fn structure(body: &Body) -> String {
    let mut out = String::new();
    let mut numbers: FxHashMap<Value, usize> = FxHashMap::default();
    for op in body.walk() {
        let _ = write!(out, "{}(", body.name(op));
        for operand in body.operands(op) {
            let next = numbers.len();
            let _ = write!(out, "{},", numbers.entry(operand).or_insert(next));
        }
        let attrs = if op == body.root() { body.attrs(op).with(Name::new("sym_name"), None) } else { body.attrs(op) };
        let _ = write!(out, "){attrs}:");
        for result in body.results(op) {
            let next = numbers.len();
            numbers.entry(result).or_insert(next);
            let _ = write!(out, "{},", body.ty(result));
        }
        for block in body.regions(op).iter().flat_map(|&r| body.blocks(r).collect::<Vec<_>>()) {
            for arg in body.block_args(block) {
                let next = numbers.len();
                numbers.entry(arg).or_insert(next);
                let _ = write!(out, "^{}", body.ty(arg));
            }
        }
        out.push(';');
    }
    out
}
