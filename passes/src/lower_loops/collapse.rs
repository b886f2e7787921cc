//! Fewer dimensions: those of size one go, and neighbours that every nest walks together become one.
//! The kernel's arguments and results are reshaped outside, where it costs nothing.

use rc_dialects::loop_::{ATTENTION, ATTENTION_BACKWARD, GATHER, INDEX, NEST, RETURN, SCATTER, SORT};
use rc_ir::{Attr, Block, Body, Dim, Name, Op, Type, Value};
use rustc_hash::FxHashMap;

/// A nest's attributes, open for change.
struct NestModel {
    op: Op,
    iters: Vec<Name>,
    kinds: Vec<Attr>,
    extents: Vec<Dim>,
    /// Operands, then results, with their maps.
    accesses: Vec<(Value, Vec<Dim>)>,
    /// Which of these are zero outside of their bounds: dimensions of one element stay, as an index may be outside of them.
    zero_outside: Vec<bool>,
    /// `loop.index` and `loop.gather` in the region: the expressions, and the gathered tensor.
    inner: Vec<(Op, Vec<Dim>, Option<Value>)>,
}

struct Model {
    nests: Vec<NestModel>,
    shapes: FxHashMap<Value, Vec<Dim>>,
}

/// Collapses the dimensions of a kernel in place; gives its argument and result types afterwards.
pub fn collapse(body: &mut Body) -> (Vec<Type>, Vec<Type>) {
    let entry = body.entry().expect("a kernel has a body");
    let whole = body
        .ops(entry)
        .any(|op| [&ATTENTION, &ATTENTION_BACKWARD, &SCATTER, &SORT].iter().any(|def| body.name(op) == *def));
    if !whole {
        let mut model = Model::read(body, entry);
        model.drop_units();
        while model.merge_pair() {}
        model.write(body);
    }
    let inputs: Vec<Type> = body.block_args(entry).map(|v| body.ty(v)).collect();
    let end = body.last_op(entry).filter(|&op| body.name(op) == &RETURN).expect("a kernel ends in loop.return");
    let results: Vec<Type> = body.operands(end).map(|v| body.ty(v)).collect();
    body.set_attr(body.root(), "function_type", Attr::ty(Type::function(&inputs, &results)));
    (inputs, results)
}

fn shapes_of(op: rc_ir::OpRef, name: &str) -> Vec<Vec<Dim>> {
    let items = op.attr(name).and_then(|a| a.as_array()).unwrap_or(&[]);
    items.iter().map(|a| a.as_shape().unwrap_or(&[]).to_vec()).collect()
}

impl Model {
    fn read(body: &Body, entry: Block) -> Model {
        let mut shapes = FxHashMap::default();
        let mut nests = Vec::new();
        for arg in body.block_args(entry).filter(|&v| body.ty(v).is_tensor()) {
            shapes.insert(arg, body.ty(arg).shape().to_vec());
        }
        for op in body.ops(entry).filter(|&op| body.name(op) == &NEST) {
            let nest = body.op_ref(op);
            nest.results().for_each(|r| drop(shapes.insert(r, body.ty(r).shape().to_vec())));
            let operands = nest.operands().zip(shapes_of(nest, "maps"));
            let results = nest.results().zip(shapes_of(nest, "out_maps"));
            let words = nest.attr("iters").and_then(|a| a.as_array()).unwrap_or(&[]);
            let region = nest.entry(0).expect("a nest has a region");
            let inner = body.ops(region).filter_map(|o| inner_access(body, o)).collect();
            nests.push(NestModel {
                op,
                iters: words.iter().filter_map(|a| a.as_str()).map(Name::new).collect(),
                kinds: nest.attr("kinds").and_then(|a| a.as_array()).unwrap_or(&[]).to_vec(),
                extents: nest.attr("extents").and_then(|a| a.as_shape()).unwrap_or(&[]).to_vec(),
                accesses: operands.chain(results).collect(),
                zero_outside: nest.ints("zero_outside").map_or(Vec::new(), |numbers| {
                    (0..nest.operands().len() as i64).map(|i| numbers.contains(&i)).collect()
                }),
                inner,
            });
        }
        Model { nests, shapes }
    }

    /// Drops iterators of extent one, which no map uses, and dimensions of size one, whose index is 0.
    fn drop_units(&mut self) {
        let one = |d: &Dim| *d == Dim::Static(1);
        let (shapes, bounded) = (&self.shapes, self.bounded());
        let squeeze = |map: &mut Vec<Dim>, tensor: &Value| {
            let shape = &shapes[tensor];
            let mut d = 0;
            map.retain(|_| (!one(&shape[d]) || bounded.contains(tensor), d += 1).0);
        };
        for nest in &mut self.nests {
            nest.accesses.iter_mut().for_each(|(tensor, map)| squeeze(map, tensor));
            for (_, map, tensor) in &mut nest.inner {
                if let Some(tensor) = tensor {
                    squeeze(map, tensor);
                }
            }
            // A reduction over one element is still one: its iterator stays.
            let keep: Vec<bool> =
                nest.extents.iter().zip(&nest.kinds).map(|(e, k)| !one(e) || k.as_str() != Some("parallel")).collect();
            let mut at = keep.iter();
            nest.iters.retain(|_| *at.next().expect("an extent for each"));
            let mut at = keep.iter();
            nest.kinds.retain(|_| *at.next().expect("an extent for each"));
            let mut at = keep.iter();
            nest.extents.retain(|_| *at.next().expect("an extent for each"));
        }
        self.shapes.iter_mut().filter(|(t, _)| !bounded.contains(t)).for_each(|(_, s)| s.retain(|d| !one(d)));
    }

    /// The tensors that are zero outside of their bounds for some nest.
    fn bounded(&self) -> Vec<Value> {
        let of = |nest: &NestModel| -> Vec<Value> {
            nest.accesses.iter().zip(&nest.zero_outside).filter(|(_, zero)| **zero).map(|(a, _)| a.0).collect()
        };
        self.nests.iter().flat_map(of).collect()
    }

    /// Merges one pair of neighbouring iterators; false where none can be.
    fn merge_pair(&mut self) -> bool {
        let pairs: Vec<(Name, Name)> =
            self.nests.iter().flat_map(|n| n.iters.windows(2).map(|w| (w[0], w[1]))).collect();
        let Some((a, _, places)) = pairs.into_iter().find_map(|(a, b)| Some((a, b, self.mergeable(a, b)?))) else {
            return false;
        };
        for nest in self.nests.iter_mut().filter(|n| n.iters.contains(&a)) {
            let at = nest.iters.iter().position(|&n| n == a).expect("has it");
            nest.iters.remove(at + 1);
            nest.kinds.remove(at + 1);
            let inner = nest.extents.remove(at + 1);
            nest.extents[at] = nest.extents[at] * inner;
            for (tensor, map) in &mut nest.accesses {
                if let Some(&p) = places.get(tensor) {
                    map.remove(p + 1);
                }
            }
        }
        for (tensor, p) in places {
            let shape = self.shapes.get_mut(&tensor).expect("every tensor has a shape");
            let inner = shape.remove(p + 1);
            shape[p] = shape[p] * inner;
        }
        true
    }

    /// Where each tensor has the pair of dimensions that `a` and `b` walk, if all nests walk them together.
    fn mergeable(&self, a: Name, b: Name) -> Option<FxHashMap<Value, usize>> {
        let mut places: FxHashMap<Value, Option<usize>> = FxHashMap::default();
        let mut extents: Option<(Dim, Dim)> = None;
        for nest in &self.nests {
            let at = nest.iters.iter().position(|&n| n == a);
            if at.is_none() && nest.iters.contains(&b) {
                return None;
            }
            if let Some(at) = at {
                let together = nest.iters.get(at + 1) == Some(&b) && nest.kinds[at] == nest.kinds[at + 1];
                let sizes = (nest.extents[at], *nest.extents.get(at + 1)?);
                if !together || *extents.get_or_insert(sizes) != sizes {
                    return None;
                }
            }
            if nest.inner.iter().any(|(_, map, _)| map.iter().any(|&d| mentions(d, a) || mentions(d, b))) {
                return None;
            }
            for (tensor, map) in &nest.accesses {
                let place = pair_place(map, a, b)?;
                if *places.entry(*tensor).or_insert(place) != place {
                    return None;
                }
            }
            for tensor in nest.inner.iter().filter_map(|i| i.2) {
                if places.insert(tensor, None).flatten().is_some() {
                    return None;
                }
            }
        }
        let (outer, inner) = extents?;
        let places: FxHashMap<Value, usize> = places.into_iter().filter_map(|(t, p)| Some((t, p?))).collect();
        let fits = |(tensor, &p): (&Value, &usize)| self.shapes[tensor][p..p + 2] == [outer, inner];
        places.iter().all(fits).then_some(places)
    }

    fn write(self, body: &mut Body) {
        for (&tensor, shape) in &self.shapes {
            let ty = body.ty(tensor).with_shape(shape);
            body.set_ty(tensor, ty);
        }
        for nest in self.nests {
            let inputs = body.operand_count(nest.op);
            let maps: Vec<Attr> = nest.accesses.iter().map(|(_, m)| Attr::shape(m)).collect();
            let words: Vec<Attr> = nest.iters.iter().map(|n| Attr::str(n.as_str())).collect();
            body.set_attr(nest.op, "maps", Attr::array(&maps[..inputs]));
            body.set_attr(nest.op, "out_maps", Attr::array(&maps[inputs..]));
            body.set_attr(nest.op, "iters", Attr::array(&words));
            body.set_attr(nest.op, "kinds", Attr::array(&nest.kinds));
            body.set_attr(nest.op, "extents", Attr::shape(&nest.extents));
            for (op, map, _) in nest.inner.iter().filter(|i| i.2.is_some()) {
                body.set_attr(*op, "at", Attr::shape(map));
            }
        }
    }
}

/// The expressions of `loop.index` and `loop.gather`.
fn inner_access(body: &Body, op: Op) -> Option<(Op, Vec<Dim>, Option<Value>)> {
    let name = if body.name(op) == &INDEX { "expr" } else { "at" };
    let table = (body.name(op) == &GATHER).then(|| body.operand(op, 0));
    (table.is_some() || name == "expr").then_some(())?;
    Some((op, body.attr(op, name)?.as_shape()?.to_vec(), table))
}

fn mentions(dim: Dim, name: Name) -> bool {
    let mut found = false;
    dim.for_each_symbol(&mut |n| found |= n == name);
    found
}

/// Where a map has `a` and `b` as neighbouring entries; `Some(None)` where it has neither; `None` if otherwise.
fn pair_place(map: &[Dim], a: Name, b: Name) -> Option<Option<usize>> {
    let users: Vec<usize> = (0..map.len()).filter(|&d| mentions(map[d], a) || mentions(map[d], b)).collect();
    match users.as_slice() {
        [] => Some(None),
        &[p, q] if q == p + 1 && map[p] == Dim::symbol(a) && map[q] == Dim::symbol(b) => Some(Some(p)),
        _ => None,
    }
}
