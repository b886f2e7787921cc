//! `merge-launches`: launches that have nothing to do with one another become one.
//!
//! An optimizer's step over 200 tensors is 200 launches, each of which takes longer to start than to run (as in PyTorch's
//! `multi_tensor_apply` and Inductor's combo kernels). Here a kernel's programs are those of all of them, one after the other; a program finds out by its
//! number whose it is. Launches of one kernel share its code and take their buffers by number (`kernel.choose`), so code grows with the kernels and not with the
//! launches.

mod beside;
mod kernel;
mod memory;
mod share;

use crate::schedule::Target;
use beside::run_beside;
use kernel::{Kernel, Member, merge};
use memory::Access;
use rc_dialects::host::{FUNC, LAUNCH};
use rc_dialects::op;
use rc_ir::pass::{PassContext, PassDef, PassKind};
use rc_ir::{Attr, Body, Builder, Diagnostic, Module, Name, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use share::share_kernels;

/// A function's attribute that says that it was looked at.
const DONE: &str = "merged";

pub static MERGE_LAUNCHES: PassDef = PassDef {
    summary: "Makes one launch of several that touch different memory.",
    doc: "A launch joins one before it, with none between them whose memory it touches, where sizes are known and no block shares memory or waits for its threads, nor has much fewer threads than the other's; launches of one kernel may do either, and have tensor maps. The kernel of the merged launch has the programs of all; launches of one kernel share its code. `merged_kernels` of the target bounds the kernels \
in one, `parameter_bytes` the buffers. A remark says how many launches became one. Equal kernels become one before and after that. On a GPU launches run beside \
others whose memory they do not need: `after` says what they wait for.",
    requires: &["plan-buffers", "lower-tiles"],
    pending: Some(|module| module.bodies.iter().any(is_pending)),
    ..PassDef::new("merge-launches", |_| {
        Ok(PassKind::module(|module: &mut Module, cx: &mut PassContext| {
            let target = Target::of("", "", module.attrs).map_err(|why| Diagnostic::error(module.loc, why))?;
            merge_launches(module, &target).into_iter().for_each(|remark| cx.report(remark));
            Ok(())
        }))
    })
};

/// Functions of several launches, whose kernels may be merged.
fn is_pending(body: &Body) -> bool {
    body.name(body.root()) == &FUNC && body.attr(body.root(), DONE).is_none() && launches(body).len() > 1
}

fn launches(function: &Body) -> Vec<Op> {
    let ops = function.entry().into_iter().flat_map(|entry| function.ops(entry));
    ops.filter(|&op| function.name(op) == &LAUNCH).collect()
}

fn callee(function: &Body, launch: Op) -> Name {
    Name::new(function.op_ref(launch).str("callee").unwrap_or_default())
}

/// Merges the launches of every function of a module; gives remarks.
pub fn merge_launches(module: &mut Module, target: &Target) -> Vec<Box<Diagnostic>> {
    share_kernels(module);
    let pending: Vec<usize> = (0..module.bodies.len()).filter(|&i| is_pending(&module.bodies[i])).collect();
    let functions: FxHashSet<Name> = pending.iter().filter_map(|&i| module.bodies[i].symbol()).collect();
    let kernels = kernels(module);
    let (mut remarks, mut merged) = (Vec::new(), FxHashSet::default());
    for place in pending {
        let groups = groups(&module.bodies[place], &kernels, target);
        for group in groups.into_iter().filter(|group| group.count() > 1) {
            remarks.push(apply(module, place, &group, &kernels));
            merged.extend(group.launches.iter().map(|kernel| kernel.0));
        }
    }
    erase_unused(module, &merged);
    share_kernels(module);
    let kernels = self::kernels(module);
    for function in module.bodies.iter_mut().filter(|body| body.symbol().is_some_and(|name| functions.contains(&name)))
    {
        if !target.is_cpu() {
            remarks.extend(run_beside(function, &kernels));
        }
        function.set_attr(function.root(), DONE, Attr::bool(true));
    }
    remarks
}

/// A module's kernels by their names.
fn kernels(module: &Module) -> FxHashMap<Name, Kernel> {
    let kernels = module.bodies.iter().filter(|body| body.name(body.root()) == op::kernel::FUNC);
    kernels.map(|body| (body.symbol().unwrap_or_default(), Kernel::of(body))).collect()
}

/// Launches that become one.
struct Group {
    /// By kernel, in the order of their first launches.
    launches: Vec<(Name, Vec<Op>)>,
    access: Access,
    operands: usize,
}

impl Group {
    fn count(&self) -> usize {
        self.launches.iter().map(|kernel| kernel.1.len()).sum()
    }
    fn has(&self, callee: Name) -> bool {
        self.launches.iter().any(|kernel| kernel.0 == callee)
    }
    fn add(&mut self, callee: Name, launch: Op, operands: usize, access: &Access) {
        match self.launches.iter_mut().find(|kernel| kernel.0 == callee) {
            Some(kernel) => kernel.1.push(launch),
            None => self.launches.push((callee, vec![launch])),
        }
        self.operands += operands;
        self.access.join(access);
    }
}

/// What is done at one place.
enum Item {
    Group(Group),
    Other(Access),
}

fn groups(function: &Body, kernels: &FxHashMap<Name, Kernel>, target: &Target) -> Vec<Group> {
    let most = if target.parameter_bytes > 0 { target.parameter_bytes as usize / 8 } else { usize::MAX };
    let mut items: Vec<Item> = Vec::new();
    for op in function.entry().into_iter().flat_map(|entry| function.ops(entry)) {
        let callee = callee(function, op);
        let kernel = kernels.get(&callee).filter(|_| function.name(op) == &LAUNCH);
        let writes = |i: usize| kernel.is_none_or(|kernel| kernel.writes.get(i) != Some(&false));
        let Some(access) = Access::of(function, op, writes) else { continue };
        let Some(kernel) = kernel.filter(|kernel| kernel.merges || kernel.repeats) else {
            items.push(Item::Other(access));
            continue;
        };
        let operands = function.operand_count(op);
        let fits = |group: &Group| {
            let alike = |other: &Name| *other == callee || kernels[other].merges && kernel.merges;
            group.launches.iter().all(|(other, _)| alike(other) && kernels[other].joins(kernel, target.cores))
                && group.operands + operands <= most
                && (group.has(callee) || (group.launches.len() as i64) < target.merged_kernels)
        };
        match joined(&mut items, &access, fits) {
            Some(group) => group.add(callee, op, operands, &access),
            None => items.push(Item::Group(Group { launches: vec![(callee, vec![op])], access, operands })),
        }
    }
    let group = |item| if let Item::Group(group) = item { Some(group) } else { None };
    items.into_iter().filter_map(group).collect()
}

/// The nearest group that a launch may join: it touches nothing of what comes from there on.
fn joined<'a>(items: &'a mut [Item], access: &Access, fits: impl Fn(&Group) -> bool) -> Option<&'a mut Group> {
    let mut place = None;
    for (i, item) in items.iter().enumerate().rev() {
        let (other, group) = match item {
            Item::Group(group) => (&group.access, Some(group)),
            Item::Other(access) => (access, None),
        };
        if other.meets(access) {
            break;
        }
        if group.is_some_and(&fits) {
            place = Some(i);
            break;
        }
    }
    match items.get_mut(place?)? {
        Item::Group(group) => Some(group),
        Item::Other(_) => None,
    }
}

/// Puts one launch in the place of a group's first.
fn apply(module: &mut Module, place: usize, group: &Group, kernels: &FxHashMap<Name, Kernel>) -> Box<Diagnostic> {
    let (first_name, first) = (group.launches[0].0, group.launches[0].1[0]);
    let count = group.count();
    let name = module.fresh_symbol(&format!("{first_name}_and_{}more", count - 1));
    let function = &module.bodies[place];
    let member = |(callee, launches): &(Name, Vec<Op>)| Member {
        kernel: module.symbol(*callee).expect("a merged launch has a kernel"),
        launches: launches.iter().map(|&op| function.operands(op).collect()).collect(),
    };
    let members: Vec<Member> = group.launches.iter().map(member).collect();
    let (kernel, operands) = merge(name.as_str(), &members, kernels[&first_name].early);
    drop(members);
    let function = &mut module.bodies[place];
    let remark = Diagnostic::remark(
        function.loc(first),
        format!("{count} launches of {} kernels become one, '{name}'", group.launches.len()),
    );
    move_views(function, first, &operands);
    let bind = function.attr(first, "bind");
    let mut b = Builder::before(function, first);
    let launch = b.op(&LAUNCH).operands(&operands).attr("callee", Attr::str(name.as_str()));
    launch.maybe_attr("bind", bind).results(&[]).build();
    group.launches.iter().flat_map(|kernel| &kernel.1).for_each(|&op| function.erase(op));
    module.push(kernel);
    remark
}

/// Puts views and constants that come after an operation, and make these values, before it.
fn move_views(function: &mut Body, before: Op, values: &[Value]) {
    let after = std::iter::successors(function.next_op(before), |&op| function.next_op(op));
    let later: FxHashMap<Op, usize> = after.enumerate().map(|(i, op)| (op, i)).collect();
    let mut chain: Vec<Op> = Vec::new();
    let mut seen: FxHashSet<Op> = FxHashSet::default();
    let mut waiting: Vec<Value> = values.to_vec();
    while let Some(value) = waiting.pop() {
        if let Some(op) = function.defining_op(value).filter(|&op| later.contains_key(&op) && seen.insert(op)) {
            chain.push(op);
            waiting.extend(function.operands(op));
        }
    }
    chain.sort_by_key(|op| later[op]);
    chain.into_iter().for_each(|op| function.move_before(before, op));
}

/// Erases the kernels that were merged and that no function launches any more.
fn erase_unused(module: &mut Module, merged: &FxHashSet<Name>) {
    let functions = module.bodies.iter().filter(|body| body.name(body.root()) == &FUNC);
    let used: FxHashSet<Name> =
        functions.flat_map(|function| launches(function).into_iter().map(|op| callee(function, op))).collect();
    let is_unused = |name: Name| merged.contains(&name) && !used.contains(&name);
    module.bodies.retain(|body| !body.symbol().is_some_and(is_unused));
}
