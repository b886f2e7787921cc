//! Fewer attributes, simpler constants.

use super::Search;
use super::minimize::minimize;
use super::ops::zero;
use super::search::is_valid;
use rc_ir::attr::AttrData;
use rc_ir::{Attr, Module, Name, Op, Traits};

/// An attribute of an operation, or of the module.
type Place = (Option<(usize, Op)>, Name);

/// Drops attributes of the module and its top-level operations: what is said of targets, names and schedules.
pub fn of_symbols(module: Module, search: &mut Search) -> Module {
    let roots = module.bodies.iter().enumerate().map(|(at, body)| (at, body.root())).collect();
    drop_attributes(module, roots, search)
}

/// Drops attributes of all operations, and makes constants zeros.
pub fn reduce(module: Module, search: &mut Search) -> Module {
    let ops = all_ops(&module);
    let module = drop_attributes(module, ops, search);
    zero_constants(module, search)
}

fn all_ops(module: &Module) -> Vec<(usize, Op)> {
    module.bodies.iter().enumerate().flat_map(|(at, body)| body.walk().into_iter().map(move |op| (at, op))).collect()
}

fn drop_attributes(module: Module, ops: Vec<(usize, Op)>, search: &mut Search) -> Module {
    let mut places: Vec<Place> = keys(module.attrs).map(|key| (None, key)).collect();
    for (at, op) in ops {
        places.extend(keys(module.bodies[at].attrs(op)).map(|key| (Some((at, op)), key)));
    }
    let without = |gone: &[Place]| {
        let mut fewer = module.clone();
        for &(place, key) in gone {
            match place {
                None => fewer.attrs = fewer.attrs.with(key, None),
                Some((at, op)) => fewer.bodies[at].remove_attr(op, key.as_str()),
            }
        }
        super::symbols::drop_unused_resources(&mut fewer);
        Some(fewer)
    };
    // What cannot go alone stays out, so that the rest is tried together.
    places.retain(|&place| without(&[place]).is_some_and(|fewer| is_valid(&fewer)));
    minimize(&places, search, without).1.unwrap_or(module)
}

fn keys(dict: Attr) -> impl Iterator<Item = Name> {
    dict.as_dict().unwrap_or_default().iter().map(|entry| entry.0)
}

fn zero_constants(module: Module, search: &mut Search) -> Module {
    let is_constant = |&(at, op): &(usize, Op)| {
        let body = &module.bodies[at];
        let old = body.attr(op, "value").filter(|_| body.op_ref(op).has(Traits::CONSTANT));
        old.is_some_and(|old| old.type_of().and_then(zero).is_some_and(|new| new != old))
    };
    let constants: Vec<(usize, Op)> = all_ops(&module).into_iter().filter(is_constant).collect();
    let without = |gone: &[(usize, Op)]| {
        let mut simpler = module.clone();
        for &(at, op) in gone {
            let ty = simpler.bodies[at].attr(op, "value")?.type_of()?;
            simpler.bodies[at].set_attr(op, "value", zero(ty)?);
        }
        super::symbols::drop_unused_resources(&mut simpler);
        Some(simpler)
    };
    minimize(&constants, search, without).1.unwrap_or(module)
}

/// The names of the resources that an attribute refers to.
pub fn each_resource(attr: Attr, f: &mut dyn FnMut(Name)) {
    match attr.data() {
        AttrData::Resource { name, .. } => f(*name),
        AttrData::Array(items) => items.iter().for_each(|&a| each_resource(a, f)),
        AttrData::Dict(entries) | AttrData::Dialect { params: entries, .. } => {
            entries.iter().for_each(|e| each_resource(e.1, f))
        }
        _ => {}
    }
}
