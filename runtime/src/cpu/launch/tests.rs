use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::cpu::PoolOptions;

/// Counts its programs in `args[0][thread]`, checks its scratch memory, and overwrites all of it.
unsafe extern "C" fn count(args: *const u64, ctx: *const KernelCtx) {
    // SAFETY: the tests pass such arguments.
    unsafe {
        let ctx = &*ctx;
        let counts = *args as *const AtomicU64;
        let ids = ctx.grid.iter().product::<u64>();
        let sound = ctx.begin < ctx.end && ctx.end <= ids && ctx.thread < ctx.threads;
        let scratch = ctx.scratch_size >= *args.add(1) && (ctx.scratch as usize).is_multiple_of(64);
        if !sound || !scratch {
            return ((*ctx.entries).fail)(ctx, 1, ctx.scratch_size as i64, ctx.scratch as i64);
        }
        ((*ctx.entries).memset)(ctx.scratch, 0x1ff, *args.add(1));
        if *args.add(1) > 0 && *ctx.scratch.add(*args.add(1) as usize - 1) != 0xff {
            return ((*ctx.entries).fail)(ctx, 2, 0, 0);
        }
        (*counts.add(ctx.thread as usize)).fetch_add(ctx.end - ctx.begin, Ordering::Relaxed);
    }
}

#[test]
fn covers_grids_with_scratch() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(PoolOptions::with_threads(threads)).unwrap();
        for grid in [[1, 1, 1], [0, 5, 5], [7, 1, 3], [1, 1, 1000]] {
            for scratch in [0, 1, 100, 1 << 20, 64] {
                let counts: Vec<_> = (0..threads).map(|_| AtomicU64::new(0)).collect();
                let args = [counts.as_ptr() as u64, scratch as u64];
                // SAFETY: the arguments that `count` takes.
                unsafe { pool.launch(count, &args, Launch { grid, grain: 1, scratch }) }.unwrap();
                let total: u64 = counts.iter().map(|n| n.load(Ordering::Relaxed)).sum();
                assert_eq!(total, grid.iter().product::<u64>());
            }
        }
    }
}

#[test]
fn what_cannot_be_launched_is_an_error() {
    let pool = Pool::new(PoolOptions::with_threads(2)).unwrap();
    let counts = [const { AtomicU64::new(0) }; 2];
    let args = [counts.as_ptr() as u64, 0];
    for launch in [
        Launch::grid([1 << 32, 1 << 32, 1]),
        Launch { scratch: 1 << 60, ..Launch::grid([4, 1, 1]) },
        Launch { scratch: usize::MAX, ..Launch::grid([4, 1, 1]) },
    ] {
        // SAFETY: as above.
        assert!(unsafe { pool.launch(count, &args, launch) }.is_err(), "{launch:?}");
    }
    // A kernel that is told of more scratch memory than it gets says so.
    let args = [counts.as_ptr() as u64, 1 << 40];
    // SAFETY: as above.
    let error = unsafe { pool.launch(count, &args, Launch::grid([64, 1, 1])) }.unwrap_err();
    assert!(matches!(error, Error::Kernel { code: 1, a: 0, b: 0, .. }), "{error}");
}
