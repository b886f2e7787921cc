//! Whether a launch or a copy on a CPU is worth sharing among threads, by what it took.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a launch or a copy on a CPU takes at best, as far as it was measured: on one thread alone, and on all together. In nanoseconds; 0: not known.
#[derive(Debug, Default)]
pub struct Pace {
    alone: AtomicU32,
    together: AtomicU32,
    runs: AtomicU32,
    /// How far it is on the way to be measured on one thread.
    warm: AtomicU32,
}

/// When a launch is shared, in nanoseconds that it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing {
    /// On one thread: from there on others share it.
    pub shared: u32,
    /// On all threads: up to there one thread is tried.
    pub tried: u32,
}

impl Pace {
    /// Runs after which all is measured again: what else runs on the machine changes.
    const REMEMBERED: u32 = 1024;
    /// Before one thread is tried: four runs that others helped with, the first of which finds nothing in the caches. Threads that sleep take long to wake
    /// up, so that a run without help counts as a quarter.
    const WARM: u32 = 16;
    const HELPED: u32 = 4;
    /// Runs on one thread, to measure it.
    const TRIED: u32 = 2;
    /// Where all threads have another try if they were no faster: another program, or another library's threads that watch for work, may have had the cores.
    const AGAIN: [u32; 3] = [32, 128, 512];
    /// Runs of such a try: threads that sleep take the first few to wake up.
    const WAKING: u32 = 16;

    /// Whether one thread is to run it: where it takes that too little to be shared, or not longer than all threads, which is tried where it may be.
    pub fn is_short(&self, sharing: Sharing) -> bool {
        let (alone, together) = (self.alone.load(Ordering::Relaxed), self.together.load(Ordering::Relaxed));
        let run = self.runs.load(Ordering::Relaxed) % Pace::REMEMBERED;
        let warm = self.warm.load(Ordering::Relaxed);
        match (alone, together) {
            (0, 0) => false,
            _ if (Pace::WARM..Pace::WARM + Pace::TRIED).contains(&warm) => together < sharing.tried,
            (0, _) => together < sharing.shared / 2,
            _ if alone < sharing.shared => true,
            _ => {
                together > 0 && alone <= together && !Pace::AGAIN.iter().any(|&n| (n..n + Pace::WAKING).contains(&run))
            }
        }
    }

    /// Notes what it took, on one thread alone or on all, and whether another than the caller had a part of it.
    pub fn note(&self, took: Duration, alone: bool, helped: bool) {
        let nanos = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        if self.runs.fetch_add(1, Ordering::Relaxed) % Pace::REMEMBERED == Pace::REMEMBERED - 1 {
            self.alone.store(0, Ordering::Relaxed);
            self.together.store(0, Ordering::Relaxed);
            self.warm.store(0, Ordering::Relaxed);
        }
        let warm = self.warm.load(Ordering::Relaxed);
        let warmer = match alone {
            true if warm >= Pace::WARM => warm + 1,
            false if warm < Pace::WARM => (warm + if helped { Pace::HELPED } else { 1 }).min(Pace::WARM),
            _ => warm,
        };
        self.warm.store(warmer, Ordering::Relaxed);
        let measured = if alone { &self.alone } else { &self.together };
        let before = measured.load(Ordering::Relaxed);
        measured.store(if before == 0 { nanos } else { before.min(nanos) }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;
    const SHARING: Sharing = Sharing { shared: 6000, tried: 128_000 };

    /// What becomes of a launch that takes so many microseconds on one thread and on all: on one thread or not, once it was measured.
    fn settled(alone: u64, together: u64) -> bool {
        let pace = Pace::default();
        for _ in 0..8 {
            let short = pace.is_short(SHARING);
            pace.note(MICROS(if short { alone } else { together }), short, !short);
        }
        pace.is_short(SHARING)
    }

    #[test]
    fn short_launches_go_to_one_thread() {
        let pace = Pace::default();
        assert!(!pace.is_short(SHARING), "nothing is known of it");
        pace.note(MICROS(50), false, true);
        assert!(!pace.is_short(SHARING));
        pace.note(MICROS(2), false, true);
        assert!(pace.is_short(SHARING), "all threads need so little that one may do");
        assert!(settled(4, 3));
        assert!(!settled(8, 5));
    }

    #[test]
    fn launches_that_all_threads_do_not_make_faster_go_to_one() {
        assert!(settled(10, 12) && settled(54, 67), "others are asleep, and waking them takes longer");
        assert!(!settled(12, 10));
        assert!(!settled(900, 1000), "too long to try");
    }

    #[test]
    fn all_threads_have_another_try() {
        let pace = Pace::default();
        // Another program has the cores at first.
        let run = |together: u64| {
            let short = pace.is_short(SHARING);
            pace.note(MICROS(if short { 30 } else { together }), short, !short);
            short
        };
        assert_eq!((0..Pace::AGAIN[0]).filter(|_| run(40)).count() as u32, Pace::AGAIN[0] - Pace::WARM / Pace::HELPED);
        assert!((0..Pace::AGAIN[1]).all(|_| !run(15)));
    }

    #[test]
    fn threads_that_wake_up_late_are_waited_for() {
        let pace = Pace::default();
        // Nobody helps with the first runs, and then a run takes half the time.
        for run in 0..20 {
            let (short, awake) = (pace.is_short(SHARING), run > 8);
            pace.note(MICROS(if short || !awake { 80 } else { 40 }), short, awake && !short);
        }
        assert!(!pace.is_short(SHARING));
    }

    #[test]
    fn a_launch_that_was_held_up_is_measured_again() {
        let pace = Pace::default();
        pace.note(MICROS(900), true, false);
        (1..Pace::REMEMBERED).for_each(|_| pace.note(MICROS(900), false, true));
        (0..Pace::WARM / Pace::HELPED).for_each(|_| pace.note(MICROS(9), false, true));
        pace.note(MICROS(5), true, false);
        assert!(pace.is_short(SHARING));
    }
}
