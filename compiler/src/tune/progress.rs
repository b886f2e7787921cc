//! How far tuning is, on a terminal.

use super::kernels::Kernel;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;

/// A bar with the time that is left, and a line for each candidate that was skipped.
pub struct Progress {
    bar: ProgressBar,
    skipped: Mutex<Vec<String>>,
}

impl Progress {
    /// Of so many measurements.
    pub fn new(trials: u64) -> Progress {
        let bar = ProgressBar::new(trials);
        let style = ProgressStyle::with_template("tuning [{bar:30}] {pos}/{len}, {eta} left: {msg}");
        bar.set_style(style.expect("a valid template").progress_chars("=> "));
        Progress { bar, skipped: Mutex::default() }
    }
    pub fn starts(&self, kernel: &Kernel) {
        self.bar.set_message(kernel.origin.clone());
    }
    /// So many measurements less to do.
    pub fn did(&self, trials: usize) {
        self.bar.inc(trials as u64);
    }
    /// A candidate that cannot be run.
    pub fn skips(&self, what: String) {
        self.bar.suspend(|| eprintln!("skipped: {what}"));
        self.skipped.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(what);
    }
    /// Takes the bar away. Gives what was skipped.
    pub fn finish(self) -> Vec<String> {
        self.bar.finish_and_clear();
        self.skipped.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
