//! The graph of a module's functions: an operation or a fusion is a node, in a layer below all that it uses.

use super::place;
use rc_dialects::op;
use rc_ir::pass::has_dialect;
use rc_ir::{Body, Module, Op};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// Between layers and between nodes, in the page's units.
const ROW: usize = 70;
const COLUMN: usize = 190;

/// The nodes and edges of all functions on tensors, one function beside the other. `None` where there are none, or launches took the
/// place of fusions.
pub fn of(module: &Module) -> Option<Value> {
    if ["loop", "host"].iter().any(|dialect| has_dialect(module, dialect)) {
        return None;
    }
    let functions = module.bodies.iter().filter(|b| b.name(b.root()) == op::func::FUNC && b.entry().is_some());
    let (mut nodes, mut edges, mut left) = (Vec::new(), Vec::new(), 0);
    for body in functions {
        left += draw(body, left, &mut nodes, &mut edges);
    }
    (!nodes.is_empty()).then(|| json!({ "nodes": nodes, "edges": edges }))
}

/// Adds a function's nodes from column `left` on. The columns that it takes.
fn draw(body: &Body, left: usize, nodes: &mut Vec<Value>, edges: &mut Vec<Value>) -> usize {
    let Some(entry) = body.entry() else { return 0 };
    let mut layers: FxHashMap<Op, usize> = FxHashMap::default();
    let mut columns: FxHashMap<Op, usize> = FxHashMap::default();
    let mut taken: Vec<usize> = Vec::new();
    let mut numbers: FxHashMap<Op, usize> = FxHashMap::default();
    for op in body.ops(entry) {
        let used: Vec<Op> = body.operands(op).filter_map(|v| body.defining_op(v)).collect();
        let layer = used.iter().filter_map(|o| layers.get(o)).max().map_or(0, |layer| layer + 1);
        // Under the first of its operands, or right of what is there.
        let wished = used.first().and_then(|o| columns.get(o)).copied().unwrap_or(0);
        if taken.len() <= layer {
            taken.resize(layer + 1, 0);
        }
        let column = wished.max(taken[layer]);
        taken[layer] = column + 1;
        layers.insert(op, layer);
        columns.insert(op, column);
        numbers.insert(op, nodes.len());
        for from in used {
            edges.push(json!([numbers[&from], nodes.len()]));
        }
        nodes.push(node(body, op, (left + column) * COLUMN, layer * ROW));
    }
    taken.into_iter().max().unwrap_or(0) + 1
}

fn node(body: &Body, op: Op, x: usize, y: usize) -> Value {
    let r = body.op_ref(op);
    let inner: Vec<String> = match r.entry(0) {
        Some(block) => body.ops(block).map(|o| body.name(o).pretty().to_string()).collect(),
        None => Vec::new(),
    };
    let name = body.results(op).next().map(|v| body.value_name(v).to_string()).filter(|n| !n.is_empty());
    let label =
        r.str("kind").filter(|_| !inner.is_empty()).map_or(r.name().pretty().to_string(), |kind| kind.to_string());
    let types: Vec<String> = r.result_types().iter().map(|t| t.to_string()).collect();
    json!({
        "label": label, "value": name, "op": r.name().pretty(), "types": types.join(", "), "inner": inner,
        "at": place(r.loc()), "function": body.symbol().map(|s| s.to_string()), "x": x, "y": y,
    })
}
