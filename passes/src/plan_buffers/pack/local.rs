//! Repairs of a part of the packing: around what reaches highest, what is alive is placed anew, among all else where it lies. What a repair looks at does
//! not grow with the instance, so that many fit into the effort where the whole can be placed a few times only.

use super::random::Random;
use super::{Item, Packing};
use std::collections::BinaryHeap;

/// Orders of a part that are tried before it is widened, and how often that is done.
const ORDERS: usize = 4 * RESTART;
const RESTART: usize = 50;
const WIDER: usize = 3;
/// Items of a part at most, with those that stay beside it.
const LARGEST: usize = 4096;
/// Work for an item that is found, in items that are looked at in this time.
const FOUND: u64 = 32;

/// Lowers the highest places until `bound` is reached, or about `effort` items were looked at, or the highest place withstands. Gives how many were, too.
pub fn lower(items: &[Item], bound: i64, packing: Packing, effort: u64, random: &mut Random) -> (Packing, u64) {
    let alive = Alive::new(items);
    let mut offsets = packing.offsets;
    let top = |offsets: &[i64], i: u32| offsets[i as usize] + items[i as usize].size;
    let mut highest: BinaryHeap<(i64, u32)> = (0..items.len() as u32).map(|i| (top(&offsets, i), i)).collect();
    let mut spent = 0;
    while let Some((height, item)) = highest.pop() {
        if height != top(&offsets, item) {
            continue;
        }
        if height <= bound || spent >= effort {
            break;
        }
        let mut repaired = false;
        for width in 0..WIDER {
            let part = Part::around(items, &alive, item, width);
            // Looking for what is alive takes its time, too.
            spent += FOUND * (part.moved.len() + part.fixed.len()) as u64;
            if part.moved.len() + part.fixed.len() > LARGEST {
                break;
            }
            repaired = part.repair(items, &mut offsets, (item, height), random, (&mut spent, effort));
            if repaired {
                highest.extend(part.moved.iter().map(|&i| (top(&offsets, i), i)));
                break;
            }
        }
        if !repaired {
            break;
        }
    }
    (Packing::of(items, offsets), spent)
}

/// What is placed anew, and what stays and is alive beside it.
struct Part {
    moved: Vec<u32>,
    fixed: Vec<u32>,
}

impl Part {
    /// The items that are alive with `item`; those that are alive with one of these, and so on, `width` times.
    fn around(items: &[Item], alive: &Alive, item: u32, width: usize) -> Part {
        let hull = |part: &[u32]| {
            let first = part.iter().map(|&i| items[i as usize].first).min().unwrap_or(0);
            (first, part.iter().map(|&i| items[i as usize].end).max().unwrap_or(0))
        };
        let beside = |part: &[u32]| alive.within(items, hull(part).0, hull(part).1);
        let moved = (0..=width).fold(vec![item], |part, _| beside(&part));
        let mut fixed = beside(&moved);
        fixed.retain(|i| moved.binary_search(i).is_err());
        Part { moved, fixed }
    }

    /// Places the part such that all of it lies below the item that is too high; its places stay where that fails, or `spent` exceeds the effort.
    fn repair(
        &self,
        items: &[Item],
        offsets: &mut [i64],
        (item, height): (u32, i64),
        random: &mut Random,
        (spent, effort): (&mut u64, u64),
    ) -> bool {
        let before: Vec<i64> = self.moved.iter().map(|&i| offsets[i as usize]).collect();
        let mut order = self.moved.clone();
        for attempt in 0..ORDERS {
            if attempt % RESTART == 0 {
                let size = |i: u32| std::cmp::Reverse(items[i as usize].size);
                let area =
                    |i: u32| std::cmp::Reverse(items[i as usize].size as i128 * items[i as usize].length() as i128);
                match attempt / RESTART {
                    // As they lie, what is too high first.
                    0 => order.sort_by_key(|&i| (i != item, offsets[i as usize], i)),
                    1 => order.sort_by_key(|&i| (size(i), i)),
                    2 => order.sort_by_key(|&i| (area(i), i)),
                    _ => order.sort_by_key(|&i| (std::cmp::Reverse(items[i as usize].length()), i)),
                }
            }
            let Some(late) = self.place(items, offsets, &order, height, spent) else { return true };
            if *spent >= effort {
                break;
            }
            // What finds no place goes earlier.
            let blocked = order.remove(late);
            order.insert(random.below(late), blocked);
        }
        self.moved.iter().zip(before).for_each(|(&i, at)| offsets[i as usize] = at);
        false
    }

    /// Places the part in this order, each item at the lowest place that is free; gives the number of the first that does not lie below `height`.
    fn place(&self, items: &[Item], offsets: &mut [i64], order: &[u32], height: i64, spent: &mut u64) -> Option<usize> {
        let mut taken: Vec<(i64, i64)> = Vec::new();
        for (number, &i) in order.iter().enumerate() {
            let item = &items[i as usize];
            taken.clear();
            let there = self.fixed.iter().chain(&order[..number]);
            let beside = there.filter(|&&j| items[j as usize].overlaps(item));
            taken.extend(beside.map(|&j| (offsets[j as usize], offsets[j as usize] + items[j as usize].size)));
            taken.sort_unstable();
            *spent += (self.fixed.len() + number) as u64 + 16 * taken.len() as u64;
            let mut at = 0;
            for &(start, stop) in &taken {
                if start - at >= item.size {
                    break;
                }
                at = at.max(stop);
            }
            if at + item.size >= height {
                return Some(number);
            }
            offsets[i as usize] = at;
        }
        None
    }
}

/// The items by where they begin, with the last end in each half, quarter and so on of them.
struct Alive {
    order: Vec<u32>,
    ends: Vec<usize>,
    leaves: usize,
}

impl Alive {
    fn new(items: &[Item]) -> Alive {
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|&i| (items[i as usize].first, i));
        let leaves = items.len().next_power_of_two();
        let mut ends = vec![0; 2 * leaves];
        for (place, &i) in order.iter().enumerate() {
            ends[leaves + place] = items[i as usize].end;
        }
        (1..leaves).rev().for_each(|node| ends[node] = ends[2 * node].max(ends[2 * node + 1]));
        Alive { order, ends, leaves }
    }

    /// The items that are alive in some of these moments, by their numbers.
    fn within(&self, items: &[Item], first: usize, end: usize) -> Vec<u32> {
        let begun = self.order.partition_point(|&i| items[i as usize].first < end);
        let mut out = Vec::new();
        let mut nodes = vec![(1, 0, self.leaves)];
        while let Some((node, from, to)) = nodes.pop() {
            if from >= begun || self.ends[node] <= first {
                continue;
            }
            if to - from == 1 {
                out.push(self.order[from]);
                continue;
            }
            let middle = (from + to) / 2;
            nodes.extend([(2 * node, from, middle), (2 * node + 1, middle, to)]);
        }
        out.sort_unstable();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_buffers::pack::{lower_bound, skyline};

    #[test]
    fn high_places_are_lowered_and_nothing_overlaps() {
        let mut random = Random::seeded(3);
        let item = |random: &mut Random| {
            let first = random.below(2000);
            Item { first, end: first + 1 + random.below(60), size: 1 + random.below(1000) as i64 }
        };
        let items: Vec<Item> = (0..2000).map(|_| item(&mut random)).collect();
        let (before, bound) = (skyline::place(&items, skyline::Rule::Length, u64::MAX).unwrap().0, lower_bound(&items));
        let after = lower(&items, bound, before.clone(), 50_000_000, &mut random).0;
        assert!(bound <= after.height && after.height < before.height, "{} of {}", after.height, before.height);
        for (i, a) in items.iter().enumerate() {
            for (j, b) in items.iter().enumerate().skip(i + 1).filter(|(_, b)| b.overlaps(a)) {
                let (s, t) = (after.offsets[i], after.offsets[j]);
                assert!(s + a.size <= t || t + b.size <= s, "items {i} and {j} overlap");
            }
        }
    }
}
