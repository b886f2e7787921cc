//! Repairs of an order: what reaches highest, and what lies below it, is placed earlier, again and again; worse orders are taken
//! at first too, less and less.

use super::random::Random;
use super::{Item, Packing, first_fit};

/// The order at hand and its packing.
pub struct Improver {
    now: Packing,
    order: Vec<u32>,
    /// What an order is expected to take.
    work: u64,
}

impl Improver {
    pub fn new(items: &[Item], now: Packing, order: Vec<u32>) -> Improver {
        Improver { now, order, work: first_fit::WORK * first_fit::pairs(items) }
    }

    /// Tries orders until about `effort` items were looked at. Gives the best packing.
    pub fn run(&mut self, items: &[Item], bound: i64, best: Packing, effort: u64, random: &mut Random) -> Packing {
        let (mut best, mut spent) = (best, 0);
        while spent + self.work < effort && best.height > bound {
            let mut next = self.order.clone();
            promote(items, &self.now, &mut next, random);
            let (packing, visits) = first_fit::place_counting(items, &next);
            // Going over the order and the places besides.
            spent += first_fit::WORK * visits + 4 * items.len() as u64;
            let worse = (packing.height - self.now.height) as f64;
            let left = 1.0 - spent.min(effort) as f64 / effort as f64;
            if worse <= (self.now.height - bound) as f64 * 0.3 * left * random.fraction() {
                (self.now, self.order) = (packing, next);
            }
            if self.now.height < best.height {
                best = self.now.clone();
            }
        }
        best
    }
}

/// Moves one of the items that reach highest, or one that lies under such an item, to an earlier place in the order.
fn promote(items: &[Item], now: &Packing, order: &mut Vec<u32>, random: &mut Random) {
    let top = |i: u32| now.offsets[i as usize] + items[i as usize].size;
    let highest: Vec<u32> = (0..items.len() as u32).filter(|&i| top(i) == now.height).collect();
    let mut chosen = highest[random.below(highest.len())];
    for _ in 0..random.below(3) {
        let (item, at) = (&items[chosen as usize], now.offsets[chosen as usize]);
        let below: Vec<u32> =
            (0..items.len() as u32).filter(|&i| top(i) == at && items[i as usize].overlaps(item)).collect();
        if below.is_empty() {
            break;
        }
        chosen = below[random.below(below.len())];
    }
    let place = order.iter().position(|&i| i == chosen).expect("an order has all items");
    let to = random.below(place + 1);
    order.remove(place);
    order.insert(to, chosen);
}
