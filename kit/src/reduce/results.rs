//! Fewer results of functions, fewer arguments, fewer operands and results of operations with regions.

use super::Search;
use super::minimize::minimize;
use super::ops::{keep_returned, set_function_type};
use rc_dialects::op;
use rc_ir::{Attr, Body, Mapping, Module, Op, OpState, Value};

/// Drops returned values, makes arguments of one type one, takes regions' unused inputs and outputs away.
pub fn reduce(module: Module, search: &mut Search) -> Module {
    merge_arguments(drop_ports(drop_returned(module, search), search), search)
}

fn drop_returned(module: Module, search: &mut Search) -> Module {
    let end = |body: &Body| {
        let entry = body.entry()?;
        body.terminator(entry).filter(|&op| body.name(op) == op::func::RETURN)
    };
    let parts: Vec<(usize, usize)> = (0..module.bodies.len())
        .flat_map(|at| {
            let body = &module.bodies[at];
            (0..end(body).map_or(0, |op| body.operand_count(op))).map(move |i| (at, i))
        })
        .collect();
    let without = |gone: &[(usize, usize)]| {
        let mut fewer = module.clone();
        for (at, body) in fewer.bodies.iter_mut().enumerate() {
            let Some(op) = end(body).filter(|_| gone.iter().any(|g| g.0 == at)) else { continue };
            let kept: Vec<usize> = (0..body.operand_count(op)).filter(|i| !gone.contains(&(at, *i))).collect();
            keep_returned(body, op, &kept);
            set_function_type(body);
        }
        Some(fewer)
    };
    minimize(&parts, search, without).1.unwrap_or(module)
}

/// Makes an earlier argument of the same type take the place of a later one.
fn merge_arguments(module: Module, search: &mut Search) -> Module {
    let args =
        |body: &Body| -> Vec<Value> { body.entry().map_or(Vec::new(), |entry| body.block_args(entry).collect()) };
    let earlier = |body: &Body, i: usize| {
        let all = args(body);
        (0..i).find(|&j| body.ty(all[j]) == body.ty(all[i]))
    };
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for (at, body) in module.bodies.iter().enumerate() {
        let all = args(body);
        let mergeable = (0..all.len()).filter(|&i| body.has_uses(all[i]) && earlier(body, i).is_some());
        parts.extend(mergeable.map(|i| (at, i)));
    }
    let without = |gone: &[(usize, usize)]| {
        let mut fewer = module.clone();
        for &(at, i) in gone {
            let body = &mut fewer.bodies[at];
            let all = args(body);
            body.replace_all_uses(all[i], all[earlier(body, i)?]);
        }
        for &(at, _) in gone {
            super::ops::drop_unused(&mut fewer.bodies[at]);
        }
        Some(fewer)
    };
    minimize(&parts, search, without).1.unwrap_or(module)
}

/// An input or an output of an operation whose one block takes its operands and gives its results, as fusions and loops have.
#[derive(Clone, Copy)]
enum Port {
    In(usize),
    Out(usize),
}

fn drop_ports(module: Module, search: &mut Search) -> Module {
    let mut best = module;
    // Operations are made anew without a port, so ports are tried one by one, the last first.
    loop {
        let proposals = ports(&best).into_iter().rev().map(|(at, op, port)| without_port(&best, at, op, port));
        match search.first(proposals) {
            Some((_, fewer)) => best = fewer,
            None => return best,
        }
    }
}

fn ports(module: &Module) -> Vec<(usize, Op, Port)> {
    let mut all = Vec::new();
    for (at, body) in module.bodies.iter().enumerate() {
        for op in body.walk().into_iter().skip(1) {
            let Some(entry) = body.op_ref(op).entry(0).filter(|_| body.regions(op).len() == 1) else { continue };
            let args: Vec<Value> = body.block_args(entry).collect();
            if args.len() == body.operand_count(op) {
                let unused = (0..args.len()).filter(|&i| !body.has_uses(args[i]));
                all.extend(unused.map(|i| (at, op, Port::In(i))));
            }
            let yielded = body.terminator(entry).map_or(0, |end| body.operand_count(end));
            if yielded == body.result_count(op) && yielded > 1 {
                let unused = body.results(op).enumerate().filter(|(_, v)| !body.has_uses(*v));
                all.extend(unused.map(|(i, _)| (at, op, Port::Out(i))));
            }
        }
    }
    all
}

fn without_port(module: &Module, at: usize, op: Op, port: Port) -> Option<Module> {
    let mut fewer = module.clone();
    let body = &mut fewer.bodies[at];
    if body.op_ref(op).def().is_some_and(|def| def.has_segments()) {
        return None;
    }
    let entry = body.op_ref(op).entry(0)?;
    let without = |values: Vec<Value>, i: usize| -> Vec<Value> {
        values.into_iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| v).collect()
    };
    match port {
        Port::In(i) => {
            let operands = without(body.operands(op).collect(), i);
            body.erase_block_arg(entry, i);
            body.set_operands(op, &operands);
            // Operands with index maps have one each.
            if let Some(maps) = body.attr(op, "maps").and_then(Attr::as_array) {
                let left: Vec<Attr> = maps.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, &m)| m).collect();
                body.set_attr(op, "maps", Attr::array(&left));
            }
        }
        Port::Out(i) => {
            let end = body.terminator(entry)?;
            let yielded = without(body.operands(end).collect(), i);
            body.set_operands(end, &yielded);
            drop_result(body, op, i);
        }
    }
    Some(fewer)
}

/// Makes an operation anew without its result number `i`, which nothing uses.
fn drop_result(body: &mut Body, op: Op, i: usize) {
    let source = body.clone();
    let mut state: OpState = source.state(op);
    state.results.remove(i);
    let new = body.create(state);
    body.insert_before(op, new);
    let mut map = Mapping::new();
    for outer in source.walk() {
        source.results(outer).for_each(|v| map.map(v, v));
        for block in source.regions(outer).into_iter().flat_map(|r| source.blocks(r).collect::<Vec<_>>()) {
            source.block_args(block).for_each(|v| map.map(v, v));
        }
    }
    for (from, to) in source.regions(op).into_iter().zip(body.regions(new)) {
        body.clone_region_from(&source, from, to, &mut map);
    }
    let kept: Vec<Value> = source.results(op).enumerate().filter(|(j, _)| *j != i).map(|(_, v)| v).collect();
    for (old, new) in kept.into_iter().zip(body.results(new).collect::<Vec<_>>()) {
        body.set_value_name(new, source.value_name(old));
        body.replace_all_uses(old, new);
    }
    body.erase(op);
}
