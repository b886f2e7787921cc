//! How long passes took, as a tree.

use std::fmt;
use std::time::Duration;

/// A piece of work and its parts. The time of the whole includes that of the parts.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    pub name: String,
    pub wall: Duration,
    pub parts: Vec<Timing>,
}

impl Timing {
    pub fn new(name: impl Into<String>, wall: Duration) -> Timing {
        Timing { name: name.into(), wall, parts: Vec::new() }
    }
    /// Runs `work` and times it.
    pub fn of<T>(name: impl Into<String>, work: impl FnOnce() -> T) -> (Timing, T) {
        let start = std::time::Instant::now();
        let out = work();
        (Timing::new(name, start.elapsed()), out)
    }
    /// Adds a part, and its time to the whole.
    pub fn add(&mut self, part: Timing) {
        self.wall += part.wall;
        self.parts.push(part);
    }
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize, total: Duration) -> fmt::Result {
        let seconds = self.wall.as_secs_f64();
        let share = 100.0 * seconds / total.as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(f, "  {seconds:>8.4} ({share:>5.1}%)  {:indent$}{}", "", self.name, indent = 2 * depth)?;
        self.parts.iter().try_for_each(|p| p.write(f, depth + 1, total))
    }
}

/// The report of `--timing`, in the form of mlir-opt's.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = format!("===-{}-===", "-".repeat(71));
        writeln!(f, "{rule}\n{:^79}\n{rule}", "... Execution time report ...")?;
        writeln!(f, "  Total Execution Time: {:.4} seconds\n", self.wall.as_secs_f64())?;
        writeln!(f, "  ----Wall Time----  ----Name----")?;
        self.parts.iter().try_for_each(|p| p.write(f, 0, self.wall))?;
        writeln!(f, "  {:>8.4} (100.0%)  Total", self.wall.as_secs_f64())
    }
}
