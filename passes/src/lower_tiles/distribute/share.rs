//! Reads that a thread has made already: windows of neighbouring results share elements.

use rc_dialects::constraints::memory_space;
use rc_dialects::op;
use rc_ir::{Attr, Body, Op, Traits, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Makes one read of those of one block that read the same elements of memory which the kernel does not write.
pub fn share_reads(body: &mut Body) {
    let written = written(body);
    let mut same: FxHashMap<Value, Value> = FxHashMap::default();
    let mut blocks: FxHashMap<_, FxHashMap<(&'static str, Vec<Value>, Attr), Value>> = FxHashMap::default();
    for op in body.walk() {
        let read = body.name(op) == op::kernel::READ;
        let pure = body.op_ref(op).has(Traits::ELEMENTWISE) && body.regions(op).is_empty();
        if !(read || pure) || body.results(op).len() != 1 || read && written.contains(&body.operand(op, 0)) {
            continue;
        }
        let operands: Vec<Value> = body.operands(op).map(|v| same.get(&v).copied().unwrap_or(v)).collect();
        let known = blocks.entry(body.parent(op)).or_default();
        let result = body.result(op, 0);
        let first = *known.entry((body.name(op).as_str(), operands, body.attrs(op))).or_insert(result);
        if first == result {
            continue;
        }
        same.insert(result, first);
        if read {
            body.replace_all_uses(result, first);
            body.erase(op);
        }
    }
}

/// Memory that is no argument's, or that something else than reads uses.
fn written(body: &Body) -> FxHashSet<Value> {
    let reads = |op: Op| [op::kernel::READ, op::kernel::VIEW].iter().any(|name| body.name(op) == *name);
    let mut out = FxHashSet::default();
    for op in body.walk() {
        let views = body.name(op) == op::kernel::VIEW;
        let own = body.results(op).filter(|&v| body.ty(v).is_memref());
        out.extend(own.filter(|&v| !views || memory_space(body.ty(v)) != 0));
        if !reads(op) {
            out.extend(body.operands(op).filter(|&v| body.ty(v).is_memref()));
        }
    }
    // What is written through a view is written, and through its source.
    for op in body.walk().into_iter().filter(|&op| body.name(op) == op::kernel::VIEW) {
        let (source, view) = (body.operand(op, 0), body.result(op, 0));
        if out.contains(&source) || out.contains(&view) {
            out.extend([source, view]);
        }
    }
    out
}
