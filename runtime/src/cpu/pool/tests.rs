use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;

use super::*;

fn pool(threads: usize) -> Pool {
    Pool::new(PoolOptions::with_threads(threads)).unwrap()
}

fn add_length(total: &AtomicU64, range: std::ops::Range<u64>) {
    total.fetch_add(range.end - range.start, Ordering::Relaxed);
}

#[test]
fn covers_each_iteration_once() {
    for threads in [1, 2, 3, 8] {
        let pool = pool(threads);
        for count in [0, 1, 2, 7, 64, 997, 10_000] {
            for grain in [0, 1, 10, u64::MAX] {
                let seen: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
                pool.for_each(count, grain, &|thread, range| {
                    assert!(thread < threads && !range.is_empty());
                    for i in range {
                        seen[i as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{threads} {count} {grain}");
            }
        }
    }
}

#[test]
fn long_loops_are_covered() {
    let pool = pool(3);
    for count in [(1 << 34) + 5, 1 << 62] {
        let total = AtomicU64::new(0);
        pool.for_each(count, 1, &|_, range| add_length(&total, range));
        assert_eq!(total.into_inner(), count);
    }
}

#[test]
fn a_thread_starts_with_its_own_part() {
    let pool = pool(3);
    let first = [const { AtomicU64::new(u64::MAX) }; 3];
    pool.for_each(61, 1, &|thread, range| {
        _ = first[thread].compare_exchange(u64::MAX, range.start, Ordering::Relaxed, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    });
    assert_eq!(first.map(AtomicU64::into_inner), [0, 21, 41]);
}

/// Loops in quick succession, and after pauses long enough for the workers to sleep.
#[test]
fn survives_many_loops() {
    let pool = Pool::new(PoolOptions { threads: 4, spin: Duration::from_micros(5) }).unwrap();
    let total = AtomicU64::new(0);
    for i in 0..20_000u64 {
        pool.for_each(8, 1, &|_, range| add_length(&total, range));
        if i % 500 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(total.into_inner(), 160_000);
}

#[test]
fn every_thread_takes_part_and_none_twice_at_once() {
    let pool = pool(3);
    let (threads, inside) = (Mutex::new(BTreeSet::new()), [const { AtomicU32::new(0) }; 3]);
    // Until the workers sleep, and each iteration long enough for them to wake.
    std::thread::sleep(Duration::from_millis(20));
    pool.for_each(60, 1, &|thread, _| {
        assert_eq!(inside[thread].fetch_add(1, Ordering::SeqCst), 0);
        std::thread::sleep(Duration::from_millis(2));
        inside[thread].fetch_sub(1, Ordering::SeqCst);
        threads.lock().unwrap().insert(thread);
    });
    assert_eq!(threads.into_inner().unwrap().into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn loops_inside_loops_and_beside_each_other_run() {
    let pool = pool(3);
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.for_each(5, 1, &|_, outer| {
                        pool.for_each(outer.end - outer.start, 1, &|thread, inner| {
                            assert_eq!(thread, 0);
                            total.fetch_add(inner.end - inner.start, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 4 * 200 * 5);
}

#[test]
fn panics_reach_the_caller_and_the_pool_lives_on() {
    let pool = pool(3);
    for bad in [0, 50, 99] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(100, 1, &|_, range| assert!(!range.contains(&bad), "iteration {bad}"));
        }));
        let message = result.unwrap_err();
        assert!(message.downcast_ref::<String>().unwrap().contains(&format!("iteration {bad}")));
        let total = AtomicU64::new(0);
        pool.for_each(100, 1, &|_, range| add_length(&total, range));
        assert_eq!(total.into_inner(), 100);
    }
}

#[test]
fn options_are_checked() {
    assert!(Pool::new(PoolOptions::with_threads(0)).is_err());
    assert!(Pool::new(PoolOptions::with_threads(1 << 20)).is_err());
    assert_eq!(parse_threads(" 3 ").unwrap(), 3);
    for text in ["", "0", "-1", "two", "1025", "99999999999999999999"] {
        assert!(parse_threads(text).unwrap_err().to_string().contains("RC_NUM_THREADS"), "{text}");
    }
}

/// Where waking takes longer than a loop, the worker finds the gate shut; it must not sleep on, or it would miss the next loop too.
#[test]
fn a_worker_that_wakes_too_late_watches_for_the_next_loop() {
    let pool = pool(2);
    pool.for_each(64, 1, &|_, _| {});
    let (shared, (woken, done)) = (pool.shared.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        shared.sleep(0);
        woken.send(()).unwrap();
    });
    done.recv_timeout(Duration::from_secs(10)).unwrap();
}
