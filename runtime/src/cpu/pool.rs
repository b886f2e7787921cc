//! Threads that stay, waiting for the next parallel loop.
//!
//! Each thread has a *part* of a loop, the same one of equal loops, so that what it read and wrote last time is still in its cache. It takes
//! *chunks* of its part from a counter, and then those that others have left; the caller takes part. One atomic word, the *gate*,
//! admits workers: it holds the loop's number, whether it is open, and how many workers are inside. A worker enters
//! by raising the count while the gate is open and its number new; the caller closes the gate when no chunk is left,
//! and returns when the count has fallen to zero. A worker that wakes too late thus never delays a loop, which a
//! caller that outruns the wake-up finishes alone.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread::{JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use super::openmp;
use crate::{Error, Result};

/// How to make a [`Pool`].
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Threads that work on a loop, the caller included; at least 1.
    pub threads: usize,
    /// How long an idle thread watches for the next loop before it sleeps. Waking a sleeping thread costs tens of
    /// microseconds.
    pub spin: Duration,
}

impl PoolOptions {
    /// That many threads; they spin for 200 µs unless they outnumber the processors.
    pub fn with_threads(threads: usize) -> PoolOptions {
        let processors = available_parallelism().map_or(1, |n| n.get());
        let spin = if threads <= processors { Duration::from_micros(200) } else { Duration::ZERO };
        PoolOptions { threads, spin }
    }

    /// `RC_NUM_THREADS` where it is set, else the processors that this process may use. Fails where the variable is
    /// not a number from 1 to 1024.
    pub fn from_env() -> Result<PoolOptions> {
        let threads = match std::env::var_os("RC_NUM_THREADS") {
            Some(text) => parse_threads(&text.to_string_lossy())?,
            None => available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS),
        };
        Ok(PoolOptions::with_threads(threads))
    }
}

#[cfg(test)]
mod tests;

const MOST_THREADS: usize = 1024;

/// The process's own team.
static GLOBAL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// Whether the process was forked, after which an OpenMP runtime waits for threads that it no longer has.
static FORKED: AtomicBool = AtomicBool::new(false);

/// In a process that was forked: its threads were not, and what they left locked stays so.
extern "C" fn forget_global() {
    GLOBAL.store(std::ptr::null_mut(), Ordering::Release);
    FORKED.store(true, Ordering::Release);
}

/// Has a process that is forked from now on make a team of its own.
pub(super) fn notice_forks() {
    static HANDLER: Once = Once::new();
    // SAFETY: the handler only stores. Without memory for it, forks are not noticed, and loops run on their callers alone.
    HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forget_global)) });
}

fn parse_threads(text: &str) -> Result<usize> {
    let threads = text.trim().parse().ok().filter(|threads| (1..=MOST_THREADS).contains(threads));
    threads.ok_or_else(|| Error::Invalid(format!("RC_NUM_THREADS: expected 1 to {MOST_THREADS}, found `{text}`")))
}

/// A parallel loop's body: called with a thread's index and a range of iterations.
type Body<'a> = dyn Fn(usize, Range<u64>) + Sync + 'a;

/// A team of threads. Loops from several callers at once, and loops inside loops, run on their calling thread alone.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether a caller has the team.
    busy: AtomicBool,
    helped: AtomicBool,
}

/// A line of its own, so that one thread's writes do not take another's line away.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Debug)]
struct Shared {
    /// `number << 32 | open << 31 | workers inside`.
    gate: Line<AtomicU64>,
    /// For each part `number << 32 | units that are handed out`; of another loop's number: none.
    next: Box<[Line<AtomicU64>]>,
    /// The loop; written while the gate is shut and nobody is inside.
    job: Line<JobCell>,
    sleepers: Line<AtomicUsize>,
    lock: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    spin: Duration,
}

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

/// The lower half of a part's counter.
const UNITS: u64 = u32::MAX as u64;
/// A chunk is one part in so many of what is left of its thread's part: the last ones are short, so that threads end together.
const TURNS: u64 = 4;

struct Job {
    body: *const Body<'static>,
    number: u64,
    end: u64,
    /// The shortest chunk, but for the last of a part.
    least: u64,
    /// Parts into which the iterations are divided.
    parts: u64,
    /// Whether another thread than the caller has taken a chunk.
    helped: AtomicBool,
    /// The first panic of a body.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Whether a body has panicked: the rest need not run.
    stopped: AtomicBool,
}

// SAFETY: the body may be called by several threads at once, and lives as long as the loop.
unsafe impl Sync for Job {}

/// The current loop, behind the gate.
#[derive(Debug)]
struct JobCell(Cell<*const Job>);

// SAFETY: the caller writes the cell only while the gate is shut and empty, and the gate orders that with the reads.
unsafe impl Sync for JobCell {}
// SAFETY: as above.
unsafe impl Send for JobCell {}

impl Pool {
    /// Starts the threads. Fails where there are to be none, or the system refuses one.
    pub fn new(options: PoolOptions) -> Result<Pool> {
        if !(1..=MOST_THREADS).contains(&options.threads) {
            return Err(Error::Invalid(format!("a pool of 1 to {MOST_THREADS} threads, not {}", options.threads)));
        }
        let shared = Arc::new(Shared {
            gate: Line(AtomicU64::new(0)),
            next: (0..options.threads).map(|_| Line(AtomicU64::new(0))).collect(),
            job: Line(JobCell(Cell::new(std::ptr::null()))),
            sleepers: Line(AtomicUsize::new(0)),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            spin: options.spin,
        });
        let mut pool =
            Pool { shared, workers: Vec::new(), busy: AtomicBool::new(false), helped: AtomicBool::new(false) };
        for index in 1..options.threads {
            let shared = pool.shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("rc-worker-{index}"))
                .stack_size(8 << 20)
                .spawn(move || shared.work(index))
                .map_err(|e| Error::Invalid(format!("cannot start thread {index} of {}: {e}", options.threads)))?;
            pool.workers.push(thread);
        }
        Ok(pool)
    }

    /// The process's own team, made on first use from [`PoolOptions::from_env`], and again in a process that was forked, which has none of the
    /// threads. Fails where making it does.
    pub fn global() -> Result<&'static Pool> {
        // SAFETY: a pool that stands here is never freed.
        if let Some(pool) = unsafe { GLOBAL.load(Ordering::Acquire).as_ref() } {
            return Ok(pool);
        }
        notice_forks();
        let made = Box::into_raw(Box::new(Pool::new(PoolOptions::from_env()?)?));
        match GLOBAL.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => Ok(unsafe { &*made }),
            Err(other) => {
                // SAFETY: made here, and no other thread has seen it; the one that stands is never freed.
                drop(unsafe { Box::from_raw(made) });
                Ok(unsafe { &*other })
            }
        }
    }

    /// Threads that work on a loop, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Whether another thread than the caller had a part of the last loop that the team had.
    pub fn was_helped(&self) -> bool {
        self.helped.load(Ordering::Relaxed)
    }

    /// Runs `body(thread, range)` over consecutive pieces of `0..count`, each at least `grain` long but for the last of a thread's part,
    /// until all are done. Calls with the same `thread` do not overlap. A panic in a body is raised again here, after
    /// every thread has left the loop.
    pub fn for_each(&self, count: u64, grain: u64, body: &(dyn Fn(usize, Range<u64>) + Sync)) {
        if count == 0 {
            return;
        }
        let least = (count / (64 * self.threads() as u64)).max(grain).max(1);
        if least >= count || self.workers.is_empty() || self.busy.swap(true, Ordering::Acquire) {
            return body(0, 0..count);
        }
        let (helped, panic) = self.run(count, least, body);
        self.helped.store(helped, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn run(&self, end: u64, least: u64, body: &Body<'_>) -> (bool, Option<Box<dyn Any + Send>>) {
        // SAFETY: the lifetime is forgotten only until the gate has shut behind the last worker, below.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        let shared = &*self.shared;
        let number = (shared.gate.0.load(Ordering::Relaxed) >> 32).wrapping_add(1) & UNITS;
        let parts = end.div_ceil(least).min(self.threads() as u64);
        let (helped, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let job = Job { body, number, end, least, parts, helped, panic: Mutex::new(None), stopped };
        let on_team = |thread: usize| job.work(thread, &shared.next);
        if !FORKED.load(Ordering::Relaxed) && openmp::run(self.threads(), &on_team) {
            // Parts' counters go by the number.
            shared.gate.0.store(number << 32, Ordering::Release);
            return job.into_end();
        }
        shared.job.0.0.set(&job);
        // Sequentially consistent with `sleepers`: either this sees a sleeper, or the sleeper sees the open gate.
        shared.gate.0.store(number << 32 | OPEN, Ordering::SeqCst);
        if shared.sleepers.0.load(Ordering::SeqCst) > 0 {
            shared.wake_some(end.div_ceil(least) - 1);
        }
        job.work(0, &shared.next);
        // Shut the gate, then wait for those inside.
        let mut inside = shared.gate.0.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE;
        let mut tries = 0u32;
        while inside > 0 {
            tries += 1;
            // A worker may have lost its processor to another process: let it have this one.
            if tries.is_multiple_of(4096) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
            inside = shared.gate.0.load(Ordering::Acquire) & INSIDE;
        }
        job.into_end()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake_some(u64::MAX);
        for worker in self.workers.drain(..) {
            // A worker catches what its bodies raise, so there is no panic to pass on.
            let _ = worker.join();
        }
    }
}

impl Job {
    /// Whether another thread than the caller helped, and a body's panic.
    fn into_end(self) -> (bool, Option<Box<dyn Any + Send>>) {
        (self.helped.into_inner(), self.panic.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where a part starts, or the last one ends.
    fn start(&self, part: u64) -> u64 {
        let (each, more) = (self.end / self.parts, self.end % self.parts);
        part * each + part.min(more)
    }

    /// The next chunk of a part; none where all of it is handed out.
    fn take(&self, part: u64, next: &AtomicU64) -> Option<Range<u64>> {
        let (start, end) = (self.start(part), self.start(part + 1));
        let unit = (end - start) / UNITS + 1;
        let units = (end - start).div_ceil(unit);
        let done = |value: u64| if value >> 32 == self.number { value & UNITS } else { 0 };
        let taken = |done: u64| ((units - done) / TURNS).max(self.least.div_ceil(unit)).min(units - done);
        let step = |value: u64| {
            let done = done(value);
            (done < units).then(|| self.number << 32 | (done + taken(done)))
        };
        let before = done(next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok()?);
        let place = |units: u64| start.saturating_add(units * unit).min(end);
        Some(place(before)..place(before + taken(before)))
    }

    /// Takes chunks until none is left, those of the thread's own part first.
    fn work(&self, thread: usize, next: &[Line<AtomicU64>]) {
        // SAFETY: the caller of `run` keeps the body alive until the loop is over.
        let body = unsafe { &*self.body };
        for turn in 0..self.parts {
            let part = (thread as u64 + turn) % self.parts;
            while !self.stopped.load(Ordering::Relaxed)
                && let Some(range) = self.take(part, &next[part as usize].0)
            {
                if thread > 0 && !self.helped.load(Ordering::Relaxed) {
                    self.helped.store(true, Ordering::Relaxed);
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(thread, range))) {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                    self.stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, thread: usize) {
        let mut last = 0;
        while let Some(number) = self.enter(last) {
            last = number;
            // SAFETY: inside the gate the job is valid; the caller waits for this thread to leave.
            unsafe { (*self.job.0.0.get()).work(thread, &self.next) };
            self.gate.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a loop other than `last` and enters it; `None` when the pool ends.
    fn enter(&self, last: u64) -> Option<u64> {
        let mut idle_since = None;
        let mut tries = 0u32;
        loop {
            let gate = self.gate.0.load(Ordering::Acquire);
            if gate & OPEN != 0 && gate >> 32 != last {
                let entered = self.gate.0.compare_exchange_weak(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    return Some(gate >> 32);
                }
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            tries = tries.wrapping_add(1);
            std::hint::spin_loop();
            // Reading the clock costs as much as many looks at the gate.
            if tries.is_multiple_of(64) && idle_since.get_or_insert_with(Instant::now).elapsed() >= self.spin {
                self.sleep(gate >> 32);
                idle_since = None;
            }
        }
    }

    /// Sleeps until there has been a loop after that of number `seen`, or the pool ends. A worker that wakes too late for a loop watches for the next one:
    /// where waking takes longer than loops do, it would never come.
    fn sleep(&self, seen: u64) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        while self.gate.0.load(Ordering::SeqCst) >> 32 == seen && !self.stop.load(Ordering::SeqCst) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }

    /// Wakes up to `count` sleepers.
    fn wake_some(&self, count: u64) {
        // Held for a moment, so that a thread between its look at the gate and its sleep is not missed.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        let sleepers = self.sleepers.0.load(Ordering::Relaxed) as u64;
        if count >= sleepers {
            self.wake.notify_all();
        } else {
            (0..count).for_each(|_| self.wake.notify_one());
        }
    }
}
