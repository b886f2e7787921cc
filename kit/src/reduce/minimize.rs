//! Delta debugging: which of many parts can go.

use super::Search;
use rc_ir::Module;

/// Takes away as many parts as the test lets go: large runs of neighbours first, then half as large ones, down to single parts.
/// `without` makes the module that lacks these parts, if there is one. Gives the parts that stay, and the module, if any went.
pub fn minimize<T: Copy>(
    parts: &[T],
    search: &mut Search,
    without: impl Fn(&[T]) -> Option<Module>,
) -> (Vec<T>, Option<Module>) {
    let mut kept: Vec<T> = parts.to_vec();
    let mut gone: Vec<T> = Vec::new();
    let mut best = None;
    let mut size = kept.len();
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
