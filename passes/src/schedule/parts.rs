//! On a GPU: two reductions of a row of which the second needs the first's result, where the row stays on no core, or where rows are too few for all
//! cores. Each program does both on a part of a row, which it reads once; the whole row's results follow from the parts'. With n elements, the first
//! result a and the second one s of each part, and the first result of the whole row A:
//!
//! - squares of differences from the mean: the sum of `s + n (a/n - A/N)²` (Chan, Golub and LeVeque, 1983);
//! - exponentials of differences from the maximum: the sum of `s exp(a - A)` (Milakov and Gimelshein, 2018).

use super::group::{Class, Group};
use super::nest::Nest;
use super::row::stays_on_chip;
use super::share::Keys;
use super::target::Target;
use super::tiles::pow2;
use rc_dialects::loop_::{self, IterKind};
use rc_dialects::op;
use rc_ir::builder::Builder;
use rc_ir::{Attr, Block, Body, Dim, Mapping, Name, Op, OpState, Type, Value};

/// Cuts a pair of reductions into parts; whether there was one to cut: then the groups are others.
pub fn cut(body: &mut Body, groups: &[Group], target: &Target) -> bool {
    let all = || groups.iter().flat_map(|g| g.nests.iter().map(move |n| (g, n)));
    let pairs = all().flat_map(|(g, first)| all().map(move |(_, second)| (g, first, second)));
    let found = pairs.filter(|(_, a, b)| alike(body, a, b)).find_map(|(group, first, second)| {
        let form = Form::of(body, first, second)?;
        let parts = worth(body, group, first, second, target).then(|| Parts::of(first, target)).flatten()?;
        Some(Pair { first: first.clone(), second: second.clone(), form, parts })
    });
    found.is_some_and(|pair| pair.cut(body).is_some())
}

/// How the results of parts combine.
enum Form {
    /// Of squares of differences from the mean: the operation of the second nest that makes the mean of the sum, whose number is that of elements, or its
    /// reciprocal.
    Squares { mean: Op },
    /// Of exponentials: the difference of which the exponential is taken, and its operand that follows from the maximum.
    Exponentials { difference: Op, taken: Value },
}

struct Pair {
    first: Nest,
    second: Nest,
    form: Form,
    parts: Parts,
}

/// The iterators of a part.
struct Parts {
    /// The reduce iterators that number parts as they are.
    whole: Vec<Name>,
    /// One that is cut: its name, the name of the part's number, how many there are, and their length.
    cut: Option<(Name, Name, i64, i64)>,
}

/// Whether both reduce the same rows of static sizes to one result each, and the second reads the first's result and else only what lies in memory.
fn alike(body: &Body, a: &Nest, b: &Nest) -> bool {
    let result = body.result(a.op, 0);
    let one =
        |n: &Nest| body.result_count(n.op) == 1 && !n.is_pointwise() && n.of_kind(IterKind::Scan).next().is_none();
    let plain = |n: &Nest| {
        let Some(entry) = body.op_ref(n.op).entry(0) else { return false };
        let places = |op: Op| body.name(op) == &loop_::INDEX || body.name(op) == &loop_::GATHER;
        !n.zero_outside.contains(&true) && n.iters.iter().all(|i| i.extent.is_static()) && !body.ops(entry).any(places)
    };
    let lies = |n: &Nest| body.operands(n.op).all(|v| v == result || body.defining_op(v).is_none());
    let elem = body.ty(result).elem();
    a.op != b.op
        && one(a)
        && one(b)
        && a.iters == b.iters
        && plain(a)
        && plain(b)
        && lies(a)
        && lies(b)
        && body.operands(b.op).filter(|&v| v == result).count() == 1
        && elem.is_float()
        && a.acc.is_none_or(|acc| acc == elem)
        && b.combiners == ["add"]
        && body.ty(body.result(b.op, 0)).elem() == elem
        && b.acc == Some(elem)
}

/// Whether a row is read twice as it is, along what is contiguous, and is long enough.
fn worth(body: &Body, group: &Group, first: &Nest, second: &Nest, target: &Target) -> bool {
    let largest = first.inputs.iter().max_by(|a, b| first.elements(a).total_cmp(&first.elements(b)));
    let along = largest.and_then(|a| a.innermost()).and_then(|name| first.iter(name));
    let contiguous = along.is_some_and(|i| i.kind == IterKind::Reduce);
    let together = group.class == Class::Rows && group.ops.contains(&second.op);
    let width = body.op_ref(first.op).operand_types().iter().filter_map(|t| t.elem().byte_width()).max().unwrap_or(4);
    // Two programs for each core read their rows at a time: does the second-level cache hold them until they are read again?
    let at_once = first.results().min((2 * target.cores) as f64) * first.points() / first.results() * width as f64;
    let again = 2.0 * at_once > target.cache_bytes as f64;
    contiguous
        && first.points() >= target.gpu().parts.from as f64
        && (!together || again && !stays_on_chip(body, group, target))
}

impl Parts {
    /// Parts that stay in a program's registers, and occupy the machine; `None` where no length of such parts divides the row's.
    fn of(nest: &Nest, target: &Target) -> Option<Parts> {
        let costs = &target.gpu().parts;
        let longest = (nest.points() / (2 * target.cores) as f64) as i64;
        let most = (1 << longest.max(1).ilog2()).clamp(costs.shortest, target.gpu().rows.longest.max(costs.shortest));
        let mut out = Parts { whole: Vec::new(), cut: None };
        let (mut padded, mut inside) = (1, true);
        for iter in nest.iters.iter().rev().filter(|i| i.kind == IterKind::Reduce) {
            let extent = iter.extent.as_static()?;
            if inside && padded * pow2(extent) <= most {
                padded *= pow2(extent);
                continue;
            }
            // What is contiguous is cut at multiples of 16 bytes.
            let (step, least) = if padded == 1 { (8, most / 4) } else { (1, 2) };
            let fits = |d: &i64| extent % d == 0 && d % step == 0 && padded * pow2(*d) <= most;
            let length = (least..=most / padded).rev().find(fits).filter(|_| inside);
            inside = false;
            match length {
                Some(length) => {
                    let number = Name::new(&format!("{}_part", iter.name));
                    padded *= pow2(length);
                    out.cut = Some((iter.name, number, extent / length, length));
                }
                None if padded == 1 => return None,
                None => out.whole.push(iter.name),
            }
        }
        let count = out.whole.iter().filter_map(|&n| nest.iter(n)?.extent.as_static()).product::<i64>();
        let count = count * out.cut.map_or(1, |c| c.2);
        let rows = nest.results() as i64;
        (count > 1 && count.saturating_mul(rows) <= costs.most).then_some(out)
    }
    fn numbers(&self, name: Name) -> bool {
        self.whole.contains(&name) || self.cut.is_some_and(|c| c.1 == name)
    }
    /// The elements of a part.
    fn elements(&self, nest: &Nest) -> f64 {
        let reduced = nest.of_kind(IterKind::Reduce).filter(|i| !self.whole.contains(&i.name));
        let length = |name: Name, extent: Dim| match self.cut {
            Some((cut, _, _, length)) if cut == name => length as f64,
            _ => extent.as_static().unwrap_or(1) as f64,
        };
        reduced.map(|i| length(i.name, i.extent)).product()
    }
    /// A nest's iterators with the numbers of parts, each before what it is a part of.
    fn iters(&self, nest: &Nest) -> Vec<(Name, Dim, IterKind)> {
        let mut out = Vec::new();
        for i in &nest.iters {
            match self.cut.filter(|c| c.0 == i.name) {
                Some((name, number, count, length)) => {
                    out.push((number, Dim::Static(count), IterKind::Parallel));
                    out.push((name, Dim::Static(length), i.kind));
                }
                None => out.push((i.name, i.extent, if self.numbers(i.name) { IterKind::Parallel } else { i.kind })),
            }
        }
        out
    }
    /// Where an element of a part lies.
    fn place(&self, map: &[Dim]) -> Vec<Dim> {
        let Some((name, number, _, length)) = self.cut else { return map.to_vec() };
        let at = Dim::symbol(number) * Dim::Static(length) + Dim::symbol(name);
        map.iter().map(|e| e.substitute(&|n| (n == name).then_some(at))).collect()
    }
}

/// A nest to be made.
struct Spec {
    operands: Vec<(Value, Vec<Dim>)>,
    iters: Vec<(Name, Dim, IterKind)>,
    out: Vec<Dim>,
    combiner: &'static str,
    elem: Type,
}

impl Pair {
    fn cut(&self, body: &mut Body) -> Option<()> {
        let (a, b) = (self.first.op, self.second.op);
        let (all_a, all_b) = (body.result(a, 0), body.result(b, 0));
        let elem = body.ty(all_a).elem();
        let rows = out_map(body, a)?;
        let iters = self.parts.iters(&self.first);
        let numbers: Vec<Dim> = iters.iter().filter(|i| self.parts.numbers(i.0)).map(|i| Dim::symbol(i.0)).collect();
        let part = [rows.as_slice(), &numbers].concat();
        // The parts' results.
        let operands = |body: &Body, op: Op, row: Option<Value>| -> Vec<(Value, Vec<Dim>)> {
            let maps = body.op_ref(op).attr("maps").and_then(|m| m.as_array()).unwrap_or_default();
            let one = |(value, map): (Value, &Attr)| match row {
                Some(part_a) if value == all_a => (part_a, part.clone()),
                _ => (value, self.parts.place(map.as_shape().unwrap_or_default())),
            };
            body.operands(op).zip(maps).map(one).collect()
        };
        let spec = |operands, combiner| Spec { operands, iters: iters.clone(), out: part.clone(), combiner, elem };
        let first = spec(operands(body, a, None), self.first.combiners[0]);
        let part_a = make(body, a, first, |body, block, args| region(body, a, block, args, &mut |_, _, _| None));
        let second = spec(operands(body, b, Some(part_a)), "add");
        let part_b = make(body, a, second, |body, block, args| self.part_region(body, block, args));
        // The rows' results.
        let kinds = iters.iter().filter(|i| i.2 == IterKind::Parallel);
        let of_rows: Vec<_> =
            kinds.map(|&(n, e, k)| (n, e, if self.parts.numbers(n) { IterKind::Reduce } else { k })).collect();
        let combined =
            |operands, combiner| Spec { operands, iters: of_rows.clone(), out: rows.clone(), combiner, elem };
        let first = combined(vec![(part_a, part.clone())], self.first.combiners[0]);
        let row_a = make(body, a, first, |_, _, args| args[0]);
        let second = combined(vec![(part_b, part.clone()), (part_a, part.clone()), (row_a, rows.clone())], "add");
        let row_b = make(body, a, second, |body, block, args| self.combined_region(body, block, args));
        for (old, new, op) in [(all_a, row_a, a), (all_b, row_b, b)] {
            let name = body.value_name(old);
            body.set_value_name(new, name);
            body.replace_all_uses(old, new);
            debug_assert!(body.op_ref(op).results().len() == 1);
        }
        body.erase(b);
        body.erase(a);
        Some(())
    }

    /// The second nest's region for a part: with the part's mean, or the part's maximum, where that is any.
    fn part_region(&self, body: &mut Body, block: Block, args: &[Value]) -> Value {
        let b = self.second.op;
        let row = row_argument(body, b, self.first.op);
        let mut args = args.to_vec();
        match self.form {
            Form::Squares { mean } => {
                let elements = [self.parts.elements(&self.first), elements_of(&self.first)];
                region(body, b, block, &args, &mut |body, op, map| {
                    (op == mean).then(|| mean_of(body, block, op, map, elements[0] / elements[1]))
                })
            }
            Form::Exponentials { .. } => {
                args[row] = finite(body, block, args[row]);
                region(body, b, block, &args, &mut |_, _, _| None)
            }
        }
    }

    /// What a part adds to its row's second result: of the part's second and first result, and the row's first.
    fn combined_region(&self, body: &mut Body, block: Block, args: &[Value]) -> Value {
        let [own, part, row] = args else { unreachable!("made with three operands") };
        let b = self.second.op;
        let at = body.op_ref(b).entry(0).map(|e| body.block_arg(e, row_argument(body, b, self.first.op)));
        let taken_of = |row: Value| {
            let mut map = Mapping::new();
            map.map(at.expect("a verified nest has a body"), row);
            map
        };
        let elem = body.ty(*own);
        match self.form {
            Form::Squares { mean } => {
                let elements = [self.parts.elements(&self.first), elements_of(&self.first)];
                let here = mean_of(body, block, mean, &mut taken_of(*part), elements[0] / elements[1]);
                let there = mean_of(body, block, mean, &mut taken_of(*row), 1.0);
                let mut b = Builder::at_end(body, block);
                let d = b.op(op::core::SUB).operands(&[here, there]).value();
                let square = b.op(op::core::MUL).operands(&[d, d]).value();
                let count = b.op(op::core::CONSTANT).attr("value", Attr::float(elements[0], elem)).value();
                let moved = b.op(op::core::MUL).operands(&[square, count]).value();
                b.op(op::core::ADD).operands(&[*own, moved]).value()
            }
            Form::Exponentials { difference, taken } => {
                let part = finite(body, block, *part);
                let here = copy_of(body, block, taken, &mut taken_of(part));
                let mut map = taken_of(*row);
                let there = copy_of(body, block, taken, &mut map);
                let d = Builder::at_end(body, block).op(op::core::SUB).operands(&[here, there]).value();
                map.map(body.result(difference, 0), d);
                let end = yielded(body, b).expect("a verified nest yields");
                let factor = copy_of(body, block, end, &mut map);
                let mut b = Builder::at_end(body, block);
                let scaled = b.op(op::core::MUL).operands(&[*own, factor]).value();
                // A part without any but -inf adds nothing, whatever the factor.
                let zero = b.op(op::core::CONSTANT).attr("value", Attr::float(0.0, elem)).value();
                let none = b.op(op::core::COMPARE).operands(&[*own, zero]).attr("kind", Attr::str("eq")).value();
                b.op(op::core::SELECT).operands(&[none, zero, scaled]).value()
            }
        }
    }
}

impl Form {
    fn of(body: &Body, first: &Nest, second: &Nest) -> Option<Form> {
        let entry = body.op_ref(second.op).entry(0)?;
        let row = body.block_arg(entry, row_argument(body, second.op, first.op));
        let end = yielded(body, second.op)?;
        match first.combiners[..] {
            ["add"] => Form::squares(body, first, second, row, end),
            ["max"] => Form::exponentials(body, row, end),
            _ => None,
        }
    }
    /// `(x - mean)²`, where the first nest adds x.
    fn squares(body: &Body, first: &Nest, second: &Nest, row: Value, end: Value) -> Option<Form> {
        let square = body.defining_op(end).filter(|&op| body.name(op) == op::core::MUL)?;
        let d = body.operand(square, 0);
        let difference =
            body.defining_op(d).filter(|&op| body.operand(square, 1) == d && body.name(op) == op::core::SUB)?;
        let mut uses = body.uses(row);
        let (Some((mean, 0)), None) = (uses.next(), uses.next()) else { return None };
        let number = rc_ir::op_def::constant_of(body, *body.operands(mean).collect::<Vec<_>>().get(1)?)?.as_float()?;
        let n = elements_of(first);
        let is_mean = body.name(mean) == op::core::DIV && number == n
            || body.name(mean) == op::core::MUL && (number * n - 1.0).abs() < 1e-6;
        let result = body.result(mean, 0);
        let (x, m) = (body.operand(difference, 0), body.operand(difference, 1));
        let mut keys = Keys::default();
        let [known, own] = [first, second].map(|n| keys.of_region(body, n));
        let key = |of: &[(Value, u32, bool)], v: Value| of.iter().find(|k| k.0 == v).map(|k| k.1);
        let same = key(&own, x).is_some() && key(&own, x) == key(&known, yielded(body, first.op)?);
        (is_mean && m == result && body.uses(result).count() == 1 && same).then_some(Form::Squares { mean })
    }
    /// `exp(c (x - t))`, t from the maximum alone.
    fn exponentials(body: &Body, row: Value, end: Value) -> Option<Form> {
        let exp =
            body.defining_op(end).filter(|&op| body.name(op) == op::core::EXP || body.name(op) == op::core::EXP2)?;
        let mut scaled = body.operand(exp, 0);
        loop {
            let op = body.defining_op(scaled)?;
            let constant = |i: usize| rc_ir::op_def::constant_of(body, body.operand(op, i)).is_some();
            match body.name(op).as_str() {
                op::core::MUL if constant(1) => scaled = body.operand(op, 0),
                op::core::MUL if constant(0) => scaled = body.operand(op, 1),
                op::core::SUB => {
                    let taken = body.operand(op, 1);
                    let [x, t] = [body.operand(op, 0), taken].map(|v| arguments(body, v));
                    return (t == [row] && !x.contains(&row)).then_some(Form::Exponentials { difference: op, taken });
                }
                _ => return None,
            }
        }
    }
}

/// The number of elements of a nest's row.
fn elements_of(nest: &Nest) -> f64 {
    nest.of_kind(IterKind::Reduce).filter_map(|i| i.extent.as_static()).map(|n| n as f64).product()
}

/// Which operand of a nest is the other one's result.
fn row_argument(body: &Body, nest: Op, of: Op) -> usize {
    body.operands(nest).position(|v| v == body.result(of, 0)).expect("it reads the other's result")
}

fn yielded(body: &Body, nest: Op) -> Option<Value> {
    body.op_ref(nest).entry(0).and_then(|entry| body.last_op(entry)).map(|end| body.operand(end, 0))
}

fn out_map(body: &Body, nest: Op) -> Option<Vec<Dim>> {
    let maps = body.op_ref(nest).attr("out_maps")?.as_array()?;
    let [map] = maps else { return None };
    let rows = map.as_shape()?;
    // Rows are numbered by iterators: then so are parts, after them.
    rows.iter().all(|d| d.as_symbol().is_some()).then(|| rows.to_vec())
}

/// The arguments of a region that a value is computed from.
fn arguments(body: &Body, value: Value) -> Vec<Value> {
    let (mut stack, mut out) = (vec![value], Vec::new());
    while let Some(v) = stack.pop() {
        match body.defining_op(v) {
            Some(op) => stack.extend(body.operands(op)),
            None if !out.contains(&v) => out.push(v),
            None => {}
        }
    }
    out
}

/// A maximum to take the differences from: where there is none but -inf, 0.
fn finite(body: &mut Body, block: Block, maximum: Value) -> Value {
    let elem = body.ty(maximum);
    let mut b = Builder::at_end(body, block);
    let least = b.op(op::core::CONSTANT).attr("value", Attr::float(f64::NEG_INFINITY, elem)).value();
    let none = b.op(op::core::COMPARE).operands(&[maximum, least]).attr("kind", Attr::str("eq")).value();
    let zero = b.op(op::core::CONSTANT).attr("value", Attr::float(0.0, elem)).value();
    b.op(op::core::SELECT).operands(&[none, zero, maximum]).value()
}

/// The mean, as the operation `mean` makes it of a sum of all elements, of a sum of `part` of them.
fn mean_of(body: &mut Body, block: Block, mean: Op, map: &mut Mapping, part: f64) -> Value {
    let sum = map.lookup(body.operand(mean, 0));
    let elem = body.ty(sum);
    let number =
        rc_ir::op_def::constant_of(body, body.operand(mean, 1)).and_then(|n| n.as_float()).expect("found by Form::of");
    let divides = body.name(mean) == op::core::DIV;
    let number = Attr::float(if divides { number * part } else { number / part }, elem);
    let name = body.name(mean).as_str();
    let mut b = Builder::at_end(body, block);
    let number = b.op(op::core::CONSTANT).attr("value", number).value();
    b.op(name).operands(&[sum, number]).value()
}

/// A copy of what computes a value, with what the map has replaced.
fn copy_of(body: &mut Body, block: Block, value: Value, map: &mut Mapping) -> Value {
    if let Some(known) = map.get(value) {
        return known;
    }
    let Some(op) = body.defining_op(value) else { return value };
    for operand in body.operands(op).collect::<Vec<_>>() {
        copy_of(body, block, operand, map);
    }
    let copy = body.clone_op(op, map);
    body.append(block, copy);
    map.lookup(value)
}

/// A copy of a nest's region in a block with these arguments, but what `instead` makes of some of its operations. Gives what it yields.
fn region(
    body: &mut Body,
    nest: Op,
    block: Block,
    args: &[Value],
    instead: &mut dyn FnMut(&mut Body, Op, &mut Mapping) -> Option<Value>,
) -> Value {
    let entry = body.op_ref(nest).entry(0).expect("a verified nest has a body");
    let mut map = Mapping::new();
    let old: Vec<Value> = body.block_args(entry).collect();
    old.into_iter().zip(args).for_each(|(from, &to)| map.map(from, to));
    let ops: Vec<Op> = body.ops(entry).collect();
    let (end, ops) = ops.split_last().expect("a verified nest yields");
    for &op in ops {
        match instead(body, op, &mut map) {
            Some(value) => map.map(body.result(op, 0), value),
            None => {
                let copy = body.clone_op(op, &mut map);
                body.append(block, copy);
            }
        }
    }
    map.lookup(body.operand(*end, 0))
}

fn make(body: &mut Body, before: Op, spec: Spec, fill: impl FnOnce(&mut Body, Block, &[Value]) -> Value) -> Value {
    let words = |items: Vec<&str>| Attr::array(&items.into_iter().map(Attr::str).collect::<Vec<_>>());
    let extents: Vec<Dim> = spec.iters.iter().map(|i| i.1).collect();
    let extent = |d: &Dim| spec.iters.iter().find(|i| Some(i.0) == d.as_symbol()).map_or(Dim::Static(1), |i| i.1);
    let kind = |kind: IterKind| if kind == IterKind::Reduce { "reduce" } else { "parallel" };
    let maps: Vec<Attr> = spec.operands.iter().map(|o| Attr::shape(&o.1)).collect();
    let mut attrs = vec![
        ("iters", words(spec.iters.iter().map(|i| i.0.as_str()).collect())),
        ("kinds", words(spec.iters.iter().map(|i| kind(i.2)).collect())),
        ("extents", Attr::shape(&extents)),
        ("maps", Attr::array(&maps)),
        ("out_maps", Attr::array(&[Attr::shape(&spec.out)])),
        ("combiner", words(vec![spec.combiner])),
    ];
    attrs.extend((spec.combiner == "add").then(|| ("acc", Attr::ty(spec.elem))));
    let mut state = OpState::new(&loop_::NEST, body.loc(before));
    state.operands = spec.operands.iter().map(|o| o.0).collect();
    state.results.push(Type::tensor(&spec.out.iter().map(extent).collect::<Vec<_>>(), spec.elem));
    state.attrs = Attr::dict(attrs.into_iter().map(|(k, v)| (Name::new(k), v)));
    state.regions = 1;
    let made = body.create(state);
    body.insert_before(before, made);
    let types: Vec<Type> = spec.operands.iter().map(|o| body.ty(o.0).elem()).collect();
    let region = body.regions(made)[0];
    let block = body.add_block(region, &types);
    let args: Vec<Value> = body.block_args(block).collect();
    let value = fill(body, block, &args);
    Builder::at_end(body, block).op(&loop_::YIELD).operand(value).build();
    body.result(made, 0)
}
