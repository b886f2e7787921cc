//! Schedules of sums whose results are the elements of a window, its taps: gradients for the weights of depthwise convolutions. A GPU's thread adds
//! to all taps at once, so that each element of both operands is read once for all of them.

use super::Plan;
use super::access::{Access, Iter, mentions};
use super::attr::{Column, Kind, Row, Schedule};
use super::group::Group;
use super::nest::{Nest, collapsed_name};
use super::target::Target;
use super::tiles::{fit, storable, widest};
use rc_dialects::loop_::IterKind;
use rc_ir::{Body, Dim, Name};

/// Sums of one thread, at most.
const TAPS: i64 = 64;
/// Elements of each sum, at least, as a multiple of the taps: of a convolution's own windows results are many, and sums short.
const SUMMED: i64 = 4;
/// Steps that are unrolled at most: windows of neighbouring ones have most of their elements in common.
const STEPS: i64 = 8;
/// Registers of a thread besides its sums, and those of a core.
const OTHERS: i64 = 56;
const REGISTERS: i64 = 65536;

/// `None` where results are no taps, or too many for a thread's registers.
pub fn plan(body: &Body, mut group: Group, target: &Target) -> Option<Plan> {
    let leader = group.nests[0].clone();
    let sums = leader.combiners.iter().all(|c| *c == "add") && leader.outputs.len() == 1;
    if !sums || group.nests[1..].iter().any(|n| !n.is_pointwise() || n.has(IterKind::Reduce)) {
        return None;
    }
    let taps: Vec<Iter> = leader.of_kind(IterKind::Parallel).filter(|i| is_tap(&leader, i)).copied().collect();
    let count = taps.iter().try_fold(1i64, |n, i| n.checked_mul(i.extent.as_static()?))?;
    let lane = *leader.iter(places(&leader, &taps)?.innermost()?)?;
    let long = leader.points() >= (SUMMED * count) as f64 * leader.results();
    if !long || !(3..=TAPS).contains(&count) || taps.iter().any(|i| i.name == lane.name) {
        return None;
    }
    let steps = unrolled(&leader, &taps, lane.name);
    let (tap, pairs) = as_one(&mut group, &taps)?;
    let rows = group.rows();
    let outputs: Vec<&Access> = group.nests.iter().flat_map(|n| &n.outputs).collect();
    let (width, threads) = match lane.kind {
        IterKind::Reduce => {
            let width = fit(target, lane.extent.as_static(), 128, 1);
            (width, width.max(32))
        }
        _ => {
            let width = fit(target, lane.extent.as_static(), 32 * in_word(body, &leader), 1);
            (storable(&outputs, &lane, Some(tap), width, target), 32)
        }
    };
    let each = (width / threads).max(1);
    let programs = leader.results() / count as f64 / if lane.kind == IterKind::Reduce { 1.0 } else { width as f64 };
    let resident = (target.cores * (REGISTERS / (count * each + OTHERS)) / threads) as f64;
    let split = parts(&leader, resident / programs.ceil(), (lane.name, width), steps);
    let schedule = |nest: &Nest| {
        let mut s = Schedule::new(match lane.kind {
            IterKind::Reduce => Kind::Row(Row { split, ..Row::default() }),
            _ => Kind::Column(Column { split }),
        });
        s.collapse = pairs.clone();
        s.grid = rows.clone();
        s.threads = threads;
        s.axes[0] = tap;
        s.set_tile(tap, count);
        if nest.iter(lane.name).is_some() {
            s.axes[1] = lane.name;
            s.set_tile(lane.name, width);
        }
        if let Some((name, steps)) = steps.filter(|_| nest.op == leader.op) {
            s.set_tile(name, steps);
        }
        s
    };
    let schedules = group.nests.iter().map(schedule).collect();
    let why = format!("all {count} taps of a window in each thread, {} parts", split.unwrap_or(1));
    Some(Plan::of_rule(schedules, why, "row: each tap would read both operands for itself".to_string()))
}

/// Elements of the widest operand in a word of four bytes: a thread loads so many neighbours at once.
fn in_word(body: &Body, nest: &Nest) -> i64 {
    let types = body.op_ref(nest.op).operand_types();
    4 / (widest(types.iter().map(|t| t.elem())).byte_width().unwrap_or(4) as i64).clamp(1, 4)
}

/// Whether results along an iterator are elements of windows: one operand is read where it is added to a reduced one, another along that one alone.
fn is_tap(nest: &Nest, iter: &Iter) -> bool {
    let at = |e: Dim, n: i64| e.substitute(&|x| (x == iter.name).then_some(Dim::Static(n)));
    let step = |e: Dim, n: i64| (at(e, n + 1) - at(e, n)).as_static();
    let evenly = |e: Dim, count: i64| step(e, 0).is_some() && (1..count - 1).all(|n| step(e, n) == step(e, 0));
    let (with, without): (Vec<_>, Vec<_>) = nest.inputs.iter().partition(|a| a.mentions(iter.name));
    let ([read], Some(count)) = (&with[..], iter.extent.as_static()) else { return false };
    let place = |i: &Iter| without.iter().any(|a| a.mentions(i.name));
    let added = |e: Dim| nest.of_kind(IterKind::Reduce).any(|i| mentions(e, i.name) && place(i));
    let slides = |&e: &Dim| mentions(e, iter.name) && added(e) && evenly(e, count);
    read.exprs.iter().any(slides) && nest.indices.iter().all(|&e| !mentions(e, iter.name))
}

/// The operand that is read for places alone.
fn places<'a>(nest: &'a Nest, taps: &[Iter]) -> Option<&'a Access> {
    let apart = |a: &&Access| taps.iter().all(|t| !a.mentions(t.name));
    nest.inputs.iter().filter(apart).max_by(|a, b| nest.elements(a).total_cmp(&nest.elements(b)))
}

/// The taps as one iterator, of which each tile has all, so that what is computed of its number is constant.
fn as_one(group: &mut Group, taps: &[Iter]) -> Option<(Name, Vec<[Name; 2]>)> {
    let [first, rest @ ..] = taps else { return None };
    let (mut name, mut pairs) = (first.name, Vec::new());
    for next in rest {
        let has = |n: &Nest| n.iter(name).is_some() || n.iter(next.name).is_some();
        let join = |n: &Nest| if has(n) { n.along_results(name, next.name) } else { Some(n.clone()) };
        group.nests = group.nests.iter().map(join).collect::<Option<Vec<_>>>()?;
        pairs.push([name, next.name]);
        name = collapsed_name(name, next.name);
    }
    Some((name, pairs))
}

/// The innermost reduced iterator besides the lanes' along which windows slide, and how many of its steps are unrolled.
fn unrolled(nest: &Nest, taps: &[Iter], lane: Name) -> Option<(Name, i64)> {
    let slides = |i: &&Iter| {
        let together = |&e: &Dim| mentions(e, i.name) && taps.iter().any(|t| mentions(e, t.name));
        i.name != lane && nest.inputs.iter().any(|a| a.exprs.iter().any(together))
    };
    let along = nest.of_kind(IterKind::Reduce).filter(slides).last()?;
    let extent = along.extent.as_static()?;
    let steps = (2..=STEPS).rev().find(|n| extent % n == 0)?;
    Some((along.name, steps))
}

/// Into how many parts the sums are cut, so that all cores have work; each has a few steps.
fn parts(nest: &Nest, wanted: f64, lane: (Name, i64), steps: Option<(Name, i64)>) -> Option<i64> {
    let chunk = |i: &Iter| steps.into_iter().chain([lane]).find(|of| of.0 == i.name).map_or(1, |of| of.1);
    let mut chunks = nest.of_kind(IterKind::Reduce).map(|i| Some((i.extent.as_static()? + chunk(i) - 1) / chunk(i)));
    let most = chunks.try_fold(1, |n, chunks| Some(n * chunks?))? / 4;
    let powers = std::iter::successors(Some(1), |&n| Some(2 * n));
    powers.take_while(|&n| n as f64 <= wanted.min(512.0) && n <= most).last().filter(|&n| n > 1)
}
