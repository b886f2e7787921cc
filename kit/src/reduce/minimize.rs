//! Delta debugging: which of many parts can go.

use super::Search;
use rc_ir::Module;
use std::ops::Range;

/// Halves in turn of which the other one was not tested, before it is.
const TRUST: usize = 3;

/// Takes away as many parts as the test lets go: all of them, or all but the half that matters, and so on; then what is left by large runs of neighbours
/// first, half as large ones, down to single parts.
/// `without` makes the module that lacks these parts, if there is one. Gives the parts that stay, and the module, if any went.
pub fn minimize<T: Copy>(
    parts: &[T],
    search: &mut Search,
    without: impl Fn(&[T]) -> Option<Module>,
) -> (Vec<T>, Option<Module>) {
    if parts.is_empty() {
        return (Vec::new(), None);
    }
    if let Some((_, module)) = search.first(std::iter::once(without(parts))) {
        return (Vec::new(), Some(module));
    }
    let (range, mut best) = halved(parts, search, &without);
    let mut kept: Vec<T> = parts[range.clone()].to_vec();
    let mut gone: Vec<T> = parts[..range.start].iter().chain(&parts[range.end..]).copied().collect();
    let mut size = kept.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < kept.len() {
            let ranges: Vec<_> = (start..kept.len()).step_by(size).map(|at| at..(at + size).min(kept.len())).collect();
            let proposals = ranges.iter().map(|range| {
                let parts: Vec<T> = gone.iter().chain(&kept[range.clone()]).copied().collect();
                without(&parts)
            });
            let Some((number, module)) = search.first(proposals) else { break };
            start = ranges[number].start;
            gone.extend(kept.drain(ranges[number].clone()));
            best = Some(module);
        }
        size = (size / 2).min(kept.len().div_ceil(2));
    }
    (kept, best)
}

/// Looks for a run of neighbours that the test needs, and that is enough. Where a half is not, the other one is taken to be, and one test saved; whether it
/// is shows when half of it is. Gives the smallest run that is known to be enough, and its module where that is not all.
fn halved<T: Copy>(
    parts: &[T],
    search: &mut Search,
    without: impl Fn(&[T]) -> Option<Module>,
) -> (Range<usize>, Option<Module>) {
    let mut enough = |range: &Range<usize>| {
        let others: Vec<T> = parts[..range.start].iter().chain(&parts[range.end..]).copied().collect();
        search.first(std::iter::once(without(&others))).map(|(_, module)| module)
    };
    let (mut known, mut best) = (0..parts.len(), None);
    // The first is tested: where neither half is enough, no run is.
    let (mut suspect, mut trusted) = (known.clone(), TRUST - 1);
    while suspect.len() > 1 || suspect != known {
        let middle = suspect.start + suspect.len() / 2;
        let ask = if trusted == TRUST || suspect.len() == 1 { suspect.clone() } else { middle..suspect.end };
        match enough(&ask) {
            Some(module) => (known, best, suspect, trusted) = (ask.clone(), Some(module), ask, 0),
            None if ask == suspect => break,
            None => (suspect, trusted) = (suspect.start..middle, trusted + 1),
        }
    }
    (known, best)
}
