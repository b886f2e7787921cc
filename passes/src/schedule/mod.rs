//! `schedule`: chooses how each nest of a `loop.kernel` is run, and writes it on the nest.
//!
//! Nests that can keep their values in registers form a group, which lower-kernel makes one kernel of. A file for each kind
//! of schedule holds its model; the remarks say what was chosen, the runner-up, and the numbers.

pub mod access;
mod apart;
mod attention;
mod attention_backward;
mod attr;
mod beside;
mod candidate;
mod check;
mod column;
mod contract;
pub mod contract_cpu;
mod cores;
mod direct;
pub mod group;
mod keep;
mod knob;
mod lanes_cpu;
mod matrix_vector_cpu;
mod near;
pub mod nest;
mod parts;
mod pointwise;
pub mod roles;
mod row;
mod scan;
pub mod scatter;
mod share;
mod short_rows;
pub mod sort;
mod taps;
mod tiles;
mod tuning;
mod warpgroup;
mod window_cpu;

use rc_dialects::loop_::KERNEL;
use rc_ir::pass::{
    OptionDef, OptionKind, Options, PassContext, PassDef, PassKind, SymbolContext, option, run_on_symbols,
};

pub use attention::{
    Accesses as AttentionAccesses, accesses as attention_accesses, cpu::reads_keys_in_place, iters as attention_iters,
};
pub use attention_backward::takes_heads;
pub use attr::{Kind, NONE, Operand, Schedule, reference};
pub use candidate::{Candidate, Cost, Plan};
pub use contract::{has_exact_sums, multiplied};
pub use contract_cpu::{panel_columns, tile_columns};
pub use direct::{PART, PART_ROW};
use rc_machine as target;
pub use rc_machine::{Machine, Target};
pub use tuning::{Entry, Tuning, nests, structure};
pub use warpgroup::{ROW_BYTES, ROWS, WARPGROUP, WIDTH, is_mapped, line, row_width};

use access::Access;
use group::{Class, Group};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Diagnostic, Dim, Loc, Module, Name, Op, Result, Type};
use std::path::Path;

pub static SCHEDULE: PassDef = PassDef {
    summary: "Chooses how each nest is run: grid, tiles, threads.",
    doc: "`#rc.schedule<kind = row, group = 0, collapse = [[b, s]], grid = [b_s], tile = {b_s = 1, j = 1024}, axes = [b_s, j], threads = 128>`: \
nests of one `group` become one kernel and hand values on in registers; `collapse` runs adjacent iterators as one, called `b_s` from then on; \
`grid` are the iterators that programs are spread over, the slowest first; `tile` says how many elements of an iterator are handled at once \
(1 where it is not named), `axes` which iterators run along the two dimensions of tiles (`_`: none does). `split` cuts \
what is reduced into so many parts, each for a program of its own, which a second kernel combines. Products have the iterator `inner` that \
is summed over tile by tile, the hardware `unit` (`wgmma`: one more warpgroup brings tiles to shared memory, the others multiply), pipeline \
`stages`, `programs` where each handles one tile of results after another, and on a CPU the elements that a program handles of each iterator, one tile after another (`block`; \
of `inner`, how many at a time), and the operands that it copies into memory of its own first (`pack`). \
On a GPU `gather` names the operands whose tiles are gathered into shared memory in runs of neighbours, whatever their index map; the others \
are copied as boxes of memory. `keep` is on a nest whose rows wait in memory of the \
program's own for the nests that read them: on a CPU, what several of them would compute alike and takes long is made a nest of its own; on a GPU, what several \
of them read of a row that is too long for registers is copied to shared memory by one. Kinds: `pointwise`, `row` (reductions along what is contiguous in memory), `column` (across it), \
`contract`, `attention`, `scatter`, `sort`, and `general`, which runs any nest. Schedules that nests have already are kept, so that a person's or a tuner's choice \
counts; a kernel in which some nest has none is scheduled anew. Remarks name the runner-up with its numbers, and with `top` the best so many \
candidates, each with the time that the model predicts and what bounds it; the first is taken. `tuning` names a file that `rc-tune` wrote: kernels that it has \
for this machine get the schedules that were measured.",
    options: &[
        TARGET_OPTIONS[0],
        TARGET_OPTIONS[1],
        option("tuning", OptionKind::Str, "", "A file of measured schedules."),
        option("top", OptionKind::Int { min: 1, max: 64 }, "1", "Candidates that a remark lists."),
    ],
    requires: &["lower-loops"],
    pending: Some(|module| module.bodies.iter().any(is_unscheduled)),
    ..PassDef::new("schedule", |_| Ok(PassKind::module(run)))
};

fn run(module: &mut Module, cx: &mut PassContext) -> Result {
    let target = settle_target(module, cx.options)?;
    if let Some(remark) = target.remark() {
        cx.remark(module.loc, remark);
    }
    let tuning = match cx.options.str("tuning") {
        "" => Tuning::default(),
        file => Tuning::read(Path::new(file))?,
    };
    let top = cx.options.int("top") as usize;
    mark_launches(module, &target);
    let one = |body: &mut Body, cx: &mut SymbolContext| -> Result {
        if is_unscheduled(body) {
            schedule_kernel(body, &target, &tuning, top)?.into_iter().for_each(|remark| cx.report(remark));
        }
        Ok(())
    };
    let mut errors = run_on_symbols(module, None, cx, &one).err().unwrap_or_default().into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    cx.diagnostics.extend(errors);
    Err(Box::new(first))
}

/// Says of each kernel what its schedule has to know of its launches, before any is scheduled.
pub fn mark_launches(module: &mut Module, target: &Target) {
    if !target.is_cpu() {
        beside::mark(module);
    }
}

/// The options that say what machine to schedule for.
pub const TARGET_OPTIONS: &[OptionDef] = &[
    option(
        "target",
        OptionKind::Enum(&["auto", "cpu", "cuda"]),
        "auto",
        "The machine; auto: what the module's rc.target says, else a CPU.",
    ),
    option("arch", OptionKind::Str, "", "Its architecture: host, x86-64-v3, x86-64-v4, sm_80, sm_90a, …"),
];

/// The target that a pass's options and the module's `rc.target` name. What the options name is the module's from then on, so that
/// what follows lowers for the machine that was scheduled for.
///
/// # Errors
/// If there is no such target, or the module is for another machine.
pub fn settle_target(module: &mut Module, options: &Options) -> Result<Target> {
    let machine = Some(options.str("target")).filter(|&m| m != "auto").unwrap_or("");
    let arch = options.str("arch");
    let known = module.attr("rc.target").and_then(|t| t.get("machine")).and_then(|m| m.as_str());
    if let Some(known) = known.filter(|&known| !machine.is_empty() && known != machine) {
        let error =
            Diagnostic::error(module.loc, format!("the module's rc.target is {known}, and target={machine} is wanted"));
        return Err(error.help("leave the option away, or remove rc.target from a module that is not scheduled yet"));
    }
    let target = Target::of(machine, arch, module.attrs).map_err(|why| Diagnostic::error(Loc::UNKNOWN, why))?;
    if known.is_none() && !(machine.is_empty() && arch.is_empty()) {
        target.set_on(module);
    }
    Ok(target)
}

/// Whether a body is a `loop.kernel` with a nest that has no schedule.
pub fn is_unscheduled(body: &Body) -> bool {
    body.name(body.root()) == &KERNEL && nests(body).into_iter().any(|op| body.attr(op, "schedule").is_none())
}

/// Gives every nest of a `loop.kernel` a schedule, measured ones where there are any; those it has are replaced. The remarks say why, and list the
/// best `top` candidates.
///
/// # Errors
/// If the kernel holds something that is not a nest.
pub fn schedule_kernel(body: &mut Body, target: &Target, tuning: &Tuning, top: usize) -> Result<Vec<Box<Diagnostic>>> {
    let groups = form_groups(body, target)?;
    let mut remarks = Vec::new();
    if tuning.apply(body, target, &mut remarks) {
        return Ok(remarks);
    }
    let count = groups.len();
    for (number, group) in groups.into_iter().enumerate() {
        let mut plan = plan(body, &group, target)?;
        remarks.push(remark(body, &group, &plan, target));
        if top > 1 {
            near::complete(body, &group, &mut plan, target);
            apart::add(body, &group, &mut plan.candidates, target)?;
            let listed = plan.candidates.iter().take(top).enumerate();
            let listed =
                listed.map(|(i, c)| Diagnostic::remark(body.loc(group.ops[0]), format!("candidate {}: {c}", i + 1)));
            remarks.extend(listed);
        }
        write(body, &group.ops, &plan.candidates[0].schedules, number, count);
    }
    Ok(remarks)
}

fn remark(body: &Body, group: &Group, plan: &Plan, target: &Target) -> Box<Diagnostic> {
    let kind = plan.candidates[0].schedules[0].kind.word();
    let what = if group.ops.len() == 1 { "1 nest".to_string() } else { format!("{} nests", group.ops.len()) };
    let loc = body.loc(group.ops[0]);
    let remark = Diagnostic::remark(loc, format!("{kind} schedule for {what} on {}: {}", target.name, plan.why()));
    remark.note(loc, format!("runner-up: {}", plan.runner_up()))
}

/// Writes the schedules of a group's nests, which become kernel number `group` of the `count` of their `loop.kernel`. A candidate may divide the group:
/// its parts behind the first get numbers behind those of all groups.
pub fn write(body: &mut Body, ops: &[Op], schedules: &[Schedule], group: usize, count: usize) {
    for (op, schedule) in ops.iter().zip(schedules) {
        let mut schedule = schedule.clone();
        schedule.group = schedule.group * count as i64 + group as i64;
        let attr = schedule.to_attr();
        body.set_attr(*op, "schedule", attr);
    }
}

/// The nests of each group of a `loop.kernel`, and the ways to run them, the best first. The kernel's nests are left in the form that
/// [`schedule_kernel`] chooses schedules for, without any.
///
/// # Errors
/// If the kernel holds something that is not a nest.
pub fn candidates(body: &mut Body, target: &Target) -> Result<Vec<(Vec<Op>, Vec<Candidate>)>> {
    let groups = form_groups(body, target)?;
    let ranked = |group: Group| {
        let mut plan = plan(body, &group, target)?;
        near::complete(body, &group, &mut plan, target);
        apart::add(body, &group, &mut plan.candidates, target)?;
        Ok((group.ops, plan.candidates))
    };
    groups.into_iter().map(ranked).collect()
}

/// The groups of nests that run together, after nests were added that all share.
fn form_groups(body: &mut Body, target: &Target) -> Result<Vec<Group>> {
    let mut groups = group::groups(body, target)?;
    while target.is_cpu() && groups.iter().any(|g| g.class == Class::Rows && share::share(body, g)) {
        groups = group::groups(body, target)?;
    }
    while !target.is_cpu() && parts::cut(body, &groups, target) {
        groups = group::groups(body, target)?;
    }
    while !target.is_cpu() && groups.iter().any(|g| keep::keep(body, g, target)) {
        groups = group::groups(body, target)?;
    }
    Ok(groups)
}

fn plan(body: &Body, group: &Group, target: &Target) -> Result<Plan> {
    Ok(match group.class {
        Class::Attention => {
            let op = group.ops[0];
            return attention::plan(body, op, target)
                .ok_or_else(|| body.op_ref(op).error("expects the six iterators b, h, m, n, d, e"));
        }
        Class::AttentionBackward => {
            let op = group.ops[0];
            return attention_backward::plan(body, op, target)
                .ok_or_else(|| body.op_ref(op).error("expects the six iterators b, h, m, n, d, e"));
        }
        Class::Scatter => {
            let op = group.ops[group.ops.len() - 1];
            let mut plan =
                scatter::plan(body, op, target).ok_or_else(|| body.op_ref(op).error("has malformed attributes"))?;
            plan.candidates.iter_mut().for_each(|c| c.schedules.resize(group.ops.len(), c.schedules[0].clone()));
            return Ok(plan);
        }
        Class::Sort => return sort::plan(body, group.ops[0], target),
        Class::Pointwise => pointwise::plan(body, group.clone(), target),
        Class::Scan => match scan::plan(body, group.clone(), target) {
            Some(plan) => plan,
            None => column::general(body, group, target, "a scan runs along its iterator point by point"),
        },
        Class::Contract => match contract::plan(body, group.clone(), target) {
            Some(plan) => plan,
            None => reduction(body, group, target),
        },
        Class::Rows => match scan::of_rows(body, group.clone(), target) {
            Some(plan) => plan,
            None => reduction(body, group, target),
        },
    })
}

/// Rows or columns, by what is contiguous in the largest operand.
fn reduction(body: &Body, group: &Group, target: &Target) -> Plan {
    let leader = group.nests.iter().find(|n| !n.is_pointwise()).unwrap_or(&group.nests[0]);
    let reduces = |name: Name| leader.iter(name).is_some_and(|i| i.kind == IterKind::Reduce);
    if !target.is_cpu()
        && let Some(plan) = taps::plan(body, group.clone(), target)
    {
        return plan;
    }
    if let Some(lane) = column::window_lane(leader, target.fusion.apart).filter(|_| !has_long_rows(leader)) {
        return match target.is_cpu() {
            true => window_cpu::plan(body, group.clone(), lane, target),
            false => column::windows(body, group.clone(), lane, target),
        };
    }
    // What is reduced may be computed of counters and of rows' numbers alone: another nest reads or writes all elements then.
    let reads_all = |n: &&nest::Nest| n.inputs.iter().any(|a| everywhere(n, a)) || gathered(n).is_some();
    let main = std::iter::once(leader).chain(&group.nests).find(reads_all).unwrap_or(leader);
    let along = across(group, leader, target).or_else(|| contiguous(main));
    // A few elements each, none beside the other: of blocks whose places are counted through.
    if along.is_none()
        && !target.is_cpu()
        && column::is_of_few(leader, target)
        && let Some(lane) = column::result_lane(leader)
    {
        return column::windows(body, group.clone(), lane, target);
    }
    match along {
        // Rows of a table that are summed, or a few elements: a thread has those of several results at once.
        Some(name)
            if !reduces(name)
                && !target.is_cpu()
                && (gathered(leader) == Some(name)
                    || column::is_short(group, target)
                    || column::is_narrow(group, name, target)) =>
        {
            column::windows(body, group.clone(), name, target)
        }
        // Gradients of windows' weights: an element is a factor of several neighbouring results.
        Some(name) if !reduces(name) && target.is_cpu() && column::has_windows(leader, name) => {
            window_cpu::plan(body, group.clone(), name, target)
        }
        Some(name) if !reduces(name) => column::plan(body, group.clone(), target),
        Some(_) if target.is_cpu() && short_rows::in_lanes(body, group, target) => {
            column::plan(body, group.clone(), target)
        }
        Some(_) => row::plan(body, group.clone(), target),
        None if group.nests.len() == 1 && (target.is_cpu() || !has_long_rows(leader)) => {
            column::general(body, group, target, "no operand is contiguous along an iterator")
        }
        None => row::plan(body, group.clone(), target),
    }
}

/// Where operands lie in different orders, rows would read some element by element, a sector for each: the iterator along which tiles of columns are
/// taken then, on a GPU, which moves elements among threads. Only where elements are read by one nest: others would read them again.
fn across(group: &Group, leader: &nest::Nest, target: &Target) -> Option<Name> {
    let rows = group.rows();
    let once = |n: &nest::Nest| n.op == leader.op || n.iters.iter().all(|i| rows.contains(&i.name));
    if target.is_cpu() || !group.nests.iter().all(once) {
        return None;
    }
    let elements: Vec<&Access> = leader.inputs.iter().filter(|a| everywhere(leader, a)).collect();
    let along = |kind: IterKind| {
        let long = move |name: &Name| {
            leader.iter(*name).is_some_and(|i| i.kind == kind && i.extent.as_static().is_none_or(|n| n >= column::SIDE))
        };
        elements.iter().filter_map(|a| a.innermost()).find(long)
    };
    along(IterKind::Reduce).and_then(|_| along(IterKind::Parallel))
}

/// Whether a nest reduces more elements to each result than there are results: rows, be they seen through windows.
fn has_long_rows(nest: &nest::Nest) -> bool {
    nest.points() > nest.results() * nest.results()
}

/// Whether an operand has an element for each point of a nest.
fn everywhere(nest: &nest::Nest, access: &Access) -> bool {
    nest.iters.iter().all(|i| i.extent == Dim::Static(1) || access.mentions(i.name))
}

/// The iterator along which a table lies contiguous of which a nest reads rows.
fn gathered(nest: &nest::Nest) -> Option<Name> {
    nest.gathers.iter().find_map(|a| a.innermost()).filter(|&name| nest.iter(name).is_some())
}

/// The iterator along which the largest operand of a nest lies contiguous. Of a table an element is read for each point.
fn contiguous(nest: &nest::Nest) -> Option<Name> {
    if let Some(name) = gathered(nest).filter(|_| !nest.inputs.iter().any(|a| everywhere(nest, a))) {
        return Some(name);
    }
    // A table for channels may mention as many iterators as what is reduced, and is smaller.
    let reach = |a: &Access| (nest.iters.iter().filter(|i| a.mentions(i.name)).count(), nest.elements(a));
    let most = nest.inputs.iter().map(reach).max_by(|a, b| a.partial_cmp(b).expect("sizes are numbers"))?;
    let largest: Vec<&Access> = nest.inputs.iter().filter(|a| reach(a) == most).collect();
    let contiguous = largest.iter().rev().find_map(|a| a.innermost());
    contiguous.or_else(|| largest.iter().rev().find_map(|a| in_runs(nest, a)))
}

/// The iterator along which an operand is read run after run, as channels of several heads are.
fn in_runs(nest: &nest::Nest, access: &Access) -> Option<Name> {
    let last = access.shape.iter().rposition(|&s| s != Dim::Static(1))?;
    let run = access.shape[last].as_static().filter(|&n| n >= RUN)?;
    nest.iters.iter().map(|i| i.name).find(|&name| access.exprs[last] == Dim::symbol(name).modulo(Dim::Static(run)))
}

/// Elements of the shortest run that counts as contiguous.
const RUN: i64 = 8;

/// The widest element type that a group moves, at least 32 bits.
fn elems(body: &Body, group: &Group) -> Type {
    let types = group.ops.iter().flat_map(|&op| {
        let op = body.op_ref(op);
        op.operand_types().into_iter().chain(op.result_types()).map(|t| t.elem()).collect::<Vec<_>>()
    });
    tiles::widest(types.chain([Type::f32()]))
}

/// The same of what differs along an iterator: an index of a row is read once for all of it.
fn elems_along(body: &Body, group: &Group, along: Name) -> Type {
    let types = group.nests.iter().flat_map(|nest| {
        let op = body.op_ref(nest.op);
        let operands = op.operand_types().into_iter().enumerate();
        let read = operands.filter(|(i, _)| nest.inputs.get(*i).is_none_or(|access| access.mentions(along)));
        read.map(|(_, t)| t).chain(op.result_types()).map(|t| t.elem()).collect::<Vec<_>>()
    });
    tiles::widest(types.chain([Type::f32()]))
}
