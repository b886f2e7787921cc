//! First fit: items one after the other, each at the lowest place that is free during its life.

use super::{Item, Packing};
use std::cmp::Reverse;

/// Work for an item that is looked at here, in items that the complete search looks at in this time: they are gathered and sorted.
pub const WORK: u64 = 32;

/// How many pairs of items are alive together, about: as many are looked at for an order.
pub fn pairs(items: &[Item]) -> u64 {
    let sorted = |moment: fn(&Item) -> usize| {
        let mut moments: Vec<usize> = items.iter().map(moment).collect();
        moments.sort_unstable();
        moments
    };
    let (starts, ends) = (sorted(|i| i.first), sorted(|i| i.end));
    let beside = |i: &Item| starts.partition_point(|&s| s < i.end) - ends.partition_point(|&e| e <= i.first);
    items.iter().map(|i| beside(i) as u64).sum::<u64>() / 2
}

/// The orders that are worth a try: what lives when most is alive first, then by size, by size times life, by life.
pub fn orders(items: &[Item]) -> impl Iterator<Item = Vec<u32>> {
    type Key = [Reverse<i128>; 3];
    let size = |i: &Item| Reverse(i128::from(i.size));
    let length = |i: &Item| Reverse(i.length() as i128);
    let loads = Loads::of(items);
    let keys: [Box<dyn Fn(&Item) -> Key>; 4] = [
        Box::new(move |i| [Reverse(loads.most(i)), size(i), length(i)]),
        Box::new(move |i| [size(i), length(i), size(i)]),
        Box::new(move |i| [Reverse(size(i).0 * length(i).0), size(i), length(i)]),
        Box::new(move |i| [length(i), size(i), length(i)]),
    ];
    keys.into_iter().map(|key| {
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_cached_key(|&i| (key(&items[i as usize]), i));
        order
    })
}

/// How much is alive at each moment; row `k` has the most in each 2^k moments.
pub struct Loads(Vec<Vec<i64>>);

impl Loads {
    pub fn of(items: &[Item]) -> Loads {
        let moments = items.iter().map(|i| i.end).max().unwrap_or(0);
        let mut changes = vec![0; moments + 1];
        for item in items {
            changes[item.first] += item.size;
            changes[item.end] -= item.size;
        }
        let mut now = 0;
        let mut rows = vec![changes[..moments].iter().map(|change| (now += change, now).1).collect::<Vec<i64>>()];
        while let Some(row) = rows.last().filter(|row| row.len() > 1 << (rows.len() - 1)) {
            let step = 1 << (rows.len() - 1);
            rows.push((0..row.len() - step).map(|m| row[m].max(row[m + step])).collect());
        }
        Loads(rows)
    }

    /// The most that is alive during the item's life.
    pub fn most(&self, item: &Item) -> i128 {
        let row = item.length().ilog2() as usize;
        self.0[row][item.first].max(self.0[row][item.end - (1 << row)]).into()
    }
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
        visits += placer.looked_at();
    }
    (Packing::of(items, offsets), visits)
}

/// The placed items, by the moments in which they begin: a tree over moments, whose nodes hold the items that cover the node's
/// whole span (`covering`) or begin or end within it (`touching`).
pub struct Placer<'a> {
    items: &'a [Item],
    leaves: usize,
    covering: Vec<Vec<(i64, i64)>>,
    touching: Vec<Vec<(i64, i64)>>,
    taken: Vec<(i64, i64)>,
}

impl<'a> Placer<'a> {
    pub fn new(items: &'a [Item]) -> Placer<'a> {
        let moments = items.iter().map(|i| i.end).max().unwrap_or(1);
        let leaves = moments.next_power_of_two();
        let none = vec![Vec::new(); 2 * leaves];
        Placer { items, leaves, covering: none.clone(), touching: none, taken: Vec::new() }
    }

    /// How many items were looked at for the last place.
    fn looked_at(&self) -> u64 {
        self.taken.len() as u64
    }

    /// Has an item lie at a place.
    pub fn fix(&mut self, index: u32, at: i64) {
        let item = self.items[index as usize];
        self.insert(1, 0, self.leaves, &item, (at, at + item.size));
    }

    /// Places an item at the lowest place that is free during its life.
    pub fn place(&mut self, index: u32) -> i64 {
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
