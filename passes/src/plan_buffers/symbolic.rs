//! Symbolic sizes: an example of them is packed, and what lies on what in it is kept for every value. A buffer's offset is then
//! the largest end of those below it, as an expression.

use super::lives::Buffer;
use super::pack::{Item, Packing};
use rc_dialects::func::SymbolDecl;
use rc_ir::dim_range::Ranges;
use rc_ir::{Dim, Name};

/// A symbol without a bound is planned as this.
const EXAMPLE: i64 = 4096;

/// The sizes where the symbols have their greatest values, as far as 63 bits hold them; else at smaller ones.
pub fn example(sizes: &[Dim], symbols: &[SymbolDecl]) -> Option<Vec<i64>> {
    (0..63).find_map(|shift| {
        let value = |name: Name| {
            let symbol = symbols.iter().find(|s| s.name == name)?;
            let high = if symbol.max == i64::MAX { EXAMPLE.max(symbol.min) } else { symbol.max };
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
        ends[i] = below.plus(buffers[i].size);
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
