//! Equal kernels are one symbol: found by comparing their structure, names and locations left out.

use rc_ir::structure::{bodies_equal, body_hash};
use rc_ir::{Attr, Body, Dim, Module, Name};
use rustc_hash::{FxHashMap, FxHashSet};

/// What equal kernels may differ in.
const NAME: &[&str] = &["sym_name"];

/// The kernels that the module has, by structure.
pub struct Kernels {
    /// Places in the list of made kernels, by the hash of their structure.
    by_hash: FxHashMap<u64, Vec<usize>>,
    taken: FxHashSet<Name>,
}

impl Kernels {
    pub fn of(module: &Module) -> Kernels {
        let taken = module.bodies.iter().filter_map(|b| b.symbol()).collect();
        Kernels { by_hash: FxHashMap::default(), taken }
    }

    /// The symbol of a kernel equal to `body`, which is added to `made` if it is the first of its kind,
    /// and the binding of its symbols, each to the caller's of the same name.
    pub fn intern(&mut self, mut body: Body, made: &mut Vec<Body>) -> (Name, Attr) {
        let bind = bind_same(&body);
        let same = self.by_hash.entry(body_hash(&body, NAME)).or_default();
        if let Some(&equal) = same.iter().find(|&&i| bodies_equal(&made[i], &body, NAME)) {
            return (made[equal].symbol().expect("kernels are symbols"), bind);
        }
        same.push(made.len());
        let name = self.fresh(&body);
        body.set_attr(body.root(), "sym_name", Attr::str(name.as_str()));
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
    let params: Vec<(&str, Attr)> =
        symbols.iter().map(|s| (s.name.as_str(), Attr::shape(&[Dim::symbol(s.name)]))).collect();
    Attr::dialect("bind", &params)
}
