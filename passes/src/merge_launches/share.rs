//! Equal kernels become one: what was split off different kernels is often the same, and so is what they were merged to.

use super::callee;
use rc_dialects::host::{FUNC, LAUNCH};
use rc_dialects::op;
use rc_ir::structure::{bodies_equal, body_hash};
use rc_ir::{Attr, Module, Name};
use rustc_hash::FxHashMap;

/// What equal kernels may differ in: their names, and what these were made of.
const NAMES: &[&str] = &["sym_name", "origin"];

/// Has launches of equal kernels launch the first of them; the others are erased.
pub fn share_kernels(module: &mut Module) {
    let mut by_hash: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    let mut same: FxHashMap<Name, Name> = FxHashMap::default();
    for (i, body) in module.bodies.iter().enumerate().filter(|(_, body)| body.name(body.root()) == op::kernel::FUNC) {
        let alike = by_hash.entry(body_hash(body, NAMES)).or_default();
        match alike.iter().find(|&&first| bodies_equal(&module.bodies[first], body, NAMES)) {
            Some(&first) => {
                let names = body.symbol().zip(module.bodies[first].symbol());
                same.extend(names);
            }
            None => alike.push(i),
        }
    }
    for function in module.bodies.iter_mut().filter(|body| body.name(body.root()) == &FUNC) {
        for op in function.walk().into_iter().filter(|_| !same.is_empty()) {
            let first = same.get(&callee(function, op)).filter(|_| function.name(op) == &LAUNCH);
            if let Some(first) = first {
                function.set_attr(op, "callee", Attr::str(first.as_str()));
            }
        }
    }
    module.bodies.retain(|body| !body.symbol().is_some_and(|name| same.contains_key(&name)));
}
