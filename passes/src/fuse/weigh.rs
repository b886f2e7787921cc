//! Fusions under a memory limit. What is fused with a late reader is computed late, and what it is computed of lies in memory till then: two scans of which a narrower sum is
//! read at the end, say. Where that holds more than the limit allows, the result is stored instead, if the peak is lower then: the function is fused and its launches are ordered with
//! and without.

use super::{Class, FuseOptions, classify, fuse, is_cheap};
use crate::plan_buffers::order::least_peak;
use crate::schedule::Target;
use rc_ir::{Body, Diagnostic, Op, Value};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;

/// Results that are tried, those that free the most first, and operations that one is computed of, at most.
const TRIED: usize = 16;
const CHAIN: usize = 64;
/// The part of the peak that a stored result has to save.
const WORTH: i64 = 64;

/// A result that may be stored.
struct Candidate {
    op: Op,
    bytes: i64,
    /// The bytes of what it is computed of, without its own.
    frees: i64,
}

/// What launches need once the function is fused, as far as can be told before they are kernels.
pub fn peak_of(body: &Body, options: &FuseOptions) -> Option<i64> {
    let mut fused = body.clone();
    fuse(&mut fused, options);
    least_peak(&fused)
}

/// The options with the results that are stored for the limit, and remarks on them.
pub fn weigh(body: &Body, options: &FuseOptions, limit: i64, target: &Target) -> (FuseOptions, Vec<Diagnostic>) {
    let (mut options, mut remarks) = (options.clone(), Vec::new());
    let Some(mut peak) = peak_of(body, &options) else { return (options, remarks) };
    for (number, candidate) in candidates(body).iter().take(TRIED).enumerate() {
        if peak <= limit {
            break;
        }
        options.apart.insert(candidate.op);
        match peak_of(body, &options).filter(|&then| then < peak - peak / WORTH) {
            Some(then) => {
                let time = 2.0 * candidate.bytes as f64 / (1e3 * target.bandwidth) + target.launch_us;
                let text = format!(
                    "a result of {} bytes is stored, not computed where it is used: intermediate results take about {then} bytes then, {peak} before, for at most {time:.1} us by the target's figures; the limit is {limit}, {} results were weighed",
                    candidate.bytes,
                    number + 1,
                );
                remarks.push(*Diagnostic::remark(body.loc(candidate.op), text));
                peak = then;
            }
            None => _ = options.apart.remove(&candidate.op),
        }
    }
    (options, remarks)
}

fn candidates(body: &Body) -> Vec<Candidate> {
    let ops = body.entry().into_iter().flat_map(|entry| body.ops(entry));
    let mut out: Vec<Candidate> = ops.filter_map(|op| candidate(body, op)).collect();
    out.sort_by_key(|c| (Reverse(c.frees), c.op.index()));
    out
}

fn bytes(body: &Body, value: Value) -> Option<i64> {
    let ty = body.ty(value);
    let elements = ty.static_shape()?.iter().try_fold(1i64, |all, &n| all.checked_mul(n))?;
    elements.checked_mul(ty.elem().byte_width()? as i64)
}

/// Whether an operation computes what several others use: as a rule it is stored.
fn is_shared(body: &Body, op: Op) -> bool {
    !is_cheap(body.op_ref(op)) && body.results(op).map(|v| body.uses(v).count()).sum::<usize>() > 1
}

/// An elementwise result that is smaller than what it is computed of, arguments aside: these are the caller's.
fn candidate(body: &Body, op: Op) -> Option<Candidate> {
    let at = body.op_ref(op);
    if classify(at) != Class::Pointwise || is_cheap(at) || body.result_count(op) != 1 {
        return None;
    }
    let own = bytes(body, body.result(op, 0))?;
    let (mut stack, mut seen, mut leaves) = (vec![op], FxHashSet::default(), FxHashSet::default());
    let mut read = 0i64;
    while let Some(op) = stack.pop() {
        for value in body.operands(op) {
            let Some(maker) = body.defining_op(value) else { continue };
            match classify(body.op_ref(maker)) {
                Class::Splat | Class::Outside => {}
                Class::Pointwise | Class::Reindex if seen.len() < CHAIN && !is_shared(body, maker) => {
                    stack.extend(seen.insert(maker).then_some(maker));
                }
                _ if leaves.insert(value) => read = read.checked_add(bytes(body, value)?)?,
                _ => {}
            }
        }
    }
    (read > own).then_some(Candidate { op, bytes: own, frees: read - own })
}
