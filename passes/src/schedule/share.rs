//! On the CPU, whose registers do not hold a row: what takes long to compute and what several reductions over the same rows
//! need becomes a nest of its own, whose result they read.

use super::group::Group;
use super::nest::Nest;
use crate::work::is_function;
use rc_dialects::loop_::{self, IterKind};
use rc_ir::builder::Builder;
use rc_ir::{Attr, Body, Dim, Name, Op, OpState, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a scalar of a nest's region is, wherever it stands: equal keys are equal scalars at the same place.
type Key = u32;

#[derive(PartialEq, Eq, Hash)]
enum Form {
    /// An element of a tensor.
    Element(Value, Vec<Dim>),
    Computed(Name, Attr, Vec<Key>),
    /// A value from outside of the region.
    Other(Value),
}

/// The keys of all scalars met.
#[derive(Default)]
pub struct Keys {
    known: FxHashMap<Form, Key>,
}

impl Keys {
    fn of(&mut self, form: Form) -> Key {
        let next = self.known.len() as Key;
        *self.known.entry(form).or_insert(next)
    }
    /// The keys of a region's values, its arguments first, and which of them are slow to compute.
    pub fn of_region(&mut self, body: &Body, nest: &Nest) -> Vec<(Value, Key, bool)> {
        let at = body.op_ref(nest.op);
        let Some(entry) = at.entry(0) else { return Vec::new() };
        let maps = at.attr("maps").and_then(|a| a.as_array()).unwrap_or_default();
        let mut keys: FxHashMap<Value, (Key, bool)> = FxHashMap::default();
        for ((arg, tensor), map) in body.block_args(entry).zip(at.operands()).zip(maps) {
            let map = map.as_shape().unwrap_or_default().to_vec();
            keys.insert(arg, (self.of(Form::Element(tensor, map)), false));
        }
        let mut out: Vec<_> = body.block_args(entry).filter_map(|arg| Some((arg, keys.get(&arg)?.0, false))).collect();
        for op in body.ops(entry).filter(|&op| body.result_count(op) == 1) {
            let slow = is_function(body.op_ref(op));
            let (mut operands, mut any) = (Vec::new(), slow);
            for v in body.operands(op) {
                let (key, slow) = keys.get(&v).copied().unwrap_or_else(|| (self.of(Form::Other(v)), false));
                operands.push(key);
                any |= slow;
            }
            let key = self.of(Form::Computed(Name::new(body.name(op).as_str()), body.attrs(op), operands));
            keys.insert(body.result(op, 0), (key, any));
            out.push((body.result(op, 0), key, any));
        }
        out
    }
}

/// Gives what several nests of the group compute alike, and slowly, a nest of its own. Whether there was any: then the groups
/// are others.
pub fn share(body: &mut Body, group: &Group) -> bool {
    let mut keys = Keys::default();
    let regions: Vec<_> = group.nests.iter().map(|n| keys.of_region(body, n)).collect();
    let count = |key: Key| regions.iter().filter(|r| r.iter().any(|v| v.1 == key)).count();
    // The first nest that computes something, and what of it is used by what only it computes.
    for (nest, region) in group.nests.iter().zip(&regions) {
        let shared: FxHashSet<Value> = region.iter().filter(|v| v.2 && count(v.1) > 1).map(|v| v.0).collect();
        let whole = |v: &Value| body.ty(*v).is_float() && body.uses(*v).any(|(user, _)| !is_in(body, user, &shared));
        let Some(value) = region.iter().map(|v| v.0).rfind(|v| shared.contains(v) && whole(v)) else { continue };
        let Some(made) = nest_of(body, group, nest, value) else { continue };
        let key = region.iter().find(|v| v.0 == value).expect("found there").1;
        for (other, region) in group.nests.iter().zip(&regions) {
            if let Some(same) = region.iter().find(|v| v.1 == key) {
                read_instead(body, other.op, same.0, made.0, &made.1);
            }
        }
        return true;
    }
    false
}

/// Whether a nest's region has a function that takes tens of instructions.
pub fn computes_slowly(body: &Body, nest: &Nest) -> bool {
    body.op_ref(nest.op).entry(0).is_some_and(|entry| body.ops(entry).any(|op| is_function(body.op_ref(op))))
}

fn is_in(body: &Body, user: Op, values: &FxHashSet<Value>) -> bool {
    body.results(user).any(|r| values.contains(&r))
}

/// The operations of a region from which a value is computed, in order.
fn computed_from(body: &Body, value: Value) -> Vec<Op> {
    let block = body.defining_block(value);
    let (mut stack, mut found) = (vec![value], FxHashSet::default());
    while let Some(v) = stack.pop() {
        if let Some(op) = body.defining_op(v).filter(|&op| body.parent(op) == block && !found.contains(&op)) {
            found.insert(op);
            stack.extend(body.operands(op));
        }
    }
    block.map_or(Vec::new(), |b| body.ops(b).filter(|op| found.contains(op)).collect())
}

/// A pointwise nest, before `nest`, of a value of its region. Gives its result and the result's map. `None` where the value does
/// not depend on all rows and on more than them.
pub fn nest_of(body: &mut Body, group: &Group, nest: &Nest, value: Value) -> Option<(Value, Vec<Dim>)> {
    let at = body.op_ref(nest.op);
    let ops = computed_from(body, value);
    let entry = at.entry(0)?;
    let maps = at.attr("maps")?.as_array()?;
    let used: Vec<usize> = (0..maps.len())
        .filter(|&i| {
            let arg = body.block_arg(entry, i);
            arg == value || ops.iter().any(|&op| body.operands(op).any(|v| v == arg))
        })
        .collect();
    let mut mentioned: FxHashSet<Name> = FxHashSet::default();
    let mut note = |dims: &[Dim]| {
        dims.iter().for_each(|d| {
            d.for_each_symbol(&mut |n| {
                mentioned.insert(n);
            })
        })
    };
    used.iter().for_each(|&i| note(maps[i].as_shape().unwrap_or_default()));
    for &op in &ops {
        ["expr", "at"].iter().for_each(|a| note(body.attr(op, a).and_then(|a| a.as_shape()).unwrap_or_default()));
    }
    let iters: Vec<_> = nest.iters.iter().filter(|i| mentioned.contains(&i.name)).copied().collect();
    let rows = group.rows();
    let fits = rows.iter().all(|r| mentioned.contains(r)) && iters.len() > rows.len();
    if !fits || iters.iter().any(|i| i.kind == IterKind::Scan) {
        return None;
    }
    let (map, extents): (Vec<Dim>, Vec<Dim>) = iters.iter().map(|i| (Dim::symbol(i.name), i.extent)).unzip();
    let words = |items: Vec<&str>| Attr::array(&items.into_iter().map(Attr::str).collect::<Vec<_>>());
    let attrs = [
        ("iters", words(iters.iter().map(|i| i.name.as_str()).collect())),
        ("kinds", words(vec!["parallel"; iters.len()])),
        ("extents", Attr::shape(&extents)),
        ("maps", Attr::array(&used.iter().map(|&i| maps[i]).collect::<Vec<_>>())),
        ("out_maps", Attr::array(&[Attr::shape(&map)])),
        ("combiner", words(vec!["none"])),
    ];
    // Operands that are read outside of their bounds are zero there for this nest, too.
    let outside: Vec<i64> = (0..).zip(&used).filter(|(_, i)| nest.zero_outside[**i]).map(|(to, _)| to).collect();
    let outside = (!outside.is_empty()).then(|| ("zero_outside", Attr::i64s(&outside)));
    let loc = body.defining_op(value).map_or(at.loc(), |op| body.loc(op));
    let mut state = OpState::new(&loop_::NEST, loc);
    state.operands = used.iter().map(|&i| at.operand(i)).collect();
    state.results.push(Type::tensor(&extents, body.ty(value)));
    state.attrs = Attr::dict(attrs.into_iter().chain(outside).map(|(k, v)| (Name::new(k), v)));
    state.regions = 1;
    let made = body.create(state);
    body.insert_before(nest.op, made);
    let region = body.regions(made)[0];
    let types: Vec<Type> = used.iter().map(|&i| body.ty(body.block_arg(entry, i))).collect();
    let block = body.add_block(region, &types);
    let args = used.iter().enumerate().map(|(to, &i)| (body.block_arg(entry, i), body.block_arg(block, to)));
    let mut copies: FxHashMap<Value, Value> = args.collect();
    for op in ops {
        let mut state = body.state(op);
        state.operands = body.operands(op).map(|v| copies.get(&v).copied().unwrap_or(v)).collect();
        let copy = body.create(state);
        body.append(block, copy);
        copies.insert(body.result(op, 0), body.result(copy, 0));
    }
    let result = copies[&value];
    Builder::at_end(body, block).op(&loop_::YIELD).operand(result).build();
    let (tensor, name) = (body.result(made, 0), body.value_name(value));
    body.set_value_name(tensor, name);
    Some((tensor, map))
}

/// Makes a nest read an element of `tensor` in the place of a value that it computes.
pub fn read_instead(body: &mut Body, nest: Op, value: Value, tensor: Value, map: &[Dim]) {
    let entry = body.op_ref(nest).entry(0).expect("a verified nest has a body");
    let ty = body.ty(value);
    let arg = body.add_block_arg(entry, ty);
    body.replace_all_uses(value, arg);
    for op in body.ops(entry).collect::<Vec<_>>().into_iter().rev() {
        if rc_ir::effects::is_dead(body, op) {
            body.erase(op);
        }
    }
    let mut operands: Vec<Value> = body.operands(nest).chain([tensor]).collect();
    let mut maps: Vec<Attr> = body.attr(nest, "maps").and_then(|a| a.as_array()).unwrap_or_default().to_vec();
    maps.push(Attr::shape(map));
    for i in (0..operands.len()).rev() {
        if !body.has_uses(body.block_arg(entry, i)) {
            body.erase_block_arg(entry, i);
            operands.remove(i);
            maps.remove(i);
        }
    }
    body.set_operands(nest, &operands);
    body.set_attr(nest, "maps", Attr::array(&maps));
}
