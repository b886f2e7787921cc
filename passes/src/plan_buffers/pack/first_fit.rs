//! First fit: items one after the other, each at the lowest place that is free during its life.

use super::{Item, Packing};
use std::cmp::Reverse;

/// The orders that are worth a try: by size, by size times life, by life.
pub fn orders(items: &[Item]) -> Vec<Vec<u32>> {
    let sorted = |key: &dyn Fn(&Item) -> (Reverse<i128>, Reverse<i128>)| {
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|&i| (key(&items[i as usize]), i));
        order
    };
    let size = |i: &Item| i128::from(i.size);
    let length = |i: &Item| i.length() as i128;
    vec![
        sorted(&|i| (Reverse(size(i)), Reverse(length(i)))),
        sorted(&|i| (Reverse(size(i) * length(i)), Reverse(size(i)))),
        sorted(&|i| (Reverse(length(i)), Reverse(size(i)))),
    ]
}

/// Places the items in the given order.
pub fn place(items: &[Item], order: &[u32]) -> Packing {
    place_counting(items, order).0
}

/// The same, and how many items were looked at for it.
pub fn place_counting(items: &[Item], order: &[u32]) -> (Packing, u64) {
    let mut placer = Placer::new(items);
    let mut offsets = vec![0; items.len()];
    let mut visits = items.len() as u64;
    for &i in order {
        offsets[i as usize] = placer.place(i);
        visits += placer.taken.len() as u64;
    }
    (Packing::of(items, offsets), visits)
}

/// The placed items, by the moments in which they begin: a tree over moments, whose nodes hold the items that cover the node's
/// whole span (`covering`) or begin or end within it (`touching`).
struct Placer<'a> {
    items: &'a [Item],
    leaves: usize,
    covering: Vec<Vec<(i64, i64)>>,
    touching: Vec<Vec<(i64, i64)>>,
    taken: Vec<(i64, i64)>,
}

impl<'a> Placer<'a> {
    fn new(items: &'a [Item]) -> Placer<'a> {
        let moments = items.iter().map(|i| i.end).max().unwrap_or(1);
        let leaves = moments.next_power_of_two();
        let none = vec![Vec::new(); 2 * leaves];
        Placer { items, leaves, covering: none.clone(), touching: none, taken: Vec::new() }
    }

    fn place(&mut self, index: u32) -> i64 {
        let item = self.items[index as usize];
        self.taken.clear();
        self.collect(1, 0, self.leaves, &item);
        self.taken.sort_unstable();
        let mut at = 0;
        for &(start, stop) in &self.taken {
            if start - at >= item.size {
                break;
            }
            at = at.max(stop);
        }
        self.insert(1, 0, self.leaves, &item, (at, at + item.size));
        at
    }

    /// Notes what overlaps the item's life below a node. An item lies in several nodes and may be noted more than once.
    fn collect(&mut self, node: usize, from: usize, to: usize, item: &Item) {
        if item.end <= from || to <= item.first {
            return;
        }
        self.taken.extend_from_slice(&self.covering[node]);
        if item.first <= from && to <= item.end {
            self.taken.extend_from_slice(&self.touching[node]);
            return;
        }
        let middle = (from + to) / 2;
        self.collect(2 * node, from, middle, item);
        self.collect(2 * node + 1, middle, to, item);
    }

    fn insert(&mut self, node: usize, from: usize, to: usize, item: &Item, place: (i64, i64)) {
        if item.end <= from || to <= item.first {
            return;
        }
        if item.first <= from && to <= item.end {
            self.covering[node].push(place);
            return;
        }
        self.touching[node].push(place);
        let middle = (from + to) / 2;
        self.insert(2 * node, from, middle, item, place);
        self.insert(2 * node + 1, middle, to, item, place);
    }
}
