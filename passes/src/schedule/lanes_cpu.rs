//! Products on the CPU of rows with rows: where both factors lie along k, neither is packed, and vectors run along k. Each result has a vector of
//! sums of its own, whose lanes are added at the end. Pays where the rows of one factor are few, so that packing the other would cost
//! as much as the products.

use super::access::Access;
use super::attr::{Contract, Kind, Schedule};
use super::contract::{Problem, limit};
use super::group::Group;
use super::{Candidate, Cost};
use rc_dialects::loop_::IterKind;
use rc_machine::{Target, Unit};

/// The ways to run a product of rows with rows; none where a factor does not lie along k, or is converted for each use.
pub fn candidates(group: &Group, p: &Problem, target: &Target) -> Vec<Candidate> {
    let nest = &group.nests[0];
    let along_k = |which: usize| p.roles.lies_along_k(nest, which) && p.factors[which] == p.acc;
    // Windows along k are gathered, which each use would do again.
    let plain = |access: &Access| [p.roles.m, p.roles.n].iter().any(|&own| access.plain(&[own, p.roles.k]).is_some());
    if !nest.inputs.iter().filter(|access| access.mentions(p.roles.k)).all(plain) {
        return Vec::new();
    }
    let mut sums = nest.of_kind(IterKind::Reduce);
    let fixed = sums.next().is_some_and(|k| k.extent.is_static()) && sums.next().is_none();
    let rows = p.m.extent.as_static().filter(|_| p.acc.is_float() && fixed);
    let (Some(rows), true, true) = (rows, along_k(0), along_k(1)) else { return Vec::new() };
    let lanes = target.lanes(p.acc);
    if (p.sizes[2] as i64) < lanes {
        return Vec::new();
    }
    let mut out = Vec::new();
    for columns in 1..=target.cpu().dots.columns.min(p.sizes[1] as i64) {
        let most = (target.registers - 2) / (columns + 1);
        let tile = (1..=most.min(rows)).rev().find(|mr| rows % mr == 0).map(|mr| limit(group, p, mr, columns, target));
        let Some((mr, nr)) = tile.filter(|tile| tile.1 == columns) else { continue };
        for parts in [1, 2, 4, 8, 16, 32, 64, 128] {
            let block = (p.sizes[1] as i64 + parts * nr - 1) / (parts * nr) * nr;
            let cost = cost(p, [mr, nr, lanes], block, target);
            let own = Contract {
                block: vec![(p.roles.m, (rows + mr - 1) / mr * mr), (p.roles.n, block)],
                unit: Some(Unit::Fma),
                ..Contract::default()
            };
            let mut s = Schedule::new(Kind::Contract(own));
            s.tile = vec![(p.roles.m, mr), (p.roles.n, nr), (p.roles.k, lanes)];
            let what =
                format!("{mr} x {nr} results in registers, vectors along {}, {block} columns for a program", p.roles.k);
            out.push(Candidate { schedules: vec![s], what, cost: Some(cost) });
        }
    }
    out
}

fn cost(p: &Problem, [mr, nr, lanes]: [i64; 3], block: i64, target: &Target) -> Cost {
    let [m, n, k] = p.sizes;
    let steps = (k / lanes as f64).ceil() * p.outer;
    let step = step(p, [mr as f64, nr as f64], target);
    let costs = &target.cpu().dots;
    let results = (mr * nr) as f64 * (costs.lanes + p.functions * costs.function);
    let tile = steps * step + results + target.cpu().products.tile;
    let programs = (n / block as f64).ceil() * p.batch;
    let each = (m / mr as f64).ceil() * (block as f64 / nr as f64).ceil() * tile + target.cpu().products.program;
    let turns = (programs / target.cores as f64).ceil();
    let cycles = target.flops_f32 * 1e6 / target.cores as f64 / (4.0 * target.lanes(rc_ir::Type::f32()) as f64);
    Cost { us: each * (turns + target.cpu().products.last) / cycles, bound: "arithmetic" }
}

/// Cycles of a step of a tile: two multiply-adds and two loads a cycle, half as many loads where they lie across two lines. A part of the time that
/// vectors take to come from the second-level cache, and from beyond it, is not hidden.
fn step(p: &Problem, [mr, nr]: [f64; 2], target: &Target) -> f64 {
    let costs = &target.cpu().dots;
    let row = p.sizes[2] * p.acc.byte_width().unwrap_or(4) as f64;
    let (vector, rows) = (target.vector_bits as f64 / 8.0, p.sizes[0] * row);
    let load = if row % vector == 0.0 { 0.5 } else { 1.0 };
    // Rows at a distance of whole pages take one another's place.
    let stay = (mr + nr) * row <= target.shared_bytes as f64 / 2.0 && row % target.cpu().page_bytes as f64 != 0.0;
    let again = if stay { mr } else { mr + nr };
    let near = if rows > target.shared_bytes as f64 / 2.0 { again * vector / costs.near_rate } else { 0.0 };
    let far = if rows > target.cache_bytes as f64 / 2.0 { mr * vector / costs.far_rate } else { 0.0 };
    (mr * nr / 2.0).max((mr + nr) * load).max(target.cpu().products.latency) + costs.step + (near + far) * costs.beside
}
