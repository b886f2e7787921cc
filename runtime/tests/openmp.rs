//! Loops on the team of an OpenMP runtime that another library has: GCC's here, which the compiler that builds rc brings along.

use rc_runtime::cpu::{Pool, PoolOptions, share_openmp_of};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls `set` of the runtime for this thread.
fn set_threads(threads: i32) {
    // SAFETY: the library is loaded, and declares the function so.
    unsafe {
        let library = libc::dlopen(c"libgomp.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "libgomp is there");
        let set = libc::dlsym(library, c"omp_set_num_threads".as_ptr());
        std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(i32)>(set)(threads);
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(PoolOptions::with_threads(threads)).expect("threads")
}

/// The names of the threads that ran a long loop, which covers each iteration once.
fn names(pool: &Pool, count: u64) -> BTreeSet<String> {
    let names = Mutex::new(BTreeSet::new());
    let seen: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
    pool.for_each(count, 1, &|thread, range| {
        assert!(thread < pool.threads());
        range.for_each(|i| _ = seen[i as usize].fetch_add(1, Ordering::Relaxed));
        names.lock().unwrap().insert(std::thread::current().name().unwrap_or("none").to_string());
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    names.into_inner().unwrap()
}

#[test]
fn loops_run_on_the_team_of_a_library_that_has_one() {
    assert!(names(&pool(3), 300).contains("rc-worker-1"), "none is shared yet");
    set_threads(2);
    assert!(share_openmp_of(c"libgomp.so.1"));
    let pool = pool(3);
    for _ in 0..3 {
        let names = names(&pool, 300);
        assert!(names.iter().all(|name| !name.starts_with("rc-worker")), "{names:?}");
        assert_eq!(names.len(), 2, "{names:?}");
    }
    // Loops inside loops run on their thread.
    pool.for_each(8, 1, &|_, range| range.for_each(|_| pool.for_each(4, 1, &|_, inner| assert_eq!(inner, 0..4))));
    let raised = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.for_each(64, 1, &|_, range| assert!(!range.contains(&40), "at 40"));
    }));
    assert!(raised.is_err());
    // A larger team would be made anew for each library in turn.
    set_threads(8);
    assert!(names(&pool, 300).contains("rc-worker-1"));
    // One thread, if the library is to use no more.
    set_threads(1);
    assert_eq!(names(&pool, 300).len(), 1);
    set_threads(2);
    // SAFETY: the child only runs a loop and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fresh = Pool::new(PoolOptions::with_threads(2)).is_ok_and(|pool| names(&pool, 100).len() == 2);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!fresh)) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the forked process runs its own threads");
}
