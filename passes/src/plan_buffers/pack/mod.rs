//! Packing: offsets for buffers of fixed sizes with known lives, so that no two that are alive together overlap and the highest
//! byte is low. The problem is NP-hard (dynamic storage allocation); what is done here is a portfolio that stops as soon as the
//! height is the lower bound: greedy orders, then a skyline (Burke, Kendall, Whitwell 2004; Sekiyama et al. 2018), then
//! repairs of the best order, then a complete search (Moffitt, MiniMalloc, ASPLOS 2023).
//!
//! All of it is counted in items looked at and not in seconds, so that a plan is the same on every machine.

mod first_fit;
mod improve;
mod random;
mod search;
mod skyline;

use random::Random;

/// A buffer: alive in `first..end`, which is not empty, of `size` bytes, at least 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    pub first: usize,
    pub end: usize,
    pub size: i64,
}

impl Item {
    pub fn overlaps(&self, other: &Item) -> bool {
        self.first < other.end && other.first < self.end
    }
    fn length(&self) -> usize {
        self.end - self.first
    }
}

/// Where each buffer starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packing {
    pub offsets: Vec<i64>,
    /// The highest byte used.
    pub height: i64,
}

impl Packing {
    fn of(items: &[Item], offsets: Vec<i64>) -> Packing {
        let height = items.iter().zip(&offsets).map(|(item, at)| item.size + at).max().unwrap_or(0);
        Packing { offsets, height }
    }
}

/// The effort of a compiler: some hundredths of a second where the bound is not reached at once.
pub const EFFORT: u64 = 4_000_000;

/// The effort of a person who wants the best plan: some seconds.
pub const LONG_EFFORT: u64 = 2_000_000_000;

/// The largest sum of sizes alive at once: no packing is lower.
pub fn lower_bound(items: &[Item]) -> i64 {
    let mut events: Vec<(usize, i64)> = items.iter().flat_map(|i| [(i.first, i.size), (i.end, -i.size)]).collect();
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in events {
        now += change;
        most = most.max(now);
    }
    most
}

/// Packs the items; beyond the greedy orders about `effort` items are looked at.
pub fn pack(items: &[Item], effort: u64) -> Packing {
    let items_with_times = compressed(items);
    let items = &items_with_times[..];
    let bound = lower_bound(items);
    let mut best: Option<(Packing, Vec<u32>)> = None;
    let mut offer = |packing: Packing, order: Vec<u32>| {
        if best.as_ref().is_none_or(|(b, _)| packing.height < b.height) {
            best = Some((packing, order));
        }
        best.as_ref().is_some_and(|(b, _)| b.height == bound)
    };
    let done = first_fit::orders(items).into_iter().any(|order| offer(first_fit::place(items, &order), order)) || {
        let (packing, order) = skyline::place(items);
        offer(packing, order)
    };
    let (mut packing, order) = best.expect("there are orders");
    if done {
        return packing;
    }
    // Each finds at once what the other never does: they take turns, with longer and longer ones.
    let mut random = Random::new();
    let mut solver = search::Search::new(items, bound);
    let mut improver = improve::Improver::new(packing.clone(), order);
    let (mut turn, mut spent) = (effort / 16, 0);
    while spent < effort && packing.height > bound {
        packing = solver.run(packing, turn / 4 * 3, &mut random);
        packing = improver.run(items, bound, packing, turn / 4, &mut random);
        spent += turn.max(1);
        turn = turn.saturating_mul(2).min(effort.saturating_sub(spent));
    }
    packing
}

/// The same items with moments numbered without gaps: only starts count.
fn compressed(items: &[Item]) -> Vec<Item> {
    let mut starts: Vec<usize> = items.iter().map(|i| i.first).collect();
    starts.sort_unstable();
    starts.dedup();
    let number = |moment: usize| starts.partition_point(|&s| s < moment);
    items.iter().map(|i| Item { first: number(i.first), end: number(i.end), size: i.size }).collect()
}

#[cfg(test)]
mod tests;
