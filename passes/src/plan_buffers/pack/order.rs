//! Orders of preference for the complete search.

use super::Item;
use super::random::Random;
use std::cmp::Reverse;

/// Items by the length of their lives (W), by size times life (A) and by the most that waits beside them (T), in one of the orders
/// WAT, TAW, TWA; then each moved by some places.
#[derive(Default)]
pub struct Order {
    kind: usize,
    widths: Vec<u64>,
    /// By how many places each item is moved.
    moves: Vec<f64>,
}

impl Order {
    /// The kinds: three orders, by the moments of the caller and by those in which something begins.
    pub const COUNT: usize = 6;

    pub fn new(items: &[Item], widths: &[u64], kind: usize, moved: bool, random: &mut Random) -> Order {
        let widths = match kind % 2 {
            0 => widths.to_vec(),
            _ => items.iter().map(|i| i.length() as u64).collect(),
        };
        let jitter = if moved { 20.0 * random.fraction() } else { 0.0 };
        let moves = items.iter().map(|_| jitter * random.fraction()).collect();
        Order { kind: kind / 2 % 3, widths, moves }
    }

    /// The items of a part in this order; `sums` are the sizes of what waits at each moment.
    pub fn rank(&self, items: &[Item], part: &[u32], sums: &[i64]) -> Vec<u32> {
        let key = |i: u32| {
            let item = &items[i as usize];
            let width = u128::from(self.widths[i as usize]);
            let area = width * item.size as u128;
            let total = sums[item.first..item.end].iter().copied().max().unwrap_or(0) as u128;
            [[width, area, total], [total, area, width], [total, width, area]][self.kind]
        };
        let mut sorted: Vec<(Reverse<[u128; 3]>, u32)> = part.iter().map(|&i| (Reverse(key(i)), i)).collect();
        sorted.sort_unstable();
        let moved = sorted.into_iter().enumerate().map(|(place, (_, i))| (place as f64 + self.moves[i as usize], i));
        let mut moved: Vec<(f64, u32)> = moved.collect();
        moved.sort_by(|a, b| a.0.total_cmp(&b.0));
        moved.into_iter().map(|(_, i)| i).collect()
    }
}
