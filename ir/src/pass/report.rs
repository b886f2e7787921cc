//! What came of a pipeline's run.

use super::Timing;
use crate::diag::Diagnostic;
use std::fmt::Write;

/// A counter of a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statistic {
    /// The pass, as in the pipeline.
    pub pass: String,
    pub name: &'static str,
    pub value: u64,
}

/// What passes said, counted and took.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Remarks and warnings: by pass, in program order within a pass.
    pub diagnostics: Vec<Diagnostic>,
    /// Why the pipeline stopped; empty where it did not.
    pub errors: Vec<Diagnostic>,
    pub statistics: Vec<Statistic>,
    /// A part for each pass that ran, with its prerequisites and the verifier as parts.
    pub timing: Timing,
}

impl Report {
    pub fn succeeded(&self) -> bool {
        self.errors.is_empty()
    }
    /// Adds that of the passes after these.
    pub fn append(&mut self, after: Report) {
        self.diagnostics.extend(after.diagnostics);
        self.errors.extend(after.errors);
        self.statistics.extend(after.statistics);
        after.timing.parts.into_iter().for_each(|part| self.timing.add(part));
    }
    /// The report of `--pass-statistics`, in the form of mlir-opt's.
    pub fn statistics_text(&self) -> String {
        let rule = format!("===-{}-===", "-".repeat(71));
        let mut out = format!("{rule}\n{:^79}\n{rule}\n", "... Pass statistics report ...");
        let mut last = None;
        for s in &self.statistics {
            if last != Some(&s.pass) {
                let _ = writeln!(out, "{}", s.pass);
                last = Some(&s.pass);
            }
            let _ = writeln!(out, "  (S) {:>8} {}", s.value, s.name);
        }
        out
    }
}
