//! Symbolic sizes: an example of them is packed, and what lies on what in it is kept for every value. A buffer's offset is then
//! the largest end of those below it, as an expression.

use super::lives::Buffer;
use super::pack::{Item, Packing};
use rc_dialects::func::SymbolDecl;
use rc_ir::dim_range::{Ranges, counted};
use rc_ir::{Dim, Name};

/// A size that no memory holds is no bound: frontends know no better.
const UNBOUNDED: i64 = 1 << 32;

/// The sizes where the symbols have their greatest values, those without a bound usual ones, as far as 63 bits hold them; else at smaller ones.
pub fn example(sizes: &[Dim], symbols: &[SymbolDecl]) -> Option<Vec<i64>> {
    (0..63).find_map(|shift| {
        let value = |name: Name| {
            let symbol = symbols.iter().find(|s| s.name == name)?;
            let high = if symbol.max > UNBOUNDED { counted(symbol.min, symbol.max) } else { symbol.max };
            Some((high >> shift).max(symbol.min))
        };
        let sizes = sizes.iter().map(|size| size.evaluate(&value)).collect::<Option<Vec<i64>>>()?;
        sizes.iter().try_fold(0i64, |sum, &size| sum.checked_add(size)).map(|_| sizes)
    })
}

/// Offsets and the arena's size, by what lies on what in the packing of the example.
pub fn offsets(buffers: &[&Buffer], items: &[Item], packing: &Packing, symbols: &[SymbolDecl]) -> (Vec<Dim>, Dim) {
    let mut ranges = Ranges::new();
    symbols.iter().for_each(|s| ranges.set(s.name, s.min, s.max));
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| (packing.offsets[i], i));
    let mut ends: Vec<Ends> = vec![Ends::default(); items.len()];
    let mut places = vec![Dim::Static(0); items.len()];
    let mut all = Ends::default();
    for (number, &i) in order.iter().enumerate() {
        let mut below = Ends::default();
        for j in supports(items, &order[..number], i) {
            below.join(&ends[j], &ranges);
        }
        places[i] = below.dim(&ranges);
        ends[i] = below.plus(ranges.simplify(buffers[i].size));
        all.join(&ends[i], &ranges);
    }
    (places, all.dim(&ranges))
}

/// Items below item `i` with no other between: `placed` are those with lower places, the lowest first.
fn supports(items: &[Item], placed: &[usize], i: usize) -> Vec<usize> {
    let mut out: Vec<usize> = Vec::new();
    for &j in placed.iter().rev().filter(|&&j| items[j].overlaps(&items[i])) {
        // Of the time that `i` shares with `j`, is some not covered by what is above `j` already? Only then `j` bears `i` itself;
        // else one that bears `i` lies on it.
        let hidden = out.iter().any(|&k| items[k].overlaps(&items[j]));
        if !hidden {
            out.push(j);
        }
    }
    out
}

/// The largest of a few expressions.
#[derive(Clone, Default)]
struct Ends(Vec<Dim>);

/// More expressions than these become one that is at least each.
const MOST: usize = 4;

impl Ends {
    fn join(&mut self, other: &Ends, ranges: &Ranges) {
        for &end in &other.0 {
            if self.0.iter().any(|&own| own == end || ranges.always_le(end, own)) {
                continue;
            }
            self.0.retain(|&own| !ranges.always_le(own, end));
            self.0.push(end);
        }
        if self.0.len() > MOST {
            self.0 = vec![self.0.drain(..).reduce(above).expect("not empty")];
        }
    }
    fn plus(&self, size: Dim) -> Ends {
        if self.0.is_empty() { Ends(vec![size]) } else { Ends(self.0.iter().map(|&end| end + size).collect()) }
    }
    fn dim(&self, ranges: &Ranges) -> Dim {
        ranges.simplify(self.0.iter().copied().reduce(Dim::max).unwrap_or(Dim::Static(0)))
    }
}

/// An expression that is at least both, for sums of products of what is not negative: the larger coefficient of each product.
fn above(a: Dim, b: Dim) -> Dim {
    let Some(mut more) = (b - a).polynomial() else { return a.max(b) };
    more.terms.retain(|t| t.1 > 0);
    more.constant = more.constant.max(0);
    a + more.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_buffers::pack::{EFFORT, lower_bound, pack};

    /// A transformer's layers, with masks and positions of other sizes beside them.
    #[test]
    fn symbolic_arenas_take_what_fixed_ones_do() {
        let [b, s, t] = ["b", "s", "t"].map(|name| Dim::symbol(Name::new(name)));
        let rounded = |bytes: Dim| bytes.ceildiv(256.into()) * 256.into();
        let tokens = b * s;
        let (hidden, narrow) = (rounded(tokens * 12288.into()), rounded(tokens * 3072.into()));
        let masks = [tokens, b * s * t, s * 3072.into(), b * t, t * 4.into(), b * 48.into()];
        let mut buffers: Vec<_> = masks.iter().enumerate().map(|(i, &mask)| (rounded(mask), i, 60 - 9 * i)).collect();
        for layer in 0..10 {
            let at = 6 * layer;
            buffers.extend([(narrow, at, at + 2), (narrow, at, at + 3), (narrow, at + 1, at + 3)]);
            buffers.extend([(hidden, at + 3, at + 4), (narrow, at + 2, at + 5), (narrow, at + 4, at + 6)]);
        }
        let buffers: Vec<Buffer> =
            buffers.into_iter().map(|(size, first, last)| Buffer { size, first, last, result: None }).collect();
        let buffers: Vec<&Buffer> = buffers.iter().collect();
        let symbols = ["b", "s", "t"].map(|name| (name, 1, i64::MAX / 2));
        let symbols = symbols.map(|(name, min, max)| SymbolDecl::new(name, min, max));
        let expressions: Vec<Dim> = buffers.iter().map(|b| b.size).collect();
        let items = |sizes: &[i64]| -> Vec<Item> {
            let item = |(b, &size): (&&Buffer, &i64)| Item { first: b.first, end: b.last + 1, size };
            buffers.iter().zip(sizes).map(item).collect()
        };
        let planned = items(&example(&expressions, &symbols).unwrap());
        let (places, all) = offsets(&buffers, &planned, &pack(&planned, EFFORT), &symbols);
        for (b, s) in [(1, 1), (1, 16), (3, 64), (2, 100), (8, 128), (1, 1000), (64, 7)] {
            let value = |d: Dim| d.evaluate(&|name| Some(if name == "b" { b } else { s })).unwrap();
            let sizes: Vec<i64> = expressions.iter().map(|&e| value(e)).collect();
            let items = items(&sizes);
            assert!(
                value(all) as f64 <= 1.05 * lower_bound(&items) as f64 + 1024.0,
                "b = {b}, s = {s}: {} of {}",
                value(all),
                lower_bound(&items)
            );
            let places: Vec<i64> = places.iter().map(|&at| value(at)).collect();
            for i in 0..items.len() {
                assert!(places[i] + sizes[i] <= value(all));
                for j in (0..i).filter(|&j| items[i].overlaps(&items[j])) {
                    assert!(
                        places[i] + sizes[i] <= places[j] || places[j] + sizes[j] <= places[i],
                        "{i} and {j} overlap"
                    );
                }
            }
        }
    }
}
