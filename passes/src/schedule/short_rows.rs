//! Rows of a few elements on a CPU. With a row in each lane what follows from a row's sums is computed for many rows at once, and no vector is partly empty; but
//! elements are loaded and stored one by one.

use super::access::Access;
use super::group::{Group, collapse};
use super::nest::Nest;
use super::target::Target;
use crate::work::is_function;
use rc_ir::{Body, Name};

/// Whether rows in lanes take less time than one row after the other.
pub fn in_lanes(body: &Body, group: &Group, target: &Target) -> bool {
    let mut group = group.clone();
    collapse(body, &mut group, &|_, _| true);
    let (rows, lanes) = (group.rows(), target.lanes(super::elems(body, &group)));
    let fills = |name: &Name| {
        group.nests.iter().find_map(|n| n.iter(*name)).and_then(|i| i.extent.as_static()).is_none_or(|n| n >= lanes)
    };
    if !rows.last().is_some_and(fills) {
        return false;
    }
    let costs: Option<Vec<[f64; 2]>> =
        group.nests.iter().map(|nest| cycles(body, nest, &rows, lanes as f64, target)).collect();
    let total = |which: usize| costs.iter().flatten().map(|cost| cost[which]).sum::<f64>();
    costs.is_some() && total(0) < total(1)
}

/// Cycles that a nest takes for a row: with rows in lanes, and with one row after the other; `None` where rows have no fixed length.
fn cycles(body: &Body, nest: &Nest, rows: &[Name], lanes: f64, target: &Target) -> Option<[f64; 2]> {
    let costs = &target.cpu().short_rows;
    let within: Vec<_> = nest.iters.iter().filter(|i| !rows.contains(&i.name)).collect();
    let ops = body.op_ref(nest.op).entry(0).into_iter().flat_map(|entry| body.ops(entry));
    let functions = ops.filter(|&op| is_function(body.op_ref(op))).count() as f64;
    if within.is_empty() {
        return Some([costs.function * functions / lanes, costs.scalar_function * functions]);
    }
    let length = within.iter().try_fold(1.0, |length, i| Some(length * i.extent.as_static()? as f64))?;
    let of_rows = |a: &&Access| rows.iter().any(|&r| a.mentions(r)) && within.iter().any(|i| a.mentions(i.name));
    let loads = nest.inputs.iter().filter(of_rows).count() as f64;
    let stores = nest.outputs.iter().filter(of_rows).count() as f64;
    let elements = length * (costs.load * loads + costs.store * stores + costs.function * functions / lanes);
    Some([elements, costs.nest + costs.function * functions * (length / lanes).ceil()])
}
