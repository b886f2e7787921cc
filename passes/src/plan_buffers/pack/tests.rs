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
        let (packing, order) = skyline::place(&items);
        check(&items, &packing);
        prop_assert_eq!(order.len(), items.len());
    }
}
