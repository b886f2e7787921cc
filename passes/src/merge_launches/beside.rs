//! Which launches each one waits for, so that others may run beside it: two products of one gradient, a sum of columns and the product after it,
//! branches of a network. The programs of one begin where those of another leave cores idle.

use super::kernel::Kernel;
use super::memory::Access;
use super::{LAUNCH, callee};
use rc_dialects::host::{ASSERT, RETURN};
use rc_ir::{Attr, Body, Diagnostic, Name, Op};
use rustc_hash::FxHashMap;

/// A launch's attribute: how many launches back those are that it waits for. Without it, it waits for all before it.
const AFTER: &str = "after";

/// A launch among its neighbours, with none but launches between them.
type Work = (Op, Access);

/// Says of a function's launches what they wait for, where that is not all before them; a remark says how many these are.
pub fn run_beside(function: &mut Body, kernels: &FxHashMap<Name, Kernel>) -> Option<Box<Diagnostic>> {
    let mut work: Vec<Work> = Vec::new();
    let (mut all, mut begins): (Vec<(Op, Vec<i64>)>, bool) = (Vec::new(), true);
    for op in function.entry().into_iter().flat_map(|entry| function.ops(entry)) {
        let kernel = kernels.get(&callee(function, op)).filter(|_| function.name(op) == &LAUNCH);
        let writes = |i: usize| kernel.is_none_or(|kernel| kernel.writes.get(i) != Some(&false));
        let Some(access) = Access::of(function, op, writes) else { continue };
        match kernel.filter(|kernel| kernel.programs > 0) {
            Some(_) => work.push((op, access)),
            None if [&ASSERT, &RETURN].iter().any(|other| function.name(op) == *other) => {}
            None => all.extend(waits(&std::mem::take(&mut work), std::mem::take(&mut begins))),
        }
    }
    all.extend(waits(&work, begins));
    for (op, distances) in &all {
        function.set_attr(*op, AFTER, Attr::i64s(distances));
    }
    let text = format!("{} launches do not wait for all before them", all.len());
    (!all.is_empty()).then(|| Diagnostic::remark(function.loc(function.root()), text))
}

/// For each launch that does not wait for all before it, how many launches back those are that it waits for and that none of them waits for. Where
/// the function does not begin with the first launch, all wait for that one, which waits for what comes before.
fn waits(work: &[Work], begins: bool) -> Vec<(Op, Vec<i64>)> {
    let words = work.len().div_ceil(64);
    let mut ancestors: Vec<Vec<u64>> = Vec::new();
    // Those that no other one waits for yet.
    let mut open: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for (i, (op, access)) in work.iter().enumerate() {
        let (mut known, mut nearest) = (vec![0u64; words], Vec::new());
        for j in (0..i).rev() {
            let known_too = known[j / 64] >> (j % 64) & 1 == 1;
            if !known_too && (j == 0 && !begins || access.meets(&work[j].1)) {
                known[j / 64] |= 1 << (j % 64);
                known.iter_mut().zip(&ancestors[j]).for_each(|(word, more)| *word |= more);
                nearest.push(j);
            }
        }
        ancestors.push(known);
        if open.iter().any(|j| !nearest.contains(j)) {
            found.push((*op, nearest.iter().map(|j| (i - j) as i64).collect()));
        }
        open.retain(|j| !nearest.contains(j));
        open.push(i);
    }
    found
}
