//! Offsets for buffers with lives, in one arena.

use super::lives::Buffer;
use rc_ir::Dim;

/// Where each buffer starts, and how large the arena is, in bytes.
pub struct Placement {
    pub offsets: Vec<Dim>,
    pub size: Dim,
    /// The largest sum of sizes alive at once: no plan needs less.
    pub lower_bound: Dim,
}

/// Places all buffers but those that are results, which lie in the caller's memory.
pub fn place(buffers: &[Buffer]) -> Placement {
    let fixed: Option<Vec<i64>> = buffers.iter().map(|b| b.size.as_static()).collect();
    let (offsets, size) = match fixed {
        Some(sizes) => by_size(buffers, &sizes),
        None => slots(buffers),
    };
    Placement { offsets, size, lower_bound: lower_bound(buffers) }
}

fn overlap(a: &Buffer, b: &Buffer) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// Largest first (then longest-lived), each at the lowest offset that is free during its life.
fn by_size(buffers: &[Buffer], sizes: &[i64]) -> (Vec<Dim>, Dim) {
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].result.is_none()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(sizes[i]), std::cmp::Reverse(buffers[i].last - buffers[i].first), i));
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut end = 0;
    for i in order {
        let mut taken: Vec<(i64, i64)> = placed
            .iter()
            .filter(|&&j| overlap(&buffers[i], &buffers[j]))
            .map(|&j| (offsets[j], offsets[j] + sizes[j]))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, stop) in taken {
            if start - at >= sizes[i] {
                break;
            }
            at = at.max(stop);
        }
        offsets[i] = at;
        end = end.max(at + sizes[i]);
        placed.push(i);
    }
    (offsets.into_iter().map(Dim::Static).collect(), Dim::Static(end))
}

/// Buffers in the order of their lives; each takes the free slot with the same size, else any free one, else a new one.
/// A slot is as large as the largest buffer in it.
fn slots(buffers: &[Buffer]) -> (Vec<Dim>, Dim) {
    struct Slot {
        size: Dim,
        busy_until: usize,
    }
    let mut slots: Vec<Slot> = Vec::new();
    let mut of = vec![0; buffers.len()];
    for (i, buffer) in buffers.iter().enumerate().filter(|b| b.1.result.is_none()) {
        let free = |s: &Slot| s.busy_until < buffer.first;
        let same = slots.iter().position(|s| free(s) && s.size == buffer.size);
        let index = same.or_else(|| slots.iter().position(free)).unwrap_or_else(|| {
            slots.push(Slot { size: buffer.size, busy_until: 0 });
            slots.len() - 1
        });
        slots[index].size = slots[index].size.max(buffer.size);
        slots[index].busy_until = buffer.last;
        of[i] = index;
    }
    let mut starts = Vec::new();
    let mut end = Dim::Static(0);
    for slot in &slots {
        starts.push(end);
        end = end + slot.size;
    }
    let offsets =
        of.iter().zip(buffers).map(|(&s, b)| if b.result.is_some() { Dim::Static(0) } else { starts[s] }).collect();
    (offsets, end)
}

fn lower_bound(buffers: &[Buffer]) -> Dim {
    let inner = || buffers.iter().filter(|b| b.result.is_none());
    let sum_at = |n: usize| inner().filter(|b| b.first <= n && n <= b.last).fold(Dim::Static(0), |sum, b| sum + b.size);
    let moments = inner().map(|b| b.first);
    moments.map(sum_at).reduce(|a, b| a.max(b)).unwrap_or(Dim::Static(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(size: impl Into<Dim>, first: usize, last: usize) -> Buffer {
        Buffer { size: size.into(), first, last, result: None }
    }

    fn check(buffers: &[Buffer], placement: &Placement, bind: &dyn Fn(rc_ir::Name) -> Option<i64>) {
        let at = |d: Dim| d.evaluate(bind).unwrap();
        for (i, a) in buffers.iter().enumerate() {
            assert!(at(placement.offsets[i]) + at(a.size) <= at(placement.size));
            for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                let (s, t) = (at(placement.offsets[i]), at(placement.offsets[j]));
                let apart = s + at(a.size) <= t || t + at(b.size) <= s || !overlap(a, b);
                assert!(apart, "buffers {i} and {j} overlap");
            }
        }
    }

    #[test]
    fn fixed_sizes_share_memory() {
        let buffers: Vec<Buffer> =
            (0..20).map(|i| buffer(256 * (1 + (i * 7) % 5), i as usize, i as usize + 2)).collect();
        let placement = place(&buffers);
        check(&buffers, &placement, &|_| None);
        let (size, bound) = (placement.size.as_static().unwrap(), placement.lower_bound.as_static().unwrap());
        assert!(size >= bound && size < buffers.iter().map(|b| b.size.as_static().unwrap()).sum());
    }

    #[test]
    fn symbolic_sizes_hold_for_every_value() {
        let s = Dim::symbol("s");
        let sizes = [s * 256.into(), s * 512.into(), s * 256.into(), 1024.into(), s * s * 256.into()];
        let buffers: Vec<Buffer> = (0..25).map(|i| buffer(sizes[i * 3 % 5], i, i + 1 + i % 3)).collect();
        let placement = place(&buffers);
        for value in [1, 2, 3, 7, 1024] {
            check(&buffers, &placement, &|_| Some(value));
        }
    }
}
