//! Latency of a kernel launch on the CPU: `cargo bench -p rc-runtime --bench pool`.
//!
//! Prints the median and 90th percentile of the time from `Pool::launch` to its return, for a kernel that does next to
//! nothing, called back to back and after pauses; and how close a kernel of pure arithmetic comes to one share of its
//! serial time for each thread.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use rc_runtime::cpu::abi::KernelCtx;
use rc_runtime::cpu::{Launch, Pool, PoolOptions};

unsafe extern "C" fn empty(_: *const u64, ctx: *const KernelCtx) {
    // SAFETY: the pool passes a context.
    black_box(unsafe { (*ctx).begin });
}

/// About 1 µs of arithmetic for each program.
unsafe extern "C" fn arithmetic(_: *const u64, ctx: *const KernelCtx) {
    // SAFETY: as above.
    let (begin, end) = unsafe { ((*ctx).begin, (*ctx).end) };
    for id in begin..end {
        let mut x = id;
        for _ in 0..1000 {
            x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
    }
}

/// Median and 90th percentile, in µs, over `n` calls with a busy pause before each.
fn times(n: usize, pause: Duration, mut call: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            while start.elapsed() < pause {
                spin_loop();
            }
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[n / 2], times[n * 9 / 10])
}

fn main() {
    let pool = PoolOptions::from_env().and_then(Pool::new).expect("a pool");
    println!("{} threads", pool.threads());
    // SAFETY: neither kernel reads its arguments.
    let launch = |kernel, grid| unsafe { pool.launch(kernel, &[], Launch::grid([grid, 1, 1])) }.expect("a launch");
    for (name, pause) in [("back to back", 0), ("20 µs apart", 20), ("1 ms apart (workers asleep)", 1000)] {
        for grid in [1, pool.threads() as u64, 64] {
            let (median, high) = times(2000, Duration::from_micros(pause), || launch(empty, grid));
            println!("grid {grid:3} {name:28} median {median:7.2} µs   90% {high:7.2} µs");
        }
    }
    for grid in [10, 100, 1000] {
        let (parallel, _) = times(500, Duration::from_micros(20), || launch(arithmetic, grid));
        let serial_pool = Pool::new(PoolOptions { threads: 1, spin: Duration::ZERO }).expect("a pool");
        // SAFETY: as above.
        let serial = || unsafe { serial_pool.launch(arithmetic, &[], Launch::grid([grid, 1, 1])) }.expect("a launch");
        let (serial, _) = times(500, Duration::from_micros(20), serial);
        println!("arithmetic of {serial:8.1} µs: {parallel:8.1} µs, {:.2} times as fast", serial / parallel);
    }
}
