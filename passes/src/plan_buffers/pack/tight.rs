//! Large instances by their tight moments: where nearly as much is alive as ever is, what is alive is packed alone first, as a small instance that can be
//! searched; all else is placed around it, and finds room.

use super::first_fit::{Loads, Placer};
use super::{Item, Packing, pack_to};
use std::cmp::Reverse;

/// Moments may be taken to be tight where more than so many twentieths of the bound are alive: fewer are solved sooner, more leave more room around them.
pub const TIGHT: [i128; 2] = [18, 17];
/// Items of a tight stretch at most.
const LARGEST: usize = 2000;

/// A packing, and the effort that was spent; none where tight stretches are too large to be searched.
pub fn place(items: &[Item], bound: i64, twentieths: i128, effort: u64) -> Option<(Packing, u64)> {
    let loads = Loads::of(items);
    let stretches = stretches(items, &loads, i128::from(bound) * twentieths / 20);
    if stretches.is_empty() || stretches.iter().any(|stretch| stretch.len() > LARGEST) {
        return None;
    }
    let mut placer = Placer::new(items);
    let mut offsets = vec![-1; items.len()];
    let each = effort / stretches.len() as u64;
    let mut spent = 0;
    for stretch in &stretches {
        let alone: Vec<Item> = stretch.iter().map(|&i| items[i as usize]).collect();
        let mut packed = pack_to(&alone, bound, each);
        spent += each;
        if packed.height > bound && spent < 2 * effort {
            packed = pack_to(&alone, bound, effort / 2);
            spent += effort / 2;
        }
        for (&i, &at) in stretch.iter().zip(&packed.offsets) {
            offsets[i as usize] = at;
            placer.fix(i, at);
        }
    }
    let mut others: Vec<u32> = (0..items.len() as u32).filter(|&i| offsets[i as usize] < 0).collect();
    others.sort_by_cached_key(|&i| {
        let item = &items[i as usize];
        (Reverse(loads.most(item)), Reverse(item.size), Reverse(item.length()), i)
    });
    others.into_iter().for_each(|i| offsets[i as usize] = placer.place(i));
    Some((Packing::of(items, offsets), spent))
}

/// The items that are alive in each tight stretch of time; stretches with items in common are one.
fn stretches(items: &[Item], loads: &Loads, least: i128) -> Vec<Vec<u32>> {
    let is_tight = |item: &&u32| loads.most(&items[**item as usize]) > least;
    let mut tight: Vec<u32> = Vec::from_iter(0..items.len() as u32);
    tight = tight.iter().filter(is_tight).copied().collect();
    tight.sort_by_key(|&i| (items[i as usize].first, i));
    let (mut out, mut end) = (Vec::<Vec<u32>>::new(), 0);
    for i in tight {
        let item = &items[i as usize];
        match out.last_mut().filter(|_| item.first < end) {
            Some(stretch) => stretch.push(i),
            None => out.push(vec![i]),
        }
        end = end.max(item.end);
    }
    out
}
