//! Reduces what fails: fewer steps, smaller numbers.

use super::Seeds;

/// The smallest seeds found that still fail.
pub fn reduced(seeds: &Seeds, fails: &mut dyn FnMut(&Seeds) -> bool) -> Seeds {
    let mut best = seeds.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(|s| fails(s));
        match smaller {
            Some(seeds) => best = seeds,
            None => return best,
        }
    }
}

fn candidates(seeds: &Seeds) -> Vec<Seeds> {
    let without = |i: usize| {
        let mut fewer = seeds.clone();
        fewer.steps.remove(i);
        fewer
    };
    (0..seeds.steps.len()).rev().map(without).collect()
}
