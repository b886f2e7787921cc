//! Launches of a product that come one after another and do not wait for each other: `merge-launches` makes one of them, whose programs share the machine.

use super::nests;
use rc_dialects::loop_::{self, KERNEL, LAUNCH};
use rc_ir::{Attr, Body, Module, Name, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// The attribute of a `loop.kernel` that says how many of its launches come together, wherever it is launched.
const LAUNCHES: &str = "launches";

/// How many launches of a kernel come together.
pub fn launches(kernel: &Body) -> i64 {
    kernel.op_ref(kernel.root()).int(LAUNCHES).unwrap_or(1)
}

/// Says of each product how many of its launches come together, where they are several. One that has others as well becomes two kernels.
pub fn mark(module: &mut Module) {
    let is_kernel = |body: &Body| body.name(body.root()) == &KERNEL;
    let products: FxHashSet<Name> =
        module.bodies.iter().filter(|body| is_kernel(body) && is_product(body)).filter_map(Body::symbol).collect();
    let mut found: Vec<(Name, usize, Vec<Vec<Op>>)> = Vec::new();
    for (place, function) in module.bodies.iter().enumerate().filter(|(_, body)| !is_kernel(body)) {
        for run in runs(function, &products) {
            let callee = callee(function, run[0]);
            match found.iter_mut().find(|known| (known.0, known.1) == (callee, place)) {
                Some(known) => known.2.push(run),
                None => found.push((callee, place, vec![run])),
            }
        }
    }
    let mut lengths: FxHashMap<Name, Vec<usize>> = FxHashMap::default();
    for (callee, _, runs) in &found {
        let known = lengths.entry(*callee).or_default();
        known.extend(runs.iter().map(Vec::len));
        known.sort_unstable();
        known.dedup();
    }
    let mut made: FxHashMap<(Name, usize), Name> = FxHashMap::default();
    for (callee, place, runs) in found {
        for run in runs.into_iter().filter(|run| run.len() > 1) {
            let own = lengths[&callee][0] == run.len();
            let kernel = *made.entry((callee, run.len())).or_insert_with(|| made_for(module, callee, run.len(), own));
            let function = &mut module.bodies[place];
            run.into_iter().for_each(|launch| function.set_attr(launch, "callee", Attr::str(kernel.as_str())));
        }
    }
}

/// The kernel for so many launches that come together: itself, or a copy.
fn made_for(module: &mut Module, callee: Name, launches: usize, own: bool) -> Name {
    let place = module.bodies.iter().position(|body| body.symbol() == Some(callee)).expect("a launch has a kernel");
    if own {
        let root = module.bodies[place].root();
        module.bodies[place].set_attr(root, LAUNCHES, Attr::i64(launches as i64));
        return callee;
    }
    let name = module.fresh_symbol(&format!("{callee}_{launches}_together"));
    let mut copy = module.bodies[place].clone();
    let root = copy.root();
    copy.set_attr(root, "sym_name", Attr::str(name.as_str()));
    copy.set_attr(root, LAUNCHES, Attr::i64(launches as i64));
    module.push(copy);
    name
}

fn is_product(kernel: &Body) -> bool {
    let contracts =
        |op: Op| loop_::Nest::read(kernel.op_ref(op)).is_some_and(|nest| nest.combiners.contains(&"contract"));
    nests(kernel).into_iter().any(contracts)
}

fn callee(function: &Body, launch: Op) -> Name {
    Name::new(function.op_ref(launch).str("callee").unwrap_or_default())
}

/// Launches of one of these kernels after one another, each of which reads what was there before the first.
fn runs(function: &Body, kernels: &FxHashSet<Name>) -> Vec<Vec<Op>> {
    // The number of the last launch that a value depends on.
    let mut after: FxHashMap<Value, usize> = FxHashMap::default();
    let mut runs: Vec<Vec<Op>> = Vec::new();
    // The number of the last run's first launch, and of the last launch.
    let (mut first, mut number) = (0, 0);
    for op in function.walk() {
        let last = function.operands(op).filter_map(|value| after.get(&value)).max().copied().unwrap_or(0);
        let is_launch = function.name(op) == &LAUNCH;
        number += usize::from(is_launch);
        after.extend(function.results(op).map(|result| (result, if is_launch { number } else { last })));
        if !is_launch {
            continue;
        }
        let same = |run: &&mut Vec<Op>| {
            callee(function, run[0]) == callee(function, op) && last < first && first + run.len() == number
        };
        match runs.last_mut().filter(same) {
            Some(run) => run.push(op),
            None if kernels.contains(&callee(function, op)) => {
                runs.push(vec![op]);
                first = number;
            }
            None => {}
        }
    }
    runs
}
