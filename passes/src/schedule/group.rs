//! Which nests of a kernel run together: a group becomes one `kernel.func`, in which values stay in registers.

use super::access::{Access, mentions};
use super::nest::Nest;
use super::scatter::takes_updates;
use super::target::Target;
use rc_dialects::loop_::{self, IterKind};
use rc_ir::{Body, Diagnostic, Dim, Name, Op, Result, Value};

/// What a group is, by its nests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Pointwise,
    /// At least one reduction, or scans with other nests; all nests have its parallel iterators.
    Rows,
    /// A product and pointwise nests over its results.
    Contract,
    Attention,
    AttentionBackward,
    Scatter,
    Sort,
    Scan,
}

/// Nests that run together, in order. For attention and sorts `nests` is empty; for a scatter it is what computes its updates, if that is not in memory.
#[derive(Clone, Debug)]
pub struct Group {
    pub class: Class,
    pub ops: Vec<Op>,
    pub nests: Vec<Nest>,
}

impl Group {
    /// The parallel iterators that all nests of the group have: for `Rows` those of its reductions.
    pub fn rows(&self) -> Vec<Name> {
        let leader = self.nests.iter().find(|n| !n.is_pointwise()).or(self.nests.first());
        leader.map_or(Vec::new(), |n| n.of_kind(IterKind::Parallel).map(|i| i.name).collect())
    }
    /// Which result of which nest a value is.
    pub fn producer(&self, body: &Body, value: Value) -> Option<(&Nest, usize)> {
        let op = body.defining_op(value)?;
        let nest = self.nests.iter().find(|n| n.op == op)?;
        Some((nest, body.results(op).position(|r| r == value)?))
    }
    /// How deep in values of the group: whether each read of one can be served from registers or by computing it again.
    pub fn reads_fit(&self, body: &Body, nest: &Nest) -> bool {
        let rows = self.rows();
        let mut reads = body.operands(nest.op).zip(&nest.inputs);
        let fits = |(value, access): (Value, &Access)| match self.producer(body, value) {
            None => true,
            Some((from, result)) => read_fits(body, from, &from.outputs[result], access, &rows),
        };
        reads.all(fits) && !self.gathers_inside(body, nest)
    }
    /// Whether the region gathers from a value of the group, which has to be in memory for that.
    fn gathers_inside(&self, body: &Body, nest: &Nest) -> bool {
        let Some(entry) = body.op_ref(nest.op).entry(0) else { return false };
        let gathers = body.ops(entry).filter(|&o| body.name(o) == &loop_::GATHER);
        gathers.into_iter().any(|o| self.producer(body, body.operand(o, 0)).is_some())
    }
    fn reads_any(&self, body: &Body, nest: &Nest) -> bool {
        body.operands(nest.op).any(|v| self.producer(body, v).is_some())
    }
    fn shares_operand(&self, body: &Body, nest: &Nest) -> bool {
        let taken = |v: Value| self.nests.iter().any(|n| body.operands(n.op).any(|o| o == v));
        body.operands(nest.op).any(taken)
    }
}

/// Whether a consumer reading at `read` what a nest of its group wrote at `written` needs no memory.
fn read_fits(body: &Body, from: &Nest, written: &Access, read: &Access, rows: &[Name]) -> bool {
    if written.shape != read.shape {
        return false;
    }
    let each = from.is_pointwise() || from.has(IterKind::Scan);
    if written.exprs == read.exprs && (each || written.exprs.iter().all(|&e| only_over(e, from, rows))) {
        return true;
    }
    let small = body.op_ref(from.op).entry(0).is_some_and(|b| body.ops(b).count() <= 16);
    let alone = body.operands(from.op).all(|v| body.defining_op(v).is_none());
    from.is_pointwise() && small && alone && inverse(from, written, read).is_some()
}

/// Whether the expression mentions no other iterators of the nest than `rows`.
fn only_over(e: Dim, nest: &Nest, rows: &[Name]) -> bool {
    nest.iters.iter().all(|i| rows.contains(&i.name) || !mentions(e, i.name))
}

/// What the iterators of a pointwise nest are, for the element of its result that is read at `read`.
pub fn inverse(nest: &Nest, written: &Access, read: &Access) -> Option<Vec<(Name, Dim)>> {
    let pairs: Vec<(Name, Dim)> =
        written.exprs.iter().zip(&read.exprs).map(|(w, &r)| Some((w.as_symbol()?, r))).collect::<Option<_>>()?;
    let one = |name: Name| pairs.iter().filter(|p| p.0 == name).count() == 1;
    let all = nest.iters.iter().all(|i| one(i.name) || i.extent == Dim::Static(1));
    (written.shape == read.shape && all && pairs.iter().all(|p| nest.iter(p.0).is_some())).then(|| {
        let units =
            nest.iters.iter().filter(|i| !pairs.iter().any(|p| p.0 == i.name)).map(|i| (i.name, Dim::Static(0)));
        pairs.iter().copied().chain(units.collect::<Vec<_>>()).collect()
    })
}

/// Splits a kernel's nests, in order, into groups.
///
/// # Errors
/// If the kernel holds an operation that is not a nest.
pub fn groups(body: &Body, target: &Target) -> Result<Vec<Group>> {
    let symbols = rc_dialects::func::symbols(body);
    let mut out: Vec<Group> = Vec::new();
    let Some(entry) = body.entry() else { return Ok(out) };
    for op in body.ops(entry).collect::<Vec<_>>() {
        if body.name(op) == &loop_::NEST {
            let nest = Nest::read(body, op, &symbols)?;
            match out.last_mut() {
                Some(last) if joins(body, last, &nest, target) => {
                    if !nest.is_pointwise() || last.class == Class::Scan {
                        last.class = Class::Rows;
                    }
                    last.ops.push(op);
                    last.nests.push(nest);
                }
                _ => out.push(Group { class: class_of(&nest), ops: vec![op], nests: vec![nest] }),
            }
        } else if body.name(op) == &loop_::ATTENTION {
            out.push(Group { class: Class::Attention, ops: vec![op], nests: Vec::new() });
        } else if body.name(op) == &loop_::ATTENTION_BACKWARD {
            out.push(Group { class: Class::AttentionBackward, ops: vec![op], nests: Vec::new() });
        } else if body.name(op) == &loop_::SCATTER {
            match out.last_mut() {
                Some(last) if !target.is_cpu() && computes_updates(body, last, op) => {
                    last.class = Class::Scatter;
                    last.ops.push(op);
                }
                _ => out.push(Group { class: Class::Scatter, ops: vec![op], nests: Vec::new() }),
            }
        } else if body.name(op) == &loop_::SORT {
            out.push(Group { class: Class::Sort, ops: vec![op], nests: Vec::new() });
        } else if body.name(op) != &loop_::RETURN {
            let what = format!("'{}' in a loop.kernel", body.name(op).pretty());
            return Err(
                Diagnostic::unsupported(body.loc(op), what).help("a kernel holds nests; run lower-loops before")
            );
        }
    }
    Ok(out)
}

/// Whether a group is a nest that computes the updates of a scatter alone. What the scatter begins with may be changed where it lies, so that none of them
/// is computed of it.
pub fn computes_updates(body: &Body, group: &Group, scatter: Op) -> bool {
    let ([op], [nest]) = (&group.ops[..], &group.nests[..]) else { return false };
    let op = *op;
    let (start, updates) = (body.operand(scatter, 0), body.operand(scatter, 2));
    let entry = body.op_ref(op).entry(0).into_iter().flat_map(|entry| body.ops(entry));
    let tables = entry.filter(|&o| body.name(o) == &loop_::GATHER).map(|o| body.operand(o, 0));
    let reads_start = body.operands(op).chain(tables).any(|read| read == start);
    let extents = nest.iters.iter().map(|i| i.extent);
    nest.is_pointwise()
        && !reads_start
        && takes_updates(body.op_ref(scatter))
        && body.result_count(op) == 1
        && body.defining_op(updates) == Some(op)
        && body.has_one_use(updates)
        && extents.eq(body.ty(updates).shape())
}

fn class_of(nest: &Nest) -> Class {
    match () {
        _ if nest.has(IterKind::Scan) => Class::Scan,
        _ if nest.is_contraction() => Class::Contract,
        _ if nest.has(IterKind::Reduce) => Class::Rows,
        _ => Class::Pointwise,
    }
}

/// Whether `nest` runs with the group before it.
fn joins(body: &Body, group: &Group, nest: &Nest, target: &Target) -> bool {
    let class = class_of(nest);
    let pointwise = class == Class::Pointwise;
    let shares = group.reads_any(body, nest);
    let joined = || {
        let mut joined = group.clone();
        joined.class = if class == Class::Rows { class } else { group.class };
        joined.ops.push(nest.op);
        joined.nests.push(nest.clone());
        joined
    };
    let scans = |n: &&Nest| n.has(IterKind::Scan);
    let fits = match (group.class, class) {
        _ if group.nests.iter().chain([nest]).any(|n| scans(&n)) => {
            (shares || group.shares_operand(body, nest)) && super::scan::holds(&joined(), target)
        }
        (Class::Contract, Class::Pointwise) => shares && same_iters(&group.nests[0], nest),
        (Class::Pointwise, Class::Pointwise) => {
            (shares || group.shares_operand(body, nest)) && same_iters(&group.nests[0], nest)
        }
        (Class::Pointwise, Class::Rows) => {
            shares && group.nests.iter().all(|n| covers(n, nest)) && enough(body, nest, &joined(), target)
        }
        (Class::Rows, Class::Pointwise | Class::Rows) => {
            let Some(leader) = group.nests.iter().find(|n| !n.is_pointwise()) else { return false };
            let rows = covers(nest, leader) && (pointwise || covers(leader, nest));
            // Two single programs take longer than one that does the work of both.
            let single = !leader.has(IterKind::Parallel) && !nest.has(IterKind::Parallel);
            rows && (shares || single || group.shares_operand(body, nest)) && enough(body, leader, &joined(), target)
        }
        _ => false,
    };
    if !fits {
        return false;
    }
    let joined = joined();
    joined.nests.iter().all(|n| joined.reads_fit(body, n))
}

/// Whether both have the same parallel iterators, and pointwise ones no others.
fn same_iters(a: &Nest, b: &Nest) -> bool {
    covers(a, b) && covers(b, a)
}
/// Whether `nest` has all parallel iterators of `of`, as parallel ones.
fn covers(nest: &Nest, of: &Nest) -> bool {
    of.of_kind(IterKind::Parallel).all(|i| nest.iter(i.name) == Some(i))
}
/// Whether there are rows enough to keep the machine busy when one program computes a whole row. Fewer do where the row is read once, since other
/// kernels would read it again.
fn enough(body: &Body, leader: &Nest, joined: &Group, target: &Target) -> bool {
    let (rows, cores) = (leader.results(), target.cores as f64);
    let points = joined.nests.iter().map(Nest::points).fold(0.0, f64::max);
    // Rows that lie across memory are taken as many at a time as a load has elements.
    let across =
        super::contiguous(leader).and_then(|name| leader.iter(name)).is_some_and(|i| i.kind == IterKind::Parallel);
    if across && !target.is_cpu() {
        let programs = rows / (target.vector_bits / 16) as f64;
        return programs >= cores / 2.0 || points / programs.max(1.0) <= target.fusion.together;
    }
    let once = || !target.is_cpu() && rows >= cores / 4.0 && super::row::stays_on_chip(body, joined, target);
    rows >= cores / 2.0 || points <= target.fusion.together || once()
}

/// Collapses pairs of adjacent iterators that `may` be collapsed, in all nests that have them, as often as it goes. Gives the pairs.
pub fn collapse(body: &Body, group: &mut Group, may: &dyn Fn(&Nest, Name) -> bool) -> Vec<[Name; 2]> {
    let mut pairs = Vec::new();
    while let Some((pair, next)) = find_collapse(body, group, may) {
        pairs.push(pair);
        *group = next;
    }
    pairs
}

fn find_collapse(body: &Body, group: &Group, may: &dyn Fn(&Nest, Name) -> bool) -> Option<([Name; 2], Group)> {
    for nest in &group.nests {
        for pair in nest.iters.windows(2).rev() {
            let (a, b) = (pair[0].name, pair[1].name);
            if pair[0].kind != pair[1].kind || !may(nest, a) || !may(nest, b) {
                continue;
            }
            let has = |n: &Nest| n.iter(a).is_some() || n.iter(b).is_some();
            let collapsed: Option<Vec<Nest>> =
                group.nests.iter().map(|n| if has(n) { n.collapsed(a, b) } else { Some(n.clone()) }).collect();
            let Some(nests) = collapsed else { continue };
            let next = Group { nests, ..group.clone() };
            if next.nests.iter().all(|n| next.reads_fit(body, n)) {
                return Some(([a, b], next));
            }
        }
    }
    None
}
