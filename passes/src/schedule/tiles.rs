//! Sizes of tiles: what an iterator's stores allow, and what suits the machine.

use super::access::{Access, Iter};
use super::nest::{Nest, extent_of};
use super::target::Target;
use rc_dialects::loop_::IterKind;
use rc_ir::{Name, Type};

/// The smallest power of two that is at least `n`.
pub fn pow2(n: i64) -> i64 {
    (n.max(1) as u64).next_power_of_two() as i64
}

/// A tile of about `want` elements of an iterator of `extent` elements: no larger than needed; a power of two on a GPU,
/// a multiple of the vector width on a CPU.
pub fn fit(target: &Target, extent: Option<i64>, want: i64, lanes: i64) -> i64 {
    let Some(extent) = extent else { return want };
    if target.is_cpu() {
        want.min((extent.max(1) as u64).next_multiple_of(lanes as u64) as i64)
    } else {
        want.min(pow2(extent))
    }
}

/// The largest tile of `iter` up to `want` with which the results can be stored: tiles may reach past the extent only where
/// that is out of the memory's bounds. `also` is an iterator tiled along with it.
pub fn storable(outputs: &[&Access], iter: &Iter, also: Option<Name>, want: i64, target: &Target) -> i64 {
    let tiled: Vec<Name> = std::iter::once(iter.name).chain(also).collect();
    if want <= 1 || outputs.iter().any(|o| o.plain(&tiled).is_none()) {
        return 1;
    }
    if outputs.iter().all(|o| o.clips(iter) || !o.mentions(iter.name)) {
        return want;
    }
    let Some(extent) = iter.extent.as_static() else { return 1 };
    let divides = |t: &i64| extent % t == 0 && (target.is_cpu() || *t & (*t - 1) == 0);
    (1..=want).rev().find(divides).unwrap_or(1)
}

/// The parallel iterator before `x` of which a tile, of the size that `taken` says, holds the most elements; the nearest of several. Of those
/// of which more than one element is taken, what is `preferred` most comes first.
pub fn best_outer(
    nest: &Nest,
    x: Name,
    taken: &dyn Fn(&Iter) -> i64,
    preferred: &dyn Fn(Name) -> usize,
) -> Option<(Name, i64)> {
    let at = nest.iters.iter().position(|i| i.name == x)?;
    let filled = |(iter, tile): &(&Iter, i64)| {
        let extent = extent_of(&nest.ranges, iter.extent);
        (if *tile > 1 { preferred(iter.name) } else { 0 }, (extent * 1000) / ((extent + tile - 1) / tile).max(1))
    };
    let outer = nest.iters[..at].iter().filter(|i| i.kind == IterKind::Parallel).map(|i| (i, taken(i)));
    outer.max_by_key(filled).map(|(i, tile)| (i.name, tile))
}

/// The widest element type that the nests move.
pub fn widest(types: impl Iterator<Item = Type>) -> Type {
    types.max_by_key(|t| t.bit_width()).unwrap_or_else(Type::f32)
}
