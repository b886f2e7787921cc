//! Fewer functions and other top-level operations, fewer large constants.

use super::Search;
use super::minimize::minimize;
use rc_ir::attr::AttrData;
use rc_ir::{Attr, Module, Name};
use rustc_hash::{FxHashMap, FxHashSet};

/// Drops top-level operations that nothing left refers to, and those that may stand in for one another.
pub fn reduce(module: Module, search: &mut Search) -> Module {
    contract(drop_symbols(module, search), search)
}

/// Lets callers call what a function calls instead of the function, where both have the same type.
fn contract(module: Module, search: &mut Search) -> Module {
    let types: FxHashMap<Name, Attr> = module
        .bodies
        .iter()
        .filter_map(|body| Some((body.symbol()?, body.attr(body.root(), "function_type")?)))
        .collect();
    let mut next: FxHashMap<Name, Name> = FxHashMap::default();
    let mut parts: Vec<Name> = Vec::new();
    for body in &module.bodies {
        let Some(name) = body.symbol() else { continue };
        let called = body.walk().into_iter().skip(1).flat_map(|op| named(body.attrs(op)));
        let same = called.into_iter().find(|other| *other != name && types.get(other) == types.get(&name));
        if let Some(other) = same {
            next.insert(name, other);
            parts.push(name);
        }
    }
    let without = |gone: &[Name]| {
        let gone: FxHashSet<Name> = gone.iter().copied().collect();
        let target = |name: Name| {
            let chain = std::iter::successors(Some(name), |n| next.get(n).copied().filter(|_| gone.contains(n)));
            // Functions that call one another in a ring have no end.
            chain.take(parts.len() + 1).find(|n| !gone.contains(n)).unwrap_or(name)
        };
        let mut fewer = module.clone();
        fewer.bodies.retain(|body| body.symbol().is_none_or(|name| !gone.contains(&name)));
        for body in &mut fewer.bodies {
            for op in body.walk().into_iter().skip(1) {
                let attrs = renamed(body.attrs(op), &|name| if gone.contains(&name) { target(name) } else { name });
                body.set_attrs(op, attrs);
            }
        }
        (!fewer.bodies.is_empty()).then_some(fewer)
    };
    minimize(&parts, search, without).1.unwrap_or(module)
}

/// The symbols and strings of a dictionary: what calls name functions by.
fn named(dict: Attr) -> Vec<Name> {
    let entries = dict.as_dict().unwrap_or_default().iter();
    entries.filter_map(|(_, a)| a.as_symbol().or_else(|| a.as_str().map(Name::new))).collect()
}

fn renamed(dict: Attr, new: &dyn Fn(Name) -> Name) -> Attr {
    let entry = |&(key, attr): &(Name, Attr)| {
        let attr = match attr.data() {
            AttrData::Symbol { root, nested } if nested.is_empty() => Attr::symbol(new(*root)),
            AttrData::String(text) => Attr::str(new(Name::new(text)).as_str()),
            _ => attr,
        };
        (key, attr)
    };
    Attr::dict(dict.as_dict().unwrap_or_default().iter().map(entry))
}

fn drop_symbols(module: Module, search: &mut Search) -> Module {
    let all: Vec<usize> = (0..module.bodies.len()).collect();
    let without = |gone: &[usize]| {
        let mut fewer = module.clone();
        let mut at = 0;
        fewer.bodies.retain(|_| (!gone.contains(&at), at += 1).0);
        drop_unused_resources(&mut fewer);
        (!fewer.bodies.is_empty()).then_some(fewer)
    };
    minimize(&all, search, without).1.unwrap_or(module)
}

/// Drops what no `dense_resource<…>` names.
pub fn drop_unused_resources(module: &mut Module) {
    if module.resources.is_empty() {
        return;
    }
    let mut names = FxHashSet::default();
    for body in &module.bodies {
        for op in body.walk() {
            super::attrs::each_resource(body.attrs(op), &mut |name| {
                names.insert(name);
            });
        }
    }
    super::attrs::each_resource(module.attrs, &mut |name| {
        names.insert(name);
    });
    module.resources.retain(|name, _| names.contains(name));
}
