//! Copies by all threads.

use super::pool::Pool;

/// Bytes that threads divide among them: a page's, so that each has its own.
const PIECE: u64 = 4096;

impl Pool {
    /// Copies `bytes` bytes, `grain` pieces of memory at a time or more. Stretches that overlap are copied by the caller alone.
    ///
    /// # Safety
    ///
    /// Both stretches are valid for so many bytes, and no other thread uses them meanwhile.
    pub unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize, grain: u64) {
        if (from as usize).abs_diff(to as usize) < bytes {
            // SAFETY: as the caller says.
            return unsafe { std::ptr::copy(from, to, bytes) };
        }
        let (from, to) = (from as usize, to as usize);
        self.for_each((bytes as u64).div_ceil(PIECE), grain, &|_, pieces| {
            let (start, end) = ((pieces.start * PIECE) as usize, bytes.min((pieces.end * PIECE) as usize));
            // SAFETY: as the caller says; pieces are handed out once.
            unsafe { std::ptr::copy_nonoverlapping((from + start) as *const u8, (to + start) as *mut u8, end - start) }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::{Pool, PoolOptions};

    #[test]
    fn copies_all_bytes_and_no_more() {
        let pool = Pool::new(PoolOptions::with_threads(3)).expect("threads");
        for bytes in [0, 1, 4095, 4096, 4097, 100_003] {
            for grain in [1, u64::MAX] {
                let from: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8 + 1).collect();
                let mut to = vec![0u8; bytes + 64];
                // SAFETY: both vectors have so many bytes.
                unsafe { pool.copy(from.as_ptr(), to.as_mut_ptr(), bytes, grain) };
                assert_eq!(to[..bytes], from[..]);
                assert!(to[bytes..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn copies_stretches_that_overlap() {
        let pool = Pool::new(PoolOptions::with_threads(2)).expect("threads");
        let mut bytes: Vec<u8> = (0..20_000).map(|i| (i % 251) as u8).collect();
        let expected = bytes[..10_000].to_vec();
        let start = bytes.as_mut_ptr();
        // SAFETY: both stretches lie in the vector.
        unsafe { pool.copy(start, start.add(5_000), 10_000, 1) };
        assert_eq!(bytes[5_000..15_000], expected[..]);
    }
}
