//! What `rc-opt` says of rewrite rules.

use rc_ir::Diagnostic;
use rc_ir::pass::Report;
use rc_kit::prove::{Effort, prove_all};
use rc_passes::rules::read_file;
use std::fmt::Write;

/// `--check-rules`: a line for each rule that is proved.
///
/// # Errors
/// What is wrong with the file, or with rules, after the lines of those that are right.
pub fn check_rules(path: &str) -> Result<String, (String, Vec<Diagnostic>)> {
    let rules = read_file(path).map_err(|errors| (String::new(), errors))?;
    let (mut lines, mut errors) = (String::new(), Vec::new());
    for proof in prove_all(&rules, Effort::default()) {
        match proof {
            Ok(proof) => {
                let _ = writeln!(lines, "{proof}");
            }
            Err(error) => errors.push(*error),
        }
    }
    if errors.is_empty() { Ok(lines) } else { Err((lines, errors)) }
}

/// `--print-rules-applied`: each rule of each pass that was applied, and how often.
pub fn applied(report: &Report) -> String {
    let mut out = String::new();
    for statistic in &report.statistics {
        if let Some(rule) = statistic.name.strip_prefix("rule ") {
            let _ = writeln!(out, "{}: {rule}, {} times", statistic.pass, statistic.value);
        }
    }
    if out.is_empty() { "no rule was applied\n".into() } else { out }
}
