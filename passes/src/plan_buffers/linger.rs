//! On a GPU memory waits before it is used again: launches that need nothing of one another then share no memory either, so that they become one or
//! run side by side.

use super::lives::Buffer;

/// One in so many bytes of the second-level cache waits. Of memory that goes through the cache in any case, an H200's 6.5 MB are little, and for a
/// network on one image as good as eight times as much (HRNet-W18: 496 launches for 546, at most 309 of them one behind the other for 521, 0.75 ms for 1.27).
pub const SHARE: i64 = 8;

/// The buffers, alive until the memory of what ended its life since is more than `bytes`, or the function's end is reached, operation number `end`.
pub fn linger(buffers: &[Buffer], bytes: i64, end: usize) -> Vec<Buffer> {
    let mut out = buffers.to_vec();
    let size = |b: &Buffer| b.size.as_static().filter(|_| b.result.is_none());
    let mut ending: Vec<usize> = (0..out.len()).filter(|&b| size(&out[b]).is_some()).collect();
    ending.sort_by_key(|&b| out[b].last);
    let ends: Vec<usize> = ending.iter().map(|&b| out[b].last).collect();
    let sizes = ending.iter().filter_map(|&b| size(&out[b]));
    // How many bytes have ended their lives before each, and in all.
    let add = |sum: &mut i64, size| {
        *sum = sum.saturating_add(size);
        Some(*sum)
    };
    let sums: Vec<i64> = std::iter::once(0).chain(sizes).scan(0, add).collect();
    for (i, b) in ending.into_iter().enumerate() {
        let more = sums.partition_point(|&sum| sum <= sums[i].saturating_add(bytes));
        out[b].last = ends.get(more - 1).copied().unwrap_or(end).max(ends[i]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(size: i64, first: usize, last: usize) -> Buffer {
        Buffer { size: size.into(), first, last, result: None }
    }

    #[test]
    fn what_ended_first_goes_first() {
        let buffers = [buffer(10, 0, 1), buffer(10, 1, 2), buffer(30, 2, 3), buffer(10, 3, 4), buffer(10, 4, 5)];
        let lasts = |bytes| linger(&buffers, bytes, 9).iter().map(|b| b.last).collect::<Vec<_>>();
        assert_eq!(lasts(0), [1, 2, 3, 4, 5]);
        assert_eq!(lasts(20), [3, 3, 3, 9, 9]);
        assert_eq!(lasts(40), [3, 4, 5, 9, 9]);
        assert_eq!(lasts(i64::MAX), [9; 5]);
    }

    #[test]
    fn results_and_symbols_are_left_as_they_are() {
        let symbolic = Buffer { size: rc_ir::Dim::symbol("s"), ..buffer(1, 0, 1) };
        let result = Buffer { result: Some(0), ..buffer(1, 0, 1) };
        let lasts: Vec<usize> = linger(&[symbolic, result, buffer(1, 0, 1)], 8, 9).iter().map(|b| b.last).collect();
        assert_eq!(lasts, [1, 1, 9]);
    }
}
