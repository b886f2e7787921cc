//! Complete search for a packing of a given height, after MiniMalloc (Moffitt, ASPLOS 2023). Items are placed from the ground up,
//! each on the ground or on another; what may still come decides whether a branch is alive:
//!
//! - what waits at a moment must fit above the lowest place that is left there;
//! - an item is not placed so high that another one would fit under it, whole;
//! - items that share no moment with others are solved apart, in an order of their own, the tightest first;
//! - where nothing that waits shares a moment with an item, its place is as good as any.

use super::order::Order;
use super::random::Random;
use super::{Item, Packing};
use std::ops::Range;

/// Of more items than these a search would not end.
const MOST_ITEMS: usize = 4_000;

/// Items looked at in the shortest attempt, for each item that there is.
const SLICE: u64 = 20_000;

/// Where between what is known to be too low and what is there an attempt looks: there are attempts at the lowest, at nearly the
/// highest, and at random heights.
const HEIGHTS: usize = 3;

/// Attempts either end soon or not at all. Half of the work goes to the plain orders in turns, with twice the work in each round; the
/// other half to orders with moved items, in many short attempts and few long ones (Luby, Sinclair, Zuckerman 1993).
pub struct Search<'a> {
    solver: Solver<'a>,
    widths: &'a [u64],
    /// No packing is lower.
    low: i64,
    plain: Attempts,
    moved: Attempts,
}

#[derive(Default)]
struct Attempts {
    number: usize,
    work: u64,
}

impl<'a> Search<'a> {
    /// `widths` are the lengths of the items' lives in the moments of the caller.
    pub fn new(items: &'a [Item], widths: &'a [u64], bound: i64) -> Search<'a> {
        let items = if items.len() > MOST_ITEMS { &[] } else { items };
        let (plain, moved) = Default::default();
        Search { solver: Solver::new(items), widths, low: bound, plain, moved }
    }

    /// Looks for a lower packing than `best`, with about `effort` items looked at.
    pub fn run(&mut self, best: Packing, effort: u64, random: &mut Random) -> Packing {
        let items = self.solver.items;
        let (mut best, mut left) = (best, if items.is_empty() { 0 } else { effort });
        while left > 0 && self.low < best.height {
            let moves = self.moved.work < self.plain.work;
            let attempts = if moves { &mut self.moved } else { &mut self.plain };
            let round = attempts.number / (Order::COUNT * HEIGHTS);
            let times = if moves { luby(round as u64 + 1) } else { 1 << round.min(40) };
            let part = [0.0, 0.9, random.fraction()][attempts.number / Order::COUNT % HEIGHTS];
            let height = self.low + ((best.height - self.low) as f64 * part) as i64;
            self.solver.order = Order::new(items, self.widths, attempts.number, moves, random);
            let work = (SLICE * items.len() as u64).saturating_mul(times);
            let (found, used) = self.solver.solve(height, work.min(left));
            attempts.work += used;
            left -= used.min(left);
            match found {
                // What was good once is tried again, lower.
                Some(true) => {
                    best = Packing::of(items, self.solver.at.clone());
                    continue;
                }
                Some(false) => self.low = height + 1,
                None => {}
            }
            attempts.number += 1;
        }
        best
    }
}

/// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …
fn luby(n: u64) -> u64 {
    let k = 64 - n.leading_zeros();
    if n == (1 << k) - 1 { 1 << (k - 1) } else { luby(n - (1 << (k - 1)) + 1) }
}

/// An item with its rank among those of its part; equal places are taken in this order.
type Ranked = (u32, u32);

/// A place in the order of placements: by height, then by rank.
type Turn = (i64, u32);

struct Solver<'a> {
    items: &'a [Item],
    /// Items that are alive together with each.
    neighbours: Vec<Vec<u32>>,
    /// Items that are alive at each moment.
    alive: Vec<Vec<u32>>,
    /// Of what waits at each moment: the sum of sizes, the lowest place, and how many are alive at the next one too.
    sums: Vec<i64>,
    lowest: Vec<i64>,
    crossing: Vec<u32>,
    capacity: i64,
    /// The place of each item: while it waits, the lowest that is left for it.
    at: Vec<i64>,
    waits: Vec<bool>,
    order: Order,
    /// The items that wait at each level of the search, one level after the other.
    waiting: Vec<Ranked>,
    candidates: Vec<(Turn, u32)>,
    /// Places of items and of moments before they were raised.
    raised: Vec<(u32, i64)>,
    lifted: Vec<(u32, i64)>,
    /// Items that may still be looked at.
    work: u64,
}

impl<'a> Solver<'a> {
    fn new(items: &'a [Item]) -> Solver<'a> {
        let n = items.len();
        let together =
            |i: usize| (0..n).filter(|&j| j != i && items[i].overlaps(&items[j])).map(|j| j as u32).collect();
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
            crossing: vec![0; moments],
            capacity: 0,
            at: vec![0; n],
            waits: vec![true; n],
            order: Order::default(),
            waiting: Vec::new(),
            candidates: Vec::new(),
            raised: Vec::new(),
            lifted: Vec::new(),
            work: 0,
        }
    }

    /// Whether there is a packing of the height, by `at`; nothing where so much work does not tell. And the work done.
    fn solve(&mut self, height: i64, work: u64) -> (Option<bool>, u64) {
        (self.capacity, self.work) = (height, work);
        self.start();
        let parts = self.parts((0..self.items.len() as u32).map(|i| (0, i)));
        let found = self.place_parts(parts, 0);
        (found, work - self.work)
    }

    /// Nothing is placed yet.
    fn start(&mut self) {
        self.at.fill(0);
        self.waits.fill(true);
        self.lowest.fill(0);
        self.crossing.fill(0);
        self.waiting.clear();
        self.candidates.clear();
        self.raised.clear();
        self.lifted.clear();
        for (sum, alive) in self.sums.iter_mut().zip(&self.alive) {
            *sum = alive.iter().map(|&i| self.items[i as usize].size).sum();
        }
        for item in self.items {
            self.crossing[item.first..item.end - 1].iter_mut().for_each(|count| *count += 1);
        }
    }

    fn looked_at(&mut self, items: usize) {
        self.work = self.work.saturating_sub(items as u64);
    }

    /// The parts of what waits that are connected by their lives, with the time that each spans.
    fn parts(&mut self, waiting: impl IntoIterator<Item = Ranked>) -> Vec<(Vec<u32>, Range<usize>)> {
        let mut waiting: Vec<u32> = waiting.into_iter().map(|ranked| ranked.1).collect();
        waiting.sort_unstable_by_key(|&i| (self.items[i as usize].first, i));
        self.looked_at(2 * waiting.len());
        let mut parts: Vec<(Vec<u32>, Range<usize>)> = Vec::new();
        for i in waiting {
            let item = &self.items[i as usize];
            match parts.last_mut() {
                Some((part, span)) if item.first < span.end => {
                    part.push(i);
                    span.end = span.end.max(item.end);
                }
                _ => parts.push((vec![i], item.first..item.end)),
            }
        }
        parts
    }

    /// Places each part alone, nothing below `ground`.
    fn place_parts(&mut self, mut parts: Vec<(Vec<u32>, Range<usize>)>, ground: i64) -> Option<bool> {
        // What fails is to fail soon.
        let slack = |span: &Range<usize>| {
            span.clone().map(|m| self.capacity - self.lowest[m] - self.sums[m]).min().unwrap_or(self.capacity)
        };
        parts.sort_by_cached_key(|(part, span)| (slack(span), part[0]));
        let (raised, lifted) = (self.raised.len(), self.lifted.len());
        let mut done: Vec<Snapshot> = Vec::new();
        for (part, span) in parts {
            done.push(self.snapshot(&part, span.clone()));
            let found = self.place_part(&part, span, ground);
            if found != Some(true) {
                done.into_iter().for_each(|snapshot| self.restore(snapshot));
                // What parts that were solved have raised is restored, too.
                self.raised.truncate(raised);
                self.lifted.truncate(lifted);
                return found;
            }
        }
        Some(true)
    }

    fn snapshot(&self, part: &[u32], span: Range<usize>) -> Snapshot {
        Snapshot {
            items: part.iter().map(|&i| (i, self.at[i as usize])).collect(),
            first: span.start,
            moments: span.map(|m| (self.lowest[m], self.sums[m], self.crossing[m])).collect(),
        }
    }

    fn restore(&mut self, before: Snapshot) {
        for (i, at) in before.items {
            (self.at[i as usize], self.waits[i as usize]) = (at, true);
        }
        for (m, moment) in (before.first..).zip(before.moments) {
            (self.lowest[m], self.sums[m], self.crossing[m]) = moment;
        }
    }

    /// Places items that are connected by their lives, in an order of their own.
    fn place_part(&mut self, part: &[u32], span: Range<usize>, ground: i64) -> Option<bool> {
        let level = self.waiting.len();
        let ranked = self.order.rank(self.items, part, &self.sums);
        self.looked_at(4 * part.len());
        self.waiting.extend((0..).zip(ranked));
        let found = self.place(level, &span, (ground, 0));
        self.waiting.truncate(level);
        found
    }

    /// Places the items that wait from `level` on, none before `turn`.
    fn place(&mut self, level: usize, span: &Range<usize>, turn: Turn) -> Option<bool> {
        if self.work == 0 {
            return None;
        }
        self.looked_at(self.waiting.len() - level + span.len());
        let top = |i: u32| self.at[i as usize] + self.items[i as usize].size;
        let Some(lowest_top) = self.waiting[level..].iter().map(|&(_, i)| top(i)).min() else { return Some(true) };
        // Nothing is placed higher than this: what waits at some moment, itself or above it, would not fit any more.
        let moments = self.sums[span.clone()].iter().filter(|&&sum| sum > 0);
        let highest = self.capacity - moments.max().copied().unwrap_or(0);
        let from = self.candidates.len();
        for &(rank, i) in &self.waiting[level..] {
            let next = (self.at[i as usize], rank);
            if next >= turn && next.0 <= highest && (next.0 < lowest_top || next.0 == 0 && lowest_top == 0) {
                self.candidates.push((next, i));
            }
        }
        self.candidates[from..].sort_unstable();
        let mut found = Some(false);
        for c in from..self.candidates.len() {
            let (next, i) = self.candidates[c];
            let alone = !self.neighbours[i as usize].iter().any(|&j| self.waits[j as usize]);
            found = self.try_item(level, span, i, next);
            if found != Some(false) || alone {
                break;
            }
        }
        self.candidates.truncate(from);
        found
    }

    /// Places an item, and then the rest of its part. `Some(false)`: that is not possible.
    fn try_item(&mut self, level: usize, span: &Range<usize>, i: u32, turn: Turn) -> Option<bool> {
        let item = self.items[i as usize];
        let top = turn.0 + item.size;
        if top > self.capacity {
            return Some(false);
        }
        let (raised, lifted) = (self.raised.len(), self.lifted.len());
        self.waits[i as usize] = false;
        let mut found = Some(false);
        if let Some(reach) = self.raise(i, top) {
            self.sums[item.first..item.end].iter_mut().for_each(|sum| *sum -= item.size);
            self.lift(reach, top);
            if self.fits(span, turn.0) {
                found = self.place_rest(level, span, i, turn);
                if found == Some(true) {
                    return found;
                }
            }
            self.sums[item.first..item.end].iter_mut().for_each(|sum| *sum += item.size);
        }
        self.waits[i as usize] = true;
        self.raised.drain(raised..).for_each(|(j, at)| self.at[j as usize] = at);
        self.lifted.drain(lifted..).for_each(|(m, low)| self.lowest[m as usize] = low);
        found
    }

    /// Places what waits besides item `i`, by parts where nothing holds it together any more.
    fn place_rest(&mut self, level: usize, span: &Range<usize>, i: u32, turn: Turn) -> Option<bool> {
        let item = self.items[i as usize];
        let mut apart = false;
        for count in &mut self.crossing[item.first..item.end - 1] {
            *count -= 1;
            apart |= *count == 0;
        }
        let end = self.waiting.len();
        let rest = |s: &Self| s.waiting[level..end].iter().copied().filter(move |&(_, j)| j != i).collect::<Vec<_>>();
        let parts = if apart { self.parts(rest(self)) } else { Vec::new() };
        let found = if parts.len() > 1 {
            self.place_parts(parts, turn.0)
        } else {
            let rest = rest(self);
            self.waiting.extend(rest);
            let found = self.place(end, span, (turn.0, turn.1 + 1));
            self.waiting.truncate(end);
            found
        };
        if found != Some(true) {
            self.crossing[item.first..item.end - 1].iter_mut().for_each(|count| *count += 1);
        }
        found
    }

    /// Raises what waits beside item `i` to the item's top. Gives the moments in which something was raised, or nothing where one
    /// does not fit any more.
    fn raise(&mut self, i: u32, top: i64) -> Option<Range<usize>> {
        let item = self.items[i as usize];
        let mut reach = item.first..item.end;
        self.looked_at(self.neighbours[i as usize].len());
        for &j in &self.neighbours[i as usize] {
            let (place, other) = (self.at[j as usize], &self.items[j as usize]);
            if self.waits[j as usize] && place < top {
                if top + other.size > self.capacity {
                    return None;
                }
                self.raised.push((j, place));
                self.at[j as usize] = top;
                reach = reach.start.min(other.first)..reach.end.max(other.end);
            }
        }
        Some(reach)
    }

    /// Finds the lowest places anew where something was raised to `top`.
    fn lift(&mut self, reach: Range<usize>, top: i64) {
        for m in reach {
            // Elsewhere nothing that was raised was the lowest.
            if self.lowest[m] >= top {
                continue;
            }
            self.work = self.work.saturating_sub(self.alive[m].len() as u64);
            let places = self.alive[m].iter().filter(|&&j| self.waits[j as usize]).map(|&j| self.at[j as usize]);
            let low = places.min().unwrap_or(top);
            if low != self.lowest[m] {
                self.lifted.push((m as u32, self.lowest[m]));
                self.lowest[m] = low;
            }
        }
    }

    /// Whether what waits fits at every moment above the lowest place that is left there, none of it below `ground`.
    fn fits(&self, span: &Range<usize>, ground: i64) -> bool {
        let moments = self.lowest[span.clone()].iter().zip(&self.sums[span.clone()]);
        moments.fold(true, |fits, (&low, &sum)| fits & (low.max(ground) + sum <= self.capacity || sum == 0))
    }
}

/// What a part was before any of it was placed.
struct Snapshot {
    items: Vec<(u32, i64)>,
    first: usize,
    moments: Vec<(i64, i64, u32)>,
}
