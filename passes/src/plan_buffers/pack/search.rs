//! Complete search for a packing of a given height, with the pruning of MiniMalloc (Moffitt, ASPLOS 2023). Items are placed from
//! the ground up, each on the ground or on another; what may still come decides whether a branch is alive:
//!
//! - the sum of what waits at a moment must fit above the lowest place that is left there;
//! - an item is not placed so high that another one would fit under it, whole;
//! - items that share no moment with others are solved apart;
//! - where nothing is left that could lie on an item, its place is as good as any.

use super::random::Random;
use super::{Item, Packing};
use std::cmp::Reverse;

/// More items than these are left as they are: a search would not end.
const MOST_ITEMS: usize = 4_000;

/// Steps of the shortest attempt.
const SLICE: u64 = 2_000;

/// Attempts with one order either end soon or not at all, so there are many short ones and few long ones (Luby, Sinclair, Zuckerman
/// 1993), some at the bound itself, the others between what is known to be too low and what is there.
pub struct Search<'a> {
    solver: Solver<'a>,
    /// No packing is lower.
    low: i64,
    attempt: usize,
}

impl<'a> Search<'a> {
    pub fn new(items: &'a [Item], bound: i64) -> Search<'a> {
        let items = if items.len() > MOST_ITEMS { &[] } else { items };
        Search { solver: Solver::new(items), low: bound, attempt: 0 }
    }

    /// Looks for a lower packing than `best`, with about `effort` items looked at.
    pub fn run(&mut self, best: Packing, effort: u64, random: &mut Random) -> Packing {
        let items = self.solver.items;
        let mut best = best;
        // A step looks at each item a few times.
        let mut budget = effort.checked_div(4 * items.len() as u64).unwrap_or(0);
        while budget > 0 && self.low < best.height {
            let attempt = self.attempt;
            self.attempt += 1;
            let part = [0.0, 0.9, random.fraction()][attempt % 3];
            let height = self.low + ((best.height - self.low) as f64 * part) as i64;
            let jitter = if attempt < 9 { 0.0 } else { 20.0 * random.fraction() };
            self.solver.rank(attempt / 3, jitter, random);
            let (found, used) = self.solver.solve(height, budget.min(SLICE * luby(attempt as u64 / 9 + 1)));
            budget -= used.min(budget);
            match found {
                Some(true) => best = Packing::of(items, self.solver.at.clone()),
                Some(false) => self.low = height + 1,
                None => {}
            }
        }
        best
    }
}

/// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …
fn luby(n: u64) -> u64 {
    let k = 64 - n.leading_zeros();
    if n == (1 << k) - 1 { 1 << (k - 1) } else { luby(n - (1 << (k - 1)) + 1) }
}

struct Solver<'a> {
    items: &'a [Item],
    /// Items that are alive together with each.
    neighbours: Vec<Vec<u32>>,
    /// Items that are alive at each moment.
    alive: Vec<Vec<u32>>,
    /// Of what waits at each moment: the sum of sizes, and the lowest place.
    sums: Vec<i64>,
    lowest: Vec<i64>,
    capacity: i64,
    /// The place of each item: while it waits, the lowest that is left for it.
    at: Vec<i64>,
    waits: Vec<bool>,
    /// By rank in the order at hand: equal places are taken in this order.
    rank: Vec<u32>,
    steps: u64,
}

/// A place in the order of placements: by height, then by rank.
type Turn = (i64, u32);

impl<'a> Solver<'a> {
    fn new(items: &'a [Item]) -> Solver<'a> {
        let together =
            |i: usize| (0..items.len()).filter(|&j| j != i && items[i].overlaps(&items[j])).map(|j| j as u32).collect();
        let n = items.len();
        let moments = items.iter().map(|i| i.end).max().unwrap_or(0);
        let mut alive = vec![Vec::new(); moments];
        for (i, item) in items.iter().enumerate() {
            alive[item.first..item.end].iter_mut().for_each(|list| list.push(i as u32));
        }
        Solver {
            items,
            neighbours: (0..n).map(together).collect(),
            alive,
            sums: vec![0; moments],
            lowest: vec![0; moments],
            capacity: 0,
            at: vec![0; n],
            waits: vec![true; n],
            rank: vec![0; n],
            steps: 0,
        }
    }

    /// Whether there is a packing of the height, by `at`; nothing where so many steps do not tell. And the steps taken.
    fn solve(&mut self, height: i64, steps: u64) -> (Option<bool>, u64) {
        (self.capacity, self.steps) = (height, steps.max(1));
        self.start();
        let all: Vec<u32> = (0..self.items.len() as u32).collect();
        let found = self.place(&all, (0, 0));
        (found, steps.max(1) - self.steps)
    }

    /// Nothing is placed yet.
    fn start(&mut self) {
        self.at.fill(0);
        self.waits.fill(true);
        self.lowest.fill(0);
        for (sum, alive) in self.sums.iter_mut().zip(&self.alive) {
            *sum = alive.iter().map(|&i| self.items[i as usize].size).sum();
        }
    }

    /// Ranks the items by length of life (W), size times life (A) and the most that is alive beside the item (T), in one of the orders
    /// WAT, TAW, TWA; then moves each by up to `jitter` places.
    fn rank(&mut self, order: usize, jitter: f64, random: &mut Random) {
        let items = self.items;
        let size = |&i: &u32| items[i as usize].size;
        let load: Vec<i64> = self.alive.iter().map(|alive| alive.iter().map(size).sum()).collect();
        let key = |i: u32| {
            let item = &items[i as usize];
            let width = item.length() as i128;
            let area = width * i128::from(item.size);
            let total = i128::from(load[item.first..item.end].iter().copied().max().unwrap_or(0));
            [[width, area, total], [total, area, width], [total, width, area]][order % 3]
        };
        let mut sorted: Vec<u32> = (0..items.len() as u32).collect();
        sorted.sort_by_key(|&i| (Reverse(key(i)), i));
        let mut moved: Vec<(f64, u32)> =
            sorted.iter().enumerate().map(|(place, &i)| (place as f64 + jitter * random.fraction(), i)).collect();
        moved.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (rank, (_, i)) in moved.into_iter().enumerate() {
            self.rank[i as usize] = rank as u32;
        }
    }

    /// Places all `waiting` items, none before `turn`: whether that is possible, or nothing where the steps ran out.
    fn place(&mut self, waiting: &[u32], turn: Turn) -> Option<bool> {
        let parts = self.parts(waiting);
        let mut before: Vec<Snapshot> = Vec::new();
        for part in &parts {
            if parts.len() > 1 {
                before.push(self.snapshot(part));
            }
            let found = self.place_part(part, turn);
            if found != Some(true) {
                before.into_iter().for_each(|snapshot| self.restore(snapshot));
                return found;
            }
        }
        Some(true)
    }

    fn snapshot(&self, part: &[u32]) -> Snapshot {
        let first = part.iter().map(|&i| self.items[i as usize].first).min().unwrap_or(0);
        let end = part.iter().map(|&i| self.items[i as usize].end).max().unwrap_or(0);
        Snapshot {
            items: part.iter().map(|&i| (i as usize, self.at[i as usize])).collect(),
            first,
            lowest: self.lowest[first..end].to_vec(),
            sums: self.sums[first..end].to_vec(),
        }
    }

    fn restore(&mut self, before: Snapshot) {
        for (i, at) in before.items {
            (self.at[i], self.waits[i]) = (at, true);
        }
        let span = before.first..before.first + before.sums.len();
        self.lowest[span.clone()].copy_from_slice(&before.lowest);
        self.sums[span].copy_from_slice(&before.sums);
    }

    /// Groups of items that are connected by their lives.
    fn parts(&self, waiting: &[u32]) -> Vec<Vec<u32>> {
        let mut sorted = waiting.to_vec();
        sorted.sort_unstable_by_key(|&i| (self.items[i as usize].first, i));
        let mut parts: Vec<Vec<u32>> = Vec::new();
        let mut end = 0;
        for i in sorted {
            let item = &self.items[i as usize];
            if item.first >= end {
                parts.push(Vec::new());
            }
            end = end.max(item.end);
            parts.last_mut().expect("begun above").push(i);
        }
        parts
    }

    fn place_part(&mut self, part: &[u32], turn: Turn) -> Option<bool> {
        if self.steps == 0 {
            return None;
        }
        self.steps -= 1;
        if !self.fits(part, turn.0) {
            return Some(false);
        }
        let top = |i: u32| self.at[i as usize] + self.items[i as usize].size;
        let lowest_top = part.iter().map(|&i| top(i)).min().expect("parts are not empty");
        let mut candidates: Vec<Turn> = part.iter().map(|&i| (self.at[i as usize], self.rank[i as usize])).collect();
        candidates.retain(|&c| c >= turn && (c.0 < lowest_top || c.0 == 0 && lowest_top == 0));
        candidates.sort_unstable();
        let mut by_rank: Vec<(u32, u32)> = part.iter().map(|&i| (self.rank[i as usize], i)).collect();
        by_rank.sort_unstable();
        for next in candidates {
            let found = by_rank.binary_search_by_key(&next.1, |r| r.0).expect("ranks of this part");
            let i = by_rank[found].1;
            let found = self.try_item(part, i, next);
            let alone = !self.neighbours[i as usize].iter().any(|&j| self.waits[j as usize]);
            if found != Some(false) || alone {
                return found;
            }
        }
        Some(false)
    }

    /// Places an item, and then the rest of its part. `Some(false)`: that is not possible.
    fn try_item(&mut self, part: &[u32], i: u32, turn: Turn) -> Option<bool> {
        let item = self.items[i as usize];
        let top = turn.0 + item.size;
        if top > self.capacity {
            return Some(false);
        }
        self.waits[i as usize] = false;
        self.sums[item.first..item.end].iter_mut().for_each(|sum| *sum -= item.size);
        let before = self.raise(i, top);
        let possible = before.items.iter().all(|&(j, _)| self.at[j] + self.items[j].size <= self.capacity);
        let mut found = Some(false);
        if possible {
            let rest: Vec<u32> = part.iter().copied().filter(|&j| j != i).collect();
            found = self.place(&rest, (turn.0, turn.1 + 1));
            if found == Some(true) {
                return found;
            }
        }
        self.waits[i as usize] = true;
        self.sums[item.first..item.end].iter_mut().for_each(|sum| *sum += item.size);
        before.items.iter().for_each(|&(j, at)| self.at[j] = at);
        before.moments.iter().for_each(|&(m, low)| self.lowest[m] = low);
        found
    }

    /// Raises what waits beside item `i` to the item's top. Gives what was before.
    fn raise(&mut self, i: u32, top: i64) -> Before {
        let item = self.items[i as usize];
        let (mut first, mut end) = (item.first, item.end);
        let mut before = Before::default();
        for &j in &self.neighbours[i as usize] {
            let j = j as usize;
            if self.waits[j] && self.at[j] < top {
                before.items.push((j, self.at[j]));
                self.at[j] = top;
                (first, end) = (first.min(self.items[j].first), end.max(self.items[j].end));
            }
        }
        for m in first..end {
            if self.lowest[m] >= top {
                continue; // Nothing that was raised was the lowest here.
            }
            let places = self.alive[m].iter().filter(|&&j| self.waits[j as usize]).map(|&j| self.at[j as usize]);
            let low = places.min().unwrap_or(0);
            if low != self.lowest[m] {
                before.moments.push((m, self.lowest[m]));
                self.lowest[m] = low;
            }
        }
        before
    }

    /// Whether what waits fits at every moment of the part above the lowest place that is left there.
    fn fits(&self, part: &[u32], ground: i64) -> bool {
        let items = || part.iter().map(|&i| &self.items[i as usize]);
        let first = items().map(|i| i.first).min().unwrap_or(0);
        let end = items().map(|i| i.end).max().unwrap_or(0);
        (first..end).all(|m| self.lowest[m].max(ground) + self.sums[m] <= self.capacity || self.sums[m] == 0)
    }
}

/// Places that a step changed: of items, and the lowest at moments.
#[derive(Default)]
struct Before {
    items: Vec<(usize, i64)>,
    moments: Vec<(usize, i64)>,
}

/// What a part was before any of it was placed.
struct Snapshot {
    items: Vec<(usize, i64)>,
    first: usize,
    lowest: Vec<i64>,
    sums: Vec<i64>,
}
