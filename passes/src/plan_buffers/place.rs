//! Offsets for buffers with lives, in one arena.

use super::lives::Buffer;
use super::pack::{EFFORT, Item, LONG_EFFORT, Packing, lower_bound, pack, pack_to};
use super::symbolic;
use rc_dialects::func::SymbolDecl;
use rc_ir::Dim;

/// Where each buffer starts, and how large the arena is, in bytes.
pub struct Placement {
    pub offsets: Vec<Dim>,
    pub size: Dim,
    /// No plan for this order of operations needs less. With symbolic sizes, for the example that was planned.
    pub bound: i64,
    /// The arena of the sizes that were planned: its own, or the example's.
    pub planned: i64,
    /// The sizes that were planned; 0 of results.
    pub sizes: Vec<i64>,
}

/// Places all buffers but those that are results, which lie in the caller's memory; searches longer where the arena is above a limit that
/// may be kept.
///
/// # Errors
/// If the sizes are more than 63 bits hold, for fixed sizes or at the least values of the symbols.
pub fn place(buffers: &[Buffer], symbols: &[SymbolDecl], limit: Option<i64>) -> Result<Placement, String> {
    placed(buffers, symbols, |items| {
        let packing = pack(items, EFFORT);
        let longer = limit.is_some_and(|limit| lower_bound(items) <= limit && limit < packing.height);
        if longer { pack(items, LONG_EFFORT) } else { packing }
    })
}

/// Places buffers whose memory waits: `waiting` are their lives with that, of which a plan may waste a 32nd.
///
/// # Errors
/// As [`place`].
pub fn place_apart(buffers: &[Buffer], waiting: &[Buffer], symbols: &[SymbolDecl]) -> Result<Placement, String> {
    let placement = placed(waiting, symbols, |items| {
        let bound = lower_bound(items);
        pack_to(items, bound + bound / 32, EFFORT)
    })?;
    let inner: Vec<&Buffer> = buffers.iter().filter(|b| b.result.is_none()).collect();
    Ok(Placement { bound: lower_bound(&items(&inner, symbols)?), ..placement })
}

fn placed(
    buffers: &[Buffer],
    symbols: &[SymbolDecl],
    pack: impl FnOnce(&[Item]) -> Packing,
) -> Result<Placement, String> {
    let inner: Vec<&Buffer> = buffers.iter().filter(|b| b.result.is_none()).collect();
    let fixed = inner.iter().all(|b| b.size.is_static());
    let items = items(&inner, symbols)?;
    let sizes: Vec<i64> = items.iter().map(|item| item.size).collect();
    let bound = lower_bound(&items);
    let packing = pack(&items);
    let planned = packing.height;
    let (places, size) = match fixed {
        true => (packing.offsets.iter().map(|&at| Dim::Static(at)).collect(), Dim::Static(packing.height)),
        false => symbolic::offsets(&inner, &items, &packing, symbols),
    };
    let mut inner_sizes = sizes.into_iter();
    let size_of = |b: &Buffer| if b.result.is_some() { 0 } else { inner_sizes.next().expect("one for each") };
    let sizes = buffers.iter().map(size_of).collect();
    let mut places = places.into_iter();
    let mut next = |b: &Buffer| if b.result.is_some() { Dim::Static(0) } else { places.next().expect("one for each") };
    Ok(Placement { offsets: buffers.iter().map(&mut next).collect(), size, bound, planned, sizes })
}

fn items(inner: &[&Buffer], symbols: &[SymbolDecl]) -> Result<Vec<Item>, String> {
    let expressions: Vec<Dim> = inner.iter().map(|b| b.size).collect();
    let sizes = symbolic::example(&expressions, symbols).ok_or("buffers of more than 2^63 bytes in all")?;
    let item = |(b, size): (&&Buffer, i64)| Item { first: b.first, end: b.last + 1, size };
    Ok(inner.iter().zip(sizes).map(item).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::Name;

    fn buffer(size: impl Into<Dim>, first: usize, last: usize) -> Buffer {
        Buffer { size: size.into(), first, last, result: None }
    }

    fn check(buffers: &[Buffer], placement: &Placement, bind: &dyn Fn(Name) -> Option<i64>) {
        let at = |d: Dim| d.evaluate(bind).unwrap();
        for (i, a) in buffers.iter().enumerate() {
            assert!(at(placement.offsets[i]) + at(a.size) <= at(placement.size));
            for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                let (s, t) = (at(placement.offsets[i]), at(placement.offsets[j]));
                let together = a.first <= b.last && b.first <= a.last;
                assert!(!together || s + at(a.size) <= t || t + at(b.size) <= s, "buffers {i} and {j} overlap");
            }
        }
    }

    #[test]
    fn fixed_sizes_reach_the_bound() {
        let buffers: Vec<Buffer> =
            (0..20).map(|i| buffer(256 * (1 + (i * 7) % 5), i as usize, i as usize + 2)).collect();
        let placement = place(&buffers, &[], None).unwrap();
        check(&buffers, &placement, &|_| None);
        assert_eq!(placement.size, Dim::Static(placement.bound));
    }

    #[test]
    fn symbolic_sizes_hold_for_every_value() {
        let symbols = [SymbolDecl::new("s", 1, 1024), SymbolDecl::new("t", 1, 77)];
        let (s, t) = (Dim::symbol("s"), Dim::symbol("t"));
        let sizes =
            [s * 256.into(), s * t * 512.into(), s * 256.into(), 1024.into(), s * s * 256.into(), t * 768.into()];
        let buffers: Vec<Buffer> = (0..25).map(|i| buffer(sizes[i * 5 % 6], i, i + 1 + i % 3)).collect();
        let placement = place(&buffers, &symbols, None).unwrap();
        for (s, t) in [(1, 1), (2, 77), (3, 5), (7, 1), (1024, 77), (1024, 1), (1, 77)] {
            check(&buffers, &placement, &|name| Some(if name == Name::new("s") { s } else { t }));
        }
    }

    #[test]
    fn one_symbol_costs_no_more_than_its_value() {
        let (s, symbols) = (Dim::symbol("s"), [SymbolDecl::new("s", 1, 4096)]);
        let size = |i: usize| s * Dim::Static(256 * (1 + (i as i64 * 7) % 5));
        let buffers: Vec<Buffer> = (0..40).map(|i| buffer(size(i), i, i + 2 + i % 4)).collect();
        let placement = place(&buffers, &symbols, None).unwrap();
        for value in [1, 100, 4096] {
            let fixed: Vec<Buffer> =
                (0..40).map(|i| buffer(size(i).evaluate(&|_| Some(value)).unwrap(), i, i + 2 + i % 4)).collect();
            let alone = place(&fixed, &[], None).unwrap().planned;
            assert_eq!(placement.size.evaluate(&|_| Some(value)).unwrap(), alone, "s = {value}");
        }
    }

    #[test]
    fn sums_beyond_63_bits_are_refused() {
        let buffers = [buffer(i64::MAX / 2, 0, 1), buffer(i64::MAX / 2 + 2, 1, 2)];
        assert!(place(&buffers, &[], None).is_err());
    }
}
