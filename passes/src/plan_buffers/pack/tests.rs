use super::*;
use proptest::prelude::*;

fn check(items: &[Item], packing: &Packing) {
    for (i, a) in items.iter().enumerate() {
        assert!(packing.offsets[i] >= 0 && packing.offsets[i] + a.size <= packing.height);
        for (j, b) in items.iter().enumerate().skip(i + 1) {
            let (s, t) = (packing.offsets[i], packing.offsets[j]);
            assert!(!a.overlaps(b) || s + a.size <= t || t + b.size <= s, "items {i} and {j} overlap");
        }
    }
    assert!(packing.height >= lower_bound(items));
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item =
        (0usize..40, 1usize..20, 0i64..9).prop_map(|(first, length, size)| Item { first, end: first + length, size });
    proptest::collection::vec(item, 0..40)
}

proptest! {
    #[test]
    fn no_two_live_items_overlap(items in items()) {
        check(&items, &pack(&items, 20_000));
    }

    #[test]
    fn every_part_of_the_portfolio_is_right(items in items()) {
        for order in first_fit::orders(&items) {
            check(&items, &first_fit::place(&items, &order));
        }
        for rule in [Rule::Length, Rule::Area, Rule::Size, Rule::About(3)] {
            let (packing, order) = skyline::place(&items, rule, u64::MAX).unwrap();
            check(&items, &packing);
            prop_assert_eq!(order.len(), items.len());
        }
        check(&items, &skyline::place(&mirrored(&items), Rule::Length, u64::MAX).unwrap().0);
    }
}

/// Random instances of many shapes; `RC_PACK_COUNT` asks for more of them, `RC_PACK_SEED` for others.
#[test]
fn random_instances() {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |n| n.parse().expect("a number"));
    let (seed, count) = (number("RC_PACK_SEED", 1), number("RC_PACK_COUNT", 4_000));
    let mut random = Random::seeded(seed);
    for _ in 0..count {
        let (most, moments) = (1 + random.below(40), 1 + random.below(60));
        let (length, size) = (1 + random.below(moments), [2, 16, 4096][random.below(3)]);
        let item = |random: &mut Random| {
            let first = random.below(moments);
            Item { first, end: first + 1 + random.below(length), size: random.below(size) as i64 }
        };
        let items: Vec<Item> = (0..random.below(most + 1)).map(|_| item(&mut random)).collect();
        check(&items, &pack(&items, [0, 20_000, 400_000][random.below(3)]));
    }
}

/// Instances so large that their tight stretches are packed alone and their parts repaired.
#[test]
fn large_instances() {
    let mut random = Random::seeded(11);
    for (length, size) in [(100, 1000), (3, 7), (4000, 50), (1, 1)] {
        let item = |random: &mut Random| {
            let first = random.below(4000);
            Item { first, end: first + 1 + random.below(length), size: random.below(size) as i64 }
        };
        let items: Vec<Item> = (0..MANY).map(|_| item(&mut random)).collect();
        check(&items, &pack(&items, 10_000_000));
    }
}

/// Blocks cut out of a rectangle of time and memory fill it without a gap, whatever the order in which they come.
#[test]
fn what_fills_a_rectangle_is_packed_into_it() {
    let mut random = Random::seeded(7);
    for _ in 0..20 {
        let mut blocks = vec![(Item { first: 0, end: 64, size: 1024 }, 0)];
        while blocks.len() < 24 {
            let (block, at) = blocks.swap_remove(random.below(blocks.len()));
            let (time, size) = (block.end - block.first, block.size as usize);
            if random.below(2) == 0 && time > 1 {
                let cut = block.first + 1 + random.below(time - 1);
                blocks.extend([(Item { end: cut, ..block }, at), (Item { first: cut, ..block }, at)]);
            } else if size > 1 {
                let cut = 1 + random.below(size - 1) as i64;
                blocks
                    .extend([(Item { size: cut, ..block }, at), (Item { size: block.size - cut, ..block }, at + cut)]);
            } else {
                blocks.push((block, at));
            }
        }
        let items: Vec<Item> = blocks.into_iter().map(|block| block.0).collect();
        let packing = pack(&items, EFFORT);
        check(&items, &packing);
        assert_eq!(packing.height, 1024);
    }
}
