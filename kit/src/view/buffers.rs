//! Memory over time: what is in the arena at each launch.

use rc_dialects::func::symbols;
use rc_dialects::op;
use rc_ir::{Body, Dim, Module, Op, Value as Handle};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// The buffers of each planned function, symbols at their greatest values. `None` before buffers are planned.
pub fn of(module: &Module) -> Option<Value> {
    let functions: Vec<Value> = module.bodies.iter().filter_map(function).collect();
    (!functions.is_empty()).then(|| json!(functions))
}

struct Buffer {
    name: String,
    ty: String,
    offset: i64,
    bytes: i64,
    /// Launches: the first and the last that use it.
    life: Option<(usize, usize)>,
}

fn function(body: &Body) -> Option<Value> {
    let root = body.op_ref(body.root());
    let arena = root.attr("arena").and_then(|a| a.as_shape())?.first().copied()?;
    let entry = body.entry()?;
    let bound = |dim: Dim| {
        let greatest = symbols(body);
        dim.evaluate(&|name| greatest.iter().find(|s| s.name == name).map(|s| s.max)).unwrap_or(0)
    };
    let memory = body.block_args(entry).last()?;
    let mut buffers: Vec<Buffer> = Vec::new();
    // The buffer that a value is, or is a view of.
    let mut of: FxHashMap<Handle, usize> = FxHashMap::default();
    let mut steps: Vec<String> = Vec::new();
    for op in body.ops(entry) {
        match body.name(op).as_str() {
            op::host::VIEW => view(body, op, memory, &bound, &mut buffers, &mut of),
            _ if body.result_count(op) > 0 && body.operand_count(op) == 0 => {}
            _ => {
                for buffer in body.operands(op).filter_map(|v| of.get(&v)) {
                    let life = &mut buffers[*buffer].life;
                    *life = Some((life.map_or(steps.len(), |l| l.0), steps.len()));
                }
                steps.push(body.op_ref(op).str("callee").unwrap_or(body.name(op).pretty()).to_string());
            }
        }
    }
    let alive =
        |step: usize| buffers.iter().filter(move |b| b.life.is_some_and(|(from, to)| from <= step && step <= to));
    let bytes: Vec<i64> = (0..steps.len()).map(|step| alive(step).map(|b| b.bytes).sum()).collect();
    let peak = (0..bytes.len()).max_by_key(|&step| (bytes[step], usize::MAX - step)).unwrap_or(0);
    let rows: Vec<Value> = buffers
        .iter()
        .filter_map(|b| Some((b, b.life?)))
        .map(|(b, (from, to))| {
            json!({ "name": b.name, "type": b.ty, "offset": b.offset, "bytes": b.bytes, "from": from, "to": to })
        })
        .collect();
    Some(json!({
        "function": body.symbol().map(|s| s.to_string()), "arena": bound(arena), "steps": steps, "bytes": bytes,
        "peak": peak, "buffers": rows,
    }))
}

fn view(
    body: &Body,
    op: Op,
    memory: Handle,
    bound: &dyn Fn(Dim) -> i64,
    buffers: &mut Vec<Buffer>,
    of: &mut FxHashMap<Handle, usize>,
) {
    let (from, to) = (body.operand(op, 0), body.result(op, 0));
    if from != memory {
        if let Some(&buffer) = of.get(&from) {
            of.insert(to, buffer);
        }
        return;
    }
    let ty = body.ty(to);
    let offset = body.op_ref(op).attr("offset").and_then(|a| a.as_shape()?.first().copied()).map_or(0, bound);
    let bytes = bound(ty.num_elements()) * ty.elem().byte_width().unwrap_or(1) as i64;
    let name = body.value_name(to).to_string();
    of.insert(to, buffers.len());
    let name = if name.is_empty() { format!("{}", buffers.len()) } else { name };
    buffers.push(Buffer { name, ty: ty.to_string(), offset, bytes, life: None });
}
