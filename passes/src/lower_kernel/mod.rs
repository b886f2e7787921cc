//! `lower-kernel`: applies schedules. Every `loop.kernel` becomes one `kernel.func` in the tile phase for each group of its
//! nests, every `loop.launch` the `host.launch`es of those.
//!
//! A program loads tiles through index maps, runs regions on them, and stores results. Memory that is not laid out as a
//! tile wants it is viewed as another shape, or gathered from.

mod attention;
mod attention_backward;
mod attention_backward_cpu;
mod attention_backward_head;
mod attention_cpu;
mod attention_split;
mod branch;
mod contract;
mod contract_cpu;
mod early;
mod epilogue;
mod gathered;
mod grid;
mod in_place;
mod inside;
mod keep;
mod launch;
mod memory;
mod program;
mod reduce;
mod region;
mod run;
mod scatter;
mod scope;
mod sort;
mod sort_count;
mod sort_cpu;
mod split;

pub use launch::lower_launches;

use crate::schedule::access::Iter;
use crate::schedule::group::{Class, Group, computes_updates};
use crate::schedule::nest::{Nest, symbol_ranges};
use crate::schedule::{
    Schedule, TARGET_OPTIONS, Target, Tuning, is_unscheduled, mark_launches, schedule_kernel, settle_target,
};
use attention::Attention;
use attention_backward::AttentionBackward;
use attention_split::AttentionSplit;
use contract::Product;
use contract_cpu::Blocked;
use epilogue::epilogue;
use grid::{Spread, scope_of};
use program::Program;
use rc_dialects::func::{SYMBOLS, symbols};
use rc_dialects::loop_::{self, IterKind};
use rc_dialects::op;
use rc_ir::builder::new_function;
use rc_ir::pass::{PassContext, PassDef, PassKind, has_op};
use rc_ir::{Attr, Body, Diagnostic, Module, Name, Op, Result, Type, Value};
use scatter::Scatter;
use sort::Sort;
use split::Split;

pub static LOWER_KERNEL: PassDef = PassDef {
    summary: "Applies schedules: nests become kernels on tiles, launches name them.",
    doc: "Every group of nests with one schedule becomes a kernel.func in the tile phase; what groups pass to one another goes \
through memory. Kernels that are not scheduled yet are scheduled first, for the same target.",
    options: TARGET_OPTIONS,
    requires: &["lower-loops"],
    pending: Some(|module| has_op(module, |name| name == &loop_::KERNEL || name == &loop_::LAUNCH)),
    ..PassDef::new("lower-kernel", |_| {
        Ok(PassKind::module(|module: &mut Module, cx: &mut PassContext| {
            let target = settle_target(module, cx.options)?;
            for remark in lower_module(module, &target)? {
                cx.report(remark);
            }
            Ok(())
        }))
    })
};

/// Lowers every `loop.kernel` and `loop.launch` of a module, scheduling what is not scheduled. Gives the schedules' remarks.
///
/// # Errors
/// Those of [`schedule_kernel`], [`lower_kernel`] and [`lower_launches`].
pub fn lower_module(module: &mut Module, target: &Target) -> Result<Vec<Box<Diagnostic>>> {
    let mut remarks = Vec::new();
    if module.bodies.iter().any(is_unscheduled) {
        mark_launches(module, target);
    }
    let mut lowered: Vec<(Name, Lowered)> = Vec::new();
    let mut taken: Vec<Name> = module.bodies.iter().filter_map(|b| b.symbol()).collect();
    for body in module.bodies.iter_mut().filter(|b| b.name(b.root()) == &loop_::KERNEL) {
        if is_unscheduled(body) {
            remarks.extend(schedule_kernel(body, target, &Tuning::default(), 1)?);
        }
        let mut kernel = lower_kernel(body, target)?;
        for i in 1..kernel.funcs.len() {
            let wanted = kernel.steps[i].callee;
            let numbered = std::iter::once(wanted).chain((0..).map(|n| Name::new(&format!("{wanted}_{n}"))));
            let name = numbered.into_iter().find(|n| !taken.contains(n)).unwrap_or(wanted);
            taken.push(name);
            kernel.steps[i].callee = name;
            let root = kernel.funcs[i].root();
            kernel.funcs[i].set_attr(root, "sym_name", Attr::str(name.as_str()));
        }
        lowered.push((body.symbol().unwrap_or_default(), kernel));
    }
    for body in module.bodies.iter_mut().filter(|b| b.name(b.root()) != &loop_::KERNEL) {
        lower_launches(body, &|name| lowered.iter().find(|l| l.0 == name).map(|l| &l.1))?;
    }
    let mut kernels = lowered.into_iter();
    let bodies = std::mem::take(&mut module.bodies);
    module.bodies = bodies
        .into_iter()
        .flat_map(|body| match body.name(body.root()) == &loop_::KERNEL {
            true => kernels.next().map_or(Vec::new(), |k| k.1.funcs),
            false => vec![body],
        })
        .collect();
    Ok(remarks)
}

/// A value of a lowered kernel's launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ref {
    /// Argument of the `loop.kernel`.
    Arg(usize),
    /// A result of one of its steps.
    Step(usize, usize),
}

/// One launch.
#[derive(Clone, Debug)]
pub struct Step {
    pub callee: Name,
    pub inputs: Vec<Ref>,
    /// The result types, over the kernel's symbols.
    pub results: Vec<Type>,
    /// Results that begin as an input and are updated: pairs of their numbers.
    pub updates: Vec<i64>,
    /// Results that may have an input's memory: pairs of their numbers.
    pub inplace: Vec<i64>,
}

impl Step {
    fn new(callee: Name, inputs: Vec<Ref>, results: Vec<Type>, func: &mut Body) -> Step {
        let threads = func.op_ref(func.root()).int("threads").unwrap_or(1);
        let inplace = in_place::in_place(func, inputs.len(), threads);
        Step { callee, inputs, results, updates: Vec::new(), inplace }
    }
}

/// What a `loop.kernel` becomes.
#[derive(Debug)]
pub struct Lowered {
    pub funcs: Vec<Body>,
    pub steps: Vec<Step>,
    pub results: Vec<Ref>,
    /// What each of the kernel's symbols is called, in order.
    pub symbols: Vec<Name>,
}

/// A group with its schedules.
struct Scheduled {
    group: Group,
    schedules: Vec<Schedule>,
}

/// Applies the schedules of a `loop.kernel`. Functions are called as the kernel, with `_1`, `_2`, … after the first.
///
/// # Errors
/// If a nest has no schedule, or one that cannot be applied to it.
pub fn lower_kernel(src: &Body, target: &Target) -> Result<Lowered> {
    let groups = scheduled_groups(src, target)?;
    let root = src.op_ref(src.root());
    let name = src.symbol().ok_or_else(|| root.error("expects a name"))?;
    let entry = src.entry().ok_or_else(|| root.error("expects a body"))?;
    let args: Vec<Value> = src.block_args(entry).collect();
    let mut out = Lowered { funcs: Vec::new(), steps: Vec::new(), results: Vec::new(), symbols: Vec::new() };
    out.symbols = symbols(src).iter().map(|s| s.name).collect();
    let mut known: Vec<(Value, Ref)> = args.iter().enumerate().map(|(i, &a)| (a, Ref::Arg(i))).collect();
    let find = |known: &[(Value, Ref)], v: Value| {
        let missing = || Diagnostic::error(src.loc(src.root()), "a nest reads a value that comes after its group");
        known.iter().find(|k| k.0 == v).map(|k| k.1).ok_or_else(missing)
    };
    for scheduled in groups.iter().filter(|s| !is_only_filling(src, &s.group)) {
        let (inputs, outputs) = interface(src, &scheduled.group);
        let number = out.steps.len();
        let callee = |n: usize| if n == 0 { name } else { Name::new(&format!("{name}_{n}")) };
        let types = |values: &[Value]| values.iter().map(|&v| src.ty(v)).collect();
        let refs = |values: &[Value]| values.iter().map(|&v| find(&known, v)).collect::<Result<Vec<_>>>();
        let split = scheduled.schedules[0].split();
        let mut push = |mut func: Body, inputs: Vec<Ref>, results: Vec<Type>| {
            let callee = callee(out.steps.len());
            out.steps.push(Step::new(callee, inputs, results, &mut func));
            out.funcs.push(func);
        };
        let parts_of = |count: usize| (0..count).map(|i| Ref::Step(number, i));
        if let Some(parts) = split.filter(|_| scheduled.group.class == Class::Attention && !target.is_cpu()) {
            let split = AttentionSplit::new(src, target, scheduled, parts);
            let partial = split.partial_types()?;
            push(split.parts(callee(number))?, refs(&inputs)?, partial.clone());
            push(split.combine(callee(number + 1), &outputs)?, parts_of(partial.len()).collect(), types(&outputs));
        } else if let Some(parts) = split {
            let split = Split::new(src, target, scheduled, parts)?;
            let partial = split.partial_types();
            push(split.parts(callee(number))?, refs(&split.read_by_parts)?, partial.clone());
            let inputs = parts_of(partial.len()).chain(refs(&split.read_at_end)?).collect();
            push(split.combine(callee(number + 1), &outputs)?, inputs, types(&outputs));
        } else {
            let func = lower_group(src, target, scheduled, callee(number), &inputs, &outputs)?;
            push(func, refs(&inputs)?, types(&outputs));
            let number_of = |among: &[Value], v: Value| among.iter().position(|&o| o == v).map(|at| at as i64);
            let updates = updated(src, target, scheduled)
                .and_then(|(result, from)| Some(vec![number_of(&outputs, result)?, number_of(&inputs, from)?]));
            out.steps[number].updates = updates.unwrap_or_default();
        }
        let last = out.steps.len() - 1;
        known.extend(outputs.iter().enumerate().map(|(i, &v)| (v, Ref::Step(last, i))));
    }
    let returned = src.last_op(entry).filter(|&o| src.name(o) == &loop_::RETURN);
    let returned = returned.ok_or_else(|| root.error("expects to end in loop.return"))?;
    out.results = src.operands(returned).map(|v| find(&known, v)).collect::<Result<_>>()?;
    Ok(out)
}

/// The nests of a kernel by the groups that their schedules name, in order.
fn scheduled_groups(src: &Body, target: &Target) -> Result<Vec<Scheduled>> {
    let decls = symbols(src);
    let mut out: Vec<(i64, Scheduled)> = Vec::new();
    for op in src.entry().into_iter().flat_map(|e| src.ops(e).collect::<Vec<_>>()) {
        let at = src.op_ref(op);
        let is_nest = src.name(op) == &loop_::NEST;
        let class = match src.name(op) {
            name if name == &loop_::NEST => Class::Rows,
            name if name == &loop_::ATTENTION => Class::Attention,
            name if name == &loop_::ATTENTION_BACKWARD => Class::AttentionBackward,
            name if name == &loop_::SCATTER => Class::Scatter,
            name if name == &loop_::SORT => Class::Sort,
            _ => continue,
        };
        let schedule = Schedule::read(at)?;
        schedule.check_on(at, target)?;
        let nest = match is_nest {
            false => Vec::new(),
            true => {
                let nest = Nest::read(src, op, &decls)?.with_collapses(&schedule.collapse);
                let tiled = nest.of_kind(IterKind::Scan).any(|i| schedule.axis_of(i.name).is_some());
                vec![if tiled { nest.forward() } else { nest }]
            }
        };
        match out.last_mut() {
            Some((number, last)) if *number == schedule.group && class == Class::Scatter => {
                if target.is_cpu() || !computes_updates(src, &last.group, op) {
                    return Err(at.error("is in the group of nests that do not compute its updates alone"));
                }
                last.group.class = class;
                last.group.ops.push(op);
                last.schedules.push(schedule);
            }
            Some((number, last)) if *number == schedule.group && is_nest && last.group.class == class => {
                if last.schedules[0].grid != schedule.grid {
                    return Err(at.error("has another grid than the nest before it, of the same group"));
                }
                last.group.ops.push(op);
                last.group.nests.extend(nest);
                last.schedules.push(schedule);
            }
            _ => {
                let group = Group { class, ops: vec![op], nests: nest };
                out.push((schedule.group, Scheduled { group, schedules: vec![schedule] }));
            }
        }
    }
    Ok(out.into_iter().map(|g| g.1).collect())
}

/// What a group reads from outside, in order of first use, and which of its results are used outside.
fn interface(src: &Body, group: &Group) -> (Vec<Value>, Vec<Value>) {
    let mut inputs: Vec<Value> = Vec::new();
    let inside = |v: Value| src.defining_op(v).is_some_and(|o| group.ops.contains(&o));
    for &op in &group.ops {
        let gathers = src.op_ref(op).entry(0).into_iter().flat_map(|b| src.ops(b).collect::<Vec<_>>());
        let sources = gathers.filter(|&o| src.name(o) == &loop_::GATHER).map(|o| src.operand(o, 0));
        for v in src.operands(op).chain(sources).collect::<Vec<_>>() {
            let filled = is_start(src, op, v) && filled_with(src, v).is_some();
            if !(inside(v) || filled || inputs.contains(&v)) {
                inputs.push(v);
            }
        }
    }
    let outside = |user: Op| {
        let top = std::iter::successors(Some(user), |&o| src.parent_op(o).filter(|&p| p != src.root())).last();
        top.is_none_or(|t| !group.ops.contains(&t))
    };
    let escapes = |v: &Value| src.uses(*v).any(|(user, _)| outside(user));
    let results = group.ops.iter().flat_map(|&op| src.results(op).collect::<Vec<_>>());
    (inputs, results.filter(escapes).collect())
}

/// Whether a value is what a scatter begins with whose programs write each place.
fn is_start(src: &Body, op: Op, value: Value) -> bool {
    let op = src.op_ref(op);
    op.name() == &loop_::SCATTER
        && op.operands().len() == 5
        && op.operands().filter(|&v| v == value).count() == 1
        && op.operand(0) == value
}

/// The number that a value is everywhere, where its nest says so.
fn filled_with(src: &Body, value: Value) -> Option<Attr> {
    let nest = src.op_ref(src.defining_op(value).filter(|&op| src.name(op) == &loop_::NEST)?);
    let entry = nest.entry(0).filter(|_| nest.operands().len() == 0 && nest.results().len() == 1)?;
    let yielded = src.operands(src.last_op(entry)?).next()?;
    rc_ir::op_def::constant_of(src, yielded)
}

/// Whether a group only writes numbers with which scatters begin that write each place themselves.
fn is_only_filling(src: &Body, group: &Group) -> bool {
    group.ops.iter().all(|&op| {
        let mut results = src.results(op);
        results.all(|v| filled_with(src, v).is_some() && src.uses(v).all(|(user, _)| is_start(src, user, v)))
    })
}

fn lower_group(
    src: &Body,
    target: &Target,
    scheduled: &Scheduled,
    name: Name,
    inputs: &[Value],
    outputs: &[Value],
) -> Result<Body> {
    let args: Vec<Memory> = inputs.iter().chain(outputs).map(|&v| Memory::Of(v)).collect();
    let mut p = begin(src, target, &scheduled.group, name, &args).0;
    let grid = match scheduled.group.class {
        Class::Attention => attend(&mut p, scheduled)?,
        Class::AttentionBackward => attend_backward(&mut p, scheduled)?,
        Class::Scatter => scatter_updates(&mut p, scheduled)?,
        Class::Sort => sort_rows(&mut p, scheduled)?,
        _ => run_nests(&mut p, scheduled, outputs)?,
    };
    let mut made = end(p, grid, scheduled.schedules[0].threads);
    if !target.is_cpu() && scheduled.group.class == Class::Rows && scheduled.schedules[0].contract().is_none() {
        early::load_early(&mut made);
    }
    if let Some(own) = scheduled.schedules[0].contract() {
        let root = made.root();
        for (key, number) in [("turns", own.turns), ("epilogue_stages", own.epilogue_stages)] {
            number.into_iter().for_each(|number| made.set_attr(root, key, Attr::i64(number)));
        }
        // Every few columns read the same rows again, past shared memory.
        if own.parts.is_some() {
            made.set_attr(root, "prefer_l1", Attr::bool(true));
        }
    }
    // Programs that go from block to block all run at once.
    let attends = matches!(scheduled.group.class, Class::Attention | Class::AttentionBackward) && !target.is_cpu();
    let at_once = scheduled.schedules[0].programs().filter(|_| attends);
    let at_once = at_once.map(|programs| (programs / target.cores.max(1)).max(1));
    if let Some(programs) = scheduled.schedules[0].resident().or(at_once) {
        let root = made.root();
        made.set_attr(root, "min_blocks", Attr::i64(programs));
    }
    Ok(made)
}

/// Whether it sums products: subnormal factors, as the smallest of a softmax, count as zero there.
fn multiplies(group: &Group) -> bool {
    let attention = matches!(group.class, Class::Attention | Class::AttentionBackward);
    attention || group.nests.iter().any(|n| n.combiners.contains(&"contract"))
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
enum Memory {
    /// The memory of a tensor of the nests.
    Of(Value),
    /// Other memory, in the form of this type.
    Other(Type),
}

/// A program with these arguments. Gives those that are of no tensor, too.
fn begin<'a>(
    src: &'a Body,
    target: &'a Target,
    group: &'a Group,
    name: Name,
    args: &[Memory],
) -> (Program<'a>, Vec<Value>) {
    let types = args.iter().map(|arg| match *arg {
        Memory::Of(v) => src.ty(v),
        Memory::Other(ty) => ty,
    });
    let types: Vec<Type> = types.map(|ty| Type::memref(&ty.shape(), ty.elem(), 0)).collect();
    let made = new_function(op::kernel::FUNC, name.as_str(), &types, &[], src.loc(group.ops[0]));
    let mut p = Program::new(src, target, group, symbol_ranges(&symbols(src)), made.body);
    let mut other = Vec::new();
    for (arg, &memory) in args.iter().zip(&made.args) {
        let Memory::Of(v) = *arg else {
            other.push(memory);
            continue;
        };
        p.memory.insert(v, memory);
        let hint = src.value_name(v);
        if !hint.is_empty() {
            p.out.set_value_name(memory, hint);
        }
    }
    (p, other)
}

/// The finished function.
fn end(mut p: Program, grid: [rc_ir::Dim; 3], threads: i64) -> Body {
    p.build().op(op::kernel::RETURN).build();
    let flush = p.target.is_cpu() && multiplies(p.group);
    let (src, cluster, mut body) = (p.src, p.cluster, p.out);
    erase_dead(&mut body);
    let root = body.root();
    body.set_attr(root, "phase", Attr::str("tile"));
    body.set_attr(root, "target", Attr::str(p.target.word()));
    body.set_attr(root, "grid", Attr::shape(&grid));
    body.set_attr(root, "threads", Attr::i64(threads));
    if let Some(blocks) = cluster {
        body.set_attr(root, "cluster", Attr::i64s(&[blocks, 1, 1]));
    }
    if flush {
        body.set_attr(root, "flush", Attr::bool(true));
    }
    for attr in ["origin", SYMBOLS] {
        if let Some(value) = src.attr(src.root(), attr) {
            body.set_attr(root, attr, value);
        }
    }
    body
}

/// Erases constants and other operations that turned out to be needed in another shape, or not at all.
fn erase_dead(body: &mut Body) {
    for op in body.walk().into_iter().rev() {
        if rc_ir::effects::is_dead(body, op) {
            body.erase(op);
        }
    }
}

/// The iterators of the grid, each with the elements that a program takes of it.
fn spread_of(src: &Body, op: Op, schedule: &Schedule, iters: &[Iter]) -> Result<Vec<Spread>> {
    let spread = |&name: &Name| {
        let iter = iters.iter().find(|i| i.name == name && i.kind == IterKind::Parallel);
        let wrong = || {
            src.op_ref(op)
                .error(format!("has a schedule with '{name}' in its grid, which is no parallel iterator of it"))
        };
        let step = if schedule.axis_of(name).is_some() { schedule.tile_of(name) } else { 1 };
        Ok(Spread { iter: *iter.ok_or_else(wrong)?, step: schedule.block_of(name).unwrap_or(step) })
    };
    schedule.grid.iter().map(spread).collect()
}

fn run_nests(p: &mut Program, scheduled: &Scheduled, outputs: &[Value]) -> Result<[rc_ir::Dim; 3]> {
    let (nests, schedules) = (&scheduled.group.nests, &scheduled.schedules);
    let leader = nests.iter().position(|n| !n.is_pointwise()).unwrap_or(0);
    let schedule = &schedules[leader];
    p.loc = p.src.loc(nests[leader].op);
    let over = spread_of(p.src, nests[leader].op, schedule, &nests[leader].iters)?;
    let stores = |n: &Nest| p.src.results(n.op).map(|v| outputs.contains(&v)).collect::<Vec<bool>>();
    let stores: Vec<Vec<bool>> = nests.iter().map(stores).collect();
    if schedule.programs().is_some() {
        return p.tile_after_tile(&over, schedule, |p, starts| product(p, scheduled, &over, starts, &stores));
    }
    let (grid, starts) = p.spread(&over);
    if schedule.contract().is_some() {
        product(p, scheduled, &over, &starts, &stores)?;
        return Ok(grid);
    }
    if nests.len() == 1 || nests.iter().zip(schedules).all(|(n, s)| reads_in_one_step(p, n, s)) {
        let several = |s: &&Spread| s.iter.extent != rc_ir::Dim::Static(s.step);
        p.spread_over = Some(over.iter().filter(several).map(|s| s.iter.name).collect());
    }
    for (nest, schedule) in nests.iter().zip(schedules).filter(|(_, s)| s.keeps()) {
        p.keep_result(nest, schedule)?;
    }
    for ((nest, schedule), stores) in nests.iter().zip(schedules).zip(&stores) {
        let scope = scope_of(&over, &starts, schedule);
        p.run(nest, schedule, &scope, stores)?;
        if schedule.keeps() && !p.target.is_cpu() {
            p.await_kept();
        }
    }
    Ok(grid)
}

/// Whether a nest needs no loops, so that what it reads stays in registers for the nests after it.
fn reads_in_one_step(p: &Program, nest: &Nest, schedule: &Schedule) -> bool {
    let covered = |i: &Iter| p.ranges.interval(i.extent).is_some_and(|r| r.1 <= schedule.tile_of(i.name));
    nest.iters.iter().all(|i| schedule.grid.contains(&i.name) || covered(i))
}

/// A product, then the epilogue's nests on its tile of results.
fn product(p: &mut Program, scheduled: &Scheduled, over: &[Spread], starts: &[Value], stores: &[Vec<bool>]) -> Result {
    let schedule = &scheduled.schedules[0];
    let product = Product::new(p, &scheduled.group.nests[0], schedule)?;
    let scope = scope_of(over, starts, schedule);
    p.hold_indices(product.nest, &scope)?;
    if schedule.block().is_empty() {
        let tile = product.sums(p, &scope, None)?;
        return epilogue(p, scheduled, &scope, tile, stores);
    }
    Blocked::new(p, &product, &scope)?.run(p, |p, scope, tile| epilogue(p, scheduled, scope, tile, stores))
}

/// The later queries are, the more keys they see: their programs come first.
fn longest_first(p: &mut Program, over: &[Spread], starts: &mut [Value], queries: Name) {
    for (spread, start) in over.iter().zip(starts).filter(|s| s.0.iter.name == queries) {
        let last = spread.iter.extent.ceildiv(rc_ir::Dim::Static(spread.step)) - rc_ir::Dim::Static(1);
        let last = p.size(last * rc_ir::Dim::Static(spread.step));
        *start = p.binary(op::core::SUB, last, *start);
    }
}

fn scatter_updates(p: &mut Program, scheduled: &Scheduled) -> Result<[rc_ir::Dim; 3]> {
    let (op, schedule) = (scheduled.group.ops[scheduled.group.ops.len() - 1], &scheduled.schedules[0]);
    p.loc = p.src.loc(op);
    let scatter = Scatter::read(p, op)?;
    let sizes = &scatter.sizes;
    let in_memory = has_updates(schedule, sizes) && !p.target.is_cpu();
    let iters = if in_memory { sizes.update_iters() } else { sizes.iters };
    let mut over = spread_of(p.src, op, schedule, &iters)?;
    let [o, a, l] = iters.map(|i| i.name);
    let by_place = schedule.axis_of(sizes.updates().name) == Some(0) && !in_memory;
    if by_place {
        over.iter_mut().filter(|s| s.iter.name == a).for_each(|s| s.step = schedule.tile_of(a));
    }
    let programs = schedule.scatter_programs().filter(|_| in_memory);
    let part = programs.map(|programs| scatter.part(p, schedule, programs)).transpose()?;
    if let Some(part) = part {
        over.iter_mut().filter(|s| s.iter.name == a).for_each(|s| s.step = part);
    }
    let wanted: &[Name] = if p.target.is_cpu() && !by_place { &[o, l] } else { &[o, a, l] };
    if schedule.grid != wanted {
        return Err(p.src.op_ref(op).error(format!("expects a schedule with {wanted:?} in its grid on this machine")));
    }
    let (grid, starts) = p.spread(&over);
    let scope = scope_of(&over, &starts, schedule);
    match (p.target.is_cpu(), in_memory) {
        _ if by_place => scatter.run_by_place(p, schedule, &scope)?,
        (true, _) => scatter.run_on_cpu(p, schedule, &scope, begins_as_copy(p.src, op, schedule, p.target))?,
        (_, true) => match part {
            Some(part) => scatter.run_together(p, schedule, &scope, part)?,
            None => scatter.run_in_memory(p, &scope)?,
        },
        (_, false) => scatter.run(p, &scope)?,
    }
    Ok(grid)
}

fn sort_rows(p: &mut Program, scheduled: &Scheduled) -> Result<[rc_ir::Dim; 3]> {
    let (op, schedule) = (scheduled.group.ops[0], &scheduled.schedules[0]);
    p.loc = p.src.loc(op);
    let sort = Sort::read(p, op)?;
    let over = spread_of(p.src, op, schedule, &sort.sizes.iters)?;
    let (grid, starts) = p.spread(&over);
    let scope = scope_of(&over, &starts, schedule);
    if p.target.is_cpu() {
        sort.run_on_cpu(p, &scope)?
    } else {
        sort.run(p, schedule, &scope)?
    }
    Ok(grid)
}

/// Whether programs have updates, which they combine with memory.
fn has_updates(schedule: &Schedule, sizes: &crate::schedule::scatter::Scatter) -> bool {
    schedule.grid.contains(&sizes.updates().name)
}

/// The result of a group's last launch that begins as an operand, and that operand.
fn updated(src: &Body, target: &Target, scheduled: &Scheduled) -> Option<(Value, Value)> {
    let op = *scheduled.group.ops.last().filter(|_| scheduled.group.class == Class::Scatter)?;
    let sizes = crate::schedule::scatter::Scatter::read(src.op_ref(op))?;
    let schedule = &scheduled.schedules[0];
    let begins =
        if target.is_cpu() { begins_as_copy(src, op, schedule, target) } else { has_updates(schedule, &sizes) };
    begins.then(|| (src.result(op, 0), src.operand(op, 0)))
}

/// Whether a CPU's programs combine the updates with memory that holds what the scatter begins with, and copy nothing: where that is made for it alone,
/// or is copied faster before.
fn begins_as_copy(src: &Body, op: Op, schedule: &Schedule, target: &Target) -> bool {
    let (scatter, x) = (src.op_ref(op), src.operand(op, 0));
    let Some(sizes) = crate::schedule::scatter::Scatter::read(scatter) else { return false };
    let same = src.ty(x) == src.ty(scatter.result(0)) && scatter.operands().len() == 3;
    let own = src.defining_op(x).is_some_and(|nest| src.name(nest) == &loop_::NEST) && src.uses(x).count() == 1;
    same && (own || !crate::schedule::scatter::copies_slices(src, &sizes, schedule, target))
}

fn attend(p: &mut Program, scheduled: &Scheduled) -> Result<[rc_ir::Dim; 3]> {
    let (op, schedule) = (scheduled.group.ops[0], &scheduled.schedules[0]);
    p.loc = p.src.loc(op);
    let attention = Attention::read(p, op, schedule)?;
    let over = spread_of(p.src, op, schedule, &attention.iters)?;
    let needed = attention.iters[..3].iter().all(|i| schedule.grid.contains(&i.name));
    if !needed || schedule.axes != [attention.iters[2].name, attention.iters[3].name] {
        return Err(p.src.op_ref(op).error("expects a schedule with b, h and m in its grid and m and n as its axes"));
    }
    if schedule.programs().is_some() {
        return p.tile_after_tile(&over, schedule, |p, starts| attend_block(p, &attention, &over, starts.to_vec()));
    }
    let (grid, starts) = p.spread(&over);
    attend_block(p, &attention, &over, starts)?;
    Ok(grid)
}

/// Attention of a program's block of queries.
fn attend_block(p: &mut Program, attention: &Attention, over: &[Spread], mut starts: Vec<Value>) -> Result {
    let (schedule, queries) = (attention.schedule, attention.iters[2].name);
    if attention.causal && !p.target.is_cpu() {
        longest_first(p, over, &mut starts, queries);
    }
    let scope = scope_of(over, &starts, schedule);
    let output = p.src.result(attention.op, 0);
    if p.target.is_cpu() {
        return attention.run_on_cpu(p, &scope, schedule.block_of(queries).unwrap_or(attention.rows()), output);
    }
    let (tile, scope) = attention.run(p, &scope)?;
    p.store(tile, output, &attention.output, &scope)
}

fn attend_backward(p: &mut Program, scheduled: &Scheduled) -> Result<[rc_ir::Dim; 3]> {
    let (op, schedule) = (scheduled.group.ops[0], &scheduled.schedules[0]);
    p.loc = p.src.loc(op);
    let backward = AttentionBackward::read(p, op, schedule)?;
    let iters = &backward.iters;
    let over = spread_of(p.src, op, schedule, iters)?;
    let [row, other] = backward.axes();
    let head = backward.of_head();
    let wanted: &[usize] = if head { &[0, 1] } else { &[0, 1, row] };
    let needed = wanted.iter().all(|&i| schedule.grid.contains(&iters[i].name));
    if !needed || schedule.axes != [iters[row].name, iters[other].name] {
        let error = p.src.op_ref(op).error("expects a schedule with b, h and the rows of its gradients in its grid");
        return Err(error.help("the axes are m, n for q's gradient, n, m for k's and v's"));
    }
    if schedule.programs().is_some() {
        let body = |p: &mut Program, starts: &[Value]| gradients_of_block(p, &backward, &over, starts.to_vec());
        return p.tile_after_tile(&over, schedule, body);
    }
    let (grid, starts) = p.spread(&over);
    gradients_of_block(p, &backward, &over, starts)?;
    Ok(grid)
}

/// The gradients of a program's block of rows.
fn gradients_of_block(
    p: &mut Program,
    backward: &AttentionBackward,
    over: &[Spread],
    mut starts: Vec<Value>,
) -> Result {
    let (op, schedule, row) = (backward.op, backward.schedule, backward.iters[backward.axes()[0]].name);
    let head = backward.of_head();
    if backward.causal && backward.axes()[0] == attention::M && !head {
        longest_first(p, over, &mut starts, row);
    }
    let scope = scope_of(over, &starts, schedule);
    let block = schedule.block_of(row);
    match (p.target.is_cpu(), block) {
        (false, _) if head => Err(p.src.op_ref(op).unsupported("of q, k and v at once but on the CPU")),
        (true, _) if head => backward.run_on_head(p, &scope),
        (false, Some(_)) => Err(p.src.op_ref(op).error("has a schedule with 'block', which is for the CPU")),
        (false, None) => backward.run(p, &scope),
        (true, block) => backward.run_on_cpu(p, &scope, block.unwrap_or(schedule.tile_of(row))),
    }
}
