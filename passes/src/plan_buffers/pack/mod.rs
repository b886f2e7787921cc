//! Packing: offsets for buffers of fixed sizes with known lives, so that no two that are alive together overlap and the highest
//! byte is low. The problem is NP-hard (dynamic storage allocation); what is done here is a portfolio that stops as soon as the
//! height is the lower bound: a skyline (Burke, Kendall, Whitwell 2004; Sekiyama et al. 2018), then greedy orders, repairs of parts of large instances, then in turns a
//! complete search (Moffitt, MiniMalloc, ASPLOS 2023) and repairs of the best order.
//!
//! All of it is counted in items looked at and not in seconds, so that a plan is the same on every machine.

mod first_fit;
mod improve;
mod local;
mod order;
mod random;
mod search;
mod skyline;
mod tight;

use random::Random;
use skyline::Rule;

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
pub const EFFORT: u64 = 50_000_000;

/// The effort of a person who wants the best plan: some seconds.
pub const LONG_EFFORT: u64 = 5_000_000_000;

/// Of so many items tight stretches are packed alone, and parts are repaired.
const MANY: usize = 4096;

/// Greedy orders that look at no more items than these are tried at any rate.
const LEAST_WORK: u64 = 20_000_000;

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
    pack_to(items, 0, effort)
}

/// As [`pack`], where `goal` bytes are low enough.
pub fn pack_to(items: &[Item], goal: i64, effort: u64) -> Packing {
    let widths: Vec<u64> = items.iter().map(|item| item.length() as u64).collect();
    let items = &compressed(items)[..];
    let bound = lower_bound(items).max(goal);
    let (mut packing, mut order) =
        skyline::place(items, Rule::Length, u64::MAX).expect("an effort without a bound is enough");
    let mirrored = mirrored(items);
    for (items, rule) in [(items, Rule::Area), (items, Rule::Size), (&mirrored, Rule::Length)] {
        if packing.height <= bound {
            return packing;
        }
        if let Some((other, places)) =
            skyline::place(items, rule, effort / 128).filter(|(other, _)| other.height < packing.height)
        {
            (packing, order) = (other, places);
        }
    }
    let mut spent = 0;
    let work = first_fit::WORK * first_fit::pairs(items);
    if items.len() >= MANY && work > effort / 4 {
        // So many are alive together that nothing below is tried: more skylines instead.
        for number in 0..4 {
            let items = [&mirrored[..], items][number as usize % 2];
            let other = skyline::place(items, Rule::About(number), effort / 128);
            packing = other.map(|other| other.0).filter(|other| other.height < packing.height).unwrap_or(packing);
        }
    }
    for kind in first_fit::orders(items) {
        if packing.height <= bound || work > LEAST_WORK && work > (effort - effort.min(spent)) / 4 {
            break;
        }
        spent += work;
        let fitted = first_fit::place(items, &kind);
        if fitted.height < packing.height {
            (packing, order) = (fitted, kind);
        }
    }
    let mut random = Random::new();
    for twentieths in tight::TIGHT.into_iter().filter(|_| items.len() >= MANY) {
        if packing.height <= bound {
            break;
        }
        let tight = tight::place(items, bound, twentieths, effort / 8);
        let (start, work) = tight.unwrap_or_else(|| (packing.clone(), 0));
        let (repaired, more) = local::lower(items, bound, start, effort * 3 / 8, &mut random);
        spent += work + more;
        packing = if repaired.height < packing.height { repaired } else { packing };
    }
    if packing.height <= bound {
        return packing;
    }
    // Each finds at once what the other never does: they take turns, with longer and longer ones.
    let mut solver = search::Search::new(items, &widths, bound);
    let mut improver = improve::Improver::new(items, packing.clone(), order);
    let mut turn = effort / 16;
    while spent < effort && packing.height > bound {
        packing = solver.run(packing, turn / 4 * 3, &mut random);
        packing = improver.run(items, bound, packing, turn / 4, &mut random);
        spent += turn.max(1);
        turn = turn.saturating_mul(2).min(effort.saturating_sub(spent));
    }
    packing
}

/// The items with time turned round: offsets for these are offsets for those.
fn mirrored(items: &[Item]) -> Vec<Item> {
    let end = items.iter().map(|i| i.end).max().unwrap_or(0);
    items.iter().map(|i| Item { first: end - i.end, end: end - i.first, size: i.size }).collect()
}

/// The same items with moments numbered without gaps. Those count in which as much is alive as till the next end: what is alive in the
/// others is alive then too.
fn compressed(items: &[Item]) -> Vec<Item> {
    let sorted = |moment: fn(&Item) -> usize| {
        let mut moments: Vec<usize> = items.iter().map(moment).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    };
    let (mut starts, ends) = (sorted(|i| i.first), sorted(|i| i.end));
    let ends_before = |moment: usize| ends.partition_point(|&end| end <= moment);
    let next: Vec<usize> = starts.iter().skip(1).copied().chain([usize::MAX]).collect();
    let mut next = next.into_iter();
    starts.retain(|&start| next.next().is_some_and(|next| ends_before(start) < ends_before(next)));
    let number = |moment: usize| starts.partition_point(|&s| s < moment);
    items.iter().map(|i| Item { first: number(i.first), end: number(i.end), size: i.size }).collect()
}

#[cfg(test)]
mod tests;
